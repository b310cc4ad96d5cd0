"""The messages of one queue of RabbitMQ in this process, as a pure machine.

A delivered message is in exactly one place: with its receiver (locked, or to be acked late), kept
for the next receiver, or leaving (sent back to be numbered, ended, moved). A second copy of such a
message waits, and shares its fate; a second copy of a settled message is acked.

Each event leaves effects in `due`, which the caller takes and carries out at once, in order. Two
things that happen for every message need no effect: `arrived` returns the receiver that gets the
message, and a completed message is acked by the caller between `settling` and `left`.

Whatever settles a message (ack, reject, nack) makes RabbitMQ refill the window that brought it, so
the window may have to be closed before: a `Close` stands before such an effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from bridge.machine.credit.effects import Deliver, Return
from bridge.machine.credit.strategy import Strategy, says_empty
from bridge.machine.queue.effects import Ack, Effect, End, Requeue, SendBack
from bridge.machine.queue.fate import Fate, Rules
from bridge.machine.queue.late_acks import LateAcks
from bridge.machine.queue.second_copies import CopyStatus, Identity, Left, SecondCopies
from bridge.machine.queue.settled import SettledNumbers


class HeldFacts(Protocol):
    """A message as this machine sees it; see `message.message.Message`.

    Attributes:
        fetch: the fetch that brought the message.
        redelivered: whether it was delivered before, as far as RabbitMQ knows.
    """

    number: int
    expires_ms: int | None
    time_to_live_ms: int | None
    generation: int
    failures: int
    identity: Identity
    fetch: int
    redelivered: bool

    @property
    def deaths(self) -> int:
        """How often the message was dead-lettered before."""


class CopyFacts(Protocol):
    """A second copy; its content is not kept.

    Attributes:
        fetch: the fetch that brought the copy.
    """

    fetch: int


Message = TypeVar("Message", bound=HeldFacts)
Copy = TypeVar("Copy", bound=CopyFacts)


class QueueMachine(Generic[Message, Copy]):
    """The receivers' demand and the held messages of one queue.

    Args:
        credit: the strategy, which decides what to fetch.
        settled: the memory of settled numbers.
        rules: what ends a message.
        copy_of: returns what is kept of a second copy.

    Attributes:
        credit: the strategy.
        copies: the held and settled messages, by which second copies are recognized.
        late: the received-and-deleted messages that are not acked yet.
        due: the effects to be carried out, oldest first.
    """

    def __init__(
        self,
        credit: Strategy[Message],
        settled: SettledNumbers,
        rules: Rules,
        copy_of: Callable[[Message], Copy],
    ) -> None:
        self.credit = credit
        self.copies: SecondCopies[Copy] = SecondCopies(settled)
        self.due: list[Effect] = []
        self._copy_of = copy_of
        self._now_s = 0.0
        self.late: LateAcks[Message] = LateAcks(credit)
        self.follow(rules)

    def __repr__(self) -> str:
        return f"QueueMachine({self.credit!r}, {self.copies!r})"

    def __len__(self) -> int:
        """Return the number of messages that RabbitMQ has delivered and that are not settled."""
        return len(self.copies)

    def take(self) -> list[Effect]:
        """Take out the effects that are due."""
        due, self.due = self.due, []
        return due

    def follow(self, rules: Rules) -> None:
        """Take over changed rules."""
        self.rules = rules
        self.credit.limit(rules.waiting_max)

    # Receivers.

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """Ask for `count` more messages for a receiver."""
        self.credit.ask(receiver, count, now_s)

    def withdraw(self, receiver: int) -> int:
        """Take back a receiver's credit; return the ticket that `Withdrawn` will carry."""
        return self.credit.withdraw(receiver)

    # Deliveries.

    def arrived(self, message: Message, now_s: float, now_ms: int) -> int | None:
        """Take a delivered message; return the receiver that gets it at once.

        `None`: it is kept for a receiver, or effects are due.
        """
        copies = self.copies
        self._now_s = now_s
        status = copies.status_of(message)
        if status is CopyStatus.NEW:
            copies.hold(message)
            fate = self.rules.of_message(message, now_ms)
            if fate is Fate.AVAILABLE:
                return self.credit.arrived(message.fetch, message, now_s)
            self.credit.discarded(message.fetch)
            self._end(message, fate, now_s)
            return None
        self.credit.discarded(message.fetch)
        copy = self._copy_of(message)
        if status is CopyStatus.HELD:
            copies.wait(message, copy)
        else:
            self._drop(copy, now_s)
        return None

    def decided(self, message: Message, now_s: float) -> bool:
        """Take a delivered message that a transaction has settled: no receiver gets it.

        Returns:
            Whether the caller settles it now, as if a receiver had had it. Else it is a second copy
            of a message that is held, or was settled.
        """
        status = self.copies.status_of(message)
        self.credit.discarded(message.fetch)
        self._now_s = now_s
        if status is CopyStatus.NEW:
            self.copies.hold(message)
            return True
        copy = self._copy_of(message)
        if status is CopyStatus.HELD:
            self.copies.wait(message, copy)
        else:
            self._drop(copy, now_s)
        return False

    def strayed(self, message: Message, now_s: float) -> None:
        """Take a delivered message that must get a number first."""
        self.credit.discarded(message.fetch)
        self.settling(message.fetch, now_s)
        self.due.append(SendBack(message))

    def discarded(self, fetch: int) -> None:
        """Take a delivered message that cannot be read; the caller moves it, as others."""
        self.credit.discarded(fetch)

    # Results of fetches.

    def closed(self, fetch: int) -> None:
        """Note that a window has ended, by a `Close` or not; or that a get or look has failed."""
        if fetch == self.late.look:
            self.credit.balance.end(fetch)
            self.late.told(is_empty=False)
        else:
            self.credit.closed(fetch)

    def empty(self, fetch: int) -> None:
        """Note that a get has found no message."""
        self.credit.empty(fetch)

    def counted(self, ready: int) -> None:
        """Take the count of ready messages that came with a got message."""
        self.credit.counted(ready)

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """Take the counts of a look; without a ready message, all on its way has come since."""
        if fetch == self.late.look:
            self.credit.balance.end(fetch)
            self.late.told(is_empty=says_empty(ready, consumers))
        else:
            self.credit.looked(fetch, ready, consumers)

    # Settlement.

    def settling(self, fetch: int, now_s: float) -> None:
        """Note that a message of this fetch is about to be settled, or handed over and then acked.

        A `Close` may be due before.
        """
        self._now_s = now_s
        close = self.credit.settling(fetch, now_s)
        if close is not None:
            self.due.append(close)

    def stayed(self, message: Message, *, is_held: bool = True) -> None:
        """Undo `settling` and `putting_back` after a failed hand-over.

        Args:
            is_held: RabbitMQ has not taken the message back.
        """
        self.copies.expect_no_more(message)
        if is_held:
            self.credit.stayed(message.fetch)

    def putting_back(self, message: Message, generation: int) -> None:
        """Note that a message is about to be published into its queue again."""
        self.copies.expect(message, generation)

    def left(self, message: Message, how: Left) -> None:
        """Note that a message has left the queue; its second copies are acked, too.

        What has waited for it and is no copy after all, but has come back, is given back.
        """
        for copy in self.copies.leave(message, how):
            self._drop(copy, self._now_s)
        for copy in self.copies.take_free(message):
            self._send_back(copy, copy.fetch, self._now_s, is_counted=False)

    def delete(self, message: Message, now_s: float) -> None:
        """Settle a received-and-deleted message; it is acked when that fetches no unwanted one."""
        self.late.add(message, now_s)
        self.left(message, Left.SETTLED)

    def give_back(self, message: Message, now_s: float) -> None:
        """Return a message to the queue, counted as a failed delivery."""
        self.credit.returning(message)
        self._requeue(message, now_s, is_counted=True)

    def release(self, message: Message, now_s: float, now_ms: int) -> None:
        """Make a message available again, uncounted; an expired one leaves the queue at once."""
        fate = self.rules.of_message(message, now_ms)
        if fate is Fate.AVAILABLE:
            self.credit.released(message, now_s)
        else:
            self._end(message, fate, now_s)

    def put_down(self, message: Message, now_s: float) -> None:
        """Offer a message to the next receiver, whatever its fate; without one it returns."""
        self.credit.released(message, now_s)

    # Time, and the end of channels and entities.

    def due_s(self) -> float | None:
        """Return when `plan` is due if no event comes before; `None` for never."""
        due_s, late_s = self.credit.due_s, self.late.due_s
        if due_s is None or late_s is None:
            return late_s if due_s is None else due_s
        return min(due_s, late_s)

    def plan(
        self, now_s: float, now_ms: int, *, can_fetch: bool = True, is_last: bool = False
    ) -> None:
        """Bring fetches in line with credit.

        What ends messages, and then what gives them to receivers, are the last effects: what the
        caller hears meanwhile is settled behind all others.

        Args:
            now_ms: it matters only while messages are kept for a receiver.
            can_fetch: whether a fetch may begin.
            is_last: the queue is being closed: all late acks are due.
        """
        self.credit.is_last = is_last
        if self.late.due_s is not None:
            self.due += self.late.act(now_s, is_last=is_last)
        ends: list[Effect] = []
        given: list[Effect] = []
        for effect in self.credit.plan(now_s, can_fetch=can_fetch):
            if isinstance(effect, Deliver):
                message: Message = effect.message
                fate = self.rules.of_message(message, now_ms)
                if fate is Fate.AVAILABLE:
                    given.append(effect)
                else:
                    self.credit.balance.waiters.restore(effect.receiver)
                    self.settling(message.fetch, now_s)
                    ends.append(End(message, fate))
            elif isinstance(effect, Return):
                self._requeue(effect.message, now_s, is_counted=False)
            else:
                self.due.append(effect)
        self.due += ends
        self.due += given

    def lose(self) -> None:
        """Forget all held messages, which RabbitMQ has taken back; receivers keep their credit."""
        self.due.clear()
        self.credit.lost()
        self.late.clear()
        self.copies.lose()

    def forget(self) -> None:
        """Forget settled messages: the entity was created again, and counts from 1."""
        self.copies.forget()

    def close(self) -> None:
        """Free the memory of settled messages: no more messages come."""
        self.copies.close()

    def _end(self, message: Message, fate: Fate, now_s: float) -> None:
        self.settling(message.fetch, now_s)
        self.due.append(End(message, fate))

    def _drop(self, copy: Copy, now_s: float) -> None:
        self.settling(copy.fetch, now_s)
        self.due.append(Ack(copy, True))

    def _requeue(self, message: Message, now_s: float, *, is_counted: bool) -> None:
        self.copies.let_go(message)
        self._send_back(message, message.fetch, now_s, is_counted=is_counted)
        for copy in self.copies.take_free(message):
            self._send_back(copy, copy.fetch, now_s, is_counted=is_counted)

    def _send_back(self, held: object, fetch: int, now_s: float, *, is_counted: bool) -> None:
        self.settling(fetch, now_s)
        self.due.append(Requeue(held, is_counted))
