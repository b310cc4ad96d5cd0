"""Journal entries that are no messages: cancels, markers, buckets, snapshots and commit markers.

What an entry is stands in its header `x-busbridge-entry`. A message has none: one that waits for
its time has `x-busbridge-waiting`, any other its sequence number. Everything here is for the
sequencer that recovers from the journal.

A body is a list of sections (`wire.sections`), version 2:

    cancel     NUMBERS
    marker     WRITER
    landed     WRITER
    bucket     BUCKETS, with one
    uses       USES
    left-out   LEFT_OUT; of a topic
    accepted   ACCEPTED; in the stream of a history alone (`machine.history`)
    reads      WRITER; likewise: up to here this term has read the history
    snapshot   PART; the parts of one, put together, are sections again, without a version:
               WRITER, SPAN, CLOCK, COUNTERS, BUCKETS, PENDING, KNOWN, ACTIVATED, CANCELLED;
               of a topic also SUBSCRIPTIONS, KNOWN_COPIES, ACTIVATED_COPIES, LEFT_OUT;
               of what is temporary also USES; where duplicates are detected also ACCEPTED;
               of what is forwarded to also FORWARDED

    WRITER     term 16 bytes | fingerprint of the broker's boot, UTF-8
    NUMBERS    sequence number i64, repeated
    BUCKETS    level u8 | slot i64 | state u8 (`BucketState`), repeated
    PART       serial u64 | index u32 | count u32 | bytes
    SPAN       u64: how many entries before the snapshot's first may belong to unacked arrivals
    CLOCK      last enqueued time i64, ms | average bytes of a scheduled message u64
    COUNTERS   last number i64, for each partition
    PENDING    the index of what is scheduled (`machine.pending`)
    KNOWN, ACTIVATED, CANCELLED
               what earlier terms numbered and may come again (`machine.known`)
    SUBSCRIPTIONS
               short id of a subscription, 6 bytes | its last number i64, repeated
    KNOWN_COPIES, ACTIVATED_COPIES
               the copies of what is in KNOWN and ACTIVATED (`machine.known`)
    LEFT_OUT   the subscriptions whose queues take nothing, and what they miss (`machine.left_out`)
    USES       when temporary entities were used last (`machine.idleness`); optional
    ACCEPTED   digests of what was accepted and may be in no segment yet (`machine.history`);
               optional
    FORWARDED  what was forwarded to the entity last (`machine.forwarded`); optional

A bridge that meets an entry, a version or a section that it does not know refuses the journal
(`NewerJournal`), but passes over sections that are marked as optional: another feature's sections
are added so. The same holds for an entry of an unknown kind: all its sections must be optional.

Version 1 is read, never written: one layout a kind, no sections; a snapshot's span counts the
entries of all terms whose arrivals may come again: it has no KNOWN, ACTIVATED and CANCELLED.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from bridge.wire import headers, sections
from bridge.wire.basic import Properties
from bridge.wire.sections import MalformedEntry, NewerJournal

CANCEL = "cancel"
MARKER = "marker"
BUCKET = "bucket"
SNAPSHOT = "snapshot"
USES = "uses"
LEFT_OUT = "left-out"
ACCEPTED = "accepted"
MARKER_OF_HISTORY = "reads"
COMMIT = "landed"
"""All that a term of the sequencer published has reached its queues; the body is its marker's."""

PART_BYTES_MAX = 1 << 20
"""A snapshot is cut into entries of this size: far below RabbitMQ 4's largest message (16 MiB)."""

TERM_BYTES = 16

REFUSED = "refused"
"""Instead of a fingerprint: a queue refused what this journal may have. What comes before is not to
be trusted."""


class Kind(IntEnum):
    """What a section holds."""

    WRITER = 1
    NUMBERS = 2
    BUCKETS = 3
    PART = 4
    SPAN = 5
    CLOCK = 6
    COUNTERS = 7
    PENDING = 8
    KNOWN = 9
    ACTIVATED = 10
    CANCELLED = 11
    SUBSCRIPTIONS = 12
    KNOWN_COPIES = 13
    ACTIVATED_COPIES = 14
    LEFT_OUT = 15
    USES = sections.OPTIONAL | 32
    ACCEPTED = sections.OPTIONAL | 33
    FORWARDED = sections.OPTIONAL | 34


_OF_TOPICS = (Kind.SUBSCRIPTIONS, Kind.KNOWN_COPIES, Kind.ACTIVATED_COPIES, Kind.LEFT_OUT)
"""Sections that a snapshot of a queue's has not: who knows no topics can read that one."""

_OPTIONAL = tuple(kind for kind in Kind if kind & sections.OPTIONAL)

