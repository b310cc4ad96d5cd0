"""The entities of a Service Bus namespace, as values.

Field names are those of the SDKs' `QueueProperties`, `TopicProperties` and so on; durations are in
milliseconds, `duration.MAX_MS` meaning 'for ever'. A value that Service Bus would refuse cannot be
built. Ranges and defaults: Service Bus documentation and SDK constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from bridge.model.duration import MAX_MS, format_duration
from bridge.model.errors import ArgumentOutOfRange
from bridge.model.name import check_entity_name, check_subscription_name, same_name
from bridge.model.rule import DEFAULT_RULE as DEFAULT_RULE
from bridge.model.rule import CorrelationFilter as CorrelationFilter
from bridge.model.rule import FalseFilter as FalseFilter
from bridge.model.rule import Filter as Filter
from bridge.model.rule import Rule as Rule
from bridge.model.rule import SqlFilter as SqlFilter
from bridge.model.rule import TrueFilter as TrueFilter

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS

AUTHORIZATION_RULES_MAX = 12
"""Rules of one namespace, queue or topic (Service Bus quotas)."""

DELIVERY_COUNT_MAX = 2**31 - 1
"""The largest MaxDeliveryCount, .NET's largest int (NServiceBus asks for it on every queue)."""

SESSION_SHARDS_MAX = 64
SESSION_SHARDS_DEFAULT = 4
"""Default number of shards of a session entity that a bridge makes."""


class Tier(Enum):
    """The pricing tier that a namespace behaves as."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class EntityStatus(Enum):
    """The operations that an entity allows; `DELETING` allows none, set by the bridge only."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"
    DELETING = "Deleting"

    @property
    def allows_sends(self) -> bool:
        """Whether messages may be sent and scheduled, and schedules cancelled."""
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def allows_receives(self) -> bool:
        """Whether messages may be received; locked messages can be settled in any status."""
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class Right(Enum):
    """A claim of a shared access rule."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRule:
    """A shared access rule: the holder of a key has its rights. Its repr shows no key.

    Attributes:
        created_at, modified_at: when it was made and last changed, as those of a queue; "" when
            unknown.
    """

    name: str
    primary_key: str = field(repr=False)
    secondary_key: str = field(default="", repr=False)
    rights: frozenset[Right]
    created_at: str = field(default="", compare=False)
    modified_at: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if Right.MANAGE in self.rights and self.rights != frozenset(Right):
            raise ArgumentOutOfRange(f"Rule {self.name!r}: Manage needs Send and Listen beside it.")


def _check_range(entity: str, what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ArgumentOutOfRange(f"{entity}: {what} is {value}; Service Bus takes {low} to {high}.")


def _check_duration(entity: str, what: str, value_ms: int, low_ms: int, high_ms: int) -> None:
    if not low_ms <= value_ms <= high_ms:
        shown = format_duration(value_ms) if 0 <= value_ms <= MAX_MS else f"{value_ms} ms"
        raise ArgumentOutOfRange(
            f"{entity}: {what} is {shown}; Service Bus takes "
            f"{format_duration(low_ms)} to {format_duration(high_ms)}."
        )


EntityT = TypeVar("EntityT", bound="Queue | Topic | Subscription")


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue. Defaults are those of the service for omitted properties.

    Attributes:
        incarnation: an id made with the entity; a later entity of its name has another. "" for an
            entity without one.
        created_at, updated_at: when it was made and last changed, such as
            `2026-11-02T09:14:03.120Z`; "" when unknown.
        forward_to_scheme, forward_dead_letters_scheme: the schemes of the URLs that a client gave,
            for reading back; "" is `sb`.
        has_empty_user_metadata: UserMetadata was given, and is empty: it is read back so.
        status_before: the status to restore when the entity's deletion is given up; "" while it is
            not being deleted.
        session_shards: the number of queues that share its sessions (`topology.shards`); it never
            changes.
        folds_session_ids: whether session ids are folded (`session_id.fold`) before their digests
            choose shards and partitions, and tell duplicates apart; it never changes. Entities that
            were made before ids were folded do not.
        held: the run of a migration that holds the entity (`model.availability`); "" for none.
        transactional: whether it ever had a transaction; a topic, or that one of its subscriptions.
    """

    name: str
    lock_duration_ms: int = MINUTE_MS
    max_size_mb: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    session_shards: int = 1
    default_message_time_to_live_ms: int = MAX_MS
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window_ms: int = 10 * MINUTE_MS
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str = ""
    forward_dead_lettered_messages_to: str = ""
    forward_to_scheme: str = ""
    forward_dead_letters_scheme: str = ""
    user_metadata: str = ""
    has_empty_user_metadata: bool = False
    incarnation: str = ""
    folds_session_ids: bool = False
    created_at: str = ""
    updated_at: str = ""
    status_before: str = ""
    held: str = ""
    transactional: bool = False
    auto_delete_on_idle_ms: int = MAX_MS
    enable_partitioning: bool = False
    enable_express: bool = False
    max_message_size_kb: int | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def __post_init__(self) -> None:
        check_entity_name(self.name)
        where = f"Queue {self.name!r}"
        _check_common(where, self)
        _check_subscriptionlike(where, self)
        _check_topiclike(where, self)

    @property
    def path(self) -> str:
        """The entity's path: its name."""
        return self.name

    @property
    def front(self) -> str:
        """The path that senders use: the entity's own."""
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription of a topic; `incarnation` as a queue's."""

    topic: str
    name: str
    lock_duration_ms: int = MINUTE_MS
    requires_session: bool = False
    session_shards: int = 1
    default_message_time_to_live_ms: int = MAX_MS
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str = ""
    forward_dead_lettered_messages_to: str = ""
    forward_to_scheme: str = ""
    forward_dead_letters_scheme: str = ""
    user_metadata: str = ""
    has_empty_user_metadata: bool = False
    incarnation: str = ""
    folds_session_ids: bool = False
    created_at: str = ""
    updated_at: str = ""
    status_before: str = ""
    held: str = ""
    transactional: bool = False
    auto_delete_on_idle_ms: int = MAX_MS
    rules: tuple[Rule, ...] = (DEFAULT_RULE,)

    def __post_init__(self) -> None:
        check_entity_name(self.topic)
        check_subscription_name(self.name)
        where = f"Subscription {self.path!r}"
        _check_common(where, self)
        _check_subscriptionlike(where, self)
        if self.status is EntityStatus.SEND_DISABLED:
            raise ArgumentOutOfRange(f"{where}: a subscription cannot be SendDisabled.")

    @property
    def path(self) -> str:
        """The entity's path, `topic/Subscriptions/name`."""
        return f"{self.topic}/Subscriptions/{self.name}"

    @property
    def rules_by_name(self) -> tuple[Rule, ...]:
        """The rules in the order in which Service Bus lists them; `$Default` is the first."""
        return tuple(sorted(self.rules, key=lambda rule: rule.name.lower()))

    def rule(self, name: str) -> Rule | None:
        """Return the rule of a name, in any case; `None` if there is none."""
        return next((each for each in self.rules if same_name(each.name, name)), None)

    @property
    def front(self) -> str:
        """The path that senders use: the topic's."""
        return self.topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its subscriptions; `incarnation` as a queue's."""

    name: str
    max_size_mb: int = 1024
    requires_duplicate_detection: bool = False
    default_message_time_to_live_ms: int = MAX_MS
    duplicate_detection_history_time_window_ms: int = 10 * MINUTE_MS
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool = True
    user_metadata: str = ""
    has_empty_user_metadata: bool = False
    incarnation: str = ""
    folds_session_ids: bool = False
    created_at: str = ""
    updated_at: str = ""
    status_before: str = ""
    held: str = ""
    transactional: bool = False
    auto_delete_on_idle_ms: int = MAX_MS
    enable_partitioning: bool = False
    enable_express: bool = False
    max_message_size_kb: int | None = None
    filtering_messages_before_publishing: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    subscriptions: tuple[Subscription, ...] = ()

    def __post_init__(self) -> None:
        check_entity_name(self.name)
        where = f"Topic {self.name!r}"
        _check_common(where, self)
        _check_topiclike(where, self)
        if self.status is EntityStatus.RECEIVE_DISABLED:
            raise ArgumentOutOfRange(f"{where}: a topic cannot be ReceiveDisabled.")
        for subscription in self.subscriptions:
            if subscription.topic.lower() != self.name.lower():
                raise ArgumentOutOfRange(
                    f"{where} holds subscription {subscription.path!r} of another topic."
                )

    @property
    def path(self) -> str:
        """The entity's path: its name."""
        return self.name

    @property
    def front(self) -> str:
        """The path that senders use: the entity's own."""
        return self.name


