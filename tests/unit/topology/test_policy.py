"""Which policy is in force, and the policies that are no lists of queues."""

from __future__ import annotations

from bridge.topology import policy
from bridge.topology.resources import Policy, Queue


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
