"""Which messages a command means: by a condition, by their states, and by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from bridge.model.filters.errors import FilterException
from bridge.operations.condition import Condition
from bridge.remote.message import RemoteMessage, State


@dataclass(frozen=True, slots=True)
class MessageSelection:
    """What is asked for; without anything, all messages are.

    Attributes:
        condition: what must be true for a message.
        states: states of peeked messages; empty for any. A received message is active.
        numbers: sequence numbers; empty for any.
        enqueued_from_ms, enqueued_before_ms: of the enqueued times that are meant, UTC ms; `None`:
            any.
    """

    condition: Condition | None = None
    states: Collection[State] = ()
    numbers: Collection[int] = ()
    enqueued_from_ms: int | None = None
    enqueued_before_ms: int | None = None

    @classmethod
    def of(
        cls,
        where: str | None,
        new_id: Callable[[], UUID],
        *,
        states: Collection[State] = (),
        numbers: Collection[int] = (),
    ) -> Self:
        """Return the selection of a condition's text.

        Raises:
            InvalidRule: the condition is none; the text says where.
        """
        condition = None if where is None else Condition(where, new_id)
        return cls(condition, frozenset(states), frozenset(numbers))

    @property
    def is_everything(self) -> bool:
        """Whether every message is meant."""
        times = self.enqueued_from_ms, self.enqueued_before_ms
        is_any_time = times == (None, None)
        return self.condition is None and not self.states and not self.numbers and is_any_time

    def takes(self, message: RemoteMessage) -> bool:
        """Return whether a message is meant.

        Raises:
            FilterException: the condition cannot be held against it.
        """
        if self.states and message.state not in self.states:
            return False
        if self.numbers and message.sequence_number not in self.numbers:
            return False
        if not self._is_of_its_time(message):
            return False
        if self.condition is None:
            return True
        if message.unread:
            raise FilterException("The bytes are no message of AMQP 1.0.")
        return self.condition.takes(message)

    def _is_of_its_time(self, message: RemoteMessage) -> bool:
        first, end = self.enqueued_from_ms, self.enqueued_before_ms
        if first is None and end is None:
            return True
        return message.enqueued_time_ms is not None and is_within(
            message.enqueued_time_ms, first, end
        )


def is_within(value: int, first: int | None, end: int | None) -> bool:
    """Return whether a value is not below the first one and below the end; `None`: no bound."""
    return (first is None or value >= first) and (end is None or value < end)
