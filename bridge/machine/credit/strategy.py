"""The interface of receiving from RabbitMQ: one strategy for each kind of RabbitMQ."""

from __future__ import annotations

from typing import Generic

from bridge.machine.credit.balance import Balance, FetchState
from bridge.machine.credit.buffer import Message
from bridge.machine.credit.effects import Close, Effect, Look
from bridge.machine.credit.read_ahead import FAST_ROUNDS, ReadAhead


def says_empty(ready: int, consumers: int) -> bool:
    """Return whether a queue's counts say that no message is ready, at a client with a window.

    Zeros are no answer (docs/rabbitmq-faults.md: empty-when-dead): a window is a consumer.
    """
    return not ready and consumers > 0


class Strategy(Generic[Message]):
    """The decisions about fetches for one queue's receivers.

    The engine reports events, then calls `plan` and carries out the effects.

    Args:
        fast_rounds: fast requests in a row after which more may be fetched than the demand.

    Attributes:
        balance: the demand, the fetches and the buffered messages.
        due_s: the time when `plan` is due if no event comes before; `None` for never.
        is_last: the queue is being closed: what is to be returned is returned at once.
    """

    def __init__(self, fast_rounds: int = FAST_ROUNDS) -> None:
        self.balance: Balance[Message] = Balance()
        self._read_ahead = ReadAhead(fast_rounds)
        self.due_s: float | None = None
        self.is_last = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.balance!r}, {self._read_ahead!r})"

    @property
    def buffered(self) -> int:
        """Messages that wait here for a receiver, or for their return."""
        return self.balance.buffer.count

    def limit(self, max_delivery_count: int) -> None:
        """Set how many failed deliveries dead-letter a message; ignored where none is counted."""

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """Ask for `count` more messages for a receiver."""
        raise NotImplementedError

    def withdraw(self, receiver: int) -> int:
        """Withdraw all requests of a receiver; return the ticket that `Withdrawn` will carry.

        Until `Withdrawn` the receiver may still be given messages that are on their way.
        """
        self._read_ahead.end()
        return self.balance.waiters.withdraw(receiver)

    def arrived(self, fetch: int, message: Message, now_s: float) -> int | None:
        """Take a fetched message; return the receiver to deliver the message to.

        `None`: the message is kept here, and `plan` decides about it.
        """
        raise NotImplementedError

    def discarded(self, fetch: int) -> None:
        """Count a message that a fetch brought for no receiver."""
        self.balance.came(fetch)

    def released(self, message: Message, now_s: float) -> None:
        """Take back a message that a receiver has given back untouched."""
        raise NotImplementedError

    def returning(self, message: Message) -> None:
        """Note that a message returns to the queue now, before the messages read ahead."""
        self._read_ahead.end()

    def empty(self, fetch: int) -> None:
        """End a get that has found no message."""
        self.balance.is_stocked = False
        self.balance.end(fetch)

    def counted(self, ready: int) -> None:
        """Take the count of ready messages that RabbitMQ sent with a got message."""
        self.balance.is_stocked = ready > 0

    def look(self) -> Look:
        """Return the effect that asks RabbitMQ for the queue's counts, beside the fetches."""
        return Look(self.balance.begin(FetchState.LOOKING, 0))

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """Take RabbitMQ's counts of ready messages and of consumers."""
        raise NotImplementedError

    def may_bring(self, fetch: int) -> bool:
        """Whether more messages of a window may come, or could until it was closed."""
        entry = self.balance.fetches.get(fetch)
        return entry is not None and entry.room > 0

    def closed(self, fetch: int) -> None:
        """End a window that RabbitMQ has closed, whether told to or not."""
        self.balance.end(fetch)

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """Note that a message of this fetch is about to be acked, rejected or returned.

        Returns:
            The effect that must come first, lest RabbitMQ send an unwanted message. If the message
            is not settled after all, report `stayed`.
        """
        raise NotImplementedError

    def is_filling(self, fetch: int) -> bool:
        """Whether an ack of this fetch's message would bring more than receivers ask for.

        The ack may wait until the window is full, and is closed with nothing on its way.
        """
        return False

    def is_open(self, fetch: int) -> bool:
        """Whether a fetch is a window that was not told to close."""
        entry = self.balance.fetches.get(fetch)
        return entry is not None and entry.state is FetchState.OPEN

    def close(self, fetch: int) -> Close | None:
        """Return the effect that closes a window, if open; remaining demand is fetched anew."""
        entry = self.balance.fetches.get(fetch)
        if entry is None or entry.state is not FetchState.OPEN:
            return None
        return self.balance.close(fetch)

    def stayed(self, fetch: int) -> None:
        """Take back a `settling`: the message was not settled, and its window is not refilled."""
        self.balance.unfill(fetch)

    def lost(self) -> None:
        """Forget the channels and their messages; receivers still wait."""
        self.due_s = None
        self.balance.lose()

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return the effects that bring the fetches in line with the receivers' demand."""
        raise NotImplementedError
