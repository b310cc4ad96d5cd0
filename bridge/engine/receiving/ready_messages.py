"""The messages that a queue has ready when a receiver takes its credit back: they come first."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from bridge.broker.connection.receiving_channel import ReceivingChannel
from bridge.engine.receiving.channel_pool import ChannelPool
from bridge.machine.credit.strategy import Strategy, says_empty
from bridge.message.fetches import Fetches

BRING_S = 1.0
"""The longest wait for ready messages."""

READY_S = 0.05
"""The time between two counts, when messages that were ready do not come: others take them."""


class ReadyMessages:
    """The ready messages of one queue.

    Args:
        changed: set after each change of the queue's fetches and messages here.
    """

    def __init__(
        self,
        channels: ChannelPool,
        fetches: Fetches[ReceivingChannel],
        credit: Strategy[Any],
        changed: asyncio.Event,
    ) -> None:
        self._changed = changed
        self._channels = channels
        self._fetches = fetches
        self._credit = credit

    async def bring(self, receiver: int) -> bool:
        """Wait until the queue has none for a receiver's credit, at most for `BRING_S`.

        Returns:
            Whether that is so; `False`: RabbitMQ has not said it in time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BRING_S):
                while self._credit.balance.waiters.of(receiver):
                    self._changed.clear()
                    if self._is_moving:
                        await self._changed.wait()
                    elif await self._is_empty():
                        break
                return True
        return False

    @property
    def _is_moving(self) -> bool:
        """Whether RabbitMQ's count says nothing: a get, or what waits here, has messages.

        What a receiver has given back waits until a window has closed. RabbitMQ does not count it,
        and nothing is fetched before it is back.
        """
        is_fetching = self._fetches.getting > 0 or not self._channels.can_fetch
        return is_fetching or self._credit.buffered > 0

    async def _is_empty(self) -> bool:
        """Return whether the queue has no ready message; if it has, wait a moment for it."""
        seen: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def tell(ready: int, consumers: int) -> None:
            if not seen.done():
                seen.set_result(says_empty(ready, consumers))

        self._fetches.look(tell, lambda: tell(0, 0))
        if await seen:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READY_S):
                await self._changed.wait()
        return False
