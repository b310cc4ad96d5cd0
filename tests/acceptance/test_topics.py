"""Topics and subscriptions through the real Python client."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pika
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError

from tests.acceptance.sdk import (
    client_of,
    expect_silence,
    native_channel,
    native_get,
    now,
    numbers,
    receive,
    seconds,
    take,
)

ENTITIES: dict[str, Any] = {}
RED = {
    "Name": "red",
    "Properties": {
        "FilterType": "Correlation",
        "CorrelationFilter": {"Properties": {"color": "red"}},
    },
}
TOPICS = [
    {
        "Name": topic,
        "Subscriptions": [
            {"Name": "all", "Properties": {"LockDuration": "PT5S"}},
            {"Name": "Red", "Rules": [RED]},
            {
                "Name": "short",
                "Properties": {
                    "DefaultMessageTimeToLive": "PT1S",
                    "DeadLetteringOnMessageExpiration": True,
                },
            },
        ],
    }
    for topic in ("events", "natives", "restarted", "Times", "refusals")
]


def publish(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    """Send messages to a topic, one by one."""
    with client.get_topic_sender(topic) as sender:
        for message in messages:
            sender.send_messages(message)


def colored(body: str, color: str, **options: Any) -> ServiceBusMessage:
    """A message that the subscription `red` takes or not."""
    return ServiceBusMessage(body, application_properties={"color": color}, **options)


def test_each_subscription_has_its_copies_numbers_and_dead_letters(bridge: Any) -> None:
    """Numbers count in each by itself; a dead letter is one subscription's alone."""
    with client_of(bridge) as client:
        publish(client, "events", colored("a", "blue"), colored("b", "red"), colored("c", "red"))
        with client.get_subscription_receiver("events", "all") as receiver:
            everything = receive(receiver, 3)
            assert [str(message) for message in everything] == ["a", "b", "c"]
            assert numbers(everything) == [1, 2, 3]
            receiver.dead_letter_message(everything[1], reason="bad", error_description="because")
            receiver.renew_message_lock(everything[0])
            receiver.complete_message(everything[0])
            receiver.defer_message(everything[2])
            (deferred,) = receiver.receive_deferred_messages([3])
            assert str(deferred) == "c"
            receiver.complete_message(deferred)
            expect_silence(receiver)
        dead_letters = client.get_subscription_receiver(
            "Events", "ALL", sub_queue=ServiceBusSubQueue.DEAD_LETTER
        )
        with dead_letters as receiver:
            (dead,) = take(receiver)
            assert (str(dead), dead.dead_letter_reason, dead.sequence_number) == ("b", "bad", 2)
        with client.get_subscription_receiver("events", "red") as receiver:
            red = take(receiver, 2)
            assert [str(message) for message in red] == ["b", "c"]
            assert numbers(red) == [1, 2]
            assert [message.enqueued_sequence_number for message in red] == [2, 3]


def test_times_of_a_topics_messages(bridge: Any) -> None:
    """The shortest time to live counts; a scheduled message comes at its time, unless cancelled."""
    with client_of(bridge) as client:
        publish(client, "times", colored("a", "red", time_to_live=timedelta(minutes=1)))
        dead_letters = client.get_subscription_receiver(
            "times", "short", sub_queue=ServiceBusSubQueue.DEAD_LETTER
        )
        with dead_letters as receiver:
            (expired,) = take(receiver)
            assert expired.dead_letter_reason == "TTLExpiredException"
        with client.get_subscription_receiver("times", "red") as receiver:
            (alive,) = take(receiver)
            assert alive.time_to_live == timedelta(minutes=1)
            due = now() + seconds(1.5)
            with client.get_topic_sender("times") as sender:
                kept, cancelled = sender.schedule_messages(
                    [colored("kept", "red"), colored("cancelled", "red")], due
                )
                sender.cancel_scheduled_messages([cancelled])
            assert (kept, cancelled) == (2, 3)
            (scheduled,) = take(receiver)
            assert (str(scheduled), scheduled.sequence_number) == ("kept", 2)
            assert scheduled.enqueued_time_utc is not None
            assert scheduled.enqueued_time_utc >= due
            expect_silence(receiver)


def test_a_native_publisher_and_a_native_consumer(bridge: Any) -> None:
    """Its headers are the properties that filters see; the queue is named as the subscription."""
    with native_channel(bridge) as channel:
        properties = pika.BasicProperties(headers={"color": "red"}, delivery_mode=2)
        channel.basic_publish("natives", "", b"native", properties, mandatory=True)
        with client_of(bridge) as client:
            with client.get_subscription_receiver("natives", "red") as receiver:
                (message,) = take(receiver)
                assert (str(message), message.sequence_number) == ("native", 1)
            _, basic, body = native_get(channel, "natives/subscriptions/all")
            assert body == b"native"
            assert basic.headers["x-opt-sequence-number"] == 1


def test_numbers_go_on_after_a_restart(bridge: Any) -> None:
    """A killed bridge's successor counts on, in the topic and in each subscription."""
    with client_of(bridge) as client:
        publish(client, "restarted", colored("a", "blue"), colored("b", "red"))
    bridge.restart()
    with client_of(bridge) as client:
        publish(client, "restarted", colored("c", "red"))
        with client.get_subscription_receiver("restarted", "all") as receiver:
            assert numbers(take(receiver, 3)) == [1, 2, 3]
        with client.get_subscription_receiver("restarted", "red") as receiver:
            red = take(receiver, 2)
            assert numbers(red) == [1, 2]
            assert [message.enqueued_sequence_number for message in red] == [2, 3]


def test_what_topics_refuse(bridge: Any) -> None:
    """Receiving from a topic, sending to a subscription, one that is not there."""
    with client_of(bridge) as client:
        with (
            pytest.raises(MessagingEntityNotFoundError),
            client.get_queue_receiver("refusals") as receiver,
        ):
            receiver.receive_messages(1, max_wait_time=2)
        with (
            pytest.raises(ServiceBusError, match="Subscriber"),
            client.get_queue_sender("refusals/subscriptions/all") as sender,
        ):
            sender.send_messages(ServiceBusMessage("x"))
        with (
            pytest.raises(MessagingEntityNotFoundError, match="none"),
            client.get_subscription_receiver("refusals", "none") as receiver,
        ):
            receiver.receive_messages(1, max_wait_time=2)
