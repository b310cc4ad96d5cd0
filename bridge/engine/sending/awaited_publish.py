"""A publish that a sender waits for: stored, refused, or unknown, in Azure's words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.errors import BrokerError, Unroutable, is_refused
from bridge.broker.failpoint import reach
from bridge.broker.outcome import Done
from bridge.engine.sending.answers import busy, refusal, unknown
from bridge.engine.sending.publisher import TargetPublisher
from bridge.model.errors import ServiceBusError

Told = Callable[[ServiceBusError | Unroutable | None], None]
"""Called once with the outcome: `None` when RabbitMQ has confirmed the publish, or the error."""


class AwaitedPublish:
    """One publish whose confirm is awaited.

    Args:
        publisher: publishes it.
        told: who is told the outcome, once.
        note: called with RabbitMQ's word, even if that comes too late.

    Attributes:
        timer: ends the wait.
    """

    __slots__ = ("_note", "_publisher", "_told", "timer")

    def __init__(self, publisher: TargetPublisher, told: Told, note: Done) -> None:
        self._publisher = publisher
        self._told: Told | None = told
        self._note = note
        self.timer: asyncio.TimerHandle | None = None

    def settled(self, error: BrokerError | None) -> None:
        """Take RabbitMQ's word, or the end of the channel."""
        self._note(error)
        if self._told is None:
            return  # the outcome was unknown when the wait ended
        if error is None:
            reach("engine.send.confirmed")
            self._tell(None)
        elif isinstance(error, Unroutable):
            self._tell(error)
        else:
            failure = refusal(error) if is_refused(error) else unknown(error)
            failure.__cause__ = error
            self._tell(failure)

    def give_up(self, reason: str) -> None:
        """Wait no longer: a publish that is not written yet never will be."""
        is_withdrawn = self._publisher.withdraw(self.settled)
        self._tell(busy(reason) if is_withdrawn else unknown(reason))

    def _tell(self, error: ServiceBusError | Unroutable | None) -> None:
        told, self._told = self._told, None
        if self.timer is not None:
            self.timer.cancel()
        assert told is not None
        told(error)