_NEEDED = tuple(
    kind
    for kind in Kind
    if kind not in (Kind.NUMBERS, Kind.PART) and kind not in _OF_TOPICS + _OPTIONAL
)
_IN_SNAPSHOT = _NEEDED + _OF_TOPICS + _OPTIONAL

_BUCKET = struct.Struct(">BqB")
_PART = struct.Struct(">QII")
_CLOCK = struct.Struct(">qQ")
_SUBSCRIPTION = struct.Struct(">6sq")
_SPAN = struct.Struct(">Q")

_V1 = 1
_V1_MARKER = struct.Struct(f">B{TERM_BYTES}s")
_V1_BUCKET = struct.Struct(">BBqB")
_V1_PART = struct.Struct(">BQHH")
_V1_HEAD = struct.Struct(f">{TERM_BYTES}sHqQQHHQ")


def entry_properties(kind: str, identity: bytes | None = None) -> bytes:
    """Return the encoded properties of an entry of this kind.

    Markers and snapshots tell by which channel they were published: a successor waits for its end.
    """
    reply_to = headers.DIRECT_REPLY_TO if kind in (MARKER, SNAPSHOT) else None
    table = {headers.ENTRY: ("S", kind.encode())}
    if identity is not None:
        table[headers.IDENTITY] = ("x", identity)
    return Properties(headers=dict(table), delivery_mode=2, reply_to=reply_to).encode()


@dataclass(frozen=True, slots=True)
class Marker:
    """A sequencer's term begins here.

    Attributes:
        term: that term's identity, 16 bytes.
        fingerprint: which boot of the broker it began in.
    """

    term: bytes
    fingerprint: str

    def encode(self) -> bytes:
        """Return the entry's body."""
        return sections.encode([(Kind.WRITER, self.encode_writer())])

    def encode_writer(self) -> bytes:
        """Return the section that names a writer."""
        return self.term + self.fingerprint.encode()

    @classmethod
    def decode(cls, body: bytes) -> Marker:
        """Read what `encode` wrote, or version 1."""
        if body[:1] == bytes((_V1,)):
            return cls.decode_writer(body[1:])
        return cls.decode_writer(_only(body, Kind.WRITER))

    @classmethod
    def decode_writer(cls, raw: bytes) -> Marker:
        """Read the section that names a writer."""
        if len(raw) < TERM_BYTES:
            raise MalformedEntry(f"a term of {len(raw)} bytes")
        try:
            return cls(raw[:TERM_BYTES], raw[TERM_BYTES:].decode())
        except UnicodeDecodeError as error:
            raise MalformedEntry(str(error)) from error


def encode_cancel(numbers: Sequence[int]) -> bytes:
    """Return the body of an entry that cancels scheduled messages."""
    return sections.encode([(Kind.NUMBERS, struct.pack(f">{len(numbers)}q", *numbers))])


def decode_cancel(body: bytes) -> tuple[int, ...]:
    """Return the numbers that were cancelled; of version 1 the body is nothing but numbers."""
    # No number begins with a byte like the version: it would be above 10^17.
    is_bare = len(body) % 8 == 0 and body[:1] != bytes((sections.VERSION,))
    raw = body if is_bare else _only(body, Kind.NUMBERS)
    return _numbers(raw)


def encode_uses(uses: bytes) -> bytes:
    """Return the body of an entry that says when temporary entities were used last."""
    return sections.encode([(Kind.USES, uses)])


def encode_accepted(rows: bytes) -> bytes:
    """Return the body of a segment of accepted digests."""
    return sections.encode([(Kind.ACCEPTED, rows)])


def decode_accepted(body: bytes) -> bytes:
    """Return what `encode_accepted` was given."""
    return _only(body, Kind.ACCEPTED)


def decode_uses(body: bytes) -> bytes:
    """Return what `encode_uses` was given."""
    return _only(body, Kind.USES)


def encode_left_out(left_out: bytes) -> bytes:
    """Return the body of an entry that says which subscriptions are left out."""
    return sections.encode([(Kind.LEFT_OUT, left_out)])


def decode_left_out(body: bytes) -> bytes:
    """Return what `encode_left_out` was given."""
    return _only(body, Kind.LEFT_OUT)


class BucketState(IntEnum):
    """What an entry says about a bucket."""

    GONE = 0
    YOUNG = 1
    """About to be made: a kill of RabbitMQ may make it forget the queue. Nothing is in it."""
    SAFE = 2


def encode_bucket(level: int, slot: int, state: BucketState) -> bytes:
    """Return the body of an entry about a bucket."""
    return sections.encode([(Kind.BUCKETS, _BUCKET.pack(level, slot, state))])


