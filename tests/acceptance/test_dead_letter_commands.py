"""dead-letter ls, group, export, resubmit and purge, as somebody types them, on a real bridge."""

from __future__ import annotations

import json
import signal
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusSubQueue

from bridge.operations.undo_file import UndoHead, entries
from tests.acceptance.busbridge import Busbridge, Make, Said
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT60S"}
DYING = {**LOCK, "DefaultMessageTimeToLive": "PT1S", "DeadLetteringOnMessageExpiration": True}
ENTITIES = {
    **dict.fromkeys(
        (
            "group",
            "export",
            "some",
            "held",
            "purge",
            "all",
            "edit",
            "stop",
            "other",
            "twice",
            "taken",
            "many",
        ),
        LOCK,
    ),
    "killed": {"LockDuration": "PT5S"},
    "again": DYING,
    "dying": DYING,
    "unique": {**LOCK, "RequiresDuplicateDetection": True},
}
RED = {
    "Name": "red",
    "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "color = 'red'"}},
}
TOPICS = [
    {"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "ledger"}]},
    {"Name": "news", "Subscriptions": [{"Name": "red", "Rules": [RED]}, {"Name": "all"}]},
]

WAIT = ("--wait", "3")

EDITOR = """#!/bin/sh
if grep -q 'order 1' "$1"; then : > "$1"; exit; fi
if grep -q '^// ' "$1"; then cp "$1" {said}; sed -i 's/: 300/: 7/' "$1"; exit; fi
sed -i 's/"order 0"/"corrected", "priority": 300/' "$1"
"""
"""Empties one message; in the other makes a mistake first, and corrects it when it is told."""


@pytest.fixture
def busbridge(bridge: Bridge, make: Make) -> Busbridge:
    """The command, on the module's bridge."""
    return make(bridge.connection_string)


def lines(*messages: dict[str, Any]) -> str:
    """Return lines of messages."""
    return "".join(f"{json.dumps(each)}\n" for each in messages)


def bodies(said: Said) -> list[Any]:
    """Return the bodies of the messages that a command wrote."""
    return [each["body"] for each in said.rows]


def kill_messages(busbridge: Busbridge, entity: str, *messages: dict[str, Any]) -> None:
    """Send messages, and dead-letter them."""
    busbridge.done("send", entity, given=lines(*messages))
    said = busbridge.done(
        *("receive", entity, "--count", str(len(messages)), "--wait", "60"),
        *("--settle", "dead-letter", "--reason", "bad", "--description", "ValueError: no total"),
    )
    assert len(said.rows) == len(messages)
    dead(busbridge, entity, len(messages))


def dead(busbridge: Busbridge, entity: str, count: int) -> list[dict[str, Any]]:
    """Return the dead letters of an entity, when there are so many."""
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found[:] = busbridge.done("dead-letter", "ls", entity).rows
        return len(found) == count

    eventually(are_there, f"{entity} has {count} dead letters")
    return found


def order(at: int, **fields: Any) -> dict[str, Any]:
    """Return a message: red if its number is even."""
    color = "red" if at % 2 == 0 else "blue"
    return {
        "body": f"order {at}",
        "message_id": f"m{at}",
        "application_properties": {"color": color, "n": {"long": at}},
        **fields,
    }


def test_dead_letters_are_counted_by_why_they_died(busbridge: Busbridge) -> None:
    """With exception, ages and the first; they stay where they are."""
    kill_messages(busbridge, "group", *(order(at) for at in range(3)))
    for _ in range(2):
        (row,) = busbridge.done("dead-letter", "group", "group").rows
        assert (row["count"], row["reason"], row["exception"]) == (3, "bad", "ValueError")
        assert row["first"] == 1
        assert row["oldest"] <= row["newest"]
    said = busbridge.done("dead-letter", "group", "group", "--where", "color = 'red'")
    assert said.row["count"] == 2
    empty = busbridge.done("dead-letter", "group", "other")
    assert (empty.out, empty.err) == ("", "There are no dead letters.\n")


def test_what_is_exported_is_sent_again_by_send(busbridge: Busbridge) -> None:
    """Types and all; and it stays where it is."""
    sent = order(1, body={"value": {"map": {"a": [1, {"long": 2}]}}}, session_id="s")
    kill_messages(busbridge, "export", sent)
    exported = busbridge.done("dead-letter", "export", "export")
    assert exported.err == "Wrote 1 dead letters.\n"
    assert exported.row["application_properties"]["DeadLetterReason"] == "bad"
    busbridge.done("send", "export", given=exported.out)
    eventually(lambda: busbridge.done("peek", "export").rows, "it is there")
    found = busbridge.done("peek", "export").row
    assert {name: found.get(name) for name in sent} == sent
    dead(busbridge, "export", 1)


def test_those_that_are_meant_are_sent_again_with_what_is_changed(busbridge: Busbridge) -> None:
    """Without why they died; the others stay, and are not counted as delivered."""
    kill_messages(busbridge, "some", *(order(at, subject="old") for at in range(6)))
    words = ("dead-letter", "resubmit", "some", "--where", "color = 'red'")
    dry = busbridge.done(*words, "--dry-run")
    assert bodies(dry) == ["order 0", "order 2", "order 4"]
    assert "3 messages of some/$DeadLetterQueue would be sent to some; 6 were looked at" in dry.err
    dead(busbridge, "some", 6)

    said = busbridge.done(
        *words, *WAIT, "--limit", "2", "--set", "subject=new", "--property", 'tries={"short": 1}'
    )
    assert (said.row["end"], said.row["taken"], said.row["removed"]) == ("done", 2, 2)
    assert said.err == "2 messages of some/$DeadLetterQueue sent to some.\n"
    eventually(lambda: len(busbridge.done("peek", "some").rows) == 2, "they are there")
    first = busbridge.done("peek", "some").rows[0]
    assert (first["body"], first["subject"], first["message_id"]) == ("order 0", "new", "m0")
    assert first["application_properties"] == {
        "color": "red",
        "n": {"long": 0},
        "tries": {"short": 1},
    }
    left = dead(busbridge, "some", 4)
    assert [each["body"] for each in left] == ["order 1", "order 3", "order 4", "order 5"]
    assert {each["delivery_count"] for each in left} == {0}

    said = busbridge.done(
        "dead-letter", "resubmit", "some", "--number", "4", *WAIT, "--to", "other"
    )
    assert said.err == "1 message of some/$DeadLetterQueue sent to other.\n"
    eventually(lambda: bodies(busbridge.done("peek", "other")) == ["order 3"])


def test_no_more_are_held_than_somebody_allows(broker: Broker, busbridge: Busbridge) -> None:
    """It stops, says at which message, and gives all back uncounted.

    Since RabbitMQ 4.3 what is not meant is not locked, so it does not stop.
    """
    kill_messages(busbridge, "held", *(order(at) for at in (1, 3, 5, 6)))
    words = ("dead-letter", "resubmit", "held", "--where", "color = 'red'", *WAIT)
    said = busbridge(*words, "--hold", "1")
    if broker.version >= (4, 3):
        assert (said.code, said.row["end"], said.row["looked_at"]) == (0, "done", 1)
    else:
        assert (said.code, said.row["end"], said.row["given_back"]) == (4, "held", 2)
        assert "the last one that was looked at is 2. 0 messages" in said.err
        assert {each["delivery_count"] for each in dead(busbridge, "held", 4)} == {0}
        busbridge.done(*words, "--hold", "3")
    assert {each["delivery_count"] for each in dead(busbridge, "held", 3)} == {0}


def test_what_somebody_else_has_locked_is_named(
    broker: Broker, bridge: Bridge, busbridge: Busbridge
) -> None:
    """The others are taken; the same command takes it when it is free."""
    if broker.version < (4, 3):
        pytest.skip("before 4.3 messages are not locked by number")
    kill_messages(busbridge, "taken", *(order(at) for at in range(4)))
    words = ("dead-letter", "purge", "taken", "--where", "color = 'red'", *WAIT, "--yes")
    with ServiceBusClient.from_connection_string(bridge.connection_string) as client:
        receiver = client.get_queue_receiver("taken", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        with receiver:
            (locked,) = receiver.receive_messages(1, max_wait_time=60)
            assert str(locked) == "order 0"
            said = busbridge(*words)
            assert (said.code, said.row["taken"]) == (3, 1)
            assert "1 message, the first of them 1, could not be had" in said.err
            receiver.abandon_message(locked)
    assert busbridge.done(*words).row["taken"] == 1
    assert [each["body"] for each in dead(busbridge, "taken", 2)] == ["order 1", "order 3"]


@pytest.mark.long
def test_few_of_many_are_taken_without_locking_the_others(
    broker: Broker, busbridge: Busbridge
) -> None:
    """More than --hold stand before them; all keep their places and counts."""
    if broker.version < (4, 3):
        pytest.skip("before 4.3 messages are not locked by number")
    count = 1_500
    messages = [order(2 * at + 1) for at in range(count)]
    for at in (1_200, 1_400, 1_499):
        messages[at] = order(2 * at)
    kill_messages(busbridge, "many", *messages)
    said = busbridge.done("dead-letter", "resubmit", "many", "--where", "color = 'red'", *WAIT)
    assert (said.row["taken"], said.row["removed"], said.row["given_back"]) == (3, 3, 0)
    left = dead(busbridge, "many", count - 3)
    assert {each["delivery_count"] for each in left} == {0}
    assert {each["application_properties"]["color"] for each in left} == {"blue"}
    found = busbridge.done(
        *("receive", "many", "--dead-letter", "--count", str(count), "--settle", "complete"),
        *("--yes", *WAIT),
    )
    numbers = [each["sequence_number"] for each in found.rows]
    assert numbers == [each["sequence_number"] for each in left]


def test_what_is_purged_is_in_the_undo_file(busbridge: Busbridge, tmp_path: Path) -> None:
    """Which its owner alone can read; without --yes nothing is removed."""
    kill_messages(busbridge, "purge", *(order(at) for at in range(4)))
    path = tmp_path / "undo.jsonl"
    words = (
        "dead-letter",
        "purge",
        "purge",
        "--where",
        "color = 'red'",
        *WAIT,
        "--undo",
        str(path),
    )
    asked = busbridge(*words)
    assert (asked.code, path.exists()) == (2, False)
    assert "give --yes" in asked.err
    said = busbridge.done(*words, "--yes")
    assert said.err == "2 messages of purge/$DeadLetterQueue removed.\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, *rest = path.read_text().splitlines()
    head = UndoHead.read(first)
    assert (head.verb, head.entity, head.to) == ("purge", "purge/$DeadLetterQueue", "")
    found = [each.message for each in entries(rest)]
    assert [each.data for each in found] == [b"order 0", b"order 2"]
    assert [each.sequence_number for each in found] == [1, 3]
    assert [each["body"] for each in dead(busbridge, "purge", 2)] == ["order 1", "order 3"]
    other = busbridge("dead-letter", "resubmit", "purge", "--undo", str(path))
    assert (other.code, "of another command" in other.err) == (2, True)


def test_all_are_purged_without_being_received(busbridge: Busbridge) -> None:
    """By batch delete; a limit holds."""
    kill_messages(busbridge, "all", *(order(at) for at in range(5)))
    said = busbridge.done("dead-letter", "purge", "all", "--limit", "2", "--yes")
    assert (said.row, said.err) == (
        {"removed": 2},
        "Removed 2 messages from all/$DeadLetterQueue.\n",
    )
    assert [each["body"] for each in dead(busbridge, "all", 3)] == ["order 2", "order 3", "order 4"]
    said = busbridge.done("dead-letter", "purge", "all", "--yes")
    assert said.row == {"removed": 3}
    dead(busbridge, "all", 0)


def test_messages_are_changed_in_an_editor(
    busbridge: Busbridge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A mistake is shown, and the text once more; what is saved empty stays dead."""
    kill_messages(busbridge, "edit", order(0), order(1))
    editor = tmp_path / "editor"
    editor.write_text(EDITOR.format(said=tmp_path / "said"))
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    said = busbridge.done("dead-letter", "resubmit", "edit", "--edit", *WAIT)
    assert said.row["taken"] == 1
    assert "priority" in (tmp_path / "said").read_text().splitlines()[0]
    eventually(lambda: bodies(busbridge.done("peek", "edit")) == ["corrected"])
    found = busbridge.done("peek", "edit").row
    assert (found["priority"], found["message_id"]) == (7, "m0")
    assert found["application_properties"] == {"color": "red", "n": {"long": 0}}
    assert [each["body"] for each in dead(busbridge, "edit", 1)] == ["order 1"]


def test_an_interrupt_finishes_what_is_sent_and_the_same_command_goes_on(
    busbridge: Busbridge,
) -> None:
    """What was not sent goes back uncounted; nothing is there twice."""
    count = 60
    kill_messages(busbridge, "stop", *(order(at) for at in range(count)))
    process = busbridge.start("dead-letter", "resubmit", "stop", "--rate", "5", *WAIT)
    eventually(lambda: busbridge.done("peek", "stop").rows, "the first are sent")
    process.send_signal(signal.SIGINT)
    said = busbridge.end(process)
    assert (said.code, said.row["end"]) == (4, "stopped"), said
    assert said.err.endswith("Give the same command to go on.\n")
    taken = said.row["taken"]
    assert 0 < taken == said.row["removed"] < count
    left = dead(busbridge, "stop", count - taken)
    assert {each["delivery_count"] for each in left} == {0}
    busbridge.done("dead-letter", "resubmit", "stop", *WAIT)
    found = bodies(busbridge.done("peek", "stop", "--all"))
    assert sorted(found) == sorted(f"order {at}" for at in range(count))


@pytest.mark.long
def test_killed_half_way_it_goes_on_and_nothing_is_lost_or_there_twice(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Three kills; each number is one, and the undo file has every message."""
    count = 80
    kill_messages(busbridge, "killed", *(order(at) for at in range(count)))
    path = tmp_path / "undo.jsonl"
    words = ("dead-letter", "resubmit", "killed", "--undo", str(path))

    def moved() -> int:
        return len(busbridge.done("peek", "killed", "--all").rows)

    for _ in range(3):
        process = busbridge.start(*words, "--rate", "5", "--wait", "60")
        more = moved() + 1
        eventually(lambda more=more: moved() >= more, "some are sent")
        process.kill()
        process.communicate()
    said = busbridge.done(*words, "--wait", "8")
    assert said.row["not_surely_removed"] == 0
    dead(busbridge, "killed", 0)
    found = bodies(busbridge.done("peek", "killed", "--all"))
    assert Counter(found) == Counter(f"order {at}" for at in range(count))
    _, *rest = path.read_text().splitlines()
    assert {each.number for each in entries(rest)} == set(range(1, count + 1))


def test_what_dies_again_at_once_is_sent_once(busbridge: Busbridge) -> None:
    """Sent to its own queue it expires within a second: taken again, it would be sent for ever."""
    busbridge.done("send", "again", given=lines(order(0), order(1)))
    dead(busbridge, "again", 2)
    said = busbridge.done("dead-letter", "resubmit", "again", "--limit", "5", *WAIT)
    assert (said.row["taken"], said.row["later"]) == (2, 2)
    assert "enqueued since the command began" in said.err
    numbers = [each["sequence_number"] for each in dead(busbridge, "again", 2)]
    assert numbers == [3, 4]


def test_it_ends_while_others_go_on_dying(busbridge: Busbridge, tmp_path: Path) -> None:
    """Half a second apart, for as long as it runs: less than --wait, and it is not kept by them."""
    busbridge.done("send", "dying", given=lines(order(0)))
    dead(busbridge, "dying", 1)
    path = tmp_path / "lines"
    path.write_text(lines(*(order(at) for at in range(1, 600))))
    sender = busbridge.start("send", "dying", "--lines", str(path), "--rate", "2")
    try:
        eventually(lambda: len(busbridge.done("dead-letter", "ls", "dying").rows) > 1, "they die")
        said = busbridge.done("dead-letter", "purge", "dying", "--where", "n >= 0", *WAIT, "--yes")
        assert sender.poll() is None
    finally:
        sender.kill()
        sender.communicate()
    assert said.row["end"] == "done"
    assert said.row["taken"] >= 1
    assert said.row["later"] >= 1


def test_those_of_a_subscription_go_to_its_topic_only_after_asking(busbridge: Busbridge) -> None:
    """As every subscription gets them; another queue is not asked about."""
    busbridge.done("send", "events", given=lines(order(0)))
    busbridge.done(
        *("receive", "events", "audit", "--wait", "60", "--settle", "dead-letter"),
        *("--reason", "bad"),
    )
    eventually(lambda: busbridge.done("dead-letter", "ls", "events", "audit").rows)
    words = ("dead-letter", "resubmit", "events", "audit", *WAIT)
    asked = busbridge(*words)
    assert (asked.code, "every subscription" in asked.err) == (2, True)
    busbridge.done(*words, "--yes")
    eventually(lambda: len(busbridge.done("peek", "events", "ledger").rows) == 2)
    assert len(busbridge.done("peek", "events", "audit").rows) == 1


def test_those_of_a_subscription_go_to_it_alone_if_asked(busbridge: Busbridge) -> None:
    """Whatever its rules say; the others get nothing, and no topic that is none is asked."""
    busbridge.done("send", "news", given=lines(order(0)))
    busbridge.done(
        *("receive", "news", "red", "--wait", "60", "--settle", "dead-letter", "--reason", "bad")
    )
    eventually(lambda: busbridge.done("dead-letter", "ls", "news", "red").rows)
    words = ("dead-letter", "resubmit", "news", "red", *WAIT, "--property", "color=blue")
    wrong = busbridge(*words, "--to", "news/Subscriptions/none")
    assert wrong.code == 1, wrong
    said = busbridge.done(*words, "--to", "news/Subscriptions/red")
    assert said.err == (
        "1 message of news/Subscriptions/red/$DeadLetterQueue sent to news/Subscriptions/red.\n"
    )
    eventually(lambda: busbridge.done("peek", "news", "red").rows)
    found = busbridge.done("peek", "news", "red").row
    assert found["application_properties"] == {"color": "blue", "n": {"long": 0}}
    assert [each["message_id"] for each in busbridge.done("peek", "news", "all").rows] == ["m0"]
    assert busbridge.done("dead-letter", "ls", "news", "red").rows == []


def test_a_target_that_would_drop_them_as_duplicates_is_refused(busbridge: Busbridge) -> None:
    """Unless each gets an id of its own; one that is set is for one message."""
    kill_messages(busbridge, "unique", order(0), order(1))
    words = ("dead-letter", "resubmit", "unique", *WAIT)
    said = busbridge(*words)
    assert (said.code, said.out) == (2, "")
    assert "unique detects duplicates, for PT" in said.err
    assert busbridge(*words, "--set", "message_id=other").code == 2
    busbridge.done(*words, "--limit", "1", "--new-id")
    busbridge.done(*words, "--set", "message_id=other", "--limit", "1")
    eventually(lambda: len(busbridge.done("peek", "unique").rows) == 2, "both are there")
    first, second = [each["message_id"] for each in busbridge.done("peek", "unique").rows]
    assert (len(first), second) == (32, "other")
    dead(busbridge, "unique", 0)


def test_without_the_right_manage_it_says_what_it_cannot_know(
    start_bridge: StartBridge, tmp_path: Path, make: Make
) -> None:
    """It sends all the same; for one subscription alone it needs the right."""
    rules = tmp_path / "rules.json"
    rule = {"name": "clerk", "primaryKey": "only-sends", "rights": ["Listen", "Send"]}
    rules.write_text(json.dumps({"rules": [rule]}))
    bridge = start_bridge("--auth", str(rules))
    clerk = make(
        f"Endpoint=sb://localhost:{bridge.port};SharedAccessKeyName=clerk;"
        "SharedAccessKey=only-sends;UseDevelopmentEmulator=true;"
    )
    kill_messages(clerk, "twice", order(0))
    refused = clerk("dead-letter", "resubmit", "twice", *WAIT, "--to", "events/Subscriptions/audit")
    assert refused.code == 1
    assert "Manage" in refused.err
    said = clerk.done("dead-letter", "resubmit", "twice", *WAIT)
    assert "There is no right Manage on twice" in said.err
    assert "It cannot be asked whether twice detects duplicates" in said.err
    eventually(lambda: bodies(clerk.done("peek", "twice")) == ["order 0"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--to", "q/$DeadLetterQueue"), "messages are sent to a queue, a topic"),
        (("--to", "events/Subscriptions/audit/Rules/x"), "a queue, a topic, or"),
        (("--set", "colour=red"), "'colour' is no field that can be set"),
        (("--set", "subject"), "write FIELD=VALUE"),
        (("--limit", "0"), "--limit is at least 1"),
        (("--rate", "0"), "--rate is above 0"),
        (("--rate", "nan"), "--rate is above 0"),
        (("--wait", "0"), "--wait is above 0"),
        (("--hold", "-1"), "--hold is not below 0"),
        (("--where", "color ="), "--where: The end"),
    ],
)
def test_a_wrong_option_is_said_before_anything_is_done(
    busbridge: Busbridge, words: tuple[str, ...], text: str
) -> None:
    """Exit code 2."""
    said = busbridge("dead-letter", "resubmit", "twice", *words)
    assert (said.code, said.out) == (2, "")
    assert text in said.err
