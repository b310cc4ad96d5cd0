"""Rules with a comparison that no message can satisfy are named before the first message."""

from __future__ import annotations

import pytest

from bridge.model.entity import CorrelationFilter, Rule, SqlFilter
from bridge.model.filters.mismatches import mismatches
from tests.unit.filters.subjects import message, selected


def of(expression: str, action: str = "") -> tuple[str, ...]:
    """Return the mismatches of a SQL filter and an action."""
    return mismatches(Rule(name="r", filter=SqlFilter(expression=expression), action=action))


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("sys.Label = 5", "sys.Label = 5: there is no such operator for a string and a number"),
        ("1 = '1'", "1 = '1': there is no such operator for a number and a string"),
        ("color = 1 OR sys.DeliveryCount = '5'", "a number and a string"),
        ("NOT (sys.TimeToLive > 60)", "a TimeSpan and a number"),
        ("sys.MessageId IN ('a', 1)", "sys.MessageId = 1"),
        ("sys.EnqueuedTimeUtc > '2024-01-01'", "a DateTime and a string"),
        ("sys.SequenceNumber LIKE '1%'", "LIKE takes strings, not a number"),
        ("color LIKE newid()", "LIKE takes strings, not a Guid"),
        ("sys.Label - 'x' = 'y'", "sys.Label - 'x'"),
        ("quantity + 1 = 'x'", "quantity + 1 = 'x'"),
        ("-sys.Label = 'x'", "The sign - does not take a string"),
        ("TRUE > FALSE", "a boolean and a boolean"),
        ("sys.Colour = 'x'", "There is no system property 'colour'"),
        ("EXISTS(sys.Colour)", "There is no system property 'colour'"),
        ("property(1) = 'x'", "property() takes a string, not a number"),
    ],
)
def test_a_comparison_that_can_never_hold_is_named(expression: str, why: str) -> None:
    """With its operands and their types: C# has no such operator (Azure, SQL filter syntax)."""
    (found,) = of(expression)
    assert why in found
    assert not selected(expression, message(quantity=1)).matches


@pytest.mark.parametrize(
    "expression",
    [
        "color = 1 AND color = 'x'",
        "sys.Label = 'x' AND sys.DeliveryCount > 0.5 AND sys.TimeToLive = sys.TimeToLive",
        "sys.ExpiresAtUtc - sys.EnqueuedTimeUtc = sys.TimeToLive",
        "sys.EnqueuedTimeUtc + span > moment",
        "color + 1 = size AND size + 'x' = 'yx' AND -size < 0",
        "sys.Label = NULL OR NULL LIKE 'x' OR sys.MessageId + NULL = 5",
        "newid() = id AND property('a' + b) IN (1, 'x')",
        "1 = 1",
    ],
)
def test_a_comparison_that_may_hold_is_not_named(expression: str) -> None:
    """A user property may have any type, and what is compared with NULL does not fail."""
    assert of(expression) == ()


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("SET sys.SequenceNumber = 5", "sys.SequenceNumber cannot be changed"),
        ("REMOVE sys.Colour", "There is no system property 'colour'"),
        ("SET a = sys.Label * 2", "sys.Label * 2"),
    ],
)
def test_an_action_that_fails_for_every_message_is_named(action: str, why: str) -> None:
    """So is an action that sets what nobody can set."""
    (found,) = of("1 = 1", action)
    assert why in found
    assert of("1 = 1", "SET sys.Label = 5; SET a = b + 1; REMOVE c") == ()


def test_a_correlation_filter_has_no_mismatch() -> None:
    """Another type is another value to it."""
    assert mismatches(Rule(name="r", filter=CorrelationFilter(properties=(("a", 1),)))) == ()
