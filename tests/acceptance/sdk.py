"""Short ways to use the real Python client and a native RabbitMQ client in the acceptance tests."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from pika.adapters.blocking_connection import BlockingChannel

PATIENCE_S = 120.0
SILENCE_S = 1.0


@contextmanager
def client_of(bridge: Any, **options: Any) -> Iterator[ServiceBusClient]:
    """A client that does not retry, so that every refusal is seen."""
    options = {"retry_total": 0, **options}
    with ServiceBusClient.from_connection_string(bridge.connection_string, **options) as client:
        yield client


def send(client: ServiceBusClient, queue: str, *messages: Any) -> None:
    """Send messages one by one; a `str` is a message with this body."""
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(
                ServiceBusMessage(message) if isinstance(message, str) else message
            )


def receive(
    receiver: ServiceBusReceiver, count: int = 1, *, within_s: float = PATIENCE_S
) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages."""
    messages: list[ServiceBusReceivedMessage] = []
    end = time.monotonic() + within_s
    while len(messages) < count and (left_s := end - time.monotonic()) > 0:
        messages += receiver.receive_messages(count - len(messages), max_wait_time=left_s)
    assert len(messages) == count, f"{len(messages)} messages in {within_s} s, not {count}"
    return messages


def take(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many messages and complete them."""
    messages = receive(receiver, count)
    for message in messages:
        receiver.complete_message(message)
    return messages


def expect_silence(receiver: ServiceBusReceiver, *, for_s: float = SILENCE_S) -> None:
    """There is nothing to receive."""
    found = receiver.receive_messages(1, max_wait_time=for_s)
    assert found == [], f"received {[str(message) for message in found]}"


def numbers(messages: Sequence[ServiceBusReceivedMessage]) -> list[int]:
    """Return the sequence numbers."""
    return [message.sequence_number or 0 for message in messages]


def texts(messages: Sequence[ServiceBusReceivedMessage]) -> list[str]:
    """Return the bodies, as texts."""
    return [str(message) for message in messages]


def now() -> datetime:
    """Return this instant in UTC, cut to what a timestamp on the wire holds."""
    instant = datetime.now(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def sleep_until(instant: datetime, *, and_s: float = 0) -> None:
    """Wait for an instant of the service's own choice, such as the end of a lock."""
    time.sleep(max(0.0, (instant - datetime.now(UTC)).total_seconds() + and_s))


def warnings_of(bridge: Any) -> list[str]:
    """What /health/ready, which says that the bridge is ready, warns of."""
    found = json.loads(bridge.get("/health/ready"))
    assert (found["status"], found["reasons"]) == ("ready", [])
    warnings: list[str] = found["warnings"]
    return warnings


def unique(prefix: str) -> str:
    """Return a name that nothing else has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def seconds(count: float) -> timedelta:
    """Return a duration."""
    return timedelta(seconds=count)


@contextmanager
def native_channel(bridge: Any) -> Iterator[BlockingChannel]:
    """A channel of a RabbitMQ client that knows nothing of the bridge, with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(bridge.amqp_url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        connection.close()


def native_get(channel: BlockingChannel, queue: str) -> tuple[Any, Any, bytes]:
    """Take one message from a RabbitMQ queue; wait for it."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return method, properties, body
        time.sleep(0.05)
    raise AssertionError(f"nothing in {queue} within {PATIENCE_S} s")
