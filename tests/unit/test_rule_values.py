"""Values of rules keep the types that they were given in, and are compared without them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.model.decimals import made
from bridge.model.rule_values import Moment, Single, Span, Text, Whole, plain
from bridge.model.rules import typed_value
from bridge.topology.definitions import from_json, to_json
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.types import (
    Byte,
    Char,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from bridge.wire.amqp10.writing import encode
from bridge.wire.atom.rules import filter_node, read_filter
from bridge.wire.atom.writing import INSTANCE, XmlElement, document
from bridge.wire.atom.xml import parse
from bridge.wire.filter_values import DATETIME_OFFSET, TIMESPAN, URI, from_amqp
from bridge.wire.rule_values import amqp_value, rule_value
from tests.unit.filters.subjects import rules, takers
from tests.unit.filters.test_action import sent, view_of

OLDER_TYPES = {"null", "double", "dateTime", "duration", "guid", "binary"}
"""The types of values that a definition of the versions before had."""

TICKS_OF_1970 = 621_355_968_000_000_000

longs = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)
http_values = st.one_of(
    longs.map(lambda value: ("long", str(value))),
    st.integers(-(2**31), 2**31 - 1).map(lambda value: ("int", str(value))),
    st.builds(made, st.integers(0, 1), st.integers(0, 2**96 - 1), st.integers(-28, 0)).map(
        lambda value: ("decimal", f"{value:f}")
    ),
    st.builds(
        lambda moment, tick: ("dateTime", f"{moment:%Y-%m-%dT%H:%M:%S.%f}{tick}Z"),
        st.datetimes(datetime(1000, 1, 1)),  # noqa: DTZ001 (the text has the zone)
        st.integers(1, 9),
    ),
    st.builds(
        lambda sign, seconds, ticks: ("duration", f"{sign}PT{seconds}.{ticks:06d}1S"),
        st.sampled_from(["", "-"]),
        st.integers(0, 59),
        st.integers(0, 999_999),
    ),
    st.sampled_from(
        [
            ("string", "t"),
            ("boolean", "true"),
            ("double", "0.5"),
            ("dateTime", "2026-01-01T00:00:00"),
            ("dateTime", "2026-01-01T00:00:00.1234567"),
            ("duration", "P1DT2H"),
            ("duration", "P10675199DT2H48M5.4775807S"),
        ]
    ),
)

AMQP_VALUES: list[Any] = [
    *(
        Ubyte(200),
        Byte(-1),
        Ushort(2),
        Short(-2),
        Uint(3),
        Int(-3),
        Ulong(4),
        Long(-4),
        Long(2**40),
    ),
    *(Float(0.5), 0.25, Char("c"), Symbol("s"), "text", True, False, UUID(int=7)),
    Timestamp(1_700_000_000_123),
    Decimal128(encode_decimal(Decimal("79.90"))[1:]),
    *(Described(Symbol(TIMESPAN), ticks) for ticks in (0, 15, -15, 36_000_000_000)),
    *(Described(Symbol(DATETIME_OFFSET), TICKS_OF_1970 + ticks) for ticks in (0, 7, 10_000_000)),
    Described(Symbol(URI), "http://example.org/"),
]


def subscription(value: object) -> model.Subscription:
    """A subscription with a rule that has a value in each place."""
    pairs = (("a", value),)
    rule = model.Rule(
        name="r",
        filter=model.CorrelationFilter(properties=pairs),
        action="SET a = @a",
        action_parameters=pairs,
    )
    sql = model.Rule(name="s", filter=model.SqlFilter(expression="a = @a", parameters=pairs))
    return model.Subscription(topic="t", name="s", rules=(rule, sql))


def through_rabbitmq(value: object) -> object:
    """The value as another bridge reads it, in a filter, in parameters and in an action."""
    kept = from_json(json.loads(json.dumps(to_json(subscription(value)))))
    assert isinstance(kept, model.Subscription)
    first, second = kept.rules
    assert isinstance(first.filter, model.CorrelationFilter)
    assert isinstance(second.filter, model.SqlFilter)
    ((_, found),) = first.filter.properties
    assert second.filter.parameters == first.action_parameters == (("a", found),)
    return found


def shown(value: object) -> tuple[str, str]:
    """Type and text of a value in an answer over HTTP."""
    node = filter_node(model.CorrelationFilter(properties=(("a", value),)))
    node = node.children[-1].children[0].children[1]
    return node.attributes["i:type"].partition(":")[2], node.text


def older_forms(value: object) -> list[Any]:
    """What a version before reads of a value: it looks at `name` and `value` alone."""
    form: Any = to_json(subscription(value))
    first, second = form["rules"]
    pairs = [
        *first["filter"]["properties"],
        *first["actionParameters"],
        *second["filter"]["parameters"],
    ]
    return [pair["value"] for pair in pairs]


@given(http_values)
def test_a_value_that_comes_over_http_goes_back_with_its_type(given: tuple[str, str]) -> None:
    """To the seventh digit; zeros at the end of a fraction may go."""
    kind, text = given
    found_kind, found = shown(through_rabbitmq(typed_value(kind, text)))
    assert found_kind == kind
    assert found == text or typed_value(kind, found) == typed_value(kind, text)
    if kind in ("long", "int", "decimal", "dateTime"):
        assert found == text


@pytest.mark.parametrize("value", AMQP_VALUES, ids=repr)
def test_a_value_that_comes_by_management_goes_back_with_its_type(value: Any) -> None:
    """Every type that AMQP has, and .NET's own."""
    back = amqp_value(through_rabbitmq(rule_value(value)))
    assert encode(back) == encode(value)


