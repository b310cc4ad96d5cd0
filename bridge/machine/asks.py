"""Who asks for messages, in the order in which they asked."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class _Ask:
    receiver: int
    count: int
    is_withdrawn: bool = False


class Asks:
    """The asks of one entity's receivers, first come, first served.

    An ask that is withdrawn still stands, uncounted, until its withdrawal ends: what was fetched
    for it may go to whoever asked for it.

    Attributes:
        asked: messages asked for and not given, withdrawn asks not counted.
    """

    def __init__(self) -> None:
        self.asked = 0
        self._asks: deque[_Ask] = deque()
        self._withdrawals: dict[int, list[_Ask]] = {}
        self._last_ticket = 0

    def add(self, receiver: int, count: int) -> None:
        """A receiver wants `count` more messages."""
        assert count > 0, "an ask is for one message at least"
        last = self._asks[-1] if self._asks else None
        if last is not None and last.receiver == receiver and not last.is_withdrawn:
            last.count += count
        else:
            self._asks.append(_Ask(receiver, count))
        self.asked += count

    def withdraw(self, receiver: int) -> int:
        """A receiver takes back all that it asked for; return the withdrawal's ticket."""
        asks = [ask for ask in self._asks if ask.receiver == receiver and not ask.is_withdrawn]
        for ask in asks:
            ask.is_withdrawn = True
            self.asked -= ask.count
        self._last_ticket += 1
        self._withdrawals[self._last_ticket] = asks
        return self._last_ticket

    def take(self, *, with_withdrawn: bool) -> int | None:
        """Return who gets the next message, and count it as given; `None` if nobody asks."""
        while self._asks and not self._asks[0].count:
            self._asks.popleft()
        for ask in self._asks:
            if ask.count and (with_withdrawn or not ask.is_withdrawn):
                ask.count -= 1
                if not ask.is_withdrawn:
                    self.asked -= 1
                return ask.receiver
        return None

    def end_withdrawals(self, under_way: int | None) -> list[int]:
        """End the withdrawals without which somebody still asks for all that is under way.

        Args:
            under_way: messages that may still come; `None` ends all withdrawals.

        Returns:
            Their tickets.
        """
        ended = []
        withdrawn = sum(ask.count for asks in self._withdrawals.values() for ask in asks)
        for ticket, asks in list(self._withdrawals.items()):
            others = withdrawn - sum(ask.count for ask in asks)
            if under_way is None or under_way <= self.asked + others:
                withdrawn = others
                del self._withdrawals[ticket]
                for ask in asks:
                    ask.count = 0
                ended.append(ticket)
        return ended
