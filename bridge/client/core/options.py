"""A client's options, for both lanes."""

from __future__ import annotations

import logging
import os
from typing import Any

from bridge.client.address import Address, parse, rabbitmq_url
from bridge.client.core.retrying import RetryOptions
from bridge.model.name import EntityPath, SubQueue

log = logging.getLogger("azure.servicebus")

_IGNORED = frozenset(
    {
        "logging_enable",
        "transport_type",
        "http_proxy",
        "user_agent",
        "custom_endpoint_address",
        "uamqp_transport",
        "entity_name",
        "use_tls",
        "keep_alive",
    }
)
"""Options of the SDK that mean nothing on RabbitMQ."""


class Options:
    """A client's address and retries.

    Args:
        given: a connection string, or the namespace's name.
        credential: accepted and not used: RabbitMQ's login is in its URL.

    Raises:
        ValueError: the URL of RabbitMQ is missing or malformed.
        TypeError: an option is unknown.
    """

    def __init__(self, given: str, credential: object, options: dict[str, Any]) -> None:
        url = rabbitmq_url(given, options.pop("rabbitmq_url", None), os.environ)
        self.address: Address = parse(
            url,
            context=options.pop("ssl_context", None),
            ca_file=options.pop("connection_verify", None),
        )
        self.retry = RetryOptions(
            options.pop("retry_total", 3),
            options.pop("retry_backoff_factor", 0.8),
            options.pop("retry_backoff_max", 120.0),
            options.pop("retry_mode", "exponential"),
        )
        self.try_timeout: float | None = options.pop("try_timeout", None)
        unknown = sorted(set(options) - _IGNORED)
        if unknown:
            raise TypeError(f"bridge.client has no option {', '.join(unknown)}.")
        if credential is not None:
            log.warning("The credential is not used: RabbitMQ's login is the one in its URL.")


def subscription_path(topic: str, subscription: str) -> str:
    """Return the path of a subscription."""
    return f"{topic}/Subscriptions/{subscription}"


def sub_queue_of(value: object, path: str) -> SubQueue:
    """Return the sub-queue that `sub_queue=` means.

    Raises:
        NotImplementedError: the transfer dead-letter queue, which no bridge has.
        ValueError: no sub-queue.
    """
    if value is None:
        return SubQueue.NONE
    text = str(getattr(value, "value", value)).lower()
    if text == "deadletter":
        return SubQueue.DEAD_LETTER
    if text == "transferdeadletter":
        raise NotImplementedError(f"'{EntityPath(path)}' has no transfer dead-letter sub-queue.")
    raise ValueError(f"{value!r} is no sub-queue: 'deadletter' is.")
