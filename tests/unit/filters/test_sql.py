"""SQL filters: what each construct of the grammar says of a message, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bridge.model.entity import Rule, SqlFilter, TrueFilter
from bridge.model.filters.errors import InvalidRule
from bridge.model.filters.parser import parse_filter
from bridge.model.filters.rules import Match, RuleSet, check_rule, compile_filter
from bridge.wire.basic import Properties
from tests.unit.filters.subjects import GUID, message, rules, selected, takers

ORDER = message(
    Properties(type="Order", reply_to="me", headers={"x-opt-to": ("S", b"Store5")}),
    color="Red",
    quantity=10,
    price=2.5,
    urgent=True,
    nothing=None,
    **{"Property With Space": "a]b", "http://schemas.microsoft.com/x": "account", "percent": "5%"},
)


@pytest.mark.parametrize(
    "expression",
    [
        "color='Red' AND quantity=10",
        "user.color='Red'",
        "USER . Color = 'Red' and Quantity = 10",
        "color IN ('Blue', 'Red')",
        "sys.To NOT IN ('Store1') OR color NOT IN ('Red')",
        "sys.To IN ('Store5','Store6','Store7') OR color = 'Store8'",
        "\"http://schemas.microsoft.com/x\" = 'account'",
        "[Property With Space] = 'a]b'",
        "quantity > 2.08",
        "sys.Label LIKE '%rd%' AND sys.Subject = 'Order'",
        "sys.label = 'Order' AND SYS.LABEL <> 'x' AND sys.[Label] != 'y'",
        "percent LIKE '5\\%' ESCAPE '\\'",
        "color LIKE 'R_d' AND color NOT LIKE 'r%' AND color LIKE '%' AND color LIKE 'Red'",
        "EXISTS(color) AND NOT EXISTS(size) AND exists(nothing)",
        "size IS NULL AND nothing IS NULL AND color IS NOT NULL",
        "EXISTS(sys.Label) AND NOT EXISTS(sys.SessionId) AND sys.SessionId IS NULL",
        "quantity * 2 + 4 / 2 = 22",
        "(quantity + 2) % 5 = 2 AND -quantity = -10 AND +quantity = 10 AND - -quantity = 10",
        "quantity / 4 = 2 AND quantity / 4.0 = 2.5 AND -7 / 2 = -3 AND -7 % 3 = -1",
        "price = 2.5 AND price = 25E-1 AND price < 3 AND price >= .5",
        "urgent = TRUE AND urgent <> false",
        "property('color') = 'Red' AND P('COL' + 'OR') = 'Red'",
        "color < 'Reds' AND color >= 'Rec'",
        "newid() = newid()",
        "sys.DeliveryCount = 0 AND sys.SequenceNumber = 7 AND sys.Size > 0",
        "sys.ExpiresAtUtc - sys.EnqueuedTimeUtc = sys.TimeToLive",
        "NOT color = 'Blue' AND NOT (size = 1 AND FALSE = TRUE)",
        "size = 1 OR color = 'Red'",
        "9223372036854775807 > quantity AND -9223372036854775808 < quantity",
    ],
)
def test_true(expression: str) -> None:
    """The condition holds for the order."""
    selection = selected(expression, ORDER)
    assert selection.matches == [Match("only")], selection.failures


@pytest.mark.parametrize(
    "expression",
    [
        "size = 1",
        "NOT size = 1",
        "size <> 1",
        "size + 1 > 0 OR -size < 0",
        "size LIKE '%' OR NOT size LIKE '%'",
        "size IN (1, 2) OR size NOT IN (1, 2)",
        "quantity = NULL OR NULL = NULL OR NOT nothing = NULL",
        "quantity NOT IN (1, NULL)",
        "color = 'Red' AND size = 1",
        "color = 'Blue' OR size = 1",
        "property('size') = 1",
        "property(size) = 1",
    ],
)
def test_unknown_is_not_true(expression: str) -> None:
    """A property that is not there makes every operator unknown, and NOT does not change that."""
    selection = selected(expression, ORDER)
    assert not selection.matches
    assert not selection.failures


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("color = 1", "does not take a string and a number"),
        ("quantity <> 'x'", "does not take a number and a string"),
        ("urgent > FALSE", "does not take a boolean and a boolean"),
        ("quantity LIKE '1%'", "LIKE takes a string"),
        ("color LIKE quantity", "are strings"),
        ("color LIKE color ESCAPE 'ab'", "one character"),
        ("color - 'R' = 'ed'", "does not take a string and a string"),
        ("-color = 'x'", "does not take a string"),
        ("quantity / 0 = 1", "divided by zero"),
        ("quantity % (quantity - 10) = 1", "divided by zero"),
        ("9223372036854775807 + quantity > 0", "beyond an Int64"),
        ("sys.Colour = 'x'", "no system property 'colour'"),
        ("sys.Colour IS NULL", "no system property"),
        ("EXISTS(sys.Colour)", "no system property"),
        ("property(quantity) = 1", "takes a string"),
        ("sys.EnqueuedTimeUtc = 'x'", "a DateTime and a string"),
    ],
)
def test_fails(expression: str, why: str) -> None:
    """An operation that C# has no operator for fails the filter, and takes no message silently."""
    selection = selected(expression, ORDER)
    assert not selection.matches
    (failure,) = selection.failures
    assert why in failure.description


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "a value or a condition is expected"),
        ("color", "compare it, as in x = TRUE"),
        ("TRUE", "compare it"),
        ("a = b = c", "A condition stands where a value is expected"),
        ("(a = 1) + 2 = 3", "A condition stands where a value"),
        ("a = 1 AND", "The end at character 10"),
        ("a = 1 b = 2", "'b' at character 7"),
        ("a = 'x", "The string that begins at character 5 does not end"),
        ("[a = 1", "The name that begins at character 1 does not end"),
        ("`a b` = 1", "'`' at character 1"),
        ("a = 5x", "'x' at character 6 stands in a number"),
        ("a = 1.2.3", "number"),
        ("a == 1", "'=' at character 4"),
        ("a = 1 /* b */", "'/*' at character 7 has no meaning here: there are no comments"),
        ("a && b", "'&' at character 3"),
        (
            "a = 1 AND foo.bar = 1",
            "'foo' at character 11 is no scope; there are sys and user. Write [foo.bar]",
        ),
        ("sys = 1 OR sys. = 1", "a property is expected"),
        ("lower(a) = 'x'", "no function 'lower' (at character 1)"),
        ("newid(1) = 1", "')' is expected"),
        ("p() = 1", "a value or a condition"),
        ("a IS 5", "'NULL' is expected"),
        ("5 IS NULL", "IS NULL stands behind a property"),
        ("a IN ()", "a value or a condition"),
        ("a NOT = 1", "IN or LIKE is expected"),
        ("a LIKE 'x' ESCAPE 'xy'", "one character (before character 23)"),
        ("a LIKE 'x!' ESCAPE '!'", "ends with its escape character (before character 23)"),
        ("a LIKE 5 AND b = 1", "Pattern and escape of LIKE are strings (before character 10)"),
        ("a BETWEEN 1 AND 2", "'BETWEEN' at character 3"),
        ("a = 9223372036854775808", "beyond an Int64"),
        ("a = 1e999", "beyond a Double"),
        ("a = @missing", "The parameter @missing at character 5 has no value"),
        ("EXISTS(1)", "a property is expected"),
        ("and = 1", "'AND' at character 1"),
        ('"" = 1', "is empty"),
        ("a = 1" + " " * 1020, "1025 characters"),
        ("(" * 65 + "a = 1" + ")" * 65, "deeper than 64 (before character 65)"),
        ("NOT " * 65 + "a = 1", "deeper than 64"),
        ("a = " + "+".join("1" * 100), "deeper than 64"),
    ],
)
def test_refused(expression: str, why: str) -> None:
    """A text outside the grammar is refused with its place (Azure, SQL filter syntax)."""
    with pytest.raises(InvalidRule):
        compile_filter(SqlFilter(expression=expression), lambda: GUID)
    (failure,) = selected(expression, ORDER).failures
    assert why in failure.description


