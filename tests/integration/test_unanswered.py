"""What a bridge answers while it is given no answer itself: never that nothing is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.engine.api import DeadLetter
from bridge.engine.browse import unrecorded_settlements
from bridge.engine.clock import now_ms
from bridge.engine.receiving import deletion
from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.model.errors import ServerBusy, ServiceBusError, SessionLockLost
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.wire.basic import long, text
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.session_door import SessionClient

pytestmark = pytest.mark.long

SESSIONS = model.Queue(name="orders", lock_duration_ms=10_000, requires_session=True)

ORDERS = model.Queue(name="orders", lock_duration_ms=60_000)

StartBroker = Callable[[], Broker]


async def purge(door: Door) -> int:
    """Delete all that waits."""
    return await door.namespace.delete_messages(door.path, 10, now_ms() + 60_000)


async def counted(door: Door) -> Counts:
    """How many messages there are, waiting or held."""
    entity = door.namespace.directory.receivable(door.path)
    (counts,) = await door.namespace.counting.counts([entity])
    return counts


async def is_refused(door: Door) -> bool:
    """Send elsewhere: an alarm stops a connection when something is published there."""
    try:
        await door.namespace.send(EntityPath("other"), [outgoing("x")])
    except ServiceBusError:
        return True
    return False


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
    """When RabbitMQ is back before it is refused, it deletes the messages that are there."""
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


async def test_what_another_bridge_holds_counts_during_an_alarm(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be asked then: the counts are those before, and a peek takes nothing for gone."""
    monkeypatch.setattr(unrecorded_settlements, "LOOK_S", 0.0)
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    ctl, endpoint, url = (
        broker.node.rabbitmqctl,
        parse_url(broker.url_of("/")),
        broker.management_url,
    )
    async with (
        open_door(endpoint, url, ORDERS, model.Queue(name="other"), with_sidecar=False) as first,
        open_door(endpoint, url) as second,
    ):
        await send(second)
        for each in await first.client().receive(3):
            assert each.lock_token is not None
            await first.namespace.settle(first.path, each.lock_token, DeadLetter())
        await first.client(path=first.dead_letters).receive(3)
        assert (await counted(second)).dead_letter == 3
        assert len(await second.namespace.peek(second.dead_letters, 1, 3)) == 3
        await asyncio.to_thread(ctl, "set_vm_memory_high_watermark", "0.000001")
        try:
            await until(lambda: is_refused(second))
            assert (await counted(second)).dead_letter == 3
            assert len(await second.namespace.peek(second.dead_letters, 1, 3)) == 3
        finally:
            await asyncio.to_thread(ctl, "set_vm_memory_high_watermark", "0.6")


async def test_a_session_lock_that_ends_during_an_alarm_is_told_behind_it(
    start_broker: StartBroker,
) -> None:
    """To a receiver at another bridge, which could not be told when it ended."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    ctl, endpoint = broker.node.rabbitmqctl, parse_url(broker.url_of("/"))
    queues = SESSIONS, model.Queue(name="other")
    opened = partial(open_door, endpoint, broker.management_url, *queues, session_shards=1)
    async with opened(with_sidecar=False) as owner, opened() as other:
        await SessionClient(owner).accept("held by the owner")
        client = await SessionClient(other).accept("a")
        await asyncio.to_thread(ctl, "set_vm_memory_high_watermark", "0.000001")
        try:
            for door in (owner, other):
                await until(partial(is_refused, door))
            assert not client.lost
            await until(lambda: "a" not in held_at(owner))
        finally:
            await asyncio.to_thread(ctl, "set_vm_memory_high_watermark", "0.6")
        assert isinstance(await client.wait_for_loss(), SessionLockLost)


def held_at(door: Door) -> list[str]:
    """The sessions that are held, where they are owned."""
    (owner,) = door.namespace._sessions.owners.all
    return [each.id for each in owner.messages.machine._held.values()]


async def test_a_bridge_whose_node_is_down_holds_nothing(
    endpoint: Endpoint, broker: Broker, connection: Connection
) -> None:
    """RabbitMQ 4.3 lists its queue until the node is back, and refuses what is sent there."""
    channel = await connection.channel()
    dead = names.bridge_queue(b"a node")
    refusing = {"x-max-length": long(0), "x-overflow": text("reject-publish")}
    await channel.declarations.declare_queue(
        dead, durable=False, exclusive=True, arguments=refusing
    )
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        assert (await counted(door)).active == 0
        await send(door)
        await until(lambda: _is_listed(door, dead))
        assert (await counted(door)).active == 3


async def _is_listed(door: Door, queue: str) -> bool:
    return queue in await door.management.queues_below(names.BRIDGE_QUEUES)
