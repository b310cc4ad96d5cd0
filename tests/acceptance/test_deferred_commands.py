"""deferred ls, take and release, as somebody types them, on a real bridge."""

from __future__ import annotations

import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bridge.operations.undo_file import UndoHead, entries
from tests.acceptance.busbridge import Busbridge, Make
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT5S"}
ENTITIES = {
    **dict.fromkeys(("take", "release", "other", "killed", "unread"), LOCK),
    "sessions": {**LOCK, "RequiresSession": True},
    "unique": {**LOCK, "RequiresDuplicateDetection": True},
}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "ledger"}]}]


@pytest.fixture
def busbridge(bridge: Bridge, make: Make) -> Busbridge:
    """The command, on the module's bridge."""
    return make(bridge.connection_string)


def defer(busbridge: Busbridge, entity: str, count: int, *, session: str = "") -> None:
    """Send messages, red if their number is even, and defer them."""
    given = [
        {
            "body": f"order {at}{session}",
            "message_id": f"m{at}{session}",
            "application_properties": {"color": "blue" if at % 2 else "red", "n": {"long": at}},
            **({"session_id": session} if session else {}),
        }
        for at in range(count)
    ]
    busbridge.done("send", entity, given="".join(f"{json.dumps(each)}\n" for each in given))
    of = ("--session", session) if session else ()
    said = busbridge.done(
        *("receive", entity, *of, "--count", str(count), "--wait", "60", "--settle", "defer")
    )
    assert len(said.rows) == count


def deferred(busbridge: Busbridge, *entity: str, count: int) -> list[dict[str, Any]]:
    """Return the deferred messages of an entity, when there are so many."""
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found[:] = busbridge.done("deferred", "ls", *entity).rows
        return len(found) == count

    eventually(are_there, f"{entity} has {count} deferred messages")
    return found


def active(busbridge: Busbridge, *entity: str, count: int) -> list[dict[str, Any]]:
    """Return the active messages of an entity, when there are so many."""
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found[:] = busbridge.done("peek", *entity, "--all", "--state", "active").rows
        return len(found) == count

    eventually(are_there, f"{entity} has {count} active messages")
    return found


def test_what_is_taken_is_written_out_and_removed(busbridge: Busbridge, tmp_path: Path) -> None:
    """To the undo file first, which its owner alone can read; unasked nothing is taken."""
    defer(busbridge, "take", 4)
    busbridge.done("send", "take", "active")
    assert [each["state"] for each in deferred(busbridge, "take", count=4)] == ["deferred"] * 4
    path = tmp_path / "undo.jsonl"
    words = ("deferred", "take", "take", "--where", "color = 'red'", "--undo", str(path))
    asked = busbridge(*words)
    assert (asked.code, "2 messages of take, deferred" in asked.err) == (2, True)
    said = busbridge.done(*words, "--yes")
    assert [each["body"] for each in said.rows] == ["order 0", "order 2"]
    assert said.err == "2 messages of take taken.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    head, *rest = path.read_text().splitlines()
    assert (UndoHead.read(head).verb, UndoHead.read(head).entity) == ("purge", "take")
    assert [each.number for each in entries(rest)] == [1, 3]
    left = deferred(busbridge, "take", count=2)
    assert [each["body"] for each in left] == ["order 1", "order 3"]
    assert len(active(busbridge, "take", count=1)) == 1


def test_what_nobody_reads_stays_deferred(busbridge: Busbridge) -> None:
    """As behind `head`."""
    defer(busbridge, "unread", 3)
    with busbridge.start("deferred", "take", "unread", "--yes") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(120) == 141
    deferred(busbridge, "unread", count=3)


