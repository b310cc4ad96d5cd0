"""The messages that relays have copied to an entity: a copy that comes again gets no second number.

A relay receives, sends, and completes at its source when the copy is confirmed. After a kill in
between, the message is copied again, weeks later perhaps. So the table keeps the number and the
enqueued time of every copy, by source and partition of the source's numbers, until its relay has
said that it cannot come again.

**Floors.** Each copy tells a lowest number that may yet come. Together with the copy's own time it
says: what has a lower number, and is not newer, is over. Such a pair is a floor; what lies below
one was copied by somebody, or is wanted by nobody, so it is forgotten. The time is there for a
source that was deleted and made anew, which counts from 1 again: its messages are newer than every
floor of its predecessor. Only floors that say more than the others are kept. A relay that tells an
older lowest than another one therefore changes nothing.

**Too late.** A relay can be wrong: its look at the source has shown it too much, or two sources
have one name. So what is below a floor and not known is never dropped: it is told apart, for a dead
letter, and noted beside the other copies of its source, where no floor lets it be forgotten.

    source     digest 16 bytes | partition u16 | floors u16 | blocks u32
               | (lowest i64, time i64), repeated | blocks
               | the partition's highest bit, which no number has: the copies that came too late
    block      copies u32 | size u32 | compressed: differences of the numbers i64, of the times i64

Copies stand in order of number and time, in blocks. A block that has not changed is encoded once.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import sub

from bridge.machine.inbox.came import Came
from bridge.wire.relay_source import DIGEST_BYTES, PARTITION_BITS, read
from bridge.wire.sections import MalformedEntry

BLOCK = 1_024
"""Copies of a block; twice as many at most."""

TOTAL = 2_000_000
"""Copies that an entity knows at most: of the source with the most, those with the lowest numbers
are forgotten, and what comes of them is too late."""

SOURCES_MAX = 1_024
"""Above this number of sources and partitions the one that was copied from longest ago is
forgotten."""

FLOORS_MAX = 16
"""Floors of a source. Each relay of a source adds one at most, and each time that it was made anew
another one; above this number the two oldest become one that says no less."""

UNDONE_MAX = 4_096
"""The last copies that can be taken back: more than one command has."""

TOO_LATE_BIT = 1 << 15
"""In a partition: its copies that came too late. Numbers are 63 bits long, so none has it."""

_SOURCE = struct.Struct(f">{DIGEST_BYTES}sHHI")
_PAIR = struct.Struct(">qq")
_BLOCK = struct.Struct(">II")

Key = tuple[bytes, int]
"""A source's digest, and a partition of its numbers, with `TOO_LATE_BIT` or without."""


class _Block:
    """Copies in order of number and time."""

    __slots__ = ("_encoded", "numbers", "times")

    def __init__(self, numbers: array[int], times: array[int]) -> None:
        self.numbers = numbers
        self.times = times
        self._encoded: bytes | None = None

    def place(self, number: int, at_ms: int) -> int:
        """Return where a copy stands, or would stand."""
        at = bisect_left(self.numbers, number)
        end = len(self.numbers)
        while at < end and self.numbers[at] == number and self.times[at] < at_ms:
            at += 1
        return at

    def has(self, at: int, number: int, at_ms: int) -> bool:
        """Whether a copy stands at a place."""
        return at < len(self.numbers) and self.numbers[at] == number and self.times[at] == at_ms

    def insert(self, at: int, number: int, at_ms: int) -> None:
        """Add a copy."""
        self.numbers.insert(at, number)
        self.times.insert(at, at_ms)
        self._encoded = None

    def remove(self, at: int) -> None:
        """Remove a copy."""
        del self.numbers[at], self.times[at]
        self._encoded = None

    def split(self) -> _Block:
        """Move the upper half into a block of its own, and return it."""
        upper = _Block(self.numbers[BLOCK:], self.times[BLOCK:])
        del self.numbers[BLOCK:], self.times[BLOCK:]
        self._encoded = None
        return upper

    def keep_encoded(self, encoded: bytes) -> None:
        """Take the bytes that the block was read from."""
        self._encoded = encoded

    def encode(self) -> bytes:
        """Return the block as bytes."""
        if self._encoded is None:
            raw = zlib.compress(_differences(self.numbers) + _differences(self.times), 1)
            self._encoded = _BLOCK.pack(len(self.numbers), len(raw)) + raw
        return self._encoded


