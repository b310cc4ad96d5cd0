"""RabbitMQ is killed while thousands of messages expire: each one is in the dead-letter queue."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pika
import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError

from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.kills

COUNT = 10_000
BATCH = 500
QUEUE = "side"
TTL_MIN_S, TTL_MAX_S = 5.0, 8.0
"""The messages expire one after the other, so that a kill finds them at it."""

BACK_S = 180.0


def send_all(bridge: Bridge) -> None:
    """Send the messages, each with a time to live that is a little longer than the last one's."""
    with (
        ServiceBusClient.from_connection_string(bridge.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        for first in range(0, COUNT, BATCH):
            batch = []
            for number in range(first, first + BATCH):
                ttl_s = TTL_MIN_S + (TTL_MAX_S - TTL_MIN_S) * number / COUNT
                batch.append(ServiceBusMessage(str(number), time_to_live=timedelta(seconds=ttl_s)))
            sender.send_messages(batch)


def dead_letters(bridge: Bridge) -> int:
    """Return how many messages RabbitMQ has ready in the dead-letter queue."""
    connection = pika.BlockingConnection(pika.URLParameters(bridge.amqp_url))
    try:
        declared = connection.channel().queue_declare(f"{QUEUE}/$deadletterqueue", passive=True)
        return int(declared.method.message_count)
    finally:
        connection.close()


def take_all(bridge: Bridge) -> dict[str, str | None]:
    """Receive and complete dead letters until all are there, or no more come; return their reasons
    by body.

    Not receive-and-delete: the SDK drops such a message that comes after `receive_messages` has
    returned and before the receiver is closed.
    """
    found: dict[str, str | None] = {}
    unsure: set[str] = set()
    end = time.monotonic() + BACK_S
    while len(found) < COUNT and time.monotonic() < end:
        try:
            with (
                ServiceBusClient.from_connection_string(bridge.connection_string) as client,
                client.get_queue_receiver(QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as taker,
            ):
                while messages := taker.receive_messages(BATCH, max_wait_time=2):
                    for message in messages:
                        body = str(message)
                        assert body not in found or body in unsure
                        found[body] = message.dead_letter_reason
                        end = time.monotonic() + BACK_S
                        unsure.add(body)
                        taker.complete_message(message)
                        unsure.discard(body)
        except ServiceBusError:
            time.sleep(0.2)
    return found


@pytest.mark.timeout(900)
def test_a_kill_while_messages_expire(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """No message is lost or delivered; each is dead-lettered once with Azure's reason."""
    broker = start_broker()
    bridge = start_bridge(on=broker, vhost="/")
    assert broker.node is not None
    send_all(bridge)
    end = time.monotonic() + BACK_S
    while not (already := dead_letters(bridge)):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert already < COUNT, "all had expired before the kill"
    broker.node.kill()
    broker.node.start()
    assert take_all(bridge) == dict.fromkeys(map(str, range(COUNT)), "TTLExpiredException")
    with (
        ServiceBusClient.from_connection_string(bridge.connection_string) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        assert receiver.receive_messages(1, max_wait_time=1) == []
