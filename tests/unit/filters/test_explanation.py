"""Why a rule does not take a message is said by the comparison that fails."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model.entity import CorrelationFilter, FalseFilter, Filter, Rule, SqlFilter, TrueFilter
from bridge.model.filters.explanation import Explanation, explain
from bridge.model.filters.rules import compile_filter
from bridge.model.rules import typed_value
from bridge.wire.basic import Properties
from tests.fixtures.examples import examples
from tests.unit.filters.subjects import GUID, message

ORDER = message(Properties(type="order"), Color="red", size=5, nothing=None)


def of(source: Filter | str, action: str = "") -> Explanation:
    """Return what a rule makes of an order."""
    found = SqlFilter(expression=source) if isinstance(source, str) else source
    return explain(Rule(name="r", filter=found, action=action), ORDER, lambda: GUID)


@pytest.mark.parametrize(
    ("expression", "reasons"),
    [
        ("color = 'blue'", ["color = 'blue': Color is 'red'"]),
        ("color = 'RED'", ["color = 'RED': Color is 'red' (case counts)"]),
        ("size > 5 AND color = 'red'", ["size > 5: size is 5"]),
        ("size > 5 AND color = 'x'", ["size > 5: size is 5", "color = 'x': Color is 'red'"]),
        ("colour = 'red'", ["colour = 'red': the message has no colour (it has Color)"]),
        ("weight > 1", ["weight > 1: the message has no weight"]),
        ("nothing = 1", ["nothing = 1: nothing is null"]),
        ("label = 'order'", ["label = 'order': the message has no label (sys.Label is 'order')"]),
        ("sys.SessionId = 'a'", ["sys.SessionId = 'a': the message has no sys.SessionId"]),
        (
            "color = 'a' OR size = 1",
            ["color = 'a': Color is 'red'; and size = 1: size is 5"],
        ),
        ("NOT (color = 'red')", ["NOT (color = 'red'): Color is 'red'"]),
        ("color NOT IN ('red', 'x')", ["color NOT IN ('red', 'x'): Color is 'red'"]),
        ("color LIKE 'b%'", ["color LIKE 'b%': Color is 'red'"]),
        ("EXISTS(weight)", ["EXISTS(weight): the message has no weight"]),
        ("color IS NULL", ["color IS NULL: Color is 'red'"]),
        ("property('wei' + 'ght') = 1", ["property('wei' + 'ght') = 1: the message has no weight"]),
        ("1 = 2", ["1 = 2: it never holds"]),
        (
            "size = '5'",
            [
                "size = '5' fails: The operator = does not take a number and a string. "
                "Here size is 5."
            ],
        ),
        (
            "sys.Labl = 'order'",
            [
                "sys.labl = 'order' fails: There is no system property 'labl'. "
                "There is no system property 'labl' (there is sys.Label)."
            ],
        ),
    ],
)
def test_the_reason_is_the_comparison_and_the_value(expression: str, reasons: list[str]) -> None:
    """Or the property that is missing, with one that may be meant."""
    found = of(expression)
    assert not found.takes
    assert list(found.reasons) == reasons


def test_a_correlation_filter_names_each_field_that_is_another() -> None:
    """System properties and the sender's own; another type is another value."""
    source = CorrelationFilter(
        label="order", session_id="a", properties=(("color", "Red"), ("size", "5"), ("x", 1))
    )
    assert of(source).reasons == (
        "sys.SessionId = 'a': the message has no sys.SessionId",
        "color = 'Red': Color is 'red' (case counts)",
        "size = '5': size is 5, a number, and not a string",
        "x = 1: the message has no x",
    )


def test_a_correlation_filter_is_explained_by_the_values_it_compares() -> None:
    """A long is a number as an int is, and a null compares nothing."""
    source = CorrelationFilter(
        label="order", properties=(("size", typed_value("long", "6")), ("color", None))
    )
    assert of(source).reasons == ("size = 6: size is 5",)
    other = CorrelationFilter(properties=(("color", typed_value("long", "6")),))
    assert of(other).reasons == ("color = 6: Color is 'red', a string, and not a number",)


def test_a_rule_that_takes_the_message_says_what_its_action_does() -> None:
    """The copy's changes, in the order of the action."""
    found = of(TrueFilter(), "SET size = size + 1; REMOVE color")
    assert found.takes
    assert [(each.name, repr(each.value)) for each in found.changes] == [
        ("size", "6"),
        ("Color", "REMOVED"),
    ]
    assert of("color = 'red'") == Explanation(True)


def test_what_cannot_be_evaluated_is_a_failure() -> None:
    """Service Bus dead-letters the message then, or drops it: the reader must know."""
    assert of("size = '5'").failure == "The operator = does not take a number and a string."
    assert of(TrueFilter(), "SET sys.SequenceNumber = 1").failure == (
        "The system property SequenceNumber cannot be changed."
    )
    assert of("color >").reasons[0].startswith("The rule cannot be read: ")
    assert of(FalseFilter()).reasons == ("The filter is false for every message.",)


PARTS = st.sampled_from(
    [
        "color = 'red'",
        "color = 'blue'",
        "size > 3",
        "size = '5'",
        "weight < 1",
        "sys.Label LIKE 'or%'",
        "color IS NULL",
        "size IN (1, 2)",
        "EXISTS(size)",
        "nothing <> 1",
        "sys.Odd = 1",
    ]
)
FILTERS = st.recursive(
    PARTS,
    lambda inner: st.one_of(
        inner.map(lambda text: f"NOT ({text})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(expression=FILTERS)
def test_whatever_the_filter_the_engine_decides_and_each_no_has_a_reason(expression: str) -> None:
    """No reason where it takes the message, and none that is empty."""
    found = of(expression)
    if not found.failure:
        compiled = compile_filter(SqlFilter(expression=expression), lambda: GUID)
        assert found.takes == bool(compiled.predicate(ORDER))
    assert bool(found.reasons) != found.takes
    assert all(found.reasons)
