"""Dead letters in groups: by why, where and by which exception they died.

A group keeps counts and times, no message: an entity of any size is grouped in flat memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from bridge.remote.message import RemoteMessage

GROUPS_MAX: Final = 10_000
"""Groups that are told apart; what belongs to no other is counted under `OTHERS` then."""

OTHERS: Final = "(others)"
CHARACTERS_MAX: Final = 200
"""Of a reason, a source or an exception, as groups tell them apart."""

EXCEPTION_PROPERTIES: Final = (
    "NServiceBus.ExceptionInfo.ExceptionType",
    "MT-Fault-ExceptionType",
    "rbs2-error-details",
    "ExceptionType",
)
"""Application properties in which frameworks say which exception it was: NServiceBus, MassTransit,
Rebus, and applications of their own."""

_EXCEPTION: Final = re.compile(r"\b(?:[A-Za-z_][\w`]*\.)*[A-Z][\w`]*(?:Exception|Error|Fault)\b")
"""A name of an exception in a text: `System.InvalidOperationException`, `ValueError`."""

_READ_MAX: Final = 4_096


@dataclass(slots=True)
class DeadLetterGroup:
    """Dead letters of one kind.

    Attributes:
        reason: DeadLetterReason; "" for none.
        source: DeadLetterSource, the entity in which a forwarded message died; "" for none.
        exception: the name of an exception; "" for none that is known.
        count: how many there are.
        oldest_ms, newest_ms: enqueued times, UTC ms; 0 where no message has one.
        first: the lowest sequence number.
        description: DeadLetterErrorDescription of the first that was seen.
    """

    reason: str
    source: str
    exception: str
    count: int = 0
    oldest_ms: int = 0
    newest_ms: int = 0
    first: int = 0
    description: str = ""

    def oldest_age_ms(self, now_ms: int) -> int:
        """Return for how long the oldest has been enqueued, 0 where it is not known."""
        return max(0, now_ms - self.oldest_ms) if self.oldest_ms else 0


class DeadLetterGroups:
    """Counts messages into groups."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, str], DeadLetterGroup] = {}
        self.total = 0

    def add(self, message: RemoteMessage) -> None:
        """Count a message."""
        self.total += 1
        key = kind_of(message)
        if key not in self._groups and len(self._groups) >= GROUPS_MAX:
            key = (OTHERS, "", "")
        group = self._groups.get(key)
        if group is None:
            description = _text(_property(message, "dead_letter_error_description"))
            group = self._groups[key] = DeadLetterGroup(*key, description=description)
        group.count += 1
        number, enqueued_ms = _numbers(message)
        if enqueued_ms:
            group.oldest_ms = min(group.oldest_ms or enqueued_ms, enqueued_ms)
            group.newest_ms = max(group.newest_ms, enqueued_ms)
        if number:
            group.first = min(group.first or number, number)

    def found(self) -> list[DeadLetterGroup]:
        """Return the groups, the largest first."""
        return sorted(self._groups.values(), key=lambda each: (-each.count, each.first))


def kind_of(message: RemoteMessage) -> tuple[str, str, str]:
    """Return reason, source and exception of a message, each "" where there is none."""
    if message.unread:
        return "(no message of AMQP 1.0)", "", ""
    reason = _text(_property(message, "dead_letter_reason"))
    return reason, _text(_property(message, "dead_letter_source")), exception_of(message)


def exception_of(message: RemoteMessage) -> str:
    """Return the name of the exception that a dead letter tells of; "" for none.

    A framework's own property counts first; then what stands in description and reason.
    """
    values = message.application_property_values
    for name in EXCEPTION_PROPERTIES:
        if text := _text(values.get(name), _READ_MAX):
            found = _EXCEPTION.search(text)
            return (found[0] if found else text)[:CHARACTERS_MAX]
    for value in (message.dead_letter_error_description, message.dead_letter_reason):
        if found := _EXCEPTION.search(_text(value, _READ_MAX)):
            return found[0][:CHARACTERS_MAX]
    return ""


def _property(message: RemoteMessage, name: str) -> Any:
    return None if message.unread else getattr(message, name)


def _numbers(message: RemoteMessage) -> tuple[int, int]:
    if message.unread:
        return 0, 0
    return int(message.sequence_number or 0), int(message.enqueued_time_ms or 0)


def _text(value: Any, characters: int = CHARACTERS_MAX) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    return "" if value is None else str(value)[:characters]
