"""Policies: shared, exact, few."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.topology import policy
from bridge.topology.resources import Policy, Queue
from tests.unit.topology.entities import paths

NAMES = st.sets(paths().map(str.lower) | st.sampled_from(["a", "a.b", "axb", "$amq.x", "a/b"]))


@given(NAMES, st.text("abc.$/", max_size=6), st.integers(420, 1_024))
def test_patterns_take_exactly_their_names(names: set[str], other: str, bytes_max: int) -> None:
    """Each name is taken by one pattern, no other text by any, and none is too long."""
    patterns = policy.patterns(sorted(names), bytes_max)
    assert all(len(pattern) <= bytes_max for pattern in patterns)
    for name in names | {other, other + "x"} | {name + "x" for name in names}:
        taking = sum(re.search(pattern, name) is not None for pattern in patterns)
        assert taking == (1 if name in names else 0), (name, patterns)


@given(NAMES)
def test_packed_patterns_take_exactly_their_names(names: set[str]) -> None:
    """A pattern in which common beginnings are written once means the same."""
    packed = policy._packed(sorted(names))
    for name in names | {name[:-1] for name in names} | {name + "a" for name in names} | {""}:
        assert (re.search(packed, name) is not None) == (name in names or (not name and not names))


def test_a_short_list_is_written_so_that_people_can_read_it() -> None:
    """Names are listed in full where they fit, with regular-expression characters escaped."""
    assert policy.patterns(["orders", "a.b"]) == [r"^(?:a\.b|orders)$"]
    assert policy.patterns(["orders"]) == ["^orders$"]
    assert policy.patterns([]) == []


def test_names_of_one_family_share_few_policies() -> None:
    """1,000 names of 6 families need 6 patterns of 1,024 bytes."""
    found = [
        policy.patterns([f"{family}-{i:04d}" for i in range(family_size)])
        for family, family_size in zip("abcdef", (167, 167, 167, 167, 166, 166), strict=True)
    ]
    assert [len(patterns) for patterns in found] == [1] * 6


def test_a_name_longer_than_a_pattern_is_an_error() -> None:
    """Nothing is left out silently."""
    with pytest.raises(ValueError, match="fit"):
        policy.patterns(["x" * 100], 50)


def test_queues_of_equal_settings_share_a_policy() -> None:
    """One policy per setting, named after it; a queue without settings has none."""
    shared = policy.share({"b": {"x": 1}, "a": {"x": 1}, "c": {"x": 2}, "d": {}}, priority=7)
    assert [
        Policy(name="busbridge.x-1", pattern="^(?:a|b)$", definition={"x": 1}, priority=7),
        Policy(name="busbridge.x-2", pattern="^c$", definition={"x": 2}, priority=7),
    ] == list(shared)


def test_the_winner_is_the_policy_of_the_highest_priority_that_applies() -> None:
    """Scope, pattern and priority decide; a tie has two winners."""
    queue = Queue(name="orders", arguments={"x-queue-type": "quorum"})
    low, high, tied, elsewhere = (
        Policy(name="low", pattern=".*", definition={}, priority=0),
        Policy(name="high", pattern="ord", definition={}, priority=9, apply_to="quorum_queues"),
        Policy(name="tied", pattern="(?i)ORD", definition={}, priority=9, apply_to="all"),
        Policy(name="no", pattern=".*", definition={}, priority=99, apply_to="classic_queues"),
    )
    assert policy.winners(queue, [elsewhere]) == ()
    assert (high,) == policy.winners(queue, [low, high, elsewhere])
    assert (high, tied) == policy.winners(queue, [low, high, tied])


def test_a_free_priority_ties_with_nobody() -> None:
    """Only foreign policies that take one of our queues count."""
    foreign = [
        Policy(name="a", pattern="^orders$", definition={}, priority=50),
        Policy(name="b", pattern="^other$", definition={}, priority=51),
        Policy(name="c", pattern="(*UTF8)x", definition={}, priority=52),
    ]
    assert policy.free_priority(["orders"], foreign) == 51
    assert policy.free_priority(["orders", "other"], foreign) == 53


def test_a_ceiling_takes_entities_and_nothing_of_the_bridges_own() -> None:
    """A scheduled message may wait longer than the ceiling of its entity's messages."""
    (ceiling,) = policy.ceiling_policies(policy.Ceiling(time_to_live_ms=1))
    assert ceiling.is_operator
    taken = ("orders", "a/b.c", "$amq.x", "events/subscriptions/audit")
    spared = ("orders/$scheduled/1-2", "$sb/lapsed", "orders/$deadletterqueue", "$amq.x/$inbox")
    assert [policy.matches(ceiling, name) for name in taken] == [True] * 4
    assert [policy.matches(ceiling, name) for name in spared] == [False] * 4


def test_no_ceiling_is_no_policy() -> None:
    """A longest TTL that RabbitMQ cannot hold is none of its business."""
    assert policy.ceiling_policies(policy.Ceiling(time_to_live_ms=315_360_000_001)) == ()
