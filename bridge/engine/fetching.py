"""Fetching: the channels that one source's messages come on, and what `Demand` plans for it.

A channel that is lost is opened again when somebody asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, assert_never

from bridge.broker.channel import Channel
from bridge.broker.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.broker.pool import Route
from bridge.engine.apart import Apart
from bridge.engine.holding import Holding
from bridge.machine.channels import Channels
from bridge.machine.demand import Close, Demand, Get, Look, Open

REOPEN_S = 0.5
"""Between two attempts to have a channel, when RabbitMQ closes it again and again."""

END_S = 1.0
"""RabbitMQ's answers are waited for so long at the end."""

LINGER_S = 2.0
"""How long room that nobody wants any more is left open before 4.3, where a message that arrives at
the moment of a cancel is counted as failed: after this long without an arrival that is unlikely."""

CROWDED_S = 0.2
"""How often RabbitMQ is asked whether it still has as many consumers as it may have."""

log = logging.getLogger(__name__)


class Fetching:
    """Windows, gets and looks at one queue of RabbitMQ.

    Args:
        resource: the queue.
        route: where a channel is had.
        demand: what plans, and is told what comes of it.
        channels: what windows and gets are on.
        on_delivery: called with the fetch that has brought a delivery, and the delivery.
        on_lost: called with the channel when all that came on it is lost.
        turn_soon: has `act` called.

    Attributes:
        channel: what messages come on now, except those of consumers apart; `None` while nothing
            can be fetched.
        last_arrival_s: when the last one came, by the loop's clock.
    """

    def __init__(
        self,
        resource: str,
        *,
        route: Route,
        demand: Demand[Holding],
        channels: Channels,
        on_delivery: Callable[[int, Delivery], None],
        on_lost: Callable[[Channel], None],
        turn_soon: Callable[[], None],
    ) -> None:
        self.channel: Channel | None = None
        self.last_arrival_s = 0.0
        self._resource = resource
        self._route = route
        self._demand = demand
        self._on_delivery = on_delivery
        self._on_lost = on_lost
        self._turn_soon = turn_soon
        self._opening: asyncio.Task[None] | None = None
        self._apart = Apart(route, channels, self._on_apart_lost) if channels.are_apart else None
        self._windows: dict[int, Channel] = {}
        self._returning = 0
        self._starting: dict[int, asyncio.Future[Any]] = {}
        self._linger: asyncio.TimerHandle | None = None
        self._crowded: asyncio.TimerHandle | None = None
        self._is_closing = False

    def __repr__(self) -> str:
        return f"Fetching({self._resource!r}, {self.channel!r})"

    @property
    def can_fetch(self) -> bool:
        """Whether `Open`, `Get` and `Look` can be carried out."""
        return self.channel is not None and not self._returning

    def returned(self, channel: Channel) -> None:
        """A message goes back on this channel; on another one nothing may come before it."""
        if self._apart is not None:
            self._returning += 1
            channel.barrier().add_done_callback(self._on_returned)

    def carry_out(self, effect: Open | Get | Look | Close) -> None:
        """Do what was planned."""
        match effect:
            case Open(fetch, size):
                self._open(fetch, size)
            case Get(fetch):
                channel = self._channel_apart()
                got = channel.get_soon(self._resource)
                got.add_done_callback(partial(self._on_got, fetch, channel))
            case Look(fetch):
                asyncio.get_running_loop().create_task(self._look(fetch))
            case Close(fetch):
                self.end(fetch)
            case _:
                assert_never(effect)

    def watch(self) -> None:
        """After all that was planned: have done later what is not due yet."""
        channel, demand = self.channel, self._demand
        if demand.spare > 0 and self._linger is None and channel is not None:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(LINGER_S, self._end_linger)
        if demand.is_crowded and self._crowded is None and not self._is_closing:
            loop = asyncio.get_running_loop()
            self._crowded = loop.call_later(CROWDED_S, self._look_again)
        if channel is None and demand.asked and not self._is_closing:
            self._open_channel_soon(wait_s=0)

    def end(self, fetch: int) -> None:
        """Cancel a window, once RabbitMQ has said that it has begun.

        A cancel that comes before it has said so makes RabbitMQ's channel crash and takes the whole
        connection with it (541 INTERNAL_ERROR, seen on 4.0; docs/rabbitmq-faults.md: early-cancel).
        """
        channel = self._windows.get(fetch)
        if channel is None:
            return
        started = self._starting.pop(fetch, None)
        if started is None or started.done():
            self._cancel(channel, fetch)
        else:
            started.add_done_callback(lambda answer: self._cancel(channel, fetch))

    async def close(self) -> None:
        """Close the channels; what came on them goes back to its queue."""
        self._is_closing = True
        if self._opening is not None:
            self._opening.cancel()
        for timer in (self._linger, self._crowded):
            if timer is not None:
                timer.cancel()
        if self._apart is not None:
            await self._end_windows()
            await self._apart.close()
        if self.channel is not None:
            await self.channel.close()

    async def _end_windows(self) -> None:
        """End those that may take what another channel's end gives back: that would count twice."""
        if starting := list(self._starting.values()):
            await asyncio.wait(starting, timeout=END_S)
        ends = [
            channel.cancel_soon(_window_tag(fetch))
            for fetch, channel in self._windows.items()
            if channel.close_reason is None
        ]
        if ends:
            await asyncio.wait(ends, timeout=END_S)

    def _open_channel_soon(self, *, wait_s: float) -> None:
        if self._opening is None:
            loop = asyncio.get_running_loop()
            self._opening = loop.create_task(self._open_channel(wait_s))

    async def _open_channel(self, wait_s: float) -> None:
        try:
            await asyncio.sleep(wait_s)
            channel = await self._route.channel()
        except BrokerError as error:
            log.info("source.unopened entity=%s error=%s", self._resource, error)
            await asyncio.sleep(REOPEN_S)
        else:
            if channel.close_reason is None:
                channel.on_closed = partial(self._on_closed, channel)
                self.channel = channel
        finally:
            self._opening = None
        self._turn_soon()

    def _on_closed(self, channel: Channel, error: BrokerError) -> None:
        """RabbitMQ has taken everything back; who asked still asks."""
        self.channel = None
        self._starting.clear()
        self._windows.clear()
        self._demand.lost()
        for lost in (channel, *(self._apart.lose() if self._apart is not None else ())):
            self._on_lost(lost)
        if not self._is_closing:
            log.warning("source.lost entity=%s error=%s", self._resource, error)
            self._open_channel_soon(wait_s=REOPEN_S)
        self._turn_soon()

    def _on_returned(self, barrier: asyncio.Future[None]) -> None:
        self._returning -= 1
        self._turn_soon()

    def _on_apart_lost(self) -> None:
        """What one has lost, all have: a source's messages are all there, or none is."""
        if self.channel is not None:
            self.channel.abandon()

    def _channel_apart(self) -> Channel:
        """Return the channel of the next consumer."""
        channel = (self._apart.channel() if self._apart is not None else None) or self.channel
        assert channel is not None
        return channel

    def _open(self, fetch: int, size: int) -> None:
        channel = self._channel_apart()
        self._windows[fetch] = channel
        self._starting[fetch] = channel.consume_soon(
            self._resource,
            partial(self._on_delivery, fetch),
            tag=_window_tag(fetch),
            prefetch=size,
            on_cancel=lambda tag: self._on_window_closed(fetch),
        )

    def _cancel(self, channel: Channel, fetch: int) -> None:
        if channel.close_reason is None:
            closed = channel.cancel_soon(_window_tag(fetch))
            closed.add_done_callback(lambda answer: self._on_window_closed(fetch))

    def _on_window_closed(self, fetch: int) -> None:
        self._starting.pop(fetch, None)
        channel = self._windows.pop(fetch, None)
        if channel is not None and self._apart is not None:
            self._apart.retire(channel)
        self._demand.closed(fetch)
        self._turn_soon()

    def _on_got(self, fetch: int, channel: Channel, answer: asyncio.Future[Any]) -> None:
        if self._apart is not None:
            self._apart.retire(channel)
        if answer.cancelled() or answer.exception() is not None:
            self._demand.closed(fetch)
        elif answer.result() is None:
            self._demand.empty(fetch)
        elif channel.close_reason is None:
            self._on_delivery(fetch, answer.result())
            self._demand.counted(answer.result().remaining)
        self._turn_soon()

    async def _look(self, fetch: int) -> None:
        """Ask how many messages are ready, and how many consumers there are."""
        channel = self.channel
        try:
            assert channel is not None
            state = await channel.declare_queue(self._resource, passive=True)
        except BrokerError:
            self._demand.closed(fetch)
        else:
            self._demand.looked(fetch, state.messages, state.consumers)
        self._turn_soon()

    def _look_again(self) -> None:
        """Others may have settled what they held."""
        self._crowded = None
        self._demand.is_crowded = False
        self._turn_soon()

    def _end_linger(self) -> None:
        """Nobody has wanted the room of open windows for a while: close them."""
        self._linger = None
        is_quiet = self.last_arrival_s + LINGER_S / 2 < asyncio.get_running_loop().time()
        if self.channel is not None and is_quiet:
            for close in self._demand.close_spare():
                self.end(close.fetch)
        self._turn_soon()


def _window_tag(fetch: int) -> str:
    return f"window-{fetch}"
