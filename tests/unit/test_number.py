"""Sequence numbers: succession, roll-over and partitions."""

from __future__ import annotations

import pytest

from bridge.model.number import (
    COUNTER_MAX,
    NUMBER_MAX,
    PARTITION_COUNT,
    compose,
    partition_for_key,
    partition_of,
    successor,
)


@pytest.mark.parametrize(
    ("number", "is_partitioned", "expected"),
    [
        (0, False, 1),
        (COUNTER_MAX, False, COUNTER_MAX + 1),
        (NUMBER_MAX - 1, False, NUMBER_MAX),
        (NUMBER_MAX, False, 0),
        (0, True, 1),
        (compose(3, 7), True, compose(3, 8)),
        (compose(3, COUNTER_MAX), True, compose(3, 0)),
        (compose(15, COUNTER_MAX), True, compose(15, 0)),
    ],
)
def test_numbers_rise_by_one_and_roll_over_to_zero(
    number: int, is_partitioned: bool, expected: int
) -> None:
    """The successor is one more; after the last of the range comes 0, in the same partition."""
    assert expected == successor(number, is_partitioned=is_partitioned)


def test_the_top_bits_are_the_partition() -> None:
    """A partitioned number says which partition it belongs to."""
    assert [partition_of(compose(p, 12)) for p in (0, 1, 15)] == [0, 1, 15]


def test_a_key_always_chooses_the_same_partition_and_all_are_used() -> None:
    """Equal keys meet in one partition; many keys spread over all of them."""
    chosen = [partition_for_key(str(n).encode()) for n in range(500)]
    assert chosen == [partition_for_key(str(n).encode()) for n in range(500)]
    assert set(range(PARTITION_COUNT)) == set(chosen)