@pytest.mark.parametrize(
    ("rule", "at"),
    [
        (Rule(name="r", filter=SqlFilter(expression="color='red' -- c")), 13),
        (Rule(name="r", filter=SqlFilter(expression="a = 5--1")), 6),
        (Rule(name="r", filter=TrueFilter(), action="SET a = 5 --1"), 11),
    ],
)
def test_a_new_rule_has_no_comment(rule: Rule, at: int) -> None:
    """Azure has no comments: of `color='red' -- c` it says that the syntax is wrong."""
    with pytest.raises(InvalidRule, match=f"'--' at character {at} has no meaning here"):
        check_rule(rule)


def test_signs_and_texts_are_no_comments() -> None:
    """A minus of a minus is written with a space between; a text may hold anything."""
    for expression in ("a = 5 - -1", "a = '--'", "[a--b] = 1", '"--" = 1'):
        check_rule(Rule(name="r", filter=SqlFilter(expression=expression)))


def test_a_stored_rule_with_two_signs_keeps_its_meaning() -> None:
    """It was taken as a minus of a minus by an earlier version, and takes the same messages."""
    for expression in ("quantity--1 = 11", "quantity = 9--1", "- -quantity = 10"):
        selection = selected(expression, ORDER)
        assert (len(selection.matches), selection.failures) == (1, []), expression
    assert not selected("quantity--1 = 9", ORDER).matches


