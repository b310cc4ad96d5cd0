"""Settlement: complete, abandon, dead-letter, defer or release a message by its lock token."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
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
from bridge.engine.clock import later
from bridge.engine.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.locktable import Locked
from bridge.engine.settlement.owner import Owner, OwnerOfSessions, owns_sessions
from bridge.machine.queue.locks import Lock
from bridge.machine.queue.second_copies import Left
from bridge.message.departure import Told
from bridge.model.errors import (
    InternalError,
    MessageLockLost,
    NotAllowed,
    QuotaExceeded,
    ServiceBusError,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.wire.basic import Table

Answer = TypeVar("Answer")


Defers = Callable[[Owner, HeldMessage, Table, Told], None]

RETRY_S = 1.0
"""The time between two attempts to carry out what a transaction has decided."""

log = logging.getLogger(__name__)


class Settling:
    """Settles and renews the locks of this process.

    Args:
        defer: moves a message to its entity's deferred messages.
    """

    def __init__(self, services: Services, defer: Defers) -> None:
        self._defer = defer
        self._departure = services.departure
        self._counters = services.counters
        self._locks = services.locks

    async def settle(self, path: EntityPath, token: UUID, disposition: Disposition) -> None:
        """End a lock; see `api.NamespaceVerbs.settle`."""
        answer: asyncio.Future[ServiceBusError | None] = asyncio.get_running_loop().create_future()
        self.begin(path, token, disposition, partial(_answer, answer))
        error = await answer
        if error is not None:
            raise error

    def begin(
        self, path: EntityPath, token: UUID, disposition: Disposition, done: OnSettled
    ) -> None:
        """End a lock, in the order of the calls; see `api.NamespaceVerbs.begin_settling`."""
        try:
            if isinstance(disposition, DeadLetter):
                _check(path)
            lock = self._release(path, token)
        except ServiceBusError as refused:
            done(refused)
            return
        if isinstance(disposition, Complete):
            self._complete(*lock.held, done)
            return
        told = partial(self._moved, token, lock, disposition, done)
        try:
            is_moving = self._carry_out(*lock.held, disposition, told)
        except Exception as error:
            done(self._stayed(token, lock, error))
            return
        if not is_moving:
            self._count(disposition)
            done(None)

    def carry_out(self, locked: Locked, disposition: Disposition, done: OnSettled) -> None:
        """Carry out what a transaction has decided about a message that nobody else settles.

        What has to be moved is tried again until it is moved. `done` is called once: with `None`
        when RabbitMQ has been told, or with MessageLockLost: it has the message back.
        """
        owner, holding = locked
        if owns_sessions(owner):
            done = partial(_free, owner, holding, done)
        if not owner.holds(holding):
            done(MessageLockLost(texts.LOCK_LOST))
        elif isinstance(disposition, Complete):
            self._complete(owner, holding, done)
        elif goes_back(owner, disposition):
            if let_go(owner, holding):
                self._carry_out(owner, holding, disposition, lambda error: None)
            self._count(disposition)
            done(None)
        else:
            owner.departing(holding)
            self._move(locked, disposition, done)

    def _move(self, locked: Locked, disposition: Disposition, done: OnSettled) -> None:
        """Move a message, until that is done; its ack is still to be written then."""
        owner, holding = locked

        def written(lost: BrokerError | None) -> None:
            if lost is None:
                self._count(disposition)
            done(None if lost is None else MessageLockLost(texts.LOCK_LOST))

        def moved(error: Exception | None) -> None:
            if not owner.holds(holding):
                done(MessageLockLost(texts.LOCK_LOST))
                return
            if error is None:
                try:
                    holding.channel.when_written(written)
                    return
                except BrokerError as lost:
                    error = lost
            log.warning("outcome.waits entity=%s number=%d error=%s", *_named(locked), error)
            later(RETRY_S, partial(self._move, locked, disposition, done))

        try:
            match disposition:
                case Abandon(properties=properties):
                    self._departure.again(owner, holding, properties, moved, is_decided=True)
                case DeadLetter(reason=reason, description=description, properties=properties):
                    self._departure.dead_letter(
                        *(owner, holding, reason, description, properties, moved),
                        is_decided=True,
                    )
                case Defer(properties=properties):
                    self._defer(owner, holding, properties, moved)
                case _:
                    raise AssertionError("`carry_out` does that")
        except (BrokerError, ServiceBusError) as error:
            moved(error)

    def _complete(self, owner: Owner, holding: HeldMessage, done: OnSettled) -> None:
        """Ack a message; it is settled when the kernel has the ack."""

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
        except BrokerError:
            done(MessageLockLost(texts.LOCK_LOST))

    def _carry_out(
        self, source: Owner, holding: HeldMessage, disposition: Disposition, told: Told
    ) -> bool:
        """Do what needs no publish; else begin the hand-over, and return `True`."""
        departure = self._departure
        match disposition:
            case Complete():
                raise AssertionError("`_complete` does that")
            case Abandon(properties=properties) if goes_back(source, disposition):
                source.give_back(holding, "engine.abandon.rejected")
                return False
            case Release():
                source.release(holding)
                return False
            case Abandon(properties=properties):
                source.departing(holding)
                departure.again(source, holding, properties, told)
            case DeadLetter(reason=reason, description=description, properties=properties):
                source.departing(holding)
                departure.dead_letter(source, holding, reason, description, properties, told)
            case Defer(properties=properties):
                source.departing(holding)
                self._defer(source, holding, properties, told)
            case _:
                assert_never(disposition)
        return True

    def _moved(
        self,
        token: UUID,
        lock: Lock[Locked],
        disposition: Disposition,
        done: OnSettled,
        error: Exception | None,
    ) -> None:
        """Take the end of a message's hand-over; its ack is still to be written."""

        def on_written(lost: BrokerError | None) -> None:
            if lost is not None:
                done(self._stayed(token, lock, lost))
                return
            self._count(disposition)
            done(None)

        if error is None:
            try:
                lock.held[1].channel.when_written(on_written)
                return
            except BrokerError as lost:
                error = lost
        done(self._stayed(token, lock, error))

    def _stayed(self, token: UUID, lock: Lock[Locked], error: Exception) -> ServiceBusError:
        """Put a lock back whose settlement has failed; return the settlement's answer."""
        source, holding = lock.held
        if not source.holds(holding):
            return MessageLockLost(texts.LOCK_LOST)
        source.stayed(holding)
        self._locks.restore(token, lock)
        if isinstance(error, BrokerError | ServiceBusError):
            return refusal(error)
        log.error("settlement.failed entity=%s", source.path, exc_info=error)
        return InternalError(f"The settlement failed: {type(error).__name__}: {error}")

    def _count(self, disposition: Disposition) -> None:
        counters = self._counters
        match disposition:
            case Abandon():
                counters.abandoned += 1
            case DeadLetter():
                counters.dead_lettered += 1
            case Release():
                counters.released += 1
            case Defer():
                counters.deferred += 1

    def _release(self, path: EntityPath, token: UUID) -> Lock[Locked]:
        """End and return a lock; raise MessageLockLost when RabbitMQ has the message back."""
        lock = self._locks.release(token)
        if lock is None:
            raise MessageLockLost(texts.LOCK_LOST)
        owner, holding = lock.held
        if not is_of(owner, path):
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
            if held is None or not is_of(held[0], path):
                raise MessageLockLost(texts.LOCK_LOST)
        self._counters.renewed += len(tokens)
        return self._locks.renew(tokens)

    def expire(self, owner: Owner, holding: HeldMessage) -> None:
        """Make the message of an expired lock available again; its delivery count is raised."""
        self._counters.locks_expired += 1
        if owner.holds(holding):
            owner.give_back(holding, "engine.lock.rejected")


