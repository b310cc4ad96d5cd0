"""The index of scheduled messages: sequence number -> due time and identity, 20 bytes each.

The messages themselves wait in bucket queues. The index tells whether a number still waits. So a
cancel need not know the message's bucket: the message is dropped when the bucket delivers it.

Numbers of one partition rise, so they are appended to arrays and found by bisection; one that was
reserved before others has its place between theirs. After a roll-over the numbers begin again at a
lower one: then a new run of arrays begins. A removed entry
leaves a hole; a run that is half holes is packed.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from zlib import crc32

from bridge.model.number import is_after, partition_of

_HOLE = -(2**63)
"""Due time of a removed entry."""

_RUN = struct.Struct(">HI")
_PACK_MIN = 64


def identity_hash(identity: bytes) -> int:
    """Return 32 bits of an identity, to tell apart messages that share a number by accident."""
    return crc32(identity)


class _Run:
    """Entries with rising numbers, in three arrays."""

    __slots__ = ("dues", "hashes", "holes", "numbers")

    def __init__(self) -> None:
        self.numbers = array("q")
        self.dues = array("q")
        self.hashes = array("I")
        self.holes = 0

    def find(self, number: int) -> int:
        """Return the place of a number that waits, or -1."""
        at = bisect_left(self.numbers, number)
        if at < len(self.numbers) and self.numbers[at] == number and self.dues[at] != _HOLE:
            return at
        return -1

    def put(self, number: int, due_ms: int, hashed: int) -> None:
        """Add a number that does not wait."""
        at = len(self.numbers)
        if at and self.numbers[-1] >= number:
            at = bisect_left(self.numbers, number)
        if at < len(self.numbers) and self.numbers[at] == number:
            self.dues[at], self.hashes[at] = due_ms, hashed
            self.holes -= 1
            return
        self.numbers.insert(at, number)
        self.dues.insert(at, due_ms)
        self.hashes.insert(at, hashed)

    def pack(self) -> None:
        """Close the holes."""
        kept = [at for at, due_ms in enumerate(self.dues) if due_ms != _HOLE]
        self.numbers = array("q", [self.numbers[at] for at in kept])
        self.hashes = array("I", [self.hashes[at] for at in kept])
        self.dues = array("q", [self.dues[at] for at in kept])
        self.holes = 0


class Pending:
    """The scheduled messages of one entity."""

    def __init__(self, *, is_partitioned: bool = False) -> None:
        self._is_partitioned = is_partitioned
        self._runs: dict[int, list[_Run]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return self._find(number) is not None

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield (number, due time) of all entries, in no particular order."""
        for runs in self._runs.values():
            for run in runs:
                for number, due_ms in zip(run.numbers, run.dues, strict=True):
                    if due_ms != _HOLE:
                        yield number, due_ms

    def add(self, number: int, due_ms: int, hashed: int) -> None:
        """Add a number; a number already in the index stays unchanged."""
        if number in self:
            return
        runs = self._runs.setdefault(self._partition(number), [_Run()])
        last = runs[-1].numbers[-1] if runs[-1].numbers else -1
        if last > number and is_after(number, last, is_partitioned=self._is_partitioned):
            runs.append(_Run())
        runs[-1].put(number, due_ms, hashed)
        self._count += 1

    def matches(self, number: int, hashed: int) -> bool:
        """Whether this number waits and belongs to this identity."""
        found = self._find(number)
        return found is not None and found[0].hashes[found[1]] == hashed

    def after(self, number: int, count: int) -> list[int]:
        """Return the lowest waiting numbers from `number` on, `count` at most."""
        found: list[int] = []
        for runs in self._runs.values():
            for run in runs:
                taken = 0
                for at in range(bisect_left(run.numbers, number), len(run.numbers)):
                    if taken == count:
                        break
                    if run.dues[at] != _HOLE:
                        found.append(run.numbers[at])
                        taken += 1
        found.sort()
        return found[:count]

    def remove(self, number: int) -> bool:
        """Remove a number; False when it was not in the index."""
        found = self._find(number)
        if found is None:
            return False
        run, at = found
        run.dues[at] = _HOLE
        run.holes += 1
        self._count -= 1
        if run.holes >= _PACK_MIN and run.holes * 2 > len(run.numbers):
            run.pack()
            self._drop_empty(self._partition(number))
        return True

    def remove_between(self, first: int, last: int) -> None:
        """Remove all numbers of one partition from `first` to `last`, however many that are."""
        found: list[int] = []
        for run in self._runs.get(self._partition(first), ()):
            found += run.numbers[bisect_left(run.numbers, first) : bisect_right(run.numbers, last)]
        for number in found:
            self.remove(number)

    def encode(self) -> bytes:
        """Return the index as bytes, with the holes: packing would take too long for a snapshot."""
        parts = []
        for partition, runs in self._runs.items():
            for run in runs:
                parts.append(_RUN.pack(partition, len(run.numbers)))
                parts += [_big_endian(column) for column in (run.numbers, run.dues, run.hashes)]
        return b"".join(parts)

    @classmethod
    def decode(cls, raw: bytes, *, is_partitioned: bool = False) -> Pending:
        """Read the bytes of `encode`; ValueError when they are malformed."""
        pending = cls(is_partitioned=is_partitioned)
        at = 0
        while at < len(raw):
            try:
                partition, count = _RUN.unpack_from(raw, at)
            except struct.error as error:
                raise ValueError("an index that ends too early") from error
            at += _RUN.size
            if at + 20 * count > len(raw):
                raise ValueError("an index that ends too early")
            run = _Run()
            for column, size in ((run.numbers, 8), (run.dues, 8), (run.hashes, 4)):
                column.frombytes(raw[at : at + size * count])
                if sys.byteorder == "little":
                    column.byteswap()
                at += size * count
            run.holes = run.dues.count(_HOLE)
            pending._runs.setdefault(partition, []).append(run)
            pending._count += count - run.holes
        return pending

    def _partition(self, number: int) -> int:
        return partition_of(number) if self._is_partitioned else 0

    def _find(self, number: int) -> tuple[_Run, int] | None:
        for run in reversed(self._runs.get(self._partition(number), ())):
            at = run.find(number)
            if at >= 0:
                return run, at
        return None

    def _drop_empty(self, partition: int) -> None:
        runs = self._runs[partition]
        runs[:] = [run for run in runs if run.numbers] or [_Run()]


def _big_endian(column: array[int]) -> bytes:
    if sys.byteorder == "little":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()
