"""Which messages a command means: by number and by enqueued time, on a real bridge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.acceptance.busbridge import Busbridge, Make
from tests.acceptance.test_dead_letter_commands import dead, kill_messages, lines, order
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT60S"}
ENTITIES = {
    **dict.fromkeys(("looked", "dead", "timed", "aside", "later", "active"), LOCK),
    "sessions": {**LOCK, "RequiresSession": True},
}
YES, WAIT = "--yes", ("--wait", "2")
FAR = "2099-01-01T00:00:00Z"
LATER = "2099-06-01T00:00:00Z"
GONE = ("--number", "99")
NAMED = "not found: message 99: there is none"


@pytest.fixture
def busbridge(bridge: Bridge, make: Make) -> Busbridge:
    """The command, on the module's bridge."""
    return make(bridge.connection_string)


def test_dead_letters_that_are_not_there_are_named_by_their_numbers(busbridge: Busbridge) -> None:
    """By every command on dead letters, with the exit code 3; the others are meant all the same."""
    kill_messages(busbridge, "dead", *(order(at) for at in range(5)))
    for verb in ("ls", "group", "export"):
        said = busbridge("dead-letter", verb, "dead", "--number", "2", *GONE)
        assert (said.code, len(said.rows)) == (3, 1), said
        assert said.err.count(NAMED) == 1
    dry = busbridge("dead-letter", "resubmit", "dead", "--number", "2", *GONE, "--dry-run")
    assert (dry.code, len(dry.rows), dry.err.count(NAMED)) == (3, 1, 1)
    sent = busbridge("dead-letter", "resubmit", "dead", "--number", "2", *GONE, *WAIT)
    assert (sent.code, sent.row["taken"], sent.err.count(NAMED)) == (3, 1, 1), sent
    purged = busbridge("dead-letter", "purge", "dead", "--number", "1", *GONE, *WAIT, YES)
    assert (purged.code, purged.row["taken"], purged.err.count(NAMED)) == (3, 1, 1), purged
    assert [each["body"] for each in dead(busbridge, "dead", 3)] == [
        "order 2",
        "order 3",
        "order 4",
    ]
    whole = busbridge.done("dead-letter", "purge", "dead", "--number", "3", *WAIT, YES)
    assert "not found" not in whole.err
    bounded = busbridge.done(
        *("dead-letter", "purge", "dead", "--number", "4", *GONE, "--limit", "1", *WAIT, YES)
    )
    assert "not found" not in bounded.err, "there was no need to look for it"


def test_a_number_of_another_state_is_named_with_the_state_that_it_has(
    busbridge: Busbridge,
) -> None:
    """Of deferred and of scheduled messages, and where a condition leaves one out."""
    busbridge.done("send", "aside", given=lines(order(0), order(1)))
    busbridge.done("receive", "aside", "--count", "1", "--wait", "60", "--settle", "defer")
    for words in (("ls",), ("take", YES), ("release", YES)):
        said = busbridge("deferred", words[0], "aside", "--number", "2", *words[1:])
        assert (said.code, said.out) == (3, ""), said
        assert "not found: message 2: it is active, and not meant" in said.err
    purged = busbridge("purge", "aside", "--state", "deferred", "--number", "2", *GONE, YES)
    assert (purged.code, purged.err.count("not found: ")) == (3, 2), purged
    busbridge.done("send", "later", "--schedule", FAR, given=lines(order(0)))
    for words in (("ls",), ("move", "--to", LATER, YES), ("cancel", "--due-before", FAR, YES)):
        said = busbridge("schedule", words[0], "later", *GONE, *words[1:])
        assert (said.code, said.out) == (3, ""), said
        assert said.err.count(NAMED) == 1
    moved = busbridge("schedule", "move", "later", "--number", "1", *GONE, "--to", LATER, YES)
    assert (moved.code, moved.row["was"], moved.err.count(NAMED)) == (3, 1, 1), moved
    exported = busbridge("export", "later", "--number", "1", "--where", "color = 'red'")
    assert (exported.code, "message 1: there is none" in exported.err) == (3, True)


def test_active_messages_that_are_not_there_are_named_when_the_rest_is_purged(
    busbridge: Busbridge,
) -> None:
    """Also of an entity with sessions: once."""
    for entity, fields in (("active", {}), ("sessions", {"session_id": "s"})):
        busbridge.done("send", entity, given=lines(order(0, **fields), order(1, **fields)))
        eventually(lambda entity=entity: len(busbridge.done("peek", entity).rows) == 2)
        said = busbridge("purge", entity, "--number", "2", *GONE, *WAIT, YES)
        assert (said.code, said.row["taken"], said.err.count(NAMED)) == (3, 1, 1), said
        assert [each["body"] for each in busbridge.done("peek", entity).rows] == ["order 0"]


def test_messages_are_meant_by_the_time_at_which_they_were_enqueued(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """From a time on, and before another one; dead letters have the time that they had alive."""
    kill_messages(busbridge, "timed", order(0))
    busbridge.done("send", "looked", given=lines(order(0)))
    between = datetime.now(UTC) + timedelta(seconds=1)
    eventually(lambda: datetime.now(UTC) > between + timedelta(seconds=1))
    busbridge.done("send", "timed", given=lines(order(1)))
    busbridge.done(
        *("receive", "timed", "--count", "1", "--wait", "60", "--settle", "dead-letter"),
        *("--reason", "bad"),
    )
    dead(busbridge, "timed", 2)
    busbridge.done("send", "looked", given=lines(order(1)))
    eventually(lambda: len(busbridge.done("peek", "looked").rows) == 2)
    at = between.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    since, before = ("--enqueued-from", at), ("--enqueued-before", at)
    for words, body in ((before, "order 0"), (since, "order 1")):
        for command in (("export", "looked"), ("dead-letter", "ls", "timed")):
            (row,) = busbridge.done(*command, *words).rows
            assert body in str(row), (command, words)
    for wrong in ("tomorrow", "2026-11-27"):
        said = busbridge("export", "looked", "--enqueued-from", wrong)
        assert (said.code, "--enqueued-from: " in said.err) == (2, True)
    assert busbridge.done("export", "looked", *since, *before).rows == []
    undo = tmp_path / "undo"
    busbridge.done("purge", "looked", *before, *WAIT, YES, "--undo", str(undo))
    assert [each["body"] for each in busbridge.done("peek", "looked").rows] == ["order 1"]
    busbridge.done("dead-letter", "resubmit", "timed", *since, *WAIT)
    (left,) = dead(busbridge, "timed", 1)
    assert left["body"] == "order 0"
    busbridge.done("dead-letter", "purge", "timed", *before, *WAIT, YES)
    dead(busbridge, "timed", 0)