def test_a_list_of_a_hundred_choices_is_not_deep() -> None:
    """AND, OR and IN are as long as the text may be."""
    parse_filter(" OR ".join(f"a={n}" for n in range(100)))
    parse_filter("a IN (" + ",".join(map(str, range(250))) + ")")


MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "parameters"),
    [
        ("color = @c", {"c": "Red"}),
        ("quantity < @n AND quantity > @d", {"n": 11, "d": 9.5}),
        ("urgent = @b", {"b": True}),
        ("sys.EnqueuedTimeUtc = @t", {"t": MOMENT}),
        ("sys.EnqueuedTimeUtc >= @t", {"t": MOMENT.replace(tzinfo=None)}),
        (
            "sys.EnqueuedTimeUtc - @t <= @s AND @t + @s > @t",
            {"t": MOMENT - timedelta(hours=1), "s": timedelta(hours=2)},
        ),
    ],
)
def test_parameters(expression: str, parameters: dict[str, Any]) -> None:
    """A parameter is a constant of its own type, DateTime and TimeSpan among them."""
    assert selected(expression, ORDER, **parameters).matches


def test_an_equality_term_decides_before_what_fails() -> None:
    """Where `a = 'x'` does not hold the rest is not looked at, wherever it stands."""
    for expression in ("color = 'Blue' AND color > 1", "color > 1 AND color = 'Blue'"):
        selection = selected(expression, ORDER)
        assert not selection.matches
        assert not selection.failures
    assert selected("color > 1 AND color = 'Red'", ORDER).failures


def test_a_value_of_another_type_fails_an_indexed_filter_too() -> None:
    """The index leads to filters that compare the property with another type."""
    found = rules(text="color = 'Red'", number="color = 1", both="color = 'Red' AND quantity = 10")
    selection = found.select(ORDER)
    assert [match.subscription for match in selection.matches] == ["text", "both"]
    assert [failure.subscription for failure in selection.failures] == ["number"]


def test_a_failure_is_told_once_a_subscription_that_gets_nothing() -> None:
    """A rule that fails beside one that takes the message costs nobody a copy."""
    fails, takes = (
        Rule(name=name, filter=SqlFilter(expression=text))
        for name, text in (("fails", "color > 1"), ("takes", "color = 'Red'"))
    )
    found = RuleSet.of({"a": (fails, takes), "b": (fails, fails)}, new_id=lambda: GUID)
    selection = found.select(ORDER)
    assert selection.matches == [Match("a")]
    assert [each.subscription for each in selection.failures] == ["b"]


def test_equal_filters_are_evaluated_once() -> None:
    """Spaces, case of names and keywords make no difference."""
    found = rules(a="quantity > 5", b="Quantity  >  5", c="user.[quantity] > 5", d="quantity > 5.0")
    assert len(list(found.candidates(ORDER))) == 2
    assert takers(found, ORDER) == ["a", "b", "c", "d"]


def test_whole_numbers_beyond_doubles_are_compared_exactly() -> None:
    """2^53 and 2^53 + 1 are one double and two Int64."""
    for expression in (
        f"n = {2**53}",
        f"n IN ({2**53}, 1)",
        f"n > {2**53 - 1} AND n < {2**53 + 1}",
    ):
        assert selected(expression, message(n=2**53)).matches
        assert not selected(expression, message(n=2**53 + 1)).matches
    assert selected(f"n = {float(2**53)!r}".replace("e+15", "E15"), message(n=2**53 + 1)).matches
