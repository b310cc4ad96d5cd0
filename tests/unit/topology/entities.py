"""Hypothesis strategies for entities and namespaces, every field included."""

from __future__ import annotations

from datetime import UTC, timedelta

from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.model.duration import MAX_MS

_NAME_ENDS = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789"
_NAME_INSIDE = _NAME_ENDS + "._-"


def names(length_max: int = 50) -> st.SearchStrategy[str]:
    """Names that Service Bus takes."""
    inside = st.text(_NAME_INSIDE, max_size=length_max - 2)
    ends = st.sampled_from(_NAME_ENDS)
    return st.one_of(ends, st.builds(lambda a, b, c: a + b + c, ends, inside, ends))


def paths() -> st.SearchStrategy[str]:
    """Names of queues and topics: with slashes, and as long as they may be."""
    return st.lists(names(85), min_size=1, max_size=3).map("/".join)


def durations_ms(low_ms: int, high_ms: int = MAX_MS - 1_001) -> st.SearchStrategy[int]:
    """Durations, those at the limits of Service Bus and RabbitMQ more often than others."""
    edges = [
        edge
        for edge in (low_ms, 315_360_000_000, 315_360_000_001, high_ms)
        if low_ms <= edge <= high_ms
    ]
    found = st.one_of(st.sampled_from(edges), st.integers(low_ms, high_ms))
    return found if high_ms < MAX_MS - 1_001 else st.one_of(found, st.just(MAX_MS))


TEXTS = st.text(max_size=20)
OPTIONAL_TEXTS = st.none() | TEXTS

TYPED_VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(min_value=timedelta(days=-1000), max_value=timedelta(days=1000)),
    st.uuids(),
    st.none(),
    st.binary(max_size=8),
)
PAIRS = st.lists(st.tuples(TEXTS, TYPED_VALUES), max_size=3).map(tuple)

FILTERS: st.SearchStrategy[model.Filter] = st.one_of(
    st.builds(model.TrueFilter),
    st.builds(model.FalseFilter),
    st.builds(model.SqlFilter, expression=TEXTS, parameters=PAIRS),
    st.builds(
        model.CorrelationFilter,
        content_type=OPTIONAL_TEXTS,
        correlation_id=OPTIONAL_TEXTS,
        label=OPTIONAL_TEXTS,
        message_id=OPTIONAL_TEXTS,
        reply_to=OPTIONAL_TEXTS,
        reply_to_session_id=OPTIONAL_TEXTS,
        session_id=OPTIONAL_TEXTS,
        to=OPTIONAL_TEXTS,
        properties=PAIRS,
    ),
)
RULES = st.lists(
    st.builds(model.Rule, name=names(), filter=FILTERS, action=TEXTS, action_parameters=PAIRS),
    max_size=3,
    unique_by=lambda rule: rule.name.lower(),
).map(tuple)
AUTHORIZATION_RULES = st.lists(
    st.builds(
        model.AuthorizationRule,
        name=names(),
        primary_key=TEXTS,
        secondary_key=TEXTS,
        rights=st.sampled_from(
            [
                frozenset({model.Right.SEND}),
                frozenset({model.Right.SEND, model.Right.LISTEN}),
                frozenset(model.Right),
            ]
        ),
    ),
    max_size=2,
).map(tuple)

_COMMON = {
    "default_message_time_to_live_ms": durations_ms(1_000),
    "auto_delete_on_idle_ms": durations_ms(300_000),
    "enable_batched_operations": st.booleans(),
    "user_metadata": TEXTS,
}
_RECEIVED = {
    "lock_duration_ms": durations_ms(5_000, 300_000),
    "requires_session": st.booleans(),
    "dead_lettering_on_message_expiration": st.booleans(),
    "max_delivery_count": st.integers(1, 2**31 - 1),
    "forward_to": TEXTS,
    "forward_dead_lettered_messages_to": TEXTS,
}
_SENT = {
    "max_size_mb": st.sampled_from([1, 1024, 5120, 81_920]),
    "requires_duplicate_detection": st.booleans(),
    "duplicate_detection_history_time_window_ms": durations_ms(20_000, 604_800_000),
    "enable_partitioning": st.booleans(),
    "enable_express": st.booleans(),
    "max_message_size_kb": st.none() | st.integers(1, 102_400),
    "authorization_rules": AUTHORIZATION_RULES,
}

QUEUES = st.builds(
    model.Queue,
    name=paths(),
    status=st.sampled_from(model.EntityStatus),
    **_COMMON,
    **_RECEIVED,
    **_SENT,
)


def subscriptions(topic: str) -> st.SearchStrategy[model.Subscription]:
    """Subscriptions of a topic."""
    return st.builds(
        model.Subscription,
        topic=st.just(topic),
        name=names(),
        dead_lettering_on_filter_evaluation_exceptions=st.booleans(),
        rules=RULES,
        **_COMMON,
        **_RECEIVED,
    )


@st.composite
def topics(draw: st.DrawFn) -> model.Topic:
    """Topics with subscriptions."""
    name = draw(paths())
    return draw(
        st.builds(
            model.Topic,
            name=st.just(name),
            support_ordering=st.booleans(),
            filtering_messages_before_publishing=st.booleans(),
            subscriptions=st.lists(
                subscriptions(name), max_size=3, unique_by=lambda each: each.name.lower()
            ).map(lambda found: tuple(sorted(found, key=lambda each: each.name.lower()))),
            **_COMMON,
            **_SENT,
        )
    )


@st.composite
def namespaces(draw: st.DrawFn) -> model.Namespace:
    """Namespaces, their entities sorted by name."""
    queues = draw(st.lists(QUEUES, max_size=4, unique_by=lambda each: each.name.lower()))
    taken = {queue.name.lower() for queue in queues}
    found = draw(st.lists(topics(), max_size=2, unique_by=lambda each: each.name.lower()))
    return model.Namespace(
        name=draw(names()),
        tier=draw(st.sampled_from(model.Tier)),
        authorization_rules=draw(AUTHORIZATION_RULES),
        queues=tuple(sorted(queues, key=lambda queue: queue.name.lower())),
        topics=tuple(
            sorted(
                (topic for topic in found if topic.name.lower() not in taken),
                key=lambda topic: topic.name.lower(),
            )
        ),
    )
