"""What a journal has and perhaps nothing else: a queue gets it again, of a topic it is found."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.streams.stream_reader import OFFSET, StreamEntry, at, find_own, read_until, since
from bridge.machine.browse.entity_messages import expires_ms, is_active_entry
from bridge.machine.inbox.left_out import as_missed
from bridge.machine.inbox.publication import Publication
from bridge.model.entity import Queue, Topic
from bridge.topology import names, shards
from bridge.wire import copies, headers
from bridge.wire.basic import bytes_in
from bridge.wire.sessions import session_id_in

if TYPE_CHECKING:
    from bridge.sidecar.leader.leader import Leader
    from bridge.sidecar.leader.leader_state import LeaderState

BATCH = 200
PREFETCH = 100
MARK_BYTES = 16

log = logging.getLogger(__name__)


async def publish_again(
    leader: Leader, state: LeaderState, connection: ConnectionLease, now_ms: int
) -> None:
    """Publish what the journal of a queue alone may have, after a route was missing.

    The messages keep their numbers, and what is left of their time. Receivers drop second copies.

    Args:
        leader: in its takeover; it gives no numbers yet.
        state: says since when the journal is in doubt.
        now_ms: the time (UTC ms).
    """
    queue, since_ms = leader.entity, state.again_since_ms
    if since_ms is None or isinstance(queue, Topic):
        return
    state.again_since_ms = None  # a look may find meanwhile that a route is missing once more
    try:
        await _publish_since(leader, queue, connection, since_ms, now_ms)
    except BaseException:
        state.again_since_ms = since_ms
        raise
    if state.again_since_ms is None:
        state.routed_ms = now_ms
    else:  # this may have gone nowhere
        state.again_since_ms = state.routed_ms = min(since_ms, state.routed_ms)


async def _publish_since(
    leader: Leader, queue: Queue, connection: ConnectionLease, since_ms: int, now_ms: int
) -> None:
    sequencer = leader.sequencer

    async def submit(publications: list[Publication]) -> None:
        leader.submit(publications, site="sequencer.again")
        await leader.in_flight.wait_confirmed()

    stream, mark = names.journal(queue.path), os.urandom(MARK_BYTES)

    async def write() -> None:
        await submit([sequencer.journal.note_left_out(sequencer.memory, mark)])

    def is_own(entry: StreamEntry) -> bool:
        return (entry.properties.headers or {}).get(headers.IDENTITY, ("V", None))[1] == mark

    end = await find_own(connection, stream, write, is_own)
    start, last, count = since(since_ms // 1000), -1, 0
    while last < end:
        batch = _Batch(end)
        await read_until(connection, stream, start, batch.take, prefetch=PREFETCH)
        last = batch.last
        start = at(last + 1)
        if batch.entries:
            sequencer.journal.entries += len(batch.entries)
            await submit([_again(queue, each, now_ms) for each in batch.entries])
            count += len(batch.entries)
    log.warning("journal.published_again entity=%s messages=%d", leader.name, count)


async def arrived_before(
    leader: Leader, since_ms: int, shorts: Collection[bytes]
) -> dict[bytes, int]:
    """Return the highest number that each subscription of a topic surely had at a time.

    Args:
        leader: the topic's, which is ready.
        since_ms: the time (UTC ms).
        shorts: the short ids of the subscriptions.

    Raises:
        BrokerError: the journal cannot be read.
    """
    sequencer, mark = leader.sequencer, os.urandom(MARK_BYTES)
    numbers = {short: sequencer.memory.subscriptions.get(short, 0) for short in shorts}
    stream = names.journal(leader.name)
    found: dict[bytes, int] = {}

    async def write() -> None:
        await leader.write(sequencer.journal.note_left_out(sequencer.memory, mark))

    def is_own(entry: StreamEntry) -> bool:
        return (entry.properties.headers or {}).get(headers.IDENTITY, ("V", None))[1] == mark

    end = await find_own(leader.connection, stream, write, is_own)

    def take(entry: StreamEntry) -> bool:
        raw = bytes_in(entry.properties.headers or {}, headers.COPIES)
        with contextlib.suppress(ValueError):  # a native publisher's, perhaps
            for short, number in copies.decode(raw)[0] if raw is not None else ():
                if short in numbers:
                    found[short] = min(found.get(short, number), number)
        return entry.offset >= end or len(found) == len(numbers)

    start = since(since_ms // 1000)
    await read_until(leader.connection, stream, start, take, prefetch=PREFETCH)
    return {
        short: min(found.get(short, number + 1) - 1, number) for short, number in numbers.items()
    }


class _Batch:
    """Some messages of a journal before an offset."""

    def __init__(self, end: int) -> None:
        self.entries: list[StreamEntry] = []
        self.last = -1
        self._end = end

    def take(self, entry: StreamEntry) -> bool:
        """Take an entry; return whether this is enough."""
        self.last = entry.offset
        is_before = entry.offset < self._end
        if is_before and is_active_entry(entry.properties.headers or {}):
            self.entries.append(entry)
        return len(self.entries) >= BATCH or not is_before


def _again(queue: Queue, entry: StreamEntry, now_ms: int) -> Publication:
    properties = entry.properties
    table = properties.headers or {}
    table.pop(OFFSET, None)
    until_ms = expires_ms(table, None)
    left_ms = None if until_ms is None else max(until_ms - now_ms, 0)
    shard = shards.shard_of(queue, session_id_in(table))
    key = shards.queue_key(queue, shard)
    exchange = names.active_exchange(queue.path)
    return Publication(exchange, key, as_missed(properties, left_ms), entry.body)
