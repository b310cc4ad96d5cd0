"""Publishing on a channel: numbers, confirms, and the returns that belong to them.

RabbitMQ confirms by number, in any order when targets differ, and many at once with `multiple`.
A mandatory message that no queue takes comes back by basic.return *before* it is confirmed
(https://www.rabbitmq.com/docs/confirms#when-publishes-are-confirmed), without the number
(`bridge.wire.returned`).

What each publish is told follows `bridge.broker.errors`: stored, refused for sure, or unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from bridge.broker.connection.calls import Calls
from bridge.broker.connection.transport import PARTS_MAX
from bridge.broker.errors import (
    AccessRefused,
    BrokerError,
    BrokerSilent,
    HeaderTooLarge,
    NotFound,
    NotStored,
    PublishRefused,
    Unroutable,
    WriteBufferFull,
)
from bridge.broker.outcome import Done, resolve
from bridge.wire import amqp091 as wire
from bridge.wire.returned import numbers_of

_Publish = tuple[str, str, bytes, bytes, Done | None]
"""Exchange, routing key, properties, body, and the callback for the outcome."""

CREDIT = 200
"""RabbitMQ reads 400 publishes of a channel, and 200 more each time that the channel has handled
200. A channel with 32 publishes for a queue without a leader handles all and asks for no more:
after the last that it may read, RabbitMQ reads nothing of the whole connection
(docs/rabbitmq-faults.md: unconfirmed-flow)."""

CONFIRM_TIMEOUT_S = 30.0
"""A confirm that takes longer does not come."""

_ROUTES_MAX = 1_024
_WATCHES = 4
"""Number of checks of the oldest unconfirmed publish within the deadline."""


class ChannelPublisher:
    """The part of a channel that publishes."""

    def __init__(self, calls: Calls, confirm_timeout_s: float) -> None:
        self._calls = calls
        self._number = calls.number
        self._transport = calls.transport
        self._confirm_timeout_s = confirm_timeout_s
        self._routes: dict[tuple[str, str, bool], bytes] = {}
        self._is_confirming = False
        self._published = 0
        self._lowest = 1
        self._unconfirmed: dict[int, _Publish] = {}
        self._returned: dict[int, BrokerError] = {}
        self._last_returned = 0
        self._watch: asyncio.TimerHandle | None = None

    @property
    def unconfirmed(self) -> int:
        """The number of publishes that wait for their confirm."""
        return len(self._unconfirmed)

    @property
    def room(self) -> int:
        """How many publishes may follow, so that a dead queue does not stop the connection.

        The queue of the oldest unconfirmed publish may be dead; what came before it was handled.
        200 to 399 without unconfirmed publishes; 0 or less: wait for a confirm.
        """
        oldest = next(iter(self._unconfirmed)) if self._unconfirmed else self._published + 1
        return (2 + (oldest - 1) // CREDIT) * CREDIT - 1 - self._published

    def leads_to(self, queue: str) -> bool:
        """Whether a publish to this queue by the default exchange waits for its confirm."""
        return any(publish[:2] == ("", queue) for publish in self._unconfirmed.values())

    def confirm_select(self) -> asyncio.Future[Any]:
        """Have every publish confirmed from now on."""
        selected = self._calls.ask(wire.CONFIRM_SELECT, False)
        self._is_confirming = True
        return selected

    def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        *,
        mandatory: bool = True,
        settled: Done | None = None,
    ) -> int:
        """Write a message at the end of this turn of the loop and return its number (1, 2, ...).

        Args:
            exchange: the exchange's name; "" is the default exchange.
            routing_key: the routing key.
            properties: encoded properties.
            body: the whole body.
            mandatory: whether RabbitMQ returns the message when no queue takes it.
            settled: called once: with None when the message is confirmed, with `NotStored` when it
                is refused or returned, and with another error when its outcome is unknown.

        Raises:
            BrokerError: nothing was published (the channel is closed, WriteBufferFull, or
                HeaderTooLarge).
        """
        if self._calls.close_reason is not None:
            raise self._calls.close_reason.again()
        transport = self._transport
        if transport.is_full:
            raise WriteBufferFull(text="RabbitMQ reads too slowly; too much is unsent")
        if len(properties) + wire.CONTENT_HEADER_BYTES > transport.payload_max:
            raise HeaderTooLarge(
                text=f"the properties of a message to {exchange or routing_key!r} have "
                f"{len(properties):,} bytes; a frame holds {transport.payload_max:,}"
            )
        route = exchange, routing_key, mandatory
        method = self._routes.get(route)
        if method is None:
            method = wire.publish_method(self._number, exchange, routing_key, mandatory)
            if len(self._routes) >= _ROUTES_MAX:
                self._routes.clear()
            self._routes[route] = method
        parts = transport.parts
        parts.append(method)
        parts += wire.content_frames(self._number, properties, body, transport.payload_max)
        if len(parts) > PARTS_MAX:
            transport.flush()
        else:
            transport.flush_soon()
        self._published = number = self._published + 1
        if self._is_confirming:
            self._unconfirmed[number] = exchange, routing_key, properties, body, settled
            if self._watch is None:
                self._watch_from(number, 0)
        return number

    def publish_confirmed(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        *,
        mandatory: bool = True,
    ) -> Awaitable[None]:
        """Publish one message and return an awaitable that is done when RabbitMQ confirms it.

        Raises:
            PublishRefused: RabbitMQ refused the message (basic.nack): a queue is full, for one.
            Unroutable: no queue took it.
            BrokerError: the channel or connection was lost; the message may have arrived.
        """
        assert self._is_confirming, "confirm_select comes first"
        future: asyncio.Future[None] = self._transport.loop.create_future()
        self.publish(
            exchange,
            routing_key,
            properties,
            body,
            mandatory=mandatory,
            settled=partial(resolve, future),
        )
        return future

    def on_confirmed(self, number: int, multiple: bool, is_ack: bool) -> None:
        """Take an ack or a nack of RabbitMQ for a publish, or for all up to it."""
        if number == 0 and multiple:
            number = self._published
        if not self._is_confirming or number > self._published:
            raise ValueError(f"a confirm for publish {number} of {self._published}")
        numbers = range(self._lowest if multiple else number, number + 1)
        if numbers.start == self._lowest:
            self._lowest = max(self._lowest, number + 1)
        take = self._unconfirmed.pop
        has_refusals = not is_ack or bool(self._returned)
        error: BrokerError | None = None
        for each in numbers:
            publish = take(each, None)
            if publish is None:
                continue
            if has_refusals:
                error = self._refusal(each, publish, is_ack)
            settled = publish[4]
            if settled is not None:
                try:
                    settled(error)
                except Exception as failure:
                    self._calls.blame(failure)

    def _refusal(self, number: int, publish: _Publish, is_ack: bool) -> BrokerError | None:
        returned = self._returned.pop(number, None)
        if returned is not None or is_ack:
            return returned
        return PublishRefused(text=f"RabbitMQ refused a message to {_place(publish)}")

    def on_return(
        self, code: int, text: str, exchange: str, routing_key: str, properties: bytes, body: bytes
    ) -> None:
        """Take a message that no queue took; its confirm follows."""
        if not self._is_confirming:
            return
        text = f"{text}: no queue took a message to {exchange!r} with key {routing_key!r}"
        sent = [
            (number, publish[2], publish[3])
            for number, publish in self._unconfirmed.items()
            if number not in self._returned and publish[:2] == (exchange, routing_key)
        ]
        numbers = numbers_of(sent, self._last_returned, properties, body)
        for number in numbers:
            self._last_returned = number
            # One of several was returned, the others may be stored.
            kind = Unroutable if len(numbers) == 1 else BrokerError
            self._returned[number] = kind(code, text)

    def _watch_from(self, oldest: int, times: int) -> None:
        self._watch = self._transport.loop.call_later(
            self._confirm_timeout_s / _WATCHES, self._look, oldest, times
        )

    def _look(self, watched: int, times: int) -> None:
        """Close the channel when the same publish has been the oldest one for too long."""
        self._watch = None
        if not self._unconfirmed or self._calls.close_reason is not None:
            return
        oldest = next(iter(self._unconfirmed))
        if oldest != watched or self._transport.is_blocked:
            self._watch_from(oldest, 0)
        elif times + 1 < _WATCHES:
            self._watch_from(oldest, times + 1)
        else:
            place = _place(self._unconfirmed[oldest])
            self._calls.give_up(
                BrokerSilent(
                    text=f"no confirm for a message to {place} in {self._confirm_timeout_s:g} s"
                )
            )

    def fail(self, error: Callable[[], BrokerError]) -> None:
        """Call `settled` of each unconfirmed publish with an error: no confirm comes any more.

        The outcome is unknown, except of what was returned before, and of the last publish to the
        exchange for which RabbitMQ has closed the channel, and those behind it: RabbitMQ handles
        publishes in order, and none after the one that fails.
        """
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        refused_from = self._refused_from(error())
        for number in list(self._unconfirmed):
            publish = self._unconfirmed.pop(number, None)
            if publish is not None and publish[4] is not None:
                outcome = self._returned.pop(number, None) or error()
                if number >= refused_from and not isinstance(outcome, NotStored):
                    outcome = NotStored.because(outcome)
                self._calls.notify(publish[4], outcome)

    def _refused_from(self, error: BrokerError) -> int:
        """Return the number from which on no publish is stored when the channel ends so."""
        if isinstance(error, NotFound | AccessRefused):
            for number in reversed(self._unconfirmed):
                if f"exchange '{self._unconfirmed[number][0]}' in vhost" in error.text:
                    return number
        return self._published + 1


def _place(publish: _Publish) -> str:
    return f"exchange {publish[0]!r} with key {publish[1]!r}"
