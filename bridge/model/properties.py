"""The table of properties: Azure's name, the model's field, and the reader of a value.

Formats with other names (camel case, snake case) map them to Azure's; see each reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bridge.model import entity as model
from bridge.model import values


class EntityKind(Enum):
    """The kind of an entity."""

    QUEUE = "Queue"
    TOPIC = "Topic"
    SUBSCRIPTION = "Subscription"


MAKERS: dict[EntityKind, type[model.Entity]] = {
    EntityKind.QUEUE: model.Queue,
    EntityKind.TOPIC: model.Topic,
    EntityKind.SUBSCRIPTION: model.Subscription,
}
"""The class of each kind."""


@dataclass(frozen=True, slots=True)
class EntityProperty:
    """A property: the model's field, and the reader of the value."""

    field: str
    read: values.Converter

    @property
    def kinds(self) -> frozenset[EntityKind]:
        """The kinds of entity that have the property."""
        return frozenset(kind for kind, made in MAKERS.items() if hasattr(made, self.field))


PROPERTIES: dict[str, EntityProperty] = {
    "LockDuration": EntityProperty("lock_duration_ms", values.duration_ms),
    "MaxSizeInMegabytes": EntityProperty("max_size_mb", values.integer),
    "RequiresDuplicateDetection": EntityProperty("requires_duplicate_detection", values.boolean),
    "RequiresSession": EntityProperty("requires_session", values.boolean),
    "DefaultMessageTimeToLive": EntityProperty(
        "default_message_time_to_live_ms", values.duration_ms
    ),
    "DeadLetteringOnMessageExpiration": EntityProperty(
        "dead_lettering_on_message_expiration", values.boolean
    ),
    "DeadLetteringOnFilterEvaluationExceptions": EntityProperty(
        "dead_lettering_on_filter_evaluation_exceptions", values.boolean
    ),
    "DuplicateDetectionHistoryTimeWindow": EntityProperty(
        "duplicate_detection_history_time_window_ms", values.duration_ms
    ),
    "MaxDeliveryCount": EntityProperty("max_delivery_count", values.integer),
    "EnableBatchedOperations": EntityProperty("enable_batched_operations", values.boolean),
    "Status": EntityProperty("status", values.status),
    "ForwardTo": EntityProperty("forward_to", values.entity_name),
    "ForwardDeadLetteredMessagesTo": EntityProperty(
        "forward_dead_lettered_messages_to", values.entity_name
    ),
    "UserMetadata": EntityProperty("user_metadata", values.text),
    "AutoDeleteOnIdle": EntityProperty("auto_delete_on_idle_ms", values.duration_ms),
    "EnablePartitioning": EntityProperty("enable_partitioning", values.boolean),
    "EnableExpress": EntityProperty("enable_express", values.boolean),
    "MaxMessageSizeInKilobytes": EntityProperty("max_message_size_kb", values.message_size_kb),
    "SupportOrdering": EntityProperty("support_ordering", values.boolean),
    "FilteringMessagesBeforePublishing": EntityProperty(
        "filtering_messages_before_publishing", values.boolean
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
"""Properties that a live namespace reports about an entity and no client can set."""


CREATE_ONLY = {
    "requires_session": "RequiresSession",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
    "enable_partitioning": "EnablePartitioning",
}
"""Properties that Service Bus fixes when an entity is created ("flag at create only"), by field."""


def kind_of(entity: model.Entity) -> EntityKind:
    """Return the kind of an entity."""
    return EntityKind(type(entity).__name__)


def names_of(kind: EntityKind) -> tuple[str, ...]:
    """Return Azure's names of all properties of this kind of entity."""
    return tuple(name for name, known in PROPERTIES.items() if kind in known.kinds)


def camel(name: str) -> str:
    """Return a property's name as ARM and az write it: `lockDuration`."""
    return name[0].lower() + name[1:]
