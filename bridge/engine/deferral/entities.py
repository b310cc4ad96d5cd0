"""The deferred messages of all entities, which receivers get by sequence number only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from bridge.background.tasks import Tasks
from bridge.broker.errors import PublishRefused
from bridge.engine import texts
from bridge.engine.api import Received
from bridge.engine.deferral.queue import DeferredQueue
from bridge.engine.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.showing import show
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.message.departure import MoveSource, Told
from bridge.model import entity as model
from bridge.model.errors import MessageLockLost, QuotaExceeded
from bridge.model.name import SubQueue
from bridge.topology.definitions import incarnation_of
from bridge.topology.entity_table import Changes
from bridge.wire.basic import Table
from bridge.wire.deferred import Lock

BODIES_BYTES_MAX = 64 << 20
"""The memory budget of deferred messages' bodies; others are fetched again when asked for."""


class Deferral:
    """Defers messages, and locks deferred ones; a `DeferredQueue` for each entity."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._budget = MemoryBudget(BODIES_BYTES_MAX)
        self._queues: dict[str, DeferredQueue] = {}
        self._ending = Tasks()
        self._deferring = Tasks()

    def __repr__(self) -> str:
        return f"Deferral({self._budget!r}, {list(self._queues.values())})"

    def defer(self, source: MoveSource, holding: HeldMessage, changes: Table, told: Told) -> None:
        """Defer a message; the first one of an entity makes the queue in RabbitMQ.

        A message that is deferred again takes the place that it has. `told` gets QuotaExceeded when
        the queue is full; for other errors see `Departure.defer`.
        """
        told = self._services.departure.begun(source, told)
        self._deferring.start(self._defer(source, holding, changes, told))

    async def _defer(
        self, source: MoveSource, holding: HeldMessage, changes: Table, told: Told
    ) -> None:
        def deferred(error: Exception | None) -> None:
            full = isinstance(error, PublishRefused)
            told(QuotaExceeded(texts.deferred_full(source.queue.path)) if full else error)

        try:
            if not source.is_deferred:
                await self.prepare(source.queue)
            self._services.departure.defer(source, holding, changes, deferred)
        except Exception as error:
            told(error)

    async def prepare(self, queue: model.ReceiveEntity) -> None:
        """Make the queue for an entity's deferred messages in RabbitMQ, if it is missing.

        Raises:
            QuotaExceeded: the queue is full.
            BrokerError: RabbitMQ does not make the queue now.
        """
        deferred = self._of(queue)
        if deferred.is_full:
            raise QuotaExceeded(texts.deferred_full(queue.path))
        await deferred.declare()

    def held(self, entity: str) -> int:
        """Return how many deferred messages of an entity this process holds."""
        deferred = self._queues.get(entity.lower())
        return 0 if deferred is None else deferred.held

    async def lock(
        self, queue: model.ReceiveEntity, sub_queue: SubQueue, numbers: Sequence[int]
    ) -> list[Lock]:
        """Lock all messages with these numbers, or none; another bridge may hold them.

        Raises:
            MessageNotFound: one of them does not exist, or is locked.
            ServerBusy, OperationTimeout: RabbitMQ, or the owner, gives no answer.
        """
        return await self._of(queue).lock(sub_queue, list(numbers))

    async def listed(
        self, queue: model.ReceiveEntity
    ) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the numbers of an entity's deferred messages; see `DeferredQueue.listed`."""
        return await self._of(queue).listed()

    def show(self, token: UUID) -> bytes:
        """Return the encoded message of a lock of this process, for another bridge.

        Raises:
            MessageLockLost: the lock has ended.
        """
        return show(self.received(token))

    def received(self, token: UUID, until_ms: int | None = None) -> Received:
        """Return the message of a lock of this process.

        Raises:
            MessageLockLost: the lock has ended.
        """
        held = self._services.locks.find(token)
        if held is None:
            raise MessageLockLost(texts.LOCK_LOST)
        return held[1].received(lock_token=token, locked_until_ms=until_ms, is_deferred=True)

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions; close the queues of entities that are no more."""
        there = dict(changes.receivable)
        for key in there.keys() | changes.gone:
            deferred, entity = self._queues.get(key), there.get(key)
            if deferred is None:
                continue
            if entity is not None and incarnation_of(entity) == incarnation_of(deferred.queue):
                deferred.update(entity)
                continue
            del self._queues[key]
            self._ending.start(deferred.close())

    async def close(self) -> None:
        """Close all queues: RabbitMQ takes back the messages that are held."""
        closes = (deferred.close() for deferred in self._queues.values())
        await asyncio.gather(*closes, *self._ending, return_exceptions=True)

    def _of(self, queue: model.ReceiveEntity) -> DeferredQueue:
        key = queue.path.lower()
        deferred = self._queues.get(key)
        if deferred is None:
            deferred = DeferredQueue(queue, budget=self._budget, services=self._services)
            self._queues[key] = deferred
        return deferred
