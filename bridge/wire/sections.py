"""Sections: the layout of the entries that a sequencer writes for its successors.

    body     = version u8 (2) | section ...
    section  = kind u16 | size u32 | size bytes

All integers are big-endian. A body has at most one section of a kind, in any order. A reader
refuses a body with a section of an unknown kind, unless the kind's highest bit is set: then it
passes over the section. So later versions can add sections.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable

VERSION = 2

VERSION_MAX = 31
"""No bridge will write a higher one: then a text that somebody else publishes has no version."""

OPTIONAL = 0x8000
"""This bit of a kind says: whoever does not know it may pass over it."""

_SECTION = struct.Struct(">HI")


class MalformedEntry(ValueError):
    """Error for bytes that are no journal entry."""


class NewerJournal(MalformedEntry):
    """Error for an entry of a newer bridge: to pass over it could give a number twice."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the journal has {found}, which this bridge does not know: run a bridge that is at "
            "least as new as the one that wrote it"
        )


def encode(sections: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a body: the version, then the sections."""
    return bytes((VERSION,)) + encode_bare(sections)


def encode_bare(sections: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the encoded sections without a version."""
    return b"".join(
        [part for kind, raw in sections for part in (_SECTION.pack(kind, len(raw)), raw)]
    )


def decode(body: bytes, kinds: Collection[int]) -> dict[int, bytes]:
    """Return the sections of a body by their kind, without optional ones that are not in `kinds`.

    Raises:
        NewerJournal: the version is higher, or a section that is not optional is of a kind that is
            not in `kinds`.
        MalformedEntry: the body is no list of sections of this version.
    """
    if not body:
        raise MalformedEntry("an empty entry")
    if VERSION < body[0] <= VERSION_MAX:
        raise NewerJournal(f"an entry of version {body[0]}")
    if body[0] != VERSION:
        raise MalformedEntry(f"an entry of version {body[0]} where sections are expected")
    return decode_bare(body[1:], kinds)


def decode_bare(raw: bytes, kinds: Collection[int]) -> dict[int, bytes]:
    """Return the sections that `encode_bare` wrote; raises as `decode` does."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(raw):
        if at + _SECTION.size > len(raw):
            raise MalformedEntry("a section that ends too early")
        kind, size = _SECTION.unpack_from(raw, at)
        at += _SECTION.size
        if at + size > len(raw):
            raise MalformedEntry(f"a section of {size} bytes, {len(raw) - at} found")
        if kind in kinds:
            if kind in found:
                raise MalformedEntry(f"two sections of kind {kind}")
            found[kind] = raw[at : at + size]
        elif not kind & OPTIONAL:
            raise NewerJournal(f"a section of kind {kind}")
        at += size
    return found
