"""Sequence numbers: 64-bit, per entity (or per partition), from 1, rolling over to 0.

They rise. Each is the one after the last, but where an entity passes over some (`wire.gaps`).

"The SequenceNumber value is a unique 64-bit integer assigned to a message ... For partitioned
entities, the topmost 16 bits reflect the partition identifier. ... The sequence number rolls over
to zero when the 48-64-bit range is exhausted." (Azure, message sequencing and timestamps)
"""

from __future__ import annotations

import hashlib

PARTITION_COUNT = 16
"""Partitions of a partitioned entity ("the queue or topic ... is divided into 16 partitions")."""

NUMBER_MAX = 2**63 - 1
"""The largest number of an unpartitioned entity: the wire's type is signed."""

COUNTER_MAX = 2**48 - 1
"""The largest counter within a partition."""

_COUNTER_BITS = 48


def compose(partition: int, counter: int) -> int:
    """Return the number of message `counter` of a partition."""
    assert 0 <= partition < 2**15, partition
    assert 0 <= counter <= COUNTER_MAX, counter
    return partition << _COUNTER_BITS | counter


def partition_of(number: int) -> int:
    """Return the partition of a partitioned entity's number."""
    return number >> _COUNTER_BITS


def successor(number: int, *, is_partitioned: bool) -> int:
    """Return the number after `number`, in the same partition; 0 follows the last number."""
    if not is_partitioned:
        return number + 1 if number < NUMBER_MAX else 0
    if number & COUNTER_MAX == COUNTER_MAX:
        return number & ~COUNTER_MAX
    return number + 1


def is_after(number: int, other: int, *, is_partitioned: bool) -> bool:
    """Whether `number` was given after `other`, in the same partition, roll-over included."""
    span = COUNTER_MAX + 1 if is_partitioned else NUMBER_MAX + 1
    return 0 < (number - other) % span < span // 2


def partition_for_key(key: bytes) -> int:
    """Return the partition of all messages with the session id or partition key `key`."""
    return hashlib.blake2b(key, digest_size=1).digest()[0] % PARTITION_COUNT
