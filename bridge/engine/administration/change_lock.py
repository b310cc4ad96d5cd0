"""The change lock of an entity: an exclusive queue, whose holder may change the definition.

A change has a connection of its own: RabbitMQ may answer a declaration by ending the whole
connection (541, under load), which then costs no other entity's change, and no message's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from weakref import WeakValueDictionary

from bridge.background.retry import retry
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.errors import BrokerError, ResourceLocked
from bridge.engine import texts
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.model.errors import ServerBusy
from bridge.topology import names

LOCK_S = 15.0
"""The longest wait of a change for another change of the same entity."""

LOCK_RETRY_S = 0.1


class ChangeLocks:
    """The change locks that this process holds or waits for."""

    def __init__(self, connections: ConsumerConnections) -> None:
        self._connections = connections
        # A lock lives as long as a task holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._changing: dict[str, ConnectionLease] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @contextlib.asynccontextmanager
    async def alone(self, front: str) -> AsyncIterator[None]:
        """Hold the change lock of an entity, within this process and among all bridges.

        Raises:
            ServerBusy: the lock was not free within `LOCK_S`.
        """
        lock = self._locks.setdefault(front.lower(), asyncio.Lock())
        try:
            async with asyncio.timeout(LOCK_S):
                await lock.acquire()
        except TimeoutError:
            raise ServerBusy(texts.change_under_way(front)) from None
        try:
            async with self._connections.apart(f"change of {front}") as lease:
                with await self._exclusive(lease, front) as channel:
                    self._changing[front.lower()] = lease
                    try:
                        yield
                    finally:
                        del self._changing[front.lower()]
                        with contextlib.suppress(BrokerError):
                            await channel.declarations.delete_queue(names.change_lock(front))
        finally:
            lock.release()

    async def channel(self, path: str) -> Channel:
        """Open a channel on the connection of an entity's change; its lock is held (`alone`).

        Raises:
            BrokerError: that connection has ended.
        """
        return await self._changing[names.front_path(path).lower()].channel()

    async def _exclusive(self, lease: ConnectionLease, front: str) -> Channel:
        try:
            return await retry(
                partial(self._try_exclusive, lease, front),
                wait_s=LOCK_RETRY_S,
                retryable=ResourceLocked,
                total_s=LOCK_S,
            )
        except ResourceLocked:
            raise ServerBusy(texts.change_under_way(front)) from None

    @staticmethod
    async def _try_exclusive(lease: ConnectionLease, front: str) -> Channel:
        channel = await lease.channel()
        with contextlib.ExitStack() as unless_had:
            unless_had.enter_context(channel)
            await channel.declarations.declare_queue(
                names.change_lock(front), durable=False, exclusive=True, auto_delete=True
            )
            unless_had.pop_all()
        return channel
