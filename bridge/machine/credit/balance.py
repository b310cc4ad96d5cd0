"""The balance of one queue: what receivers ask for, what is being fetched, and what waits here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic

from bridge.machine.credit.buffer import LocalBuffer, Message
from bridge.machine.credit.effects import Close, Deliver, Effect
from bridge.machine.credit.waiters import Waiters


class State(Enum):
    """What has become of a fetch."""

    GETTING = "getting"
    LOOKING = "looking"
    OPEN = "open"
    CLOSING = "closing"


@dataclass(slots=True)
class Fetch:
    """A window, a get or a look.

    Attributes:
        state: what has become of it.
        size: messages that it was begun for.
        room: messages that it may still bring without RabbitMQ being told anything more.
        is_behind: what it brings stood in the queue behind something that goes back.
    """

    state: State
    size: int
    room: int
    is_behind: bool = False


class Balance(Generic[Message]):
    """What is asked for on one side; what is under way, or here, on the other.

    Attributes:
        waiters: the receivers that wait.
        buffer: what came for nobody, or was released.
        fetches: the fetches that have not ended, oldest first.
        under_way: messages that RabbitMQ may still hand over without being told anything more.
        closing: those of them that windows may bring which are being closed.
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
        """How much more is under way, or here, than is asked for; below 0 when it is less."""
        return self.under_way + self.buffer.count - self.waiters.asked

    def begin(self, state: State, size: int) -> int:
        """Begin a fetch of so many messages; return its number."""
        self._last_fetch += 1
        self.fetches[self._last_fetch] = Fetch(state, size, size)
        self.under_way += size
        return self._last_fetch

    def came(self, fetch: int) -> None:
        """A fetch has brought a message."""
        self.is_stocked = True
        entry = self.fetches.get(fetch)
        if entry is not None and entry.room:
            self._shrink(entry)
            if entry.state is State.GETTING:
                self.end(fetch)

    def take(self, message: Message, now_s: float) -> int | None:
        """Return the receiver of a message that came; `None`: it is in the buffer now."""
        if not self.buffer.count:
            receiver = self.waiters.take(with_withdrawn=True)
            if receiver is not None:
                return receiver
        self.buffer.push(message, now_s)
        return None

    def offer(self) -> list[Effect[Message]]:
        """Return what gives buffered messages to those who wait."""
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
        """A message of an open window is about to be settled: RabbitMQ sends one more."""
        entry.room += 1
        self.under_way += 1

    def unfill(self, fetch: int) -> None:
        """It was not settled after all."""
        entry = self.fetches.get(fetch)
        if entry is not None and entry.state is State.OPEN and entry.room:
            self._shrink(entry)

    def close(self, fetch: int) -> Close:
        """Return what closes an open window; until `end` it may bring what it has room for."""
        entry = self.fetches[fetch]
        entry.state = State.CLOSING
        self.closing += entry.room
        if entry.room:
            self.is_stocked = False
        return Close(fetch)

    def close_all(self) -> list[Close]:
        """Return what closes all open windows."""
        return [
            self.close(fetch) for fetch, entry in self.fetches.items() if entry.state is State.OPEN
        ]

    def end(self, fetch: int) -> None:
        """A fetch brings nothing more."""
        entry = self.fetches.pop(fetch, None)
        if entry is not None:
            self.under_way -= entry.room
            if entry.state is State.CLOSING:
                self.closing -= entry.room

    def lose(self) -> list[Message]:
        """All fetches have ended; return what was buffered."""
        for fetch in list(self.fetches):
            self.end(fetch)
        return self.buffer.pop_all()

    def _shrink(self, entry: Fetch) -> None:
        entry.room -= 1
        self.under_way -= 1
        if entry.state is State.CLOSING:
            self.closing -= 1