class _Source:
    """The copies of one source and partition; `noted` counts those of all when the last came."""

    __slots__ = ("blocks", "count", "floors", "noted")

    def __init__(self) -> None:
        self.floors: list[tuple[int, int]] = []
        self.blocks: list[_Block] = []
        self.count = 0
        self.noted = 0

    def is_over(self, number: int, at_ms: int) -> bool:
        """Whether a message lies below a floor."""
        return any(number < lowest and at_ms <= told_ms for lowest, told_ms in self.floors)

    def has(self, number: int, at_ms: int) -> bool:
        """Whether a message was copied before."""
        at = self._block_of(number, at_ms)
        if at < 0:
            return False
        block = self.blocks[at]
        return block.has(block.place(number, at_ms), number, at_ms)

    def note(self, number: int, at_ms: int) -> None:
        """Remember a message that is copied now."""
        self.count += 1
        at = max(self._block_of(number, at_ms), 0)
        is_last = at >= len(self.blocks) - 1
        block = self.blocks[at] if self.blocks else None
        place = block.place(number, at_ms) if block is not None else 0
        if block is None or (is_last and place == len(block.numbers) >= BLOCK):
            self.blocks.append(_Block(array("q", [number]), array("q", [at_ms])))
            return
        block.insert(place, number, at_ms)
        if len(block.numbers) >= 2 * BLOCK:
            self.blocks.insert(at + 1, block.split())

    def remove(self, number: int, at_ms: int) -> None:
        """Forget a message, if it is known."""
        at = self._block_of(number, at_ms)
        if at < 0:
            return
        block = self.blocks[at]
        place = block.place(number, at_ms)
        if block.has(place, number, at_ms):
            block.remove(place)
            self.count -= 1
            if not block.numbers:
                del self.blocks[at]

    def tell(self, lowest: int, at_ms: int) -> None:
        """Take a floor, and forget the copies below it."""
        is_higher = True
        kept = []
        for floor in self.floors:
            if floor[0] >= lowest and floor[1] >= at_ms:
                return
            if floor[0] > lowest or floor[1] > at_ms:
                kept.append(floor)
            elif floor[0] == lowest:
                is_higher = False
        kept.append((lowest, at_ms))
        if len(kept) > FLOORS_MAX:
            kept.sort(key=_time_of)
            kept[:2] = [(max(kept[0][0], kept[1][0]), kept[1][1])]
        self.floors = kept
        if is_higher:
            self._forget(lowest, at_ms)

    def _forget(self, lowest: int, told_ms: int) -> None:
        """Forget the copies below a floor: none of them is copied again."""
        blocks = self.blocks
        begun = 0
        while begun < len(blocks) and blocks[begun].numbers[0] < lowest:
            begun += 1
        kept = []
        for block in blocks[:begun]:
            end = bisect_left(block.numbers, lowest)
            newer = [at for at in range(end) if block.times[at] > told_ms]
            self.count -= end - len(newer)
            if len(newer) == end:
                kept.append(block)
            elif newer or end < len(block.numbers):
                numbers, times = block.numbers, block.times
                kept.append(
                    _Block(
                        array("q", [numbers[at] for at in newer]) + numbers[end:],
                        array("q", [times[at] for at in newer]) + times[end:],
                    )
                )
        blocks[:begun] = kept

    def forget_first(self) -> None:
        """Forget the block with the lowest numbers: what comes again of it is told as too late."""
        first = self.blocks[0]
        self.tell(first.numbers[-1] + 1, max(first.times))

    def _block_of(self, number: int, at_ms: int) -> int:
        """Return the place of the block that has a message, or would have it; -1: before all."""
        blocks = self.blocks
        if blocks and (blocks[-1].numbers[0], blocks[-1].times[0]) <= (number, at_ms):
            return len(blocks) - 1
        return bisect_right(blocks, (number, at_ms), key=_first_of) - 1


