"""How a message leaves its queue otherwise than by being completed: by hand-over, and then an ack.

What is published is `bridge.message.moves`'s; here it is handed over, once or until it is done:

send_back, refuse, strand, end,            what the bridge does: until it is done
expire, expire_lock, dead_letter_failed
dead_letter, again, defer                  what a client asks for: once
drop                                       a second copy: nowhere
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from bridge.broker.errors import AckLost, BrokerError, PublishRefused, Unroutable
from bridge.broker.failpoint import reach
from bridge.broker.retry import retry
from bridge.engine import texts
from bridge.engine.clock import now_ms
from bridge.engine.counters import Counters
from bridge.engine.poison import Poison
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.held_message import Copy, HeldMessage
from bridge.engine.tasks import Tasks
from bridge.machine.deduplicator import Left
from bridge.message import moves
from bridge.message.fate import Fate, Place, fate_of_failed
from bridge.message.message import (
    DELIVERY_COUNT_EXCEEDED,
    EXPIRED,
)
from bridge.message.moves import Move
from bridge.model.errors import ArgumentOutOfRange, QuotaExceeded, ServiceBusError
from bridge.wire.basic import Table

RETRY_S = 1.0
"""RabbitMQ takes nothing while it has an alarm or elects a leader; the message waits here."""


class Source(Place, Protocol):
    """What a message leaves."""

    @property
    def is_deferred(self) -> bool:
        """Whether its messages are deferred: given back, they are not available to receivers."""

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """The message is about to be published into its queue again."""

    def left(self, holding: HeldMessage, how: Left) -> None:
        """The message is in this queue no more."""


class Departure:
    """Moves messages out of their queues.

    Args:
        on_missing: called with an entity's path when a queue or stream of it is not there.

    Attributes:
        poison: what could not be handled is noted there.
    """

    def __init__(
        self,
        sender: Sender,
        counters: Counters,
        poison: Poison,
        on_missing: Callable[[str], None],
    ) -> None:
        self._on_missing = on_missing
        self.poison = poison
        self._sender = sender
        self._counters = counters
        self._under_way = Tasks()

    def send_back(self, source: Source, holding: HeldMessage) -> None:
        """Have a message numbered that was published past the front exchange."""
        move = moves.send_back(source, holding)
        self._counters.sent_back += 1
        self._surely(source, holding, move, "engine.send_back")

    def refuse(self, source: Source, holding: HeldMessage, reason: str, description: str) -> None:
        """Have a message made a dead letter that cannot be handled, or came where none should."""
        move = moves.refuse(source, holding, reason, description)
        self._counters.sent_back += 1
        self._surely(source, holding, move, "engine.send_back")

    def note_second_copy(self) -> None:
        """Count a second copy that was dropped."""
        self._counters.second_copies += 1

    def drop(self, copy: Copy) -> None:
        """Ack a second copy."""
        self.note_second_copy()
        _ack(copy, "engine.drop.acked")

    def expire(self, source: Source, holding: HeldMessage) -> None:
        """End a message whose time is over."""
        self._counters.expired += 1
        if source.queue.dead_lettering_on_message_expiration:
            dead = _dead(source, holding, *EXPIRED)
            self._surely(source, holding, dead, "engine.expire", Left.DEAD_LETTERED)
        else:
            _ack(holding, "engine.expire.acked")
            source.left(holding, Left.SETTLED)

    def dead_letter_failed(self, source: Source, holding: HeldMessage) -> None:
        """End a message that has failed too often."""
        dead = _dead(source, holding, *DELIVERY_COUNT_EXCEEDED)
        self._surely(source, holding, dead, "engine.delivery_count_exceeded", Left.DEAD_LETTERED)

    def strand(self, source: Source, holding: HeldMessage, reason: str, description: str) -> None:
        """Dead-letter a message that cannot be forwarded."""
        dead = _dead(source, holding, reason, description, {})
        self._surely(source, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)

    def end(self, source: Source, holding: HeldMessage, reason: str, description: str) -> None:
        """End a message that its entity does not allow."""
        dead = _dead(source, holding, reason, description)
        self._surely(source, holding, dead, "engine.dead_letter")

    async def dead_letter(
        self,
        source: Source,
        holding: HeldMessage,
        reason: str | None,
        description: str | None,
        changes: Table,
    ) -> None:
        """Move a message to the dead-letter queue.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            ServerBusy, BrokerError: it is where it was, still held.
        """
        dead = _dead(source, holding, reason, description, changes)
        await self._move(source, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)

    async def again(self, source: Source, holding: HeldMessage, changes: Table) -> None:
        """Put a message back with changed properties, one more on its count.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            ServerBusy, BrokerError: it is where it was, still held.
        """
        match fate_of_failed(holding, source, now_ms()):
            case Fate.EXPIRED:
                self.expire(source, holding)
            case Fate.DELIVERY_COUNT_EXCEEDED:
                dead = _dead(source, holding, *DELIVERY_COUNT_EXCEEDED, changes, failed=1)
                await self._move(source, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)
            case _:
                failures = holding.failures + 1
                move = moves.again(source, holding, changes, failures, now_ms())
                source.putting_back(holding, failures)
                await self._move(source, holding, move, "engine.again", Left.REPLACED)

    def expire_lock(self, source: Source, holding: HeldMessage) -> None:
        """Put a deferred or session's message back whose lock has ended, one more on its count."""
        match fate_of_failed(holding, source, now_ms()):
            case Fate.EXPIRED:
                self.expire(source, holding)
            case Fate.DELIVERY_COUNT_EXCEEDED:
                dead = _dead(source, holding, *DELIVERY_COUNT_EXCEEDED, failed=1)
                self._surely(
                    source, holding, dead, "engine.delivery_count_exceeded", Left.DEAD_LETTERED
                )
            case _:
                move = moves.again(source, holding, {}, holding.failures + 1, now_ms())
                self._surely(source, holding, move, "engine.again", Left.REPLACED)

    def refresh(self, source: Source, holding: HeldMessage) -> None:
        """Put an old message back behind all others, its count unchanged."""
        move = moves.again(source, holding, {}, holding.failures, now_ms())
        self._surely(source, holding, move, "engine.again", Left.REPLACED)

    async def defer(self, source: Source, holding: HeldMessage, changes: Table) -> None:
        """Set a message aside, its count unchanged.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            QuotaExceeded, ServerBusy, BrokerError: it is where it was, still held.
        """
        move = moves.defer(source, holding, changes)
        try:
            how = Left.REPLACED if source.is_deferred else Left.MOVED
            await self._move(source, holding, move, "engine.defer", how)
        except PublishRefused as error:
            raise QuotaExceeded(texts.deferred_full(source.queue.path)) from error

    async def _move(
        self,
        source: Source,
        holding: HeldMessage,
        publishes: Move,
        failpoint: str,
        how: Left = Left.MOVED,
    ) -> None:
        size_bytes = len(publishes[0].properties)
        if size_bytes > moves.PROPERTIES_BYTES_MAX:
            raise ArgumentOutOfRange(
                texts.properties_too_large(
                    source.queue.path, size_bytes, moves.PROPERTIES_BYTES_MAX
                )
            )
        await self._hand_over(source, holding, publishes, failpoint, how)

    async def _hand_over(
        self, source: Source, holding: HeldMessage, publishes: Move, failpoint: str, how: Left
    ) -> None:
        acks = ((holding.channel, holding.tag),)
        try:
            await self._sender.move(publishes, acks=acks, failpoint=failpoint)
        except Unroutable:  # somebody has deleted a queue or stream by hand
            self._on_missing(source.queue.path)
            raise
        source.left(holding, how)

    def _surely(
        self,
        source: Source,
        holding: HeldMessage,
        publishes: Move,
        failpoint: str,
        how: Left = Left.MOVED,
    ) -> None:
        """Hand over, and try again until it is done or RabbitMQ has taken the message back."""
        fitting = moves.fitting(publishes)

        async def attempt() -> None:
            if holding.channel.close_reason is None:
                await self._hand_over(source, holding, fitting, failpoint, how)

        async def surely() -> None:
            with suppress(AckLost):
                await retry(attempt, wait_s=RETRY_S, retryable=_is_passing)

        self._under_way.start(surely(), name=f"departure {failpoint}")


def _is_passing(error: BaseException) -> bool:
    """Whether a hand-over may succeed later; one whose ack was lost has been published."""
    return isinstance(error, ServiceBusError | BrokerError) and not isinstance(error, AckLost)


def _ack(settled: HeldMessage | Copy, point: str) -> None:
    settled.channel.consumers.ack(settled.tag)
    reach(point, settled.channel)


def _dead(
    source: Source,
    holding: HeldMessage,
    reason: str | None,
    description: str | None,
    changes: Table | None = None,
    *,
    failed: int = 0,
) -> Move:
    """Return what goes to the dead-letter queue, `failed` more on its count."""
    failures = holding.failures + failed
    return moves.dead_letter(source, holding, reason, description, changes or {}, failures)
