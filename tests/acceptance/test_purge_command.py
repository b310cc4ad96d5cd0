"""purge of each state, and its undo, as somebody types them, on a real bridge."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bridge.commands.clock import now_ms
from bridge.operations.undo_file import TakenFate, entries, fates
from tests.acceptance.busbridge import Busbridge, Make, Said
from tests.acceptance.test_dead_letter_commands import kill_messages, order
from tests.acceptance.test_deferred_commands import defer
from tests.acceptance.test_schedule_commands import FAR, schedule
from tests.acceptance.test_undo_command import own_bytes
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT60S"}
STATES = ("active", "scheduled", "deferred")
QUEUES = ("some", "whole", "later", "due", "aside", "dead", "stop")
ENTITIES: dict[str, dict[str, object]] = {
    **{each: {**LOCK} for each in QUEUES},
    **{f"limit-{each}": {**LOCK} for each in STATES},
    **{f"killed-{each}": {"LockDuration": "PT5S", "MaxDeliveryCount": 100} for each in STATES},
    "sessions": {**LOCK, "RequiresSession": True},
    "aside-sessions": {**LOCK, "RequiresSession": True},
}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit"}]}]

WAIT = ("--wait", "3")
RED = ("--where", "color = 'red'")
YES = "--yes"


@pytest.fixture
def busbridge(bridge: Bridge, make: Make) -> Busbridge:
    """The command, on the module's bridge."""
    return make(bridge.connection_string)


def send(busbridge: Busbridge, entity: str, *messages: dict[str, Any]) -> None:
    """Send messages."""
    busbridge.done("send", entity, given="".join(f"{json.dumps(each)}\n" for each in messages))


def messages(
    busbridge: Busbridge, entity: str, count: int, state: str = "active"
) -> list[dict[str, Any]]:
    """Return the messages of an entity in a state, when there are so many."""
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found[:] = busbridge.done("peek", entity, "--all", "--state", state).rows
        return len(found) == count

    eventually(are_there, f"{entity} has {count} messages, {state}")
    return found


def bodies(rows: list[dict[str, Any]]) -> list[Any]:
    """Return the bodies of messages."""
    return [each["body"] for each in rows]


def of_all_states(busbridge: Busbridge, entity: str) -> None:
    """Give an entity four messages of each state; half of each are red."""
    defer(busbridge, entity, 4)
    schedule(busbridge, entity, 4)
    send(busbridge, entity, *(order(at) for at in range(4)))
    for state in STATES:
        messages(busbridge, entity, 4, state)


