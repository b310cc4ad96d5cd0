"""The table: each property of Service Bus, what it is in RabbitMQ, and how well that does.

The loss report and the table of docs/policies.md are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.model import entity as model
from bridge.model.duration import is_forever
from bridge.topology.capabilities import TTL_MAX_MS, Capabilities
from bridge.topology.selection import selection
from policies.grade import Case, Flavour, Subject, approximate, bridge, exact, lost, when
from policies.readers.properties import PROPERTIES, Kind

ABSENT: frozenset[str] = frozenset(
    {
        "AutoDeleteOnIdle",
        "DuplicateDetectionHistoryTimeWindow",
        "ForwardDeadLetteredMessagesTo",
        "ForwardTo",
        "RequiresDuplicateDetection",
        "RequiresSession",
        "Rules",
        "Subscriptions",
    }
)
"""Properties whose work this release of the bridge does not do: 'by the bridge' is 'lost' there."""

ABSENT_NOTE = "Not part of this release of the bridge."


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A property.

    Attributes:
        property: Azure's name.
        kinds: the entities that have it; empty for the namespace.
        rabbitmq: what it is in RabbitMQ, for people.
        with_bridge: its grades when the bridge runs.
        plain: its grades on RabbitMQ alone.
    """

    property: str
    kinds: frozenset[Kind]
    rabbitmq: str
    with_bridge: tuple[Case, ...]
    plain: tuple[Case, ...]

    def cases(self, flavour: Flavour) -> tuple[Case, ...]:
        """Return the cases of a flavour."""
        return self.with_bridge if flavour is Flavour.BRIDGE else self.plain


def _is(field: str, test: Callable[[Any], bool]) -> Callable[[Subject], bool]:
    return lambda subject: test(getattr(subject.entity, field))


def _off(field: str) -> Case:
    return when("false", _is(field, lambda value: not value), exact())


def _rule(test: Callable[[model.Rule, Capabilities], bool]) -> Callable[[Subject], bool]:
    return lambda subject: subject.rule is not None and test(subject.rule, subject.capabilities)


def _unbound(test: Callable[[model.Rule], bool]) -> Callable[[Subject], bool]:
    """Whether RabbitMQ has no binding for a rule that takes messages, and `test` says why."""

    def applies(rule: model.Rule, capabilities: Capabilities) -> bool:
        arguments, reason = selection(rule, capabilities)
        return arguments is None and bool(reason) and test(rule)

    return _rule(applies)


def _is_short(time_to_live_ms: int) -> bool:
    return time_to_live_ms <= TTL_MAX_MS or is_forever(time_to_live_ms)


def _has_fields(rule: model.Rule) -> bool:
    """Whether a correlation filter compares more than application properties."""
    given = rule.filter
    return isinstance(given, model.CorrelationFilter) and any(
        getattr(given, field) is not None
        for field in (
            "content_type",
            "correlation_id",
            "label",
            "message_id",
            "reply_to",
            "reply_to_session_id",
            "session_id",
            "to",
        )
    )


def _exceeds_message_size(subject: Subject) -> bool:
    size_kb = getattr(subject.entity, "max_message_size_kb", None) or 0
    return int(size_kb) * 1024 > subject.capabilities.message_bytes_max


def _nack_is_free(subject: Subject) -> bool:
    return not subject.capabilities.nack_counts


def _has_one_timeout(subject: Subject) -> bool:
    return not subject.capabilities.has_queue_consumer_timeout


_NOTHING = "nothing"

