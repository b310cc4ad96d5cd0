"""The entries of an entity's journal, as its sequencer publishes and counts them."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.machine.inbox.known import (
    encode_activated,
    encode_activated_copies,
    encode_cancelled,
    encode_copies,
    encode_known,
)
from bridge.machine.inbox.left_out import encode as encode_left_out
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer_memory import Memory
from bridge.machine.inbox.wheel import BucketKey
from bridge.model.entity import SendEntity
from bridge.topology import names
from bridge.wire import decisions, gaps, journal, stamp
from bridge.wire.commits import LockedMessage
from bridge.wire.decisions import Decision
from bridge.wire.journal import BucketState, JournalSection
from bridge.wire.snapshot import Snapshot

_SNAPSHOT_PROPERTIES = journal.entry_properties(journal.SNAPSHOT)


def marker(entity: SendEntity, term: bytes, fingerprint: str) -> Publication:
    """Return the entry that begins a sequencer's term."""
    properties = journal.entry_properties(journal.MARKER)
    body = journal.Marker(term, fingerprint).encode()
    return Publication("", names.journal(entity.path), properties, body)


def commit_marker(entity: SendEntity, term: bytes, fingerprint: str) -> Publication:
    """Return the entry that says: all publishes of this term have reached their queues."""
    properties = journal.entry_properties(journal.COMMIT)
    body = journal.Marker(term, fingerprint).encode()
    return Publication("", names.journal(entity.path), properties, body)


def is_snapshot(publication: Publication) -> bool:
    """Whether a publication is a part of a snapshot: the span is right at one place only."""
    return publication.properties == _SNAPSHOT_PROPERTIES


class JournalEntries:
    """Makes the publications that leave an entry in the journal of one entity.

    Attributes:
        entries: the number of entries made.
        bytes: their size.
    """

    def __init__(self, path: str) -> None:
        self.entries = 0
        self.bytes = 0
        self._journal = names.journal(path)
        self._history = names.history(path)
        self._copy_moved = stamp.copy_to(names.moved(path))

    def entry(self, properties: bytes, body: bytes) -> Publication:
        """Return an entry for the journal alone."""
        return self.publication("", self._journal, properties, body)

    def counted(self, publications: Sequence[Publication]) -> Sequence[Publication]:
        """Count publications that leave an entry each, and return them."""
        self.entries += len(publications)
        self.bytes += sum([len(each.properties) + len(each.body) for each in publications])
        return publications

    def publication(
        self, exchange: str, routing_key: str, properties: bytes, body: bytes
    ) -> Publication:
        """Return a message stored in a queue and, by the same publish, in the journal."""
        self.entries += 1
        self.bytes += len(properties) + len(body)
        return Publication(exchange, routing_key, properties, body)

    def note_bucket(self, where: BucketKey, state: BucketState) -> Publication:
        """Return the entry that notes the state of a bucket."""
        body = journal.encode_bucket(where.level, where.slot, state)
        return self.entry(journal.entry_properties(journal.BUCKET), body)

    def note_uses(self, memory: Memory) -> Publication:
        """Return the entry that notes the last uses of temporary entities."""
        body = journal.entry_of(JournalSection.USES, memory.uses.encode())
        return self.entry(journal.entry_properties(journal.USES), body)

    def note_left_out(self, memory: Memory, mark: bytes | None = None) -> Publication:
        """Return the entry that names the left-out subscriptions.

        Args:
            mark: an identity by which the writer finds the entry; other readers ignore it.
        """
        body = journal.entry_of(JournalSection.LEFT_OUT, encode_left_out(memory.left_out))
        return self.entry(journal.entry_properties(journal.LEFT_OUT, mark), body)

    def note_gaps(self, found: Sequence[gaps.Gap]) -> Publication:
        """Return the entry that names numbers passed over; the moved stream gets it, too."""
        properties = stamp.put(journal.entry_properties(journal.GAP), self._copy_moved)
        return self.entry(properties, gaps.encode(found))

    def note_decision(self, decision: Decision) -> Publication:
        """Return the entry that notes what was decided about a commit."""
        properties = journal.entry_properties(journal.DECISION)
        return self.entry(properties, decisions.encode_decision(decision))

    def note_asked(self, inquiry: bytes, messages: Sequence[LockedMessage]) -> Publication:
        """Return the entry that notes which messages were asked for; perhaps none."""
        properties = journal.entry_properties(journal.ASKED)
        return self.entry(properties, decisions.encode_asked(inquiry, messages))

    def note_states_set(self, states: Sequence[LockedMessage]) -> Publication:
        """Return the entry that notes which sessions have the states that commits gave them."""
        properties = journal.entry_properties(journal.STATES_SET)
        return self.entry(properties, decisions.encode_states_set(states))

    def segment(self, rows: bytes) -> Publication:
        """Return a segment of the entity's history; it is no entry of the journal."""
        properties = journal.entry_properties(journal.ACCEPTED)
        body = journal.entry_of(JournalSection.ACCEPTED, rows)
        return Publication("", self._history, properties, body)

    def snapshot(
        self, memory: Memory, term: bytes, fingerprint: str, span: int
    ) -> list[Publication]:
        """Return the entries that hold the whole memory.

        Args:
            term: this term.
            fingerprint: the boot of the broker.
            span: the number of this term's entries that may belong to unacked arrivals. Messages
                that earlier terms numbered, and that may come again, are in the snapshot itself.
        """
        whole = Snapshot(
            term=term,
            fingerprint=fingerprint,
            enqueued_ms=memory.enqueued_ms,
            span=span,
            average_bytes=memory.average_bytes,
            counters=list(memory.counters),
            buckets=[
                (*where, not bucket.is_provisional)
                for where, bucket in memory.wheel.buckets.items()
            ],
            pending=memory.pending.encode(),
            known=encode_known(memory.known),
            activated=encode_activated(memory.activated),
            cancelled=encode_cancelled(memory.cancelled),
            subscriptions=memory.subscriptions,
            known_copies=encode_copies(memory.known),
            activated_copies=encode_activated_copies(memory.activated),
            uses=memory.uses.encode(),
            accepted=memory.history.open,
            left_out=encode_left_out(memory.left_out),
            forwarded=memory.forwarded.encode(),
            relayed=memory.relayed.encode(),
            transactions=memory.decided.encode(),
            skipped=memory.skipped,
            imported=memory.imported.encode(),
        )
        return [self.entry(_SNAPSHOT_PROPERTIES, part) for part in whole.encode(self.entries)]
