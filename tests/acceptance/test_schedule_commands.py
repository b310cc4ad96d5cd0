"""schedule ls, move and cancel, as somebody types them, on a real bridge."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import Any

import pytest

from bridge.commands.cancelling import Cancelled, cancel, cancel_old
from bridge.commands.clock import now_ms
from bridge.commands.moving_in_place import NotInPlace, move_in_place
from bridge.operations.changes import scheduled
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.errors import RemoteNotFound
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from tests.acceptance.busbridge import Busbridge, Make
from tests.fixtures.bridge import Bridge
from tests.fixtures.waiting import until

ENTITIES: dict[str, dict[str, object]] = {
    **{
        each: {}
        for each in (
            "look",
            "move",
            "late",
            "cancel",
            "stop",
            "limit",
            "killed",
            "due",
            "anew",
            "own",
        )
    },
    **{each: {"RequiresDuplicateDetection": True} for each in ("unique", "kept-id")},
}
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit"}]}]

FAR = "2099-01-01T00:00:00Z"
LATER = "2099-06-01T00:00:00Z"
RED = ("--where", "color = 'red'")


@pytest.fixture
def busbridge(bridge: Bridge, make: Make) -> Busbridge:
    """The command, on the module's bridge."""
    return make(bridge.connection_string)


def schedule(busbridge: Busbridge, entity: str, count: int, at: str = FAR) -> list[int]:
    """Schedule messages, red if their number is even, and return their sequence numbers."""
    lines = [
        {
            "body": f"order {each}",
            "message_id": f"m{each}",
            "subject": "invoice",
            "application_properties": {"color": "blue" if each % 2 else "red", "n": {"long": each}},
        }
        for each in range(count)
    ]
    text = "".join(f"{json.dumps(each)}\n" for each in lines)
    said = busbridge.done("send", entity, "--schedule", at, given=text)
    return [each["sequence_number"] for each in said.rows]


def found(busbridge: Busbridge, entity: str, *words: str) -> list[dict[str, Any]]:
    """Return the scheduled messages of an entity."""
    return busbridge.done("schedule", "ls", entity, *words).rows


def times(busbridge: Busbridge, entity: str) -> dict[str, str]:
    """Return when each message is due, by its body."""
    rows = found(busbridge, entity)
    due = {each["body"]: each["scheduled_enqueue_time"] for each in rows}
    assert len(due) == len(rows), "none is there twice"
    return due


def test_only_scheduled_messages_are_shown(busbridge: Busbridge) -> None:
    """Those of a time, of a condition, of a number; an active one is none."""
    busbridge.done("send", "look", "active")
    numbers = schedule(busbridge, "look", 2)
    (third,) = schedule(busbridge, "look", 1, LATER)
    assert [each["sequence_number"] for each in found(busbridge, "look")] == [*numbers, third]
    assert len(found(busbridge, "look", *RED)) == 2
    (row,) = found(busbridge, "look", "--due-from", "2099-03-01T00:00:00Z")
    assert (row["sequence_number"], row["state"]) == (third, "scheduled")
    assert len(found(busbridge, "look", "--due-before", LATER)) == 2
    assert found(busbridge, "look", "--number", str(third)) == [row]
    said = busbridge("schedule", "ls", "events/Subscriptions/audit")
    assert (said.code, "a queue or a topic" in said.err) == (2, True)


def test_those_of_a_topic_are_in_the_topic(busbridge: Busbridge) -> None:
    """They can be looked at, moved and cancelled there."""
    schedule(busbridge, "events", 2)
    busbridge.done("schedule", "move", "events", "--to", LATER, "--yes")
    assert set(times(busbridge, "events").values()) == {"2099-06-01T00:00:00.000Z"}
    busbridge.done("schedule", "cancel", "events", "--yes")
    assert found(busbridge, "events") == []


