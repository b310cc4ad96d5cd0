"""A channel of RabbitMQ as receiving needs it: the bridge's client, pika and aio-pika implement it.

All calls and callbacks run in one place: an event loop, or an I/O thread. A channel may be used at
once: requests wait until RabbitMQ has opened it. When it ends, RabbitMQ takes back its unsettled
messages, and answers that were due do not come.

**Settlements** leave at the end of the turn at the latest, each delivery's once, in the order of
the calls (acks that follow one another in any order): so an ack never covers a delivery that was
returned, or that nobody has settled (tests/integration/test_settlement_order.py). A channel that
ends in order stays open for a while after its last settlement (`channels.RETIRE_S`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Delivery(Protocol):
    """A message that RabbitMQ delivers."""

    @property
    def tag(self) -> int:
        """The delivery tag."""

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before, as far as RabbitMQ knows."""

    @property
    def exchange(self) -> str:
        """The exchange of the last publish."""

    @property
    def properties(self) -> bytes:
        """The encoded properties."""

    @property
    def body(self) -> bytes:
        """The whole body."""

    @property
    def remaining(self) -> int:
        """The count of messages that are still ready; of a get only."""


class Channel(Protocol):
    """A channel.

    Attributes:
        on_settled: called whenever the last outstanding delivery is settled.
    """

    on_settled: Callable[[], None] | None

    @property
    def is_closed(self) -> bool:
        """Whether the channel has ended; RabbitMQ has taken back its unsettled messages."""

    @property
    def outstanding(self) -> int:
        """The count of deliveries that are to be settled and are not."""

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
        """Begin to consume; `on_ended` is called once, after the last delivery.

        RabbitMQ may end the consumer by itself (its queue was deleted).
        """

    def cancel(self, tag: str) -> None:
        """Cancel a consumer; messages that come before RabbitMQ's answer are delivered.

        The request waits for the consume-ok (docs/rabbitmq-faults.md: early-cancel).
        """

    def get(
        self,
        queue: str,
        on_got: Callable[[Delivery | None], None],
        on_silent: Callable[[], None],
    ) -> None:
        """Get one message, or none.

        Instead of `on_got`, `on_silent` may be called: RabbitMQ has not answered in time. A message
        that comes later goes back.
        """

    def look(
        self, queue: str, on_seen: Callable[[int, int], None], on_silent: Callable[[], None]
    ) -> None:
        """Ask for the queue's numbers of ready messages and of consumers.

        Instead of `on_seen`, `on_silent` may be called: see `get`.
        """

    def ack(self, tag: int) -> None:
        """Ack a message."""

    def reject(self, tag: int) -> None:
        """Return a message, counted as a failed delivery on every version."""

    def nack(self, tag: int) -> None:
        """Return a message, counted before 4.3 only."""

    def barrier(self, on_passed: Callable[[], None]) -> None:
        """Call `on_passed` when RabbitMQ has carried out all earlier requests of this channel.

        As long as the channel is open RabbitMQ is asked again when it has not answered in time.
        """

    def close(self) -> None:
        """Close the channel; unsettled messages go back to their queue."""


def when_all(count: int, then: Callable[[], None]) -> Callable[[], None]:
    """Return what is to be called `count` times; it calls `then` at the last. Of none: at once."""
    left = count

    def one() -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    if not count:
        then()
    return one
