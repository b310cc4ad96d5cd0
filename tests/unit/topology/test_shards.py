"""Which queue a session's messages are in, and which bridge owns it."""

from __future__ import annotations

from collections import Counter

import pytest

from bridge.model import entity as model
from bridge.model.errors import ArgumentOutOfRange
from bridge.topology import compiler, definitions, names, parts, shards
from bridge.topology.capabilities import Capabilities
from bridge.topology.policy import winners

GOLDEN = {"": 1, "a": 4, "orders-17": 6, "Zoë": 3, "0" * 128: 0}
"""Of seven: what every bridge and library, in any language and version, has to find."""

GOLDEN_FOLDED = {"": 1, "A": 3, "a": 3, "orders-17": 1, "ORDERS-17": 1, "Zoë": 0, "zOË": 0}
"""The same of an entity that folds session ids."""


def sharded(count: int, *, folds: bool) -> model.Queue:
    """A queue with sessions in shards."""
    return model.Queue(
        name="orders", requires_session=True, session_shards=count, folds_session_ids=folds
    )


def test_a_session_has_the_same_shard_everywhere() -> None:
    """By its bytes alone, as they are spelt in older entities; and no session is in the first."""
    for folds, golden in ((False, GOLDEN), (True, GOLDEN_FOLDED)):
        seven = sharded(7, folds=folds)
        assert {each: shards.shard_of(seven, each) for each in golden} == golden
        assert shards.shard_of(seven, None) == 0
        assert {shards.shard_of(sharded(1, folds=folds), each) for each in golden} == {0}


@pytest.mark.parametrize("count", [2, 4, 64])
def test_sessions_are_spread_evenly(count: int) -> None:
    """No shard has twice its part."""
    queue = sharded(count, folds=True)
    spread = Counter(shards.shard_of(queue, f"customer {number}") for number in range(8_000))
    assert len(spread) == count
    assert max(spread.values()) < 2 * 8_000 / count


def test_an_entity_without_shards_has_the_names_of_before() -> None:
    """And one with shards has them for its first."""
    one = model.Queue(name="Orders", requires_session=True)
    four = model.Queue(name="Orders", requires_session=True, session_shards=4)
    assert shards.active_queues(one) == ["orders"]
    assert shards.active_queues(four) == ["orders", *(f"orders/$shard/{n}" for n in (1, 2, 3))]
    assert names.sessions_queue("orders") == "orders/$sessions"
    assert names.sessions_queue("orders", 3) == "orders/$shard/3/$sessions"
    assert shards.count_of(model.Queue(name="plain", session_shards=4)) == 1


def test_the_number_of_shards_is_kept_in_the_definition() -> None:
    """A definition without it is of the time before shards, and has one."""
    four = model.Subscription(topic="t", name="s", requires_session=True, session_shards=4)
    form = definitions.to_json(four)
    assert form["sessionShards"] == 4
    assert definitions.from_json(form) == four
    older = {key: value for key, value in form.items() if key != "sessionShards"}
    found = definitions.from_json(older)
    assert isinstance(found, model.Subscription)
    assert found.session_shards == 1
    assert definitions.to_json(found) == older


@pytest.mark.parametrize("count", [0, 65])
def test_a_number_of_shards_out_of_range_is_refused(count: int) -> None:
    """1 to 64."""
    with pytest.raises(ArgumentOutOfRange, match="sessionShards"):
        model.Queue(name="orders", requires_session=True, session_shards=count)


def test_bridges_own_about_as_many_shards_each_and_one_more_moves_few() -> None:
    """This holds for each bridge that asks, and for bridges listed in any order."""
    queues = [f"orders-{at}/$sessions" for at in range(200)]
    three = [bytes([number]) * 6 for number in (1, 2, 3)]
    first = {queue: shards.in_order_of_choice(three, queue)[0] for queue in queues}
    assert first == {queue: shards.in_order_of_choice(three[::-1], queue)[0] for queue in queues}
    assert min(Counter(first.values()).values()) > 40
    four = [*three, b"fourth"]
    moved = [queue for queue in queues if shards.in_order_of_choice(four, queue)[0] != first[queue]]
    assert all(shards.in_order_of_choice(four, queue)[0] == b"fourth" for queue in moved)
    assert 20 < len(moved) < 90


@pytest.mark.parametrize("count", [1, 4])
def test_each_shard_has_what_the_entity_has(count: int) -> None:
    """The arguments and policy of an active queue, and a queue of states that one consumes."""
    queue = model.Queue(
        name="Orders",
        requires_session=True,
        session_shards=count,
        default_message_time_to_live_ms=60_000,
    )
    topology = compiler.compile(model.Namespace(queues=(queue,)), Capabilities.of("4.3.0"))
    there = {each.name: each for each in topology.queues}
    active = [there[name] for name in shards.active_queues(queue)]
    assert len(active) == count
    assert all(each.arguments == active[0].arguments for each in active)
    for each in active:
        assert [p.definition["message-ttl"] for p in winners(each, topology.policies)] == [60_000]
    for shard in range(count):
        states = parts.sessions_queue(queue.path, shard)
        assert states.name not in there  # the first receiver makes it
        assert states.arguments["x-single-active-consumer"] is True
        (policy,) = winners(states, topology.policies)
        assert policy.name == "busbridge.inner"
    assert sum(name.startswith("orders") for name in there) == count + 4


def test_one_key_reaches_one_shard_and_the_journal() -> None:
    """The exchange of an entity without shards takes any key, as before."""
    for count, kind in ((1, "fanout"), (4, "direct")):
        queue = model.Queue(name="orders", requires_session=True, session_shards=count)
        topology = compiler.compile(model.Namespace(queues=(queue,)), Capabilities.of("4.3.0"))
        (active,) = (each for each in topology.exchanges if each.name == "orders/$active")
        assert active.type == kind
        for shard, name in enumerate(shards.active_queues(queue)):
            key = shards.queue_key(queue, shard)
            reached = {
                each.destination
                for each in topology.bindings
                if each.source == active.name and each.routing_key == key
            }
            assert reached == {name, "orders/$journal"}


def test_who_changes_an_entity_cannot_change_its_shards() -> None:
    """An existing entity keeps its number of shards; a new one has the configured number."""
    there = model.Namespace(
        queues=(model.Queue(name="Old", requires_session=True, incarnation="i"),)
    )
    wanted = model.Namespace(
        queues=(
            model.Queue(name="new", requires_session=True),
            model.Queue(name="old", requires_session=True, session_shards=9),
            model.Queue(name="plain"),
            model.Queue(name="said", requires_session=True, session_shards=2),
        )
    )
    found = definitions.with_incarnations(wanted, there, lambda: "made", session_shards=4)
    assert [(each.name, each.session_shards) for each in found.queues] == [
        ("new", 4),
        ("old", 1),
        ("plain", 1),
        ("said", 2),
    ]
