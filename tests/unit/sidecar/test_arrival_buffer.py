"""The prefetch of an inbox, as the size of arrivals changes."""

from __future__ import annotations

from typing import cast

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.sidecar.leader.arrival_buffer import (
    BYTES_MAX,
    PREFETCH_MAX,
    PREFETCH_MIN,
    ArrivalBuffer,
)


def arrival(size: int) -> Delivery:
    """A delivery with a body of so many bytes."""
    return Delivery(1, False, "", "", b"", bytes(size), "", cast("Channel", None), 0)


def pass_through(buffer: ArrivalBuffer, size: int, count: int) -> int | None:
    """Have arrivals come and be carried out one at a time; return a prefetch that is better."""
    for _ in range(count):
        buffer.add(arrival(size))
        buffer.done()
        if (better := buffer.better_prefetch()) is not None:
            return better
    return None


def test_a_term_with_a_low_prefetch_keeps_it_while_arrivals_are_large() -> None:
    """A change costs a takeover, and the next large arrivals would take it back."""
    buffer = ArrivalBuffer(PREFETCH_MIN)

    assert buffer.better_prefetch() is None, "nothing has come"
    assert pass_through(buffer, BYTES_MAX // PREFETCH_MIN, 200) is None


def test_a_prefetch_rises_when_arrivals_have_become_small() -> None:
    """Some hundred small ones say so."""
    assert pass_through(ArrivalBuffer(PREFETCH_MIN), 100, 500) is not None


def test_the_largest_prefetch_stays_while_arrivals_are_small() -> None:
    """It is that of a new entity."""
    assert pass_through(ArrivalBuffer(PREFETCH_MAX), 100, 500) is None
