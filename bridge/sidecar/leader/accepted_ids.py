"""An entity's history for duplicate detection: read at a takeover, and written in segments.

A takeover reads the segments of all earlier terms, from the window's begin up to a marker that the
new term writes. Accepted messages that are in no segment yet come from the journal
(`machine.inbox.replay`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.handover import Publish
from bridge.broker.streams.stream_reader import StreamEntry, read_until, since
from bridge.machine.inbox.accepted_ids import History
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.model.entity import SendEntity
from bridge.sidecar.leader.in_flight import InFlight
from bridge.topology import names
from bridge.wire import headers, journal
from bridge.wire.sections import MalformedEntry

SLACK_S = 60
"""Maximum difference between the bridge's clock and RabbitMQ's, by which streams are read."""

PREFETCH = 100
"""Few entries: segments are large."""

_SEGMENT = ("S", journal.ACCEPTED.encode())


async def read_history(
    entity: SendEntity,
    connection: ConnectionLease,
    in_flight: InFlight,
    history: History,
    *,
    term: bytes,
    now_ms: int,
) -> list[MalformedEntry]:
    """Add the accepted messages of earlier terms to a history; return the unreadable entries.

    Raises:
        BrokerError: the stream does not exist, or delivers nothing.
    """
    stream = names.history(entity.path)
    mark = Publish(
        "",
        stream,
        journal.entry_properties(journal.MARKER_OF_HISTORY),
        journal.Marker(term, "").encode(),
    )
    unreadable: list[MalformedEntry] = []

    def take(entry: StreamEntry) -> bool:
        if (entry.properties.headers or {}).get(headers.ENTRY) != _SEGMENT:
            return entry.body == mark.body
        try:
            history.learn(journal.section_of(entry.body, journal.JournalSection.ACCEPTED), now_ms)
        except MalformedEntry as error:
            unreadable.append(error)
        return False

    window_s = entity.duplicate_detection_history_time_window_ms // 1000
    await read_until(
        connection,
        stream,
        since(now_ms // 1000 - window_s - SLACK_S),
        take,
        prefetch=PREFETCH,
        publish=lambda: in_flight.move(mark, site="sequencer.journal"),
    )
    return unreadable


class Segments:
    """Writes the accepted messages of one term as segments; snapshots then need not carry them.

    A segment is written when its messages are confirmed. A message that is lost with the term must
    not count as accepted, or it would be dropped as a duplicate when it comes again.

    Args:
        publish: publishes a segment, and calls back when the segment is confirmed.
    """

    def __init__(
        self,
        sequencer: Sequencer,
        in_flight: InFlight,
        publish: Callable[[Publication, Callable[[], None]], object],
    ) -> None:
        self._sequencer = sequencer
        self._in_flight = in_flight
        self._publish = publish
        self._next: tuple[int, bytes] | None = None
        self._is_writing = False

    def write_due(self) -> None:
        """Write a segment, if one is full and all its messages are confirmed."""
        history, entries = self._sequencer.memory.history, self._sequencer.journal.entries
        if self._next is None and history.is_segment_due:
            self._next = entries, history.next_segment
        if self._next is None or self._is_writing:
            return
        since, rows = self._next
        if self._in_flight.first_entry(entries) >= since:
            self._is_writing = True
            self._publish(self._sequencer.journal.segment(rows), partial(self._written, len(rows)))

    def _written(self, size: int) -> None:
        self._sequencer.memory.history.close_segment(size)
        self._next, self._is_writing = None, False
