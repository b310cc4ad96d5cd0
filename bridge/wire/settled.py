"""Entries of a settled stream: ranges of numbers that have left a queue, and delivery counts.

A body is a list of sections (`wire.sections`):

    ACTIVE     first number i64 | last number i64, repeated: ranges that have left the queue
    DEFERRED   likewise: ranges that have left the queue's deferred messages
    MARK       any bytes: a reader publishes them, and knows the stream's end when it reads them
    FAILED     number i64 | failed deliveries u32, repeated: a message has failed at least so often

An entry never becomes false, so entries may be read in any order, and twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from bridge.wire import headers, sections
from bridge.wire.basic import Properties
from bridge.wire.sections import OPTIONAL, MalformedEntry

PROPERTIES = Properties(headers={headers.ENTRY: ("S", b"settled")}, delivery_mode=2).encode()

RANGES_MAX = 60_000
"""So many ranges, or counts, go into one entry: a megabyte."""


class SettledSection(IntEnum):
    """The kinds of sections."""

    ACTIVE = 1
    DEFERRED = 2
    MARK = 3
    FAILED = 4 | OPTIONAL


_KINDS = frozenset(int(kind) for kind in SettledSection)
_RANGE = struct.Struct(">qq")
_COUNT = struct.Struct(">qI")
_COUNT_MAX = 0xFFFFFFFF

Numbers = tuple[int, int]
"""First and last number of a range."""


@dataclass(slots=True)
class Settled:
    """One entry.

    Attributes:
        active: ranges of numbers that have left the queue.
        deferred: ranges of numbers that have left the queue's deferred messages.
        mark: the mark of a reader that looks for the stream's end; else empty.
        failed: by number, how often a message has failed, or less.
    """

    active: list[Numbers] = field(default_factory=list)
    deferred: list[Numbers] = field(default_factory=list)
    mark: bytes = b""
    failed: dict[int, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the entry's body."""
        found: list[tuple[int, bytes]] = []
        if self.active:
            found.append((SettledSection.ACTIVE, _pack(self.active)))
        if self.deferred:
            found.append((SettledSection.DEFERRED, _pack(self.deferred)))
        if self.mark:
            found.append((SettledSection.MARK, self.mark))
        if self.failed:
            counts = self.failed.items()
            packed = [_COUNT.pack(number, min(count, _COUNT_MAX)) for number, count in counts]
            found.append((SettledSection.FAILED, b"".join(packed)))
        return sections.encode(found)

    @classmethod
    def decode(cls, body: bytes) -> Settled:
        """Return the entry in a body.

        Raises:
            MalformedEntry: the body is no such entry.
        """
        found = sections.decode(body, _KINDS)
        try:
            return cls(
                active=_unpack(found.get(SettledSection.ACTIVE, b"")),
                deferred=_unpack(found.get(SettledSection.DEFERRED, b"")),
                mark=found.get(SettledSection.MARK, b""),
                failed=dict(_COUNT.iter_unpack(found.get(SettledSection.FAILED, b""))),
            )
        except struct.error as error:
            raise MalformedEntry(str(error)) from error


def entries(
    active: list[Numbers], deferred: list[Numbers], failed: dict[int, int]
) -> Iterator[bytes]:
    """Yield the bodies of the fewest entries that hold these ranges and counts."""
    counts = list(failed.items())
    for at in range(0, max(len(active), len(deferred), len(counts)), RANGES_MAX):
        until = at + RANGES_MAX
        part = Settled(
            active=active[at:until], deferred=deferred[at:until], failed=dict(counts[at:until])
        )
        yield part.encode()


def _pack(ranges: Iterable[Numbers]) -> bytes:
    return b"".join([_RANGE.pack(first, last) for first, last in ranges])


def _unpack(raw: bytes) -> list[Numbers]:
    return [(first, last) for first, last in _RANGE.iter_unpack(raw) if first <= last]
