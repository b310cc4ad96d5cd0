"""Which scheduled messages a command means, and when those that are moved are due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.model.duration import TIME_MAX_MS, instant_text
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.operations.selection import MessageSelection, is_within
from bridge.remote.message import RemoteMessage

MARGIN_MS: Final = 30_000
"""How far ahead a message is due that is scheduled anew: until then it can be withdrawn."""


@dataclass(frozen=True, slots=True)
class ScheduledSelection(MessageSelection):
    """What is asked for of the scheduled messages.

    Attributes:
        due_from_ms, due_before_ms: of the times that are meant, UTC ms; `None`: any.
        first, last: of the sequence numbers that are meant; `None`: any.
    """

    due_from_ms: int | None = None
    due_before_ms: int | None = None
    first: int | None = None
    last: int | None = None

    @property
    def is_numbers_alone(self) -> bool:
        """Whether the numbers say all, so that no message need be looked at."""
        window = self.due_from_ms, self.due_before_ms, self.first, self.last
        return bool(self.numbers) and self.condition is None and window == (None,) * 4

    def takes(self, message: RemoteMessage) -> bool:
        """Return whether a message is scheduled, and meant.

        Raises:
            FilterException: the condition cannot be held against it.
        """
        due_ms = message.scheduled_enqueue_time_ms
        number = message.sequence_number
        if message.state != "scheduled" or due_ms is None or number is None:
            return False
        return (
            is_within(due_ms, self.due_from_ms, self.due_before_ms)
            and is_within(number, self.first, None if self.last is None else self.last + 1)
            and MessageSelection.takes(self, message)
        )


@dataclass(frozen=True, slots=True)
class ScheduleMove:
    """Where scheduled messages are moved to; one of the two is given.

    Attributes:
        to_ms: the time, UTC ms.
        by_ms: so much later; below 0: earlier.
    """

    to_ms: int | None = None
    by_ms: int = 0

    def due_ms(self, was_ms: int, now_ms: int) -> int | None:
        """Return when a message is due then; `None`: it is already due at that time.

        Args:
            was_ms: when it is due now, UTC ms.

        Raises:
            ValueRefused: that is too soon, or later than clients can read.
        """
        due_ms = was_ms + self.by_ms if self.to_ms is None else self.to_ms
        if due_ms == was_ms:
            return None
        if due_ms < now_ms + MARGIN_MS:
            raise ValueRefused(
                f"{instant_text(due_ms)} is less than {MARGIN_MS // 1_000} seconds ahead: a "
                "message that is scheduled so soon could not be withdrawn"
            )
        if due_ms > TIME_MAX_MS:
            raise ValueRefused("no client reads a time behind the year 9999")
        return due_ms
