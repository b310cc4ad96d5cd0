"""The channels of a queue's receiver; the loss of any channel loses all.

RabbitMQ has faults with several consumers on one channel (docs/rabbitmq-faults.md: consumed-twice,
returns-order), so each fetch has a channel of its own: before 4.3 the channel is used again when
all its messages are settled, since 4.3 never. In a cluster before 4.3 all fetches share one
channel. When a quarter of the connection's channels are in use the next fetches share one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bridge.client.core.wire import Channel, Wire
from bridge.client.exceptions import ServiceBusError
from bridge.machine.credit.clustered_gets import ClusteredGets
from bridge.machine.credit.gets import Gets
from bridge.machine.credit.strategy import Strategy
from bridge.machine.credit.windows import Windows
from bridge.topology.description import Described

IDLE_MAX = 16
"""How many channels are kept for the next fetches."""

RETIRE_S = 1.0
"""How long a settled channel stays open: a queue that elects a leader loses the acks that it has
not applied when their channel ends."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Whether each fetch has a channel of its own, and how many idle channels are kept."""

    is_apart: bool
    idle_max: int


def way_of(described: Described) -> tuple[Strategy, Limits]:  # type: ignore[type-arg]
    """Return the strategy of fetching, and the limits of channels, for a RabbitMQ."""
    if not described.capabilities.nack_counts:
        return Windows(is_apart=True), Limits(is_apart=True, idle_max=0)
    if described.is_clustered:
        return ClusteredGets(), Limits(is_apart=False, idle_max=0)
    return Gets(), Limits(is_apart=True, idle_max=IDLE_MAX)


class Channels:
    """The channels of one queue.

    Args:
        on_lost: called once when the channels and their messages are lost.
        on_ready: called when a fetch may begin again.
    """

    def __init__(
        self,
        wire: Wire,
        limits: Limits,
        on_lost: Callable[[ServiceBusError], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._wire = wire
        self._limits = limits
        self._on_lost = on_lost
        self._main: Channel | None = None
        self._idle: list[Channel] = []
        self._used: dict[Channel, int] = {}
        self._life = 0
        self._returning = 0
        self._on_ready = on_ready

    @property
    def can_fetch(self) -> bool:
        """Whether a fetch may begin."""
        return not self._returning

    def returned(self, channel: Channel) -> None:
        """Note a return: no fetch begins on another channel before RabbitMQ has carried it out."""
        if self._limits.is_apart:
            self._returning += 1
            channel.barrier(partial(self._on_returned, self._life))

    def main(self) -> Channel:
        """Return the shared channel, which also does the looks.

        Raises:
            ServiceBusError: no connection.
        """
        if self._main is None:
            self._main = self._open()
        return self._main

    def take(self) -> Channel:
        """Return a channel for a fetch.

        Raises:
            ServiceBusError: no connection.
        """
        if not self._limits.is_apart:
            return self.main()
        if not self._idle and self._wire.is_crowded:
            return self.main()
        channel = self._idle.pop() if self._idle else self._open()
        self._used[channel] = 1
        return channel

    def hold(self, channel: Channel) -> None:
        """Count one more message to be settled on this channel."""
        if channel in self._used:
            self._used[channel] += 1

    def let_go(self, channel: Channel) -> None:
        """Count one settled message or ended fetch; the last makes the channel idle."""
        count = self._used.get(channel)
        if count is None:
            return
        if count > 1:
            self._used[channel] = count - 1
            return
        del self._used[channel]
        if len(self._idle) < self._limits.idle_max:
            self._idle.append(channel)
        else:
            self._wire.later(RETIRE_S, channel.close)

    def close(self) -> None:
        """Close all; unsettled messages go back to the queue."""
        self._life += 1
        main = () if self._main is None else (self._main,)
        for channel in (*main, *self._idle, *self._used):
            channel.close()
        self._main = None
        self._returning = 0
        self._idle.clear()
        self._used.clear()

    def _on_returned(self, life: int) -> None:
        if life == self._life:
            self._returning -= 1
            self._on_ready()

    def _open(self) -> Channel:
        return self._wire.open(partial(self._on_closed, self._life))

    def _on_closed(self, life: int, error: ServiceBusError) -> None:
        if life != self._life:
            return
        self.close()
        self._on_lost(error)
