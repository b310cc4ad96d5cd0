"""Application properties come in the sender's order, whoever sends and whoever receives."""

from __future__ import annotations

import json
from typing import Any

import pika
import pytest
from azure.servicebus import ServiceBusMessage

from tests.acceptance.lanes import lane_of
from tests.acceptance.rest import Rest
from tests.acceptance.sdk import client_of, native_channel, receive, send, take

ENTITIES: dict[str, dict[str, object]] = {"orders": {}}
NAMES = ["zeta", "alpha", "Mid", "beta", "11", "1"]
"""Neither sorted nor reversed."""


def keys_of(message: Any) -> list[str]:
    """Return the names of a message's properties, in order."""
    return [name.decode() for name in message.application_properties or {}]


def send_over(door: str, bridge: Any) -> None:
    """Send a message with these properties."""
    values = {name: f"of {name}" for name in NAMES}
    match door:
        case "sdk":
            with client_of(bridge) as client:
                send(client, "orders", ServiceBusMessage("x", application_properties=values))
        case "native":
            with native_channel(bridge) as channel:
                properties = pika.BasicProperties(headers=values, delivery_mode=2)
                channel.basic_publish("orders", "", b"x", properties)
        case "http":
            fields = {name: json.dumps(value) for name, value in values.items()}
            assert Rest(bridge).send("orders", b"x", **fields).status == 201
        case "library":
            with lane_of("pika", bridge) as lane:
                lane.send("orders", "x", application_properties=values)


@pytest.mark.parametrize("door", ["sdk", "native", "http", "library"])
def test_properties_keep_the_sender_s_order(bridge: Any, door: str) -> None:
    """When received, received again, peeked, and as a dead letter with a reason.

    A native publisher's headers RabbitMQ has sorted.
    """
    send_over(door, bridge)
    names = sorted(NAMES) if door == "native" else NAMES
    with client_of(bridge) as client, client.get_queue_receiver("orders") as receiver:
        (message,) = receive(receiver)
        assert keys_of(message) == names
        receiver.abandon_message(message)
        (message,) = receive(receiver)
        assert keys_of(message) == names
        (peeked,) = receiver.peek_messages(sequence_number=message.sequence_number or 0)
        assert keys_of(peeked) == names
        receiver.dead_letter_message(message, reason="why", error_description="so")
        with client.get_queue_receiver("orders", sub_queue="deadletter") as dead:
            (letter,) = take(dead)
        assert keys_of(letter)[: len(names)] == names
        assert set(keys_of(letter)[len(names) :]) == {
            "DeadLetterReason",
            "DeadLetterErrorDescription",
        }


def test_the_library_and_http_are_told_them_in_order(bridge: Any) -> None:
    """The same message, received by each."""
    values = {name: f"of {name}" for name in NAMES}
    with client_of(bridge) as client:
        for _ in range(2):
            send(client, "orders", ServiceBusMessage("x", application_properties=values))
    with lane_of("pika", bridge) as lane, lane.client.get_queue_receiver("orders") as receiver:
        (message,) = take(receiver)
        assert keys_of(message) == NAMES
    answer = Rest(bridge).take("orders")
    assert list(answer.custom) == NAMES
