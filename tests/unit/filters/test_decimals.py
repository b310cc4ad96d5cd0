"""Decimals in filters and actions: as C# promotes them, and beside doubles as decimals."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.model.decimals import made
from bridge.model.entity import CorrelationFilter, Filter, SqlFilter
from bridge.model.filters.errors import FilterException
from bridge.model.filters.operators import arithmetic, comparison
from bridge.model.filters.values import index_key
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.types import Decimal128
from bridge.wire.message_view import MessageView
from tests.unit.filters.subjects import rules, selected, takers
from tests.unit.filters.test_action import acted, failing, received, sent, view_of

MAX = Decimal(2**96 - 1)


def amqp(text: str) -> Decimal128:
    """A decimal as a client sends it."""
    return Decimal128(encode_decimal(Decimal(text))[1:])


def with_price(text: str, **more: Any) -> MessageView:
    """A message with the decimal property `p`."""
    return view_of(sent(p=amqp(text), **more))


@pytest.mark.parametrize(
    ("price", "condition"),
    [
        ("7", "p = 7"),
        ("7.00", "p = 7"),
        ("2.5", "p * 2 = 5"),
        ("2.5", "p IN (1, 2.5)"),
        ("7", "p IN (6, 7)"),
        ("7", "p NOT IN (6, 8)"),
        ("0.1", "p = 0.1"),
        ("0.1", "p + 0.2 = 0.3"),
        ("79.90", "p > 79 AND p < 80"),
        ("79.90", "p >= 79.9 AND p <= 79.9 AND p <> 79.91"),
        ("-0.5", "-p = 0.5"),
        ("7", "7 = p"),
        ("7.5", "p % 2 = 1.5"),
        ("-7.5", "p % 2 = -1.5"),
        ("1", "p / 8 = 0.125"),
        ("9007199254740993", "p = 9007199254740993"),
        ("9007199254740993", "p <> 9007199254740992"),
        ("79228162514264337593543950335", "p > 9223372036854775807"),
        ("1", "p = d AND d = p"),
        ("1", "p = q AND p <= q"),
    ],
)
def test_a_decimal_compares_with_every_number(price: str, condition: str) -> None:
    """Whole numbers are promoted as C# does; a double, a constant too, becomes a decimal."""
    view = with_price(price, d=1.0, q=amqp("1.000"))
    assert takers(rules(a=condition, b=f"NOT ({condition})"), view) == ["a"]


@pytest.mark.parametrize(
    ("price", "condition"),
    [
        ("1", "p = 1e29"),
        ("1", "p < huge"),
        ("1", "p IN (1e29, 5)"),
        ("79228162514264337593543950335", "p + 1 > 0"),
        ("79228162514264337593543950335", "p * p > 0"),
        ("1", "p / 0 = 1"),
        ("1", "p % 0 = 1"),
        ("1", "p = '1'"),
        ("1", "p = TRUE"),
        ("1", "p + 'x' = 1"),
        ("1", "p LIKE '1'"),
    ],
)
def test_out_of_range_and_other_kinds_fail_the_filter(price: str, condition: str) -> None:
    """As C#'s OverflowException, DivideByZeroException and missing operators do."""
    selection = selected(condition, with_price(price, huge=1e300))
    assert not selection.matches
    assert len(selection.failures) == 1


def test_a_parameter_may_be_a_decimal() -> None:
    """It compares as a property does, and a double beyond a decimal fails it."""
    view = view_of(sent(n=7, d=7.5, huge=1e300))
    assert selected("n = @p", view, p=Decimal("7.0")).matches
    assert selected("d = @p", view, p=Decimal("7.50")).matches
    assert selected("huge = @p", view, p=Decimal("7.50")).failures


def test_correlation_filters_take_decimals() -> None:
    """And compare them with every number; they never fail."""
    found = rules(
        decimal=CorrelationFilter(properties=(("p", Decimal("7.50")),)),
        double=CorrelationFilter(properties=(("p", 7.5),)),
        whole=CorrelationFilter(properties=(("p", 7),)),
        text=CorrelationFilter(properties=(("p", "7.5"),)),
    )
    assert takers(found, with_price("7.5")) == ["decimal", "double"]
    assert takers(found, view_of(sent(p=7.5))) == ["decimal", "double"]
    assert takers(found, with_price("7.000")) == ["whole"]
    assert takers(found, view_of(sent(p=1e300))) == []


whole = st.integers(-(2**63), 2**63 - 1) | st.integers(-1000, 1000)
doubles = st.floats() | st.sampled_from([0.1, 0.30000000000000004, 1e-20, 7.0, 1e16])
decimals = st.builds(
    made, st.integers(0, 1), st.integers(0, 2**96 - 1) | st.integers(0, 2000), st.integers(-28, 0)
)
numbers = whole | doubles | decimals


