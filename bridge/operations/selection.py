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
    """

    condition: Condition | None = None
    states: Collection[State] = ()
    numbers: Collection[int] = ()

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
        return self.condition is None and not self.states and not self.numbers

    def takes(self, message: RemoteMessage) -> bool:
        """Return whether a message is meant.

        Raises:
            FilterException: the condition cannot be held against it.
        """
        if self.states and message.state not in self.states:
            return False
        if self.numbers and message.sequence_number not in self.numbers:
            return False
        if self.condition is None:
            return True
        if message.unread:
            raise FilterException("The bytes are no message of AMQP 1.0.")
        return self.condition.takes(message)