@pytest.mark.parametrize("value", AMQP_VALUES, ids=repr)
def test_types_do_not_count_where_values_are_compared(value: Any) -> None:
    """A message's value of that type equals the rule's, in each kind of filter."""
    assert plain(through_rabbitmq(rule_value(value))) == from_amqp(value)
    kept = rule_value(value)
    found = rules(
        correlation=model.CorrelationFilter(properties=(("a", kept),)),
        sql=model.SqlFilter(expression="a = @a", parameters=(("@a", kept),)),
    )
    assert takers(found, view_of(sent(a=value))) == ["correlation", "sql"]


@pytest.mark.parametrize("value", AMQP_VALUES, ids=repr)
def test_an_older_bridge_reads_the_nearest_value_that_it_knows(value: Any) -> None:
    """The types of before, each with a value that compares as it did."""
    for form in older_forms(rule_value(value)):
        if isinstance(form, dict):
            assert form.keys() == {"type", "value"}
            assert form["type"] in OLDER_TYPES
        else:
            assert isinstance(form, bool | int | str)


def test_what_an_older_bridge_reads_of_each() -> None:
    """A long is an int, times are whole microseconds, a decimal is a double."""
    cases: list[tuple[object, object]] = [
        (Whole(3, "long"), 3),
        (Single(0.5), {"type": "double", "value": "0.5"}),
        (Decimal("79.90"), {"type": "double", "value": "79.9"}),
        (Text("x", "uri"), "x"),
        (Span.of_ticks(15), {"type": "duration", "value": "1"}),
        (
            Moment.of(datetime(2026, 1, 1, microsecond=5, tzinfo=UTC), 7),
            {"type": "dateTime", "value": "2026-01-01T00:00:00.000005+00:00"},
        ),
    ]
    for value, form in cases:
        assert older_forms(value) == [form] * 3


def test_a_value_that_was_changed_by_hand_or_by_an_older_bridge_counts() -> None:
    """The value beside it is then the exact form of another value, or of a newer type."""
    form: Any = to_json(subscription(Whole(3, "long")))
    (pair,) = form["rules"][0]["filter"]["properties"]
    for change, wanted in [
        ({"value": 4}, 4),
        ({"exact": {"type": "int128", "value": "3"}}, 3),
        ({"exact": {"type": "long", "value": "x"}}, 3),
        ({"exact": {"type": "decimal", "value": "x"}}, 3),
        ({"exact": 5}, 3),
    ]:
        changed = json.loads(json.dumps(form))
        changed["rules"][0]["filter"]["properties"] = [pair | change]
        kept = from_json(changed)
        assert isinstance(kept, model.Subscription)
        assert isinstance(kept.rules[0].filter, model.CorrelationFilter)
        ((_, value),) = kept.rules[0].filter.properties
        assert (type(value), value) == (int, wanted)


def test_a_time_keeps_its_zone_beside_its_seventh_digit() -> None:
    """It is shown in UTC; without a zone it stays without one."""
    zone = timezone(timedelta(hours=2))
    moment = Moment.of(datetime(2026, 1, 1, 2, tzinfo=zone), 7)
    kept = through_rabbitmq(moment)
    assert isinstance(kept, Moment)
    assert (kept, kept.tick, kept.utcoffset()) == (moment, 7, timedelta(hours=2))
    assert shown(kept) == ("dateTime", "2026-01-01T00:00:00.0000007Z")


@pytest.mark.parametrize("text", ["1e29", "x", "NaN", "0.00000000000000000000000000001", ""])
def test_a_decimal_that_dotnet_cannot_hold_is_refused_in_a_rule(text: str) -> None:
    """Over HTTP, by what it takes."""
    with pytest.raises(ValueError, match="96 bits with 28 places"):
        typed_value("decimal", text)


def test_the_values_of_a_document_are_read_with_their_types() -> None:
    """The reader and the writer of documents are each other's."""
    values = [Whole(3, "long"), 3, Decimal("1.50"), Span.of_ticks(15), Span.of_ticks(-15)]
    pairs = tuple((str(index), value) for index, value in enumerate(values))
    node = filter_node(model.CorrelationFilter(properties=pairs))
    root = XmlElement("R", children=(node,), attributes={"xmlns:i": INSTANCE})
    (found,) = parse(document(root), elements_max=100)
    given = read_filter(found.find("Filter"))
    assert isinstance(given, model.CorrelationFilter)
    assert [(type(value), value) for _, value in given.properties] == [
        (type(value), value) for value in values
    ]
