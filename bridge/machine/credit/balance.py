"""The balance of one queue: messages that receivers ask for, fetches, and buffered messages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic

from bridge.machine.credit.buffer import LocalBuffer, Message
from bridge.machine.credit.effects import Close, Deliver, Effect
from bridge.machine.credit.waiters import Waiters


class FetchState(Enum):
    """The state of a fetch."""

    GETTING = "getting"
    LOOKING = "looking"
    OPEN = "open"
    CLOSING = "closing"


@dataclass(slots=True)
class Fetch:
    """A fetch: a window, a get or a look.

    Attributes:
        state: the state of the fetch.
        size: messages that the fetch was begun for.
        room: messages that the fetch may still bring without another command to RabbitMQ.
        is_behind: its messages stood in the queue behind a message that is returned.
    """

    state: FetchState
    size: int
    room: int
    is_behind: bool = False


class Balance(Generic[Message]):
    """The receivers' demand on one side; messages under way and buffered messages on the other.

    Attributes:
        waiters: the receivers that wait.
        buffer: messages that came for no receiver, or were released.
        fetches: the fetches that have not ended, oldest first.
        under_way: messages that RabbitMQ may still hand over without another command.
        closing: messages under way that closing windows may bring.
        is_stocked: whether the queue seems to have messages.
    """

    def __init__(self) -> None:
        self.waiters = Waiters()
        self.buffer: LocalBuffer[Message] = LocalBuffer()
        self.fetches: dict[int, Fetch] = {}
        self.under_way = 0
        self.closing = 0
        self.is_stocked = True
        self._last_fetch = 0

    def __repr__(self) -> str:
        return (
            f"Balance(asked={self.waiters.asked}, under_way={self.under_way}, "
            f"buffered={self.buffer.count})"
        )

    @property
    def surplus(self) -> int:
        """Messages under way or buffered beyond the demand; below 0 when fewer than the demand."""
        return self.under_way + self.buffer.count - self.waiters.asked

    def begin(self, state: FetchState, size: int, *, is_behind: bool = False) -> int:
        """Begin a fetch of `size` messages; return the fetch's number."""
        self._last_fetch += 1
        self.fetches[self._last_fetch] = Fetch(state, size, size, is_behind)
        self.under_way += size
        return self._last_fetch

    def is_another_filling(self, fetch: int) -> bool:
        """Whether another window than this may bring messages."""
        return any(
            entry.room and entry.state is not FetchState.GETTING
            for other, entry in self.fetches.items()
            if other != fetch
        )

    def came(self, fetch: int) -> None:
        """Count a message that a fetch has brought."""
        self.is_stocked = True
        entry = self.fetches.get(fetch)
        if entry is not None and entry.room:
            self._shrink(entry)
            if entry.state is FetchState.GETTING:
                self.end(fetch)

    def take(self, message: Message, now_s: float) -> int | None:
        """Return the receiver of a message that came; `None`: the message is in the buffer now."""
        waiters = self.waiters
        if not self.buffer.count and (waiters.asked or waiters.has_withdrawals):
            receiver = waiters.take(with_withdrawn=True)
            if receiver is not None:
                return receiver
        self.buffer.push(message, now_s)
        return None

    def offer(self) -> list[Effect[Message]]:
        """Return the effects that give buffered messages to waiting receivers."""
        effects: list[Effect[Message]] = []
        if not self.waiters.asked:
            return effects
        while self.buffer.count:
            receiver = self.waiters.take(with_withdrawn=False)
            if receiver is None:
                break
            effects.append(Deliver(receiver, self.buffer.pop()))
        return effects

    def refill(self, entry: Fetch) -> None:
        """Count one more message under way: a message of an open window is about to be settled."""
        entry.room += 1
        self.under_way += 1

    def unfill(self, fetch: int) -> None:
        """Take back a `refill`: the message was not settled."""
        entry = self.fetches.get(fetch)
        if entry is not None and entry.state is FetchState.OPEN and entry.room:
            self._shrink(entry)

    def close(self, fetch: int) -> Close:
        """Return the effect that closes an open window; until `end` its room may be filled."""
        entry = self.fetches[fetch]
        entry.state = FetchState.CLOSING
        self.closing += entry.room
        if entry.room:
            self.is_stocked = False
        return Close(fetch)

    def end(self, fetch: int) -> None:
        """End a fetch: no more messages come of it."""
        entry = self.fetches.pop(fetch, None)
        if entry is not None:
            self.under_way -= entry.room
            if entry.state is FetchState.CLOSING:
                self.closing -= entry.room

    def lose(self) -> list[Message]:
        """End all fetches; return the buffered messages."""
        for fetch in list(self.fetches):
            self.end(fetch)
        return self.buffer.pop_all()

    def _shrink(self, entry: Fetch) -> None:
        entry.room -= 1
        self.under_way -= 1
        if entry.state is FetchState.CLOSING:
            self.closing -= 1
