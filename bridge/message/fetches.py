"""Carries out the fetches of a queue's machine: windows, gets and looks on its channels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from bridge.machine.credit.effects import Close, Get, Look, Open
from bridge.machine.queue.queue import QueueMachine
from bridge.message.port import Channel, Delivery

AChannel = TypeVar("AChannel", bound=Channel)


class Fetches(Generic[AChannel]):
    """The fetches of one queue.

    Args:
        resource: the queue's name.
        machine: the machine, which is told the results.
        take: returns the channel of the next window or get.
        main: returns the channel of looks.
        free: called with the channel of a window or get that has ended.
        on_delivery: called with the fetch, its channel and the delivery.
        on_change: called when a fetch has ended.

    Attributes:
        windows: the channels of the windows, by their fetches.
        getting: the count of gets whose answers are due.
    """

    def __init__(
        self,
        resource: str,
        machine: QueueMachine[Any, Any],
        *,
        take: Callable[[], AChannel],
        main: Callable[[], AChannel],
        free: Callable[[AChannel], None],
        on_delivery: Callable[[int, AChannel, Any], None],
        on_change: Callable[[], None],
    ) -> None:
        self.windows: dict[int, AChannel] = {}
        self.getting = 0
        self._resource = resource
        self._machine = machine
        self._take = take
        self._main = main
        self._free = free
        self._on_delivery = on_delivery
        self._on_change = on_change
        self._life = 0

    def __repr__(self) -> str:
        return f"Fetches({self._resource!r}, {len(self.windows)} windows, {self.getting} gets)"

    def carry_out(self, effect: Open | Get | Look | Close) -> None:
        """Carry out a fetch, or end one; what `take` and `main` raise is raised."""
        fetch = effect.fetch
        if isinstance(effect, Open):
            self._open(fetch, effect.size)
        elif isinstance(effect, Get):
            channel = self._take()
            self.getting += 1
            channel.get(
                self._resource,
                partial(self._on_got, self._life, fetch, channel),
                partial(self._on_silent, self._life, fetch, channel),
            )
        elif isinstance(effect, Look):
            self._main().look(
                self._resource,
                partial(self._on_seen, self._life, fetch),
                partial(self._on_ended, self._life, fetch),
            )
        else:
            self.end(fetch)

    def end(self, fetch: int) -> None:
        """Cancel a window."""
        channel = self.windows.get(fetch)
        if channel is not None and not channel.is_closed:
            channel.cancel(_tag(fetch))

    def lose(self) -> None:
        """Forget all fetches: their channels have ended."""
        self._life += 1
        self.getting = 0
        self.windows.clear()

    def _open(self, fetch: int, size: int) -> None:
        channel = self.windows[fetch] = self._take()
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
        channel = self.windows.pop(fetch, None)
        if channel is not None:
            self._free(channel)
        self._machine.closed(fetch)
        self._on_change()

    def _on_got(self, life: int, fetch: int, channel: AChannel, found: Delivery | None) -> None:
        if life != self._life:
            return
        self.getting -= 1
        if found is None:
            self._machine.empty(fetch)
        else:
            self._on_delivery(fetch, channel, found)
            self._machine.counted(found.remaining)
        self._free(channel)
        self._on_change()

    def _on_silent(self, life: int, fetch: int, channel: AChannel) -> None:
        if life == self._life:
            self.getting -= 1
            self._free(channel)
            self._machine.closed(fetch)
            self._on_change()

    def _on_seen(self, life: int, fetch: int, ready: int, consumers: int) -> None:
        if life == self._life:
            self._machine.looked(fetch, ready, consumers)
            self._on_change()


def _tag(fetch: int) -> str:
    """Return a consumer tag: never a decimal number, by which RabbitMQ names a get."""
    return f"window-{fetch}"
