"""Deferred messages of all entities: had by their sequence numbers only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from bridge.broker.connection.channel import Channel
from bridge.broker.errors import BrokerError, PublishRefused, Unroutable
from bridge.broker.retry import retry
from bridge.engine import texts
from bridge.engine.api import Received
from bridge.engine.browse.settlements import Settlements
from bridge.engine.deferral.holder import DeferredQueue
from bridge.engine.peers import error_of
from bridge.engine.receiving.intake import Intake
from bridge.engine.sending.sender import REPLY_TIMEOUT_S, Sender
from bridge.engine.settlement.departure import Departure, Origin
from bridge.engine.settlement.holding import Holding
from bridge.engine.settlement.locktable import LockTable
from bridge.engine.settlement.showing import show
from bridge.machine.memory_budget import MemoryBudget
from bridge.model import entity as model
from bridge.model.errors import MessageLockLost, OperationTimeout, QuotaExceeded, ServerBusy
from bridge.model.name import EntityPath, SubQueue
from bridge.wire import headers
from bridge.wire.basic import Table, text
from bridge.wire.deferred import (
    ASK,
    Lock,
    decode_locks,
    encode_ask,
)
from bridge.wire.reply import Refused, decode_reply

BODIES_BYTES_MAX = 64 << 20
"""Bodies of deferred messages that are in memory; others are read again when they are asked for."""

FULL_RETRY_S = 0.2

_HEADERS: Table = {headers.KIND: text(ASK)}


class Deferral:
    """What this process has to do with deferred messages.

    Args:
        on_lost: called when a channel, and all that was locked on it, is lost.
        settlements: hears of what has left the deferred messages.
    """

    def __init__(
        self,
        *,
        intake: Intake,
        sender: Sender,
        departure: Departure,
        locks: LockTable,
        on_lost: Callable[[Channel], None],
        settlements: Settlements,
    ) -> None:
        self._settlements = settlements
        self._intake = intake
        self._sender = sender
        self._departure = departure
        self._locks = locks
        self._on_lost = on_lost
        self._budget = MemoryBudget(BODIES_BYTES_MAX)
        self._queues: dict[str, DeferredQueue] = {}

    def __repr__(self) -> str:
        return f"Deferral({self._budget!r}, {list(self._queues.values())})"

    async def defer(self, origin: Origin, holding: Holding, changes: Table) -> None:
        """Set a message aside; the first of an entity has RabbitMQ's queue made.

        Raises:
            QuotaExceeded: the queue is full.
            ArgumentOutOfRange, ServerBusy, BrokerError: see `Departure.defer`.
        """
        await self.prepare(origin.queue)
        await self._departure.defer(origin, holding, changes)

    async def prepare(self, queue: model.ReceiveEntity) -> None:
        """Have RabbitMQ's queue for an entity's deferred messages.

        Raises:
            QuotaExceeded: it is full.
            BrokerError: RabbitMQ does not make it now.
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
        """Lock all of these messages, wherever they are held, or none.

        Raises:
            MessageNotFound: one of them is not there, or is locked.
            ServerBusy, OperationTimeout: RabbitMQ, or the holder, gives no answer.
        """
        deferred = self._of(queue)
        body = encode_ask(numbers, of_dead_letters=sub_queue is SubQueue.DEAD_LETTER)
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                await deferred.attend()
            answer = await self._ask(deferred.resource, body)
        except TimeoutError as error:
            raise OperationTimeout("RabbitMQ does not deliver deferred messages now.") from error
        except Unroutable as error:
            raise ServerBusy(texts.SERVER_BUSY) from error
        except BrokerError as error:
            raise ServerBusy(f"{texts.SERVER_BUSY} ({error})") from error
        reply = decode_reply(answer)
        if isinstance(reply, Refused):
            raise error_of(reply)
        return decode_locks(reply.numbers)

    async def _ask(self, resource: str, body: bytes) -> bytes:
        """Publish an ask; a full queue takes it as soon as its messages have been delivered."""
        ask = partial(
            self._sender.ask, "", resource, _HEADERS, body, persistent=True, can_expire=True
        )
        return await retry(ask, wait_s=FULL_RETRY_S, retryable=_is_full, total_s=REPLY_TIMEOUT_S)

    def show(self, path: EntityPath, token: UUID) -> bytes:
        """Return what a lock of this process holds, for another bridge (`wire.deferred`).

        Raises:
            MessageLockLost: it has ended.
        """
        return show(self.received(token))

    def received(self, token: UUID, until_ms: int | None = None) -> Received:
        """Return what a lock of this process holds.

        Raises:
            MessageLockLost: it has ended.
        """
        held = self._locks.find(token)
        if held is None:
            raise MessageLockLost(texts.LOCK_LOST)
        return held[1].received(lock_token=token, locked_until_ms=until_ms, is_deferred=True)

    def follow(self, namespace: model.Namespace) -> None:
        """The definitions have changed."""
        for entity in model.receive_entities(namespace):
            deferred = self._queues.get(entity.path.lower())
            if deferred is not None:
                deferred.queue = entity

    async def close(self) -> None:
        """Let go of everything."""
        closes = (deferred.close() for deferred in self._queues.values())
        await asyncio.gather(*closes, return_exceptions=True)

    def _of(self, queue: model.ReceiveEntity) -> DeferredQueue:
        key = queue.path.lower()
        deferred = self._queues.get(key)
        if deferred is None:
            deferred = self._queues[key] = DeferredQueue(
                queue,
                budget=self._budget,
                intake=self._intake,
                sender=self._sender,
                departure=self._departure,
                locks=self._locks,
                on_lost=self._on_lost,
                settlements=self._settlements,
            )
        return deferred


def _is_full(error: BaseException) -> bool:
    return isinstance(error, ServerBusy) and isinstance(error.__cause__, PublishRefused)
