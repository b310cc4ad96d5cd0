"""True, false and correlation filters, and what each subscription gets of a message."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from bridge.model.entity import CorrelationFilter, FalseFilter, Rule, SqlFilter, TrueFilter
from bridge.model.filters.rules import Match, RuleSet
from bridge.wire.basic import Properties, long, text
from tests.unit.filters.subjects import message, rules, takers


def test_true_takes_every_message_and_false_none() -> None:
    """Every message matches 1=1, none 1=0."""
    assert takers(rules(a=TrueFilter(), b=FalseFilter()), message()) == ["a"]


def test_every_field_of_a_correlation_filter_must_match() -> None:
    """All given fields must match."""
    found = rules(
        both=CorrelationFilter(label="Important", properties=(("color", "Red"),)),
        label=CorrelationFilter(label="Important"),
        other=CorrelationFilter(label="Important", properties=(("color", "Blue"),)),
    )
    view = message(Properties(type="Important"), color=text("Red"))
    assert takers(found, view) == ["both", "label"]


def test_a_time_without_a_zone_is_compared_as_utc() -> None:
    """A rule keeps it as it was given; a message's times are UTC."""
    given = datetime(2026, 7, 5, 11, 12, 13)  # noqa: DTZ001 (without a zone)
    found = rules(
        correlation=CorrelationFilter(properties=(("at", given),)),
        sql=SqlFilter(expression="at = @given", parameters=(("@given", given),)),
    )
    view = message(Properties(), at=("T", int(given.replace(tzinfo=UTC).timestamp())))
    assert takers(found, view) == ["correlation", "sql"]


@pytest.mark.parametrize(
    ("field", "properties"),
    [
        ("content_type", Properties(content_type="x")),
        ("correlation_id", Properties(correlation_id="x")),
        ("label", Properties(type="x")),
        ("message_id", Properties(message_id="x")),
        ("reply_to", Properties(reply_to="x")),
        ("reply_to_session_id", Properties(headers={"x-opt-reply-to-session-id": text("x")})),
        ("session_id", Properties(headers={"x-opt-session-id": text("x")})),
        ("to", Properties(headers={"x-opt-to": text("x")})),
    ],
)
def test_each_field_compares_the_property_that_a_native_publisher_sets(
    field: str, properties: Properties
) -> None:
    """A native publisher sets each field by a 0-9-1 property; case counts."""
    found = rules(same=CorrelationFilter(**{field: "x"}), case=CorrelationFilter(**{field: "X"}))
    assert takers(found, message(properties)) == ["same"]
    assert takers(found, message()) == []


def test_a_value_of_another_type_is_another_value() -> None:
    """A text is no number, a boolean neither; long and double are one."""
    found = rules(
        text=CorrelationFilter(properties=(("version", "2"),)),
        number=CorrelationFilter(properties=(("version", 2),)),
        boolean=CorrelationFilter(properties=(("version", True),)),
    )
    assert takers(found, message(version=long(2))) == ["number"]
    assert takers(found, message(version=text("2"))) == ["text"]
    assert takers(found, message(version=("t", True))) == ["boolean"]
    assert takers(found, message(version=("d", 2.0))) == ["number"]
    assert takers(found, message(version=("V", None))) == []


def test_names_of_properties_have_no_case() -> None:
    """Color is color."""
    found = rules(a=CorrelationFilter(properties=(("Color", "Red"),)))
    assert takers(found, message(cOLOR=text("Red"))) == ["a"]


def test_several_rules_without_action_give_one_copy() -> None:
    """Rules without action are ORed."""
    both = (
        Rule(name="one", filter=CorrelationFilter(label="x")),
        Rule(name="two", filter=TrueFilter()),
    )
    found = RuleSet.of({"a": both, "b": both[:1]}, new_id=lambda: UUID(int=1))
    selection = found.select(message(Properties(type="x")))
    assert selection.matches == [Match("a"), Match("b")]


def test_an_empty_correlation_filter_fails_for_every_message() -> None:
    """Service Bus would have refused it; it takes no message silently."""
    selection = rules(a=CorrelationFilter()).select(message())
    assert not selection.matches
    (failure,) = selection.failures
    assert (failure.subscription, failure.rule_name) == ("a", "r")
    assert "at least one" in failure.description


def test_a_thousand_subscriptions_cost_the_one_that_matches() -> None:
    """Only filters whose value is there are evaluated."""
    found = rules(**{f"s{n}": CorrelationFilter(properties=(("store", n),)) for n in range(1000)})
    candidates = list(found.candidates(message(store=long(7))))
    assert [target.match.subscription for each in candidates for target in each.targets] == ["s7"]


def test_a_filter_is_found_by_the_term_that_fewest_others_share() -> None:
    """A region that all share leads to no filter; a store does."""
    found = rules(
        **{
            f"s{n}": CorrelationFilter(properties=(("region", "eu"), ("store", n)))
            for n in range(100)
        }
    )
    view = message(region=text("eu"), store=long(7))
    assert len(list(found.candidates(view))) == 1
    assert takers(found, view) == ["s7"]
