"""The options of clients, senders and receivers, for both lanes."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from typing import Any, TypedDict

from bridge.client.address import Address, parse, rabbitmq_url
from bridge.client.constants import (
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
)
from bridge.client.core.retrying import RetryOptions
from bridge.model.name import EntityPath, SubQueue

log = logging.getLogger("azure.servicebus")


class _Ignored(TypedDict, total=False):
    """Options of the SDK that mean nothing on RabbitMQ."""

    logging_enable: bool
    transport_type: object
    http_proxy: Mapping[str, Any] | None
    user_agent: str | None
    custom_endpoint_address: str | None
    uamqp_transport: bool
    entity_name: str | None
    use_tls: bool
    keep_alive: float | None


class ClientOptions(_Ignored, total=False):
    """Options of a client, and of an administration client; times are in seconds."""

    rabbitmq_url: str | None
    ssl_context: ssl.SSLContext | None
    connection_verify: str | None
    retry_total: int
    retry_backoff_factor: float
    retry_backoff_max: float
    retry_mode: str
    try_timeout: float | None


class SenderOptions(TypedDict, total=False):
    """Options of `get_queue_sender` and `get_topic_sender`; `socket_timeout` means nothing here."""

    client_identifier: str | None
    socket_timeout: float | None


class ReceiverOptions(SenderOptions, total=False):
    """Options of `get_queue_receiver` and `get_subscription_receiver`.

    Attributes:
        max_wait_time: seconds until iteration ends without a message; `None` means never.
        auto_lock_renewer: the `AutoLockRenewer` of the same lane.
        prefetch_count: accepted; nothing is locked ahead.
    """

    session_id: str | ServiceBusSessionFilter | None
    sub_queue: ServiceBusSubQueue | str | None
    receive_mode: ServiceBusReceiveMode | str
    max_wait_time: float | None
    auto_lock_renewer: Any
    prefetch_count: int


def check_names(given: Mapping[str, object], options: type, of: str) -> None:
    """Check the names of options.

    Args:
        options: the class of the options that there are.
        of: what they are for, in the error's text.

    Raises:
        TypeError: an option is unknown.
    """
    unknown = sorted(given.keys() - options.__annotations__.keys())
    if unknown:
        raise TypeError(f"{of} has no option {', '.join(unknown)}.")


class Options:
    """A client's address and retries.

    Args:
        given: a connection string, or the namespace's name.
        credential: accepted and not used: RabbitMQ's login is in its URL.

    Raises:
        ValueError: the URL of RabbitMQ is missing or malformed.
        TypeError: an option is unknown.
    """

    def __init__(self, given: str, credential: object, options: ClientOptions) -> None:
        check_names(options, ClientOptions, "A client")
        url = rabbitmq_url(given, options.get("rabbitmq_url"), os.environ)
        self.address: Address = parse(
            url,
            context=options.get("ssl_context"),
            ca_file=options.get("connection_verify"),
        )
        self.retry = RetryOptions(
            options.get("retry_total", 3),
            options.get("retry_backoff_factor", 0.8),
            options.get("retry_backoff_max", 120.0),
            options.get("retry_mode", "exponential"),
        )
        self.try_timeout = options.get("try_timeout")
        if credential is not None:
            log.warning("The credential is not used: RabbitMQ's login is the one in its URL.")


def subscription_path(topic: str, subscription: str) -> str:
    """Return the path of a subscription."""
    return f"{topic}/Subscriptions/{subscription}"


def sub_queue_of(value: object, path: str) -> SubQueue:
    """Return the sub-queue that `sub_queue=` means.

    Raises:
        NotImplementedError: the transfer dead-letter queue, which SDKs receive from over AMQP 1.0.
        ValueError: no sub-queue.
    """
    if value is None:
        return SubQueue.NONE
    text = str(getattr(value, "value", value)).lower()
    if text == "deadletter":
        return SubQueue.DEAD_LETTER
    if text == "transferdeadletter":
        raise NotImplementedError(
            f"The transfer dead-letter sub-queue of '{EntityPath(path)}' is received from over "
            "AMQP 1.0 only."
        )
    raise ValueError(f"{value!r} is no sub-queue: 'deadletter' is.")
