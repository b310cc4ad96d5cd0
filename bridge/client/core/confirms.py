"""Publishes of one channel that RabbitMQ has not confirmed yet."""

from __future__ import annotations

from bridge.client.core.wire import Confirmed, Refused, Unroutable
from bridge.client.exceptions import OutcomeUnknownError

_Route = tuple[str, str]


class Confirms:
    """What waits, by delivery tag.

    A message that is returned is known by its route only, so all that wait on it count as
    unroutable: RabbitMQ returns it before it confirms it.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[_Route, Confirmed]] = {}
        self._returned: set[int] = set()
        self._last = 0

    def add(self, exchange: str, key: str, confirmed: Confirmed) -> int:
        """Something is about to be published; return its delivery tag."""
        self._last += 1
        self._waiting[self._last] = (exchange, key), confirmed
        return self._last

    def on_return(self, exchange: str, key: str) -> None:
        """No queue took a message of this route."""
        for tag, (route, _) in self._waiting.items():
            if route == (exchange, key):
                self._returned.add(tag)

    def on_confirm(self, tag: int, *, is_multiple: bool, is_taken: bool) -> None:
        """RabbitMQ has taken messages, or has not."""
        if is_multiple:
            for each in [each for each in self._waiting if each <= tag]:
                self._settle(each, is_taken=is_taken)
        else:
            self._settle(tag, is_taken=is_taken)

    def lose(self, why: str) -> None:
        """The channel has ended: nobody knows of what waits whether RabbitMQ has it."""
        waiting, self._waiting = self._waiting, {}
        self._returned.clear()
        for _, confirmed in waiting.values():
            confirmed(
                OutcomeUnknownError(
                    f"The connection was lost before RabbitMQ confirmed the message; it may have "
                    f"arrived, or not. ({why})"
                )
            )

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
