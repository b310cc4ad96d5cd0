"""What a client publishes: messages, and questions that are answered by direct reply-to.

To others the channel is an address: what is said to it comes here, in order, as long as it lasts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from bridge.client.core.wire import Channel, Confirmed, Delivery, Timer, Wire
from bridge.client.exceptions import (
    OperationTimeoutError,
    OutcomeUnknownError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from bridge.machine.publication import Publication
from bridge.wire.basic import Properties, Table
from bridge.wire.headers import DIRECT_REPLY_TO

TIMEOUT_S = 30.0
"""A sequencer that takes over an inbox needs a few seconds."""

Answered = Callable[[bytes | Exception], None]
"""Given the body of an answer, or why there is none."""


class Publisher:
    """One channel of the publishing connection, opened when it is needed."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._channel: Channel | None = None
        self._numbers = itertools.count(1)
        self._questions: dict[str, tuple[Answered, Timer]] = {}
        self._listeners: dict[str, Answered] = {}

    def check(self) -> None:
        """See that RabbitMQ would read what is published.

        Raises:
            ServiceBusServerBusyError: it has an alarm; it would store it when that is over.
        """
        if self._wire.blocked is not None:
            raise ServiceBusServerBusyError(f"RabbitMQ has an alarm: {self._wire.blocked}")

    def publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> None:
        """Publish; `confirmed` is called once, after `TIMEOUT_S` at the latest.

        Raises:
            ServiceBusError: there is no connection, or an alarm; nothing was published.
        """
        is_told = False

        def tell(error: Exception | None) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                timer.cancel()
                confirmed(error)

        def give_up() -> None:
            tell(OutcomeUnknownError("RabbitMQ has not confirmed the message in time."))

        channel = self._open()
        timer = self._wire.later(TIMEOUT_S, give_up)
        channel.publish(exchange, key, properties, body, tell)

    def publish_all(self, publishes: Sequence[Publication], confirmed: Confirmed) -> None:
        """Publish; `confirmed` is called once: when all are confirmed, or with the first error.

        Raises:
            ServiceBusError: there is no connection, or an alarm; nothing was published.
        """
        left = len(publishes)

        def count(error: Exception | None) -> None:
            nonlocal left
            left -= 1
            if left == 0 or (error is not None and left > 0):
                left = 0
                confirmed(error)

        for index, each in enumerate(publishes):
            try:
                self.publish(*each, count)
            except ServiceBusError as error:
                if not index:
                    raise
                count(error)

    def ask(
        self, exchange: str, key: str, headers: Table, body: bytes, answered: Answered,
        *, kind: str | None = None, is_kept: bool = False, wait_s: float = TIMEOUT_S,
    ) -> None:  # fmt: skip
        """Publish a question.

        Args:
            kind: the message's type.
            is_kept: it outlives a restart of RabbitMQ.

        Raises:
            ServiceBusError: there is no connection, or an alarm; nothing was asked.
        """
        number = str(next(self._numbers))

        def give_up() -> None:
            self._answer(number, OperationTimeoutError("There was no answer in time."))

        def confirmed(error: Exception | None) -> None:
            if error is not None:
                self._answer(number, error)

        properties = Properties(
            headers=headers or None,
            delivery_mode=2 if is_kept else 1,
            reply_to=DIRECT_REPLY_TO,
            correlation_id=number,
            type=kind,
            expiration=None if is_kept else str(int(wait_s * 1000)),
        )
        channel = self._open()
        self._questions[number] = answered, self._wire.later(wait_s, give_up)
        channel.publish(exchange, key, properties.encode(), body, confirmed)

    def listen(self, name: str, heard: Answered) -> None:
        """Have what comes under a name heard, until the channel ends: then `heard` is told so."""
        self._listeners[name] = heard

    def ignore(self, name: str) -> None:
        """Hear nothing more under a name."""
        self._listeners.pop(name, None)

    def _open(self) -> Channel:
        self.check()
        if self._channel is None or self._channel.is_closed:
            self._channel = self._wire.open(self._on_closed, has_confirms=True)
            self._channel.consume(
                DIRECT_REPLY_TO, "replies", 0, self._on_reply, lambda: None, no_ack=True
            )
        return self._channel

    def _on_closed(self, error: ServiceBusError) -> None:
        self._channel = None
        listeners, self._listeners = self._listeners, {}
        for heard in listeners.values():
            heard(error)
        for number in list(self._questions):
            self._answer(number, OutcomeUnknownError(f"The answer was lost: {error}"))

    def _on_reply(self, delivery: Delivery) -> None:
        number = Properties.decode(delivery.properties).correlation_id or ""
        heard = self._listeners.get(number)
        if heard is not None:
            heard(delivery.body)
        else:
            self._answer(number, delivery.body)

    def _answer(self, number: str, answer: bytes | Exception) -> None:
        asked = self._questions.pop(number, None)
        if asked is not None:
            answered, timer = asked
            timer.cancel()
            answered(answer)
