"""How large a message may be: told to the client, and held to."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from tests.acceptance.sdk import client_of, send, take

ENTITIES: dict[str, dict[str, object]] = {"orders": {}}

STANDARD_BYTES = 256 * 1024


def test_a_batch_ends_at_the_limit(bridge: Any) -> None:
    """The client fills a batch by the link's limit; the fullest there is arrives whole."""
    with client_of(bridge) as client:
        with client.get_queue_sender("orders") as sender:
            batch = sender.create_message_batch()
            assert batch.max_size_in_bytes == STANDARD_BYTES
            for _ in range(26):
                batch.add_message(ServiceBusMessage("x" * 10_000))
            with pytest.raises(ValueError, match="size"):
                batch.add_message(ServiceBusMessage("x" * 10_000))
            assert STANDARD_BYTES - 10_000 < batch.size_in_bytes <= STANDARD_BYTES
            sender.send_messages(batch)
        with client.get_queue_receiver("orders") as receiver:
            take(receiver, len(batch))


def test_a_message_above_the_limit(bridge: Any) -> None:
    """It is refused by name, nothing of it is stored, and the client goes on."""
    with client_of(bridge) as client:
        with (
            client.get_queue_sender("orders") as sender,
            pytest.raises(MessageSizeExceededError, match="262144"),
        ):
            sender.send_messages(ServiceBusMessage("x" * STANDARD_BYTES))
        send(client, "orders", "x" * (STANDARD_BYTES - 1_000))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = take(receiver)
        assert len(str(message)) == STANDARD_BYTES - 1_000


def test_an_id_above_the_limit(bridge: Any) -> None:
    """Service Bus takes 128 characters; the refusal says so, and the client goes on."""
    with client_of(bridge) as client:
        with client.get_queue_sender("orders") as sender:
            with pytest.raises(ServiceBusError, match="'message-id' has 129 characters") as refused:
                sender.send_messages(
                    AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": "i" * 129})
                )
            assert not refused.value._retryable
            sender.send_messages(
                AmqpAnnotatedMessage(data_body=b"x", properties={"message_id": "i" * 128})
            )
        with client.get_queue_receiver("orders") as receiver:
            (message,) = take(receiver)
        assert message.message_id == "i" * 128