def goes_back(owner: Owner, disposition: Disposition) -> bool:
    """Whether a disposition only makes a message available again, without a publish."""
    if isinstance(disposition, Abandon):
        return not disposition.properties and not owner.is_deferred
    return isinstance(disposition, Release)


def keep_out(owner: Owner, holding: HeldMessage) -> None:
    """Keep a message for a transaction, and its session: nobody else gets either."""
    if owns_sessions(owner):
        owner.keep_out(holding)


def let_go(owner: Owner, holding: HeldMessage) -> bool:
    """Undo `keep_out`; return whether its receiver has the message again.

    A message whose session has ended meanwhile is available instead.
    """
    return owner.let_go(holding) if owns_sessions(owner) else True


def _free(
    owner: OwnerOfSessions, holding: HeldMessage, done: OnSettled, error: ServiceBusError | None
) -> None:
    """Let the session of a message go on that a transaction has settled."""
    owner.kept.free(holding)
    done(error)


def drop_copy(owner: Owner, holding: HeldMessage) -> None:
    """Ack a copy of a message that is elsewhere; one of a higher generation is none."""
    owner.ack(holding, "engine.drop.acked")
    owner.left(holding, Left.REPLACED)
    if owns_sessions(owner):
        owner.kept.free(holding)


def _named(locked: Locked) -> tuple[EntityPath, int]:
    return locked[0].path, locked[1].number


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


def is_of(owner: Owner, path: EntityPath) -> bool:
    """Whether an owner's messages are those of a path."""
    here = owner.path
    if here == path:
        return True
    # A deferred transfer dead letter is among the deferred dead letters of its entity.
    is_dead = here.sub_queue is not SubQueue.NONE
    return here.key == path.key and is_dead is (path.sub_queue is not SubQueue.NONE)


def _check(path: EntityPath) -> None:
    if path.sub_queue is not SubQueue.NONE:
        raise NotAllowed(texts.DEAD_LETTER_AGAIN.format(entity=path))
