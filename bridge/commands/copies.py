"""What a busbridge is told of the copies that commands make."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.relay.machine.lowest import PARTITION_SHIFT, partition_of


class EveryNumber:
    """Any message may yet come: what a filter leaves may be moved years later."""

    def told(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return the lowest number of each partition that there can be."""
        partitions = {partition_of(each) for each in numbers}
        return {each: each << PARTITION_SHIFT for each in partitions}
