"""What a route keeps, and what `check` says that it loses."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.relay.plan.fidelity import EntityFacts, remarks
from bridge.relay.plan.route import Route
from tests.unit.relay.files import file_of, route

QUEUE = EntityFacts(kind="Queue")
TOPIC = EntityFacts(kind="Topic")
SESSIONS = EntityFacts(kind="Queue", requires_session=True)
MINUTE = EntityFacts(kind="Queue", window_ms=60_000)
HOUR = EntityFacts(kind="Queue", window_ms=3_600_000)
ENTITY = 'control = "local/c"\n'


def one(source: str = "azure/a", target: str = "local/a", **values: str) -> Route:
    """Return a route."""
    return file_of(route(source, target, **values)).routes[0]


def said(
    given: Route, source: Any = QUEUE, target: Any = QUEUE, *, busbridge: bool = True
) -> dict[str, str]:
    """Return the levels of what is said, by the keys that it is about; the highest counts."""
    levels = ("note", "warning", "error")
    found: dict[str, str] = {}
    for each in remarks(given, source, target, target_is_busbridge=busbridge):
        found[each.key] = max(found.get(each.key, "note"), each.level, key=levels.index)
    found.pop("order", None)
    return found


@pytest.mark.parametrize(
    ("source", "target", "busbridge", "duplicates", "expected"),
    [
        # Azure, which detects none: a message can come twice, and somebody has to accept that.
        (QUEUE, QUEUE, False, None, "error"),
        (QUEUE, QUEUE, False, "drop", "error"),
        (QUEUE, QUEUE, False, "accept", None),
        (HOUR, QUEUE, False, None, "error"),
        # Azure, which detects them: nothing is lost if the source's window is as long.
        (HOUR, MINUTE, False, None, None),
        (HOUR, HOUR, False, None, None),
        (HOUR, MINUTE, False, "drop", "note"),
        (MINUTE, HOUR, False, None, "error"),
        (QUEUE, MINUTE, False, None, "error"),
        (QUEUE, MINUTE, False, "accept", "error"),
        (QUEUE, MINUTE, False, "drop", None),
        # A bridge numbers nothing twice; but of equal MessageIds it drops the second, too.
        (QUEUE, QUEUE, True, None, None),
        (QUEUE, QUEUE, True, "accept", "note"),
        (QUEUE, MINUTE, True, None, "error"),
        (QUEUE, MINUTE, True, "drop", None),
        (HOUR, MINUTE, True, None, None),
        # What is not known has to be said.
        (None, QUEUE, False, None, "error"),
        (QUEUE, None, False, None, "error"),
        (QUEUE, None, False, "accept", None),
        (QUEUE, None, True, None, None),
        (None, MINUTE, False, "drop", None),
    ],
)
def test_who_says_nothing_about_duplicates_loses_none_and_gets_none(
    source: Any, target: Any, busbridge: bool, duplicates: str | None, expected: str | None
) -> None:
    """Where one of the two is possible, the file has to say which."""
    values = {} if duplicates is None else {"duplicates": f'"{duplicates}"'}

    found = said(one(**values), source, target, busbridge=busbridge)

    assert found.get("duplicates") == expected


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("azure/a", HOUR, "warning"),
        ("azure/a/$DeadLetterQueue", HOUR, "warning"),
        ("azure/t/Subscriptions/s/$DeadLetterQueue", HOUR, "warning"),
        ("azure/t/Subscriptions/s", HOUR, None),  # the relay completes what comes back
        ("azure/a", QUEUE, None),
    ],
)
def test_what_comes_back_to_a_queue_that_detects_duplicates_is_dropped(
    source: str, target: Any, expected: str | None
) -> None:
    """It has seen the MessageId: a route that is turned around too early would lose messages."""
    for facts in (HOUR, None):
        found = said(one(source), facts, target)

        assert found.get("to") == expected


def test_dead_letters_of_one_id_can_be_of_any_age() -> None:
    """The source's window says nothing of them."""
    found = said(one("azure/a/$DeadLetterQueue"), HOUR, MINUTE)

    assert found["duplicates"] == "error"


@pytest.mark.parametrize(
    ("given", "source", "target", "expected"),
    [
        (one(), QUEUE, QUEUE, {}),
        (one(), TOPIC, QUEUE, {"from": "error"}),
        (one(), EntityFacts(kind="Queue", forward_to="x"), QUEUE, {"from": "error"}),
        (one("azure/a/$DeadLetterQueue"), EntityFacts(kind="Queue", forward_to="x"), QUEUE, {}),
        (one(), EntityFacts(kind="Queue", status="ReceiveDisabled"), QUEUE, {"from": "error"}),
        (one(), QUEUE, EntityFacts(kind="Queue", status="SendDisabled"), {"to": "error"}),
        (one(), EntityFacts(kind="Queue", scheduled=3), QUEUE, {"from": "note"}),
        (one(), SESSIONS, SESSIONS, {"states": "note"}),
        (one(states="true"), SESSIONS, SESSIONS, {}),
        (one(states="true"), QUEUE, QUEUE, {"states": "error"}),
        (one(states="true"), SESSIONS, TOPIC, {"states": "error"}),
        (one(states="true"), SESSIONS, QUEUE, {"to": "error"}),
        (one(), SESSIONS, QUEUE, {"to": "warning", "states": "note"}),
        (one(), QUEUE, SESSIONS, {"to": "warning"}),
        (one(), QUEUE, EntityFacts(kind="Queue", ttl_ms=1_000), {"to": "warning"}),
        (
            one(),
            EntityFacts(kind="Queue", ttl_ms=1_000),
            EntityFacts(kind="Queue", ttl_ms=2_000),
            {},
        ),
        (
            one(),
            EntityFacts(kind="Queue", message_bytes_max=1024 * 1024),
            EntityFacts(kind="Queue", message_bytes_max=256 * 1024),
            {"to": "warning"},
        ),
        (one("azure/t/Subscriptions/s", filter='"a = 1"'), QUEUE, QUEUE, {"filter": "note"}),
        (one(filter='"a = 1"'), QUEUE, QUEUE, {}),
    ],
)
def test_what_is_not_kept_is_said(
    given: Route, source: EntityFacts, target: EntityFacts, expected: dict[str, str]
) -> None:
    """At the key that it is about: an error where the route is not to run so."""
    assert said(given, source, target) == expected


def test_the_order_of_a_partitioned_entity_is_one_of_each_partition() -> None:
    """And without an order of the entity messages overtake one another."""
    from tests.unit.relay.files import SIDES, reading

    text = ENTITY + SIDES + route("azure/a", "local/a", order='"entity"')
    ordered = reading(text).whole().routes[0]
    partitioned = EntityFacts(kind="Queue", is_partitioned=True)

    (found,) = remarks(ordered, partitioned, QUEUE, target_is_busbridge=True)
    assert (found.level, found.key) == ("warning", "order")
    (found,) = remarks(one(), QUEUE, QUEUE, target_is_busbridge=True)
    assert (found.level, found.key) == ("note", "order")
    assert not list(remarks(ordered, QUEUE, QUEUE, target_is_busbridge=True))
