"""Arrivals of the inbox whose messages need more than one hand-over before the ack.

These are arrivals with scheduled messages whose buckets are not made yet, and large envelopes,
which are numbered in parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bridge.broker.connection.delivery import Delivery


@dataclass(slots=True, eq=False)
class UnackedArrival:
    """An arrival that is acked when nothing of it is left.

    Attributes:
        first_entry: the journal's entry count before its messages' entries.
        left: how many of its messages, or parts, are not in their next place yet.
    """

    delivery: Delivery
    first_entry: int
    left: int = 0


class UnackedArrivals:
    """The arrivals of one term that are acked later than by their first hand-over.

    Args:
        ack: called with the delivery of an arrival of which nothing is left.
    """

    def __init__(self, ack: Callable[[Delivery], None]) -> None:
        self._ack = ack
        self._arrivals: dict[UnackedArrival, None] = {}

    @property
    def first_entry(self) -> int | None:
        """The journal's entry count before the oldest of them; `None` without."""
        oldest = next(iter(self._arrivals), None)
        return None if oldest is None else oldest.first_entry

    def add(self, delivery: Delivery, first_entry: int) -> UnackedArrival:
        """Add an arrival."""
        arrival = UnackedArrival(delivery, first_entry)
        self._arrivals[arrival] = None
        return arrival

    def count_out(self, arrival: UnackedArrival) -> None:
        """Note that one message or part of an arrival is in its next place, or dropped."""
        arrival.left -= 1
        if not arrival.left:
            del self._arrivals[arrival]
            self._ack(arrival.delivery)
