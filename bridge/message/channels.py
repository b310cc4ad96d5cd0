"""The channels that one queue is received on: RabbitMQ has faults with several consumers on one.

docs/rabbitmq-faults.md has both faults: consumed-twice (4.3), returns-order (before 4.3).

**Since 4.3, in a cluster.** A channel that consumes twice may lose all its messages.
When a channel's node dies, the leader of a quorum queue is told that the channel is gone, and again
for each consume (or get) of this channel that was still on its way. After the second time RabbitMQ
4.3.6 no longer knows the channel's consumers as disconnected: they keep their messages until the
queue has another leader (`update_consumer_status` in `rabbit_fifo`). A channel whose only consume
is on its way is not watched yet, so the leader is told of it once.

**Before 4.3, on one node.** When a channel ends, a quorum queue returns its consumers' messages
(each unsettled get is a consumer) in the order of an Erlang map. Above 32 keys that order differs
when the queue reads its log again after a restart. From then on acks hit other messages: settled
messages come again, and others are lost. With pika alone, 60 gets of one channel, closed, consumed
again, 30 acked, RabbitMQ killed: of the 30 others some were lost each time (4.0.5). With 60
channels of one get each: none (3 of 3). Such a channel is used again: it has one consumer at a
time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from bridge.machine.credit.clustered_gets import ClusteredGets
from bridge.machine.credit.gets import Gets
from bridge.machine.credit.strategy import Strategy
from bridge.machine.credit.windows import Windows
from bridge.message.port import Channel
from bridge.topology.capabilities import Capabilities

RETIRE_S = 1.0
"""The time that a channel stays open after its last settlement: a queue that elects a leader loses
the acks that it has not applied when their channel ends. It stays for longer while a message is on
its way back on it."""

AChannel = TypeVar("AChannel", bound=Channel)

OnClosed = Callable[[Any], None]
"""Called with the error when a channel ends without `close`."""


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """The limits of a queue's channels.

    Attributes:
        own_max: the most channels of one consumer each; more consumers share the main channel.
        idle_max: the most such channels that are kept, all their messages settled, for reuse.
    """

    own_max: int
    idle_max: int


SHARED = ChannelLimits(own_max=0, idle_max=0)
"""All consumers on the main channel: since 4.3 on one node; before 4.3 in a cluster, with few."""

REUSED = ChannelLimits(own_max=500, idle_max=16)
"""Before 4.3 on one node. Each channel takes memory in RabbitMQ; some 120 were seen."""

SPENT = ChannelLimits(own_max=500, idle_max=0)
"""Since 4.3 in a cluster."""


Way = tuple[Callable[[], Strategy[Any]], ChannelLimits]
"""How messages are received: the maker of a queue's strategy, and the limits of its channels."""


def way_of(capabilities: Capabilities, *, is_clustered: bool, is_apart: bool = False) -> Way:
    """Return the strategy and channel limits for a version of RabbitMQ, clustered or not.

    Args:
        is_apart: since 4.3 each window has a channel of its own also on one node.
    """
    if not capabilities.nack_counts:
        if is_clustered or is_apart:
            return partial(Windows, is_apart=True), SPENT
        return Windows, SHARED
    if is_clustered:
        return ClusteredGets, SHARED
    return Gets, REUSED


class Channels(Generic[AChannel]):
    """The channels of one queue; when one of them ends, all are ended.

    Args:
        open_own: opens a channel for one consumer; `None`: the consumer has to share.
        later: calls a function after some seconds.
        on_lost: called with the error and the ended channels: RabbitMQ has taken back their
            messages.
        on_ready: called when messages may be fetched again.

    Attributes:
        main: the channel for looks, and for consumers without a channel of their own, if open.
        can_fetch: whether a consumer may begin: `set_up`, and no message is on its way back.
    """

    def __init__(
        self,
        limits: ChannelLimits,
        *,
        open_own: Callable[[OnClosed], AChannel | None],
        later: Callable[[float, Callable[[], None]], object],
        on_lost: Callable[[Any, list[AChannel]], None],
        on_ready: Callable[[], None],
    ) -> None:
        self.main: AChannel | None = None
        self.can_fetch = False
        self._limits = limits
        self._open_own = open_own
        self._later = later
        self._on_lost = on_lost
        self._on_ready = on_ready
        self._own: dict[AChannel, None] = {}
        self._idle: list[AChannel] = []
        self._returning: dict[AChannel, int] = {}
        self._is_up = False
        self._life = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.main!r}, {len(self._own)} of one consumer)"

    @property
    def has_own(self) -> bool:
        """Whether consumers have channels of their own now."""
        return bool(self._own)

    def set_up(self, is_up: bool) -> None:
        """Set whether channels can be opened now."""
        self._is_up = is_up
        self.can_fetch = is_up and not self._returning

    def open_soon(self) -> None:
        """Open the main channel, if it is not opened when it is used."""

    def shared(self) -> AChannel | None:
        """Return the main channel; `None`: there is none now."""
        assert self.main is not None, "nothing is fetched without it"
        return self.main

    def take(self) -> AChannel | None:
        """Return the channel of the next consumer; `None`: there is none now."""
        if self._idle:
            channel = self._idle.pop()
            del self._own[channel]
            self._own[channel] = None
            return channel
        if len(self._own) < self._limits.own_max:
            own = self._open_own(partial(self._on_closed, self._life))
            if own is not None:
                self._own[own] = None
                return own
        return self.shared()

    def retire(self, channel: AChannel) -> None:
        """Free a channel without a consumer, once all its messages are settled."""
        if channel not in self._own:
            return
        if channel.outstanding:
            channel.on_settled = partial(self._free, channel)
        else:
            self._free(channel)

    def returned(self, channel: AChannel) -> None:
        """Note a return on a channel.

        With channels of one consumer each, `can_fetch` is false until RabbitMQ has handled the
        return: newer messages on another channel would overtake the message.
        """
        if self._limits.own_max:
            self._returning[channel] = self._returning.get(channel, 0) + 1
            self.can_fetch = False
            channel.barrier(partial(self._on_returned, self._life, channel))

    def end(self) -> list[AChannel]:
        """Close all channels, in the order in which they were taken, and return them.

        RabbitMQ takes back their unacked messages.
        """
        ended = [*self._own] if self.main is None else [self.main, *self._own]
        self._life += 1
        self._returning.clear()
        self.main = None
        self._own.clear()
        self._idle.clear()
        for channel in ended:
            channel.on_settled = None
            channel.close()
        return ended

    def _on_closed(self, life: int, error: Any) -> None:
        """End all channels after one has ended."""
        if life == self._life:
            self._on_lost(error, self.end())

    def _on_returned(self, life: int, channel: AChannel) -> None:
        if life == self._life:
            self._returning[channel] -= 1
            if not self._returning[channel]:
                del self._returning[channel]
            self.set_up(self._is_up)
            self._on_ready()

    def _free(self, channel: AChannel) -> None:
        channel.on_settled = None
        if len(self._idle) < self._limits.idle_max:
            self._idle.append(channel)
        else:
            self._own.pop(channel, None)
            self._later(RETIRE_S, partial(self._close, channel))

    def _close(self, channel: AChannel) -> None:
        """Close a channel that is not used any more, after the answer to its last return."""
        if channel in self._returning:
            self._later(RETIRE_S, partial(self._close, channel))
        else:
            channel.close()
