"""A change costs the entities that it is about, however many others are in memory."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence

import pytest

from bridge.broker.management.json_answers import rows
from bridge.broker.management.listing import Row
from bridge.engine.administration.reading import DefinitionTexts
from bridge.engine.forwarding.forwarding import Forwarding
from bridge.model import entity as model
from bridge.topology import definitions, names
from bridge.topology.capabilities import Capabilities
from bridge.topology.entity_table import Changes, EntityTable
from bridge.topology.wanted import WantedResources
from tests.fixtures.counting_calls import calls_of
from tests.fixtures.entity_table import table_of

SIZES = (10, 100, 10_000)
NEWEST = Capabilities.of("4.3.6")
VHOST = "/"


def queue(number: int, count: int = 10) -> model.Queue:
    """One of many queues."""
    return model.Queue(name=f"orders-{number}", max_delivery_count=count)


def namespace(size: int) -> model.Namespace:
    """A namespace of queues, and one topic."""
    audit = model.Subscription(topic="events", name="audit")
    topic = model.Topic(name="events", subscriptions=(audit,))
    return model.Namespace(queues=tuple(map(queue, range(size))), topics=(topic,))


@functools.cache
def answer(size: int, changed: int = -1) -> list[Row]:
    """What the management API lists."""
    forms = [
        {
            "name": definitions.parameter_name(VHOST, each.path),
            "value": definitions.to_json(each),
        }
        for each in (queue(number, 3 if number == changed else 10) for number in range(size))
    ]
    return [Row(*each) for each in rows(json.dumps(forms))]


def read(size: int) -> DefinitionTexts:
    """All definitions, read once."""
    reading = DefinitionTexts(VHOST)
    reading.accept(reading.read_all(answer(size)), b"first", newer=())
    return reading


def changes_of(size: int) -> tuple[EntityTable, Changes]:
    """A table, and what a change of one of its entities is."""
    table = table_of(namespace(size))
    changes = table.apply({"orders-1": queue(1, 3)})
    assert changes is not None
    return table, changes


def applied(size: int, now: dict[str, model.Entity | None]) -> Callable[[], object]:
    """A change of a table."""
    table = table_of(namespace(size))
    return lambda: table.apply(now)


def decoded(size: int) -> Callable[[], object]:
    """A read that finds one definition changed."""
    reading, changed = read(size), answer(size, changed=size // 2)
    return lambda: reading.read_all(changed)


def compiled(size: int) -> Callable[[], object]:
    """The resources of one entity, compiled again."""
    wanted = WantedResources()
    for number in range(size):
        wanted.put(f"orders-{number}", queue(number), NEWEST)
    return lambda: wanted.put("orders-1", queue(1, 3), NEWEST)


def forwarded(size: int) -> Callable[[], object]:
    """Forwarding follows a change."""
    _, changes = changes_of(size)
    forwarding = Forwarding(
        lambda path, entity: pytest.fail("nothing is led here"),
        lambda front: pytest.fail("there are no transactions here"),
    )
    forwarding.follow(Changes(after={each.path: each for each in map(queue, range(size))}))
    return lambda: forwarding.follow(changes)


def calls_without_names(work: Callable[[], object]) -> int:
    """Count calls of a work that has to make each name anew: it may be among the last ones made."""
    names.legal.cache_clear()
    return calls_of(work)


WORKS: dict[str, Callable[[int], Callable[[], object]]] = {
    "create": lambda size: applied(size, {"new": model.Queue(name="new")}),
    "update": lambda size: applied(size, {"orders-1": queue(1, 3)}),
    "delete": lambda size: applied(size, {"orders-1": None}),
    "subscription": lambda size: applied(
        size, {"events/subscriptions/new": model.Subscription(topic="events", name="new")}
    ),
    "poll that finds one changed": decoded,
    "resources": compiled,
    "forwarding": forwarded,
}


@pytest.mark.parametrize("what", WORKS)
def test_a_change_calls_as_many_functions_beside_ten_as_beside_ten_thousand(what: str) -> None:
    """The calls may not grow with the number of other entities."""
    counts = [calls_without_names(WORKS[what](size)) for size in SIZES]
    assert counts[0] > 0
    assert set(counts) == {counts[0]}


def test_decoding_all_definitions_costs_each_of_them_alike() -> None:
    """The first read grows as the definitions do."""

    def calls(size: int) -> int:
        reading, found = DefinitionTexts(VHOST), answer(size)
        return calls_of(lambda: reading.read_all(found))

    few, many = calls(100), calls(1_000)
    assert many == pytest.approx(10 * few, rel=0.1)
    assert many / 1_000 < 150


def test_reads_take_over_what_has_changed_and_only_that() -> None:
    """Also beside definitions that were read singly meanwhile, or that cannot be read."""
    reading = read(3)

    def paths(changed: Sequence[Row], newer: tuple[str, ...] = ()) -> set[str]:
        return set(reading.accept(reading.read_all(changed), b"next", newer=newer))

    assert paths(answer(3)) == set()
    assert paths(answer(3, changed=1)) == {"orders-1"}
    assert paths(answer(3, changed=2), newer=("orders-1",)) == {"orders-2"}
    assert reading.digest == b""  # what was read singly may be older than it looks
    assert paths(answer(2)) == {"orders-1", "orders-2"}
    broken = [Row("broken", {"name": answer(1)[0].value["name"], "value": 7}), answer(2)[1]]
    found = reading.read_all(broken)
    assert set(found.unreadable) == {answer(1)[0].value["name"]}
    assert reading.accept(found, b"broken", newer=()) == {}
    assert reading.digest == b"broken"
