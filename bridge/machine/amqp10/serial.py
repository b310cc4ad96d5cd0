"""Serial numbers of 32 bits that wrap (RFC 1982), as transfer ids and delivery counts are."""

from __future__ import annotations

MASK = 0xFFFFFFFF


def add(number: int, count: int) -> int:
    """Return the number `count` steps on."""
    return (number + count) & MASK


def distance(start: int, end: int) -> int:
    """Return how many steps lie from `start` to `end`; negative when `end` comes first."""
    steps = (end - start) & MASK
    return steps - 0x100000000 if steps & 0x80000000 else steps
