"""A client's publishing: messages, and questions that are answered by direct reply-to.

A channel is also the client's address: messages of bridges come there in order until the channel
ends. RabbitMQ ends a channel on a publish to an exchange that does not exist or that the user may
not write to. So questions to bridges, and with them sessions, have a channel of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from bridge.client.core.confirms import lost
from bridge.client.core.wire import Channel, Confirmed, Delivery, Timer, Wire
from bridge.client.exceptions import (
    OperationTimeoutError,
    OutcomeUnknownError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from bridge.machine.publication import Publication
from bridge.topology import names
from bridge.wire.basic import Properties, Table
from bridge.wire.headers import DIRECT_REPLY_TO

TIMEOUT_S = 30.0
"""How long a confirm or an answer may take: a takeover of an inbox needs a few seconds."""

Answered = Callable[[bytes | Exception], None]
"""Called with the body of an answer, or with an error."""


class Publisher:
    """Two channels of the publishing connection, opened when needed."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._channels: dict[bool, Channel] = {}
        self._numbers = itertools.count(1)
        self._questions: dict[str, tuple[str, Answered, Timer]] = {}
        self._listeners: dict[str, Answered] = {}

    def check(self) -> None:
        """Check that RabbitMQ reads published messages now.

        Raises:
            ServiceBusServerBusyError: RabbitMQ has an alarm, and would store messages at its end.
        """
        if self._wire.blocked is not None:
            raise ServiceBusServerBusyError(f"RabbitMQ has an alarm: {self._wire.blocked}")

    def publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> None:
        """Publish a message; `confirmed` is called once, after `TIMEOUT_S` at the latest.

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

        channel = self._open(exchange)
        timer = self._wire.later(TIMEOUT_S, give_up)
        channel.publish(exchange, key, properties, body, tell)

    def publish_all(self, publishes: Sequence[Publication], confirmed: Confirmed) -> None:
        """Publish messages; call `confirmed` once: when all are confirmed, or with the first error.

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
            is_kept: the message outlives a restart of RabbitMQ.

        Raises:
            ServiceBusError: no connection, or an alarm; the question was not published.
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
        channel = self._open(exchange)
        self._questions[number] = exchange, answered, self._wire.later(wait_s, give_up)
        channel.publish(exchange, key, properties.encode(), body, confirmed)

    def listen(self, name: str, heard: Answered) -> None:
        """Call `heard` with each message of bridges to a name.

        When the channel ends, `heard` gets the error.
        """
        self._listeners[name] = heard

    def ignore(self, name: str) -> None:
        """Stop listening to a name."""
        self._listeners.pop(name, None)

    def _open(self, exchange: str) -> Channel:
        self.check()
        is_bridges = _is_bridges(exchange)
        channel = self._channels.get(is_bridges)
        if channel is None or channel.is_closed:
            channel = self._wire.open(partial(self._on_closed, is_bridges), has_confirms=True)
            channel.consume(
                DIRECT_REPLY_TO, "replies", 0, self._on_reply, lambda: None, no_ack=True
            )
            self._channels[is_bridges] = channel
        return channel

    def _on_closed(self, is_bridges: bool, error: ServiceBusError) -> None:
        self._channels.pop(is_bridges, None)
        if is_bridges:
            listeners, self._listeners = self._listeners, {}
            for heard in listeners.values():
                heard(error)
        for number, (exchange, *_) in list(self._questions.items()):
            if _is_bridges(exchange) == is_bridges:
                self._answer(number, lost(exchange, "The answer was lost.", str(error)))

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
            _, answered, timer = asked
            timer.cancel()
            answered(answer)


def _is_bridges(exchange: str) -> bool:
    """Whether an exchange leads to bridges; these always exist."""
    return exchange in ("", names.EVENTS)
