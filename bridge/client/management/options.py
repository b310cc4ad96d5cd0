"""Options for creating and updating entities, and for reading lists."""

from __future__ import annotations

from typing import TypedDict

from bridge.client.management.properties import Count, Duration, Flag, Rules, Text


class _Any(TypedDict, total=False):
    auto_delete_on_idle: Duration
    default_message_time_to_live: Duration
    enable_batched_operations: Flag
    status: Text
    user_metadata: Text


class _Stored(_Any, total=False):
    authorization_rules: Rules
    duplicate_detection_history_time_window: Duration
    enable_express: Flag
    enable_partitioning: Flag
    max_message_size_in_kilobytes: Count
    max_size_in_megabytes: Count
    requires_duplicate_detection: Flag


class _Received(_Any, total=False):
    dead_lettering_on_message_expiration: Flag
    forward_dead_lettered_messages_to: Text
    forward_to: Text
    lock_duration: Duration
    max_delivery_count: Count
    requires_session: Flag


class QueueOptions(_Stored, _Received, total=False):
    """Options of `create_queue` and `update_queue`."""


class TopicOptions(_Stored, total=False):
    """Options of `create_topic` and `update_topic`."""

    filtering_messages_before_publishing: Flag
    size_in_bytes: Count
    support_ordering: Flag


class SubscriptionOptions(_Received, total=False):
    """Options of `create_subscription` and `update_subscription`."""

    dead_lettering_on_filter_evaluation_exceptions: Flag


class PageOptions(TypedDict, total=False):
    """Options of lists: the first index, from 0, and the size of a page (100)."""

    start_index: int
    max_page_size: int
