"""Settlement: complete, abandon, dead-letter, defer or release a message by its lock token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar, assert_never
from uuid import UUID

from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Disposition,
    OnSettled,
    Release,
)
from bridge.engine.ownership.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.locktable import Locked
from bridge.engine.settlement.owner import Owner
from bridge.machine.deduplicator import Left
from bridge.machine.locks import Lock
from bridge.model.errors import (
    MessageLockLost,
    NotAllowed,
    QuotaExceeded,
    ServiceBusError,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.wire.basic import Table

Answer = TypeVar("Answer")


class Settling:
    """Settles and renews the locks of this process.

    Args:
        defer: moves a message to its entity's deferred messages.
    """

    def __init__(
        self, services: Services, defer: Callable[[Owner, HeldMessage, Table], Awaitable[None]]
    ) -> None:
        self._defer = defer
        self._departure = services.departure
        self._counters = services.counters
        self._locks = services.locks

    async def settle(self, path: EntityPath, token: UUID, disposition: Disposition) -> None:
        """End a lock; see `api.Namespace.settle`."""
        if isinstance(disposition, Complete):
            await self._completed(path, token)
            return
        _check(path, disposition)
        lock = self._release(path, token)
        source, holding = lock.held
        try:
            await self._carry_out(source, holding, disposition)
        except Exception as error:
            if not source.holds(holding):
                raise MessageLockLost(texts.LOCK_LOST) from error
            source.stayed(holding)
            self._locks.restore(token, lock)
            if isinstance(error, BrokerError | ServiceBusError):
                raise refusal(error) from error
            raise

    def complete(self, path: EntityPath, token: UUID, done: OnSettled) -> None:
        """Complete a message; see `api.Namespace.complete`."""
        owner, holding = self._release(path, token).held

        def on_written(error: BrokerError | None) -> None:
            if error is not None:
                done(MessageLockLost(texts.LOCK_LOST))
                return
            owner.left(holding, Left.SETTLED)
            self._counters.completed += 1
            done(None)

        try:
            owner.ack(holding, "engine.complete.acked")
            holding.channel.when_written(on_written)
        except BrokerError as error:
            raise MessageLockLost(texts.LOCK_LOST) from error

    async def _completed(self, path: EntityPath, token: UUID) -> None:
        answer: asyncio.Future[ServiceBusError | None] = asyncio.get_running_loop().create_future()
        self.complete(path, token, partial(_answer, answer))
        error = await answer
        if error is not None:
            raise error

    def _release(self, path: EntityPath, token: UUID) -> Lock[Locked]:
        """End and return a lock; raise MessageLockLost when RabbitMQ has the message back."""
        lock = self._locks.release(token)
        if lock is None:
            raise MessageLockLost(texts.LOCK_LOST)
        owner, holding = lock.held
        if not _is_of(owner, path):
            self._locks.restore(token, lock)
            raise MessageLockLost(texts.LOCK_LOST)
        if not owner.holds(holding):
            raise MessageLockLost(texts.LOCK_LOST)
        return lock

    def renew(self, path: EntityPath, tokens: Sequence[UUID]) -> list[int]:
        """Give each lock its full duration from now; return the ends (UTC ms).

        Raises:
            MessageLockLost: one of the locks has ended; none is renewed.
        """
        for token in tokens:
            held = self._locks.find(token)
            if held is None or not _is_of(held[0], path):
                raise MessageLockLost(texts.LOCK_LOST)
        self._counters.renewed += len(tokens)
        return self._locks.renew(tokens)

    def expire(self, owner: Owner, holding: HeldMessage) -> None:
        """Make the message of an expired lock available again; its delivery count is raised."""
        self._counters.locks_expired += 1
        if owner.holds(holding):
            owner.give_back(holding, "engine.lock.rejected")

    async def _carry_out(
        self, source: Owner, holding: HeldMessage, disposition: Disposition
    ) -> None:
        counters, departure = self._counters, self._departure
        match disposition:
            case Complete():
                raise AssertionError("`complete` does that")
            case Abandon(properties=properties):
                if properties or source.is_deferred:
                    again = departure.again(source, holding, properties)
                    await self._hand_over(source, holding, again)
                else:
                    source.give_back(holding, "engine.abandon.rejected")
                counters.abandoned += 1
            case DeadLetter(reason=reason, description=description, properties=properties):
                dead = departure.dead_letter(source, holding, reason, description, properties)
                await self._hand_over(source, holding, dead)
                counters.dead_lettered += 1
            case Release():
                source.release(holding)
                counters.released += 1
            case Defer(properties=properties):
                if properties or not source.is_deferred:
                    aside = self._defer(source, holding, properties)
                    await self._hand_over(source, holding, aside)
                else:
                    source.release(holding)
                counters.deferred += 1
            case _:
                assert_never(disposition)

    @staticmethod
    async def _hand_over(source: Owner, holding: HeldMessage, moving: Awaitable[None]) -> None:
        """Await a message's hand-over, and then the writing of its ack."""
        source.departing(holding)
        await moving
        written: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        holding.channel.when_written(partial(_answer, written))
        error = await written
        if error is not None:
            raise error.again()


def refusal(error: BrokerError | ServiceBusError) -> ServiceBusError:
    """Return the error that answers a settlement which failed with the given error.

    The answer is never a retryable error but QuotaExceeded. The Go SDK repeats a settlement after a
    retryable error, finds the message settled on its side, and reports success. So the lock counts
    as lost, and the message comes back when the lock ends.
    """
    if isinstance(error, QuotaExceeded):
        return error
    if isinstance(error, ServiceBusError) and not error.is_retryable:
        return error
    return MessageLockLost(f"{texts.LOCK_LOST} ({error})")


def _answer(waiting: asyncio.Future[Answer], answer: Answer) -> None:
    if not waiting.done():
        waiting.set_result(answer)


def _is_of(owner: Owner, path: EntityPath) -> bool:
    here = owner.path
    return here == path or (here.key == path.key and here.sub_queue is path.sub_queue)


def _check(path: EntityPath, disposition: Disposition) -> None:
    if path.sub_queue is SubQueue.DEAD_LETTER and isinstance(disposition, DeadLetter):
        raise NotAllowed(texts.DEAD_LETTER_AGAIN.format(entity=path))
