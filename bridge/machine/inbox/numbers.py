"""The giver of numbers and enqueued times to one entity's messages; no other code gives any."""

from __future__ import annotations

from bridge.machine.inbox.sequencer_memory import Memory
from bridge.model import number as numbering
from bridge.wire.envelope import Item
from bridge.wire.gaps import OWN, Gap


class Numbers:
    """Gives the next number of a partition, and the enqueued time.

    Args:
        memory: the last number of each partition and the last time; updated by each call.
    """

    def __init__(self, memory: Memory, *, is_partitioned: bool) -> None:
        self._memory = memory
        self.is_partitioned = is_partitioned
        self._turn = 0

    def next(self, item: Item) -> int:
        """Return a message's number: of its key's partition, else of the partitions in turn."""
        return self._successor(self._partition(item))

    def next_beside(self, number: int) -> int:
        """Return the next number of the partition that has given `number`."""
        return self._successor(numbering.partition_of(number) if self.is_partitioned else 0)

    def skip(self, gap: Gap) -> None:
        """Pass over numbers: none of them is ever given.

        Raises:
            ValueError: the gap does not begin right behind the last number of its series, or it
                does not end in its partition.
        """
        partition = self.partition_of(gap.first, gap.short)
        last = -1 if partition is None else self.last(gap.first, gap.short)
        ends_outside = self.partition_of(gap.last, gap.short) != partition
        if gap.first != last + 1 or gap.width < 1 or ends_outside:
            raise ValueError(f"a gap from {gap.first} to {gap.last} behind number {last}")
        self.give(gap.last, gap.short)
        self._memory.skip(gap)

    def partition_of(self, number: int, short: bytes = OWN) -> int | None:
        """Return the partition of a number in its series; `None`: there is no such partition."""
        if not self.is_partitioned or short != OWN:
            return 0
        partition = numbering.partition_of(number)
        return partition if partition < len(self._memory.counters) else None

    def last(self, number: int, short: bytes = OWN) -> int:
        """Return the last number of the series, and partition, that a number belongs to."""
        if short != OWN:
            return self._memory.subscriptions.get(short, 0)
        return self._memory.counters[self.partition_of(number) or 0]

    def give(self, number: int, short: bytes = OWN) -> None:
        """Give a number that is above the last one of its series: the next one follows it."""
        if short != OWN:
            self._memory.subscriptions[short] = number
        else:
            self._memory.counters[self.partition_of(number) or 0] = number

    def enqueued_ms(self, now_ms: int) -> int:
        """Return the present time, never before a time that was given already."""
        self._memory.enqueued_ms = enqueued_ms = max(self._memory.enqueued_ms, now_ms)
        return enqueued_ms

    def _successor(self, partition: int) -> int:
        counters = self._memory.counters
        number = numbering.successor(counters[partition], is_partitioned=self.is_partitioned)
        counters[partition] = number
        return number

    def _partition(self, item: Item) -> int:
        if not self.is_partitioned:
            return 0
        if item.key is not None:
            return numbering.partition_for_key(item.key)
        self._turn = (self._turn + 1) % numbering.PARTITION_COUNT
        return self._turn
