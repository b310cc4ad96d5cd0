"""Offsets of sequence numbers in a stream, estimated from known places.

Numbers and offsets rise together, but not in step: markers, snapshots and cancels have offsets and
no numbers, and of a topic's numbers a subscription has some. So an offset is interpolated between
the nearest two known places; each miss becomes a known place. One place in `SPACING` entries is
kept, 100,000 at most.
"""

from __future__ import annotations

from bisect import bisect_right

SPACING = 100
PLACES_MAX = 100_000


class Anchors:
    """Known numbers and their offsets; both rise."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def see(self, number: int, offset: int) -> None:
        """Add the offset of a number; a place that does not rise with the others is ignored."""
        at = bisect_right(self._numbers, number)
        if len(self._numbers) >= PLACES_MAX or (at and offset - self._offsets[at - 1] < SPACING):
            return
        if at < len(self._numbers) and self._offsets[at] - offset < SPACING:
            return
        self._numbers.insert(at, number)
        self._offsets.insert(at, offset)

    def see_gap(self, first: int, last: int, offset: int) -> None:
        """Add the offset of the entry that says that these numbers are passed over.

        Both ends of a gap wider than `SPACING` are known places, wherever the next ones are:
        between them offsets do not rise with the numbers.
        """
        at = bisect_right(self._numbers, first)
        is_known = at and self._numbers[at - 1] == first
        if last - first < SPACING or is_known or len(self._numbers) + 2 > PLACES_MAX:
            return
        if at and self._offsets[at - 1] > offset:
            return
        if at < len(self._numbers) and (self._numbers[at] <= last or self._offsets[at] < offset):
            return
        self._numbers[at:at] = [first, last]
        self._offsets[at:at] = [offset, offset]

    def estimate(self, number: int) -> int | None:
        """Return the offset at which a number may stand; `None`: no place is known.

        Below the lowest known number, or above the highest, offsets are as far apart as numbers.
        """
        if not self._numbers:
            return None
        at = bisect_right(self._numbers, number)
        if at == 0:
            return self._offsets[0] - (self._numbers[0] - number)
        if at == len(self._numbers):
            return self._offsets[-1] + (number - self._numbers[-1])
        low, high = self._numbers[at - 1], self._numbers[at]
        start, end = self._offsets[at - 1], self._offsets[at]
        return start + (number - low) * (end - start) // (high - low)

    def floor(self, number: int) -> int | None:
        """Return the offset of the highest known number not above this number."""
        at = bisect_right(self._numbers, number)
        return self._offsets[at - 1] if at else None

    def forget(self) -> None:
        """Forget all places."""
        self._numbers.clear()
        self._offsets.clear()