class RelayedCopies:
    """The copies that an entity has, by their sources.

    Attributes:
        noted: number of copies that were remembered; `take_back` undoes the last.
    """

    def __init__(self) -> None:
        # Most entities have no relay: what is empty here is small.
        self.noted = 0
        self._sources: dict[Key, _Source] = {}
        self._last: list[tuple[Key, int, int]] = []
        self._count = 0

    def __len__(self) -> int:
        return sum([each.count for each in self._sources.values()])

    def came(self, said: bytes) -> Came:
        """Return what a copy is, and remember it.

        Args:
            said: what its relay says of it (`wire.relay_source`).
        """
        digest, number, at_ms, lowest = read(said)
        partition = number >> PARTITION_BITS
        key = digest, partition
        source = self._source(key)
        late_key = digest, partition | TOO_LATE_BIT
        late = self._sources.get(late_key)
        if late is not None and late.has(number, at_ms):
            return Came.AGAIN
        source.tell(lowest, at_ms)
        if source.has(number, at_ms):
            return Came.AGAIN
        if source.is_over(number, at_ms):
            self._note(late_key, self._source(late_key), number, at_ms)
            return Came.TOO_LATE
        self._note(key, source, number, at_ms)
        return Came.FIRST

    def _source(self, key: Key) -> _Source:
        sources = self._sources
        source = sources.get(key)
        if source is None:
            if len(sources) >= SOURCES_MAX:
                del sources[min(sources, key=self._noted_in)]
            source = sources[key] = _Source()
        return source

    def _note(self, key: Key, source: _Source, number: int, at_ms: int) -> None:
        source.note(number, at_ms)
        self.noted += 1
        source.noted = self.noted
        self._last.append((key, number, at_ms))
        if len(self._last) >= 2 * UNDONE_MAX:
            del self._last[:UNDONE_MAX]
        self._mind_total()

    def take_back(self, noted: int) -> None:
        """Forget what was remembered since `noted` copies: their command failed.

        What they have told of lowest numbers stays: it is true.
        """
        while self.noted > noted:
            self.noted -= 1
            if self._last:
                key, number, at_ms = self._last.pop()
                source = self._sources.get(key)
                if source is not None:
                    source.remove(number, at_ms)

    def _noted_in(self, key: Key) -> int:
        return self._sources[key].noted

    def _mind_total(self) -> None:
        """Keep the bound; all are counted once in a while, as floors let many go at once."""
        self._count += 1
        if self._count <= TOTAL:
            return
        self._count = len(self)
        while self._count > TOTAL:
            largest = max(self._sources.values(), key=_count_of)
            largest.forget_first()
            self._count = len(self)

    def encode(self) -> bytes:
        """Return all sources as bytes."""
        parts: list[bytes] = []
        for (digest, partition), source in self._sources.items():
            parts.append(_SOURCE.pack(digest, partition, len(source.floors), len(source.blocks)))
            parts += [_PAIR.pack(lowest, told_ms) for lowest, told_ms in source.floors]
            parts += [block.encode() for block in source.blocks]
        return b"".join(parts)

    @classmethod
    def decode(cls, raw: bytes) -> RelayedCopies:
        """Read the bytes of `encode`.

        Raises:
            MalformedEntry: the bytes are malformed.
        """
        found = cls()
        at = 0
        try:
            while at < len(raw):
                at = found._read_source(raw, at)
        except (struct.error, zlib.error, OverflowError) as error:
            raise MalformedEntry(f"relayed messages: {error}") from error
        found._count = len(found)
        return found

    def _read_source(self, raw: bytes, at: int) -> int:
        digest, partition, floors, blocks = _SOURCE.unpack_from(raw, at)
        at += _SOURCE.size
        source = _Source()
        for _ in range(floors):
            lowest, told_ms = _PAIR.unpack_from(raw, at)
            source.floors.append((lowest, told_ms))
            at += _PAIR.size
        for _ in range(blocks):
            count, size = _BLOCK.unpack_from(raw, at)
            at += _BLOCK.size
            source.blocks.append(_read_block(raw[at : at + size], count, size))
            source.count += count
            at += size
        self._sources[digest, partition] = source
        return at


def _read_block(raw: bytes, count: int, size: int) -> _Block:
    if not 0 < count < 2 * BLOCK or len(raw) != size:
        raise MalformedEntry(f"a block of {count} relayed messages in {len(raw)} bytes")
    width = 8 * count
    columns = zlib.decompressobj().decompress(raw, 2 * width + 1)
    if len(columns) != 2 * width:
        raise MalformedEntry(f"{len(columns)} bytes of {count} relayed messages")
    found = _Block(_sums(columns[:width]), _sums(columns[width:]))
    found.keep_encoded(_BLOCK.pack(count, size) + raw)
    return found


def _differences(column: array[int]) -> bytes:
    """Return the first number of a column, and of each other its distance to the one before."""
    found = array("q", column[:1])
    found.extend(map(sub, column[1:], column[:-1]))
    if sys.byteorder == "little":
        found.byteswap()
    return found.tobytes()


def _sums(raw: bytes) -> array[int]:
    """Read the bytes of `_differences`."""
    found = array("q")
    found.frombytes(raw)
    if sys.byteorder == "little":
        found.byteswap()
    return array("q", accumulate(found))


def _first_of(block: _Block) -> tuple[int, int]:
    return block.numbers[0], block.times[0]


def _time_of(floor: tuple[int, int]) -> int:
    return floor[1]


def _count_of(source: _Source) -> int:
    return source.count
