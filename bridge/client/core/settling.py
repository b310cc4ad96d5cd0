"""Settlement of a client's messages: acks, returns, moves (publish, confirm, ack)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from bridge.client.core.answers import Told
from bridge.client.core.channels import Channels
from bridge.client.core.fetching import Fetching
from bridge.client.core.holding import Copy, Held
from bridge.client.core.locktable import LOCK_LOST, LockTable
from bridge.client.core.place import QueuePlace
from bridge.client.core.publisher import Publisher, is_refused
from bridge.client.core.settlements import Record
from bridge.client.core.wire import Answer, Wire, fail, succeed
from bridge.client.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusError,
)
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.deduplicator import Deduplicator, Left
from bridge.machine.fate import Fate
from bridge.message import moves
from bridge.message.fate import death_of
from bridge.message.moves import Move

RETRY_S = 1.0
"""Wait after a refused publish (an alarm, or a leader election); the message stays held."""


class Settling:
    """Settles the held messages of one queue.

    Args:
        credit: the strategy of fetching; it is told of returns.
        turn_soon: called when the strategy may fetch again.
        record: gets the numbers of messages that have left.
    """

    def __init__(
        self,
        place: QueuePlace,
        *,
        wire: Wire,
        publisher: Publisher,
        channels: Channels,
        credit: Any,
        fetching: Fetching,
        deduplicator: Deduplicator[Copy],
        turn_soon: Callable[[], None],
        record: Record,
    ) -> None:
        self._place = place
        self._wire = wire
        self._publisher = publisher
        self._channels = channels
        self._credit = credit
        self._fetching = fetching
        self._deduplicator = deduplicator
        self._turn_soon = turn_soon
        self._record = record

    def settle(self, held: Held) -> None:
        """Ack a message."""
        self._leave(held, Left.SETTLED)

    def give_back(self, held: Held) -> None:
        """Return a message to the queue, counted."""
        self._credit.returning()
        self._turn_soon()
        self.requeue(held, is_counted=True)

    def requeue(self, held: Held, *, is_counted: bool) -> None:
        """Return a message to the queue, and its waiting copies."""
        if held.channel.is_closed:
            return
        self._deduplicator.let_go(held)
        self._send_back(held, is_counted=is_counted)
        if is_counted and not self._place.is_dead_letter:
            self._record.failed(held.number, held.failures + 1)
        for copy in self._deduplicator.take_free(held):
            self._send_back(copy, is_counted=is_counted)

    def drop(self, copy: Copy) -> None:
        """Ack a second copy."""
        if not copy.channel.is_closed:
            self._before_settling(copy.fetch)
            copy.channel.ack(copy.tag)
            self._channels.let_go(copy.channel)

    def end(self, held: Held, fate: Fate) -> None:
        """Complete or dead-letter a message that no receiver may have."""
        death = death_of(fate, self._place.queue)
        if death is None:
            self.settle(held)
            return
        dead = moves.dead_letter(self._place, held, *death, {}, held.failures)
        self.surely(held, dead, Left.DEAD_LETTERED)

    def refuse(self, held: Held, error: Exception) -> None:
        """Dead-letter a message that cannot be handled."""
        description = f"The message cannot be handled: {type(error).__name__}: {error}"
        publishes = moves.refuse(self._place, held, MALFORMED_MESSAGE, description)
        self.surely(held, publishes, Left.MOVED)

    def move(
        self, locks: LockTable, token: UUID, make: Callable[[Held], Move], how: Left,
        answer: Answer,
    ) -> None:  # fmt: skip
        """Publish a locked message, and ack it after the confirm.

        If the target queue refuses it, its lock stays, and peeks are told that it is where it was.

        After an unknown outcome the message may be in both places, so it is published again until
        it has left this one.

        Raises:
            MessageLockLostError, MessageSizeExceededError, ServiceBusError: nothing was published.
        """
        lock = locks.release(token)
        held = lock.held

        def confirmed(errors: list[Exception | None]) -> None:
            refusal = errors[0]
            if held.channel.is_closed:
                fail(answer, MessageLockLostError(LOCK_LOST))
            elif not any(errors):
                self._leave(held, how)
                succeed(answer)
            elif refusal is None or not is_refused(refusal):
                self.surely(held, publishes, how, answer)
            elif all(each is not None and is_refused(each) for each in errors):
                stay(refusal)
            else:
                entry = (moves.stayed(self._place, held),)
                self._until_stored(held, entry, partial(stay, refusal))

        def stay(refusal: Exception) -> None:
            if held.channel.is_closed:
                fail(answer, MessageLockLostError(LOCK_LOST))
                return
            locks.restore(token, lock)
            fail(answer, ServiceBusError(f"The message stays locked: {refusal}"))

        try:
            publishes = make(held)
            if len(publishes[0].properties) > moves.PROPERTIES_BYTES_MAX:
                raise MessageSizeExceededError("The message's properties would be too large.")
            self._publisher.publish_each(publishes, confirmed)
        except Exception:
            locks.restore(token, lock)
            raise

    def surely(self, held: Held, publishes: Move, how: Left, answer: Answer | None = None) -> None:
        """Move a message; retry until that is done or RabbitMQ has taken the message back."""
        told = Told() if answer is None else answer

        def done() -> None:
            if held.channel.is_closed:
                fail(told, MessageLockLostError(LOCK_LOST))
                return
            self._leave(held, how)
            succeed(told)

        self._until_stored(held, moves.fitting(publishes), done)

    def _until_stored(self, held: Held, publishes: Move, done: Callable[[], None]) -> None:
        """Publish until all is stored, or RabbitMQ has taken the message back; then call `done`."""

        def confirmed(error: Exception | None) -> None:
            if error is None or held.channel.is_closed:
                done()
            else:
                self._wire.later(RETRY_S, attempt)

        def attempt() -> None:
            if held.channel.is_closed:
                done()
                return
            try:
                self._publisher.publish_all(publishes, confirmed)
            except ServiceBusError:
                self._wire.later(RETRY_S, attempt)

        attempt()

    def _leave(self, held: Held, how: Left) -> None:
        self._before_settling(held.fetch)
        held.channel.ack(held.tag)
        self._channels.let_go(held.channel)
        self._record.left(held.number)
        for copy in self._deduplicator.leave(held, how):
            self.drop(copy)
        for copy in self._deduplicator.take_free(held):
            self._send_back(copy, is_counted=False)

    def _send_back(self, held: Held | Copy, *, is_counted: bool) -> None:
        if held.channel.is_closed:
            return
        self._before_settling(held.fetch)
        (held.channel.reject if is_counted else held.channel.nack)(held.tag)
        self._channels.returned(held.channel)
        self._channels.let_go(held.channel)

    def _before_settling(self, fetch: int) -> None:
        """Close a window before an ack or return that would make RabbitMQ refill it in vain."""
        close = self._credit.settling(fetch, self._wire.now_s())
        if close is not None:
            self._fetching.end(close.fetch)
        self._turn_soon()
