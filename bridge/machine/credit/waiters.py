"""Receivers that wait for messages, in the order of their requests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class _Request:
    receiver: int
    count: int
    is_withdrawn: bool = False


class Waiters:
    """The waiting receivers of one queue, first come, first served.

    A withdrawn request still stands, uncounted, until its withdrawal ends: messages fetched for the
    request may go to its receiver.

    Attributes:
        asked: messages asked for and not given, without those of withdrawn requests.
        has_withdrawals: whether a withdrawal has not ended.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.has_withdrawals = False
        self._requests: deque[_Request] = deque()
        self._by_receiver: dict[int, deque[_Request]] = {}  # without withdrawn ones
        self._withdrawals: dict[int, list[_Request]] = {}
        self._last_ticket = 0

    def add(self, receiver: int, count: int) -> None:
        """Add a request of a receiver for `count` more messages."""
        assert count > 0, "a request is for one message at least"
        last = self._requests[-1] if self._requests else None
        # One that was given all it asked for may be out of the receiver's own list.
        is_standing = last is not None and last.count > 0 and not last.is_withdrawn
        if last is not None and is_standing and last.receiver == receiver:
            last.count += count
        else:
            request = _Request(receiver, count)
            self._requests.append(request)
            self._of(receiver).append(request)
        self.asked += count

    def _of(self, receiver: int) -> deque[_Request]:
        """Return a receiver's requests, the oldest that still wants a message first."""
        requests = self._by_receiver.setdefault(receiver, deque())
        while requests and not requests[0].count:
            requests.popleft()
        return requests

    def of(self, receiver: int) -> int:
        """Return the count of messages that one receiver asks for."""
        return sum(request.count for request in self._by_receiver.get(receiver, ()))

    def restore(self, receiver: int) -> None:
        """Put a receiver first again: the message for it could not be given."""
        request = _Request(receiver, 1)
        self._requests.appendleft(request)
        self._of(receiver).appendleft(request)
        self.asked += 1

    def withdraw(self, receiver: int) -> int:
        """Withdraw all requests of a receiver; return the withdrawal's ticket."""
        requests = [each for each in self._by_receiver.pop(receiver, ()) if each.count]
        for request in requests:
            request.is_withdrawn = True
            self.asked -= request.count
        self._last_ticket += 1
        self._withdrawals[self._last_ticket] = requests
        self.has_withdrawals = True
        return self._last_ticket

    def take(self, *, with_withdrawn: bool) -> int | None:
        """Return the receiver for the next message, counted as given; `None` if none waits."""
        while self._requests and not self._requests[0].count:
            self._requests.popleft()
        for request in self._requests:
            if request.count and (with_withdrawn or not request.is_withdrawn):
                request.count -= 1
                if not request.is_withdrawn:
                    self.asked -= 1
                return request.receiver
        return None

    def end_withdrawals(self, under_way: int | None) -> list[int]:
        """End each withdrawal for which no message can be under way any more.

        Args:
            under_way: messages that may still come; `None` ends all withdrawals.

        Returns:
            The tickets of the withdrawals that have ended.
        """
        ended = []
        withdrawn = sum(
            request.count for requests in self._withdrawals.values() for request in requests
        )
        for ticket, requests in list(self._withdrawals.items()):
            others = withdrawn - sum(request.count for request in requests)
            if under_way is None or under_way <= self.asked + others:
                withdrawn = others
                del self._withdrawals[ticket]
                for request in requests:
                    request.count = 0
                ended.append(ticket)
        self.has_withdrawals = bool(self._withdrawals)
        return ended
