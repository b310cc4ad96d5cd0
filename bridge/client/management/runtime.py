"""Times and counts of entities, under the SDK's names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

Count = int | None
Time = datetime | None


@dataclass(frozen=True, kw_only=True)
class MessageCountDetails:
    """The numbers of messages of each kind."""

    active_message_count: Count = None
    dead_letter_message_count: Count = None
    scheduled_message_count: Count = None
    transfer_dead_letter_message_count: Count = None
    transfer_message_count: Count = None


@dataclass(frozen=True, kw_only=True)
class SubscriptionRuntimeProperties:
    """A subscription's times and counts."""

    name: str
    accessed_at_utc: Time
    created_at_utc: Time
    updated_at_utc: Time
    total_message_count: Count
    active_message_count: Count
    dead_letter_message_count: Count
    transfer_dead_letter_message_count: Count
    transfer_message_count: Count


@dataclass(frozen=True, kw_only=True)
class QueueRuntimeProperties(SubscriptionRuntimeProperties):
    """A queue's times and counts."""

    size_in_bytes: Count
    scheduled_message_count: Count


@dataclass(frozen=True, kw_only=True)
class TopicRuntimeProperties:
    """A topic's times and counts."""

    name: str
    accessed_at_utc: Time
    created_at_utc: Time
    updated_at_utc: Time
    size_in_bytes: Count
    subscription_count: Count
    sql_filter_count: Count
    correlation_filter_count: Count
    scheduled_message_count: Count
