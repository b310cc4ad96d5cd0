"""Other bridges, lost connections, alarms and a killed broker, as the engine meets them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.engine.api import Abandon, DeadLetter, Defer, Release
from bridge.model import entity as model
from bridge.model.errors import MessageLockLost, OperationTimeout, ServerBusy
from bridge.wire.basic import text
from bridge.wire.mapping.fields import AMQP_ENCODED
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

pytestmark = pytest.mark.long

ORDERS = model.Queue(name="orders", lock_duration_ms=300_000, max_delivery_count=10)
"""Locks that outlast any of these tests."""

StartBroker = Callable[[], Broker]


async def test_a_lock_is_settled_and_renewed_at_any_bridge(
    endpoint: Endpoint, broker: Broker
) -> None:
    """A token is carried out by its owner, whichever bridge it arrives at."""
    async with (
        open_door(endpoint, broker.management_url, ORDERS) as owner,
        open_door(endpoint, broker.management_url, with_sidecar=False) as other,
    ):
        await owner.send("a", "b", "c")
        client = owner.client()
        completed, dead, abandoned = await client.receive(3)
        for each in (completed, dead, abandoned):
            assert each.lock_token is not None
        (until_ms,) = await other.namespace.renew_locks(owner.path, [completed.lock_token])
        assert until_ms >= (completed.locked_until_ms or 0)
        await other.complete(completed)
        with pytest.raises(MessageLockLost):
            await owner.complete(completed)
        why = DeadLetter(reason="r", description="d", properties={"n": (AMQP_ENCODED, b"\x54\x05")})
        await other.namespace.settle(owner.path, dead.lock_token, why)
        changed = Abandon(properties={"colour": text("red")})
        await other.namespace.settle(owner.path, abandoned.lock_token, changed)

        (again,) = await client.receive()
        assert (again.sequence_number, again.delivery_count) == (3, 1)
        assert (again.record.properties.headers or {})["colour"] == text("red")
        (buried,) = await other.client(path=other.dead_letters).receive()
        table = buried.record.properties.headers or {}
        assert (table["DeadLetterReason"], table["n"][1]) == (text("r"), 5)


async def test_the_locks_of_a_bridge_that_is_gone_are_lost(
    endpoint: Endpoint, broker: Broker
) -> None:
    """The message comes again elsewhere; its old token is unknown."""
    async with open_door(endpoint, broker.management_url, ORDERS) as staying:
        async with open_door(endpoint, broker.management_url, with_sidecar=False) as leaving:
            await staying.send("a")
            (received,) = await leaving.client().receive()
        (again,) = await staying.client().receive()
        assert again.sequence_number == 1
        with pytest.raises(MessageLockLost):
            await staying.complete(received)
        await staying.complete(again)


async def test_released_messages_of_one_bridge_reach_receivers_of_another(
    endpoint: Endpoint, broker: Broker
) -> None:
    """A bridge that keeps a released message gives it up when another bridge waits for it."""
    async with (
        open_door(endpoint, broker.management_url, ORDERS) as first,
        open_door(endpoint, broker.management_url, with_sidecar=False) as second,
    ):
        await first.send("a")
        client = first.client()
        (received,) = await client.receive()
        assert received.lock_token is not None
        await first.namespace.settle(first.path, received.lock_token, Release())
        await client.receiver.close()
        (again,) = await second.client().receive()
        assert again.sequence_number == 1
        await second.complete(again)


async def test_lost_connections_and_alarms(start_broker: StartBroker) -> None:
    """Locks are lost with their connection, receivers go on; an alarm stops what publishes only."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    ctl = broker.node.rabbitmqctl
    async with open_door(parse_url(broker.url_of("/")), broker.management_url, ORDERS) as door:
        await door.send("a", "b")
        client = door.client()
        first, second = await client.receive(2)
        client.receiver.add_credit(10)

        await asyncio.to_thread(ctl, "set_vm_memory_high_watermark", "0.000001")
        await until(lambda: _is_busy(door))
        assert "alarm" in " ".join(door.namespace.state.reasons)
        await door.complete(first)
        assert second.lock_token is not None
        for disposition in (DeadLetter(reason="r"), Defer(), Abandon(properties={"a": text("b")})):
            with pytest.raises(MessageLockLost):
                await door.namespace.settle(door.path, second.lock_token, disposition)
        await asyncio.to_thread(ctl, "set_vm_memory_high_watermark", "0.6")
        await until(lambda: door.namespace.state.is_ready)
        await door.namespace.settle(door.path, second.lock_token, DeadLetter(reason="r"))

        await door.send("c")
        third = await _named(client, b"c")
        await asyncio.to_thread(ctl, "close_all_connections", "test")
        again = await _named(client, b"c")
        assert again.sequence_number == third.sequence_number
        with pytest.raises(MessageLockLost):
            await door.complete(third)
        await door.complete(again)
        await until(lambda: door.namespace.state.is_ready)


async def _is_busy(door: Door) -> bool:
    """Send until it is refused; what met the beginning of the alarm may come later."""
    with contextlib.suppress(OperationTimeout):
        try:
            await door.namespace.send(door.path, [outgoing("x")])
        except ServerBusy:
            return True
    return False


async def _named(client, body: bytes):  # type: ignore[no-untyped-def]
    """The next message of this body."""
    while True:
        (received,) = await client.wait(1)
        if received.record.body == body:
            return received


async def test_a_killed_broker(start_broker: StartBroker) -> None:
    """After it has come back the receiver gets everything that was not completed, in order."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    async with open_door(parse_url(broker.url_of("/")), broker.management_url, ORDERS) as door:
        await door.send(*(str(number) for number in range(20)))
        client = door.client()
        received = await client.receive(10)
        await door.complete(*received[:5])
        await asyncio.to_thread(broker.node.kill)
        await until(lambda: not door.namespace.state.is_ready)
        with pytest.raises(ServerBusy):
            await door.send("x")
        await asyncio.to_thread(broker.node.start)
        await until(lambda: door.namespace.state.is_ready, within_s=120)
        again = await client.receive(15)
        assert [each.sequence_number for each in again] == list(range(6, 21))
        assert [each.delivery_count for each in again[:5]] == [1] * 5
        await door.complete(*again)
