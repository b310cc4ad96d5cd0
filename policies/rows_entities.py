"""Rows of the mapping table: lifetime, status, rules and access rights."""

from __future__ import annotations

from collections.abc import Callable

from bridge.model import entity as model
from bridge.model.duration import is_forever
from bridge.model.properties import EntityKind
from bridge.model.rules import CORRELATION_FIELDS
from bridge.topology.capabilities import Capabilities
from bridge.topology.selection import selection
from policies.grade import Subject, approximate, bridge, exact, lost, when
from policies.row import NOTHING, Row, has, none, off


def _rule(test: Callable[[model.Rule, Capabilities], bool]) -> Callable[[Subject], bool]:
    return lambda subject: subject.rule is not None and test(subject.rule, subject.capabilities)


def _unbound(test: Callable[[model.Rule], bool]) -> Callable[[Subject], bool]:
    """Return a function: whether no binding can do a subject's rule, and `test` says why."""

    def applies(rule: model.Rule, capabilities: Capabilities) -> bool:
        arguments, reason = selection(rule, capabilities)
        return arguments is None and bool(reason) and test(rule)

    return _rule(applies)


def _has_fields(rule: model.Rule) -> bool:
    """Whether a correlation filter compares more than application properties."""
    given = rule.filter
    return isinstance(given, model.CorrelationFilter) and any(
        getattr(given, field) is not None for field in CORRELATION_FIELDS.values()
    )


ENTITIES: tuple[Row, ...] = (
    Row(
        property="AutoDeleteOnIdle",
        only=frozenset({EntityKind.QUEUE, EntityKind.SUBSCRIPTION}),
        rabbitmq="plain: policy expires",
        both=(when("never", has("auto_delete_on_idle_ms", is_forever), exact()),),
        with_bridge=(
            bridge(
                "RabbitMQ's expires is not used: sends and peeks do not renew it. Native consumers "
                "are looked for every half minute."
            ),
        ),
        plain=(
            approximate(
                "expires counts consumers and basic.get only: a queue that is merely sent to is "
                "deleted, with its messages."
            ),
        ),
    ),
    Row(
        property="AutoDeleteOnIdle",
        only=frozenset({EntityKind.TOPIC}),
        rabbitmq=NOTHING,
        both=(when("never", has("auto_delete_on_idle_ms", is_forever), exact()),),
        with_bridge=(bridge(),),
        plain=(lost("An exchange does not expire."),),
    ),
    Row(
        property="Status",
        rabbitmq=NOTHING,
        both=(when("Active", has("status", lambda v: v is model.EntityStatus.ACTIVE), exact()),),
        with_bridge=(bridge(),),
        plain=(lost("RabbitMQ has no disabled queue; take permissions away instead."),),
    ),
    Row(
        property="EnablePartitioning",
        rabbitmq=NOTHING,
        both=(off("enable_partitioning"),),
        with_bridge=(bridge("Partitions are numbers only: one queue holds them all."),),
        plain=(approximate("One queue; no partition keys."),),
    ),
    Row(
        property="EnableExpress",
        rabbitmq="quorum queue",
        both=(off("enable_express"), approximate("Every message is stored at once.")),
    ),
    Row(
        property="EnableBatchedOperations",
        rabbitmq=NOTHING,
        both=(exact("It changes how fast Azure is, and nothing else."),),
    ),
    Row(
        property="SupportOrdering",
        rabbitmq="quorum queues keep the order",
        both=(exact(),),
    ),
    Row(
        property="FilteringMessagesBeforePublishing",
        rabbitmq=NOTHING,
        both=(off("filtering_messages_before_publishing"),),
        with_bridge=(approximate("A message that no subscription takes is dropped, not refused."),),
        plain=(approximate("Only a mandatory publish is told that no queue took it."),),
    ),
    Row(
        property="DeadLetteringOnFilterEvaluationExceptions",
        rabbitmq=NOTHING,
        with_bridge=(bridge(),),
        plain=(exact("Bindings cannot fail."),),
    ),
    Row(
        property="UserMetadata",
        rabbitmq="global parameter",
        both=(none("user_metadata"),),
        with_bridge=(bridge(),),
        plain=(lost("There is no place for it."),),
    ),
    Row(
        property="Subscriptions",
        only=frozenset({EntityKind.TOPIC}),
        rabbitmq="a queue for each, bound to the topic's exchange",
        with_bridge=(none("subscriptions"), bridge()),
        plain=(exact(),),
    ),
    Row(
        property="Rules",
        only=frozenset({EntityKind.SUBSCRIPTION}),
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
    *(
        Row(
            property="AuthorizationRules",
            only=kinds,
            rabbitmq=NOTHING,
            both=(none("authorization_rules"),),
            with_bridge=(bridge(),),
            plain=(lost("RabbitMQ has users and permissions; make them by hand."),),
        )
        for kinds in (frozenset({EntityKind.QUEUE, EntityKind.TOPIC}), frozenset[EntityKind]())
    ),
    Row(
        property="Tier",
        only=frozenset(),
        rabbitmq="operator policy for the longest TTL of the Basic tier",
        with_bridge=(
            when("Basic", has("tier", lambda v: v is model.Tier.BASIC), exact()),
            bridge("Message sizes are those of the tier."),
        ),
        plain=(approximate("Message sizes and other quotas of the tier are not RabbitMQ's."),),
    ),
)
"""Lifetime, status, rules and rights."""
