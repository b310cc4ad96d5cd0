"""Unconfirmed publishes of one channel."""

from __future__ import annotations

from bridge.client.core.wire import Confirmed, Refused, Unroutable
from bridge.client.exceptions import OutcomeUnknownError, ServiceBusAuthorizationError

_Route = tuple[str, str]

UNCONFIRMED = (
    "The connection was lost before RabbitMQ confirmed the message; it may have arrived, or not."
)


def lost(exchange: str, what: str, why: str) -> Exception:
    """Return the error of a publish whose channel has ended.

    Args:
        what: the error's text, if the channel did not end for this exchange.
        why: RabbitMQ's reason for the end.
    """
    if f"exchange '{exchange or 'amq.default'}' in vhost" in why:
        if "NOT_FOUND" in why:
            return Unroutable(why)
        if "ACCESS_REFUSED" in why:
            return ServiceBusAuthorizationError(why)
    return OutcomeUnknownError(f"{what} ({why})")


class Confirms:
    """The waiting publishes, by delivery tag.

    A returned message is known by its route only, so all waiting publishes of the route count as
    unroutable: RabbitMQ returns before it confirms.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[_Route, Confirmed]] = {}
        self._returned: set[int] = set()
        self._last = 0

    def add(self, exchange: str, key: str, confirmed: Confirmed) -> int:
        """Add a publish; return its delivery tag."""
        self._last += 1
        self._waiting[self._last] = (exchange, key), confirmed
        return self._last

    def on_return(self, exchange: str, key: str) -> None:
        """Mark the publishes of this route as unroutable."""
        for tag, (route, _) in self._waiting.items():
            if route == (exchange, key):
                self._returned.add(tag)

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
        self._returned.clear()
        for (exchange, _), confirmed in waiting.values():
            confirmed(lost(exchange, UNCONFIRMED, why))

    def _settle(self, tag: int, *, is_taken: bool) -> None:
        found = self._waiting.pop(tag, None)
        if found is None:
            return
        confirmed = found[1]
        if tag in self._returned:
            self._returned.discard(tag)
            confirmed(Unroutable("no queue took the message"))
        else:
            confirmed(None if is_taken else Refused("a queue is full, or has no leader"))
