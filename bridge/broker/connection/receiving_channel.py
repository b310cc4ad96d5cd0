"""A channel of the bridge's client as receiving needs it (`message.port.Channel`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from bridge.background.tasks import Tasks
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError, BrokerSilent

OnClosed = Callable[[BrokerError], None]
OnGot = Callable[[Delivery | None], None]

_LOOKS = Tasks()


class ReceivingChannel:
    """See `message.port.Channel`.

    Attributes:
        channel: the channel itself.
        on_closed: called when the channel ends without `close`.
        is_closed: whether the channel has ended; RabbitMQ has taken back its unsettled messages.
        ack, reject, nack: its settlements.
        flush, when_written: see the channel.
    """

    __slots__ = (
        "_ends", "_starting", "ack", "channel", "flush", "is_closed", "nack", "on_closed", "reject",
        "when_written",
    )  # fmt: skip

    def __init__(self, channel: Channel, on_closed: OnClosed | None = None) -> None:
        self.channel = channel
        self.on_closed = on_closed
        # Attributes, and no properties or methods: a call for each message less.
        self.is_closed = channel.is_closed
        self.ack = channel.ack
        self.reject = channel.reject
        self.nack = channel.nack
        self.flush = channel.flush
        self.when_written = channel.when_written
        channel.on_closed = self._on_closed
        self._starting: dict[str, asyncio.Future[Any]] = {}
        self._ends: dict[str, Callable[[], None]] = {}

    def __repr__(self) -> str:
        return f"ReceivingChannel({self.channel!r})"

    @property
    def outstanding(self) -> int:
        """The count of deliveries that are not settled."""
        return self.channel.consumers.outstanding

    @property
    def on_settled(self) -> Callable[[], None] | None:
        """Called whenever the last such delivery is settled."""
        return self.channel.consumers.on_settled

    @on_settled.setter
    def on_settled(self, call: Callable[[], None] | None) -> None:
        self.channel.consumers.on_settled = call

    def consume(
        self,
        queue: str,
        tag: str,
        prefetch: int,
        on_delivery: Callable[[Delivery], None],
        on_ended: Callable[[], None],
        *,
        no_ack: bool = False,
    ) -> None:
        """Begin to consume; `on_ended` is called once, after the last delivery."""
        self._ends[tag] = on_ended
        self._starting[tag] = self.channel.consumers.consume_soon(
            queue, on_delivery, tag=tag, prefetch=prefetch, no_ack=no_ack, on_cancel=self._on_ended
        )

    def cancel(self, tag: str) -> None:
        """Cancel a consumer, after its consume-ok.

        A cancel before the consume-ok makes RabbitMQ's channel crash and takes the whole connection
        with it (541 INTERNAL_ERROR, before 4.3; docs/rabbitmq-faults.md: early-cancel).
        """
        started = self._starting.pop(tag, None)
        if started is None or started.done():
            self._cancel(tag)
        else:
            started.add_done_callback(lambda answer: self._cancel(tag))

    def get(self, queue: str, on_got: OnGot, on_silent: Callable[[], None]) -> None:
        """Get one message, or none; `on_silent`: RabbitMQ has not answered in time."""
        got = self.channel.consumers.get(queue)
        got.add_done_callback(partial(self._on_got, on_got, on_silent))

    def look(
        self, queue: str, on_seen: Callable[[int, int], None], on_silent: Callable[[], None]
    ) -> None:
        """Ask for the queue's numbers of ready messages and of consumers."""
        _LOOKS.start(self._look(queue, on_seen, on_silent))

    def barrier(self, on_passed: Callable[[], None]) -> None:
        """Call `on_passed` when RabbitMQ has carried out all earlier requests of this channel."""
        self.channel.barrier().add_done_callback(partial(self._on_passed, on_passed))

    def close(self) -> None:
        """Close the channel; unsettled messages go back to their queue."""
        self.on_closed = None
        self.channel.abandon()

    def _on_closed(self, error: BrokerError) -> None:
        self.is_closed = True
        if self.on_closed is not None:
            self.on_closed(error)

    def _cancel(self, tag: str) -> None:
        if not self.is_closed:
            ended = self.channel.consumers.cancel(tag)
            ended.add_done_callback(partial(self._on_cancelled, tag))

    def _on_cancelled(self, tag: str, answer: asyncio.Future[Any]) -> None:
        if not self.is_closed:
            self._on_ended(tag)

    def _on_ended(self, tag: str) -> None:
        self._starting.pop(tag, None)
        on_ended = self._ends.pop(tag, None)
        if on_ended is not None:
            on_ended()

    def _on_got(
        self, on_got: OnGot, on_silent: Callable[[], None], answer: asyncio.Future[Delivery | None]
    ) -> None:
        if self.is_closed:
            return
        if answer.cancelled() or answer.exception() is not None:
            on_silent()
        else:
            on_got(answer.result())

    async def _look(
        self, queue: str, on_seen: Callable[[int, int], None], on_silent: Callable[[], None]
    ) -> None:
        try:
            state = await self.channel.declarations.declare_queue(queue, passive=True)
        except BrokerError:
            if not self.is_closed:
                on_silent()
        else:
            on_seen(state.messages, state.consumers)

    def _on_passed(self, on_passed: Callable[[], None], barrier: asyncio.Future[None]) -> None:
        if barrier.cancelled():
            return
        error = barrier.exception()
        if error is None:
            on_passed()
        elif isinstance(error, BrokerSilent) and not self.is_closed:
            self.barrier(on_passed)  # the answer to the first may come later; it comes before this
