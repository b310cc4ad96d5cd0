"""Consuming on a channel: deliveries, gets, and the settlement of each delivery.

Acks of one turn of the event loop leave together. Acks below the oldest outstanding delivery are
one basic.ack with `multiple`; the rest are single. So the caller of `ack` need not know the other
outstanding deliveries of the channel.

Settlements leave in the order of the calls, but for acks that follow one another. A delivery is
outstanding until its reject or nack is written: a `multiple` that waits must not cover it.

RabbitMQ may forget acks (docs/rabbitmq-faults.md: forgotten-acks). A channel process passes at most
32 unapplied commands on to a quorum queue (`rabbit_fifo_client`, soft limit) and keeps the rest to
itself. When the channel ends then, the kept acks are dropped and their messages come back (seen on
4.0: of 120 single acks before a close, 87 were lost, also with a channel.flow in between).
A close in order therefore waits a little (`linger`).
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from bridge.broker.connection.calls import Calls, PendingCall
from bridge.broker.connection.delivery import Delivery
from bridge.wire import amqp091 as wire
from bridge.wire.basic import Table, short_string

if TYPE_CHECKING:
    from bridge.broker.connection.channel import Channel

SETTLE_LINGER_S = 0.1
"""Time between the last settlement and a close in order; 0.01 s was always enough."""

_DELIVER_TAG = struct.Struct(">QB")
_REQUEUE = 2
_ROUTES_MAX = 1_024
_TAGS = itertools.count(1)


OnDelivery = Callable[[Delivery], None]
OnCancel = Callable[[str], None]


def new_tag() -> str:
    """Return a consumer tag that no other consumer of this process has."""
    return f"busbridge-{next(_TAGS)}"


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
        receiver: the callback for the delivery that was read last; called once its content is in.
        on_settled: called whenever the last outstanding delivery is settled.
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
        self._prefetch: int | None = None
        self.on_settled: Callable[[], None] | None = None

    @property
    def outstanding(self) -> int:
        """The number of deliveries that are not settled yet."""
        return len(self._outstanding)

    @property
    def is_busy(self) -> bool:
        """Whether there is a consumer, an unsettled delivery, or an answer that is due."""
        return bool(self._consumers or self._outstanding or self._calls.is_waiting)

    def qos(self, prefetch: int) -> asyncio.Future[Any]:
        """Set the prefetch of each consumer that starts from now on; 0 means no limit."""
        self._prefetch = prefetch
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
        """Start a consumer and return an awaitable of its tag.

        Args:
            queue: the queue's name.
            on_delivery: called for each message, perhaps before the awaitable is done. An
                exception in it closes the channel.
            tag: the consumer tag, unique on the channel, and not a decimal number (see
                docs/design/connections.md); by default a new one.
            no_ack: RabbitMQ counts messages as settled when it sends them (direct reply-to needs
                this).
            arguments: arguments of basic.consume, such as x-stream-offset.
            on_cancel: called once with the tag when RabbitMQ ends the consumer (queue deleted,
                consumer timeout of 4.3). 4.3 may still deliver to the consumer afterwards; such
                messages go to `on_delivery` like others, lest they stay unsettled for ever.
        """
        tag = tag or new_tag()
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
        """Write basic.consume, after a basic.qos when another prefetch is given than before.

        Returns a future that is done when RabbitMQ has answered basic.consume.
        """
        if prefetch is not None and prefetch != self._prefetch:
            self.qos(prefetch)
        key = short_string(tag)[1:]
        assert key not in self._consumers, f"the consumer tag {tag} is in use"
        # To a quorum queue a get is a consumer, too: its consumer tag is its delivery tag.
        assert not tag.isdecimal(), f"the consumer tag {tag} may be a get's"
        flags = (False, no_ack, False, False)
        started = self._calls.ask(wire.BASIC_CONSUME, 0, queue, tag, *flags, arguments or {})
        self._consumers[key] = _Consumer(tag, on_delivery, on_cancel, no_ack)
        return started

    def cancel(self, tag: str) -> asyncio.Future[Any]:
        """End a consumer; once the future is done, RabbitMQ delivers no more messages to it."""
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
        """Return a future of one message, or of None when the queue is empty.

        Gets may be pipelined. A message that comes after the future was cancelled goes back to its
        queue.
        """
        answers = (wire.BASIC_GET_OK, wire.BASIC_GET_EMPTY)
        return self._calls.ask(wire.BASIC_GET, 0, queue, False, answers=answers)

    def ack(self, tag: int, multiple: bool = False) -> None:
        """Ack a delivery at the end of this turn of the loop.

        Args:
            multiple: also all outstanding deliveries before it.

        Raises:
            BrokerError: the channel is closed.
            ValueError: the delivery is not outstanding.
        """
        if self._calls.close_reason is not None:
            raise self._calls.close_reason.again()
        self._forget(tag)
        if not self._acked:
            self._transport.due.append(self._write_acks)
            self._transport.flush_soon()
        self._acked.append(tag)
        if multiple:
            earlier = [each for each in self._outstanding if each < tag]
            self._acked += earlier
            for each in earlier:
                del self._outstanding[each]
        if not self._outstanding:
            self._tell_settled()

    def ack_all(self) -> None:
        """Ack all outstanding deliveries at the end of this turn of the loop.

        Raises:
            BrokerError: the channel is closed.
        """
        if self._outstanding:
            self.ack(next(reversed(self._outstanding)), multiple=True)

    def reject(self, tag: int, requeue: bool = True) -> None:
        """Return a delivery to its queue, or dead-letter it (basic.reject).

        A return raises the message's delivery count on every version.

        Raises:
            BrokerError: the channel is closed.
            ValueError: the delivery is not outstanding.
        """
        self._settle(wire.BASIC_REJECT, tag, requeue)

    def nack(self, tag: int) -> None:
        """Return a delivery to its queue (basic.nack); 4.3 leaves the delivery count as it is.

        Raises:
            BrokerError: the channel is closed.
            ValueError: the delivery is not outstanding.
        """
        self._settle(wire.BASIC_NACK, tag, _REQUEUE)

    @property
    def linger_s(self) -> float:
        """How long until `SETTLE_LINGER_S` after the last settlement; 0 on a closed channel.

        RabbitMQ needs that time to apply the settlements.
        """
        if self._calls.close_reason is not None:
            return 0.0
        if self._acked:  # written at the end of this turn
            return SETTLE_LINGER_S
        return max(self._settled_s + SETTLE_LINGER_S - self._transport.loop.time(), 0.0)

    def linger(self) -> Awaitable[None]:
        """Write the acks of this turn, and wait for `linger_s`."""
        self._before_write()
        return asyncio.sleep(self.linger_s)

    def _forget(self, tag: int) -> None:
        try:
            del self._outstanding[tag]
        except KeyError:
            text = f"delivery {tag} of channel {self._calls.number} is not outstanding"
            raise ValueError(text) from None

    def _tell_settled(self) -> None:
        if self.on_settled is not None:
            self.on_settled()

    def _settle(self, method: int, tag: int, bits: int) -> None:
        """Write a reject or a nack, behind the acks of this turn."""
        if self._calls.close_reason is not None:
            raise self._calls.close_reason.again()
        if self._acked:
            self._write_acks()
        self._forget(tag)
        self._settled_s = self._transport.loop.time()
        self._transport.write(wire.settle_frame(self._calls.number, method, tag, bits))
        if not self._outstanding:
            self._tell_settled()

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
        """Read basic.deliver; the channel adds the content later and then calls `receiver`."""
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

    def answer_get(self, question: PendingCall, delivery: Delivery) -> None:
        """Answer a get with its message; return the message when the get's future is done."""
        self._outstanding[delivery.tag] = None
        if not question.resolve(delivery):
            self.nack(delivery.tag)

    def on_cancel(self, tag: str) -> None:
        """Take RabbitMQ's cancel of a consumer; 4.3 may send it more than once."""
        consumer = self._consumers.get(short_string(tag)[1:])
        if consumer is not None and not consumer.is_cancelled:
            consumer.is_cancelled = True
            if consumer.on_cancel is not None:
                self._calls.notify(consumer.on_cancel, tag)

    def on_cancel_ok(self, tag: str) -> None:
        """Forget a consumer that has ended."""
        self._consumers.pop(short_string(tag)[1:], None)

    def drop(self) -> None:
        """Forget all consumers and deliveries: the channel has ended.

        RabbitMQ returns the deliveries to their queues.
        """
        self._consumers.clear()
        self._outstanding.clear()
        self._acked.clear()


def _ignore(delivery: Delivery) -> None:
    pass
