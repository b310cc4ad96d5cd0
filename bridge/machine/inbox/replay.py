"""Replay: the journal's tail in, the last sequencer's memory out.

**Theory.** A snapshot in the journal holds a sequencer's whole memory; the entries behind it hold
all later changes. So the tail from the newest complete snapshot on suffices, and `span` entries
before it: entries of its writer's own that may belong to arrivals that were not acked when the
snapshot was written, and that come again. The snapshot itself holds the messages that terms before
its writer numbered and that may come again. So a term begins with a snapshot of its own, and the
part that a successor reads does not grow with the number of terms.

Trust: a quorum queue hears of a channel's end before it has taken all messages published there, and
drops the rest, which the journal has (seen under load: an operator closed the connection of one
bridge, and another took over at once). So an entry is trusted when its writer's commit marker
stands behind it: the marker's writer knows that all messages before it have reached their queues.
Entries written in another boot of the broker are not trusted, as a queue may have lost their
messages since. A message that waits for its time is never trusted, since a second copy in a bucket
is dropped there.

The writer of an entry is the term whose marker stands last before it: a term marks the journal once
more when all others' channels have ended, then writes. Terms that read and wrote nothing else, as
the present one, are ignored: late entries of the last writer may stand behind their markers.
Entries before the first marker in the range belong to the term of the first snapshot.

After a broker failure a sequencer repeats unconfirmed publishes, so numbers may stand in the
journal twice, the second time behind higher ones: counters only rise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from bridge.machine.inbox.accepted_ids import row
from bridge.machine.inbox.decided import Decided
from bridge.machine.inbox.forwarded import Forwarded
from bridge.machine.inbox.imported_messages import ImportedMessages
from bridge.machine.inbox.known import (
    Known,
    add_activated_copies,
    add_copies,
    decision_key,
    decode_activated,
    decode_cancelled,
    decode_known,
)
from bridge.machine.inbox.left_out import decode as decode_left_out
from bridge.machine.inbox.pending import Pending, identity_hash
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.relayed import RelayedCopies
from bridge.machine.inbox.sequencer_memory import Memory, blank
from bridge.machine.inbox.wheel import BucketKey, Wheel
from bridge.machine.usage.idleness import Uses
from bridge.model import number as numbering
from bridge.wire import copies, decisions, forwarded, gaps, headers, journal
from bridge.wire.basic import Properties, Table
from bridge.wire.decisions import Decision
from bridge.wire.envelope import DIGEST_BYTES, IDENTITY_BYTES
from bridge.wire.journal import BucketState, JournalSection
from bridge.wire.relay_source import said_in
from bridge.wire.sections import NewerJournal
from bridge.wire.snapshot import Snapshot, SnapshotParts
from bridge.wire.stamp import ACCEPTED_BYTES, NO_IDENTITY, read_waiting


def missing_before(entries: Iterable[tuple[Properties, bytes]]) -> int | None:
    """Return the number of needed entries before `entries`; negative: that many are not needed.

    `None` when the entries hold no whole snapshot.

    Raises:
        MalformedEntry: a snapshot cannot be read; `NewerJournal` when a newer bridge wrote it.
    """
    parts = SnapshotParts()
    missing = None
    first = 0
    for index, (basic, body) in enumerate(entries):
        if (basic.headers or {}).get(headers.ENTRY) != _SNAPSHOT:
            continue
        snapshot = parts.add(body)
        if parts.is_begun:
            first = index
        if snapshot is not None:
            missing = snapshot.span - first
    return missing


_SNAPSHOT = ("S", journal.SNAPSHOT.encode())
_ONLY_ITEM = bytes(4)
"""Ends the identity of an envelope's first message."""


Key = TypeVar("Key", bytes, int)


def _newer(inherited: dict[Key, Known], read: dict[Key, Known]) -> dict[Key, Known]:
    """Return the union; an entry takes precedence over a snapshot's inherited message.

    The entries may hold some parts of a message published in parts; the snapshot knows the others.
    """
    found = inherited | read
    for key, known in read.items():
        before = inherited.get(key)
        if before is None or before.number != known.number or before.copies == known.copies:
            continue
        if before.copies and known.copies:
            found[key] = known._replace(copies=copies.joined(before.copies, known.copies))
    return found


