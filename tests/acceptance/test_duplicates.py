"""Duplicate detection through the real Python client."""

from __future__ import annotations

import uuid
from typing import Any

import pika
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bridge.topology import names
from tests.acceptance.sdk import (
    client_of,
    expect_silence,
    native_channel,
    now,
    numbers,
    seconds,
    send,
    take,
)
from tests.fixtures.bridge import StartBridge

DETECTS: dict[str, object] = {
    "RequiresDuplicateDetection": True,
    "DuplicateDetectionHistoryTimeWindow": "PT5M",
}

ENTITIES: dict[str, dict[str, object]] = {
    "five": DETECTS,
    "typed": DETECTS,
    "later": DETECTS,
    "native": DETECTS,
    "again": DETECTS,
    "many": DETECTS,
    "plain": {},
}

TOPICS = [
    {
        "Name": "events",
        "Properties": DETECTS,
        "Subscriptions": [{"Name": "one"}, {"Name": "two"}],
    }
]


def test_of_five_with_one_id_one_is_received(bridge: Any) -> None:
    """All are accepted; in a batch and one by one; without detection all come."""
    with client_of(bridge) as client:
        for queue in ("five", "plain"):
            with client.get_queue_sender(queue) as sender:
                for text in ("a", "b", "c"):
                    sender.send_messages(ServiceBusMessage(text, message_id="same"))
                sender.send_messages(
                    [ServiceBusMessage(each, message_id="same") for each in ("d", "e")]
                )
                sender.send_messages(ServiceBusMessage("other", message_id="other"))
        with client.get_queue_receiver("five") as receiver:
            first, second = take(receiver, 2)
            assert (str(first), str(second)) == ("a", "other")
            assert numbers([first, second]) == [1, 2]
            expect_silence(receiver)
        with client.get_queue_receiver("plain") as receiver:
            assert len(take(receiver, 6)) == 6


def test_ids_of_two_types_are_two_ids(bridge: Any) -> None:
    """A uuid and its text are two ids; each is detected, and comes back as it was sent."""
    one = uuid.uuid4()
    with client_of(bridge) as client:
        with client.get_queue_sender("typed") as sender:
            for given in (one, str(one), one, str(one)):
                message = ServiceBusMessage("x")
                message.raw_amqp_message.properties.message_id = given
                sender.send_messages(message)
        with client.get_queue_receiver("typed") as receiver:
            first, second = take(receiver, 2)
            ids = [each.raw_amqp_message.properties.message_id for each in (first, second)]
            assert ids == [one, str(one).encode()]
            expect_silence(receiver)


def test_scheduled_messages_take_part_both_ways(bridge: Any) -> None:
    """The answer to a duplicate schedule is the number of the first, which can be cancelled."""
    with client_of(bridge) as client:
        with client.get_queue_sender("later") as sender:
            due = now() + seconds(3600)
            given = [
                sender.schedule_messages(ServiceBusMessage("x", message_id="s"), due)
                for _ in range(2)
            ]
            assert given[0] == given[1]
            sender.send_messages(ServiceBusMessage("now", message_id="s"))
            sender.cancel_scheduled_messages(given[1])
        with client.get_queue_receiver("later") as receiver:
            expect_silence(receiver)


def test_a_topic_drops_a_duplicate_for_all_its_subscriptions(bridge: Any) -> None:
    """One copy each."""
    with client_of(bridge) as client:
        with client.get_topic_sender("events") as sender:
            for text in ("a", "b"):
                sender.send_messages(ServiceBusMessage(text, message_id="same"))
        for name in ("one", "two"):
            with client.get_subscription_receiver("events", name) as receiver:
                (only,) = take(receiver, 1)
                assert str(only) == "a"
                expect_silence(receiver)


def test_native_publishers_take_part(bridge: Any) -> None:
    """By `message_id`; one without it has no duplicates."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        for message_id in ("m", "m", None, None):
            properties = pika.BasicProperties(message_id=message_id)
            channel.basic_publish(names.front("native"), "", b"n", properties, mandatory=True)
        send(client, "native", ServiceBusMessage("sdk", message_id="m"))
        with client.get_queue_receiver("native") as receiver:
            assert [str(each) for each in take(receiver, 3)] == ["n", "n", "n"]
            expect_silence(receiver)


@pytest.mark.long
def test_a_restarted_bridge_knows_what_was_accepted(start_bridge: StartBridge) -> None:
    """From the journal's tail, and from segments of the history."""
    bridge = start_bridge()
    counts = {"again": 1, "many": 2_500}
    for is_first in (True, False):
        with client_of(bridge) as client:
            for queue, count in counts.items():
                send_ids(client, queue, [f"id-{number}" for number in range(count)])
        if is_first:
            bridge.restart()
    with client_of(bridge) as client:
        for queue, count in counts.items():
            with client.get_queue_receiver(queue) as receiver:
                assert sorted(numbers(take(receiver, count))) == list(range(1, count + 1))
                expect_silence(receiver)


def send_ids(client: ServiceBusClient, queue: str, ids: list[str]) -> None:
    """Send a message for each id."""
    with client.get_queue_sender(queue) as sender:
        for at in range(0, len(ids), 500):
            some = ids[at : at + 500]
            sender.send_messages([ServiceBusMessage("x", message_id=each) for each in some])
