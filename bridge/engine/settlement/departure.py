"""How a message that was not completed leaves its queue: hand-over to another queue, then ack.

`bridge.message.moves` makes the publishes; this module hands them over:

send_back, refuse, strand, end, finish,            by the bridge: repeated until done
expire_lock, refresh
dead_letter, again, defer                          by a client: one attempt; an error is the answer
drop                                               a second copy: an ack, no publish
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from bridge.background.retry import retry
from bridge.background.tasks import Tasks
from bridge.broker.errors import (
    AckLost,
    BrokerError,
    NotStored,
    PublishRefused,
    Unroutable,
    is_refused,
)
from bridge.broker.failpoint import reach
from bridge.broker.outcome import resolve
from bridge.engine import texts
from bridge.engine.clock import now_ms
from bridge.engine.counters import Counters
from bridge.engine.poison import Poison
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.held_message import Copy, HeldMessage
from bridge.machine.deduplicator import Left
from bridge.machine.fate import Fate
from bridge.message import moves
from bridge.message.fate import Place, death_of, fate_of_failed
from bridge.message.message import DELIVERY_COUNT_EXCEEDED
from bridge.message.moves import Move
from bridge.model.errors import ArgumentOutOfRange, QuotaExceeded, ServiceBusError
from bridge.wire.basic import Table

RETRY_S = 1.0
"""The time between two attempts, while RabbitMQ has an alarm or elects a leader."""


Moving = Coroutine[Any, Any, None]
"""A hand-over that has begun; it must be awaited."""


class Source(Place, Protocol):
    """The queue that a message leaves."""

    @property
    def is_deferred(self) -> bool:
        """Whether its messages are deferred: a receiver gets them by their numbers only."""

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """Note that a message is about to be published into its queue again."""

    def left(self, holding: HeldMessage, how: Left) -> None:
        """Note that a message is no more in this queue."""


class Departure:
    """Moves messages out of their queues.

    Args:
        on_missing: called with an entity's path when one of its queues or streams is missing.

    Attributes:
        poison: the counter and log of messages that could not be handled.
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
        """Send a message that was published past the front exchange back to be numbered."""
        move = moves.send_back(source, holding)
        self._counters.sent_back += 1
        self._surely(source, holding, move, "engine.send_back")

    def refuse(self, source: Source, holding: HeldMessage, reason: str, description: str) -> None:
        """Make a message that cannot be handled, or is in the wrong queue, a dead letter."""
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

    def finish(self, source: Source, holding: HeldMessage, fate: Fate, *, failed: int = 0) -> None:
        """End a message that has expired, or has failed too often: a dead letter, or an ack.

        Args:
            failed: the failed deliveries that a message which failed too often does not count yet.
        """
        has_expired = fate is Fate.EXPIRED
        self._counters.expired += has_expired
        death = death_of(fate, source.queue)
        if death is None:
            _ack(holding, "engine.expire.acked")
            source.left(holding, Left.SETTLED)
            return
        dead = _dead(source, holding, *death, failed=0 if has_expired else failed)
        point = "engine.expire" if has_expired else "engine.delivery_count_exceeded"
        self._surely(source, holding, dead, point, Left.DEAD_LETTERED)

    def strand(self, source: Source, holding: HeldMessage, reason: str, description: str) -> None:
        """Dead-letter a message that cannot be forwarded."""
        dead = _dead(source, holding, reason, description, {})
        self._surely(source, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)

    def end(self, source: Source, holding: HeldMessage, reason: str, description: str) -> None:
        """Dead-letter a message that its entity does not allow."""
        dead = _dead(source, holding, reason, description)
        self._surely(source, holding, dead, "engine.dead_letter")

    def dead_letter(
        self,
        source: Source,
        holding: HeldMessage,
        reason: str | None,
        description: str | None,
        changes: Table,
    ) -> Moving:
        """Move a message to the dead-letter queue; it is published at the call.

        Raises:
            ArgumentOutOfRange: its properties would be too large for RabbitMQ.
            ServerBusy, BrokerError: the message was not moved, and is still held, or RabbitMQ has
                taken it back.
        """
        dead = _dead(source, holding, reason, description, changes)
        return self._move(source, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)

    def again(self, source: Source, holding: HeldMessage, changes: Table) -> Moving:
        """Put a message back with changed properties, its delivery count raised by 1.

        It is published at the call.

        An expired message, or one that reaches its maximum delivery count, is ended instead.

        Raises:
            ArgumentOutOfRange: its properties would be too large for RabbitMQ.
            ServerBusy, BrokerError: the message was not moved, and is still held, or RabbitMQ has
                taken it back.
        """
        match fate_of_failed(holding, source, now_ms()):
            case Fate.EXPIRED:
                self.finish(source, holding, Fate.EXPIRED)
                return _moved()
            case Fate.DELIVERY_COUNT_EXCEEDED:
                dead = _dead(source, holding, *DELIVERY_COUNT_EXCEEDED, changes, failed=1)
                return self._move(source, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)
            case _:
                failures = holding.failures + 1
                move = moves.again(source, holding, changes, failures, now_ms())
                source.putting_back(holding, failures)
                return self._move(source, holding, move, "engine.again", Left.REPLACED)

    def expire_lock(self, source: Source, holding: HeldMessage) -> None:
        """Put back a deferred or session message whose lock has ended, its count raised by 1.

        An expired message, or one that reaches its maximum delivery count, is ended instead.
        """
        match fate_of_failed(holding, source, now_ms()):
            case Fate.AVAILABLE:
                move = moves.again(source, holding, {}, holding.failures + 1, now_ms())
                self._surely(source, holding, move, "engine.again", Left.REPLACED)
            case fate:
                self.finish(source, holding, fate, failed=1)

    def refresh(self, source: Source, holding: HeldMessage) -> None:
        """Publish an old message again, behind all others of its queue; its count is unchanged."""
        move = moves.again(source, holding, {}, holding.failures, now_ms())
        self._surely(source, holding, move, "engine.again", Left.REPLACED)

    async def defer(self, source: Source, holding: HeldMessage, changes: Table) -> None:
        """Move a message to its entity's deferred messages, its delivery count raised by 1.

        Raises:
            ArgumentOutOfRange: its properties would be too large for RabbitMQ.
            QuotaExceeded, ServerBusy, BrokerError: the message was not moved, and is still held, or
                RabbitMQ has taken it back.
        """
        move = moves.defer(source, holding, changes)
        try:
            how = Left.REPLACED if source.is_deferred else Left.MOVED
            await self._move(source, holding, move, "engine.defer", how)
        except PublishRefused as error:
            raise QuotaExceeded(texts.deferred_full(source.queue.path)) from error

    def _move(
        self,
        source: Source,
        holding: HeldMessage,
        publishes: Move,
        failpoint: str,
        how: Left = Left.MOVED,
    ) -> Moving:
        size_bytes = len(publishes[0].properties)
        if size_bytes > moves.PROPERTIES_BYTES_MAX:
            raise ArgumentOutOfRange(
                texts.properties_too_large(
                    source.queue.path, size_bytes, moves.PROPERTIES_BYTES_MAX
                )
            )
        moving = self._hand_over(source, holding, publishes, failpoint, how)
        return self._moved_for_sure(moving, source, holding, publishes, failpoint, how)

    async def _moved_for_sure(
        self,
        moving: Moving,
        source: Source,
        holding: HeldMessage,
        publishes: Move,
        failpoint: str,
        how: Left,
    ) -> None:
        """Await a hand-over; if the message may be in both places, hand it over until it is moved.

        The copies have one number, and the second is dropped. A message that RabbitMQ has taken
        back meanwhile may be in both places, as after a crash.
        """
        try:
            await moving
        except BrokerError as error:
            if isinstance(error, AckLost):
                raise
            if _is_here_only(publishes, error):
                if error.is_partial:
                    await self._show_again(source, holding)
                raise
            unknown = error

            async def attempt() -> None:
                if holding.channel.close_reason is not None:
                    raise unknown
                await self._hand_over(source, holding, publishes, failpoint, how)

            def is_passing(failure: BaseException) -> bool:
                return failure is not unknown and _is_passing(failure)

            await retry(attempt, wait_s=RETRY_S, retryable=is_passing)

    async def _show_again(self, source: Source, holding: HeldMessage) -> None:
        """Tell peeks that a message is where it was: they may have been told of its move.

        That is done before the message can be moved again.
        """
        exchange, key, properties, body = moves.stayed(source, holding)
        reach("engine.move.refused")

        async def attempt() -> None:
            if holding.channel.close_reason is None:
                await self._sender.publish(exchange, key, properties, body)

        await retry(attempt, wait_s=RETRY_S, retryable=_is_passing)

    def _hand_over(
        self, source: Source, holding: HeldMessage, publishes: Move, failpoint: str, how: Left
    ) -> Moving:
        """Publish now; what is returned waits for the confirm and the ack."""
        acks = ((holding.channel, holding.tag),)
        moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done = partial(resolve, moved)
        self._sender.hand_over(publishes, acks=acks, done=done, failpoint=failpoint)
        return self._handed_over(source, holding, moved, how)

    async def _handed_over(
        self, source: Source, holding: HeldMessage, moved: asyncio.Future[None], how: Left
    ) -> None:
        try:
            await moved
        except Unroutable:  # a queue or stream was deleted by hand
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
        """Hand a message over; try again until done, or until the message's channel has ended."""
        fitting = moves.fitting(publishes)

        async def attempt() -> None:
            if holding.channel.close_reason is None:
                await self._hand_over(source, holding, fitting, failpoint, how)

        async def surely() -> None:
            with suppress(AckLost):
                await retry(attempt, wait_s=RETRY_S, retryable=_is_passing)

        self._under_way.start(surely(), name=f"departure {failpoint}")


def _is_passing(error: BaseException) -> bool:
    """Return whether a hand-over may succeed later; after AckLost the publishes are confirmed."""
    return isinstance(error, ServiceBusError | BrokerError) and not isinstance(error, AckLost)


async def _moved() -> None:
    """Wait for nothing."""


def _is_here_only(publishes: Move, error: BrokerError) -> bool:
    """Return whether the target queue certainly does not have the message.

    Of the stream for peeks, the second target, that need not be known.
    """
    is_of_queue = f"with key {publishes[0].routing_key!r}" in error.text
    return is_refused(error) or (isinstance(error, NotStored) and is_of_queue)


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
    """Return the publishes that dead-letter a message, its count raised by `failed`."""
    failures = holding.failures + failed
    return moves.dead_letter(source, holding, reason, description, changes or {}, failures)
