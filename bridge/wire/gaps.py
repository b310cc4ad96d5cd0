"""Gaps: numbers that an entity, or a subscription of a topic, has passed over and never gives.

    GAPS       short id of a subscription, 6 bytes, or zeros for the entity's own numbers
               | first number i64 | last number i64, repeated

A gap is an entry of the journal, in front of the number that follows it. So the numbers of a
journal rise, and those that are missing between two of them stand in an entry. The moved stream has
the entry, too: a peek reads that stream to its end, and knows all gaps without reading the journal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from bridge.model.name import SHORT_ID_BYTES
from bridge.wire import headers, journal
from bridge.wire.basic import Table, bytes_in
from bridge.wire.journal import JournalSection
from bridge.wire.sections import MalformedEntry

OWN = bytes(SHORT_ID_BYTES)
"""In the place of a subscription's short id: the numbers are the entity's own."""

_GAP = struct.Struct(f">{SHORT_ID_BYTES}sqq")


class Gap(NamedTuple):
    """Numbers that follow each other and that no message has or gets.

    Attributes:
        first, last: the lowest and the highest of them; of one partition.
        short: the short id of the subscription whose numbers they are, or `OWN`.
    """

    first: int
    last: int
    short: bytes = OWN

    @property
    def width(self) -> int:
        """How many numbers they are."""
        return self.last - self.first + 1


def encode(gaps: Iterable[Gap]) -> bytes:
    """Return the body of the entry that names these gaps."""
    raw = b"".join([_GAP.pack(short, first, last) for first, last, short in gaps])
    return journal.entry_of(JournalSection.GAPS, raw)


def decode(body: bytes) -> list[Gap]:
    """Return the gaps of an entry.

    Raises:
        MalformedEntry: the body is no such entry, or a gap has no numbers.
    """
    raw = journal.section_of(body, JournalSection.GAPS)
    if not raw or len(raw) % _GAP.size:
        raise MalformedEntry(f"{len(raw)} bytes of gaps")
    found: list[Gap] = []
    for at in range(0, len(raw), _GAP.size):
        short, first, last = _GAP.unpack_from(raw, at)
        if not 0 <= first <= last:
            raise MalformedEntry(f"a gap from {first} to {last}")
        found.append(Gap(first, last, short))
    return found


def gaps_in(table: Table, body: bytes, short: bytes = OWN) -> list[Gap]:
    """Return the gaps that an entry of a stream names for one series of numbers.

    Args:
        table: the entry's headers.
        short: the subscription's short id, or `OWN`.

    Returns:
        None of another kind of entry, nor of one that cannot be read.
    """
    if bytes_in(table, headers.ENTRY) != _KIND:
        return []
    try:
        return [each for each in decode(body) if each.short == short]
    except MalformedEntry:
        return []  # any client may publish into a stream


_KIND = journal.GAP.encode()
