"""The table of properties: Azure's name, the model's field, and how a value is read.

Formats that write other names (camel case, snake case) map theirs to Azure's; see each reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bridge.model import values


class Kind(Enum):
    """What an entity is."""

    QUEUE = "Queue"
    TOPIC = "Topic"
    SUBSCRIPTION = "Subscription"


@dataclass(frozen=True, slots=True)
class Property:
    """A property: its field in the model, how to read it, and which kinds of entity have it."""

    field: str
    read: values.Converter
    kinds: frozenset[Kind]


_QUEUE, _TOPIC, _SUBSCRIPTION = Kind.QUEUE, Kind.TOPIC, Kind.SUBSCRIPTION
_LOCKED = frozenset({_QUEUE, _SUBSCRIPTION})
_STORED = frozenset({_QUEUE, _TOPIC})
_ALL = frozenset(Kind)

PROPERTIES: dict[str, Property] = {
    "LockDuration": Property("lock_duration_ms", values.duration_ms, _LOCKED),
    "MaxSizeInMegabytes": Property("max_size_mb", values.integer, _STORED),
    "RequiresDuplicateDetection": Property("requires_duplicate_detection", values.boolean, _STORED),
    "RequiresSession": Property("requires_session", values.boolean, _LOCKED),
    "DefaultMessageTimeToLive": Property(
        "default_message_time_to_live_ms", values.duration_ms, _ALL
    ),
    "DeadLetteringOnMessageExpiration": Property(
        "dead_lettering_on_message_expiration", values.boolean, _LOCKED
    ),
    "DeadLetteringOnFilterEvaluationExceptions": Property(
        "dead_lettering_on_filter_evaluation_exceptions",
        values.boolean,
        frozenset({_SUBSCRIPTION}),
    ),
    "DuplicateDetectionHistoryTimeWindow": Property(
        "duplicate_detection_history_time_window_ms", values.duration_ms, _STORED
    ),
    "MaxDeliveryCount": Property("max_delivery_count", values.integer, _LOCKED),
    "EnableBatchedOperations": Property("enable_batched_operations", values.boolean, _ALL),
    "Status": Property("status", values.status, _ALL),
    "ForwardTo": Property("forward_to", values.entity_name, _LOCKED),
    "ForwardDeadLetteredMessagesTo": Property(
        "forward_dead_lettered_messages_to", values.entity_name, _LOCKED
    ),
    "UserMetadata": Property("user_metadata", values.text, _ALL),
    "AutoDeleteOnIdle": Property("auto_delete_on_idle_ms", values.duration_ms, _ALL),
    "EnablePartitioning": Property("enable_partitioning", values.boolean, _STORED),
    "EnableExpress": Property("enable_express", values.boolean, _STORED),
    "MaxMessageSizeInKilobytes": Property("max_message_size_kb", values.message_size_kb, _STORED),
    "SupportOrdering": Property("support_ordering", values.boolean, frozenset({_TOPIC})),
    "FilteringMessagesBeforePublishing": Property(
        "filtering_messages_before_publishing", values.boolean, frozenset({_TOPIC})
    ),
}

READ_ONLY = frozenset(
    {
        "AccessedAt",
        "AvailabilityStatus",
        "CountDetails",
        "CreatedAt",
        "EntityAvailabilityStatus",
        "IsReadOnly",
        "LastUpdatedTime",
        "MessageCount",
        "SizeInBytes",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
        "UpdatedAt",
    }
)
"""What a live namespace reports about an entity and nobody can set."""


CREATE_ONLY = {
    "requires_session": "RequiresSession",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
    "enable_partitioning": "EnablePartitioning",
}
"""What Service Bus fixes when an entity is created ("flag at create only"), by the field."""


def names_of(kind: Kind) -> tuple[str, ...]:
    """Return Azure's names of all properties that an entity of this kind has."""
    return tuple(name for name, known in PROPERTIES.items() if kind in known.kinds)


def camel(name: str) -> str:
    """Return a property's name as ARM and az write it: `lockDuration`."""
    return name[0].lower() + name[1:]
