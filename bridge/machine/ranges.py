"""Sets of sequence numbers, kept as ranges: settled numbers are dense, in any order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class Ranges:
    """A set of numbers. Ranges that touch are merged; an addition moves all ranges above it."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __repr__(self) -> str:
        return f"Ranges({list(self)[:5]}, {len(self._firsts)} in all)"

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield first and last number of each range, in order."""
        return iter(list(zip(self._firsts, self._lasts, strict=True)))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def add(self, first: int, last: int) -> None:
        """Add all numbers from `first` to `last`."""
        low = bisect_left(self._lasts, first - 1)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first = min(first, self._firsts[low])
            last = max(last, self._lasts[high - 1])
        self._firsts[low:high] = [first]
        self._lasts[low:high] = [last]

    def remove(self, number: int) -> None:
        """Remove a number of the set."""
        at = bisect_right(self._firsts, number) - 1
        first, last = self._firsts[at], self._lasts[at]
        kept = [each for each in ((first, number - 1), (number + 1, last)) if each[0] <= each[1]]
        self._firsts[at : at + 1] = [each[0] for each in kept]
        self._lasts[at : at + 1] = [each[1] for each in kept]

    def outside(self, numbers: Iterable[int]) -> list[int]:
        """Return those of some numbers that are not in the set, in their order."""
        firsts, lasts = self._firsts, self._lasts
        found = []
        for number in numbers:
            at = bisect_right(firsts, number) - 1
            if at < 0 or number > lasts[at]:
                found.append(number)
        return found

    def next_free(self, number: int) -> int:
        """Return the lowest number not in the set, from `number` on."""
        at = bisect_right(self._firsts, number) - 1
        if at >= 0 and number <= self._lasts[at]:
            return self._lasts[at] + 1
        return number

    def back(self, last: int, count: int) -> int:
        """Return the number from which on, up to `last`, there are `count` numbers not in the set.

        It may be below 0: the set has an end.
        """
        at = bisect_right(self._firsts, last) - 1
        while at >= 0:
            low, high = self._firsts[at], min(self._lasts[at], last)
            if last - high >= count:
                break
            count -= last - high
            last = low - 1
            at -= 1
        return last - count + 1

    def count(self, first: int, last: int) -> int:
        """Return how many of the numbers from `first` to `last` are in the set."""
        found = 0
        for at in range(bisect_left(self._lasts, first), bisect_right(self._firsts, last)):
            found += min(self._lasts[at], last) - max(self._firsts[at], first) + 1
        return found


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers in any order as ranges in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
