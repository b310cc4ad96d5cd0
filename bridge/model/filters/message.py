"""The view of a message in filters and actions: system and user properties, without the body."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bridge.model.filters.values import Value

SYSTEM_PROPERTIES = {
    name.lower(): name
    for name in (
        "ContentType",
        "CorrelationId",
        "DeadLetterSource",
        "DeliveryCount",
        "EnqueuedSequenceNumber",
        "EnqueuedTimeUtc",
        "ExpiresAtUtc",
        "ForcePersistence",
        "Label",
        "LockedUntilUtc",
        "LockToken",
        "MessageId",
        "PartitionKey",
        "ReplyTo",
        "ReplyToSessionId",
        "ScheduledEnqueueTimeUtc",
        "SequenceNumber",
        "SessionId",
        "Size",
        "State",
        "TimeToLive",
        "To",
        "ViaPartitionKey",
    )
}
"""The names behind `sys.`, by their lower-case form (Azure, messages and payloads)."""


def similar_system(name: str) -> str:
    """Return, in brackets, the system property that may be meant by a name; nothing if none is."""
    close = difflib.get_close_matches(name, SYSTEM_PROPERTIES, 1)
    return f" (there is sys.{SYSTEM_PROPERTIES[close[0]]})" if close else ""


ALIASES = {"subject": "label"}
"""ServiceBusMessage's name of a property -> the name that filters use."""


WORK_MAX = 300_000
"""Characters that all rules of a topic may read in one message: 45 ms, measured.

LIKE reads its text, an action all properties. Beyond the limit a rule fails, so that no message and
no rules keep other entities waiting.
"""


class FilteredMessage(Protocol):
    """A message as filters read it. Property names are in lower case: case does not count."""

    @property
    def properties_bytes(self) -> int:
        """The size of the properties."""

    def spend(self, characters: int) -> None:
        """Count characters that are read; FilterException beyond `WORK_MAX`."""

    @property
    def user(self) -> Mapping[str, Value]:
        """The user properties; a property without a value is `None`."""

    def system(self, name: str) -> Value:
        """Return a system property (a key of `SYSTEM_PROPERTIES`), `None` when it has no value."""

    def name_of(self, name: str) -> str:
        """Return a user property's name in the message's spelling; `name` where it has none."""


@dataclass(frozen=True, slots=True)
class Property:
    """A property by scope and lower-case name."""

    is_system: bool
    name: str

    def read(self, message: FilteredMessage) -> Value:
        """Return the property's value, `None` when missing or null."""
        return message.system(self.name) if self.is_system else message.user.get(self.name)
