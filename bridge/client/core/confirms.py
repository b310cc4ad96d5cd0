"""Unconfirmed publishes of one channel."""

from __future__ import annotations

from bridge.client.core.wire import Confirmed, NoExchange, RefusedPublish, Unroutable
from bridge.client.exceptions import OutcomeUnknownError, ServiceBusAuthorizationError
from bridge.wire.returned import numbers_of

_Publish = tuple[str, str, bytes, bytes, Confirmed]
"""Exchange, key, encoded properties, body, and whom to tell."""

UNCONFIRMED = (
    "The connection was lost before RabbitMQ confirmed the message; it may have arrived, or not."
)
RETURNED = "RabbitMQ returned one of several like messages; this one may have arrived, or not."


def lost(exchange: str, what: str, why: str) -> Exception:
    """Return the error of a publish whose channel has ended.

    Args:
        what: the error's text, if the channel did not end for this exchange.
        why: RabbitMQ's reason for the end.
    """
    if f"exchange '{exchange or 'amq.default'}' in vhost" in why:
        if "NOT_FOUND" in why:
            return NoExchange(why)
        if "ACCESS_REFUSED" in why:
            return ServiceBusAuthorizationError(why)
    return OutcomeUnknownError(f"{what} ({why})")


class Confirms:
    """The waiting publishes, by delivery tag.

    RabbitMQ returns a message before it confirms it; the content tells which publish it was.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, _Publish] = {}
        self._returned: dict[int, Exception] = {}
        self._last = 0
        self._last_returned = 0

    def add(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> int:
        """Add a publish; return its delivery tag."""
        self._last += 1
        self._waiting[self._last] = exchange, key, properties, body, confirmed
        return self._last

    def on_return(self, exchange: str, key: str, properties: bytes, body: bytes) -> None:
        """Mark a publish as unroutable; of several that it may be, the outcome is unknown."""
        sent = [
            (tag, publish[2], publish[3])
            for tag, publish in self._waiting.items()
            if tag not in self._returned and publish[:2] == (exchange, key)
        ]
        tags = numbers_of(sent, self._last_returned, properties, body)
        for tag in tags:
            self._last_returned = tag
            self._returned[tag] = (
                Unroutable("no queue took the message")
                if len(tags) == 1
                else OutcomeUnknownError(RETURNED)
            )

    def on_confirm(self, tag: int, *, is_multiple: bool, is_taken: bool) -> None:
        """Take a confirm of RabbitMQ's: an ack or a nack."""
        if is_multiple:
            for each in [each for each in self._waiting if each <= tag]:
                self._settle(each, is_taken=is_taken)
        else:
            self._settle(tag, is_taken=is_taken)

    def lose(self, why: str) -> None:
        """Fail all waiting publishes: the channel has ended."""
        waiting, self._waiting = self._waiting, {}
        for tag, (exchange, *_, confirmed) in waiting.items():
            confirmed(self._returned.pop(tag, None) or lost(exchange, UNCONFIRMED, why))

    def _settle(self, tag: int, *, is_taken: bool) -> None:
        found = self._waiting.pop(tag, None)
        if found is None:
            return
        error = self._returned.pop(tag, None)
        if error is None and not is_taken:
            error = RefusedPublish("a queue is full, or has no leader")
        found[4](error)
