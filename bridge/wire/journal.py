"""Journal entries that are no messages: cancels, markers, buckets, snapshots and commit markers.

The header `x-busbridge-entry` gives an entry's kind. A message in the journal lacks this header: a
scheduled message that waits has `x-busbridge-waiting`, any other has its sequence number. The
entries are for a sequencer that recovers from the journal.

A body is a list of sections (`wire.sections`), version 2:

    cancel     NUMBERS
    marker     WRITER
    landed     WRITER
    bucket     BUCKETS, with one
    uses       USES
    left-out   LEFT_OUT; of a topic
    accepted   ACCEPTED; only in the stream of a history (`machine.inbox.accepted_ids`)
    reads      WRITER; only there: up to this entry the term has read the history
    gap        GAPS (`wire.gaps`): numbers that are never given
    decision, asked, states-set
               transactions (`wire.decisions`)
    snapshot   PART (`wire.snapshot`)

    WRITER     term 16 bytes | fingerprint of the broker's boot, UTF-8
    NUMBERS    sequence number i64, repeated
    BUCKETS    level u8 | slot i64 | state u8 (`BucketState`), repeated
    LEFT_OUT   the subscriptions whose queues take nothing, and the numbers that they miss
               (`machine.inbox.left_out`)
    USES       the last uses of temporary entities (`machine.usage.idleness`); optional
    ACCEPTED   digests of accepted messages that may be in no segment yet
               (`machine.inbox.accepted_ids`); optional

A bridge refuses a journal with an unknown version or an unknown section (`NewerJournal`), but
passes over sections that are marked as optional: so later versions can add sections. It passes over
an entry of an unknown kind, too, if all sections of the entry are optional.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
GAP = "gap"
DECISION = "decision"
ASKED = "asked"
STATES_SET = "states-set"
ACCEPTED = "accepted"
MARKER_OF_HISTORY = "reads"
COMMIT = "landed"
"""All that a term of the sequencer published has reached its queues; the body is its marker's."""

_KIND = re.compile(r"[a-z][a-z-]{0,31}")
"""How kinds of entries are named, also by bridges that come later."""

TERM_BYTES = 16


class JournalSection(IntEnum):
    """The kinds of sections."""

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
    RELAYED = 16
    GAPS = 17
    TRANSACTIONS = 24
    DECISION = 25
    ASKED = 26
    STATES = 30
    STATES_SET = 31
    USES = sections.OPTIONAL | 32
    ACCEPTED = sections.OPTIONAL | 33
    FORWARDED = sections.OPTIONAL | 34
    SKIPPED = sections.OPTIONAL | 35
    IMPORTED = sections.OPTIONAL | 36


_BUCKET = struct.Struct(">BqB")


def entry_properties(kind: str, identity: bytes | None = None) -> bytes:
    """Return the encoded properties of an entry of this kind.

    The reply_to of a marker or snapshot is the address of the channel that published it: a
    successor waits until that channel has ended.
    """
    reply_to = headers.DIRECT_REPLY_TO if kind in (MARKER, SNAPSHOT) else None
    table = {headers.ENTRY: ("S", kind.encode())}
    if identity is not None:
        table[headers.IDENTITY] = ("x", identity)
    return Properties(headers=dict(table), delivery_mode=2, reply_to=reply_to).encode()


