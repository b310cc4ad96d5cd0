"""Consuming on a channel: deliveries, gets, and what becomes of each delivery.

Acks of one turn of the event loop leave together: as far as nothing older is outstanding they
are one basic.ack with `multiple`, the rest are single. So whoever acks need not know what else
is outstanding on the channel.

RabbitMQ may forget acks (docs/rabbitmq-faults.md: forgotten-acks). A channel process passes at most
32 unapplied commands on to a quorum queue (`rabbit_fifo_client`, soft limit) and keeps the rest to
itself; when the channel ends then, these are dropped and their messages come back (seen on 3.10 and
4.0: of 120 single acks before a close, 87 were lost, also with a channel.flow in between). Whoever
closes in order waits a little.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from bridge.broker.connection.calls import Calls, Question
from bridge.broker.connection.delivery import Delivery
from bridge.wire import amqp091 as wire
from bridge.wire.basic import Table, short_string

if TYPE_CHECKING:
    from bridge.broker.connection.channel import Channel

SETTLE_LINGER_S = 0.1
"""How long after the last settlement a close in order waits; 0.01 was always enough."""

_DELIVER_TAG = struct.Struct(">QB")
_REQUEUE = 2
_ROUTES_MAX = 1_024
_TAGS = itertools.count(1)


OnDelivery = Callable[[Delivery], None]
OnCancel = Callable[[str], None]


class _Consumer:
    __slots__ = ("is_cancelled", "no_ack", "on_cancel", "on_delivery", "tag")

    def __init__(
        self, tag: str, on_delivery: OnDelivery, on_cancel: OnCancel | None, no_ack: bool
    ) -> None:
        self.no_ack = no_ack
        self.tag = tag
        self.on_delivery = on_delivery
        self.on_cancel = on_cancel
        self.is_cancelled = False


class ChannelConsumers:
    """The part of a channel that takes messages out of queues.

    Attributes:
        receiver: who takes the delivery that was read last, once its content has come.
        on_settled: called whenever nothing is outstanding any more.
    """

    def __init__(self, channel: Channel, calls: Calls) -> None:
        self._channel = channel
        self._calls = calls
        self._transport = calls.transport
        calls.before_write = self._before_write
        self._consumers: dict[bytes, _Consumer] = {}
        self._outstanding: dict[int, None] = {}
        self._acked: list[int] = []
        self._arrivals: dict[bytes, tuple[str, str]] = {}
        self.receiver: OnDelivery = _ignore
        self._settled_s = 0.0
        self.on_settled: Callable[[], None] | None = None

    @property
    def outstanding(self) -> int:
        """How many deliveries are not settled yet."""
        return len(self._outstanding)

    @property
    def is_busy(self) -> bool:
        """Whether something is delivered, or may be, or an answer is due."""
        return bool(self._consumers or self._outstanding or self._calls.is_waiting)

    def qos(self, prefetch: int) -> asyncio.Future[Any]:
        """Limit what is outstanding for each consumer that starts from now on; 0 is no limit."""
        return self._calls.ask(wire.BASIC_QOS, 0, prefetch, False)

    def consume(
        self,
        queue: str,
        on_delivery: OnDelivery,
        *,
        tag: str | None = None,
        no_ack: bool = False,
        arguments: Table | None = None,
        on_cancel: OnCancel | None = None,
    ) -> Awaitable[str]:
        """Start a consumer; what is awaited returns its tag.

        Args:
            queue: the queue's name.
            on_delivery: called for each message, perhaps before this returns. It must not raise:
                the channel is closed when it does.
            tag: a tag of one's own, unique on the channel, and not a decimal number: see
                docs/design/connections.md.
            no_ack: messages count as settled when they are sent (direct reply-to needs this).
            arguments: of basic.consume, such as x-stream-offset.
            on_cancel: called once with the tag when RabbitMQ ends the consumer (queue deleted,
                consumer timeout of 4.3). 4.3 may still deliver to it afterwards; such messages
                go to `on_delivery` like others, for else they would be stuck.
        """
        tag = tag or f"busbridge-{next(_TAGS)}"
        started = self.consume_soon(
            queue, on_delivery, tag=tag, no_ack=no_ack, arguments=arguments, on_cancel=on_cancel
        )
        return self._begun(tag, started)

    def consume_soon(
        self,
        queue: str,
        on_delivery: OnDelivery,
        *,
        tag: str,
        prefetch: int | None = None,
        no_ack: bool = False,
        arguments: Table | None = None,
        on_cancel: OnCancel | None = None,
    ) -> asyncio.Future[Any]:
        """Write what starts a consumer, perhaps with a prefetch of its own.

        Returns what is done when RabbitMQ has answered.
        """
        if prefetch is not None:
            self.qos(prefetch)
        key = short_string(tag)[1:]
        assert key not in self._consumers, f"the consumer tag {tag} is in use"
        # A get is a consumer of a quorum queue's too, and its delivery tag is its consumer tag.
        assert not tag.isdecimal(), f"the consumer tag {tag} may be a get's"
        flags = (False, no_ack, False, False)
        started = self._calls.ask(wire.BASIC_CONSUME, 0, queue, tag, *flags, arguments or {})
        self._consumers[key] = _Consumer(tag, on_delivery, on_cancel, no_ack)
        return started

    def cancel(self, tag: str) -> asyncio.Future[Any]:
        """End a consumer; when that is done, nothing more is delivered to it."""
        return self._calls.ask(wire.BASIC_CANCEL, tag, False)

    async def _begun(self, tag: str, started: asyncio.Future[Any]) -> str:
        try:
            # Before 4.3 a basic.cancel that comes before consume-ok crashes RabbitMQ's channel.
            await asyncio.shield(started)
        except asyncio.CancelledError:
            started.add_done_callback(partial(self._cancel_started, tag))
            raise
        return tag

    def _cancel_started(self, tag: str, started: asyncio.Future[Any]) -> None:
        if started.exception() is None and self._calls.close_reason is None:
            self.cancel(tag)

    def get(self, queue: str) -> asyncio.Future[Delivery | None]:
        """Take one message, or None when the queue is empty; gets may be pipelined.

        A message that comes when the future was cancelled goes back to its queue.
        """
        answers = (wire.BASIC_GET_OK, wire.BASIC_GET_EMPTY)
        return self._calls.ask(wire.BASIC_GET, 0, queue, False, answers=answers)

    def ack(self, tag: int, multiple: bool = False) -> None:
        """Settle a delivery, or all up to it, at the end of this turn of the loop."""
        if self._calls.close_reason is not None:
            raise self._calls.close_reason.again()
        if multiple:
            self._forget_up_to(tag)
            self._settle(wire.BASIC_ACK, tag, 1)
            return
        self._forget(tag)
        if not self._acked:
            self._transport.due.append(self._write_acks)
            self._transport.flush_soon()
        self._acked.append(tag)

    def reject(self, tag: int, requeue: bool) -> None:
        """Give a delivery back, or dead-letter it; a return counts on every version."""
        if self._calls.close_reason is not None:
            raise self._calls.close_reason.again()
        self._forget(tag)
        self._settle(wire.BASIC_REJECT, tag, requeue)

    def nack(self, tag: int) -> None:
        """Give a delivery back; that does not count on 4.3."""
        if self._calls.close_reason is not None:
            raise self._calls.close_reason.again()
        self._forget(tag)
        self._settle(wire.BASIC_NACK, tag, _REQUEUE)

    def linger(self) -> Awaitable[None]:
        """Write what was settled and give RabbitMQ time to apply it."""
        self._before_write()
        wait_s = self._settled_s + SETTLE_LINGER_S - self._transport.loop.time()
        return asyncio.sleep(max(wait_s, 0) if self._calls.close_reason is None else 0)

    def _forget(self, tag: int) -> None:
        try:
            del self._outstanding[tag]
        except KeyError:
            text = f"delivery {tag} of channel {self._calls.number} is not outstanding"
            raise ValueError(text) from None
        if self.on_settled is not None and not self._outstanding:
            self.on_settled()

    def _forget_up_to(self, tag: int) -> None:
        for each in [each for each in self._outstanding if each <= tag]:
            self._forget(each)

    def _settle(self, method: int, tag: int, bits: int) -> None:
        self._before_write()
        self._settled_s = self._transport.loop.time()
        self._transport.write(wire.settle_frame(self._calls.number, method, tag, bits))

    def _before_write(self) -> None:
        if self._acked:
            self._write_acks()

    def _write_acks(self) -> None:
        """Write the acks of this turn: one for all below the oldest outstanding, then singles."""
        acked, self._acked = self._acked, []
        if not acked or self._calls.close_reason is not None:
            return
        self._settled_s = self._transport.loop.time()
        acked.sort()
        oldest = next(iter(self._outstanding), acked[-1] + 1)
        below = len(acked)
        if acked[-1] > oldest:
            below = next(index for index, tag in enumerate(acked) if tag > oldest)
        parts = self._transport.parts
        if below:
            last = acked[below - 1]
            parts.append(wire.settle_frame(self._calls.number, wire.BASIC_ACK, last, below > 1))
        parts += [
            wire.settle_frame(self._calls.number, wire.BASIC_ACK, tag, 0) for tag in acked[below:]
        ]

    def read_deliver(self, raw: bytes, start: int, end: int) -> Delivery:
        """Read basic.deliver; the content is put in, and `receiver` called, when it has come."""
        at = start + 5 + raw[start + 4]
        consumer = self._consumers.get(raw[start + 5 : at])
        tag, redelivered = _DELIVER_TAG.unpack_from(raw, at)
        route = raw[at + 9 : end]
        arrival = self._arrivals.get(route)
        if arrival is None:
            arguments = wire.read_method(raw, start, end).arguments
            arrival = cast("tuple[str, str]", arguments[3:])
            if len(self._arrivals) >= _ROUTES_MAX:
                self._arrivals.clear()
            self._arrivals[route] = arrival
        if consumer is None:
            raise ValueError(f"a delivery for the unknown consumer {raw[start + 5 : at]!r}")
        if not consumer.no_ack:
            self._outstanding[tag] = None
        self.receiver = consumer.on_delivery
        return Delivery(
            tag,
            redelivered != 0,
            arrival[0],
            arrival[1],
            b"",
            b"",
            consumer.tag,
            self._channel,
        )

    def answer_get(self, question: Question, delivery: Delivery) -> None:
        """Hand a message to whoever asked for one; it goes back when nobody waits any more."""
        self._outstanding[delivery.tag] = None
        if not question.resolve(delivery):
            self.nack(delivery.tag)

    def on_cancel(self, tag: str) -> None:
        """RabbitMQ ended a consumer; 4.3 may say so more than once."""
        consumer = self._consumers.get(short_string(tag)[1:])
        if consumer is not None and not consumer.is_cancelled:
            consumer.is_cancelled = True
            if consumer.on_cancel is not None:
                self._calls.notify(consumer.on_cancel, tag)

    def on_cancel_ok(self, tag: str) -> None:
        """Forget a consumer that has ended."""
        self._consumers.pop(short_string(tag)[1:], None)

    def drop(self) -> None:
        """Forget all: the channel has ended, and RabbitMQ gives it back."""
        self._consumers.clear()
        self._outstanding.clear()
        self._acked.clear()


def _ignore(delivery: Delivery) -> None:
    pass
