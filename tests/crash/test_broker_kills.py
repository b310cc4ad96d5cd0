"""RabbitMQ is killed under load; the bridge comes back by itself and nothing confirmed is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bridge.topology import names
from tests.crash.load import completing
from tests.crash.siege import Siege, wait_for_acks
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker

pytestmark = pytest.mark.kills

MANY = 60
"""More than an Erlang map keeps in order (32)."""

BACK_S = 180.0
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
        client.get_queue_receiver("load", max_wait_time=120) as receiver,
    ):
        for expected in ("sent", "scheduled"):
            message = next(receiver)
            assert str(message) == expected
            receiver.complete_message(message)


def test_what_was_held_one_by_one_is_settled_for_good_when_rabbitmq_is_killed(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """RabbitMQ reads its log again after a kill, and must come to what it was before.

    It did not before 4.3, when a channel with many consumers (a get is one) had ended: acked
    messages came again, and others were lost.
    """
    broker = start_broker()
    bridge = start_bridge(on=broker, vhost="/")
    assert broker.node is not None
    bodies = [str(number) for number in range(MANY)]
    with ServiceBusClient.from_connection_string(bridge.connection_string) as client:
        with client.get_queue_sender("load") as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])
        with client.get_queue_receiver("load") as receiver:
            for _ in bodies:
                assert receiver.receive_messages(1, max_wait_time=120)
    bridge.restart()
    with ServiceBusClient.from_connection_string(bridge.connection_string) as client:
        with client.get_queue_receiver("load", max_wait_time=120) as receiver:
            completed = list(islice(completing(receiver), MANY // 2))
        node = broker.node
        wait_for_acks(node, names.active_queue("load"), MANY - len(completed))
        node.kill()
        node.start()
        with client.get_queue_receiver("load", max_wait_time=120) as receiver:
            rest = list(islice(completing(receiver), MANY - len(completed)))
    assert sorted(completed + rest) == sorted(bodies)


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
