"""Batch delete: waiting messages of a queue are received and completed, and no client gets them.

So messages that receivers hold stay, and a delete that is cut short has deleted what it has
counted. Deleted messages count as settled: no second copy of them comes back. Messages come oldest
first. A queue is in the order of its numbers, so the first message that was enqueued too late ends
the delete. Dead letters are not in that order: all of them are looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

from bridge.broker.errors import BrokerError, BrokerSilent
from bridge.broker.ready_counts import may_be_old, queue_state
from bridge.engine import texts
from bridge.engine.api import Complete, Disposition, OnSettled, Received, Receiver
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.model.errors import ServerBusy, ServiceBusError
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names

COUNT_MAX = 4_000
"""The most messages of one request (Azure, batch delete)."""

PORTION = 100
"""The messages that are asked for at a time."""

QUIET_S = 0.05
"""The time without a message after which RabbitMQ is asked whether any is ready."""

STALLED_S = 3.0
"""The longest wait for messages that are ready by RabbitMQ's count: others take them then."""

LASTS_S = 20.0
"""The time after which a delete answers with its count so far: clients wait for a minute."""

Open = Callable[[Callable[[Received], None]], Receiver]
Settle = Callable[[UUID, Disposition, OnSettled], None]
Release = Callable[[UUID], Awaitable[None]]


class Deletion:
    """One request to delete messages.

    Args:
        path: the entity, or its dead-letter sub-queue.
        before_ms: only messages enqueued before this time are deleted (UTC ms).
        portion: the count of messages that are asked for at a time.
        waiting: returns how many of the queue's messages wait in this process for the next
            receiver, or for their return: RabbitMQ does not count them as ready.
        settle: settles a message; calls back when a crash can no longer undo that.
        release: makes a message available again.
    """

    def __init__(
        self,
        path: EntityPath,
        before_ms: int,
        *,
        portion: int,
        waiting: Callable[[], int],
        connections: ConsumerConnections,
        settle: Settle,
        release: Release,
    ) -> None:
        self._queue = names.received(path.entity, path.sub_queue)
        self._is_in_order = path.sub_queue is SubQueue.NONE
        self._before_ms = before_ms
        self._portion = portion
        self._waiting = waiting
        self._connections = connections
        self._settle = settle
        self._release = release
        self._later: list[UUID] = []
        self._settling: list[asyncio.Future[bool]] = []
        self._has_come = asyncio.Event()
        self._unknown: BrokerError | None = BrokerSilent(text="the queue was not asked")

    async def run(self, opened: Open, count: int) -> int:
        """Delete up to `count` messages; return the count of deleted ones.

        Raises:
            ServerBusy: none was deleted, and RabbitMQ does not tell whether there are any.
        """
        receiver = opened(self._on_message)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LASTS_S):
                    await self._receive(receiver, count)
        finally:
            await receiver.close()
            await self._release_later()
        deleted = sum(await asyncio.gather(*self._settling))
        if not deleted and not self._is_at_the_end and self._unknown is not None:
            raise ServerBusy(texts.busy(self._unknown)) from self._unknown
        return deleted

    async def _receive(self, receiver: Receiver, count: int) -> None:
        while (left := count - len(self._settling)) > 0 and not self._is_at_the_end:
            portion = min(left, self._portion)
            came = len(self._settling) + len(self._later)
            receiver.add_credit(portion)
            if not await self._come(came + portion):
                return

    @property
    def _is_at_the_end(self) -> bool:
        return len(self._later) >= (1 if self._is_in_order else COUNT_MAX)

    async def _come(self, count: int) -> bool:
        """Wait until `count` messages have come in all; `False`: there are no more."""
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        while len(self._settling) + len(self._later) < count:
            self._has_come.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._has_come.wait()
                last_s = loop.time()
            except TimeoutError:
                was_unknown = self._unknown is not None
                if loop.time() - last_s > STALLED_S or not await self._has_more():
                    return False
                if was_unknown and self._unknown is None:
                    last_s = loop.time()  # the queue answers since now only
        return True

    async def _has_more(self) -> bool:
        """Return whether messages may be ready or about to be, or the queue does not answer."""
        if self._waiting():
            return True
        try:
            with await self._connections.channel() as channel:
                state = await queue_state(channel, self._queue)
                has_more = state.messages > 0 or may_be_old(channel)
        except BrokerError as error:
            self._unknown = error
            return isinstance(error, BrokerSilent)
        self._unknown = None
        return has_more

    def _on_message(self, received: Received) -> None:
        assert received.lock_token is not None, "it was received with a lock"
        self._has_come.set()
        if received.enqueued_ms >= self._before_ms or (self._later and self._is_in_order):
            self._later.append(received.lock_token)
            return
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        self._settle(received.lock_token, Complete(), partial(_settled, settled))

    async def _release_later(self) -> None:
        for token in self._later:
            with contextlib.suppress(ServiceBusError):
                await self._release(token)


def _settled(settled: asyncio.Future[bool], error: ServiceBusError | None) -> None:
    if not settled.done():  # the waiting caller may be cancelled
        settled.set_result(error is None)
