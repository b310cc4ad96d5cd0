"""Carries out the fetches of a queue's machine: windows, gets and looks on its channels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from bridge.machine.credit.effects import Close, Get, Look, Open
from bridge.machine.queue.queue import QueueMachine
from bridge.message.port import Channel, Delivery, when_all

AChannel = TypeVar("AChannel", bound=Channel)

OnSeen = Callable[[int, int], None]
"""Called with a queue's counts of ready messages and of consumers."""


class FetchResults(Protocol):
    """Who is told the results of fetches; see `machine.queue.queue.QueueMachine`."""

    def closed(self, fetch: int) -> None:
        """Note that a window has ended, or that a get or look has failed."""

    def empty(self, fetch: int) -> None:
        """Note that a get has found no message."""

    def counted(self, ready: int) -> None:
        """Take the count of ready messages that came with a got message."""

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """Take the counts of a look."""


class Fetches(Generic[AChannel]):
    """The fetches of one queue.

    Args:
        resource: the queue's name.
        machine: the machine, which is told the results.
        take: returns the channel of the next window or get; `None`: there is none now.
        main: returns the channel of looks, or `None`.
        free: called with the channel of a window or get that has ended.
        returned: called with a channel on which messages may have gone back.
        on_delivery: called with the fetch, its channel and the delivery.
        on_change: called when a fetch has ended.

    Attributes:
        windows: the channels of the windows, by their fetches.
        getting: the count of gets whose answers are due.
        results: who is told the results: the machine, or what waits before it.
    """

    def __init__(
        self,
        resource: str,
        machine: QueueMachine[Any, Any],
        *,
        take: Callable[[], AChannel | None],
        main: Callable[[], AChannel | None],
        free: Callable[[AChannel], None],
        returned: Callable[[AChannel], None],
        on_delivery: Callable[[int, AChannel, Any], None],
        on_change: Callable[[], None],
    ) -> None:
        self.windows: dict[int, AChannel] = {}
        self.getting = 0
        self._resource = resource
        self._machine = machine
        self.results: FetchResults = machine
        self._take = take
        self._main = main
        self._free = free
        self._returned = returned
        self._on_delivery = on_delivery
        self._on_change = on_change
        self._life = 0

    def __repr__(self) -> str:
        return f"Fetches({self._resource!r}, {len(self.windows)} windows, {self.getting} gets)"

    def carry_out(self, effect: Open | Get | Look | Close) -> None:
        """Carry out a fetch, or end one; without a channel a fetch has ended."""
        fetch = effect.fetch
        if isinstance(effect, Close):
            self.end(fetch)
            return
        if isinstance(effect, Look):
            self.look(partial(self._on_looked, fetch), partial(self._on_ended, self._life, fetch))
            return
        channel = self._take()
        if channel is None:
            self._on_ended(self._life, fetch)
        elif isinstance(effect, Open):
            self._open(fetch, channel, effect.size)
        else:
            self.getting += 1
            channel.get(
                self._resource,
                partial(self._on_got, self._life, fetch, channel),
                partial(self._on_silent, self._life, fetch, channel),
            )

    def look(self, on_seen: OnSeen, on_silent: Callable[[], None]) -> None:
        """Ask RabbitMQ for the queue's counts of ready messages and of consumers.

        Without a ready message the answer waits for what was on its way to windows: RabbitMQ's
        channel answers before it has passed on deliveries that are in its mailbox. When the
        channels end before, no answer comes.

        Args:
            on_silent: called instead, when RabbitMQ has not answered in time, or there is no
                channel.
        """
        channel = self._main()
        if channel is None:
            on_silent()
        else:
            on_counted = partial(self._on_counted, self._life, on_seen)
            channel.look(self._resource, on_counted, on_silent)

    def end(self, fetch: int) -> None:
        """Cancel a window."""
        channel = self.windows.get(fetch)
        if channel is not None and not channel.is_closed:
            channel.cancel(_tag(fetch))

    def end_all(self) -> set[AChannel]:
        """Cancel all windows that are open; return their channels."""
        is_open = self._machine.credit.is_open
        ended = [fetch for fetch in self.windows if is_open(fetch)]
        for fetch in ended:
            self.end(fetch)
        return {self.windows[fetch] for fetch in ended}

    def lose(self) -> None:
        """Forget all fetches: their channels have ended."""
        self._life += 1
        self.getting = 0
        self.windows.clear()

    def _open(self, fetch: int, channel: AChannel, size: int) -> None:
        self.windows[fetch] = channel
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
            if self._machine.credit.may_bring(fetch):
                self._returned(channel)  # RabbitMQ has, what was on its way
            self._free(channel)
        self.results.closed(fetch)
        self._on_change()

    def _on_got(self, life: int, fetch: int, channel: AChannel, found: Delivery | None) -> None:
        if life != self._life:
            return
        self.getting -= 1
        if found is None:
            self.results.empty(fetch)
        else:
            self._on_delivery(fetch, channel, found)
            self.results.counted(found.remaining)
        self._free(channel)
        self._on_change()

    def _on_silent(self, life: int, fetch: int, channel: AChannel) -> None:
        if life == self._life:
            self.getting -= 1
            self._free(channel)
            self.results.closed(fetch)
            self._on_change()

    def _on_counted(self, life: int, on_seen: OnSeen, ready: int, consumers: int) -> None:
        if life != self._life:
            return
        filling: dict[AChannel, None] = {}
        if not ready:
            may_bring = self._machine.credit.may_bring
            filling = dict.fromkeys(self.windows[each] for each in self.windows if may_bring(each))
        seen = partial(self._on_seen, life, on_seen, ready, consumers)
        arrived = when_all(len(filling), seen)
        for channel in filling:
            channel.barrier(arrived)

    def _on_seen(self, life: int, on_seen: OnSeen, ready: int, consumers: int) -> None:
        if life == self._life:
            on_seen(ready, consumers)

    def _on_looked(self, fetch: int, ready: int, consumers: int) -> None:
        self.results.looked(fetch, ready, consumers)
        self._on_change()


def _tag(fetch: int) -> str:
    """Return a consumer tag: never a decimal number, by which RabbitMQ names a get."""
    return f"window-{fetch}"