@given(numbers, numbers)
@example(0.10000000000000002, Decimal("0.1"))
@example(1.23456789012345e-20, Decimal("0.0000000000000000000123456789"))
@example(9007199254740993, 9007199254740992.0)
@example(9007199254740993, Decimal(9007199254740993))
def test_equal_numbers_have_one_key_in_an_index(left: Any, right: Any) -> None:
    """Or a filter would not be found by its equality."""
    try:
        is_equal = comparison("=")(left, right)
    except FilterException:
        return
    if is_equal:
        assert index_key(left) == index_key(right)


@given(whole | doubles)
def test_a_number_equals_the_decimal_that_it_becomes(number: Any) -> None:
    """And has its key."""
    try:
        same = arithmetic("+")(number, Decimal(0))
    except FilterException:
        return
    assert comparison("=")(number, same)
    assert index_key(number) == index_key(same)


@given(numbers, st.lists(numbers.filter(lambda value: value == value), min_size=1, max_size=3))
def test_an_index_changes_no_answer(value: Any, constants: list[Any]) -> None:
    """A filter that is found by an equality answers, and fails, as one that is not."""
    names = [f"@c{index}" for index in range(len(constants))]
    parameters = tuple(zip(names, constants, strict=True))
    choice = f"p IN ({', '.join(names)})"
    view = with_price("1")
    view.user["p"] = value

    def answer(expression: str) -> tuple[bool, bool]:
        given: Filter = SqlFilter(expression=expression, parameters=parameters)
        found = rules(only=given).select(view)
        return bool(found.matches), bool(found.failures)

    assert answer(choice) == answer(f"NOT (NOT ({choice}))")


@given(decimals, decimals)
def test_sums_are_those_of_pythons_decimal_where_they_fit(left: Decimal, right: Decimal) -> None:
    """Rounded to 96 bits, or beyond a decimal."""
    try:
        found = arithmetic("+")(left, right)
    except FilterException:
        assert left.copy_abs() + right.copy_abs() > MAX / 2
        return
    assert isinstance(found, Decimal)
    assert found.copy_abs() <= MAX
    assert arithmetic("+")(right, left) == found


@pytest.mark.parametrize(
    ("left", "operator", "right", "result"),
    [
        ("1.10", "*", "2.00", "2.2000"),
        ("1.00", "/", "2", "0.50"),
        ("10", "/", "4", "2.5"),
        ("1", "/", "3", "0.3333333333333333333333333333"),
        ("2", "/", "3", "0.6666666666666666666666666667"),
        ("79228162514264337593543950335", "-", "0.4", "79228162514264337593543950335"),
        ("0.0000000000000000000000000005", "*", "0.1", "0.0000000000000000000000000000"),
        ("0.0000000000000000000000000015", "*", "0.1", "0.0000000000000000000000000002"),
    ],
)
def test_arithmetic_is_c_s(left: str, operator: str, right: str, result: str) -> None:
    """With the places that C# gives the result, rounded half to even."""
    found = arithmetic(operator)(Decimal(left), Decimal(right))
    assert f"{found:f}" == result


def test_an_action_keeps_a_decimal_a_decimal() -> None:
    """SET converts to the property's present type, as .NET's Convert."""
    action = (
        "SET p = p * 2; SET q = '12.50'; SET r = 3; SET s = 0.1; SET n = p; SET t = p; SET u = p"
    )
    sample = sent(p=amqp("39.95"), q=amqp("1"), r=amqp("1"), s=amqp("1"), t="text", u=1.0, n=5)
    found = received(acted(sample, action)).application_properties
    assert found == {
        "p": amqp("79.90"),
        "q": amqp("12.50"),
        "r": amqp("3"),
        "s": amqp("0.1"),
        "n": 80,
        "t": "79.90",
        "u": 79.9,
        "RuleName": "r",
    }


def test_what_does_not_become_a_decimal_fails_the_action() -> None:
    """Texts that are none, and numbers beyond it."""
    for value in ("'x'", "'1e40'", "'NaN'", "1e300"):
        assert "SET cannot make" in failing(f"SET p = {value}", with_price("1"))


@pytest.mark.parametrize(
    ("name", "left", "right"), list(product(["=", "<", "+"], [Decimal(1)], ["x", True, b"x"]))
)
def test_no_operator_takes_a_decimal_and_no_number(name: str, left: Any, right: Any) -> None:
    """It fails, as for other numbers."""
    operate = arithmetic(name) if name == "+" else comparison(name)
    with pytest.raises(FilterException, match="does not take a number and a"):
        operate(left, right)
