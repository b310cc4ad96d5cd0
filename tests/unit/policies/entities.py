"""Hypothesis strategies for namespaces that every format can write down."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.model.values import SETTABLE_STATUSES
from tests.unit.topology.entities import durations_ms, names, paths

TEXTS = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="\x7f"), max_size=20
).map(lambda text: text.replace("\x85", "").replace("\u2028", ""))
"""What XML 1.0 can hold, too."""

FULL_TEXTS = TEXTS.filter(lambda text: bool(text.strip()))
KEYS = FULL_TEXTS.map(lambda text: text.strip().replace(":", "_"))
"""Service Bus Explorer writes `key: value`, so a colon in a key would be ambiguous."""

VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def filters(values: st.SearchStrategy[Any]) -> st.SearchStrategy[model.Filter]:
    """Filters whose correlation properties are drawn from `values`."""
    sql = TEXTS.map(lambda text: f"a = {_quoted(text)}")
    properties = st.dictionaries(KEYS, values, max_size=3)
    correlation = st.builds(
        model.CorrelationFilter,
        content_type=st.none() | FULL_TEXTS,
        label=st.none() | FULL_TEXTS,
        reply_to_session_id=st.none() | FULL_TEXTS,
        to=FULL_TEXTS,
        properties=properties.map(lambda found: tuple(found.items())),
    )
    return st.one_of(
        st.just(model.TrueFilter()),
        st.just(model.FalseFilter()),
        st.builds(model.SqlFilter, expression=sql),
        correlation,
    )


ACTIONS = TEXTS.map(lambda text: f"SET a = {_quoted(text)}")


def rules(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[model.Rule, ...]]:
    """One rule or more, each name once."""
    rule = st.builds(model.Rule, name=names(), filter=filters(values), action=st.just("") | ACTIONS)
    return st.lists(rule, min_size=1, max_size=3, unique_by=lambda r: r.name.lower()).map(tuple)


def access_rules() -> st.SearchStrategy[tuple[model.AuthorizationRule, ...]]:
    """Authorization rules with keys."""
    rule = st.builds(
        model.AuthorizationRule,
        name=names(),
        primary_key=st.text("abcXYZ019+/=", min_size=1, max_size=44),
        secondary_key=st.text("abcXYZ019+/=", max_size=44),
        rights=st.sampled_from(
            [frozenset({model.Right.LISTEN}), frozenset({model.Right.SEND}), frozenset(model.Right)]
        ),
    )
    return st.lists(rule, max_size=2, unique_by=lambda r: r.name.lower()).map(tuple)


def _common(*, has_metadata: bool) -> dict[str, Any]:
    return {
        "default_message_time_to_live_ms": durations_ms(1_000),
        "auto_delete_on_idle_ms": durations_ms(300_000),
        "enable_batched_operations": st.booleans(),
        "user_metadata": FULL_TEXTS | st.just("") if has_metadata else st.just(""),
    }


def _received(targets: list[str]) -> dict[str, Any]:
    target = st.sampled_from(["", *targets])
    return {
        "lock_duration_ms": durations_ms(5_000, 300_000),
        "requires_session": st.booleans(),
        "dead_lettering_on_message_expiration": st.booleans(),
        "max_delivery_count": st.integers(1, 2**31 - 1),
        "forward_to": target,
        "forward_dead_lettered_messages_to": target,
    }


def _sent(has_keys: bool) -> dict[str, Any]:
    return {
        "max_size_mb": st.sampled_from([1024, 2048, 5120]),
        "requires_duplicate_detection": st.booleans(),
        "duplicate_detection_history_time_window_ms": durations_ms(20_000, 604_800_000),
        "enable_partitioning": st.booleans(),
        "enable_express": st.booleans(),
        "max_message_size_kb": st.none() | st.integers(257, 102_400),
        "authorization_rules": access_rules() if has_keys else st.just(()),
    }


@st.composite
def namespaces(
    draw: st.DrawFn,
    *,
    values: st.SearchStrategy[Any] = VALUES,
    has_metadata: bool = True,
    has_keys: bool = True,
    has_prefilter: bool = True,
) -> model.Namespace:
    """Namespaces in which every forwarding has a target."""
    taken = draw(st.lists(paths(), min_size=1, max_size=5, unique_by=str.lower))
    split = draw(st.integers(0, len(taken)))
    queues = tuple(
        draw(
            st.builds(
                model.Queue,
                name=st.just(name),
                status=st.sampled_from(SETTABLE_STATUSES),
                **_common(has_metadata=has_metadata),
                **_received(taken),
                **_sent(has_keys),
            )
        )
        for name in taken[:split]
    )
    topics = tuple(
        _topic(draw, name, taken, values, has_metadata, has_keys, has_prefilter)
        for name in taken[split:]
    )
    return model.Namespace(
        name=draw(st.from_regex(r"[a-z][a-z0-9-]{4,20}[a-z0-9]", fullmatch=True)),
        queues=queues,
        topics=topics,
        authorization_rules=draw(access_rules()) if has_keys else (),
    )


def _topic(
    draw: st.DrawFn,
    name: str,
    taken: list[str],
    values: st.SearchStrategy[Any],
    has_metadata: bool,
    has_keys: bool,
    has_prefilter: bool,
) -> model.Topic:
    own = draw(st.lists(names(), max_size=2, unique_by=str.lower))
    status = [each for each in SETTABLE_STATUSES if each is not model.EntityStatus.SEND_DISABLED]
    subscriptions = tuple(
        draw(
            st.builds(
                model.Subscription,
                topic=st.just(name),
                name=st.just(each),
                dead_lettering_on_filter_evaluation_exceptions=st.booleans(),
                status=st.sampled_from(status),
                rules=rules(values),
                **_common(has_metadata=has_metadata),
                **_received(taken),
            )
        )
        for each in own
    )
    return draw(
        st.builds(
            model.Topic,
            name=st.just(name),
            support_ordering=st.booleans(),
            filtering_messages_before_publishing=st.booleans() if has_prefilter else st.just(False),
            subscriptions=st.just(subscriptions),
            **_common(has_metadata=has_metadata),
            **_sent(has_keys),
        )
    )
