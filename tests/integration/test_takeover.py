"""What whoever takes over reads of the journal does not grow with those before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pamqp.base
import pamqp.commands as spec

from bridge.broker.connection.address import take_address
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.broker.handover import HandOver
from bridge.broker.streams.stream_reader import FIRST, StreamEntry, read_until
from bridge.engine.clock import now_ms
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.machine.inbox.wheel import WIDTHS_MS, BucketKey, place
from bridge.model.entity import Tier
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import LeaderState
from bridge.sidecar.shared_connection import SharedConnection
from bridge.topology import names
from bridge.wire import headers, journal
from bridge.wire.journal import BucketState
from tests.fixtures.relay import Relay
from tests.fixtures.sidecar import Rig
from tests.fixtures.waiting import until

MESSAGES = 3_000

ELDER = bytes([7] * 16)
REMOVED = BucketKey(0, 1)
"""A bucket whose time has been over for long."""

OTHERS = 5


async def test_each_of_ten_restarts_reads_no_more_than_the_one_before(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection
) -> None:
    """One reads what the first wrote since its last snapshot; the others a few entries."""
    orders = rig()
    for number in range(MESSAGES // 100):
        orders.send(*(b"%d" % number for _ in range(100)))
    read: list[int] = []
    numbers: list[int] = []
    for index in range(10):
        state = LeaderState(orders.queue, Tier.STANDARD)
        leader = Leader(state, connection, shared)
        living = asyncio.create_task(leader.run())
        orders.publish(b"last")
        seen = await asyncio.to_thread(orders.take, 1 if index else MESSAGES + 1)
        numbers += [each.number for each in seen]
        read.append(leader.meters.takeover_entries)
        await leader.stop()
        await living

    assert numbers == list(range(1, MESSAGES + 11))
    assert read[1] > 500
    # A marker or two, a snapshot, one message and the end of the term before; and the own marker.
    assert max(read[2:]) < 10, read


class AfterDeletion:
    """Holds back what is published when the removed bucket's queue is deleted: the note of it.

    Attributes:
        declared: the other buckets whose declarations have passed.
    """

    def __init__(self, removed: str) -> None:
        self.declared: set[str] = set()
        self._removed = removed
        self._is_deleted = False

    def __call__(self, method: pamqp.base.Frame) -> bool:
        """Whether this method is held."""
        if isinstance(method, spec.Queue.Delete):
            self._is_deleted |= method.queue == self._removed
        if isinstance(method, spec.Queue.Declare) and names.BUCKETS_SUFFIX in method.queue:
            self.declared.add(method.queue)
        return self._is_deleted and isinstance(method, spec.Basic.Publish)


async def test_a_note_written_during_a_takeover_is_in_the_journal_once(
    rig: Callable[..., Rig], connection: Connection
) -> None:
    """The last term was killed while it removed a bucket: its successor completes the removal."""
    orders = rig()
    queue = orders.queue
    holds = AfterDeletion(names.bucket(queue.name, *REMOVED))
    with Relay(orders.url, holds=holds) as relay:
        endpoint = parse_url(relay.url)
        slow = await Connection.open(endpoint, name="slow")
        shared = SharedConnection(slow)
        await shared.open()
        elder = Sequencer(queue, Tier.STANDARD, blank(is_partitioned=False))
        wheel = elder.memory.wheel
        wheel.add(REMOVED, is_provisional=True)
        others = [place(now_ms() + each * WIDTHS_MS[2], now_ms()) for each in range(2, 2 + OTHERS)]
        for each in others:
            wheel.add(each)
        await publish_all(
            connection, marker(queue, ELDER, shared.boot), *elder.snapshot(ELDER, shared.boot, 0)
        )
        orders.publish(b"a")
        leader = Leader(LeaderState(queue, Tier.STANDARD), slow, shared)
        living = asyncio.create_task(leader.run())
        await until(relay.holding.is_set)
        await until(lambda: len(holds.declared) == OTHERS)
        await until(lambda: all(orders.has(names.bucket(queue.name, *each)) for each in others))
        (await slow.channel()).abandon()  # the declarations are answered before this is
        relay.release()

        assert [each.number for each in await asyncio.to_thread(orders.take, 1)] == [1]
        await until(lambda: REMOVED not in leader.sequencer.memory.wheel.buckets)
        await leader.stop()
        await living
        await slow.close()

    notes = await entries_of(connection, queue.name, journal.BUCKET)
    assert notes == [journal.encode_bucket(*REMOVED, BucketState.GONE)]


async def publish_all(connection: Connection, *entries: Publication) -> None:
    """Publish entries of a journal as a leader does that is gone by now."""
    channel = await connection.channel()
    await channel.publisher.confirm_select()
    await take_address(channel)
    await HandOver(channel).move(entries, failpoint="sequencer.number")
    await channel.close()


async def entries_of(connection: Connection, entity: str, kind: str) -> list[bytes]:
    """Return the bodies of a journal's entries of one kind, in order."""
    found: list[StreamEntry] = []
    channel = await connection.channel()
    await channel.publisher.confirm_select()

    async def write_end() -> None:
        end = journal.entry_properties("end")
        await channel.publisher.publish_confirmed("", names.journal(entity), end, b"")

    def take(entry: StreamEntry) -> bool:
        found.append(entry)
        return kind_of(entry) == "end"

    await read_until(connection, names.journal(entity), FIRST, take, publish=write_end)
    await channel.close()
    return [each.body for each in found if kind_of(each) == kind]


def kind_of(entry: StreamEntry) -> str:
    """Return the kind of a journal's entry; "" for a message."""
    kind = (entry.properties.headers or {}).get(headers.ENTRY, ("S", b""))[1]
    assert isinstance(kind, bytes)
    return kind.decode()
