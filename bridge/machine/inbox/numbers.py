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
        memory = self._memory
        is_own = gap.short == OWN
        partition = numbering.partition_of(gap.first) if self.is_partitioned and is_own else 0
        if is_own:
            is_known = partition < len(memory.counters)
            last = memory.counters[partition] if is_known else -1
        else:
            last = memory.subscriptions.get(gap.short, 0)
        is_partitioned = self.is_partitioned and is_own
        ends_outside = is_partitioned and numbering.partition_of(gap.last) != partition
        if gap.first != last + 1 or gap.width < 1 or ends_outside:
            raise ValueError(f"a gap from {gap.first} to {gap.last} behind number {last}")
        if is_own:
            memory.counters[partition] = gap.last
        else:
            memory.subscriptions[gap.short] = gap.last
        memory.skip(gap)

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