def test_what_is_moved_is_there_once_as_it_was_but_for_its_time(busbridge: Busbridge) -> None:
    """With a new number; unasked nothing is moved; the same command again moves nothing."""
    numbers = schedule(busbridge, "move", 3)
    words = ("schedule", "move", "move", *RED, "--to", LATER)
    asked = busbridge(*words)
    assert (asked.code, "2 messages of move" in asked.err) == (2, True)
    before = {each["body"]: each for each in found(busbridge, "move")}
    said = busbridge.done(*words, "--yes")
    assert [each["was"] for each in said.rows] == [numbers[0], numbers[2]]
    assert said.err == "Moved 2 messages of move.\n"
    after = {each["body"]: each for each in found(busbridge, "move")}
    assert times(busbridge, "move")["order 1"] == "2099-01-01T00:00:00.000Z"
    for body, row in zip(("order 0", "order 2"), said.rows, strict=True):
        is_new = {
            "sequence_number": row["sequence_number"],
            "scheduled_enqueue_time": "2099-06-01T00:00:00.000Z",
        }
        others = ("enqueued_time", "enqueued_sequence_number")
        was = {name: value for name, value in before[body].items() if name not in others}
        now = {name: value for name, value in after[body].items() if name not in others}
        assert now == was | is_new
    again = busbridge.done(*words, "--yes")
    assert (again.out, again.err) == (
        "", "Moved 0 messages of move. 2 messages were due at that time before.\n"
    )  # fmt: skip
    busbridge.done("schedule", "move", "move", "--number", str(numbers[1]), "--by=-PT1H", "--yes")
    assert times(busbridge, "move")["order 1"] == "2098-12-31T23:00:00.000Z"


def test_no_message_is_moved_to_a_time_before_which_it_could_not_be_withdrawn(
    busbridge: Busbridge,
) -> None:
    """It stays; by a time of its own it is named."""
    schedule(busbridge, "late", 1)
    words = ("schedule", "move", "late", "--yes")
    for wrong in (("--to", "2020-01-01T00:00:00Z"), ("--to", "PT5S"), ("--to", "x"), ("--by", "x")):
        said = busbridge(*words, *wrong)
        assert (said.code, said.out) == (2, ""), said
    said = busbridge(*words, "--by=-P90000D")
    assert (said.code, "less than 30 seconds ahead" in said.err) == (3, True)
    assert len(found(busbridge, "late")) == 1


def test_what_is_moved_in_place_is_no_duplicate_of_itself(busbridge: Busbridge) -> None:
    """It keeps its MessageId; another message of that id is a duplicate as before."""
    schedule(busbridge, "kept-id", 1)
    busbridge.done("schedule", "move", "kept-id", "--to", LATER, "--yes")
    assert times(busbridge, "kept-id") == {"order 0": "2099-06-01T00:00:00.000Z"}
    schedule(busbridge, "kept-id", 1)
    assert times(busbridge, "kept-id") == {"order 0": "2099-06-01T00:00:00.000Z"}


