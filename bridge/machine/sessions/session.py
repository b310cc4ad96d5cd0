"""A session: messages in order, and a receiver."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

from bridge.machine.sessions.entry import COMING, OUT, SessionEntry
from bridge.model.session_id import FoldedId

Message = TypeVar("Message")

NO_PINS: frozenset[Hashable] = frozenset()


class Holder:
    """A receiver that holds a session.

    Attributes:
        receiver: the receiver's key.
        until_ms: the end of the lock (UTC ms).
        credit: the number of messages that the receiver still wants.
    """

    __slots__ = ("credit", "receiver", "until_ms")

    def __init__(self, receiver: Hashable, until_ms: int) -> None:
        self.receiver = receiver
        self.until_ms = until_ms
        self.credit = 0


class Session(Generic[Message]):
    """A session that has messages or a receiver.

    Attributes:
        id: the folded session id, which nobody is shown.
        holder: the receiver that holds the session, or `None`.
        count: the number of the session's messages, in any state.
        out: the messages delivered to the receiver, by object.
        pins: for what transactions keep the session: meanwhile nobody else gets it.
    """

    __slots__ = ("_coming", "_first", "_ready", "count", "holder", "id", "out", "pins")

    def __init__(self, folded: FoldedId, spelling: str) -> None:
        self.id = folded
        self._first = spelling
        self.holder: Holder | None = None
        self.pins = NO_PINS
        self.count = 0
        self.out: dict[int, SessionEntry[Message]] = {}
        self._ready: list[SessionEntry[Message]] = []
        self._coming: list[SessionEntry[Message]] = []

    def __repr__(self) -> str:
        return f"Session({self.id!r}, {self.count} messages)"

    @property
    def is_over(self) -> bool:
        """Whether the session has no messages and no receiver, and no transaction keeps it."""
        return self.count == 0 and self.holder is None and not self.pins

    @property
    def spelling(self) -> str:
        """The session id as the oldest message has it that has not left, else as it was first."""
        oldest = self._ready[0] if self._ready else None
        for each in (self._first_coming(), min(self.out.values()) if self.out else None):
            if each is not None and (oldest is None or each < oldest):
                oldest = each
        return self._first if oldest is None else oldest.session_id

    @property
    def has_ready(self) -> bool:
        """Whether a message waits."""
        return bool(self._ready)

    def ready(self, place: SessionEntry[Message]) -> None:
        """Add a message that waits."""
        heapq.heappush(self._ready, place)

    def coming(self, place: SessionEntry[Message]) -> None:
        """Note a message to come; later messages wait for it."""
        heapq.heappush(self._coming, place)

    def head(self) -> SessionEntry[Message] | None:
        """Return the next message, or `None` while none waits or an earlier message is to come."""
        if not self._ready:
            return None
        coming = self._first_coming()
        first = self._ready[0]
        return first if coming is None or first.number <= coming.number else None

    def _first_coming(self) -> SessionEntry[Message] | None:
        coming = self._coming
        while coming and coming[0].state != COMING:
            heapq.heappop(coming)
        return coming[0] if coming else None

    def pop(self) -> SessionEntry[Message]:
        """Take out the next message."""
        return heapq.heappop(self._ready)

    def take(self, places: list[SessionEntry[Message]]) -> None:
        """Take out messages that wait."""
        taken = {id(place) for place in places}
        self._ready = [place for place in self._ready if id(place) not in taken]
        heapq.heapify(self._ready)

    def delivered(self, place: SessionEntry[Message]) -> None:
        """Note that a message is with the receiver."""
        place.state = OUT
        place.holder = self.holder
        self.out[id(place)] = place

    def take_out(self) -> list[SessionEntry[Message]]:
        """Take the delivered messages from the receiver; return them in order."""
        out = sorted(self.out.values())
        self.out = {}
        return out
