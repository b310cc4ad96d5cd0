"""How messages are received from RabbitMQ: one strategy for each kind of RabbitMQ."""

from __future__ import annotations

from typing import Generic

from bridge.machine.credit.balance import Balance
from bridge.machine.credit.buffer import Message
from bridge.machine.credit.effects import Close, Effect
from bridge.machine.credit.read_ahead import FAST_ROUNDS, ReadAhead


class Strategy(Generic[Message]):
    """What one queue's receivers ask for, and what is fetched for it.

    The engine reports what happened, then calls `plan` and does what it says.

    Args:
        fast_rounds: so many fast requests in a row let more come ahead than is asked for.

    Attributes:
        balance: what is asked for, being fetched and buffered.
    """

    def __init__(self, fast_rounds: int = FAST_ROUNDS) -> None:
        self.balance: Balance[Message] = Balance()
        self._read_ahead = ReadAhead(fast_rounds)
        self._surplus_since_s = -1.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.balance!r}, {self._read_ahead!r})"

    @property
    def buffered(self) -> int:
        """Messages that wait here for a receiver, or to be returned."""
        return self.balance.buffer.count

    def limit(self, max_delivery_count: int) -> None:
        """So many failed deliveries dead-letter a message; no matter where none is counted."""

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """A receiver wants `count` more messages."""
        raise NotImplementedError

    def withdraw(self, receiver: int) -> int:
        """A receiver takes back all it asked for; return the ticket that `Withdrawn` will carry.

        Until then it may still be given what is on its way.
        """
        self._read_ahead.end()
        return self.balance.waiters.withdraw(receiver)

    def arrived(self, fetch: int, message: Message, now_s: float) -> int | None:
        """A fetch has brought a message; return the receiver that gets it now.

        `None`: it is kept here, and `plan` says what becomes of it.
        """
        raise NotImplementedError

    def discarded(self, fetch: int) -> None:
        """A fetch has brought a message that is for no receiver."""
        self.balance.came(fetch)

    def released(self, message: Message, now_s: float) -> None:
        """A receiver has given a message back that it did not touch."""
        raise NotImplementedError

    def returning(self) -> None:
        """A message is about to go back to its queue, where it stands before what came ahead."""
        self._read_ahead.end()

    def empty(self, fetch: int) -> None:
        """A get has found nothing."""
        self.balance.is_stocked = False
        self.balance.end(fetch)

    def counted(self, ready: int) -> None:
        """RabbitMQ has said with a message that was got how many more are ready."""
        self.balance.is_stocked = ready > 0

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """RabbitMQ has said how many messages are ready, and how many consumers there are."""
        raise NotImplementedError

    def closed(self, fetch: int) -> None:
        """RabbitMQ has closed a window, whether it was told to or not."""
        self.balance.end(fetch)

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """A message of this fetch is about to be acked, rejected or returned.

        Returns:
            What must be done first, so that RabbitMQ sends nothing that nobody wants. If the
            message is not settled after all, report `stayed`.
        """
        raise NotImplementedError

    def stayed(self, fetch: int) -> None:
        """A message that was about to be settled was not: its window is not refilled."""
        self.balance.unfill(fetch)

    def lost(self) -> None:
        """The channels are gone, and all that came on them; receivers still wait."""
        self._surplus_since_s = -1.0
        self.balance.lose()

    def due_s(self) -> float | None:
        """Return when `plan` has something to do if nothing else happens; `None` for never."""
        raise NotImplementedError

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return what is to be done so that what is fetched agrees with what is asked for."""
        raise NotImplementedError
