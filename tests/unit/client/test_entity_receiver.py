"""What a client holds of one queue: calls that end while messages are still on their way."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.entity_receiver import EntityReceiver
from bridge.client.core.publisher import Publisher
from bridge.client.core.settlements import Settlements
from bridge.client.core.wire import Delivery
from bridge.machine.settled import SettledMemory
from bridge.message.received import Received
from bridge.model.entity import Queue, Tier
from bridge.model.name import SubQueue
from bridge.topology import names
from bridge.topology.capabilities import Capabilities
from bridge.topology.description import Described
from bridge.wire import stamp
from bridge.wire.basic import Properties
from tests.fixtures.scripted_wire import ScriptedWire

QUEUE = Queue(name="orders")


def described(queue: Queue = QUEUE, version: str = "4.3.6") -> Described:
    """Return what a client knows of a queue."""
    return Described(queue, Capabilities.of(version), is_clustered=False, tier=Tier.STANDARD)


def a_receiver(wire: ScriptedWire, version: str = "4.3.6") -> EntityReceiver:
    """Return what a client has of it."""
    any_wire = cast(Any, wire)
    publisher = Publisher(any_wire)
    return EntityReceiver(
        described(version=version),
        SubQueue.NONE,
        wire=any_wire,
        publisher=publisher,
        settled=SettledMemory(1 << 20),
        settlements=Settlements(any_wire, publisher),
    )


def a_delivery(number: int) -> Delivery:
    """Return a numbered message as RabbitMQ delivers it."""
    properties = Properties(delivery_mode=2, headers={}).encode()
    fields = stamp.active(number, 0, number.to_bytes(20, "big"), None)
    exchange = names.active_exchange(QUEUE.path)
    return Delivery(number, exchange, stamp.put(properties, fields), b"body")


def test_a_call_that_fills_up_while_it_ends_keeps_its_locks() -> None:
    """Its last message comes between its end's beginning and RabbitMQ's answer to that."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    answer: Future[list[Received]] = Future()
    receiver.pull(2, None, ServiceBusReceiveMode.PEEK_LOCK, answer)
    wire.turn()
    (channel,) = wire.channels
    assert channel.deliver is not None
    channel.deliver(a_delivery(1))
    wire.turn()
    wire.advance(1)
    assert channel.is_cancelled
    assert not answer.done()
    channel.deliver(a_delivery(2))
    wire.turn()
    assert channel.end is not None
    channel.end()
    wire.turn()
    wire.advance(1)
    tokens = [each.lock_token for each in answer.result(0)]
    assert (len(tokens), channel.returned) == (2, [])
    for token in tokens:
        assert token is not None
        receiver.complete(token, Future())
    assert channel.acked == [1, 2]


def test_messages_whose_locks_end_together_go_back_by_their_numbers() -> None:
    """RabbitMQ keeps them in the order in which they come back."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    answer: Future[list[Received]] = Future()
    receiver.pull(32, None, ServiceBusReceiveMode.PEEK_LOCK, answer)
    wire.turn()
    (channel,) = wire.channels
    assert channel.deliver is not None
    for number in range(1, 33):
        channel.deliver(a_delivery(number))
    wire.turn()
    assert len(answer.result(0)) == 32
    wire.advance(QUEUE.lock_duration_ms / 1000 + 1)
    assert channel.returned == list(range(1, 33))


def test_what_is_read_after_the_loss_of_its_channel_is_not_held() -> None:
    """RabbitMQ brings it again, and then it is no second copy of one that is here."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    answer: Future[list[Received]] = Future()
    receiver.pull(1, None, ServiceBusReceiveMode.PEEK_LOCK, answer)
    wire.turn()
    (lost,) = wire.channels
    receiver.lose()
    assert lost.deliver is not None
    lost.deliver(a_delivery(1))
    wire.turn()
    wire.advance(2)
    channel = wire.channels[-1]
    assert (answer.done(), receiver.held_count) == (False, 0)
    assert channel.deliver is not None
    channel.deliver(a_delivery(1))
    wire.turn()
    (got,) = answer.result(0)
    assert got.lock_token is not None
    receiver.complete(got.lock_token, Future())
    assert (lost.acked, channel.acked) == ([], [1])
