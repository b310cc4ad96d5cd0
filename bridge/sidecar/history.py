"""Reads an entity's history when a term takes over: what was accepted within the window.

The segments of all earlier terms, from the window's begin up to a mark of this term's own. What is
in no segment yet the journal has told already (`machine.replay`).
"""

from __future__ import annotations

from bridge.broker.connection.pool import Lease
from bridge.broker.handover import Publish
from bridge.broker.streams.journal_reader import Entry, JournalReader
from bridge.machine.history import History
from bridge.model.entity import SendEntity
from bridge.sidecar.in_flight import InFlight
from bridge.topology import names
from bridge.wire import headers, journal
from bridge.wire.sections import MalformedEntry

SLACK_S = 60
"""RabbitMQ's clock, by which a stream is read, may differ by so much."""

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

    def take(entry: Entry) -> None:
        if (entry.properties.headers or {}).get(headers.ENTRY) != _SEGMENT:
            return
        try:
            history.learn(journal.decode_accepted(entry.body), now_ms)
        except MalformedEntry as error:
            unreadable.append(error)

    window_s = entity.duplicate_detection_history_time_window_ms // 1000
    await JournalReader(connection, stream).read_since(
        now_ms // 1000 - window_s - SLACK_S,
        take,
        lambda: in_flight.move(mark, site="sequencer.journal"),
        lambda entry: entry.body == mark.body,
    )
    return unreadable