def test_active_messages_that_are_meant_are_removed_and_come_back(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """The others of each state stay as they were, uncounted; unasked nothing is removed."""
    of_all_states(busbridge, "some")
    before = messages(busbridge, "some", 4)
    path = tmp_path / "undo"
    words = ("purge", "some", *RED, *WAIT, "--undo", str(path))
    dry = busbridge.done(*words, "--dry-run")
    assert bodies(dry.rows) == ["order 0", "order 2"]
    assert "2 messages of some would be removed" in dry.err
    asked = busbridge(*words)
    assert (asked.code, path.exists()) == (2, False)
    said = busbridge.done(*words, YES)
    assert said.err == "2 messages of some removed.\n"
    left = messages(busbridge, "some", 2)
    assert [(each["body"], each["delivery_count"]) for each in left] == [
        ("order 1", 0), ("order 3", 0),
    ]  # fmt: skip
    messages(busbridge, "some", 4, "scheduled")
    messages(busbridge, "some", 4, "deferred")
    undone = busbridge("undo", str(path))
    assert "2 messages that were removed from some are sent to some" in undone.err
    undone = busbridge.done("undo", str(path), YES)
    assert undone.err == "2 messages sent to some.\n"
    found = messages(busbridge, "some", 4)
    assert [own_bytes(each) for each in found] == [own_bytes(before[at]) for at in (1, 3, 0, 2)]


def test_all_active_messages_are_removed_without_being_received(busbridge: Busbridge) -> None:
    """By batch delete, which leaves those of the other states."""
    of_all_states(busbridge, "whole")
    said = busbridge.done("purge", "whole", "--limit", "1", YES)
    assert said.row == {"removed": 1}
    said = busbridge.done("purge", "whole", YES)
    assert (said.row, said.err) == ({"removed": 3}, "Removed 3 messages from whole.\n")
    messages(busbridge, "whole", 0)
    messages(busbridge, "whole", 4, "scheduled")
    messages(busbridge, "whole", 4, "deferred")


def test_scheduled_messages_are_cancelled_and_scheduled_again_for_their_time(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Each was in the undo file before it was cancelled."""
    of_all_states(busbridge, "later")
    before = messages(busbridge, "later", 4, "scheduled")
    path = tmp_path / "undo"
    words = ("purge", "later", "--state", "scheduled", *RED, "--undo", str(path))
    dry = busbridge.done(*words, "--dry-run")
    assert bodies(dry.rows) == ["order 0", "order 2"]
    asked = busbridge(*words)
    assert (asked.code, "2 messages of later, scheduled" in asked.err) == (2, True)
    assert not path.exists()
    said = busbridge.done(*words, YES)
    assert [each["outcome"] for each in said.rows] == ["cancelled", "cancelled"]
    assert said.err == "Cancelled 2 messages of later.\n"
    assert bodies(messages(busbridge, "later", 2, "scheduled")) == ["order 1", "order 3"]
    messages(busbridge, "later", 4, "deferred")
    busbridge.done("undo", str(path), YES)
    found = messages(busbridge, "later", 4, "scheduled")
    assert Counter(map(own_bytes, found)) == Counter(map(own_bytes, before))
    assert {each["scheduled_enqueue_time"] for each in found} == {"2099-01-01T00:00:00.000Z"}
    messages(busbridge, "later", 4)


@pytest.mark.long
def test_what_was_due_since_it_was_cancelled_is_enqueued_at_once(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Its time has passed; nothing is early."""
    schedule(busbridge, "due", 1, "PT20S")
    (row,) = messages(busbridge, "due", 1, "scheduled")
    path = tmp_path / "undo"
    busbridge.done("purge", "due", "--state", "scheduled", "--undo", str(path), YES)
    _, *lines = path.read_text().splitlines()
    (taken,) = entries(lines)
    due_ms = taken.message.scheduled_enqueue_time_ms
    assert due_ms is not None
    eventually(lambda: now_ms() > due_ms, "its time has passed")
    assert busbridge.done("peek", "due").rows == []
    busbridge.done("undo", str(path), YES)
    (found,) = messages(busbridge, "due", 1)
    assert own_bytes(found) == own_bytes(row)


def test_deferred_messages_are_removed_and_come_back_as_active_ones(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Nothing defers a message but its receiver."""
    of_all_states(busbridge, "aside")
    path = tmp_path / "undo"
    words = ("purge", "aside", "--state", "deferred", *RED, "--undo", str(path))
    assert bodies(busbridge.done(*words, "--dry-run").rows) == ["order 0", "order 2"]
    said = busbridge.done(*words, YES)
    assert said.err == "2 messages of aside removed.\n"
    assert bodies(messages(busbridge, "aside", 2, "deferred")) == ["order 1", "order 3"]
    busbridge.done("undo", str(path), YES)
    found = messages(busbridge, "aside", 6)
    assert bodies(found)[4:] == ["order 0", "order 2"]
    messages(busbridge, "aside", 4, "scheduled")
    empty = busbridge("purge", "aside", "--state", "deferred", "--number", "9999", YES)
    assert (empty.code, empty.err) == (
        3,
        "not found: message 9999: there is none of this number\n"
        "aside has no such deferred messages.\n",
    )


def test_dead_letters_are_a_state_too(busbridge: Busbridge, tmp_path: Path) -> None:
    """As `dead-letter purge`, which may go on with its file."""
    kill_messages(busbridge, "dead", *(order(at) for at in range(3)))
    send(busbridge, "dead", order(9))
    path = str(tmp_path / "undo")
    said = busbridge.done("purge", "dead", "--state", "dead", *RED, *WAIT, "--undo", path, YES)
    assert said.err == "2 messages of dead/$DeadLetterQueue removed.\n"
    busbridge.done("dead-letter", "purge", "dead", *WAIT, "--undo", path, YES)
    assert bodies(messages(busbridge, "dead", 1)) == ["order 9"]
    busbridge.done("undo", path, YES)
    found = bodies(messages(busbridge, "dead", 4))
    assert found == ["order 9", "order 0", "order 2", "order 1"]


def test_sessions_are_taken_one_after_the_other_and_one_that_is_held_stays(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """It is named; sessions without a message that is meant are not locked."""
    for session in ("a", "b", "c"):
        at = range(1) if session == "c" else range(4)
        send(busbridge, "sessions", *(order(each, session_id=session) for each in at))
    messages(busbridge, "sessions", 9)
    path = tmp_path / "undo"
    where = ("--where", "color = 'red' AND n > 0")
    words = ("purge", "sessions", *where, *WAIT, "--undo", str(path))
    assert [each["session_id"] for each in busbridge.done(*words, "--dry-run").rows] == ["a", "b"]
    with busbridge.start(
        *("receive", "sessions", "--session", "b", "--all", "--wait", "100")
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        said = busbridge(*words, YES)
        assert said.code == 3, said
        assert "not taken: session 'b': " in said.err
        assert "1 message of sessions removed.\n" in said.err
        holder.send_signal(signal.SIGINT)
        holder.wait(120)
    messages(busbridge, "sessions", 8)
    busbridge.done("receive", "sessions", "--session", "c", "--count", "1", "--settle", "abandon")
    busbridge.done(*words, YES)
    left = messages(busbridge, "sessions", 7)
    assert [(each["session_id"], each["body"]) for each in left] == [
        *(("a", f"order {at}") for at in (0, 1, 3)),
        *(("b", f"order {at}") for at in (0, 1, 3)),
        ("c", "order 0"),
    ]
    assert {each["delivery_count"] for each in left if each["session_id"] != "c"} == {0}
    busbridge.done("undo", str(path), YES)
    found = messages(busbridge, "sessions", 9)
    assert [(each["session_id"], each["body"]) for each in found[7:]] == [
        ("a", "order 2"), ("b", "order 2"),
    ]  # fmt: skip
    whole = busbridge.done("purge", "sessions", "--limit", "5", *WAIT, YES)
    assert whole.row["removed"] == 5
    busbridge.done("purge", "sessions", *WAIT, YES)
    messages(busbridge, "sessions", 0)


def test_deferred_messages_of_sessions_are_removed(busbridge: Busbridge, tmp_path: Path) -> None:
    """While the command holds each session."""
    for session in ("a", "b"):
        defer(busbridge, "aside-sessions", 2, session=session)
    path = str(tmp_path / "undo")
    busbridge.done("purge", "aside-sessions", "--state", "deferred", "--undo", path, YES)
    messages(busbridge, "aside-sessions", 0, "deferred")
    busbridge.done("undo", path, YES)
    found = messages(busbridge, "aside-sessions", 4)
    assert bodies(found) == ["order 0a", "order 1a", "order 0b", "order 1b"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("events", "audit", "--state", "scheduled"), 2, "in a queue or a topic"),
        (("some/$DeadLetterQueue", "--state", "scheduled"), 2, "in a queue or a topic"),
        (("events",), 1, "events"),
        (("none", "--state", "deferred"), 1, "none"),
        (("some", "--rate", "0"), 2, "--rate is above 0"),
        (("some", "--where", "color ="), 2, "--where: The end"),
    ],
)
def test_what_cannot_be_purged_is_refused_by_name(
    busbridge: Busbridge, words: tuple[str, ...], code: int, text: str
) -> None:
    """Before anything is done."""
    said = busbridge("purge", *words, YES)
    assert (said.code, said.out) == (code, ""), said
    assert text in said.err


def test_an_interrupt_leaves_the_rest_and_the_same_command_goes_on(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """What was written, and is not cancelled any more, is not sent by an undo."""
    schedule(busbridge, "stop", 40)
    path = tmp_path / "undo"
    words = ("purge", "stop", "--state", "scheduled", "--undo", str(path), YES)
    process = busbridge.start(*words, "--rate", "4")
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = busbridge.end(process)
    assert said.code == 4, said
    assert said.err.endswith("Give the same command to go on.\n")
    left = len(messages(busbridge, "stop", 40 - _fates(path)[TakenFate.REMOVED], "scheduled"))
    assert _fates(path)[TakenFate.DOUBTFUL] == 0
    busbridge.done(*words)
    messages(busbridge, "stop", 0, "scheduled")
    assert _fates(path) == {TakenFate.REMOVED: 40}
    assert 0 < left < 40


@pytest.mark.parametrize("state", STATES)
def test_an_interrupt_within_a_limit_says_what_is_left_of_it(
    busbridge: Busbridge, state: str
) -> None:
    """The same limit again would have more removed than was asked for."""
    entity, count, limit = f"limit-{state}", 30, 20
    if state == "active":
        send(busbridge, entity, *(order(at) for at in range(count)))
    elif state == "scheduled":
        schedule(busbridge, entity, count)
    else:
        defer(busbridge, entity, count)
    messages(busbridge, entity, count, state)
    words = ("purge", entity, "--state", state, *WAIT, YES)
    process = busbridge.start(*words, "--limit", str(limit), "--rate", "1")
    look = ("peek", entity, "--all", "--state", state)
    eventually(lambda: len(busbridge.done(*look).rows) < count, "the first is removed")
    process.send_signal(signal.SIGINT)
    said = busbridge.end(process)
    assert said.code == 4, said
    found = re.search(r"Give the same command with --limit (\d+) to go on.\n$", said.err)
    assert found, said
    assert 0 < int(found[1]) < limit
    busbridge.done(*words, "--limit", found[1])
    messages(busbridge, entity, count - limit, state)


def _fates(path: Path) -> Counter[TakenFate]:
    """Return how many messages of an undo file have each fate."""
    _, *lines = path.read_text().rpartition("\n")[0].splitlines()
    return Counter(fates(lines).values())


@pytest.mark.long
@pytest.mark.parametrize("state", STATES)
def test_killed_half_way_it_goes_on_and_the_undo_accounts_for_every_message(
    busbridge: Busbridge, tmp_path: Path, state: str
) -> None:
    """Three kills: what is sure comes back once; what is not is listed, and sent only if asked."""
    count, entity, path = 90, f"killed-{state}", tmp_path / "undo"
    whole = {f"order {at}" for at in range(count)}
    if state == "deferred":
        defer(busbridge, entity, count)
    elif state == "scheduled":
        schedule(busbridge, entity, count, FAR)
    else:
        send(busbridge, entity, *(order(at) for at in range(count)))
    messages(busbridge, entity, count, state)
    words = ("purge", entity, "--state", state, "--where", "n >= 0", "--undo", str(path), YES)
    for _ in range(3):
        before = path.read_bytes().count(b"removed") if path.exists() else 0
        process = busbridge.start(*words, "--rate", "15", "--wait", "60")
        eventually(
            lambda before=before: path.exists() and path.read_bytes().count(b"removed") > before,
            "some are removed",
        )
        process.kill()
        process.communicate()

    def is_done() -> bool:  # what was under way is locked until its lock ends
        said = busbridge(*words, "--wait", "8")
        assert said.code in (0, 3, 4), said
        return not busbridge.done("peek", entity, "--all").rows

    eventually(is_done, "all are removed")
    said: Said = busbridge("undo", str(path), YES)
    assert said.code in (0, 3), said
    summary, *doubtful = said.rows
    assert summary["sent"] + len(doubtful) == count
    back = "scheduled" if state == "scheduled" else "active"
    found = bodies(messages(busbridge, entity, summary["sent"], back))
    missing = whole - set(found)
    assert (len(set(found)), len(missing)) == (len(found), len(doubtful))
    print(f"{state}: {len(doubtful)} doubtful")
    busbridge("undo", str(path), YES, "--doubtful")
    found = bodies(messages(busbridge, entity, count, back))
    assert set(found) == whole
