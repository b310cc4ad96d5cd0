"""The consumers of one queue: they carry out the effects of its receiving strategy on channels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, assert_never

from bridge.background.tasks import Tasks
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.engine.receiving.channel_pool import ChannelPool
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.credit.effects import Close, Get, Look, Open
from bridge.machine.credit.strategy import Strategy

END_S = 1.0
"""The longest wait for each kind of RabbitMQ's answers at the end."""


class Consumers:
    """Windows, gets and looks at one queue of RabbitMQ.

    Args:
        resource: the queue's name.
        channels: the queue's channels.
        credit: the strategy, which is told the results of its effects.
        on_delivery: called with the number of a fetch and its delivery.
        on_change: called after each result of a fetch, other than a window's deliveries.
    """

    def __init__(
        self,
        resource: str,
        *,
        channels: ChannelPool,
        credit: Strategy[HeldMessage],
        on_delivery: Callable[[int, Delivery], None],
        on_change: Callable[[], None],
    ) -> None:
        self._resource = resource
        self._channels = channels
        self._credit = credit
        self._on_delivery = on_delivery
        self._on_change = on_change
        self._windows: dict[int, Channel] = {}
        self._starting: dict[int, asyncio.Future[Any]] = {}
        self._getting = 0
        self._looks = Tasks()

    def __repr__(self) -> str:
        return f"Consumers({self._resource!r}, {len(self._windows)} windows)"

    @property
    def is_getting(self) -> bool:
        """Whether an answer to a get is due."""
        return self._getting > 0

    @property
    def beginning(self) -> list[asyncio.Future[Any]]:
        """The answers that are due to the beginnings of windows."""
        return [each for each in self._starting.values() if not each.done()]

    async def arrived(self) -> None:
        """Return when the messages that RabbitMQ has sent to windows so far have come.

        Raises:
            BrokerError: a channel has ended.
        """
        channels = {each for each in self._windows.values() if each.close_reason is None}
        await asyncio.gather(*(each.barrier() for each in channels))

    def carry_out(self, effect: Open | Get | Look | Close) -> None:
        """Carry out an effect of the strategy."""
        match effect:
            case Open(fetch, size):
                self._open(fetch, size)
            case Get(fetch):
                channel = self._channels.take()
                self._getting += 1
                got = channel.consumers.get(self._resource)
                got.add_done_callback(partial(self._on_got, fetch, channel))
            case Look(fetch):
                self._looks.start(self._look(fetch))
            case Close(fetch):
                self.end(fetch)
            case _:
                assert_never(effect)

    def end(self, fetch: int) -> None:
        """Cancel a window, after its consume-ok.

        A cancel before the consume-ok makes RabbitMQ's channel crash and takes the whole connection
        with it (541 INTERNAL_ERROR, before 4.3; docs/rabbitmq-faults.md: early-cancel).
        """
        channel = self._windows.get(fetch)
        if channel is None:
            return
        started = self._starting.pop(fetch, None)
        if started is None or started.done():
            self._cancel(channel, fetch)
        else:
            started.add_done_callback(lambda answer: self._cancel(channel, fetch))

    def lose(self) -> None:
        """Forget all consumers: their channels have ended."""
        self._starting.clear()
        self._windows.clear()

    async def close(self) -> None:
        """Cancel windows, then close the channels: RabbitMQ takes back unacked messages."""
        await self._cancel_all()
        await self._channels.close()

    async def _cancel_all(self) -> None:
        """Cancel all windows when channels end singly.

        Otherwise a window could get the messages that another channel's end returns, and they would
        be counted twice.
        """
        if not self._channels.has_own:
            return
        if starting := list(self._starting.values()):
            await asyncio.wait(starting, timeout=END_S)
        ends = [
            channel.consumers.cancel(_window_tag(fetch))
            for fetch, channel in self._windows.items()
            if channel.close_reason is None
        ]
        if ends:
            await asyncio.wait(ends, timeout=END_S)

    def _open(self, fetch: int, size: int) -> None:
        channel = self._channels.take()
        self._windows[fetch] = channel
        self._starting[fetch] = channel.consumers.consume_soon(
            self._resource,
            partial(self._on_delivery, fetch),
            tag=_window_tag(fetch),
            prefetch=size,
            on_cancel=lambda tag: self._on_closed(fetch),
        )

    def _cancel(self, channel: Channel, fetch: int) -> None:
        if channel.close_reason is None:
            closed = channel.consumers.cancel(_window_tag(fetch))
            closed.add_done_callback(lambda answer: self._on_closed(fetch))

    def _on_closed(self, fetch: int) -> None:
        self._starting.pop(fetch, None)
        channel = self._windows.pop(fetch, None)
        if channel is not None:
            self._channels.retire(channel)
        self._credit.closed(fetch)
        self._on_change()

    def _on_got(self, fetch: int, channel: Channel, answer: asyncio.Future[Any]) -> None:
        self._getting -= 1
        self._channels.retire(channel)
        if answer.cancelled() or answer.exception() is not None:
            self._credit.closed(fetch)
        elif answer.result() is None:
            self._credit.empty(fetch)
        elif channel.close_reason is None:
            self._on_delivery(fetch, answer.result())
            self._credit.counted(answer.result().remaining)
        self._on_change()

    async def _look(self, fetch: int) -> None:
        """Ask how many messages are ready, and how many consumers there are."""
        channel = self._channels.main
        state = None
        try:
            assert channel is not None
            with suppress(BrokerError):
                state = await channel.declarations.declare_queue(self._resource, passive=True)
        finally:
            if state is None:
                self._credit.closed(fetch)
            else:
                self._credit.looked(fetch, state.messages, state.consumers)
            self._on_change()


def _window_tag(fetch: int) -> str:
    return f"window-{fetch}"
