"""Which messages have a copy at the target, or get one, for the case that they come again."""

from __future__ import annotations

from bridge.relay.machine.effects import Arrival
from bridge.relay.machine.waiting_messages import HeldMessage

CONFIRMED_MAX = 10_000
"""Copies that are remembered behind their messages' end; the oldest are forgotten."""


class Copies:
    """Messages in hand that are to be sent, are under way, or were confirmed, by their identities.

    Those are kept, too, of which the target has a copy and the source has not confirmed that they
    are gone.
    """

    def __init__(self) -> None:
        self._in_hand: dict[tuple[int, int], HeldMessage] = {}
        self._confirmed: dict[tuple[int, int], None] = {}

    def add(self, held: HeldMessage) -> None:
        """Note a message in hand."""
        self._in_hand[held.arrival.identity] = held

    def of(self, arrival: Arrival) -> HeldMessage | None:
        """Return the message in hand that a message which has come is."""
        return self._in_hand.get(arrival.identity)

    def forget(self, held: HeldMessage) -> None:
        """Note that a message is not in hand any more, or goes nowhere."""
        if self._in_hand.get(held.arrival.identity) is held:
            del self._in_hand[held.arrival.identity]

    def may_come_again(self, held: HeldMessage) -> None:
        """Note that the target has a copy, and that the source may give the message again."""
        self._confirmed[held.arrival.identity] = None
        while len(self._confirmed) > CONFIRMED_MAX:
            del self._confirmed[next(iter(self._confirmed))]

    def take_confirmed(self, arrival: Arrival) -> bool:
        """Whether the target has a copy of a message that is not in hand; that is told once."""
        if arrival.identity not in self._confirmed:
            return False
        del self._confirmed[arrival.identity]
        return True
