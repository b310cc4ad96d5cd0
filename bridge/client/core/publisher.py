"""A client's publishing: messages, and questions that are answered by direct reply-to.

A channel is also the client's address: messages of bridges come there in order until the channel
ends. RabbitMQ ends a channel on a publish to an exchange that does not exist or that the user may
not write to. So questions to bridges, and with them sessions, have a channel of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from bridge.client.core.confirms import UNCONFIRMED, lost
from bridge.client.core.wire import (
    Channel,
    Confirmed,
    NoExchange,
    RefusedPublish,
    Unroutable,
    Wire,
)
from bridge.client.exceptions import (
    OperationTimeoutError,
    OutcomeUnknownError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from bridge.machine.inbox.publication import Publication
from bridge.message import port
from bridge.message.wake import Timer
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
        self._publishes = itertools.count(1)
        self._last: dict[str, int] = {}
        self._questions: dict[str, tuple[str, Answered, Timer]] = {}
        self._unconfirmed: dict[str, int] = {}
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
        self._publish(channel, exchange, key, properties, body, tell)

    def _publish(
        self,
        channel: Channel,
        exchange: str,
        key: str,
        properties: bytes,
        body: bytes,
        confirmed: Confirmed,
    ) -> int:
        """Publish on a channel; return the number of the publish.

        RabbitMQ handles a channel's publishes in order, and ends the channel at the first that it
        cannot do. So where it ends the channel for an exchange, only the last publish to this
        exchange is certainly not stored.
        """
        number = next(self._publishes)

        def settled(error: Exception | None) -> None:
            is_last = self._last.get(exchange) == number
            if isinstance(error, NoExchange | ServiceBusAuthorizationError) and not is_last:
                error = OutcomeUnknownError(f"{UNCONFIRMED} ({error})")
            confirmed(error)

        channel.publish(exchange, key, properties, body, settled)
        self._last[exchange] = number
        return number

    def publish_all(self, publishes: Sequence[Publication], confirmed: Confirmed) -> None:
        """Publish messages; call `confirmed` once, with the outcome of all together.

        Where one is stored and another refused, the outcome is unknown.

        Raises:
            ServiceBusError: there is no connection, or an alarm; nothing was published.
        """
        self.publish_each(publishes, lambda errors: confirmed(together(errors)))

    def publish_each(
        self, publishes: Sequence[Publication], confirmed: Callable[[list[Exception | None]], None]
    ) -> None:
        """Publish messages; call `confirmed` once, with the outcome of each.

        Raises:
            ServiceBusError: there is no connection, or an alarm; nothing was published.
        """
        errors: list[Exception | None] = [None] * len(publishes)
        missing = len(publishes)

        def count(index: int, error: Exception | None) -> None:
            nonlocal missing
            errors[index] = error
            missing -= 1
            if not missing:
                confirmed(errors)

        for index, each in enumerate(publishes):
            try:
                self.publish(*each, partial(count, index))
            except ServiceBusError as error:
                if not index:
                    raise
                count(index, RefusedPublish(str(error)))

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
            self._unconfirmed.pop(number, None)
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
        self._unconfirmed[number] = self._publish(
            channel, exchange, key, properties.encode(), body, confirmed
        )

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
        what, why = "The answer was lost.", str(error)
        for number, (exchange, *_) in list(self._questions.items()):
            if _is_bridges(exchange) == is_bridges:
                is_last = self._unconfirmed.get(number) == self._last[exchange]
                unknown = OutcomeUnknownError(f"{what} ({why})")
                self._answer(number, lost(exchange, what, why) if is_last else unknown)

    def _on_reply(self, delivery: port.Delivery) -> None:
        number = Properties.decode(delivery.properties).correlation_id or ""
        heard = self._listeners.get(number)
        if heard is not None:
            heard(delivery.body)
        else:
            self._answer(number, delivery.body)

    def _answer(self, number: str, answer: bytes | Exception) -> None:
        self._unconfirmed.pop(number, None)
        asked = self._questions.pop(number, None)
        if asked is not None:
            _, answered, timer = asked
            timer.cancel()
            answered(answer)


def is_refused(error: Exception) -> bool:
    """Return whether this outcome says that nothing is stored, and that nothing will be."""
    return isinstance(error, Unroutable | RefusedPublish | ServiceBusAuthorizationError)


def together(errors: Sequence[Exception | None]) -> Exception | None:
    """Return the outcome of publishes together: the first error, if all are stored or all refused.

    Else their outcome is unknown.
    """
    failed = [each for each in errors if each is not None]
    if not failed:
        return None
    if len(failed) == len(errors) and all(map(is_refused, failed)):
        return failed[0]
    unknown = (each for each in failed if isinstance(each, OutcomeUnknownError))
    return next(unknown, OutcomeUnknownError(str(failed[0])))


def _is_bridges(exchange: str) -> bool:
    """Whether an exchange leads to bridges; these always exist."""
    return exchange in ("", names.EVENTS)
