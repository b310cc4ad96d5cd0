"""The channels of a queue's receiver (`message.channels`) on a connection that may be lost."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from bridge.client.core.wire import Channel, Wire
from bridge.client.exceptions import ServiceBusError
from bridge.message.channels import RETIRE_S, ChannelLimits, Channels, OnClosed
from bridge.message.port import Delivery, when_all

FORGOTTEN_MIN = 32
"""Of a channel that ends RabbitMQ may forget settlements above this number, those that it has not
taken yet (docs/rabbitmq-faults.md: forgotten-acks)."""

SETTLE_S = 1.0
"""Time without fetches after a failure: a quorum queue may deliver out of order for a moment then
(docs/rabbitmq-faults.md: order-after-kill)."""


class ClientChannels(Channels[Channel]):
    """The channels of one queue; when one ends, all are ended, and nothing is fetched for a while.

    When a quarter of the connection's channels are in use the next fetches share one.

    Args:
        on_lost: called with the error when the channels and their messages are lost.
        on_ready: called when a fetch may begin again.
    """

    def __init__(
        self,
        wire: Wire,
        limits: ChannelLimits,
        on_lost: Callable[[ServiceBusError], None],
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(
            limits,
            open_own=self._open_own,
            later=wire.later,
            on_lost=lambda error, ended: on_lost(error),
            on_ready=on_ready,
        )
        self._wire = wire
        self._retired: set[Channel] = set()
        self._pauses = 0
        self.set_up(True)

    def shared(self) -> Channel | None:
        """Return the main channel, opened now if need be; `None`: there is no connection."""
        if self.main is None:
            self.main = self._open(partial(self._on_closed, self._life))
        return self.main

    def retire(self, channel: Channel) -> None:
        """Free a channel without a consumer; remember it until it is closed."""
        self._retired = {each for each in self._retired if not each.is_closed} | {channel}
        super().retire(channel)

    def leave(
        self, queue: str, cancelled: Collection[Channel], left: Callable[[], None], *, counts: bool
    ) -> None:
        """Call `left` when RabbitMQ has taken all settlements, so the channels may end.

        A cancel is answered when all that was settled before is taken. Where no consumer was left
        to be cancelled, another of the same tag begins and ends: its answers come behind what the
        queue has been given, and then the channel gives the queue the rest. It gets no message
        while the channel holds one, else one at most, which goes back uncounted.

        Args:
            queue: the queue's name.
            cancelled: the channels on which a consumer was cancelled in this turn.
            counts: RabbitMQ counts every return (before 4.3): `RETIRE_S` has to be enough there.
        """
        main = () if self.main is None else (self.main,)
        channels = {*main, *self._own, *self._retired, *cancelled}
        unsure = [
            each for each in channels if each.settlements > FORGOTTEN_MIN and not each.is_closed
        ]
        passed = when_all(len(unsure), left)
        for each in unsure:
            if each in cancelled:
                each.barrier(passed)
            elif counts:
                self._later(RETIRE_S, passed)
            else:
                each.barrier(partial(_consume_anew, each, queue, passed))

    def pause(self) -> None:
        """Begin no fetch for `SETTLE_S`."""
        self.set_up(False)
        self._pauses += 1
        self._later(SETTLE_S, partial(self._resume, self._pauses))

    def _resume(self, pause: int) -> None:
        if pause == self._pauses:
            self.set_up(True)
            self._on_ready()

    def _open_own(self, on_closed: OnClosed) -> Channel | None:
        return None if self._wire.is_crowded else self._open(on_closed)

    def _open(self, on_closed: OnClosed) -> Channel | None:
        try:
            return self._wire.open(on_closed)
        except ServiceBusError:  # messages of other channels stay locked
            self.pause()
            return None


def _consume_anew(channel: Channel, queue: str, passed: Callable[[], None]) -> None:
    """Have a consumer begin and end; the earlier one of its tag has ended."""
    channel.consume(queue, channel.window, 1, partial(_back, channel), _nothing)
    channel.cancel(channel.window)
    channel.barrier(passed)


def _back(channel: Channel, delivery: Delivery) -> None:
    channel.nack(delivery.tag)


def _nothing() -> None:
    """Nobody waits for the consumer's end."""
