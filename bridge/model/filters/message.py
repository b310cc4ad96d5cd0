"""What filters and actions see of a message: its system and its user properties, not its body."""

from __future__ import annotations

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

ALIASES = {"subject": "label"}
"""What ServiceBusMessage calls what filters call Label."""


WORK_MAX = 300_000
"""Characters that all rules of a topic may go over in one message: 45 ms, measured.

LIKE goes over its text, an action over all properties. Beyond it a rule fails, so that no message
and no rules keep other entities waiting.
"""


class Message(Protocol):
    """A message as filters read it. Property names are in lower case: any case means the same."""

    @property
    def properties_bytes(self) -> int:
        """The size of its properties."""

    def spend(self, characters: int) -> None:
        """Count characters that are gone over; FilterException beyond `WORK_MAX`."""

    @property
    def user(self) -> Mapping[str, Value]:
        """The user properties; one that is there with no value is `None`."""

    def system(self, name: str) -> Value:
        """Return a system property (a key of `SYSTEM_PROPERTIES`), `None` when it has no value."""

    def name_of(self, name: str) -> str:
        """Return a user property's name as the message spells it; as given, when it has none."""


@dataclass(frozen=True, slots=True)
class Property:
    """A property by its scope and its lower-case name."""

    is_system: bool
    name: str

    def read(self, message: Message) -> Value:
        """Return the property's value, `None` when it is not there or null."""
        return message.system(self.name) if self.is_system else message.user.get(self.name)
