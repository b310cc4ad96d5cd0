"""The requests of one connection that are under way, and the last ones that were answered.

The Python SDK's asyncio half may write a request again while it waits for a link's credit: the same
bytes, the message id among them. A copy is not carried out: it is answered as the first one is. So
that an id may be used anew one day, only the last answered requests are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

ANSWERED_MAX = 1_000
"""So many answered requests are remembered."""

REPLY_BYTES_MAX = 1_048_576
"""Bytes of the replies that are kept for copies; beyond that the oldest are dropped."""

Key = tuple[int, bytes]
"""What the copies of a request share: the number of its link, and a digest of its bytes."""


class RequestArrival(Enum):
    """What a request is that arrives."""

    FIRST = "to be carried out"
    COPY_UNDER_WAY = "to be answered with the first"
    COPY_ANSWERED = "to be answered at once"


class KnownRequests:
    """The known requests of one connection.

    Args:
        answered_max: answered requests that are remembered.
        reply_bytes_max: bytes of replies that are kept.
    """

    def __init__(
        self, answered_max: int = ANSWERED_MAX, reply_bytes_max: int = REPLY_BYTES_MAX
    ) -> None:
        self._answered_max = answered_max
        self._reply_bytes_max = reply_bytes_max
        self._under_way: dict[Key, int] = {}
        self._answered: OrderedDict[Key, None] = OrderedDict()
        self._replies: OrderedDict[Key, bytes] = OrderedDict()
        self._reply_bytes = 0

    def __repr__(self) -> str:
        return f"<KnownRequests under_way={len(self._under_way)} answered={len(self._answered)}>"

    def arrive(self, key: Key) -> RequestArrival:
        """Note a request; only a first one is to be carried out, and then `answer`ed."""
        if key in self._under_way:
            self._under_way[key] += 1
            return RequestArrival.COPY_UNDER_WAY
        if key in self._answered:
            return RequestArrival.COPY_ANSWERED
        self._under_way[key] = 1
        return RequestArrival.FIRST

    def answer(self, key: Key, reply: bytes) -> int:
        """Note the reply to a request that was carried out.

        Returns how many requests are to be answered with it: the first, and the copies that came
        meanwhile.
        """
        count = self._under_way.pop(key)
        self._answered[key] = None
        if len(self._answered) > self._answered_max:
            oldest, _ = self._answered.popitem(last=False)
            self._reply_bytes -= len(self._replies.pop(oldest, b""))
        if len(reply) <= self._reply_bytes_max:
            self._replies[key] = reply
            self._reply_bytes += len(reply)
            while self._reply_bytes > self._reply_bytes_max:
                _, dropped = self._replies.popitem(last=False)
                self._reply_bytes -= len(dropped)
        return count

    def forget(self, key: Key) -> None:
        """Forget an answered request that was undone: a copy is carried out."""
        self._answered.pop(key, None)
        self._reply_bytes -= len(self._replies.pop(key, b""))

    def reply(self, key: Key) -> bytes | None:
        """Return the reply to an answered request; `None` if it was too large to be kept."""
        return self._replies.get(key)
