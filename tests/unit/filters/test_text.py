"""The text of a parsed filter is that filter."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bridge.model.filters import expression as tree
from bridge.model.filters.errors import InvalidRule
from bridge.model.filters.message import SYSTEM_PROPERTIES, Property
from bridge.model.filters.parser import parse_filter
from bridge.model.filters.text import text_of, value_text
from bridge.model.rule_values import Span, Text
from tests.fixtures.examples import examples

NAMES = st.sampled_from(["color", "in", "a b", "a]b", "1st", "größe", "_x", "size"])
PROPERTIES = NAMES.map(lambda name: Property(False, name.lower())) | st.sampled_from(
    sorted(SYSTEM_PROPERTIES)
).map(lambda name: Property(True, name))
CONSTANTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
).map(tree.Constant)

EXPRESSIONS = st.recursive(
    CONSTANTS | PROPERTIES | st.just(tree.NewId()),
    lambda inner: st.one_of(
        inner.map(tree.Named),
        st.builds(tree.Arithmetic, st.sampled_from("+-*/%"), inner, inner),
        st.builds(tree.Unary, st.sampled_from("+-"), inner),
    ),
    max_leaves=4,
)


PATTERNS = st.text("a%_", max_size=4).map(tree.Constant) | PROPERTIES
TESTS = st.one_of(
    st.builds(
        tree.Comparison,
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        EXPRESSIONS,
        EXPRESSIONS,
    ),
    st.builds(tree.IsNull, PROPERTIES | EXPRESSIONS.map(tree.Named)),
    st.builds(tree.Exists, PROPERTIES),
    st.builds(tree.In, EXPRESSIONS, st.lists(EXPRESSIONS, min_size=1, max_size=3).map(tuple)),
    st.builds(tree.Like, EXPRESSIONS, PATTERNS, st.none()),
    st.builds(tree.Like, EXPRESSIONS, PATTERNS, st.just(tree.Constant("!"))),
)


def _joined(kind: type, inner: st.SearchStrategy) -> st.SearchStrategy:
    """Return AND or OR of parts that are none of it: the parser makes them flat."""
    parts = inner.filter(lambda node: not isinstance(node, kind))
    return st.lists(parts, min_size=2, max_size=3).map(lambda nodes: kind(tuple(nodes)))


CONDITIONS = st.recursive(
    TESTS,
    lambda inner: inner.map(tree.Not) | _joined(tree.And, inner) | _joined(tree.Or, inner),
    max_leaves=5,
)


@settings(max_examples=examples(400), deadline=None)
@given(node=CONDITIONS)
def test_the_text_of_a_filter_reads_as_the_same_filter(node: tree.Predicate) -> None:
    """With no parentheses missing, whatever stands in whatever."""
    text = text_of(node)
    assume(len(text) <= 1024)
    assert parse_filter(text) == node


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("Color='red'and not(size>3)", "color = 'red' AND NOT (size > 3)"),
        ("a NOT IN(1,2)or b is not null", "a NOT IN (1, 2) OR b IS NOT NULL"),
        ("(a=1 OR b=2) AND sys.label like 'x%'", "(a = 1 OR b = 2) AND sys.Label LIKE 'x%'"),
        ("a-(b-c)=-(-5)", "a - (b - c) = -(-5)"),
        ("[x y] = 'it''s' AND EXISTS(USER.q)", "[x y] = 'it''s' AND EXISTS(q)"),
        ("p('a'+b)<>1.50", "property('a' + b) <> 1.5"),
        ("NOT EXISTS(sys.SessionId)", "NOT EXISTS(sys.SessionId)"),
    ],
)
def test_a_filter_is_shown_as_one_writes_it(written: str, shown: str) -> None:
    """With one space, keywords in capitals, and parentheses where they are needed."""
    assert text_of(parse_filter(written)) == shown


def test_a_value_without_a_literal_is_shown() -> None:
    """It can only come from a parameter."""
    shown = text_of(parse_filter("a > @when", {"@when": datetime(2026, 11, 27, tzinfo=UTC)}))
    assert shown == "a > '2026-11-27T00:00:00Z'"
    with pytest.raises(InvalidRule):
        parse_filter("a > @when")


def test_a_value_of_a_rule_is_shown_whatever_type_it_was_given_in() -> None:
    """A Uri as a text, a span with its seventh digit as a span."""
    assert value_text(Text("http://a", "uri")) == "'http://a'"
    assert value_text(Span.of_ticks(600_000_001)) == "'0:01:00'"
    assert value_text({}) == "a map or a list"