@pytest.fixture
def as_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace that does not know the operation that the command asks for."""
    name = "com.busbridge:unknown"
    monkeypatch.setattr("bridge.wire.own_operations.MOVE_SCHEDULED_MESSAGES", name)


@pytest.mark.usefixtures("as_azure")
def test_elsewhere_messages_are_scheduled_anew_and_the_old_ones_cancelled(
    busbridge: Busbridge,
) -> None:
    """Each is there once, with a new number."""
    numbers = schedule(busbridge, "anew", 3)
    said = busbridge.done("schedule", "move", "anew", *RED, "--to", LATER, "--yes")
    assert [each["was"] for each in said.rows] == [numbers[0], numbers[2]]
    due = {each: day[:10] for each, day in times(busbridge, "anew").items()}
    assert due == {"order 0": LATER[:10], "order 1": FAR[:10], "order 2": LATER[:10]}


@pytest.mark.usefixtures("as_azure")
def test_what_detects_duplicates_keeps_the_old_one_unless_there_is_a_new_id(
    busbridge: Busbridge,
) -> None:
    """The second one would be dropped, and the message be lost."""
    schedule(busbridge, "unique", 1)
    words = ("schedule", "move", "unique", "--to", LATER, "--yes")
    said = busbridge(*words)
    assert (said.code, "detect duplicates" in said.err) == (3, True), said
    assert times(busbridge, "unique") == {"order 0": "2099-01-01T00:00:00.000Z"}
    busbridge.done(*words, "--new-id")
    assert times(busbridge, "unique") == {"order 0": "2099-06-01T00:00:00.000Z"}


def test_what_is_cancelled_is_gone_and_the_others_stay(busbridge: Busbridge) -> None:
    """What is not scheduled is named."""
    numbers = schedule(busbridge, "cancel", 4)
    words = ("schedule", "cancel", "cancel")
    asked = busbridge(*words, *RED)
    assert (asked.code, len(found(busbridge, "cancel"))) == (2, 4)
    said = busbridge.done(*words, *RED, "--yes")
    assert said.rows == [
        {"sequence_number": each, "outcome": "cancelled"} for each in (numbers[0], numbers[2])
    ]
    said = busbridge(*words, "--number", str(numbers[0]), "--number", str(numbers[1]), "--yes")
    assert (said.code, [each["outcome"] for each in said.rows]) == (
        3, ["not scheduled", "cancelled"],
    )  # fmt: skip
    assert times(busbridge, "cancel") == {"order 3": "2099-01-01T00:00:00.000Z"}


async def test_of_a_message_that_was_due_meanwhile_the_new_one_is_withdrawn(
    bridge: Bridge, busbridge: Busbridge
) -> None:
    """It is enqueued once, at its old time."""
    text = bridge.connection_string
    async with RemoteNamespace(RemoteAddress.of(text), credential_in(text)) as namespace:
        management = await namespace.management("due")
        message = RemoteMessage.of(data=b"order")
        was_ms = now_ms() + 500
        (old,) = await management.schedule([scheduled(message, was_ms)])

        async def states() -> list[str]:
            return [each.state for each in await management.peek(1, 10)]

        async def is_enqueued() -> bool:
            return await states() == ["active"]

        await until(is_enqueued)
        due_ms = now_ms() + 3_600_000
        (new,) = await management.schedule([scheduled(message, due_ms)])
        why = await cancel_old(management, old, was_ms, new, due_ms)
        assert why == "it was due meanwhile: the new one is withdrawn"
        assert await states() == ["active"]
        assert await cancel(management, new, due_ms) is Cancelled.NOT_SCHEDULED


async def test_of_a_message_that_was_due_nothing_is_scheduled_in_its_place(bridge: Bridge) -> None:
    """The bridge answers that it is not found, of all messages of the request; and of a repeat."""
    text = bridge.connection_string
    async with RemoteNamespace(RemoteAddress.of(text), credential_in(text)) as namespace:
        management = await namespace.management("own")
        message, due_ms = RemoteMessage.of(data=b"order"), now_ms() + 3_600_000
        (soon,) = await management.schedule([scheduled(message, now_ms() + 500)])
        (old,) = await management.schedule([scheduled(message, due_ms)])

        async def states() -> dict[int | None, str]:
            return {each.sequence_number: each.state for each in await management.peek(1, 10)}

        async def is_enqueued() -> bool:
            return "active" in (await states()).values()

        await until(is_enqueued)
        before = await states()
        later = scheduled(message, due_ms + 1_000)
        with pytest.raises(RemoteNotFound):
            await management.move_scheduled([old, soon], [later, later])
        assert await states() == before
        (new,) = await management.move_scheduled([old], [later])
        moved = await states()
        assert (moved.pop(new), old in moved, len(moved)) == ("scheduled", False, 1)
        with pytest.raises(NotInPlace):
            await move_in_place(management, old, due_ms, later)
        assert await states() == {**moved, new: "scheduled"}


def test_an_interrupt_leaves_no_message_twice_and_the_last_line_goes_on(
    busbridge: Busbridge,
) -> None:
    """The message that is under way is finished; none is lost, or moved a second time."""
    count = 120
    schedule(busbridge, "stop", count)
    process = busbridge.start("schedule", "move", "stop", "--by", "PT1H", "--yes")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = busbridge.end(process)
    assert said.code == 4, said
    due = times(busbridge, "stop")
    moved = sum(each == "2099-01-01T01:00:00.000Z" for each in due.values())
    assert (len(due), 0 < moved < count) == (count, True)
    way = said.err.strip().rpartition("Go on with ")[2].rstrip(".").split()
    busbridge.done("schedule", "move", "stop", "--by", "PT1H", "--yes", *way)
    assert set(times(busbridge, "stop").values()) == {"2099-01-01T01:00:00.000Z"}


def test_an_interrupted_move_goes_on_within_its_limit(busbridge: Busbridge) -> None:
    """The last line bounds what is left by numbers: the limit would count anew."""
    count, limit = 120, 80
    schedule(busbridge, "limit", count)
    words = ("schedule", "move", "limit", "--limit", str(limit), "--yes")
    process = busbridge.start(*words, "--to", LATER)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    said = busbridge.end(process)
    assert said.code == 4, said
    way = said.err.strip().rpartition("Go on with ")[2].rstrip(".").split()
    busbridge.done(*words, *way)
    due = Counter(each[:10] for each in times(busbridge, "limit").values())
    assert due == {LATER[:10]: limit, FAR[:10]: count - limit}


def test_killed_it_leaves_each_message_once(busbridge: Busbridge) -> None:
    """The same command goes on."""
    count = 60
    schedule(busbridge, "killed", count)
    words = ("schedule", "move", "killed", "--to", LATER, "--yes")
    process = busbridge.start(*words)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    rows = found(busbridge, "killed")
    assert {each["body"] for each in rows} == {f"order {at}" for at in range(count)}
    assert len(rows) == count