def test_what_is_released_is_received_again_once(busbridge: Busbridge) -> None:
    """As it was, with a new number; the others stay deferred."""
    defer(busbridge, "release", 3)
    words = ("deferred", "release", "release")
    busbridge.done(*words, "--where", "color = 'red'", "--yes")
    found = active(busbridge, "release", count=2)
    assert [(each["message_id"], each["body"]) for each in found] == [
        ("m0", "order 0"), ("m2", "order 2"),
    ]  # fmt: skip
    assert [each["application_properties"]["n"] for each in found] == [{"long": 0}, {"long": 2}]
    assert all(each["sequence_number"] > 3 for each in found)
    (left,) = deferred(busbridge, "release", count=1)
    busbridge.done(*words, "--number", str(left["sequence_number"]), "--to", "other", "--yes")
    assert active(busbridge, "other", count=1)[0]["body"] == "order 1"
    deferred(busbridge, "release", count=0)


def test_those_of_sessions_are_released_in_order(busbridge: Busbridge) -> None:
    """While the command holds each session."""
    defer(busbridge, "sessions", 2, session="a")
    defer(busbridge, "sessions", 2, session="b")
    deferred(busbridge, "sessions", count=4)
    busbridge.done("deferred", "release", "sessions", "--yes")
    found = active(busbridge, "sessions", count=4)
    for session in "ab":
        own = [each["body"] for each in found if each["session_id"] == session]
        assert own == [f"order 0{session}", f"order 1{session}"]
    deferred(busbridge, "sessions", count=0)


def test_a_target_that_would_drop_them_as_duplicates_is_refused(busbridge: Busbridge) -> None:
    """They stay deferred, unless each gets an id of its own."""
    defer(busbridge, "unique", 2)
    said = busbridge("deferred", "release", "unique", "--yes")
    assert (said.code, "detects duplicates" in said.err) == (2, True), said
    deferred(busbridge, "unique", count=2)
    busbridge.done("deferred", "release", "unique", "--yes", "--new-id")
    active(busbridge, "unique", count=2)


def test_those_of_a_subscription_go_to_its_topic_or_to_it_alone(busbridge: Busbridge) -> None:
    """Every subscription gets them in the first case, which the question says."""
    busbridge.done("send", "events", given='{"body": "x"}\n{"body": "y"}\n')
    busbridge.done(
        "receive", "events", "audit", "--count", "2", "--wait", "60", "--settle", "defer"
    )
    deferred(busbridge, "events", "audit", count=2)
    words = ("deferred", "release", "events", "audit", "--limit", "1")
    asked = busbridge(*words)
    assert (asked.code, "every subscription" in asked.err) == (2, True)
    busbridge.done(*words, "--yes", "--to", "events/Subscriptions/audit")
    active(busbridge, "events", "audit", count=1)
    active(busbridge, "events", "ledger", count=2)
    busbridge.done(*words, "--yes")
    active(busbridge, "events", "audit", count=2)
    active(busbridge, "events", "ledger", count=3)


@pytest.mark.long
def test_killed_half_way_it_goes_on_and_nothing_is_lost_or_there_twice(
    busbridge: Busbridge,
) -> None:
    """Three kills; a bridge numbers each copy once."""
    count = 600
    defer(busbridge, "killed", count)
    words = ("deferred", "release", "killed", "--yes")

    def released() -> int:
        return len(busbridge.done("peek", "killed", "--all", "--state", "active").rows)

    kills = 0
    for _ in range(3):
        # Copies have the numbers behind: a look at one of them is quick, the whole run is not long.
        behind = ("--from", str(count + released() + 1), "--count", "1")

        def goes_on(behind: tuple[str, ...] = behind) -> bool:
            return bool(busbridge.done("peek", "killed", *behind).rows)

        with busbridge.start(*words) as process:
            eventually(lambda goes_on=goes_on: goes_on() or process.poll() is not None)
            kills += process.poll() is None
            process.kill()
    assert kills, "a run was killed half-way"

    def is_done() -> bool:  # what was under way is locked until its lock ends
        busbridge(*words)
        return not busbridge.done("deferred", "ls", "killed").rows

    eventually(is_done, "all are released")
    found = [each["body"] for each in active(busbridge, "killed", count=count)]
    assert Counter(found) == Counter(f"order {at}" for at in range(count))