def decode_bucket(body: bytes) -> tuple[int, int, BucketState]:
    """Return level, slot, and what is said about the bucket."""
    raw = body[1:] if body[:1] == bytes((_V1,)) else _only(body, Kind.BUCKETS)
    buckets = _buckets(raw)
    if len(buckets) != 1:
        raise MalformedEntry(f"{len(buckets)} buckets in an entry about one")
    return buckets[0]


def check_unknown(kind: str, body: bytes) -> None:
    """Accept an entry of a kind that this version does not know, when all of it is optional.

    Raises:
        NewerJournal: it is not.
    """
    try:
        sections.decode(body, ())
    except MalformedEntry as error:
        raise NewerJournal(f"an entry of kind {kind!r}") from error


@dataclass(slots=True)
class Snapshot:
    """All that a sequencer knows, so that nothing before it need be read again.

    Attributes:
        term: the term that wrote it.
        fingerprint: the boot of the broker in which it was written.
        enqueued_ms: the last enqueued time that was given.
        span: how many entries before this one may still belong to unacked messages.
        average_bytes: of a scheduled message.
        counters: the last number of each partition (one for an unpartitioned entity).
        buckets: (level, slot, whether it is safe) of every bucket.
        pending: encoded index of what is scheduled (`machine.pending`).
        known: encoded, what earlier terms numbered and may come again (`machine.known`).
        activated: encoded, what earlier terms activated and may come out of a bucket again.
        cancelled: encoded, identities of cancels that earlier terms carried out.
        subscriptions: the last number of each subscription, by its short id.
        known_copies, activated_copies: encoded, the copies of what is known and activated.
        uses: encoded, when temporary entities were used last (`machine.idleness`).
        accepted: encoded, what was accepted and may be in no segment (`machine.history`).
        left_out: encoded, the subscriptions that are left out (`machine.left_out`).
        forwarded: encoded, what was forwarded to the entity last (`machine.forwarded`).
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

    def encode(self, serial: int) -> list[bytes]:
        """Return the bodies of the entries that hold it, in order; each has its own `serial`."""
        buckets = [
            _BUCKET.pack(level, slot, BucketState.SAFE if is_safe else BucketState.YOUNG)
            for level, slot, is_safe in self.buckets
        ]
        whole = sections.encode_bare(
            (
                (Kind.WRITER, Marker(self.term, self.fingerprint).encode_writer()),
                (Kind.SPAN, _SPAN.pack(self.span)),
                (Kind.CLOCK, _CLOCK.pack(self.enqueued_ms, self.average_bytes)),
                (Kind.COUNTERS, struct.pack(f">{len(self.counters)}q", *self.counters)),
                (Kind.BUCKETS, b"".join(buckets)),
                (Kind.PENDING, self.pending),
                (Kind.KNOWN, self.known),
                (Kind.ACTIVATED, self.activated),
                (Kind.CANCELLED, self.cancelled),
                *self._of_topic(),
                *self._optional(),
            )
        )
        starts = range(0, len(whole), PART_BYTES_MAX)
        return [
            sections.encode(
                [
                    (
                        Kind.PART,
                        _PART.pack(serial, index, len(starts)) + whole[at : at + PART_BYTES_MAX],
                    )
                ]
            )
            for index, at in enumerate(starts)
        ]

    def _of_topic(self) -> list[tuple[int, bytes]]:
        last = [_SUBSCRIPTION.pack(*each) for each in self.subscriptions.items()]
        found = (b"".join(last), self.known_copies, self.activated_copies, self.left_out)
        return [(kind, raw) for kind, raw in zip(_OF_TOPICS, found, strict=True) if raw]

    def _optional(self) -> list[tuple[int, bytes]]:
        found = (
            (Kind.USES, self.uses),
            (Kind.ACCEPTED, self.accepted),
            (Kind.FORWARDED, self.forwarded),
        )
        return [(kind, raw) for kind, raw in found if raw]

    @classmethod
    def decode(cls, whole: bytes) -> Snapshot:
        """Read what `encode` wrote, its parts joined by `SnapshotParts`."""
        found = sections.decode_bare(whole, frozenset(int(kind) for kind in _IN_SNAPSHOT))
        if missing := [kind.name for kind in _NEEDED if kind not in found]:
            raise MalformedEntry(f"a snapshot without {', '.join(missing)}")
        writer = Marker.decode_writer(found[Kind.WRITER])
        try:
            enqueued_ms, average_bytes = _CLOCK.unpack(found[Kind.CLOCK])
            (span,) = _SPAN.unpack(found[Kind.SPAN])
        except struct.error as error:
            raise MalformedEntry(str(error)) from error
        return cls(
            term=writer.term,
            fingerprint=writer.fingerprint,
            enqueued_ms=enqueued_ms,
            span=span,
            average_bytes=average_bytes,
            counters=list(_numbers(found[Kind.COUNTERS])),
            buckets=[
                (level, slot, state is BucketState.SAFE)
                for level, slot, state in _buckets(found[Kind.BUCKETS])
            ],
            pending=found[Kind.PENDING],
            known=found[Kind.KNOWN],
            activated=found[Kind.ACTIVATED],
            cancelled=found[Kind.CANCELLED],
            subscriptions=_subscriptions(found.get(Kind.SUBSCRIPTIONS, b"")),
            known_copies=found.get(Kind.KNOWN_COPIES, b""),
            activated_copies=found.get(Kind.ACTIVATED_COPIES, b""),
            uses=found.get(Kind.USES, b""),
            accepted=found.get(Kind.ACCEPTED, b""),
            left_out=found.get(Kind.LEFT_OUT, b""),
            forwarded=found.get(Kind.FORWARDED, b""),
        )

    @classmethod
    def decode_v1(cls, whole: bytes) -> Snapshot:
        """Read a snapshot of version 1."""
        try:
            head = _V1_HEAD.unpack_from(whole)
            term, size, enqueued_ms, span, average, counters, buckets, pending = head
            at = _V1_HEAD.size
            fingerprint = whole[at : at + size].decode()
            at += size
            numbers = list(struct.unpack_from(f">{counters}q", whole, at))
            at += 8 * counters
            places = [struct.unpack_from(">Bq?", whole, at + 10 * i) for i in range(buckets)]
            at += 10 * buckets
        except (struct.error, UnicodeDecodeError) as error:
            raise MalformedEntry(str(error)) from error
        if len(whole) != at + pending:
            raise MalformedEntry(f"a snapshot of {len(whole)} bytes, {at + pending} expected")
        return cls(
            term=term,
            fingerprint=fingerprint,
            enqueued_ms=enqueued_ms,
            span=span,
            average_bytes=average,
            counters=numbers,
            buckets=[(level, slot, is_safe) for level, slot, is_safe in places],
            pending=whole[at:],
        )


class SnapshotParts:
    """Puts the parts of snapshots together as they are read.

    Attributes:
        is_begun: the part that was taken last is a first one.
    """

    def __init__(self) -> None:
        self.is_begun = False
        self._serial = -1
        self._parts: list[bytes] = []

    def add(self, body: bytes) -> Snapshot | None:
        """Take one part; returns the snapshot when it is the last of a complete one."""
        is_v1 = body[:1] == bytes((_V1,))
        try:
            if is_v1:
                _, serial, index, count = _V1_PART.unpack_from(body)
                part = body[_V1_PART.size :]
            else:
                raw = _only(body, Kind.PART)
                serial, index, count = _PART.unpack_from(raw)
                part = raw[_PART.size :]
        except struct.error as error:
            raise MalformedEntry(str(error)) from error
        self.is_begun = index == 0
        if index == 0:
            self._serial, self._parts = serial, []
        if serial != self._serial or index != len(self._parts):
            self._serial, self._parts = -1, []
            return None
        self._parts.append(part)
        if index + 1 < count:
            return None
        whole = b"".join(self._parts)
        return Snapshot.decode_v1(whole) if is_v1 else Snapshot.decode(whole)


def _only(body: bytes, kind: Kind) -> bytes:
    """Return the one section that an entry must have."""
    found = sections.decode(body, (int(kind),))
    if kind not in found:
        raise MalformedEntry(f"an entry without {kind.name}")
    return found[kind]


def _numbers(raw: bytes) -> tuple[int, ...]:
    try:
        return struct.unpack(f">{len(raw) // 8}q", raw)
    except struct.error as error:
        raise MalformedEntry(str(error)) from error


def _subscriptions(raw: bytes) -> dict[bytes, int]:
    try:
        read: Iterable[tuple[bytes, int]] = _SUBSCRIPTION.iter_unpack(raw)
        return dict(read)
    except struct.error as error:
        raise MalformedEntry(str(error)) from error


def _buckets(raw: bytes) -> list[tuple[int, int, BucketState]]:
    try:
        read: Iterable[tuple[int, int, int]] = _BUCKET.iter_unpack(raw)
        return [(level, slot, BucketState(state)) for level, slot, state in read]
    except (struct.error, ValueError) as error:
        raise MalformedEntry(str(error)) from error
