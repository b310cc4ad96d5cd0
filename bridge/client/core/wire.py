"""What the core needs of a connection to RabbitMQ; each lane has one, on its library.

All is called, and calls back, in one place: the lane's I/O thread or its event loop. A channel may
be used from the moment it is made: what is asked before RabbitMQ has opened it waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from dataclasses import dataclass
from typing import Any, Protocol

from bridge.client.exceptions import ServiceBusError

BLOCKED_GRACE_S = 2.0
"""What RabbitMQ had read before it raised its alarm is confirmed within this time."""


@dataclass(slots=True)
class Delivery:
    """What RabbitMQ delivers.

    Attributes:
        tag: its delivery tag.
        exchange: where it was published last.
        properties: encoded, as they came.
        remaining: how many more are ready; of a get only.
    """

    tag: int
    exchange: str
    properties: bytes
    body: bytes
    remaining: int = 0


class Unroutable(Exception):
    """No queue took a message."""


class Refused(Exception):
    """RabbitMQ did not take a message: a queue is full, or has no leader."""


Confirmed = Callable[[Exception | None], None]
"""Told when RabbitMQ has a message, or why not: `Unroutable`, `Refused`, `ServiceBusError`."""


class Timer(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """It will not."""


class Channel(Protocol):
    """A channel; what is published on needs confirms."""

    @property
    def is_closed(self) -> bool:
        """Whether it has ended; RabbitMQ has taken back what was not settled."""

    def publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> None:
        """Publish; mandatory."""

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
        """Begin to consume; `on_ended` is called once, when nothing more comes."""

    def cancel(self, tag: str) -> None:
        """End that; what comes before RabbitMQ has answered is delivered."""

    def get(self, queue: str, on_got: Callable[[Delivery | None], None]) -> None:
        """Get one message, or none."""

    def look(self, queue: str, on_seen: Callable[[int, int], None]) -> None:
        """Ask how many messages are ready, and how many consumers there are."""

    def ack(self, tag: int) -> None:
        """Settle a message for good."""

    def written(self, call: Callable[[], None]) -> None:
        """Have something called when what was said here is with the kernel, or lost."""

    def reject(self, tag: int) -> None:
        """Give a message back; that counts as a failed delivery on every version."""

    def nack(self, tag: int) -> None:
        """Give a message back; that counts before 4.3 only."""

    def barrier(self, on_passed: Callable[[], None]) -> None:
        """Have `on_passed` called when RabbitMQ has carried out all that was asked here."""

    def close(self) -> None:
        """End it; what is not settled goes back to its queue."""


class Wire(Protocol):
    """A connection that comes back by itself.

    Attributes:
        blocked: why RabbitMQ reads nothing of it, as it does with one that publishes in an alarm.
    """

    blocked: str | None

    @property
    def is_crowded(self) -> bool:
        """Whether a quarter of the channels that RabbitMQ allows it are in use."""

    def open(
        self, on_closed: Callable[[ServiceBusError], None], *, has_confirms: bool = False
    ) -> Channel:
        """Return a channel; `on_closed` is called when it ends without `close`.

        Args:
            has_confirms: it is published on.

        Raises:
            ServiceBusError: there is no connection now.
        """

    def now_ms(self) -> int:
        """UTC, ms."""

    def now_s(self) -> float:
        """A clock that only goes forward."""

    def later(self, wait_s: float, call: Callable[[], None]) -> Timer:
        """Call something after a while."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call something at the end of this turn."""


class Answer(Protocol):
    """A future of either lane."""

    def done(self) -> bool:
        """Whether it has a result, or was given up."""

    def set_result(self, result: Any) -> None:
        """Have its waiter go on."""

    def set_exception(self, error: BaseException) -> None:
        """Have its waiter fail."""


def succeed(answer: Answer, result: Any = None) -> None:
    """Give a result to whoever still waits; he may give up in this instant, in his own thread."""
    if not answer.done():
        with contextlib.suppress(InvalidStateError):
            answer.set_result(result)


def fail(answer: Answer, error: BaseException) -> None:
    """Give an error to whoever still waits."""
    if not answer.done():
        with contextlib.suppress(InvalidStateError):
            answer.set_exception(error)