Entity = Queue | Topic | Subscription


SendEntity = Queue | Topic
"""Entities that take, schedule and number messages."""

ReceiveEntity = Queue | Subscription
"""Entities from which messages are received, directly or by their dead-letter sub-queues."""


def _check_common(where: str, entity: Entity) -> None:
    _check_duration(
        where, "DefaultMessageTimeToLive", entity.default_message_time_to_live_ms, SECOND_MS, MAX_MS
    )
    _check_duration(where, "AutoDeleteOnIdle", entity.auto_delete_on_idle_ms, 5 * MINUTE_MS, MAX_MS)
    _check_range(where, "the length of UserMetadata", len(entity.user_metadata), 0, 1024)


def _check_subscriptionlike(where: str, entity: Queue | Subscription) -> None:
    _check_duration(where, "LockDuration", entity.lock_duration_ms, 5 * SECOND_MS, 5 * MINUTE_MS)
    _check_range(where, "MaxDeliveryCount", entity.max_delivery_count, 1, DELIVERY_COUNT_MAX)
    if not 1 <= entity.session_shards <= SESSION_SHARDS_MAX:
        raise ArgumentOutOfRange(
            f"{where}: sessionShards is {entity.session_shards}; it may be 1 to "
            f"{SESSION_SHARDS_MAX}."
        )


def _check_topiclike(where: str, entity: Queue | Topic) -> None:
    _check_duration(
        where,
        "DuplicateDetectionHistoryTimeWindow",
        entity.duplicate_detection_history_time_window_ms,
        20 * SECOND_MS,
        7 * DAY_MS,
    )
    _check_range(where, "MaxSizeInMegabytes", entity.max_size_mb, 1, 81_920 * 16)
    count = len(entity.authorization_rules)
    _check_range(where, "the number of authorization rules", count, 0, AUTHORIZATION_RULES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace: its tier, its rules and all of its entities, each name once (in any case).

    Attributes:
        created_at, updated_at: as an entity's; entities that change do not count.
    """

    name: str = "sbemulatorns"
    tier: Tier = Tier.STANDARD
    created_at: str = ""
    updated_at: str = ""
    queues: tuple[Queue, ...] = ()
    topics: tuple[Topic, ...] = ()
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def __post_init__(self) -> None:
        seen: set[str] = set()
        names = [queue.name for queue in self.queues] + [topic.name for topic in self.topics]
        for name in names:
            if name.lower() in seen:
                raise ArgumentOutOfRange(
                    f"Namespace {self.name!r} has two entities of the name {name!r}; "
                    "names are not case-sensitive."
                )
            seen.add(name.lower())
