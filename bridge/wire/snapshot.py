"""Snapshots: a sequencer's memory, as entries of its journal.

Each entry has one section, PART. The joined parts of a snapshot are sections again, without a
version: WRITER, SPAN, CLOCK, COUNTERS, BUCKETS, PENDING, KNOWN, ACTIVATED, CANCELLED; for a topic
also SUBSCRIPTIONS, KNOWN_COPIES, ACTIVATED_COPIES, LEFT_OUT; for temporary entities also USES; with
duplicate detection also ACCEPTED; for a target of forwarding also FORWARDED; for a target of relays
also RELAYED; where numbers have gaps also SKIPPED; with transactions also TRANSACTIONS; while
messages are imported also IMPORTED.
`wire.journal` describes the sections that other entries have, too; the rest:

    PART       serial u64 | index u32 | count u32 | bytes
    SPAN       u64: number of entries before the snapshot's first that may belong to unacked
               arrivals
    CLOCK      last enqueued time i64, ms | average bytes of a scheduled message u64
    COUNTERS   last number i64, for each partition
    PENDING    the index of scheduled messages (`machine.inbox.pending`)
    KNOWN, ACTIVATED, CANCELLED
               messages and cancels of earlier terms that may arrive again (`machine.inbox.known`)
    SUBSCRIPTIONS
               short id of a subscription, 6 bytes | its last number i64, repeated
    KNOWN_COPIES, ACTIVATED_COPIES
               the copies of the messages in KNOWN and ACTIVATED (`machine.inbox.known`)
    FORWARDED  the last messages forwarded to the entity (`machine.inbox.forwarded`); optional
    SKIPPED    short id of a subscription, 6 bytes, or zeros for the entity's own numbers | how many
               numbers were passed over i64 (`wire.gaps`), repeated; optional
    IMPORTED   the messages that were imported last (`machine.inbox.imported_messages`); optional: a
               bridge that passes over it refuses their numbers
    RELAYED    the messages relayed to the entity that may come again (`machine.inbox.relayed`): not
               optional, as a bridge that passed over it would number them again
    TRANSACTIONS
               what transactions have decided (`machine.inbox.decided`): not optional, as a bridge
               that passed over it would carry that out again
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from bridge.wire import sections
from bridge.wire.journal import (
    BucketState,
    JournalSection,
    Marker,
    decode_buckets,
    decode_numbers,
    encode_buckets,
    encode_numbers,
    entry_of,
    section_of,
)
from bridge.wire.sections import MalformedEntry

PART_BYTES_MAX = 1 << 20
"""A snapshot is cut into entries of this size: far below RabbitMQ 4's largest message (16 MiB)."""

_OF_TOPICS = (
    JournalSection.SUBSCRIPTIONS,
    JournalSection.KNOWN_COPIES,
    JournalSection.ACTIVATED_COPIES,
    JournalSection.LEFT_OUT,
)
"""Sections that a snapshot of a queue's has not: who knows no topics can read that one."""

_OF_SOME = (JournalSection.RELAYED, JournalSection.TRANSACTIONS)
"""Sections that only a snapshot of a relay's target, or of an entity with transactions, has, for
the same reason."""

_OF_ENTRIES = (
    JournalSection.NUMBERS,
    JournalSection.PART,
    JournalSection.GAPS,
    JournalSection.DECISION,
    JournalSection.ASKED,
    JournalSection.STATES,
    JournalSection.STATES_SET,
)
"""Sections of entries that are no snapshots."""

_OPTIONAL = tuple(kind for kind in JournalSection if kind & sections.OPTIONAL)

_NEEDED = tuple(
    kind for kind in JournalSection if kind not in _OF_ENTRIES + _OF_TOPICS + _OF_SOME + _OPTIONAL
)
_IN_SNAPSHOT = _NEEDED + _OF_TOPICS + _OF_SOME + _OPTIONAL

_ENCODED = {
    JournalSection.PENDING: "pending",
    JournalSection.KNOWN: "known",
    JournalSection.ACTIVATED: "activated",
    JournalSection.CANCELLED: "cancelled",
    JournalSection.KNOWN_COPIES: "known_copies",
    JournalSection.ACTIVATED_COPIES: "activated_copies",
    JournalSection.LEFT_OUT: "left_out",
    JournalSection.USES: "uses",
    JournalSection.ACCEPTED: "accepted",
    JournalSection.FORWARDED: "forwarded",
    JournalSection.RELAYED: "relayed",
    JournalSection.TRANSACTIONS: "transactions",
    JournalSection.IMPORTED: "imported",
}
"""Section -> attribute of a snapshot that holds it as it is."""

_PART = struct.Struct(">QII")
_CLOCK = struct.Struct(">qQ")
_SUBSCRIPTION = struct.Struct(">6sq")
_SPAN = struct.Struct(">Q")


