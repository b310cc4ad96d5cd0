"""Carries out a strategy's effects: windows, gets and looks on the channels of one queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bridge.client.core.channels import Channels
from bridge.client.core.wire import Channel, Delivery
from bridge.machine.credit.effects import Close, Get, Look, Open


class Fetching:
    """The fetches of one queue.

    Args:
        credit: the strategy, which is told the results.
        on_delivery: called with the fetch, its channel and the delivery.
        on_change: called when a fetch has ended.
    """

    def __init__(
        self,
        resource: str,
        credit: Any,
        channels: Channels,
        on_delivery: Callable[[int, Channel, Delivery], None],
        on_change: Callable[[], None],
    ) -> None:
        self._resource = resource
        self._credit = credit
        self._channels = channels
        self._on_delivery = on_delivery
        self._on_change = on_change
        self._windows: dict[int, Channel] = {}
        self._life = 0

    def carry_out(self, effect: Open | Get | Look | Close) -> None:
        """Carry out one effect of the strategy.

        Raises:
            ServiceBusError: no connection.
        """
        match effect:
            case Open(fetch, size):
                self._open(fetch, size)
            case Get(fetch):
                channel = self._channels.take()
                channel.get(self._resource, partial(self._on_got, self._life, fetch, channel))
            case Look(fetch):
                seen = partial(self._on_seen, self._life, fetch)
                self._channels.main().look(self._resource, seen)
            case Close(fetch):
                self.end(fetch)

    def end(self, fetch: int) -> None:
        """Cancel a window."""
        channel = self._windows.get(fetch)
        if channel is not None and not channel.is_closed:
            channel.cancel(_tag(fetch))

    def lose(self) -> None:
        """Forget all windows."""
        self._life += 1
        self._windows.clear()

    def _open(self, fetch: int, size: int) -> None:
        channel = self._windows[fetch] = self._channels.take()
        channel.consume(
            self._resource,
            _tag(fetch),
            size,
            partial(self._on_delivery, fetch, channel),
            partial(self._on_ended, self._life, fetch),
        )

    def _on_ended(self, life: int, fetch: int) -> None:
        if life != self._life:
            return
        channel = self._windows.pop(fetch, None)
        if channel is not None:
            self._channels.let_go(channel)
        self._credit.closed(fetch)
        self._on_change()

    def _on_got(self, life: int, fetch: int, channel: Channel, found: Delivery | None) -> None:
        if life != self._life:
            return
        if found is None:
            self._credit.empty(fetch)
        else:
            self._on_delivery(fetch, channel, found)
            self._credit.counted(found.remaining)
        self._channels.let_go(channel)
        self._on_change()

    def _on_seen(self, life: int, fetch: int, ready: int, consumers: int) -> None:
        if life == self._life:
            self._credit.looked(fetch, ready, consumers)
            self._on_change()


def _tag(fetch: int) -> str:
    """Return a consumer tag: never a decimal number, by which RabbitMQ names a get."""
    return f"window-{fetch}"
