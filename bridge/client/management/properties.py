"""Properties of queues, topics, subscriptions and namespaces, under the SDK's names.

Each object is a mapping of its properties too: `dict(queue)`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta

from bridge.client.mapping import Mapped

Duration = timedelta | str | None
Flag = bool | None
Count = int | None
Text = str | None


@dataclass(kw_only=True)
class AuthorizationRule:
    """A shared access rule of a queue or topic, for clients of the gateway."""

    type: Text = None
    claim_type: Text = None
    claim_value: Text = None
    rights: list[str] | None = None
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None
    key_name: Text = None
    primary_key: Text = None
    secondary_key: Text = None

    def __repr__(self) -> str:
        return f"AuthorizationRule(key_name={self.key_name!r}, rights={self.rights!r})"


Rules = list[AuthorizationRule] | None


@dataclass
class QueueProperties(Mapped):
    """A queue."""

    name: str
    _: KW_ONLY
    authorization_rules: Rules
    auto_delete_on_idle: Duration
    dead_lettering_on_message_expiration: Flag
    default_message_time_to_live: Duration
    duplicate_detection_history_time_window: Duration
    availability_status: Text
    enable_batched_operations: Flag
    enable_express: Flag
    enable_partitioning: Flag
    lock_duration: Duration
    max_delivery_count: Count
    max_size_in_megabytes: Count
    requires_duplicate_detection: Flag
    requires_session: Flag
    status: Text
    forward_to: Text
    user_metadata: Text
    forward_dead_lettered_messages_to: Text
    max_message_size_in_kilobytes: Count


@dataclass
class TopicProperties(Mapped):
    """A topic."""

    name: str
    _: KW_ONLY
    default_message_time_to_live: Duration
    max_size_in_megabytes: Count
    requires_duplicate_detection: Flag
    duplicate_detection_history_time_window: Duration
    enable_batched_operations: Flag
    size_in_bytes: Count
    filtering_messages_before_publishing: Flag
    authorization_rules: Rules
    status: Text
    support_ordering: Flag
    auto_delete_on_idle: Duration
    enable_partitioning: Flag
    availability_status: Text
    enable_express: Flag
    user_metadata: Text
    max_message_size_in_kilobytes: Count


@dataclass
class SubscriptionProperties(Mapped):
    """A subscription."""

    name: str
    _: KW_ONLY
    lock_duration: Duration
    requires_session: Flag
    default_message_time_to_live: Duration
    dead_lettering_on_message_expiration: Flag
    dead_lettering_on_filter_evaluation_exceptions: Flag
    max_delivery_count: Count
    enable_batched_operations: Flag
    status: Text
    forward_to: Text
    user_metadata: Text
    forward_dead_lettered_messages_to: Text
    auto_delete_on_idle: Duration
    availability_status: Text


@dataclass
class NamespaceProperties(Mapped):
    """A namespace: a virtual host of RabbitMQ."""

    name: str
    _: KW_ONLY
    alias: Text
    created_at_utc: datetime | None
    messaging_sku: Text
    messaging_units: Count
    modified_at_utc: datetime | None
    namespace_type: Text