ROWS: tuple[Row, ...] = (
    Row(
        property="LockDuration",
        kinds=PROPERTIES["LockDuration"].kinds,
        rabbitmq="unacked delivery; a timer of the bridge; x-consumer-timeout from 3.12 on",
        with_bridge=(
            when(
                "RabbitMQ before 3.12",
                _has_one_timeout,
                approximate(
                    "One consumer timeout for the whole node (30 minutes): a lock that is renewed "
                    "for longer ends with it. Set consumer_timeout in rabbitmq.conf."
                ),
            ),
            bridge(),
        ),
        plain=(
            approximate(
                "A delivery belongs to its consumer until that settles it or goes away; there is "
                "no duration and no renewal, only RabbitMQ's consumer timeout (30 minutes)."
            ),
        ),
    ),
    Row(
        property="MaxDeliveryCount",
        kinds=PROPERTIES["MaxDeliveryCount"].kinds,
        rabbitmq="policy delivery-limit = MaxDeliveryCount - 1",
        with_bridge=(exact(),),
        plain=(
            when(
                "RabbitMQ from 4.3 on",
                _nack_is_free,
                approximate("basic.nack with requeue does not count; use basic.reject."),
            ),
            exact(),
        ),
    ),
    Row(
        property="DefaultMessageTimeToLive",
        kinds=PROPERTIES["DefaultMessageTimeToLive"].kinds,
        rabbitmq="policy message-ttl of the queue, or of each subscription's queue; none: for ever",
        with_bridge=(
            when(
                "up to 10 years, or for ever",
                _is("default_message_time_to_live_ms", _is_short),
                exact(),
            ),
            bridge("Longer than RabbitMQ can hold; it is in no policy."),
        ),
        plain=(
            when(
                "up to 10 years, or for ever",
                _is("default_message_time_to_live_ms", _is_short),
                exact(),
            ),
            lost("Longer than RabbitMQ can hold (10 years): messages never expire."),
        ),
    ),
    Row(
        property="DeadLetteringOnMessageExpiration",
        kinds=PROPERTIES["DeadLetteringOnMessageExpiration"].kinds,
        rabbitmq="dead-letter exchange of type headers, by the reason that RabbitMQ stamps",
        with_bridge=(exact(),),
        plain=(exact("The reason is in x-death, not in DeadLetterReason."),),
    ),
    Row(
        property="MaxSizeInMegabytes",
        kinds=frozenset({Kind.QUEUE}),
        rabbitmq="policy max-length-bytes, argument x-overflow: reject-publish",
        with_bridge=(approximate("RabbitMQ counts what waits, not what is locked."),),
        plain=(approximate("RabbitMQ counts what waits, not what is locked."),),
    ),
    Row(
        property="MaxSizeInMegabytes",
        kinds=frozenset({Kind.TOPIC}),
        rabbitmq="policy max-length-bytes of each subscription's queue",
        with_bridge=(
            approximate(
                "Each subscription may hold as much as its topic, instead of all together."
            ),
        ),
        plain=(
            approximate(
                "Each subscription may hold as much as its topic, instead of all together."
            ),
        ),
    ),
    Row(
        property="RequiresSession",
        kinds=PROPERTIES["RequiresSession"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(_off("requires_session"), bridge()),
        plain=(
            _off("requires_session"),
            lost("No sessions. For order alone use a single active consumer."),
        ),
    ),
    Row(
        property="RequiresDuplicateDetection",
        kinds=PROPERTIES["RequiresDuplicateDetection"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(_off("requires_duplicate_detection"), bridge()),
        plain=(_off("requires_duplicate_detection"), lost("Duplicates are delivered.")),
    ),
    Row(
        property="DuplicateDetectionHistoryTimeWindow",
        kinds=PROPERTIES["DuplicateDetectionHistoryTimeWindow"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(
            when(
                "without duplicate detection",
                _is("requires_duplicate_detection", lambda value: not value),
                exact(),
            ),
            bridge(),
        ),
        plain=(
            when(
                "without duplicate detection",
                _is("requires_duplicate_detection", lambda value: not value),
                exact(),
            ),
            lost("Duplicates are delivered."),
        ),
    ),
    Row(
        property="ForwardTo",
        kinds=PROPERTIES["ForwardTo"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(when("none", _is("forward_to", lambda value: not value), exact()), bridge()),
        plain=(
            when("none", _is("forward_to", lambda value: not value), exact()),
            lost("Messages stay. A shovel can move them."),
        ),
    ),
    Row(
        property="ForwardDeadLetteredMessagesTo",
        kinds=PROPERTIES["ForwardDeadLetteredMessagesTo"].kinds,
        rabbitmq="plain: the dead-letter exchange is bound to the target's exchange",
        with_bridge=(
            when("none", _is("forward_dead_lettered_messages_to", lambda v: not v), exact()),
            bridge(),
        ),
        plain=(
            when("none", _is("forward_dead_lettered_messages_to", lambda v: not v), exact()),
            when(
                "to an entity of the namespace",
                lambda subject: (
                    getattr(subject.entity, "forward_dead_lettered_messages_to", "").lower()
                    in subject.names
                ),
                approximate("They go at once; reason and source are in x-death."),
            ),
            lost("There is no such entity: dead letters stay."),
        ),
    ),
    Row(
        property="AutoDeleteOnIdle",
        kinds=PROPERTIES["AutoDeleteOnIdle"].kinds - {Kind.TOPIC},
        rabbitmq="plain: policy expires",
        with_bridge=(
            when("never", _is("auto_delete_on_idle_ms", is_forever), exact()),
            bridge("RabbitMQ's expires is not used: sends and peeks do not renew it."),
        ),
        plain=(
            when("never", _is("auto_delete_on_idle_ms", is_forever), exact()),
            approximate(
                "expires counts consumers and basic.get only: a queue that is merely sent to is "
                "deleted, with its messages."
            ),
        ),
    ),
    Row(
        property="AutoDeleteOnIdle",
        kinds=frozenset({Kind.TOPIC}),
        rabbitmq=_NOTHING,
        with_bridge=(when("never", _is("auto_delete_on_idle_ms", is_forever), exact()), bridge()),
        plain=(
            when("never", _is("auto_delete_on_idle_ms", is_forever), exact()),
            lost("An exchange does not expire."),
        ),
    ),
    Row(
        property="Status",
        kinds=PROPERTIES["Status"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(
            when("Active", _is("status", lambda v: v is model.EntityStatus.ACTIVE), exact()),
            bridge(),
        ),
        plain=(
            when("Active", _is("status", lambda v: v is model.EntityStatus.ACTIVE), exact()),
            lost("RabbitMQ has no disabled queue; take permissions away instead."),
        ),
    ),
    Row(
        property="MaxMessageSizeInKilobytes",
        kinds=PROPERTIES["MaxMessageSizeInKilobytes"].kinds,
        rabbitmq="max_message_size of the node",
        with_bridge=(
            when(
                "more than the node takes as delivered (128 MiB, 16 MiB from 4.0 on)",
                _exceeds_message_size,
                approximate("Raise max_message_size in rabbitmq.conf."),
            ),
            bridge(),
        ),
        plain=(
            when(
                "more than the node takes as delivered (128 MiB, 16 MiB from 4.0 on)",
                _exceeds_message_size,
                approximate("Raise max_message_size in rabbitmq.conf."),
            ),
            approximate("The node's max_message_size holds for all queues."),
        ),
    ),
    Row(
        property="EnablePartitioning",
        kinds=PROPERTIES["EnablePartitioning"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(
            _off("enable_partitioning"),
            bridge("Partitions are numbers only: one queue holds them all."),
        ),
        plain=(_off("enable_partitioning"), approximate("One queue; no partition keys.")),
    ),
    Row(
        property="EnableExpress",
        kinds=PROPERTIES["EnableExpress"].kinds,
        rabbitmq="quorum queue",
        with_bridge=(_off("enable_express"), approximate("Every message is stored at once.")),
        plain=(_off("enable_express"), approximate("Every message is stored at once.")),
    ),
    Row(
        property="EnableBatchedOperations",
        kinds=PROPERTIES["EnableBatchedOperations"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(exact("It changes how fast Azure is, and nothing else."),),
        plain=(exact("It changes how fast Azure is, and nothing else."),),
    ),
    Row(
        property="SupportOrdering",
        kinds=PROPERTIES["SupportOrdering"].kinds,
        rabbitmq="quorum queues keep the order",
        with_bridge=(exact(),),
        plain=(exact(),),
    ),
    Row(
        property="FilteringMessagesBeforePublishing",
        kinds=PROPERTIES["FilteringMessagesBeforePublishing"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(
            _off("filtering_messages_before_publishing"),
            approximate("A message that no subscription takes is dropped, not refused."),
        ),
        plain=(
            _off("filtering_messages_before_publishing"),
            approximate("Only a mandatory publish is told that no queue took it."),
        ),
    ),
    Row(
        property="DeadLetteringOnFilterEvaluationExceptions",
        kinds=PROPERTIES["DeadLetteringOnFilterEvaluationExceptions"].kinds,
        rabbitmq=_NOTHING,
        with_bridge=(bridge(),),
        plain=(exact("Bindings cannot fail."),),
    ),
    Row(
        property="UserMetadata",
        kinds=PROPERTIES["UserMetadata"].kinds,
        rabbitmq="global parameter",
        with_bridge=(when("none", _is("user_metadata", lambda v: not v), exact()), bridge()),
        plain=(
            when("none", _is("user_metadata", lambda v: not v), exact()),
            lost("There is no place for it."),
        ),
    ),
    Row(
        property="Subscriptions",
        kinds=frozenset({Kind.TOPIC}),
        rabbitmq="a queue for each, bound to the topic's exchange",
        with_bridge=(when("none", _is("subscriptions", lambda v: not v), exact()), bridge()),
        plain=(exact(),),
    ),
    Row(
        property="Rules",
        kinds=frozenset({Kind.SUBSCRIPTION}),
        rabbitmq="bridge: evaluated when a message gets its number; plain: bindings",
        with_bridge=(bridge(),),
        plain=(
            when(
                "SQL filter (other than 1=1 and 1=0)",
                _unbound(lambda rule: isinstance(rule.filter, model.SqlFilter)),
                lost("RabbitMQ evaluates no SQL; the subscription does not get these messages."),
            ),
            when(
                "correlation filter on more than application properties",
                _unbound(_has_fields),
                lost(
                    "A headers exchange sees headers only; the subscription does not get these "
                    "messages."
                ),
            ),
            when(
                "correlation filter on fractions, times or durations",
                _unbound(lambda _: True),
                lost(
                    "A headers exchange does not compare these types; the subscription does not "
                    "get these messages."
                ),
            ),
            when(
                "with an action",
                _rule(lambda rule, target: bool(selection(rule, target)[1])),
                lost("RabbitMQ changes no message on its way: it comes as it was sent."),
            ),
            exact(),
        ),
    ),
    Row(
        property="AuthorizationRules",
        kinds=frozenset({Kind.QUEUE, Kind.TOPIC}),
        rabbitmq=_NOTHING,
        with_bridge=(when("none", _is("authorization_rules", lambda v: not v), exact()), bridge()),
        plain=(
            when("none", _is("authorization_rules", lambda v: not v), exact()),
            lost("RabbitMQ has users and permissions; make them by hand."),
        ),
    ),
    Row(
        property="AuthorizationRules",
        kinds=frozenset(),
        rabbitmq=_NOTHING,
        with_bridge=(when("none", _is("authorization_rules", lambda v: not v), exact()), bridge()),
        plain=(
            when("none", _is("authorization_rules", lambda v: not v), exact()),
            lost("RabbitMQ has users and permissions; make them by hand."),
        ),
    ),
    Row(
        property="Tier",
        kinds=frozenset(),
        rabbitmq="operator policy for the longest TTL of the Basic tier",
        with_bridge=(
            when("Basic", _is("tier", lambda v: v is model.Tier.BASIC), exact()),
            bridge("Message sizes are those of the tier."),
        ),
        plain=(approximate("Message sizes and other quotas of the tier are not RabbitMQ's."),),
    ),
)
"""Every property, in the order of docs and reports."""
