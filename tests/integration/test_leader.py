"""One term of a sequencer, in this process, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import (
    AckLost,
    BrokerError,
    BrokerSilent,
    ChannelClosed,
    PublishRefused,
)
from bridge.model.entity import Tier
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import Companion, LeaderState, TermOver
from bridge.sidecar.shared_connection import SharedConnection
from bridge.sidecar.sidecar import Sidecar
from bridge.topology import names
from bridge.topology.entity_table import Changes
from bridge.wire import commits, headers, journal
from bridge.wire.basic import Properties
from bridge.wire.commits import CommitContent, TransferredEnvelope
from bridge.wire.envelope import Item
from tests.fixtures.sidecar import BARE, Rig
from tests.fixtures.waiting import until


async def begin(
    orders: Rig, connection: Connection, shared: SharedConnection
) -> tuple[Leader, asyncio.Task[None]]:
    """Begin a term that finds an arrival."""
    orders.publish(b"a")
    state = LeaderState(orders.queue, Tier.STANDARD)
    leader = Leader(state, connection, shared)
    return leader, asyncio.create_task(leader.run())


async def test_a_term_that_has_ended_takes_over_no_more(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection
) -> None:
    """An arrival that is one too many may come in one packet with the last confirm of the start."""
    orders = rig()
    leader, living = await begin(orders, connection, shared)
    while not hasattr(leader, "in_flight"):  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)
    leader.in_flight.on_confirmed = lambda: leader.fail(TermOver(text="16 arrivals from now on"))

    with pytest.raises(TermOver):
        await living

    assert leader.meters.arrivals == 0
    assert orders.is_empty()


async def test_whatever_fails_beside_a_term_ends_it(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection
) -> None:
    """Not RabbitMQ's errors only: nobody would open the buckets any more."""
    orders = rig()
    leader, living = await begin(orders, connection, shared)
    await asyncio.to_thread(orders.take, 1)

    async def work() -> None:
        raise LookupError("a fault")

    leader.start(work())
    with pytest.raises(LookupError):
        await living


async def entries(connection: Connection, entity: str) -> list[str]:
    """Return the kinds of a journal's entries, in order; "" for a message."""
    kinds: list[str] = []
    is_end = asyncio.Event()

    def take(delivery: Delivery) -> None:
        table = Properties.decode(delivery.properties).headers or {}
        kind = table.get(headers.ENTRY, ("S", b""))[1]
        assert isinstance(kind, bytes)
        kinds.append(kind.decode())
        if kind == b"end":
            is_end.set()

    stream = names.journal(entity)
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await channel.publisher.publish_confirmed("", stream, journal.entry_properties("end"), b"")
    await channel.consumers.qos(100)
    await channel.consumers.consume(stream, take, arguments={"x-stream-offset": ("S", b"first")})
    async with asyncio.timeout(120):
        await is_end.wait()
    await channel.close()
    return kinds[:-1]


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (lambda leader: leader.fail(TermOver(text="16 arrivals from now on")), "landed"),
        (lambda leader: leader.fail(ChannelClosed(404, "the inbox was deleted")), "landed"),
        (lambda leader: leader.in_flight.on_failed(AckLost(text="confirmed, not acked")), "landed"),
        (lambda leader: leader.in_flight.on_failed(PublishRefused(text="a queue is full")), ""),
        (lambda leader: leader.in_flight.on_failed(BrokerSilent(text="no confirm")), ""),
    ],
)
async def test_a_term_says_at_its_end_whether_all_has_landed(
    rig: Callable[..., Rig],
    connection: Connection,
    shared: SharedConnection,
    end: Callable[[Leader], None],
    last: str,
) -> None:
    """As the journal's last entry, when nothing that it published has failed."""
    orders = rig()
    leader, living = await begin(orders, connection, shared)
    await asyncio.to_thread(orders.take, 1)
    await leader.in_flight.settle()
    end(leader)
    with pytest.raises(BrokerError):
        await living

    assert (await entries(connection, orders.queue.name))[-1] == last


async def test_a_term_that_is_stopped_says_that_all_has_landed(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection
) -> None:
    """Once, and behind all that it published."""
    orders = rig()
    leader, living = await begin(orders, connection, shared)
    await asyncio.to_thread(orders.take, 1)
    await leader.stop()
    await living

    kinds = await entries(connection, orders.queue.name)
    assert (kinds.count("landed"), kinds[-1]) == (1, "landed")


