"""The reader of one RabbitMQ queue: it fetches messages for the receivers of this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from bridge.broker.connection.receiving_channel import ReceivingChannel
from bridge.broker.failpoint import reach
from bridge.engine.clock import now_ms
from bridge.engine.receiving.channel_pool import ChannelPool
from bridge.engine.receiving.ready_messages import ReadyMessages
from bridge.engine.receiving.turn import Turn
from bridge.engine.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.credit.strategy import Strategy
from bridge.machine.queue.settled import SettledMemory
from bridge.message.channels import ChannelLimits
from bridge.message.queue_messages import QueueMessages
from bridge.message.wake import Wake
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names

END_S = 1.0
"""The longest wait for the ends of windows when the reader is closed."""


class QueueReader(QueueMessages[ReceivingChannel]):
    """The reader of one RabbitMQ queue.

    Args:
        turn: collects work for the end of a loop turn.
        settled: the memory of settled numbers.
        credit: the strategy, which decides what to fetch.
        channels: the limits of the queue's channels.
        deliver: called with the reader, the receiver's number and its message.

    Attributes:
        ready: the messages that the queue has ready.
    """

    def __init__(
        self,
        path: EntityPath,
        queue: model.ReceiveEntity,
        *,
        services: Services,
        turn: Turn,
        settled: SettledMemory,
        credit: Strategy[HeldMessage],
        channels: ChannelLimits,
        deliver: Callable[[QueueReader, int, HeldMessage], None],
    ) -> None:
        is_dead_letter = path.sub_queue is not SubQueue.NONE
        resource = names.received(queue.path, path.sub_queue)
        self._loop = asyncio.get_running_loop()
        self._locks = services.locks
        self._record = services.settlements.of(resource)
        wake = Wake(turn.soon, self._loop.call_at, self.act)
        self._pool = ChannelPool(
            resource,
            services.connections.route(resource),
            channels,
            supervisor=services.supervisor,
            on_lost=self._on_channels_lost,
            on_ready=wake.soon,
        )
        self._withdrawals: dict[int, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()
        super().__init__(
            queue,
            path.sub_queue,
            credit=credit,
            settled=settled.numbers(),
            departure=services.departure,
            channels=self._pool,
            wake=wake,
            now_s=self._loop.time,
            now_ms=now_ms,
            deliver=partial(deliver, self),
            withdrawn=self._end_withdrawal,
            on_left=self._record.left_active,
            on_failed=self._record.failed.note,
            on_refused=partial(
                services.poison.note, "dead-letter" if is_dead_letter else "active", resource
            ),
            on_acted=self._changed.set,
            reach=reach,
            inquirer=services.inquirer,
        )
        self._record.known = self.machine.copies.settled
        self.ready = ReadyMessages(self._pool, self.fetches, credit, self._changed)

    def withdraw(self, receiver: int) -> Awaitable[None]:
        """Take back a receiver's credit; when awaited, no message comes to it any more."""
        ticket = self.machine.withdraw(receiver)
        done = self._withdrawals[ticket] = self._loop.create_future()
        self._wake.soon()
        return done

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition.

        With a new incarnation all held messages and locks are lost: a later settlement would
        publish an old message into the new entity.
        """
        if self.follow(queue):
            self._pool.give_up()
            self._record.failed.counts.clear()

    def close(self) -> Awaitable[None]:
        """Close the channels: RabbitMQ takes back locked and buffered messages.

        Released messages are returned first, in order.
        """
        self.is_closed = True
        self.act()
        self._wake.close()
        self.machine.close()
        return self._close_channels()

    async def _close_channels(self) -> None:
        """Close the channels, and all windows before when channels end singly.

        Otherwise a window could get the messages that another channel's end returns, and they would
        be counted twice.
        """
        if self._pool.has_own:
            self.fetches.end_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    while self.fetches.windows:
                        self._changed.clear()
                        await self._changed.wait()
        await self._pool.close()

    def _end_withdrawal(self, ticket: int) -> None:
        done = self._withdrawals.pop(ticket)
        if not done.done():
            done.set_result(None)

    def _on_channels_lost(self, channels: list[ReceivingChannel]) -> None:
        self.lose()
        for channel in channels:
            self._locks.lose_channel(channel)
