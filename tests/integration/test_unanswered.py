"""What a bridge answers while it is given no answer itself: never that nothing is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.engine.clock import now_ms
from bridge.engine.receiving import deletion
from bridge.model import entity as model
from bridge.model.errors import ServerBusy
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

ORDERS = model.Queue(name="orders", lock_duration_ms=60_000)

StartBroker = Callable[[], Broker]


async def purge(door: Door) -> int:
    """Delete all that waits."""
    return await door.namespace.delete_messages(door.path, 10, now_ms() + 60_000)


async def send(door: Door) -> None:
    """Send three messages, and wait until they are in the queue."""
    await door.send("a", "b", "c")
    connections = door.namespace._connections

    async def are_there() -> bool:
        with await connections.channel() as channel:
            queue = names.active_queue(ORDERS.path)
            state = await channel.declarations.declare_queue(queue, passive=True)
            return state.messages == 3

    await until(are_there)


async def test_a_purge_of_a_silent_queue_is_refused(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Its messages are there afterwards."""
    assert broker.node is not None
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        await send(door)
        resumed = "timer:apply_after(6000, sys, resume, [P])"
        command = (
            f"P = whereis('{vhost}_{names.active_queue('orders')}'), sys:suspend(P), {resumed}."
        )
        await asyncio.to_thread(broker.node.rabbitmqctl, "eval", command)
        with pytest.raises(ServerBusy):
            await purge(door)
        assert len(await door.client().receive(3)) == 3


async def test_a_purge_without_rabbitmq_is_refused_or_waits(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One during which it comes back deletes what is there."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    async with open_door(parse_url(broker.url_of("/")), broker.management_url, ORDERS) as door:
        await send(door)
        await asyncio.to_thread(broker.node.kill)
        await until(lambda: not door.namespace.state.is_ready)
        monkeypatch.setattr(deletion, "LASTS_S", 1.0)
        with pytest.raises(ServerBusy):
            await purge(door)
        monkeypatch.setattr(deletion, "LASTS_S", 60.0)
        purging = asyncio.create_task(purge(door))
        await asyncio.to_thread(broker.node.start)
        assert await purging == 3
