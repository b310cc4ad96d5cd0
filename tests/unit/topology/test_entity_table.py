"""The entities of a namespace, changed one by one, are what all of them put together would be."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.topology.definitions import assemble, entities
from bridge.topology.entity_table import Changes, EntityTable
from tests.fixtures.entity_table import table_of

NAMES = ("a", "b", "C")

subscriptions = st.builds(
    lambda topic, name, count: model.Subscription(topic=topic, name=name, max_delivery_count=count),
    st.sampled_from(NAMES),
    st.sampled_from(("x", "Y")),
    st.integers(1, 2),
)
fronts = st.one_of(
    st.builds(
        lambda name, count: model.Queue(name=name, max_delivery_count=count),
        st.sampled_from(NAMES),
        st.integers(1, 2),
    ),
    st.builds(
        lambda name, size: model.Topic(name=name, max_size_mb=size),
        st.sampled_from(NAMES),
        st.integers(1, 2),
    ),
)
puts = st.builds(lambda entity: {entity.path: entity}, st.one_of(fronts, subscriptions))
drops = st.builds(lambda entity: {entity.path.upper(): None}, st.one_of(fronts, subscriptions))
steps = st.lists(st.one_of(puts, drops), max_size=12)
batches = st.lists(steps, max_size=6)


@given(batches)
def test_changes_put_together_are_the_difference_of_the_whole(
    given_batches: list[list[dict[str, model.Entity | None]]],
) -> None:
    """Changes may come in any order: followers that apply them hold all entities."""
    table, followed, all_there = EntityTable(), {}, dict[str, model.Entity]()
    for batch in given_batches:
        now: dict[str, model.Entity | None] = {}
        for step in batch:
            now |= {path.lower(): entity for path, entity in step.items()}
        for path, entity in now.items():
            if entity is None:
                all_there.pop(path, None)
            else:
                all_there[path] = entity
        changes = table.apply(now)
        if changes is not None:
            for path, entity in changes.before.items():
                assert followed.pop(path) == entity
            assert not followed.keys() & changes.after.keys()
            followed |= changes.after
        whole = assemble(model.Namespace(), all_there.values())
        assert table.namespace == whole
        assert followed == {each.path.lower(): each for each in entities(whole)}


def test_what_is_put_again_as_it_was_is_no_change() -> None:
    """A read that finds the same tells nobody."""
    namespace = model.Namespace(
        queues=(model.Queue(name="orders"),),
        topics=(
            model.Topic(
                name="events", subscriptions=(model.Subscription(topic="events", name="audit"),)
            ),
        ),
    )
    table = table_of(namespace)
    assert table.namespace == namespace
    again = {each.path: replace(each) for each in entities(namespace)}
    assert table.apply(again, replace(namespace, queues=(), topics=())) is None
    renamed = table.apply({}, model.Namespace(name="other"))
    assert renamed is not None
    assert (renamed.before, renamed.after) == ({}, {})


def test_a_topic_changes_with_its_subscription() -> None:
    """The leader of a topic needs the rules of all its subscriptions."""
    audit = model.Subscription(topic="events", name="audit")
    table = table_of(model.Namespace(topics=(model.Topic(name="events", subscriptions=(audit,)),)))
    other = model.Subscription(topic="Events", name="other")
    changes = table.apply({other.path: other})
    assert changes is not None
    assert set(changes.before) == {"events"}
    assert set(changes.after) == {"events", "events/subscriptions/other"}
    assert changes.after["events"] == model.Topic(name="events", subscriptions=(audit, other))


@given(batches, st.sets(st.integers(0, 5)))
def test_a_follower_that_missed_changes_holds_all_entities_after_the_next(
    given_batches: list[list[dict[str, model.Entity | None]]], missed: set[int]
) -> None:
    """It is told of several changes as one."""
    table, followed = EntityTable(), dict[str, model.Entity]()
    told: Changes | None = None
    last: list[dict[str, model.Entity | None]] = [{"last": model.Queue(name="last")}]
    for at, batch in enumerate([*given_batches, last]):
        for step in batch:
            changes = table.apply(step)
            if changes is not None:
                told = changes if told is None else told.then(changes)
        if told is not None and (at not in missed or at == len(given_batches)):
            for path, entity in told.before.items():
                assert followed.pop(path) == entity
            assert not followed.keys() & told.after.keys()
            followed |= told.after
            told = None
    assert followed == {path: table.find(path) for path in followed}
    assert len(followed) == len(table)


@given(batches)
def test_nothing_stays_of_entities_that_are_no_more(
    given_batches: list[list[dict[str, model.Entity | None]]],
) -> None:
    """Memory does not grow with entities that come and go."""
    table = EntityTable()
    steps = [step for batch in given_batches for step in batch]
    for step in steps:
        table.apply(step)
    for step in steps:
        table.apply(dict.fromkeys(step))
    assert table.namespace == model.Namespace()
    assert vars(table) == vars(EntityTable())
