"""The size of an entity with all its partitions."""

from __future__ import annotations

from bridge.model.entity import Queue, Topic
from bridge.model.number import PARTITION_COUNT


def capacity_mb(entity: Queue | Topic) -> int:
    """Return MaxSizeInMegabytes as Azure reads it back: of a partitioned entity, sixteen-fold.

    Its definition gives the size of one partition, 15,360 at most; what has been read back from
    Azure, 16,384 at least, stays as it is.
    """
    size_mb = entity.max_size_mb
    is_of_one = entity.enable_partitioning and size_mb < PARTITION_COUNT * 1024
    return size_mb * PARTITION_COUNT if is_of_one else size_mb
