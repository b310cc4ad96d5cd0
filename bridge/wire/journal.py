"""Journal entries that are no messages: cancels, markers, buckets, snapshots and landings.

What an entry is stands in its header `x-busbridge-entry`. A message has none: one that waits for
its time has `x-busbridge-waiting`, any other its sequence number. Everything here is for the
sequencer that recovers from the journal.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from bridge.wire import headers
from bridge.wire.basic import Properties

CANCEL = "cancel"
MARKER = "marker"
BUCKET = "bucket"
SNAPSHOT = "snapshot"
LANDED = "landed"
"""All that a life of the sequencer published has reached its queues; the body is its marker's."""

VERSION = 1

PART_BYTES_MAX = 1 << 20
"""A snapshot is cut into entries of this size: far below RabbitMQ 4's largest message (16 MiB)."""

LIFE_BYTES = 16

REFUSED = "refused"
"""Instead of a fingerprint: a queue refused what this journal may have. What comes before is not to
be trusted."""

_MARKER = struct.Struct(f">B{LIFE_BYTES}s")
_BUCKET = struct.Struct(">BBqB")
_PART = struct.Struct(">BQHH")
_HEAD = struct.Struct(f">{LIFE_BYTES}sHqQQHHQ")


class MalformedEntry(ValueError):
    """These bytes are no journal entry that this version reads."""


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
    """A sequencer's life begins here.

    Attributes:
        life: that life's identity, 16 bytes.
        fingerprint: which boot of the broker it began in.
    """

    life: bytes
    fingerprint: str

    def encode(self) -> bytes:
        """Return the entry's body."""
        return _MARKER.pack(VERSION, self.life) + self.fingerprint.encode()

    @classmethod
    def decode(cls, body: bytes) -> Marker:
        """Read what `encode` wrote."""
        try:
            version, life = _MARKER.unpack_from(body)
            if version != VERSION:
                raise MalformedEntry(f"a marker of version {version}")
            return cls(life, body[_MARKER.size :].decode())
        except (struct.error, UnicodeDecodeError) as error:
            raise MalformedEntry(str(error)) from error


def encode_cancel(numbers: Sequence[int]) -> bytes:
    """Return the body of an entry that cancels scheduled messages."""
    return struct.pack(f">{len(numbers)}q", *numbers)


def decode_cancel(body: bytes) -> tuple[int, ...]:
    """Return the numbers that were cancelled."""
    try:
        return struct.unpack(f">{len(body) // 8}q", body)
    except struct.error as error:
        raise MalformedEntry(str(error)) from error


class BucketState(IntEnum):
    """What an entry says about a bucket."""

    GONE = 0
    YOUNG = 1
    """About to be made: a kill of RabbitMQ may make it forget the queue. Nothing is in it."""
    SAFE = 2


def encode_bucket(level: int, slot: int, state: BucketState) -> bytes:
    """Return the body of an entry about a bucket."""
    return _BUCKET.pack(VERSION, level, slot, state)


def decode_bucket(body: bytes) -> tuple[int, int, BucketState]:
    """Return level, slot, and what is said about the bucket."""
    try:
        version, level, slot, state = _BUCKET.unpack(body)
        if version != VERSION:
            raise MalformedEntry(f"a bucket of version {version}")
        return level, slot, BucketState(state)
    except (struct.error, ValueError) as error:
        raise MalformedEntry(str(error)) from error


@dataclass(slots=True)
class Snapshot:
    """All that a sequencer knows, so that nothing before it need be read again.

    Attributes:
        life: the life that wrote it.
        fingerprint: the boot of the broker in which it was written.
        enqueued_ms: the last enqueued time that was given.
        span: how many entries before this one may still belong to unacked messages.
        average_bytes: of a scheduled message.
        counters: the last number of each partition (one for an unpartitioned entity).
        buckets: (level, slot, whether it is safe) of every bucket.
        pending: encoded index of what is scheduled (`machine.pending`).
    """

    life: bytes
    fingerprint: str
    enqueued_ms: int
    span: int
    average_bytes: int
    counters: list[int] = field(default_factory=list)
    buckets: list[tuple[int, int, bool]] = field(default_factory=list)
    pending: bytes = b""

    def encode(self, serial: int) -> list[bytes]:
        """Return the bodies of the entries that hold it, in order; each has its own `serial`."""
        fingerprint = self.fingerprint.encode()
        whole = b"".join(
            (
                _HEAD.pack(
                    self.life,
                    len(fingerprint),
                    self.enqueued_ms,
                    self.span,
                    self.average_bytes,
                    len(self.counters),
                    len(self.buckets),
                    len(self.pending),
                ),
                fingerprint,
                struct.pack(f">{len(self.counters)}q", *self.counters),
                *(struct.pack(">Bq?", *each) for each in self.buckets),
                self.pending,
            )
        )
        starts = range(0, len(whole), PART_BYTES_MAX)
        return [
            _PART.pack(VERSION, serial, index, len(starts)) + whole[at : at + PART_BYTES_MAX]
            for index, at in enumerate(starts)
        ]

    @classmethod
    def decode(cls, whole: bytes) -> Snapshot:
        """Read what `encode` wrote, its parts joined by `SnapshotParts`."""
        try:
            life, size, enqueued_ms, span, average, counters, buckets, pending = _HEAD.unpack_from(
                whole
            )
            at = _HEAD.size
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
            life,
            fingerprint,
            enqueued_ms,
            span,
            average,
            numbers,
            [(level, slot, is_safe) for level, slot, is_safe in places],
            whole[at:],
        )


class SnapshotParts:
    """Puts the parts of snapshots together as they are read.

    Attributes:
        count: how many parts the last one has.
    """

    def __init__(self) -> None:
        self.count = 0
        self._serial = -1
        self._parts: list[bytes] = []

    def add(self, body: bytes) -> Snapshot | None:
        """Take one part; returns the snapshot when it is the last of a complete one."""
        try:
            version, serial, index, count = _PART.unpack_from(body)
        except struct.error as error:
            raise MalformedEntry(str(error)) from error
        if version != VERSION:
            raise MalformedEntry(f"a snapshot of version {version}")
        if index == 0:
            self._serial, self._parts = serial, []
        if serial != self._serial or index != len(self._parts):
            self._serial, self._parts = -1, []
            return None
        self._parts.append(body[_PART.size :])
        self.count = count
        if index + 1 < count:
            return None
        return Snapshot.decode(b"".join(self._parts))