@dataclass(slots=True)
class Snapshot:
    """A sequencer's memory: a successor need not read the entries before it, but for `span`.

    Attributes:
        term: the term that wrote the snapshot.
        fingerprint: the boot of the broker in which the snapshot was written.
        enqueued_ms: the last enqueued time that was given, UTC ms.
        span: the number of entries before the snapshot that may belong to unacked messages.
        average_bytes: the average size of a scheduled message.
        counters: the last number of each partition (one for an unpartitioned entity).
        buckets: (level, slot, whether the bucket is safe) of every bucket.
        pending: encoded index of scheduled messages (`machine.inbox.pending`).
        known: encoded, messages that earlier terms numbered and that may arrive again
            (`machine.inbox.known`).
        activated: encoded, messages that earlier terms activated and that a bucket may deliver
            again.
        cancelled: encoded, identities of cancels that earlier terms carried out.
        subscriptions: the last number of each subscription, by its short id.
        known_copies, activated_copies: encoded, the copies of the messages in `known` and
            `activated`.
        uses: encoded, the last uses of temporary entities (`machine.usage.idleness`).
        accepted: encoded, accepted messages that may be in no segment
            (`machine.inbox.accepted_ids`).
        left_out: encoded, the subscriptions that are left out (`machine.inbox.left_out`).
        forwarded: encoded, the last messages forwarded to the entity (`machine.inbox.forwarded`).
        relayed: encoded, the messages relayed to the entity (`machine.inbox.relayed`).
        transactions: encoded, what transactions have decided (`machine.inbox.decided`).
        skipped: how many numbers were passed over, by short id (`wire.gaps`).
        imported: encoded, the messages imported last (`machine.inbox.imported_messages`).
    """

    term: bytes
    fingerprint: str
    enqueued_ms: int
    span: int
    average_bytes: int
    counters: list[int] = field(default_factory=list)
    buckets: list[tuple[int, int, bool]] = field(default_factory=list)
    pending: bytes = b""
    known: bytes = b""
    activated: bytes = b""
    cancelled: bytes = b""
    subscriptions: dict[bytes, int] = field(default_factory=dict)
    known_copies: bytes = b""
    activated_copies: bytes = b""
    uses: bytes = b""
    accepted: bytes = b""
    left_out: bytes = b""
    forwarded: bytes = b""
    relayed: bytes = b""
    transactions: bytes = b""
    skipped: dict[bytes, int] = field(default_factory=dict)
    imported: bytes = b""

    def encode(self, serial: int) -> list[bytes]:
        """Return the bodies of the snapshot's entries, in order; all of them have this `serial`."""
        buckets = [
            (level, slot, BucketState.SAFE if is_safe else BucketState.PROVISIONAL)
            for level, slot, is_safe in self.buckets
        ]
        last = [_SUBSCRIPTION.pack(*each) for each in self.subscriptions.items()]
        skipped = [_SUBSCRIPTION.pack(*each) for each in self.skipped.items()]
        found: list[tuple[JournalSection, bytes]] = [
            (JournalSection.WRITER, Marker(self.term, self.fingerprint).encode_writer()),
            (JournalSection.SPAN, _SPAN.pack(self.span)),
            (JournalSection.CLOCK, _CLOCK.pack(self.enqueued_ms, self.average_bytes)),
            (JournalSection.COUNTERS, encode_numbers(self.counters)),
            (JournalSection.BUCKETS, encode_buckets(buckets)),
            (JournalSection.SUBSCRIPTIONS, b"".join(last)),
            (JournalSection.SKIPPED, b"".join(skipped)),
            *((kind, getattr(self, name)) for kind, name in _ENCODED.items()),
        ]
        whole = sections.encode_bare([each for each in found if each[1] or each[0] in _NEEDED])
        starts = range(0, len(whole), PART_BYTES_MAX)
        return [
            entry_of(
                JournalSection.PART,
                _PART.pack(serial, index, len(starts)) + whole[at : at + PART_BYTES_MAX],
            )
            for index, at in enumerate(starts)
        ]

    @classmethod
    def decode(cls, whole: bytes) -> Snapshot:
        """Return the snapshot in its parts, which `SnapshotParts` has joined."""
        found = sections.decode_bare(whole, frozenset(int(kind) for kind in _IN_SNAPSHOT))
        if missing := [kind.name for kind in _NEEDED if kind not in found]:
            raise MalformedEntry(f"a snapshot without {', '.join(missing)}")
        writer = Marker.decode_writer(found[JournalSection.WRITER])
        try:
            enqueued_ms, average_bytes = _CLOCK.unpack(found[JournalSection.CLOCK])
            (span,) = _SPAN.unpack(found[JournalSection.SPAN])
        except struct.error as error:
            raise MalformedEntry(str(error)) from error
        return cls(
            term=writer.term,
            fingerprint=writer.fingerprint,
            enqueued_ms=enqueued_ms,
            span=span,
            average_bytes=average_bytes,
            counters=list(decode_numbers(found[JournalSection.COUNTERS])),
            buckets=[
                (level, slot, state is BucketState.SAFE)
                for level, slot, state in decode_buckets(found[JournalSection.BUCKETS])
            ],
            subscriptions=_subscriptions(found.get(JournalSection.SUBSCRIPTIONS, b"")),
            skipped=_subscriptions(found.get(JournalSection.SKIPPED, b"")),
            **{name: found.get(kind, b"") for kind, name in _ENCODED.items()},
        )


class SnapshotParts:
    """Joins the parts of snapshots as they are read.

    Attributes:
        is_begun: the last part was the first of its snapshot.
    """

    def __init__(self) -> None:
        self.is_begun = False
        self._serial = -1
        self._parts: list[bytes] = []

    def add(self, body: bytes) -> Snapshot | None:
        """Take a part; return the snapshot when the part completes it, else `None`."""
        raw = section_of(body, JournalSection.PART)
        try:
            serial, index, count = _PART.unpack_from(raw)
        except struct.error as error:
            raise MalformedEntry(str(error)) from error
        self.is_begun = index == 0
        if index == 0:
            self._serial, self._parts = serial, []
        if serial != self._serial or index != len(self._parts):
            self._serial, self._parts = -1, []
            return None
        self._parts.append(raw[_PART.size :])
        if index + 1 < count:
            return None
        return Snapshot.decode(b"".join(self._parts))


def _subscriptions(raw: bytes) -> dict[bytes, int]:
    try:
        read: Iterable[tuple[bytes, int]] = _SUBSCRIPTION.iter_unpack(raw)
        return dict(read)
    except struct.error as error:
        raise MalformedEntry(str(error)) from error
