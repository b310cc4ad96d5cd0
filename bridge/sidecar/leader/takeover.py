"""The takeover of a new leader: it restores the last sequencer's memory from the journal's tail.

When the last leader was a term of this same process, and RabbitMQ failed under it, the process
knows more than the journal: the numbered messages that were not confirmed. Then the memory of the
process counts, and the journal only tells whether another process has led in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import uuid4

from bridge.broker.connection.address import await_end
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.handover import Publish
from bridge.broker.streams.stream_reader import (
    FIRST,
    StreamEntry,
    StreamFollower,
    read_range,
    read_until,
)
from bridge.machine.inbox.journal_entries import is_snapshot, marker
from bridge.machine.inbox.left_out import without
from bridge.machine.inbox.replay import Replay, missing_before
from bridge.machine.inbox.sequencer import Sequencer
from bridge.sidecar.leader.in_flight import InFlight
from bridge.sidecar.leader.leader_state import LeaderState, Unconfirmed
from bridge.topology import names
from bridge.wire import headers, journal

STEP = 64
"""Number of journal entries that are read first. While no snapshot is found, the next read covers
three times the entries read so far."""


async def read_journal(
    state: LeaderState,
    connection: ConnectionLease,
    in_flight: InFlight,
    *,
    term: bytes,
    boot: str,
) -> Replay:
    """Announce a term in the journal by a marker, and replay the entries before it.

    Args:
        state: the entity's state in this process.
        connection: the connection that reads.
        in_flight: publishes the marker.
        term: the id of the new term.
        boot: the boot of RabbitMQ that the connection leads to.

    Raises:
        NewerJournal: a newer bridge wrote the journal.
    """
    entity = state.entity
    stream = names.journal(entity.path)
    entry = Publish(*marker(entity, term, boot))
    state.attempts.add(term)

    def replayed(entries: Sequence[StreamEntry]) -> Replay:
        replay = Replay(
            is_partitioned=entity.enable_partitioning,
            readers=state.attempts,
            fingerprint=boot,
        )
        for each in entries:
            replay.feed(each.properties, each.body)
        return replay

    publish = partial(in_flight.move, entry, site="sequencer.journal")
    recent = RecentEntries(connection, stream, replayed)
    over: set[str] = set()
    async with StreamFollower.open(connection, stream) as follower:
        while True:
            replay = await recent.with_new(
                await follower.read_to_own(publish, partial(_is_marker, term))
            )
            # An earlier leader's channel may have published entries after this term's marker,
            # until the channel's end. They are not in the replay yet, so write another marker and
            # read on.
            others = replay.addresses - over
            if not others:
                state.meters.takeover_entries = replay.entries
                return replay
            for address in others:
                await await_end(connection, address)
            over |= others


def _is_marker(term: bytes, entry: StreamEntry) -> bool:
    kind = (entry.properties.headers or {}).get(headers.ENTRY, ("V", None))[1]
    return kind == journal.MARKER.encode() and journal.Marker.decode(entry.body).term == term


class RecentEntries:
    """The end of a journal, as far back as a replay needs it; each entry is read once."""

    def __init__(
        self,
        connection: ConnectionLease,
        stream: str,
        replayed: Callable[[Sequence[StreamEntry]], Replay],
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._replayed = replayed
        self._entries: list[StreamEntry] = []

    async def with_new(self, new: list[StreamEntry]) -> Replay:
        """Return the replay of the needed entries, up to the last one of `new`.

        Args:
            new: the entries that were published since the last call, at least one.
        """
        new = [_without_message(each) for each in new]
        if self._entries:
            self._entries += new
            start = self._entries[0].offset
        else:
            self._entries = new
            start = new[0].offset
        while True:
            missing = missing_before((each.properties, each.body) for each in self._entries)
            if start <= 0 or (missing is not None and missing <= 0):
                break
            # Without a snapshot among the entries it is unknown how far back to read.
            step = missing or max(STEP, 3 * len(self._entries))
            older = await self._read(start - step, start - 1)
            # Offsets have gaps; and RabbitMQ may have dropped entries that are so old.
            is_begin = not older and await self._is_first(start)
            start = 0 if is_begin else max(start - step, 0)
            self._entries[:0] = older
        if missing is not None and missing < 0:
            del self._entries[:-missing]
        return self._replayed(self._entries)

    async def _read(self, start: int, end: int) -> list[StreamEntry]:
        entries: list[StreamEntry] = []

        def take(entry: StreamEntry) -> None:
            entries.append(_without_message(entry))

        await read_range(self._connection, self._stream, start, end, take)
        return entries

    async def _is_first(self, offset: int) -> bool:
        """Whether the stream has no entry before an offset."""
        first: list[int] = []

        def take(entry: StreamEntry) -> bool:
            first.append(entry.offset)
            return True

        await read_until(self._connection, self._stream, FIRST, take, prefetch=1)
        return first[0] >= offset


def _without_message(entry: StreamEntry) -> StreamEntry:
    """Return an entry of the bridge's own, or a message's without its body."""
    is_message = headers.ENTRY not in (entry.properties.headers or {})
    return entry._replace(body=b"") if is_message else entry


def take_over(state: LeaderState, replay: Replay) -> tuple[Sequencer, Sequence[Unconfirmed]]:
    """Return the sequencer of the new term, and the submissions that it must publish again.

    Unconfirmed snapshots are not among them: the new term writes its own.
    """
    if state.sequencer is None or not state.is_successor(replay.terms):
        state.returning.clear()
        return Sequencer(state.entity, state.tier, replay.result(), uuid4), ()
    assert state.term is not None, "whose sequencer it is"
    left = state.unconfirmed.values()
    unconfirmed = [each for each in left if not is_snapshot(each.publications[0])]
    left_out, exchange = state.sequencer.memory.left_out, names.active_exchange(state.entity.path)
    for each in unconfirmed if left_out else ():
        each.publications = [without(one, left_out, exchange) for one in each.publications]
    replay.go_on(state.term, [each for one in unconfirmed for each in one.publications])
    state.sequencer.inherit(replay.result())
    state.sequencer.update(state.entity, state.tier)
    return state.sequencer, unconfirmed
