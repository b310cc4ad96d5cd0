"""How a message that was not completed leaves its queue: hand-over to another queue, then ack.

`message.moves` makes the publishes; this module hands them over, and says when that is done:

send_back, refuse, strand, end, finish,            repeated until done
expire_lock, refresh
dead_letter, again, defer                          by a client: one attempt; an error is the answer
                                                   (repeated, when a transaction has decided it)
drop                                               a second copy: an ack, no publish

If a client's hand-over is refused, the message stays, and peeks are told so. If the outcome is
unknown, the message may be in both places, so it is handed over until it is moved. The copies have
one number, and the second is dropped. A message that RabbitMQ has taken back meanwhile may be in
both places, as after a crash. So whoever gives a queue's messages back in order waits until none is
on its way out of it (`under_way`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Protocol

from bridge.machine.inbox.publication import Publication
from bridge.machine.queue.fate import Fate
from bridge.machine.queue.second_copies import Left
from bridge.message import moves
from bridge.message.end_rules import MessagePlace, death_of, fate_of_failed
from bridge.message.held import Held, HeldCopy
from bridge.message.message import DELIVERY_COUNT_EXCEEDED
from bridge.message.moves import Move
from bridge.wire.basic import Table

RETRY_S = 1.0
"""The time between two attempts, while RabbitMQ has an alarm or elects a leader."""

Message = Held[Any]

Told = Callable[[Exception | None], None]
"""Called once: with `None` when a message has left its queue, else with the error."""


class Outcome(Enum):
    """The outcome of a hand-over."""

    MOVED = "everything is stored, and the message is acked"
    HERE = "nothing is stored"
    SHOWN = "the target queue does not have the message, but the stream for peeks may have it"
    UNKNOWN = "the target queue may have the message"
    ACK_LOST = "everything is stored, and RabbitMQ has taken the message back"


Ended = Callable[[Outcome, Exception | None], None]
"""Called once with the outcome of a hand-over, and with its error unless the message is moved."""


class MoveSource(MessagePlace, Protocol):
    """The queue that a message leaves."""

    @property
    def is_deferred(self) -> bool:
        """Whether its messages are deferred: a receiver gets them by their numbers only."""

    def putting_back(self, held: Any, generation: int) -> None:
        """Note that a message is about to be published into its queue again."""

    def left(self, held: Any, how: Left) -> None:
        """Note that a message is no more in this queue."""


class HandOver(Protocol):
    """Hands messages over: publishes on other channels than theirs, then acks.

    Attributes:
        passing: the errors that an attempt may raise, after which another may succeed.
    """

    passing: tuple[type[Exception], ...]

    def begin(
        self, source: MessagePlace, held: Message, publishes: Move, point: str, ended: Ended
    ) -> None:
        """Publish, and ack the message when everything is confirmed.

        Args:
            point: the failpoints' site.
            ended: called once, perhaps before this returns; never when this raises.

        Raises:
            Exception: nothing was published; `ended` is not called.
        """

    def show(self, entry: Publication, told: Told) -> None:
        """Publish for peeks that a message whose move was refused is where it was."""

    def ack(self, held: Message | HeldCopy[Any], point: str) -> None:
        """Ack a message that is not handed over; `point` is the failpoint behind the ack."""

    def later(self, wait_s: float, call: Callable[[], None]) -> object:
        """Call a function later."""

    def too_large(self, path: str, size_bytes: int) -> Exception:
        """Return the error for properties above `moves.PROPERTIES_BYTES_MAX`."""


class MoveCounts(Protocol):
    """Totals."""

    sent_back: int
    expired: int
    second_copies: int


class Departure:
    """Moves messages out of their queues."""

    def __init__(self, hand_over: HandOver, counts: MoveCounts, now_ms: Callable[[], int]) -> None:
        self._hand_over = hand_over
        self._counts = counts
        self._now_ms = now_ms
        self._under_way: dict[MoveSource, int] = {}

    def under_way(self, source: MoveSource) -> int:
        """Return how many messages are on their way out of a queue: published, perhaps, not acked.

        Their new place may have them, although their queue has them, too.
        """
        return self._under_way.get(source, 0)

    @property
    def is_idle(self) -> bool:
        """Whether no message is on its way out of any queue."""
        return not self._under_way

    def begun(self, source: MoveSource, told: Told | None = None) -> Told:
        """Count a message as on its way until the returned function is called, which calls `told`.

        For a move that something has to precede; those of this class count themselves.
        """
        self._under_way[source] = self._under_way.get(source, 0) + 1

        def ended(error: Exception | None) -> None:
            self._under_way[source] -= 1
            if not self._under_way[source]:
                del self._under_way[source]
            if told is not None:
                told(error)

        return ended

    def send_back(self, source: MoveSource, held: Message) -> None:
        """Send a message that was published past the front exchange back to be numbered."""
        move = moves.send_back(source, held)
        self._counts.sent_back += 1
        self._surely(source, held, move, "engine.send_back")

    def refuse(self, source: MoveSource, held: Message, reason: str, description: str) -> None:
        """Make a message that cannot be handled, or is in the wrong queue, a dead letter."""
        move = moves.refuse(source, held, reason, description)
        self._counts.sent_back += 1
        self._surely(source, held, move, "engine.send_back")

    def note_second_copy(self) -> None:
        """Count a second copy that was dropped."""
        self._counts.second_copies += 1

    def drop(self, copy: HeldCopy[Any]) -> None:
        """Ack a second copy."""
        self.note_second_copy()
        self._hand_over.ack(copy, "engine.drop.acked")

    def finish(self, source: MoveSource, held: Message, fate: Fate, *, failed: int = 0) -> None:
        """End a message that has expired, or has failed too often: a dead letter, or an ack.

        Args:
            failed: the failed deliveries that a message which failed too often does not count yet.
        """
        has_expired = fate is Fate.EXPIRED
        self._counts.expired += has_expired
        death = death_of(fate, source.queue)
        if death is None:
            self._hand_over.ack(held, "engine.expire.acked")
            source.left(held, Left.SETTLED)
            return
        dead = _dead(source, held, *death, failed=0 if has_expired else failed)
        point = "engine.expire" if has_expired else "engine.delivery_count_exceeded"
        self._surely(source, held, dead, point, Left.DEAD_LETTERED)

    def strand(self, source: MoveSource, held: Message, reason: str, description: str) -> None:
        """Dead-letter a message that cannot be forwarded."""
        dead = _dead(source, held, reason, description)
        self._surely(source, held, dead, "engine.dead_letter", Left.DEAD_LETTERED)

    def end(self, source: MoveSource, held: Message, reason: str, description: str) -> None:
        """Dead-letter a message that its entity does not allow."""
        dead = _dead(source, held, reason, description)
        self._surely(source, held, dead, "engine.dead_letter")

    def dead_letter(
        self,
        source: MoveSource,
        held: Message,
        reason: str | None,
        description: str | None,
        changes: Table,
        told: Told,
        *,
        is_decided: bool = False,
    ) -> None:
        """Move a message to the dead-letter queue; it is published at the call.

        `told` gets an error when the message was not moved: it is still held, or RabbitMQ has taken
        it back.

        Args:
            is_decided: a transaction has decided it: it is moved until RabbitMQ has taken it back.

        Raises:
            Exception: its properties would be too large for RabbitMQ, or RabbitMQ takes no
                messages now.
        """
        dead = _dead(source, held, reason, description, changes)
        move = self._moved if is_decided else self._move
        move(source, held, dead, "engine.dead_letter", Left.DEAD_LETTERED, told)

    def again(
        self,
        source: MoveSource,
        held: Message,
        changes: Table,
        told: Told,
        *,
        is_decided: bool = False,
    ) -> None:
        """Put a message back with changed properties, its delivery count raised by 1.

        An expired message, or one that reaches its maximum delivery count, is ended instead. For
        the rest see `dead_letter`.
        """
        move = self._moved if is_decided else self._move
        match fate_of_failed(held, source, self._now_ms()):
            case Fate.EXPIRED if not is_decided:  # else it expires when it comes again
                self.finish(source, held, Fate.EXPIRED)
                told(None)
            case Fate.DELIVERY_COUNT_EXCEEDED:
                dead = _dead(source, held, *DELIVERY_COUNT_EXCEEDED, changes, failed=1)
                move(source, held, dead, "engine.dead_letter", Left.DEAD_LETTERED, told)
            case _:
                generation = moves.next_generation(held)
                publishes = moves.again(source, held, changes, generation, self._now_ms())
                source.putting_back(held, generation)
                move(source, held, publishes, "engine.again", Left.REPLACED, told)

    def defer(self, source: MoveSource, held: Message, changes: Table, told: Told) -> None:
        """Move a message to its entity's deferred messages, its delivery count raised by 1.

        For the rest see `dead_letter`.
        """
        how = Left.REPLACED if source.is_deferred else Left.DEFERRED
        self._move(source, held, moves.defer(source, held, changes), "engine.defer", how, told)

    def expire_lock(self, source: MoveSource, held: Message) -> None:
        """Put back a deferred or session message whose lock has ended, its count raised by 1.

        An expired message, or one that reaches its maximum delivery count, is ended instead.
        """
        match fate_of_failed(held, source, self._now_ms()):
            case Fate.AVAILABLE:
                generation = moves.next_generation(held)
                move = moves.again(source, held, {}, generation, self._now_ms())
                self._surely(source, held, move, "engine.again", Left.REPLACED)
            case fate:
                self.finish(source, held, fate, failed=1)

    def refresh(self, source: MoveSource, held: Message) -> None:
        """Publish an old message again, behind all others of its queue; its count is unchanged."""
        move = moves.again(source, held, {}, held.generation, self._now_ms())
        self._surely(source, held, move, "engine.again", Left.REPLACED)

    def _move(
        self, source: MoveSource, held: Message, publishes: Move, point: str, how: Left, told: Told
    ) -> None:
        """Hand a message over once, or, when the outcome is unknown, until it is moved."""
        size_bytes = len(publishes[0].properties)
        if size_bytes > moves.PROPERTIES_BYTES_MAX:
            raise self._hand_over.too_large(source.queue.path, size_bytes)
        done = self.begun(source)

        def tell(error: Exception | None) -> None:
            done(None)
            told(error)

        def ended(outcome: Outcome, error: Exception | None) -> None:
            match outcome:
                case Outcome.MOVED:
                    source.left(held, how)
                    tell(None)
                case Outcome.UNKNOWN:
                    self._until_moved(source, held, publishes, point, how, tell, error)
                case Outcome.SHOWN:
                    self._show_again(source, held, partial(tell, error))
                case _:
                    tell(error)

        try:
            self._hand_over.begin(source, held, publishes, point, ended)
        except BaseException:
            done(None)
            raise

    def _moved(
        self, source: MoveSource, held: Message, move: Move, point: str, how: Left, told: Told
    ) -> None:
        """See `_surely`; `told` is called at the end."""
        self._until_moved(source, held, move, point, how, self.begun(source, told))

    def _show_again(self, source: MoveSource, held: Message, then: Callable[[], None]) -> None:
        """Tell peeks that a message is where it was, before it can be moved again."""
        entry = moves.stayed(source, held)

        def attempt() -> None:
            if held.channel.is_closed:
                then()
                return
            try:
                self._hand_over.show(entry, ended)
            except self._hand_over.passing as error:
                ended(error)

        def ended(error: Exception | None) -> None:
            if error is None:
                then()
            else:
                self._hand_over.later(RETRY_S, attempt)

        attempt()

    def _surely(
        self,
        source: MoveSource,
        held: Message,
        move: Move,
        point: str,
        how: Left = Left.MOVED,
    ) -> None:
        """Hand a message over; try again until done, or until the message's channel has ended."""
        self._until_moved(source, held, move, point, how, self.begun(source))

    def _until_moved(
        self,
        source: MoveSource,
        held: Message,
        move: Move,
        point: str,
        how: Left,
        tell: Told,
        last: Exception | None = None,
    ) -> None:
        """See `_surely`; `tell` is called at the end.

        Args:
            last: the error of an attempt before.
        """
        publishes = moves.fitting(move)

        def attempt() -> None:
            if held.channel.is_closed:
                tell(last)
                return
            try:
                self._hand_over.begin(source, held, publishes, point, ended)
            except self._hand_over.passing as error:
                ended(Outcome.HERE, error)

        def ended(outcome: Outcome, error: Exception | None) -> None:
            nonlocal last
            last = error
            if outcome is Outcome.MOVED:
                source.left(held, how)
            if outcome is Outcome.MOVED or outcome is Outcome.ACK_LOST:
                tell(error)
            else:
                self._hand_over.later(RETRY_S, attempt)

        attempt()


def _dead(
    source: MoveSource,
    held: Message,
    reason: str | None,
    description: str | None,
    changes: Table | None = None,
    *,
    failed: int = 0,
) -> Move:
    """Return the publishes that dead-letter a message, its count raised by `failed`."""
    failures = held.failures + failed
    return moves.dead_letter(source, held, reason, description, changes or {}, failures)
