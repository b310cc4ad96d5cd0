"""Settlement of a client's messages: acks, returns, moves (publish, confirm, ack)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from bridge.client.core.answers import Told
from bridge.client.core.channels import Channels
from bridge.client.core.holding import Copy, HeldMessage
from bridge.client.core.locktable import LOCK_LOST, LockTable
from bridge.client.core.place import QueuePlace
from bridge.client.core.publisher import Publisher, is_refused
from bridge.client.core.settlements import Record
from bridge.client.core.wire import Answer, Channel, Wire, fail, succeed
from bridge.client.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusError,
)
from bridge.machine.arrival import MALFORMED_MESSAGE
from bridge.machine.deduplicator import Left
from bridge.machine.queue.effects import Ack, End, Requeue, SendBack
from bridge.machine.queue.queue import QueueMachine
from bridge.message import moves
from bridge.message.fate import death_of
from bridge.message.moves import Move

RETRY_S = 1.0
"""Wait after a refused publish (an alarm, or a leader election); the message stays held."""


class Settling:
    """Settles the held messages of one queue.

    Args:
        machine: the queue's machine, which is told of each settlement.
        carry_out: carries out the machine's effects, and lets it fetch again.
        record: gets the numbers of messages that have left.
    """

    def __init__(
        self,
        place: QueuePlace,
        *,
        wire: Wire,
        publisher: Publisher,
        channels: Channels,
        machine: QueueMachine[HeldMessage, Copy],
        carry_out: Callable[[], None],
        record: Record,
    ) -> None:
        self._place = place
        self._wire = wire
        self._publisher = publisher
        self._channels = channels
        self._machine = machine
        self._carry_out = carry_out
        self._record = record

    def settle(self, held: HeldMessage) -> None:
        """Ack a message."""
        self.departing(held)
        self._leave(held, Left.SETTLED)

    def give_back(self, held: HeldMessage) -> None:
        """Return a message to the queue, counted."""
        if not self._place.is_dead_letter:
            self._record.failed(held.number, held.failures + 1)
        self._machine.give_back(held, self._wire.now_s())
        self._carry_out()

    def departing(self, held: HeldMessage) -> None:
        """Note that a message is about to be settled, or handed over and then acked."""
        self._machine.settling(held.fetch, self._wire.now_s())
        self._carry_out()

    def do(self, effect: Ack | Requeue | End[HeldMessage] | SendBack[HeldMessage]) -> None:
        """Carry out an effect of the machine that settles a message."""
        if isinstance(effect, End):
            self._end(effect)
        elif isinstance(effect, SendBack):
            move = moves.send_back(self._place, effect.message)
            self.surely(effect.message, move, Left.MOVED)
        elif not effect.held.channel.is_closed:
            self._settle(effect)

    def _settle(self, effect: Ack | Requeue) -> None:
        channel: Channel = effect.held.channel
        tag: int = effect.held.tag
        if isinstance(effect, Ack):
            channel.ack(tag)
        else:
            (channel.reject if effect.is_counted else channel.nack)(tag)
            self._channels.returned(channel)
        self._channels.let_go(channel)

    def _end(self, effect: End[HeldMessage]) -> None:
        """Complete or dead-letter a message that no receiver may have."""
        held = effect.message
        death = death_of(effect.fate, self._place.queue)
        if death is None:
            self._leave(held, Left.SETTLED)
            return
        dead = moves.dead_letter(self._place, held, *death, {}, held.failures)
        self.surely(held, dead, Left.DEAD_LETTERED)

    def refuse(self, held: HeldMessage, error: Exception) -> None:
        """Dead-letter a message that cannot be handled."""
        self.departing(held)
        description = f"The message cannot be handled: {type(error).__name__}: {error}"
        publishes = moves.refuse(self._place, held, MALFORMED_MESSAGE, description)
        self.surely(held, publishes, Left.MOVED)

    def move(
        self, locks: LockTable, token: UUID, make: Callable[[HeldMessage], Move], how: Left,
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
            self._machine.stayed(held)
            locks.restore(token, lock)
            fail(answer, ServiceBusError(f"The message stays locked: {refusal}"))

        self.departing(held)
        try:
            publishes = make(held)
            if len(publishes[0].properties) > moves.PROPERTIES_BYTES_MAX:
                raise MessageSizeExceededError("The message's properties would be too large.")
            self._publisher.publish_each(publishes, confirmed)
        except Exception:
            self._machine.stayed(held)
            locks.restore(token, lock)
            raise

    def surely(
        self, held: HeldMessage, publishes: Move, how: Left, answer: Answer | None = None
    ) -> None:
        """Move a message; retry until that is done or RabbitMQ has taken the message back."""
        told = Told() if answer is None else answer

        def done() -> None:
            if held.channel.is_closed:
                fail(told, MessageLockLostError(LOCK_LOST))
                return
            self._leave(held, how)
            succeed(told)

        self._until_stored(held, moves.fitting(publishes), done)

    def _until_stored(self, held: HeldMessage, publishes: Move, done: Callable[[], None]) -> None:
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

    def _leave(self, held: HeldMessage, how: Left) -> None:
        """Ack a message that is settled, or is in another queue."""
        held.channel.ack(held.tag)
        self._channels.let_go(held.channel)
        self._record.left(held.number)
        self._machine.left(held, how)
        self._carry_out()
