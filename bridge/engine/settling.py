"""Settlement: what becomes of a locked message, by its token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never
from uuid import UUID

from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, Disposition, Release
from bridge.engine.counters import Counters
from bridge.engine.departure import Departure
from bridge.engine.holding import Holding
from bridge.engine.locktable import LockTable
from bridge.engine.source import Source
from bridge.model.errors import (
    MessageLockLost,
    NotAllowed,
    NotImplementedHere,
    ServerBusy,
    ServiceBusError,
)


class Settling:
    """Settles and renews the locks of this process."""

    def __init__(self, departure: Departure, counters: Counters, locks: LockTable) -> None:
        self._departure = departure
        self._counters = counters
        self._locks = locks

    async def settle(self, source: Source, token: UUID, disposition: Disposition) -> None:
        """End a lock; see `api.Namespace.settle`."""
        self._check(source, disposition)
        lock = self._locks.release(token) if self._locks.find(token) else None
        if lock is None:
            raise MessageLockLost(texts.LOCK_LOST)
        owner, holding = lock.held
        if owner is not source:
            self._locks.restore(token, lock)
            raise MessageLockLost(texts.LOCK_LOST)
        if not source.holds(holding):
            raise MessageLockLost(texts.LOCK_LOST)
        try:
            await self._carry_out(source, holding, disposition)
        except (BrokerError, ServiceBusError) as error:
            if not source.holds(holding):
                raise MessageLockLost(texts.LOCK_LOST) from error
            source.stayed(holding)
            self._locks.restore(token, lock)
            if isinstance(error, ServiceBusError):
                raise
            raise ServerBusy(f"{texts.SERVER_BUSY} ({error})") from error

    def renew(self, source: Source, tokens: Sequence[UUID]) -> list[int]:
        """Give each lock its full duration from now; all of them or none."""
        for token in tokens:
            held = self._locks.find(token)
            if held is None or held[0] is not source:
                raise MessageLockLost(texts.LOCK_LOST)
        ends = [self._locks.renew(token) for token in tokens]
        self._counters.renewed += len(ends)
        return [end_ms for end_ms in ends if end_ms is not None]

    async def _carry_out(self, source: Source, holding: Holding, disposition: Disposition) -> None:
        counters = self._counters
        match disposition:
            case Complete():
                source.ack(holding, "engine.complete.acked")
                await holding.channel.barrier_soon()
                source.remember(holding)
                counters.completed += 1
            case Abandon(properties=properties) if not properties:
                source.give_back(holding, "engine.abandon.rejected")
                counters.abandoned += 1
            case Abandon(properties=properties):
                source.departing(holding)
                await self._departure.again(source, holding, properties)
                await holding.channel.barrier_soon()
                counters.abandoned += 1
            case DeadLetter(reason=reason, description=description, properties=properties):
                source.departing(holding)
                await self._departure.dead_letter(source, holding, reason, description, properties)
                await holding.channel.barrier_soon()
                counters.dead_lettered += 1
            case Release():
                source.release(holding)
                counters.released += 1
            case Defer():
                raise NotImplementedHere("Deferral is not implemented.")
            case _:
                assert_never(disposition)

    def _check(self, source: Source, disposition: Disposition) -> None:
        if isinstance(disposition, Defer):
            raise NotImplementedHere("Deferral is not implemented.")
        if source.is_dead_letter and isinstance(disposition, DeadLetter):
            raise NotAllowed(texts.DEAD_LETTER_AGAIN.format(entity=source.path))