class Replay:
    """Reads journal entries in order, oldest first.

    Attributes:
        terms: the writers of the markers and snapshots in the range, in order, without `readers`.
        addresses: the channels by which the newest snapshot and the markers behind it were
            published, without those of `readers`; a snapshot's writer had waited for all others.
        entries: number of entries read.
        unreadable: an error for each unreadable entry.
    """

    def __init__(
        self, *, is_partitioned: bool, readers: Collection[bytes], fingerprint: str
    ) -> None:
        """Begin.

        Args:
            is_partitioned: whether the entity is partitioned.
            readers: the term that reads, whose marker is the range's last entry, and terms of the
                same process that read before and never took over.
            fingerprint: the present boot of the broker.
        """
        self.terms: list[bytes] = []
        self.addresses: set[str] = set()
        self.entries = 0
        self.unreadable: list[str] = []
        self._readers = readers
        self._is_partitioned = is_partitioned
        self._fingerprint = fingerprint
        self._memory = blank(is_partitioned=is_partitioned)
        self._writer: bytes | None = None
        self._writers_boot = ""
        self._unproven: list[tuple[bytes | int, Known]] = []
        self._parts = SnapshotParts()
        self._gone: set[int] = set()
        # Messages that the writer of the newest snapshot inherited.
        self._known: dict[bytes, Known] = {}
        self._activated: dict[int, Known] = {}
        self._carried_out: set[bytes] = set()

    def feed(self, basic: Properties, body: bytes) -> None:
        """Take one entry; an unreadable entry is skipped, and `unreadable` says why.

        Raises:
            NewerJournal: a newer bridge wrote the entry, and it must not be skipped.
        """
        try:
            self._feed(basic, body)
        except NewerJournal:
            raise
        except Exception as error:
            # Any client may publish into the journal, and the journal is read again and again.
            self.unreadable.append(f"{type(error).__name__}: {error}")
        self.entries += 1

    def _feed(self, basic: Properties, body: bytes) -> None:
        table = basic.headers or {}
        kind = table.get(headers.ENTRY, ("V", None))[1]
        if headers.WAITING in table:
            self._scheduled(basic)
        elif kind is None:
            self._numbered(table)
        elif kind == journal.CANCEL.encode():
            self._cancelled(table, body)
        elif kind == journal.BUCKET.encode():
            self._bucket(body)
        elif kind == journal.USES.encode():
            self._memory.uses = Uses.decode(journal.section_of(body, JournalSection.USES))
        elif kind == journal.LEFT_OUT.encode():
            self._memory.left_out = decode_left_out(
                journal.section_of(body, JournalSection.LEFT_OUT)
            )
        elif kind == journal.GAP.encode():
            self._skipped(gaps.decode(body))
        elif kind == journal.DECISION.encode():
            self._decided(decisions.decode_decision(body))
        elif kind == journal.ASKED.encode():
            self._memory.decided.note_asked(*decisions.decode_asked(body))
        elif kind == journal.STATES_SET.encode():
            self._memory.decided.close(decisions.decode_states_set(body))
        elif kind == journal.MARKER.encode():
            self._marked(journal.Marker.decode(body), basic.reply_to)
        elif kind == journal.COMMIT.encode():
            self._committed(journal.Marker.decode(body))
        elif kind == journal.SNAPSHOT.encode():
            snapshot = self._parts.add(body)
            if snapshot is not None:
                self.addresses = {basic.reply_to} if basic.reply_to is not None else set()
                self._restore(snapshot)
        else:
            assert isinstance(kind, bytes), kind
            journal.check_unknown(kind.decode(errors="replace"), body)

    def result(self) -> Memory:
        """Return the memory; entries take precedence over messages that a snapshot inherited."""
        memory = self._memory
        memory.known = _newer(self._known, memory.known)
        memory.activated = _newer(self._activated, memory.activated)
        memory.cancelled |= self._carried_out
        return memory

    def go_on(self, term: bytes, unconfirmed: Iterable[Publication]) -> None:
        """Let the last writer continue: its process lives and knows all confirms.

        Args:
            term: the last leading term of the process that reads.
            unconfirmed: all its unconfirmed publications; they are published again, and confirmed,
                before anything else is done.
        """
        self._committed(journal.Marker(term, self._writers_boot))
        self._unproven.clear()
        for each in unconfirmed:
            self.feed(Properties.decode(each.properties), each.body)
        self._prove()

    def _marked(self, marker: journal.Marker, address: str | None) -> None:
        is_readers = marker.term in self._readers
        if not is_readers and address is not None:
            self.addresses.add(address)
        if not is_readers:
            self.terms.append(marker.term)
            self._writer, self._writers_boot = marker.term, marker.fingerprint
            self._unproven.clear()

    def _committed(self, commit: journal.Marker) -> None:
        # Entries before the range's first marker are of one term: this commit marker's.
        is_writer = self._writer is None or commit.term == self._writer
        if is_writer and commit.fingerprint == self._fingerprint:
            self._prove()

    def _prove(self) -> None:
        for key, known in self._unproven:
            self._remember(key, known._replace(is_trusted=True))
        self._unproven.clear()

    def _restore(self, snapshot: Snapshot) -> None:
        self.terms.append(snapshot.term)
        if self._writer is None:
            self._writer, self._writers_boot = snapshot.term, snapshot.fingerprint
        memory = self._memory
        memory.counters = list(snapshot.counters)
        memory.enqueued_ms = snapshot.enqueued_ms
        memory.average_bytes = snapshot.average_bytes
        memory.pending = Pending.decode(snapshot.pending, is_partitioned=self._is_partitioned)
        memory.subscriptions = dict(snapshot.subscriptions)
        memory.skipped = dict(snapshot.skipped)
        memory.imported = ImportedMessages.decode(snapshot.imported)
        memory.uses = Uses.decode(snapshot.uses)
        memory.left_out = decode_left_out(snapshot.left_out)
        memory.history.learn_open(snapshot.accepted)
        memory.forwarded = Forwarded.decode(snapshot.forwarded)
        memory.relayed = RelayedCopies.decode(snapshot.relayed)
        memory.decided = Decided.decode(snapshot.transactions)
        memory.wheel = Wheel()
        for level, slot, is_safe in snapshot.buckets:
            memory.wheel.add(BucketKey(level, slot), is_provisional=not is_safe)
        is_believed = snapshot.fingerprint == self._fingerprint
        self._known = decode_known(snapshot.known, is_believed=is_believed)
        self._activated = decode_activated(snapshot.activated, is_believed=is_believed)
        add_copies(self._known, snapshot.known_copies)
        add_activated_copies(self._activated, snapshot.activated_copies)
        self._carried_out = decode_cancelled(snapshot.cancelled)

    def _numbered(self, table: Table) -> None:
        number = table.get(headers.SEQUENCE_NUMBER, ("V", None))[1]
        enqueued_ms = table.get(headers.ENQUEUED_TIME, ("V", None))[1]
        if not isinstance(number, int) or not isinstance(enqueued_ms, int):
            return
        self._count(number)
        waited_as = table.get(headers.SCHEDULED_NUMBER, ("V", None))[1]
        if headers.IMPORTED not in table or waited_as is not None:
            self._memory.enqueued_ms = max(self._memory.enqueued_ms, enqueued_ms)
        known = Known(number, enqueued_ms, is_trusted=False, copies=self._copies(table))
        identity = table.get(headers.IDENTITY, ("V", None))[1]
        self._relayed(table)
        if not isinstance(waited_as, int):
            self._accepted(table, number)
        if isinstance(waited_as, int):
            self._gone.add(waited_as)
            self._memory.pending.remove(waited_as)
            self._learn(waited_as, known)
            if isinstance(identity, bytes) and identity != NO_IDENTITY:
                # Its arrival may not be acked yet: it waited there, for lack of a bucket.
                self._remember(identity, Known(waited_as, None, is_trusted=False))
        elif isinstance(identity, bytes) and identity != NO_IDENTITY:
            self._learn(identity, known)
            self._forwarded(table, identity)
            self._memory.imported.learn(table, number, identity)

    def _copies(self, table: Table) -> bytes:
        """Return the copies of a topic's message; each raises its subscription's counter."""
        raw = table.get(headers.COPIES, ("V", None))[1]
        if not isinstance(raw, bytes):
            return b""
        last = self._memory.subscriptions
        for short, number in copies.decode(raw)[0]:
            last[short] = max(last.get(short, 0), number)
        return raw

    def _scheduled(self, basic: Properties) -> None:
        number, due_ms, _, identity = read_waiting(basic)
        self._count(number)
        self._accepted(basic.headers or {}, number)
        self._relayed(basic.headers or {})
        if number not in self._gone:
            self._memory.pending.add(number, due_ms, identity_hash(identity))
        if identity != NO_IDENTITY:
            self._remember(identity, Known(number, None, is_trusted=False))
            self._forwarded(basic.headers or {}, identity)
            self._memory.imported.learn(basic.headers or {}, number, identity)

    def _forwarded(self, table: Table, identity: bytes) -> None:
        """Learn a forwarded identity; a copy that is a message of its own has another ending."""
        source = forwarded.last_source(table)
        if source is not None and identity[IDENTITY_BYTES:] == _ONLY_ITEM:
            self._memory.forwarded.note(source, identity[:IDENTITY_BYTES])

    def _skipped(self, found: Iterable[gaps.Gap]) -> None:
        """Go on behind numbers that were passed over; a gap that is read twice counts once."""
        last = self._memory.subscriptions
        for gap in found:
            if gap.short == gaps.OWN:
                is_new = self._count(gap.last)
            else:
                is_new = gap.last > last.get(gap.short, 0)
                last[gap.short] = max(last.get(gap.short, 0), gap.last)
            if is_new:
                self._memory.skip(gap)

    def _relayed(self, table: Table) -> None:
        """Learn a relay's copy, whatever has become of it: it has its number."""
        said = said_in(table)
        if said is not None:
            self._memory.relayed.came(said)

    def _accepted(self, table: Table, number: int) -> None:
        """Learn the digest of a message, where duplicates are detected."""
        raw = table.get(headers.ACCEPTED, ("V", None))[1]
        if isinstance(raw, bytes) and len(raw) == ACCEPTED_BYTES:
            at_ms = int.from_bytes(raw[DIGEST_BYTES:], "big", signed=True)
            self._memory.history.learn_open(row(raw[:DIGEST_BYTES], number, at_ms))

    def _cancelled(self, table: Table, body: bytes) -> None:
        self._memory.uses.is_doubtful = True  # an entry of a cancel has no time
        for number in journal.decode_cancel(body):
            self._gone.add(number)
            self._memory.pending.remove(number)
        identity = table.get(headers.IDENTITY, ("V", None))[1]
        if isinstance(identity, bytes):
            self._memory.cancelled.add(identity[:-4])

    def _decided(self, decision: Decision) -> None:
        self._memory.decided.decide(decision)
        if decision.cancels:
            self._memory.uses.is_doubtful = True
        for number in decision.cancels:
            self._gone.add(number)
            self._memory.pending.remove(number)
        self._learn(decision_key(decision.identity), Known(decision.verdict, 0, is_trusted=False))

    def _bucket(self, body: bytes) -> None:
        level, slot, state = journal.decode_bucket(body)
        if state is BucketState.GONE:
            self._memory.wheel.remove(BucketKey(level, slot))
        else:
            is_provisional = state is BucketState.PROVISIONAL
            self._memory.wheel.add(BucketKey(level, slot), is_provisional=is_provisional)

    def _count(self, number: int) -> bool:
        """Raise the counter of a number's partition; return whether the number is a new one."""
        partition = numbering.partition_of(number) if self._is_partitioned else 0
        counters = self._memory.counters
        if numbering.is_after(number, counters[partition], is_partitioned=self._is_partitioned):
            counters[partition] = number
            return True
        return False

    def _learn(self, key: bytes | int, known: Known) -> None:
        memory = self._memory
        before = memory.activated.get(key) if isinstance(key, int) else memory.known.get(key)
        if before is not None and before.copies and before.number == known.number:
            # A message of many copies is published in parts.
            known = known._replace(copies=copies.joined(before.copies, known.copies))
        self._unproven.append((key, known))
        self._remember(key, known)

    def _remember(self, key: bytes | int, known: Known) -> None:
        if isinstance(key, int):
            self._memory.activated[key] = known
        else:
            self._memory.known[key] = known
