"""The core's interface to a RabbitMQ connection; each lane implements it on its library.

All calls and callbacks run in one place: the lane's I/O thread or its event loop. Of a channel,
`message.port` has what receiving needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from dataclasses import dataclass
from typing import Any, Protocol

from bridge.client.exceptions import ServiceBusError
from bridge.message import port
from bridge.message.wake import Timer


@dataclass(slots=True)
class Delivery:
    """A message that RabbitMQ delivers (`message.port.Delivery`).

    Attributes:
        tag: the delivery tag.
        redelivered: whether it was delivered before, as far as RabbitMQ knows.
        exchange: the exchange of the last publish.
        properties: encoded.
        remaining: messages still ready; of a get only.
    """

    tag: int
    redelivered: bool
    exchange: str
    properties: bytes
    body: bytes
    remaining: int = 0


class Unroutable(Exception):
    """No queue took the message."""


class NoExchange(Unroutable):
    """RabbitMQ has ended the channel: an exchange does not exist."""


class RefusedPublish(Exception):
    """RabbitMQ refused the message: a queue is full, or has no leader."""


Confirmed = Callable[[Exception | None], None]
"""Called at the confirm, or with an error.

`Unroutable`, `RefusedPublish` and `ServiceBusAuthorizationError` say that nothing is stored; after
any other error the outcome is unknown."""


class Unsettled:
    """The deliveries of a channel that are to be settled.

    Attributes:
        outstanding: their count.
        settlements: how many were settled on this channel.
        window: the tag of the channel's last consumer.
        on_settled: called whenever the last of them is settled.
    """

    outstanding = 0
    settlements = 0
    window = ""
    on_settled: Callable[[], None] | None = None

    def settled(self) -> None:
        """Note a settlement."""
        self.outstanding -= 1
        self.settlements += 1
        if not self.outstanding and self.on_settled is not None:
            self.on_settled()


class Channel(port.Channel, Protocol):
    """A channel; publishes need confirms.

    Attributes:
        settlements, window: see `Unsettled`.
    """

    settlements: int
    window: str

    def publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> None:
        """Publish a message, mandatory."""

    def written(self, call: Callable[[], None]) -> None:
        """Call `call` when all writes of this channel are with the kernel, or lost."""


class Wire(Protocol):
    """A connection that reconnects by itself.

    Attributes:
        blocked: why RabbitMQ does not read from the connection (an alarm blocks publishers), or
            `None`.
    """

    blocked: str | None

    @property
    def is_crowded(self) -> bool:
        """Whether a quarter of the connection's allowed channels are in use."""

    def open(
        self, on_closed: Callable[[ServiceBusError], None], *, has_confirms: bool = False
    ) -> Channel:
        """Return a channel; `on_closed` is called at an end without `close`.

        Args:
            has_confirms: the channel is for publishing.

        Raises:
            ServiceBusError: no connection now.
        """

    def now_ms(self) -> int:
        """Return UTC, ms."""

    def now_s(self) -> float:
        """Return the time of a monotonic clock."""

    def later(self, wait_s: float, call: Callable[[], None]) -> Timer:
        """Call `call` after `wait_s`."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` at the end of this turn."""


class CallerFuture(Protocol):
    """A future of either lane."""

    def done(self) -> bool:
        """Return whether the future is over."""

    def set_result(self, result: Any) -> None:
        """Set the waiter's result."""

    def set_exception(self, error: BaseException) -> None:
        """Set the waiter's exception."""


def succeed(answer: CallerFuture, result: Any = None) -> None:
    """Set the result, unless the caller has given up, even in this instant in another thread."""
    if not answer.done():
        with contextlib.suppress(InvalidStateError):
            answer.set_result(result)


def fail(answer: CallerFuture, error: BaseException) -> None:
    """Set the exception, unless the caller has given up."""
    if not answer.done():
        with contextlib.suppress(InvalidStateError):
            answer.set_exception(error)
