"""How a message leaves its queue otherwise than by being completed: by hand-over, and then an ack.

What is published is `bridge.message.moves`'s; here it is handed over, once or until it is done:

send_back, expire, exhaust, refuse, strand, lapse, end    what the bridge does: until it is done
dead_letter, again, defer                                 what a client asks for: once
drop                                                      a second copy: nowhere
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Protocol

from bridge.broker import failpoint as failpoints
from bridge.broker.errors import AckLost, BrokerError, PublishRefused
from bridge.broker.handover import Publish
from bridge.broker.retry import retry
from bridge.engine import texts
from bridge.engine.clock import now_ms
from bridge.engine.counters import Counters
from bridge.engine.poison import Poison
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.holding import Copy, Holding
from bridge.machine.deduplicator import Left
from bridge.message import moves
from bridge.message.fate import Fate, Place, fate_of_failed
from bridge.message.message import (
    EXHAUSTED,
    EXPIRED,
)
from bridge.model.errors import ArgumentOutOfRange, QuotaExceeded, ServiceBusError
from bridge.wire.basic import Table

RETRY_S = 1.0
"""RabbitMQ takes nothing while it has an alarm or elects a leader; the message waits here."""


class Origin(Place, Protocol):
    """What a message leaves."""

    @property
    def is_deferred(self) -> bool:
        """Whether its messages are deferred."""

    def putting_back(self, holding: Holding, generation: int) -> None:
        """The message is about to be published into its queue again."""

    def left(self, holding: Holding, how: Left) -> None:
        """The message is in this queue no more."""


class Departure:
    """Moves messages out of their queues.

    Attributes:
        poison: what could not be handled is noted there.
    """

    def __init__(self, sender: Sender, counters: Counters, poison: Poison) -> None:
        self.poison = poison
        self._sender = sender
        self._counters = counters
        self._under_way: set[asyncio.Task[None]] = set()

    def send_back(self, origin: Origin, holding: Holding) -> None:
        """Have a message numbered that was published past the front door."""
        publish = moves.send_back(origin, holding)
        self._counters.sent_back += 1
        self._surely(origin, holding, publish, "engine.send_back")

    def refuse(self, origin: Origin, holding: Holding, reason: str, description: str) -> None:
        """Have a message made a dead letter that cannot be handled, or came where none should."""
        publish = moves.refuse(origin, holding, reason, description)
        self._counters.sent_back += 1
        self._surely(origin, holding, publish, "engine.send_back")

    def note_second_copy(self) -> None:
        """Count a second copy that was dropped."""
        self._counters.second_copies += 1

    def drop(self, copy: Copy) -> None:
        """Ack a second copy."""
        self.note_second_copy()
        _ack(copy, "engine.drop.acked")

    def expire(self, origin: Origin, holding: Holding) -> None:
        """End a message whose time is over."""
        self._counters.expired += 1
        if origin.queue.dead_lettering_on_message_expiration:
            dead = _dead(origin, holding, *EXPIRED)
            self._surely(origin, holding, dead, "engine.expire", Left.DEAD_LETTERED)
        else:
            _ack(holding, "engine.expire.acked")
            origin.left(holding, Left.SETTLED)

    def exhaust(self, origin: Origin, holding: Holding) -> None:
        """End a message that has failed too often."""
        dead = _dead(origin, holding, *EXHAUSTED)
        self._surely(origin, holding, dead, "engine.exhaust", Left.DEAD_LETTERED)

    def strand(self, origin: Origin, holding: Holding, reason: str, description: str) -> None:
        """Dead-letter a message that cannot be forwarded."""
        dead = _dead(origin, holding, reason, description, {})
        self._surely(origin, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)

    def end(self, origin: Origin, holding: Holding, reason: str, description: str) -> None:
        """End a message that its entity does not allow."""
        dead = _dead(origin, holding, reason, description)
        self._surely(origin, holding, dead, "engine.dead_letter")

    async def dead_letter(
        self,
        origin: Origin,
        holding: Holding,
        reason: str | None,
        description: str | None,
        changes: Table,
    ) -> None:
        """Move a message to the dead-letter queue.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            ServerBusy, BrokerError: it is where it was, still held.
        """
        dead = _dead(origin, holding, reason, description, changes)
        await self._move(origin, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)

    async def again(self, origin: Origin, holding: Holding, changes: Table) -> None:
        """Put a message back with changed properties, one more on its count.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            ServerBusy, BrokerError: it is where it was, still held.
        """
        match fate_of_failed(holding, origin, now_ms()):
            case Fate.EXPIRED:
                self.expire(origin, holding)
            case Fate.EXHAUSTED:
                dead = _dead(origin, holding, *EXHAUSTED, changes, failed=1)
                await self._move(origin, holding, dead, "engine.dead_letter", Left.DEAD_LETTERED)
            case _:
                failures = holding.failures + 1
                publish = moves.again(origin, holding, changes, failures, now_ms())
                origin.putting_back(holding, failures)
                await self._move(origin, holding, publish, "engine.again", Left.REPLACED)

    def lapse(self, origin: Origin, holding: Holding) -> None:
        """Put a deferred or session's message back whose lock has ended, one more on its count."""
        match fate_of_failed(holding, origin, now_ms()):
            case Fate.EXPIRED:
                self.expire(origin, holding)
            case Fate.EXHAUSTED:
                dead = _dead(origin, holding, *EXHAUSTED, failed=1)
                self._surely(origin, holding, dead, "engine.exhaust", Left.DEAD_LETTERED)
            case _:
                publish = moves.again(origin, holding, {}, holding.failures + 1, now_ms())
                self._surely(origin, holding, publish, "engine.again", Left.REPLACED)

    def refresh(self, origin: Origin, holding: Holding) -> None:
        """Put an old message back behind all others, its count unchanged."""
        publish = moves.again(origin, holding, {}, holding.failures, now_ms())
        self._surely(origin, holding, publish, "engine.again", Left.REPLACED)

    async def defer(self, origin: Origin, holding: Holding, changes: Table) -> None:
        """Set a message aside, its count unchanged.

        Raises:
            ArgumentOutOfRange: its properties would be more than RabbitMQ takes.
            QuotaExceeded, ServerBusy, BrokerError: it is where it was, still held.
        """
        publish = moves.defer(origin, holding, changes)
        try:
            how = Left.REPLACED if origin.is_deferred else Left.MOVED
            await self._move(origin, holding, publish, "engine.defer", how)
        except PublishRefused as error:
            raise QuotaExceeded(texts.deferred_full(origin.queue.path)) from error

    async def _move(
        self,
        origin: Origin,
        holding: Holding,
        publish: Publish,
        failpoint: str,
        how: Left = Left.MOVED,
    ) -> None:
        size_bytes = len(publish.properties)
        if size_bytes > moves.PROPERTIES_BYTES_MAX:
            raise ArgumentOutOfRange(
                texts.properties_too_large(
                    origin.queue.path, size_bytes, moves.PROPERTIES_BYTES_MAX
                )
            )
        acks = ((holding.channel, holding.tag),)
        await self._sender.move(publish, acks=acks, failpoint=failpoint)
        origin.left(holding, how)

    def _surely(
        self,
        origin: Origin,
        holding: Holding,
        publish: Publish,
        failpoint: str,
        how: Left = Left.MOVED,
    ) -> None:
        """Hand over, and try again until it is done or RabbitMQ has taken the message back."""
        acks = ((holding.channel, holding.tag),)
        move = partial(self._sender.move, moves.fitting(publish), acks=acks, failpoint=failpoint)

        async def attempt() -> None:
            if holding.channel.close_reason is None:
                await move()
                origin.left(holding, how)

        async def surely() -> None:
            with suppress(AckLost):
                await retry(attempt, wait_s=RETRY_S, retryable=_is_passing)

        task = asyncio.get_running_loop().create_task(surely(), name=f"departure {failpoint}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


def _is_passing(error: BaseException) -> bool:
    """Whether a hand-over may succeed later; one whose ack was lost has been published."""
    return isinstance(error, ServiceBusError | BrokerError) and not isinstance(error, AckLost)


def _ack(settled: Holding | Copy, point: str) -> None:
    settled.channel.consumers.ack(settled.tag)
    if failpoints.IS_ARMED:
        settled.channel.flush()
        failpoints.reach(point)


def _dead(
    origin: Origin,
    holding: Holding,
    reason: str | None,
    description: str | None,
    changes: Table | None = None,
    *,
    failed: int = 0,
) -> Publish:
    """Return what goes to the dead-letter queue, `failed` more on its count."""
    failures = holding.failures + failed
    return moves.dead_letter(origin, holding, reason, description, changes or {}, failures)
