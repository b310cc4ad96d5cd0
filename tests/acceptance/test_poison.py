"""Whatever anybody publishes into any object of the bridge's, every feature goes on.

RabbitMQ takes a message from whoever may publish: into each queue and stream of every kind of
entity, and those of the bridges. It does so before and after a kill.
"""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import Callable
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver, ServiceBusSubQueue

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.client import ServiceBusClient as LibraryClient
from bridge.client import ServiceBusMessage as LibraryMessage
from bridge.client.management import ServiceBusAdministrationClient
from tests.acceptance.sdk import client_of, now, seconds, unique
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually
from tests.integration.poison import Publisher, messages

ENTITIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "unique": {"RequiresDuplicateDetection": True},
    "sessions": {"RequiresSession": True},
    "target": {},
    "source": {"ForwardTo": "target"},
}
TOPICS = [
    {
        "Name": "events",
        "Properties": {},
        "Subscriptions": [
            {"Name": "all", "Properties": {}},
            {"Name": "sessions", "Properties": {"RequiresSession": True}},
        ],
    },
]

EVERY = 13
"""So many kinds of poison are left out between two that a queue gets; each begins with another."""


async def poison(endpoint: Endpoint, queues: list[str], exchanges: list[str]) -> None:
    """Publish into each queue, and to each exchange."""
    everything = messages()
    publisher = Publisher(endpoint)
    places = [("", queue) for queue in queues] + [(exchange, "") for exchange in exchanges]
    try:
        for number, (exchange, key) in enumerate(places):
            await publisher.publish(exchange, key, everything[number % EVERY :: EVERY])
    finally:
        await publisher.close()


def until_found(receiver: ServiceBusReceiver, wanted: set[str], within: int = 400) -> None:
    """Complete messages until all that are wanted have come."""
    missing = set(wanted)
    for _ in range(within):
        for message in receiver.receive_messages(50, max_wait_time=5):
            missing.discard(bytes(b"".join(message.body)).decode(errors="replace"))
            receiver.complete_message(message)
        if not missing:
            return
    raise AssertionError(f"{missing} did not come")


def queues_go_on(bridge: Any) -> None:
    """Sending, scheduling, deferring, dead-lettering, peeking, forwarding, duplicates, a topic."""
    with client_of(bridge) as client:
        bodies = [unique("plain") for _ in range(4)]
        with client.get_queue_sender("plain") as sender:
            sender.schedule_messages(ServiceBusMessage(bodies[0]), now() + seconds(1))
            sender.send_messages([ServiceBusMessage(each) for each in bodies[1:]])
        with client.get_queue_receiver("plain") as receiver:
            assert receiver.peek_messages(1, sequence_number=1) is not None
            missing = set(bodies)
            while missing:
                batch = receiver.receive_messages(50, max_wait_time=120)
                assert batch, missing
                for message in batch:
                    body = bytes(b"".join(message.body)).decode(errors="replace")
                    if body == bodies[1]:
                        receiver.defer_message(message)
                        (again,) = receiver.receive_deferred_messages([message.sequence_number])
                        receiver.complete_message(again)
                    elif body == bodies[2]:
                        receiver.dead_letter_message(message, reason="r")
                    else:
                        receiver.complete_message(message)
                    missing.discard(body)
        with client.get_queue_receiver(
            "plain", sub_queue=ServiceBusSubQueue.DEAD_LETTER
        ) as receiver:
            until_found(receiver, {bodies[2]})
        body = unique("forwarded")
        with client.get_queue_sender("source") as sender:
            sender.send_messages(ServiceBusMessage(body))
        with client.get_queue_receiver("target") as receiver:
            until_found(receiver, {body})
        body = unique("unique")
        with client.get_queue_sender("unique") as sender:
            sender.send_messages(ServiceBusMessage(body, message_id=body))
            sender.send_messages(ServiceBusMessage("again", message_id=body))
        with client.get_queue_receiver("unique") as receiver:
            until_found(receiver, {body})
        body = unique("event")
        with client.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage(body, session_id=body))
        with client.get_subscription_receiver("events", "all") as receiver:
            until_found(receiver, {body})
        with client.get_subscription_receiver("events", "sessions", session_id=body) as receiver:
            until_found(receiver, {body})


def sessions_go_on(bridge: Any) -> None:
    """Accepting, a state, order."""
    with client_of(bridge) as client:
        session = unique("session")
        bodies = [unique("of-session") for _ in range(3)]
        with client.get_queue_sender("sessions") as sender:
            for body in bodies:
                sender.send_messages(ServiceBusMessage(body, session_id=session))
        with client.get_queue_receiver("sessions", session_id=session) as receiver:
            receiver.session.set_state(b"state")
            assert receiver.session.get_state() == b"state"
            until_found(receiver, set(bodies))


def administration_goes_on(bridge: Any) -> None:
    """And with it the library."""
    name = unique("made")
    with ServiceBusAdministrationClient.from_connection_string(bridge.amqp_url) as administration:
        administration.create_queue(name)
    with LibraryClient.from_connection_string(bridge.amqp_url) as client:
        with client.get_queue_sender(name) as sender:
            sender.send_messages(LibraryMessage("hello"))
        with client.get_queue_receiver(name) as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=120)
            receiver.complete_message(message)
    with ServiceBusAdministrationClient.from_connection_string(bridge.amqp_url) as administration:
        administration.delete_queue(name)


def is_ready(bridge: Any) -> bool:
    """Whether it says so."""
    try:
        return bool(bridge.get("/health/ready"))
    except urllib.error.HTTPError:
        return False


FEATURES: tuple[Callable[[Any], None], ...] = (
    queues_go_on,
    sessions_go_on,
    administration_goes_on,
)


def everything_goes_on(bridge: Any) -> None:
    """Each feature."""
    eventually(lambda: is_ready(bridge), "ready", within_s=120)
    for feature in FEATURES:
        feature(bridge)


@pytest.mark.kills
def test_every_feature_goes_on(bridge: Any, broker: Broker, module_vhost: str) -> None:
    """With poison in every queue, stream and exchange, and when a bridge starts on all that."""
    everything_goes_on(bridge)
    queues = [
        row["name"]
        for row in broker.management("GET", f"/api/queues/{module_vhost}?columns=name,exclusive")
    ]
    exchanges = [
        row["name"]
        for row in broker.management("GET", f"/api/exchanges/{module_vhost}?columns=name")
        if row["name"] and not row["name"].startswith("amq.")
    ]
    asyncio.run(poison(parse_url(broker.url_of(module_vhost)), queues, exchanges))
    everything_goes_on(bridge)
    bridge.restart()
    everything_goes_on(bridge)
    assert [line for line in bridge.lines if "Traceback" in line] == []