@dataclass(frozen=True, slots=True)
class Marker:
    """The entry at the beginning of a sequencer's term.

    Attributes:
        term: the term's identity, 16 bytes.
        fingerprint: the boot of the broker in which the term began.
    """

    term: bytes
    fingerprint: str

    def encode(self) -> bytes:
        """Return the entry's body."""
        return entry_of(JournalSection.WRITER, self.encode_writer())

    def encode_writer(self) -> bytes:
        """Return the section that names the writer: its term and the broker's boot."""
        return self.term + self.fingerprint.encode()

    @classmethod
    def decode(cls, body: bytes) -> Marker:
        """Return the marker in an entry's body."""
        return cls.decode_writer(section_of(body, JournalSection.WRITER))

    @classmethod
    def decode_writer(cls, raw: bytes) -> Marker:
        """Return the marker in a section that names a writer."""
        if len(raw) < TERM_BYTES:
            raise MalformedEntry(f"a term of {len(raw)} bytes")
        try:
            return cls(raw[:TERM_BYTES], raw[TERM_BYTES:].decode())
        except UnicodeDecodeError as error:
            raise MalformedEntry(str(error)) from error


def encode_cancel(numbers: Sequence[int]) -> bytes:
    """Return the body of an entry that cancels scheduled messages."""
    return entry_of(JournalSection.NUMBERS, encode_numbers(numbers))


def decode_cancel(body: bytes) -> tuple[int, ...]:
    """Return the numbers of the cancelled messages."""
    return decode_numbers(section_of(body, JournalSection.NUMBERS))


class BucketState(IntEnum):
    """The state of a bucket, as an entry gives it."""

    GONE = 0
    PROVISIONAL = 1
    """About to be made: a kill of RabbitMQ may make it forget the queue. Nothing is in it."""
    SAFE = 2


def encode_bucket(level: int, slot: int, state: BucketState) -> bytes:
    """Return the body of an entry about a bucket."""
    return entry_of(JournalSection.BUCKETS, encode_buckets([(level, slot, state)]))


def decode_bucket(body: bytes) -> tuple[int, int, BucketState]:
    """Return level, slot and state of the bucket."""
    buckets = decode_buckets(section_of(body, JournalSection.BUCKETS))
    if len(buckets) != 1:
        raise MalformedEntry(f"{len(buckets)} buckets in an entry about one")
    return buckets[0]


def check_unknown(kind: str, body: bytes) -> None:
    """Accept an entry of a kind that this version does not know, if all its sections are optional.

    Raises:
        NewerJournal: a section is not optional, or the version of the entry is not known.
        MalformedEntry: no bridge writes such an entry: its kind is no name, or its body has no
            sections.
    """
    if _KIND.fullmatch(kind) is None:
        raise MalformedEntry(f"an entry of kind {kind!r}")
    try:
        sections.decode(body, ())
    except NewerJournal as error:
        raise NewerJournal(f"an entry of kind {kind!r}") from error


def entry_of(kind: JournalSection, raw: bytes) -> bytes:
    """Return the body of an entry with one section."""
    return sections.encode([(kind, raw)])


def section_of(body: bytes, kind: JournalSection) -> bytes:
    """Return the one section that an entry must have."""
    found = sections.decode(body, (int(kind),))
    if kind not in found:
        raise MalformedEntry(f"an entry without {kind.name}")
    return found[kind]


def encode_numbers(numbers: Sequence[int]) -> bytes:
    """Return the section that holds sequence numbers."""
    return struct.pack(f">{len(numbers)}q", *numbers)


def decode_numbers(raw: bytes) -> tuple[int, ...]:
    """Return the sequence numbers of a section."""
    try:
        return struct.unpack(f">{len(raw) // 8}q", raw)
    except struct.error as error:
        raise MalformedEntry(str(error)) from error


def encode_buckets(buckets: Iterable[tuple[int, int, BucketState]]) -> bytes:
    """Return the section that holds buckets: level, slot and state of each."""
    return b"".join([_BUCKET.pack(level, slot, state) for level, slot, state in buckets])


def decode_buckets(raw: bytes) -> list[tuple[int, int, BucketState]]:
    """Return the buckets of a section."""
    try:
        read: Iterable[tuple[int, int, int]] = _BUCKET.iter_unpack(raw)
        return [(level, slot, BucketState(state)) for level, slot, state in read]
    except (struct.error, ValueError) as error:
        raise MalformedEntry(str(error)) from error
