"""The table of properties: Azure's name, the model's field, and the reader of a value.

Formats with other names (camel case, snake case) map them to Azure's; see each reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bridge.model import entity as model
from bridge.model import values


class Kind(Enum):
    """The kind of an entity."""

    QUEUE = "Queue"
    TOPIC = "Topic"
    SUBSCRIPTION = "Subscription"


MAKERS: dict[Kind, type[model.Entity]] = {
    Kind.QUEUE: model.Queue,
    Kind.TOPIC: model.Topic,
    Kind.SUBSCRIPTION: model.Subscription,
}
"""The class of each kind."""


@dataclass(frozen=True, slots=True)
class Property:
    """A property: the model's field, and the reader of the value."""

    field: str
    read: values.Converter

    @property
    def kinds(self) -> frozenset[Kind]:
        """The kinds of entity that have the property."""
        return frozenset(kind for kind, made in MAKERS.items() if hasattr(made, self.field))


PROPERTIES: dict[str, Property] = {
    "LockDuration": Property("lock_duration_ms", values.duration_ms),
    "MaxSizeInMegabytes": Property("max_size_mb", values.integer),
    "RequiresDuplicateDetection": Property("requires_duplicate_detection", values.boolean),
    "RequiresSession": Property("requires_session", values.boolean),
    "DefaultMessageTimeToLive": Property("default_message_time_to_live_ms", values.duration_ms),
    "DeadLetteringOnMessageExpiration": Property(
        "dead_lettering_on_message_expiration", values.boolean
    ),
    "DeadLetteringOnFilterEvaluationExceptions": Property(
        "dead_lettering_on_filter_evaluation_exceptions", values.boolean
    ),
    "DuplicateDetectionHistoryTimeWindow": Property(
        "duplicate_detection_history_time_window_ms", values.duration_ms
    ),
    "MaxDeliveryCount": Property("max_delivery_count", values.integer),
    "EnableBatchedOperations": Property("enable_batched_operations", values.boolean),
    "Status": Property("status", values.status),
    "ForwardTo": Property("forward_to", values.entity_name),
    "ForwardDeadLetteredMessagesTo": Property(
        "forward_dead_lettered_messages_to", values.entity_name
    ),
    "UserMetadata": Property("user_metadata", values.text),
    "AutoDeleteOnIdle": Property("auto_delete_on_idle_ms", values.duration_ms),
    "EnablePartitioning": Property("enable_partitioning", values.boolean),
    "EnableExpress": Property("enable_express", values.boolean),
    "MaxMessageSizeInKilobytes": Property("max_message_size_kb", values.message_size_kb),
    "SupportOrdering": Property("support_ordering", values.boolean),
    "FilteringMessagesBeforePublishing": Property(
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


def kind_of(entity: model.Entity) -> Kind:
    """Return the kind of an entity."""
    return Kind(type(entity).__name__)


def names_of(kind: Kind) -> tuple[str, ...]:
    """Return Azure's names of all properties of this kind of entity."""
    return tuple(name for name, known in PROPERTIES.items() if kind in known.kinds)


def camel(name: str) -> str:
    """Return a property's name as ARM and az write it: `lockDuration`."""
    return name[0].lower() + name[1:]
