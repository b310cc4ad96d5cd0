"""RabbitMQ is killed under load; the bridge comes back by itself and nothing confirmed is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.crash.siege import Siege
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

BACK_S = 90.0
"""A node of RabbitMQ needs some seconds to start, and quorum queues to elect."""


def kill_broker(siege: Siege, broker: Broker) -> None:
    """Kill the node after some work, and start it again."""
    assert broker.node is not None
    broker.node.kill()
    siege.note_kill(is_broker=True)
    broker.node.start()
    siege.progress(within_s=BACK_S)


def broker_kills(siege: Siege, broker: Broker, count: int) -> None:
    """Kill RabbitMQ so many times; the bridge's process stays."""
    chance = random.Random(count)
    pid = siege.bridge.pid
    with siege.under_load():
        for _ in range(count):
            time.sleep(chance.uniform(1, 4))
            kill_broker(siege, broker)
    assert siege.bridge.pid == pid
    assert siege.bridge.is_running


def test_a_broker_kill(start_broker: Callable[[], Broker], start_bridge: StartBridge) -> None:
    """One kill of RabbitMQ under load."""
    broker = start_broker()
    siege = Siege(start_bridge(on=broker, vhost="/"))
    broker_kills(siege, broker, 1)
    siege.judge()


def test_what_is_confirmed_at_once_outlasts_a_kill(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """RabbitMQ is killed right after its first messages: its youngest queues do not forget them."""
    broker = start_broker()
    bridge = start_bridge(on=broker, vhost="/")
    assert broker.node is not None
    with (
        ServiceBusClient.from_connection_string(bridge.connection_string) as client,
        client.get_queue_sender("load") as sender,
    ):
        sender.send_messages(ServiceBusMessage("sent"))
        due = datetime.now(UTC) + timedelta(seconds=20)
        sender.schedule_messages(ServiceBusMessage("scheduled"), due)
        broker.node.kill()
    bridge.kill()
    broker.node.start()
    bridge.start()
    with (
        ServiceBusClient.from_connection_string(bridge.connection_string) as client,
        client.get_queue_receiver("load", max_wait_time=60) as receiver,
    ):
        for expected in ("sent", "scheduled"):
            message = next(receiver)
            assert str(message) == expected
            receiver.complete_message(message)


@pytest.mark.soak
def test_five_broker_kills(start_broker: Callable[[], Broker], start_bridge: StartBridge) -> None:
    """Five kills of RabbitMQ under load."""
    broker = start_broker()
    siege = Siege(start_bridge(on=broker, vhost="/"))
    broker_kills(siege, broker, 5)
    siege.judge()


@pytest.mark.soak
def test_both_die(start_broker: Callable[[], Broker], start_bridge: StartBridge) -> None:
    """RabbitMQ is killed, and the bridge while it repeats what it saw no confirm for."""
    broker = start_broker()
    siege = Siege(start_bridge(on=broker, vhost="/"))
    assert broker.node is not None
    with siege.under_load():
        for step in ("published", "confirmed"):
            siege.kill()
            siege.bridge.start(BUSBRIDGE_FAILPOINT=f"sequencer.again.{step}")
            siege.progress()
            broker.node.kill()
            siege.note_kill(is_broker=True)
            broker.node.start()
            time.sleep(3)
            siege.kill()
            siege.bridge.start()
            siege.progress(within_s=BACK_S)
    siege.judge()