async def test_a_term_that_is_cancelled_while_it_ends_leaves_the_inbox_to_the_next(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection
) -> None:
    """The entity was deleted, say, while the term forwarded what it had at hand."""
    orders, is_ending, may_end = rig(), asyncio.Event(), asyncio.Event()

    async def end(_: str) -> None:
        is_ending.set()
        await may_end.wait()

    orders.publish(b"a")
    state = LeaderState(orders.queue, Tier.STANDARD, companion=Companion(end=end))
    first = Leader(state, connection, shared)
    ending = asyncio.create_task(first.run())
    await asyncio.to_thread(orders.take, 1)
    first.fail(ChannelClosed(404, "the inbox was deleted"))
    await is_ending.wait()
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    may_end.set()

    second, living = await begin(orders, connection, shared)
    await asyncio.to_thread(orders.take, 1)
    await second.stop()
    await living


async def test_the_next_leader_of_an_entity_outlives_the_last_one(
    rig: Callable[..., Rig], endpoint: Endpoint
) -> None:
    """The entity was deleted and made again while its leader's term had not ended."""
    orders, may_end = rig(), asyncio.Event()

    async def end(_: str) -> None:
        await may_end.wait()

    sidecar = Sidecar(endpoint, companion=Companion(end=end))
    sidecar.add_entity(orders.queue)
    working = asyncio.create_task(sidecar.run())
    try:
        await until(lambda: sidecar.leading)
        last, leaders = sidecar.leading[0], sidecar._leaders
        sidecar.follow(Changes(before={orders.queue.name.lower(): orders.queue}))
        sidecar.add_entity(orders.queue)
        await until(lambda: leaders.get(orders.queue.name.lower()) not in (None, last))
        may_end.set()
        await until(lambda: sidecar.meters[orders.queue.name].is_active)
        assert [each.name for each in sidecar.leading] == [orders.queue.name]
    finally:
        may_end.set()
        await sidecar.stop()
        await working


async def test_the_backlog_is_also_what_rabbitmq_has_not_sent_yet(
    rig: Callable[..., Rig], endpoint: Endpoint
) -> None:
    """It is more than may be sent ahead, falls, and is none when all have their numbers."""
    orders = rig()
    count = 1_000
    for _ in range(count):
        orders.publish(b"a")
    sidecar = Sidecar(endpoint)
    sidecar.add_entity(orders.queue)
    sidecar._states[orders.queue.name.lower()].prefetch = 16
    meters = sidecar.meters[orders.queue.name]
    working = asyncio.create_task(sidecar.run())
    try:
        async with asyncio.timeout(120):
            while meters.ready <= count // 2:
                await sidecar.count_ready()
                await asyncio.sleep(0)
            assert 0 < meters.backlog <= count
            while meters.arrivals < count or meters.backlog:
                await sidecar.count_ready()
                await asyncio.sleep(0.01)
    finally:
        await sidecar.stop()
        await working


async def test_little_of_a_backlog_is_on_its_way_at_a_time(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection
) -> None:
    """Acks come behind what was published before: a kill leaves a second copy of as many."""
    orders = rig()
    count = 1_000
    for _ in range(count):
        orders.send(b"a")
    leader, living = await begin(orders, connection, shared)
    most = 0
    async with asyncio.timeout(120):
        while leader.meters.arrivals < count:
            await asyncio.sleep(0)  # a turn of the loop
            most = max(most, leader.in_flight.count if hasattr(leader, "in_flight") else 0)
    assert 0 < most <= 600
    await leader.stop()
    await living


async def test_a_term_waits_for_a_queue_that_rabbitmq_does_not_make(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection
) -> None:
    """A queue of its name stands in the way, until an operator deletes it.

    What is due comes meanwhile, health names what waits, and all that waited comes in its order.
    """
    orders = rig()
    leader, living = await begin(orders, connection, shared)
    await asyncio.to_thread(orders.take, 1)
    transfers = names.transfer_queue(orders.queue.name)
    orders.channel.queue_declare(transfers, durable=True)
    due_ms = time.time_ns() // 1_000_000 + 5_000
    await asyncio.to_thread(partial(orders.schedule, b"due", due_ms=due_ms))
    content = CommitContent(
        sends=[Item(BARE, b"b")], transfers=[TransferredEnvelope("other", b"one")]
    )
    orders.publish(
        commits.encode(uuid.uuid4().bytes, content),
        headers={"x-busbridge-kind": "envelope"},
        delivery_mode=2,
    )
    orders.send(b"c")
    await until(lambda: leader.waits.sentences())
    (said,) = leader.waits.sentences()
    assert f"RabbitMQ does not make {transfers!r}: 406 " in said
    assert [each.body for each in await asyncio.to_thread(orders.take, 1)] == [b"due"]
    assert orders.is_empty()
    orders.channel.queue_delete(transfers)
    assert [each.body for each in await asyncio.to_thread(orders.take, 2)] == [b"b", b"c"]
    moved = await asyncio.to_thread(partial(orders.take, 1, queue=transfers))
    assert [each.body for each in moved] == [b"one"]
    assert (leader.meters.terms, leader.waits.sentences()) == (1, [])
    await leader.stop()
    await living
