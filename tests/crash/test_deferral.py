"""What is deferred is in one place, whichever way bridge or RabbitMQ die."""

from __future__ import annotations

import contextlib
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import MessageNotFoundError, ServiceBusError

from bridge.broker.failpoint import STEPS
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker

QUEUE = "dropped"
BACK_S = 180.0
DIES_S = 120.0

POINTS = [f"engine.defer.{step}" for step in STEPS]
POINTS += ["engine.deferred.declared", "engine.again.published", "engine.deferred.answered"]
POINTS += ["engine.deferred.put_last"]


pytestmark = [pytest.mark.kills, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(autouse=True)
def cut_off_clients() -> Iterator[None]:
    """A client that is cut off leaves sockets behind: they are closed here, not in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@dataclass
class Seen:
    """What a client knows of its messages, by body.

    Attributes:
        numbers: sequence numbers, of all that it has received.
        deferred: what it was told is deferred.
        ending: what it has begun to complete.
        ended: what it was told is completed.
    """

    numbers: dict[str, int] = field(default_factory=dict)
    deferred: set[str] = field(default_factory=set)
    ending: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)


def client_of(bridge: Bridge) -> ServiceBusClient:
    """A client without retries."""
    return ServiceBusClient.from_connection_string(bridge.connection_string, retry_total=0)


def receive(receiver: ServiceBusReceiver, count: int) -> dict[str, int]:
    """Receive so many messages and defer them; return their numbers by body."""
    end = time.monotonic() + DIES_S
    found = {}
    while len(found) < count and time.monotonic() < end:
        for message in receiver.receive_messages(count, max_wait_time=1):
            found[str(message)] = message.sequence_number or 0
            receiver.defer_message(message)
    return found


def use(bridge: Bridge, seen: Seen, *bodies: str) -> None:
    """Defer all, abandon the second, complete and ask for the third; until it fails or is done."""
    with client_of(bridge) as client, client.get_queue_receiver(QUEUE) as receiver:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])
        left = set(bodies)
        while left:
            for message in receiver.receive_messages(3, max_wait_time=1):
                body = str(message)
                seen.numbers[body] = message.sequence_number or 0
                left.discard(body)
                receiver.defer_message(message)
                seen.deferred.add(body)
        second, third = receiver.receive_deferred_messages(
            [seen.numbers[bodies[1]], seen.numbers[bodies[2]]]
        )
        receiver.abandon_message(second)
        seen.ending.add(str(third))
        receiver.complete_message(third)
        seen.ended.add(str(third))
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(seen.numbers[bodies[2]])


def find(bridge: Bridge, seen: Seen, *, within_s: float) -> tuple[set[str], set[str]]:
    """Complete all that is there; return what was had by number, and what was active.

    What an attempt that fails has received may be completed, and comes to no later one.
    """
    deferred: set[str] = set()
    others: set[str] = set()
    end = time.monotonic() + within_s
    while True:
        try:
            with client_of(bridge) as client, client.get_queue_receiver(QUEUE) as receiver:
                by_number(receiver, seen, deferred)
                active(receiver, others)
                return deferred, others
        except ServiceBusError:
            assert time.monotonic() < end


def by_number(receiver: ServiceBusReceiver, seen: Seen, found: set[str]) -> None:
    """Receive and complete each number that is known, one by one; add what comes."""
    for number in seen.numbers.values():
        try:
            (message,) = receiver.receive_deferred_messages(number)
        except MessageNotFoundError:
            continue
        found.add(str(message))
        receiver.complete_message(message)


def active(receiver: ServiceBusReceiver, found: set[str]) -> None:
    """Receive and complete until nothing more comes; add what comes."""
    ended: set[str] = set()
    while messages := receiver.receive_messages(10, max_wait_time=1):
        for message in messages:
            assert str(message) not in ended
            found.add(str(message))
            receiver.complete_message(message)
            ended.add(str(message))


def test_a_bridge_that_dies_at_each_point(start_bridge: StartBridge) -> None:
    """Nothing is lost; what was answered holds; what was not may stand in both places."""
    bridge = start_bridge()
    for point in POINTS:
        bridge.kill()
        bridge.start(BUSBRIDGE_FAILPOINT=point)
        seen = Seen()
        bodies = [f"{point} {number}" for number in range(3)]
        with contextlib.suppress(ServiceBusError):
            use(bridge, seen, *bodies)
        bridge.wait(within_s=DIES_S)
        bridge.start()
        deferred, others = find(bridge, seen, within_s=DIES_S)
        assert deferred | others | seen.ending >= set(bodies), point
        assert not (deferred | others) & seen.ended, point
        assert not others & seen.deferred, point


def test_a_broker_that_dies(start_broker: Callable[[], Broker], start_bridge: StartBridge) -> None:
    """Deferred messages outlive a kill of RabbitMQ, locked ones too, under their numbers."""
    broker = start_broker()
    bridge = start_bridge(on=broker, vhost="/")
    assert broker.node is not None
    bodies = {str(number) for number in range(20)}
    seen = Seen()
    with client_of(bridge) as client, client.get_queue_receiver(QUEUE) as receiver:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages([ServiceBusMessage(body) for body in bodies])
        seen.numbers = receive(receiver, len(bodies))
        receiver.receive_deferred_messages(list(seen.numbers.values())[:5])
        broker.node.kill()
        broker.node.start()
    deferred, others = find(bridge, seen, within_s=BACK_S)
    assert (deferred, others) == (bodies, set())
