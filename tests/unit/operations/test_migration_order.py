"""The order of a migration: what forwards is emptied before what it forwards to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model import entity as model
from bridge.model.entities import receive_entities
from bridge.operations.migration import order


def queue(name: str, to: str = "", dead_to: str = "", **fields: object) -> model.Queue:
    """A queue that forwards its messages, or its dead letters, or none."""
    return model.Queue(
        name=name,
        forward_to=to,
        forward_dead_lettered_messages_to=dead_to,
        **fields,  # type: ignore[arg-type]
    )


def topic(name: str, *targets: str) -> model.Topic:
    """A topic with a subscription for each target; "" for one that keeps its messages."""
    return model.Topic(
        name=name,
        subscriptions=tuple(
            model.Subscription(topic=name, name=f"s{number}", forward_to=target)
            for number, target in enumerate(targets)
        ),
    )


def paths(*entities: model.Queue | model.Topic) -> list[str]:
    """The entities that forward, in the order in which they are emptied."""
    return [each.path for each in order.forwarding(namespace(*entities))]


def namespace(*entities: model.Queue | model.Topic) -> model.Namespace:
    """A namespace of these."""
    return model.Namespace(
        queues=tuple(each for each in entities if isinstance(each, model.Queue)),
        topics=tuple(each for each in entities if isinstance(each, model.Topic)),
    )


def test_the_beginning_of_a_chain_is_emptied_first() -> None:
    """Through queues, subscriptions and dead letters; what only receives is not in it."""
    chain = queue("c", to="Last"), queue("b", dead_to="C"), topic("a", "b", ""), queue("last")
    assert paths(*chain) == ["a/Subscriptions/s0", "b", "c"]


def test_entities_that_nobody_forwards_to_are_in_the_order_of_their_names() -> None:
    """Names have no case."""
    assert paths(queue("B", to="x"), queue("a", to="x"), queue("x")) == ["a", "B"]


def test_an_entity_with_sessions_keeps_its_messages() -> None:
    """So nothing is to be emptied; its dead letters may go."""
    assert paths(queue("a", to="x", requires_session=True), queue("x")) == []
    (found,) = order.forwarding(
        namespace(queue("a", to="x", dead_to="x", requires_session=True), queue("x"))
    )
    assert (found.messages_to, found.dead_letters_to) == ("", "x")


def test_a_circle_is_named_and_what_leads_to_it_comes_first() -> None:
    """The order has each entity once."""
    circle = queue("b", to="c"), queue("c", to="b"), queue("z", to="b"), queue("d", dead_to="e")
    assert paths(*circle, queue("e")) == ["d", "z", "b", "c"]
    assert order.circles(namespace(*circle, queue("e"))) == ("b", "c")


def test_a_queue_is_copied_before_what_it_forwards_to_and_the_rest_by_name() -> None:
    """A topic stands for its subscriptions."""
    every = queue("z", to="events"), topic("events", "q"), queue("q"), queue("a")
    assert [each.name for each in order.copied(namespace(*every))] == ["z", "events", "a", "q"]


@pytest.mark.parametrize("is_dead", [False, True])
def test_an_entity_that_forwards_to_itself_is_a_circle(is_dead: bool) -> None:
    """It is emptied by nobody."""
    own = queue("a", dead_to="a") if is_dead else queue("a", to="a")
    assert (paths(own), order.circles(namespace(own))) == (["a"], ("a",))


NAMES = ("a", "b", "c", "d", "e", "f")


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(*[st.sampled_from(("", *NAMES))] * 2)))
def test_no_entity_gets_messages_after_its_turn(links: dict[str, tuple[str, str]]) -> None:
    """For all that forwards; but for circles, where each gets what comes back to it."""
    queues = [queue(name, *links.get(name, ("", ""))) for name in NAMES]
    every = namespace(*queues)
    found = order.forwarding(every)
    assert sorted(each.path for each in found) == sorted(
        each.path for each in receive_entities(every) if any(links.get(each.path, ("", "")))
    )
    onward = {each.path: set(each.targets) for each in found}

    def reached(name: str) -> set[str]:
        seen: set[str] = set()
        ahead = set(onward.get(name, ()))
        while ahead:
            seen |= ahead
            ahead = {x for each in ahead for x in onward.get(each, ())} - seen
        return seen

    turns = {each.path: number for number, each in enumerate(found)}
    for path, turn in turns.items():
        for target in reached(path) & turns.keys():
            assert turn < turns[target] or path in reached(target), (path, target)
    assert set(order.circles(every)) == {path for path in turns if path in reached(path)}
