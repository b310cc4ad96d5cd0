"""The channels of one queue (`message.channels`), and the opening of the main one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from bridge.background.supervisor import Supervisor
from bridge.background.waits import RepeatedWait
from bridge.broker.connection.pool import ChannelRoute
from bridge.broker.connection.receiving_channel import ReceivingChannel
from bridge.broker.errors import BrokerError, NotFound
from bridge.message.channels import ChannelLimits, Channels, OnClosed

REOPEN_S = 0.5
"""The time between two attempts to open a channel."""

RETURNING = "receiving goes on when RabbitMQ has taken back the messages returned to it"
"""Newer messages would overtake them."""

log = logging.getLogger(__name__)


class ChannelPool(Channels[ReceivingChannel]):
    """The channels of one queue; when one ends, all are ended, and the main one is opened again.

    Args:
        resource: the queue's name.
        route: opens channels.
        supervisor: repeats the opening of the main channel; its waits name returns under way.
        on_lost: called with the ended channels: RabbitMQ has taken back all their messages.
        on_ready: called when messages may be fetched again.
    """

    def __init__(
        self,
        resource: str,
        route: ChannelRoute,
        limits: ChannelLimits,
        *,
        supervisor: Supervisor,
        on_lost: Callable[[list[ReceivingChannel]], None],
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(
            limits,
            open_own=self._open_own,
            later=asyncio.get_running_loop().call_later,
            on_lost=self._reopen,
            on_ready=on_ready,
        )
        self._resource = resource
        self._route = route
        self._supervisor = supervisor
        self._on_ended = on_lost
        self._opening: asyncio.Task[None] | None = None
        self._is_closing = False
        self._wait = RepeatedWait(supervisor.waits, resource)

    def set_up(self, is_up: bool) -> None:
        """Set whether channels can be opened now."""
        super().set_up(is_up)
        if not self._returning:
            self._wait.end()

    def returned(self, channel: ReceivingChannel) -> None:
        """Note a return on a channel; while it is under way it is among the waits."""
        super().returned(channel)
        if self._returning:
            self._wait.begin(RETURNING)

    def open_soon(self, wait_s: float = 0) -> None:
        """Open the main channel after `wait_s`, unless it is open or opening."""
        if self.main is None and self._opening is None and not self._is_closing:
            self._opening = self._supervisor.repeat(
                "receiving channel",
                partial(self._open, wait_s),
                subject=self._resource,
                pause_min_s=REOPEN_S,
                pause_max_s=REOPEN_S,
                on_failed=self._note_unopened,
            ).task

    def give_up(self) -> None:
        """End all channels and open a new one: the queue was deleted and made again."""
        if self.main is not None:
            self._on_closed(self._life, NotFound(text="the queue was made anew"))

    async def close(self) -> None:
        """Close all channels: RabbitMQ takes back their unacked messages.

        Channels of one consumer end one after another, as they were taken: RabbitMQ gives messages
        out again in the order in which it took them back, whatever their place was before.
        """
        self._is_closing = True
        self._wait.end()
        if self._opening is not None:
            self._opening.cancel()
        own = list(self._own)
        for each in own:
            each.on_closed = each.on_settled = None
        empty = [each.channel.close() for each in own if not each.outstanding]
        await asyncio.gather(*empty, return_exceptions=True)
        for each in own:
            if not each.is_closed:
                with contextlib.suppress(BrokerError):
                    await each.channel.close()
        if self.main is not None:
            await self.main.channel.close()

    def _open_own(self, on_closed: OnClosed) -> ReceivingChannel | None:
        try:
            return ReceivingChannel(self._route.channel_soon(), on_closed)
        except BrokerError:
            return None

    async def _open(self, wait_s: float) -> None:
        if self.main is not None:
            return
        await asyncio.sleep(wait_s)
        channel = await self._route.channel()
        if channel.close_reason is not None:
            raise channel.close_reason.again()
        self.main = ReceivingChannel(channel, partial(self._on_closed, self._life))
        self._opening = None
        self.set_up(True)
        self._on_ready()

    def _note_unopened(self, error: BaseException, failures: int, wait_s: float) -> None:
        log.info("reader.unopened entity=%s error=%s", self._resource, error)

    def _reopen(self, error: BrokerError, ended: list[ReceivingChannel]) -> None:
        self.set_up(False)
        self._on_ended(ended)
        if not self._is_closing:
            log.warning("reader.lost entity=%s error=%s", self._resource, error)
            self.open_soon(REOPEN_S)
        self._on_ready()
