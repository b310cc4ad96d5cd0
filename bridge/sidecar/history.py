"""An entity's history: read when a term takes over, and written on, a segment at a time.

Read are the segments of all earlier terms, from the window's begin up to a mark of this term's own.
What is in no segment yet the journal has told already (`machine.replay`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bridge.broker.connection.pool import Lease
from bridge.broker.handover import Publish
from bridge.broker.streams.stream_reader import Entry, read_until, since
from bridge.machine.history import History
from bridge.machine.publication import Publication
from bridge.machine.sequencer import Sequencer
from bridge.model.entity import SendEntity
from bridge.sidecar.in_flight import InFlight
from bridge.topology import names
from bridge.wire import headers, journal
from bridge.wire.sections import MalformedEntry

SLACK_S = 60
"""RabbitMQ's clock, by which a stream is read, may differ by so much."""

PREFETCH = 100
"""Segments are large."""

_SEGMENT = ("S", journal.ACCEPTED.encode())


async def read_history(
    entity: SendEntity,
    connection: Lease,
    in_flight: InFlight,
    history: History,
    *,
    term: bytes,
    now_ms: int,
) -> list[MalformedEntry]:
    """Learn what was accepted; return what could not be read.

    Raises:
        BrokerError: the stream is not there, or says nothing.
    """
    stream = names.history(entity.path)
    mark = Publish(
        "",
        stream,
        journal.entry_properties(journal.MARKER_OF_HISTORY),
        journal.Marker(term, "").encode(),
    )
    unreadable: list[MalformedEntry] = []

    def take(entry: Entry) -> bool:
        if (entry.properties.headers or {}).get(headers.ENTRY) != _SEGMENT:
            return entry.body == mark.body
        try:
            history.learn(journal.section_of(entry.body, journal.Kind.ACCEPTED), now_ms)
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
    """Writes what one term has accepted; snapshots need not carry that any more.

    Only when those messages are confirmed: of one that is lost with the term nobody may say that it
    was accepted, or it would be dropped when it comes again.

    Args:
        publish: publishes a segment, and calls back when it is confirmed.
    """

    def __init__(
        self,
        sequencer: Sequencer,
        in_flight: InFlight,
        publish: Callable[[Publication, Callable[[], None]], None],
    ) -> None:
        self._sequencer = sequencer
        self._in_flight = in_flight
        self._publish = publish
        self._next: tuple[int, bytes] | None = None
        self._is_writing = False

    def write_due(self) -> None:
        """Write a segment, if one is full and all of it is confirmed."""
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
