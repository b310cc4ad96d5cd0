"""peek, send, receive, filter test and doctor, as somebody types them, against a real bridge."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import zipfile
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import pytest
from azure.servicebus import ServiceBusMessage

from tests.acceptance.busbridge import Busbridge, Make, Said
from tests.acceptance.connecting import without_flag
from tests.acceptance.sdk import client_of, send, take, unique
from tests.fixtures.bridge import Bridge, StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.held_wire import HeldWire, Way
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT60S"}
ENTITIES = {
    **dict.fromkeys(
        (
            "look",
            "types",
            "uncounted",
            "settle",
            "interrupted",
            "stream",
            "refused",
            "later",
            "rate",
            "sdk",
            "gone",
            "broken",
            "deferred",
            "enough",
            "enough-deleted",
        ),
        LOCK,
    ),
    "sessions": {"RequiresSession": True},
}
RULES = [
    {
        "Name": "red",
        "Properties": {
            "FilterType": "Sql",
            "SqlFilter": {"SqlExpression": "color = 'red' AND weight > 5"},
            "Action": {"SqlExpression": "SET weight = weight + 1"},
        },
    },
    {
        "Name": "order",
        "Properties": {"FilterType": "Correlation", "CorrelationFilter": {"Label": "order"}},
    },
]
TOPICS = [{"Name": "events", "Subscriptions": [{"Name": "audit", "Rules": RULES}]}]


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


def test_what_is_sent_is_peeked_by_what_it_says(busbridge: Busbridge) -> None:
    """By state, number, session, and a condition on properties and body; nothing is taken away."""
    orders = [
        {
            "body": {"json": {"total": at, "buyer": {"name": f"b{at}"}}},
            "message_id": f"m{at}",
            "application_properties": {"color": "red" if at % 2 else "blue"},
        }
        for at in range(6)
    ]
    said = busbridge.done("send", "look", given=lines(*orders))
    assert (said.out, said.err) == ("", "Sent 6 messages to look.\n")

    def ids(*words: str) -> list[str]:
        return [each["message_id"] for each in busbridge.done("peek", "look", *words).rows]

    everything = [f"m{at}" for at in range(6)]
    eventually(lambda: ids() == everything, "all are there")
    assert ids("--where", "color = 'red' AND body('$.total') > 2") == ["m3", "m5"]
    assert ids("--where", "body('$.buyer.name') = 'b4' OR sys.SequenceNumber = 1") == ["m0", "m4"]
    assert ids("--from", "3", "--count", "2") == ["m2", "m3"]
    assert ids("--state", "active", "--all") == everything
    assert ids("--state", "scheduled") == ids("--state", "deferred") == []
    assert ids("--dead-letter") == []

    short = busbridge.done("peek", "look", "--count", "2")
    assert short.err == "There may be more: go on with --from 3, or give --all.\n"
    assert all(each["delivery_count"] == 0 for each in busbridge.done("peek", "look").rows)


def test_a_condition_that_a_message_cannot_be_held_against_is_said(busbridge: Busbridge) -> None:
    """Which message, and why; the others are shown, and the exit code is 3."""
    messages = ({"body": "no JSON"}, {"body": '{"a": 1}'})
    busbridge.done("send", "gone", given=lines(*messages))
    eventually(lambda: len(busbridge.done("peek", "gone").rows) == 2)
    said = busbridge("peek", "gone", "--where", "body('$.a') = 1")
    assert (said.code, bodies(said)) == (3, ['{"a": 1}'])
    assert "--where cannot be held against message 1: The body is no JSON" in said.err
    wrong = busbridge("peek", "gone", "--where", "body('$.a') = ")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--where: The end at character 15: a value or a condition is expected." in wrong.err


def test_every_type_comes_back_as_it_was_sent(busbridge: Busbridge) -> None:
    """Through the bridge and RabbitMQ, line for line: so a dead letter can be sent anew."""
    sent = {
        "message_id": {"uuid": "00000000-0000-0000-0000-000000000005"},
        "session_id": "s",
        "subject": "ä☃",
        "content_type": "application/json",
        "time_to_live": "PT1H",
        "application_properties": {
            "text": "t",
            "int": 5,
            "long": {"long": 5},
            "large": {"long": str(2**60)},
            "ulong": {"ulong": 7},
            "byte": {"byte": -1},
            "double": 0.1,
            "whole": {"double": 5.0},
            "float": {"float": 1.5},
            "yes": True,
            "nothing": None,
            "time": {"timestamp": "2026-11-27T09:00:00.123Z"},
            "id": {"uuid": "12345678-1234-1234-1234-123456789abc"},
            "symbol": {"symbol": "s"},
            "binary": {"binary": "/w=="},
            "decimal": {"decimal": "12.50"},
            "char": {"char": "x"},
        },
        "body": {"value": {"map": {"a": [1, {"long": 2}, None]}}},
        "annotations": {"tenant": "a"},
    }
    busbridge.done("send", "types", given=lines(sent))
    eventually(lambda: busbridge.done("peek", "types").rows, "it is there")
    (found,) = busbridge.done("peek", "types").rows
    assert {name: found.get(name) for name in sent} == sent
    again = busbridge.done("send", "types", given=busbridge.done("peek", "types").out)
    assert again.err == "Sent 1 message to types.\n"
    eventually(lambda: len(busbridge.done("peek", "types").rows) == 2, "both are there")
    second = busbridge.done("peek", "types").rows[1]
    assert {name: second.get(name) for name in sent} == sent
    assert second["sequence_number"] == found["sequence_number"] + 1


def test_what_is_received_and_not_settled_goes_back_uncounted(busbridge: Busbridge) -> None:
    """As often as somebody looks; then it is received and removed, and counted once."""
    busbridge.done("send", "uncounted", given=lines({"body": "a"}, {"body": "b"}))
    for _ in range(3):
        said = busbridge.done("receive", "uncounted", "--all", "--wait", "3")
        assert sorted(bodies(said)) == ["a", "b"]
        assert [each["delivery_count"] for each in said.rows] == [0, 0]
        assert said.err == "2 given back uncounted.\n"
    said = busbridge.done(
        *("receive", "uncounted", "--all", "--wait", "3", "--settle", "complete", "--yes")
    )
    assert sorted(bodies(said)) == ["a", "b"]
    assert said.err == "2 completed.\n"
    empty = busbridge.done("receive", "uncounted", "--wait", "1")
    assert (empty.out, empty.err) == ("", "No message came within 1 s.\n")


def test_each_way_to_settle_does_what_it_says(busbridge: Busbridge) -> None:
    """Abandoned is counted, deferred is had by its number, dead-lettered has its reason."""
    wait = ("--wait", "30")
    busbridge.done("send", "settle", "a")
    said = busbridge.done(
        *("receive", "settle", "--settle", "abandon", "--property", "tried=1", *wait)
    )
    assert said.err == "1 abandoned.\n"
    said = busbridge.done("receive", "settle", "--settle", "defer", *wait)
    (found,) = said.rows
    assert (found["delivery_count"], said.err) == (1, "1 deferred.\n")
    assert found["application_properties"] == {"tried": 1}
    number = str(found["sequence_number"])
    (shown,) = busbridge.done("peek", "settle", "--state", "deferred").rows
    assert str(shown["sequence_number"]) == number
    refused = busbridge("receive", "settle", "--number", number)
    assert refused.code == 2
    assert "cannot be given back uncounted" in refused.err
    said = busbridge.done(
        *("receive", "settle", "--number", number, "--settle", "dead-letter"),
        *("--reason", "unreadable", "--description", "why"),
    )
    assert (bodies(said), said.err) == (["a"], "1 dead-lettered.\n")
    (dead,) = busbridge.done("receive", "settle", "-d", "--delete", "--yes", *wait).rows
    assert dead["application_properties"] == {
        "tried": 1,
        "DeadLetterReason": "unreadable",
        "DeadLetterErrorDescription": "why",
    }
    assert busbridge.done("receive", "settle", "-d", "--wait", "1").rows == []


def test_deferred_messages_that_are_settled_before_a_failure_are_accounted_for(
    busbridge: Busbridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is not there ends the command half-way: exit code 4, and where to go on."""
    monkeypatch.setattr("bridge.commands.receive.ROUND", 1)
    busbridge.done("send", "deferred", "a")
    (found,) = busbridge.done("receive", "deferred", "--settle", "defer", "--wait", "30").rows
    number = str(found["sequence_number"])
    settle = ("--settle", "complete", "--yes")
    said = busbridge("receive", "deferred", "--number", number, "--number", "99", *settle)
    assert (said.code, bodies(said)) == (4, ["a"]), said
    assert said.err.endswith("Stopped: 1 completed. Go on with --number 99, and those behind it.\n")
    said = busbridge("receive", "deferred", "--number", "99", *settle)
    assert (said.code, said.out) == (1, "")


def test_nothing_is_removed_without_a_yes(busbridge: Busbridge) -> None:
    """There is no terminal to ask at: exit code 2, and nothing was received."""
    for how in (("--settle", "complete"), ("--delete",)):
        said = busbridge("receive", "settle", *how)
        assert (said.code, said.out) == (2, "")
        assert "give --yes" in said.err


@pytest.mark.parametrize("count", [350, 700])
def test_who_interrupts_a_login_reads_one_sentence(bridge: Bridge, make: Make, count: int) -> None:
    """No traceback of the login that nobody waits for any more."""
    wire = HeldWire(bridge.port)
    try:
        place = bridge.connection_string.replace(f":{bridge.port}", f":{wire.port}")
        busbridge = make(place)
        wire.hold_after(count, Way.BACK)
        process = busbridge.start("peek", "look")
        eventually(lambda: wire.is_held, "the bridge's answers do not come")
        process.send_signal(signal.SIGINT)
        said = busbridge.end(process)
    finally:
        wire.close()
    assert (said.code, said.err.count("\n")) == (4, 1), said


def test_an_interrupt_finishes_what_is_confirmed_and_gives_back_the_rest(
    busbridge: Busbridge, bridge: Bridge
) -> None:
    """The messages that it wrote and those that are left add up; what is left is uncounted."""
    count, text = 400, "x" * 2_000
    busbridge.done(
        "send", "interrupted", given=lines(*({"body": f"{at} {text}"} for at in range(count)))
    )
    words = ("receive", "interrupted", "--all", "--settle", "complete", "--yes", "--wait", "60")
    process = busbridge.start(*words)
    assert process.stdout is not None
    first = process.stdout.readline()
    # It cannot write on before somebody reads: a pipe holds 64 KiB, a round is longer.
    process.send_signal(signal.SIGINT)
    said = busbridge.end(process)
    written = [json.loads(line)["body"] for line in (first.decode() + said.out).splitlines()]
    assert said.code == 4
    assert f"{len(written)} completed" in said.err
    assert "Give the same command to go on." in said.err
    assert 0 < len(written) < count
    rest = busbridge.done(
        *("receive", "interrupted", "--all", "--wait", "5", "--settle", "complete", "--yes")
    )
    assert sorted(written + bodies(rest)) == sorted(f"{at} {text}" for at in range(count))
    assert {each["delivery_count"] for each in rest.rows} == {0}


def test_lines_are_sent_as_they_come_and_an_interrupt_says_where_to_go_on(
    busbridge: Busbridge,
) -> None:
    """The output of a program that still runs is sent line by line."""
    process = busbridge.start("send", "stream", "--lines", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(lines({"body": "a"}, {"body": "b"}).encode())
    process.stdin.flush()
    eventually(lambda: len(busbridge.done("peek", "stream").rows) == 2, "both are sent")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 4
    said = busbridge.end(process)
    assert said.err.splitlines()[-1] == "Stopped. Sent 2 messages to stream; go on with --skip 2."
    more = lines({"body": "a"}, {"body": "b"}, {"body": "c"})
    assert busbridge.done("send", "stream", "--skip", "2", given=more).code == 0
    eventually(lambda: bodies(busbridge.done("peek", "stream")) == ["a", "b", "c"])


def test_a_message_that_is_refused_is_named_and_the_others_are_sent(
    busbridge: Busbridge, tmp_path: Path
) -> None:
    """Exit code 3; a batch is refused whole, so each of it is sent alone to find out."""
    file = tmp_path / "lines.jsonl"
    file.write_text(
        lines(
            {"body": "a", "session_id": "s"},
            {"body": "b", "session_id": "s"},
            {"body": "c"},
            {"body": "d", "session_id": "t"},
        )
    )
    said = busbridge("send", "sessions", "--lines", str(file))
    assert said.code == 3, said
    assert f"refused: {file}:3: " in said.err
    assert said.err.endswith("Sent 3 messages to sessions.\n")
    got = busbridge.done(
        *("receive", "sessions", "--session", "s", "--all", "--wait", "5"),
        *("--settle", "complete", "--yes"),
    )
    assert bodies(got) == ["a", "b"]
    following = busbridge.done(
        *("receive", "sessions", "--next-session", "--all", "--wait", "5"),
        *("--settle", "complete", "--yes"),
    )
    assert [(each["session_id"], each["body"]) for each in following.rows] == [("t", "d")]
    none = busbridge.done("receive", "sessions", "--next-session", "--wait", "1")
    assert none.err == "No session with messages came within 1 s.\n"


def test_a_file_with_a_wrong_line_sends_nothing(busbridge: Busbridge, tmp_path: Path) -> None:
    """Exit code 2: nothing was done. From a pipe, what came before it is sent: exit code 4."""
    wrong = lines({"body": "a"}) + '{"body": 5}\n'
    file = tmp_path / "lines.jsonl"
    file.write_text(wrong)
    said = busbridge("send", "refused", "--lines", str(file))
    assert said.code == 2
    assert f"{file}:2: body: 5 is no body" in said.err
    assert busbridge.done("peek", "refused").rows == []
    said = busbridge("send", "refused", given=wrong)
    assert said.code == 4
    assert said.err.endswith("Sent 1 message to refused; go on with --skip 1.\n")
    eventually(lambda: bodies(busbridge.done("peek", "refused")) == ["a"])


def test_a_scheduled_message_has_a_number_and_waits(busbridge: Busbridge) -> None:
    """The number is printed, for a cancel; a peek shows the state."""
    said = busbridge.done("send", "later", "a", "--repeat", "2", "--schedule", "PT1H")
    numbers = [each["sequence_number"] for each in said.rows]
    assert len(numbers) == 2
    shown = busbridge.done("peek", "later", "--state", "scheduled").rows
    assert [each["sequence_number"] for each in shown] == numbers
    times = [each["scheduled_enqueue_time"] for each in said.rows]
    assert [each["scheduled_enqueue_time"] for each in shown] == times
    assert busbridge.done("receive", "later", "--wait", "1").rows == []


def test_a_rate_is_kept(busbridge: Busbridge) -> None:
    """30 messages at 20 a second take more than a second, as their times say."""
    busbridge.done("send", "rate", "a", "--repeat", "30", "--rate", "20")
    eventually(lambda: len(busbridge.done("peek", "rate", "--all").rows) == 30)
    first, *_, last = busbridge.done("peek", "rate", "--all").rows
    times = [datetime.fromisoformat(each["enqueued_time"]) for each in (first, last)]
    assert (times[1] - times[0]).total_seconds() > 1.0


def test_an_sdk_and_the_commands_understand_one_another(
    busbridge: Busbridge, bridge: Bridge
) -> None:
    """The commands receive what the SDK has sent, and the SDK what the commands have sent."""
    busbridge.done("send", "sdk", "hello", "--property", 'n={"int": 5}', "--message-id", "m")
    with client_of(bridge) as client:
        with client.get_queue_receiver("sdk") as receiver:
            (found,) = take(receiver)
        assert (str(found), found.message_id) == ("hello", "m")
        assert found.application_properties == {b"n": 5}
        send(client, "sdk", ServiceBusMessage("back", application_properties={"n": 5}))
    (got,) = busbridge.done("receive", "sdk", "--wait", "60", "--settle", "complete", "--yes").rows
    assert (got["body"], got["application_properties"]) == ("back", {"n": 5})


def test_the_rules_of_a_subscription_are_tried(busbridge: Busbridge) -> None:
    """With the reason why one does not take the message, and what an action would change."""
    said = busbridge("filter", "test", "events", "audit", "--property", "color=blue")
    assert said.code == 3
    assert {each["rule"]: each["why"] for each in said.rows} == {
        "red": ["color = 'red': color is 'blue'", "weight > 5: the message has no weight"],
        "order": ["sys.Label = 'order': the message has no sys.Label"],
    }
    message = lines(
        {"subject": "order", "application_properties": {"color": "red", "weight": 6}, "body": "a"}
    )
    said = busbridge.done("filter", "test", "events/Subscriptions/audit", given=message)
    assert {each["rule"]: each["takes"] for each in said.rows} == {"red": True, "order": True}
    (red,) = (each for each in said.rows if each["rule"] == "red")
    assert red["changes"] == ["SET weight = 7"]
    busbridge.done("send", "events", given=message)
    copies = busbridge.done(
        *("receive", "events", "audit", "--all", "--wait", "10", "--settle", "complete", "--yes")
    )
    assert len(copies.rows) == 2
    assert {each["application_properties"].get("weight") for each in copies.rows} == {6, 7}


def test_what_is_not_there_and_what_is_not_allowed_is_said(
    busbridge: Busbridge, bridge: Bridge, make: Make
) -> None:
    """Exit code 1; a wrong key is told as one, and no right would help it."""
    said = busbridge("peek", unique("none"))
    assert said.code == 1, said
    wrong = make(bridge.connection_string.replace("SAS_KEY_VALUE", "wrongkey"))
    said = wrong("send", "look", "a")
    assert said.code == 1
    assert "The key, or the name of its rule, is wrong: look at the connection string." in said.err


def test_the_doctor_finds_a_bridge_well(
    busbridge: Busbridge,
    bridge: Bridge,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ports, clock and rights; a bundle has the entities and no key."""
    bundle = tmp_path / "bundle.zip"
    monkeypatch.setenv("BUSBRIDGE_RABBITMQ_URL", bridge.amqp_url)
    monkeypatch.setenv("BUSBRIDGE_MANAGEMENT_URL", broker.management_url)
    said = busbridge.done(
        *("doctor", "--entity", "look", "--bundle", str(bundle), "--admin-url", bridge.admin_url)
    )
    results = {each["check"]: each["result"] for each in said.rows}
    for right in ("right Manage", "right Send on look", "right Listen on look"):
        assert results[right] == "ok", said
    assert results["clock"] == results["bridge"] == results["RabbitMQ login"] == "ok"
    assert "failed" not in results.values()
    with zipfile.ZipFile(bundle) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert bundle.stat().st_mode & 0o077 == 0
    assert "SAS_KEY_VALUE" not in "".join(parts.values())
    entities = json.loads(parts["entities.json"])["entities"]
    assert {"look", "events", "events/Subscriptions/audit"} <= {each["path"] for each in entities}


def test_the_doctor_says_what_is_wrong(make: Make) -> None:
    """A namespace that nobody serves; exit code 3."""
    nobody = make(
        "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;"
        "UseDevelopmentEmulator=true;"
    )
    said = nobody("doctor")
    assert said.code == 3
    assert {each["result"] for each in said.rows if each["check"] == "port 1"} == {"failed"}


@pytest.mark.long
def test_a_probe_answers_and_leaves_nothing_behind(busbridge: Busbridge, tmp_path: Path) -> None:
    """Each question has an answer of a bridge; both queues are gone, and no other is touched."""
    file = tmp_path / "answers.json"
    refused = busbridge("doctor", "--probe", str(file))
    assert refused.code == 2
    assert not file.exists()

    def paths() -> list[str]:
        return [each["path"] for each in busbridge.done("ls").rows]

    before = paths()
    said = busbridge.done("doctor", "--probe", str(file), "--yes")
    assert paths() == before
    answers = {each["id"]: each["answer"] for each in json.loads(file.read_text())["answers"]}
    assert all("failed" not in each for each in said.rows), said
    assert answers["released_count"] == 0
    assert answers["abandoned_count"] == answers["lock_end_count"] == 1
    assert answers["peek_locked"] is True
    assert answers["deferred"]["state"] == "deferred"
    assert answers["activated"]["keeps_number"] is False
    assert answers["peek_across_sessions"]["is_ordered"] is True
    assert answers["send_disabled"]["condition"] == "com.microsoft:entity-disabled"


@pytest.mark.long
def test_a_bridge_that_is_killed_while_messages_are_sent_leaves_none_in_the_dark(
    make: Make, start_bridge: StartBridge, tmp_path: Path
) -> None:
    """What is told as sent is there, once; what may be there is told with its number."""
    mine = start_bridge()
    busbridge = make(mine.connection_string)
    file = tmp_path / "lines.jsonl"
    count = 2_000
    file.write_text(lines(*({"body": str(at)} for at in range(count))))
    process = busbridge.start("send", "look", "--lines", str(file), "--rate", "200")
    eventually(lambda: len(busbridge("peek", "look", "--all").rows) > 50, "some are sent")
    mine.kill()
    said = busbridge.end(process)
    assert said.code == 4, said
    sent = int(re.search(r"Sent ([0-9,]+) messages?", said.err)[1].replace(",", ""))
    skips = [int(each) for each in re.findall(r"--skip ([0-9]+)", said.err)]
    assert skips[0] == sent
    mine.start()
    there = bodies(busbridge.done("peek", "look", "--all"))
    assert there == [str(at) for at in range(len(there))]
    assert skips[0] <= len(there) <= skips[-1]
    busbridge.done("send", "look", "--lines", str(file), "--skip", str(len(there)))
    eventually(lambda: len(busbridge.done("peek", "look", "--all").rows) == count, "all are there")
    assert bodies(busbridge.done("peek", "look", "--all")) == [str(at) for at in range(count)]


def test_what_a_reader_does_not_take_is_not_settled(busbridge: Busbridge) -> None:
    """`| head -1` ends the command, which says so; what it did not write comes again, uncounted."""
    count, text = 150, "x" * 2_000
    messages = ({"body": f"{at} {text}"} for at in range(count))
    busbridge.done("send", "broken", given=lines(*messages))
    words = ("receive", "broken", "--all", "--settle", "complete", "--yes", "--wait", "30")
    process = busbridge.start(*words)
    said = read_no_more(process)
    assert said.code == 4
    assert said.err == (
        "Who read the output has gone.\n"
        "Stopped: none settled; 100 given back uncounted. Give the same command to go on.\n"
    )
    rest = busbridge.done(
        *("receive", "broken", "--all", "--wait", "5", "--settle", "complete", "--yes")
    )
    assert len(rest.rows) == count
    assert {each["delivery_count"] for each in rest.rows} == {0}


def test_a_look_that_has_seen_enough_ends_without_a_word(busbridge: Busbridge) -> None:
    """With the code of the shell's own tools; as `| head -1` does it."""
    busbridge.done("send", "enough", given=lines(*({"body": "x" * 2_000} for _ in range(150))))
    said = read_no_more(busbridge.start("peek", "enough", "--all"))
    assert (said.code, said.err) == (141, "")


def test_what_was_deleted_for_a_reader_who_has_gone_is_counted(busbridge: Busbridge) -> None:
    """It is not there, and was not shown; the command says how many."""
    count = 150
    busbridge.done("send", "enough-deleted", given=lines(*({"body": "x" * 2_000},) * count))
    words = ("receive", "enough-deleted", "--all", "--delete", "--yes", "--wait", "30")
    said = read_no_more(busbridge.start(*words))
    assert said.code == 4
    found = re.search(r"([0-9]+) received and deleted; ([0-9]+) deleted, and not shown\.", said.err)
    assert found is not None, said.err
    left = busbridge.done("peek", "enough-deleted", "--all").rows
    assert len(left) == count - int(found[1]) - int(found[2])


def test_scheduled_messages_whose_numbers_nobody_reads_are_counted(busbridge: Busbridge) -> None:
    """They are scheduled; the command says where to go on."""
    process = busbridge.start(*("send", "later", "--schedule", "PT1H"), stdin=subprocess.PIPE)
    assert process.stdin is not None
    said = read_no_more(process, process.stdin, lines({"body": "m"}))
    assert said.code == 4
    assert (
        "Who read the numbers has gone. Sent 1 message to later; go on with --skip 1." in said.err
    )
    states = [each["state"] for each in busbridge.done("peek", "later", "--all").rows]
    assert "scheduled" in states


def read_no_more(
    process: subprocess.Popen[bytes], stdin: IO[bytes] | None = None, given: str = ""
) -> Said:
    """Read one line of a command's output and close the pipe, as `head -1`; wait for its end.

    Args:
        stdin: what the command waits for comes when the pipe is closed.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline().decode() if stdin is None else ""
    process.stdout.close()
    if stdin is not None:
        stdin.write(given.encode())
        stdin.close()
    with process.stderr:
        code = process.wait(120)
        said = Said(code, line, process.stderr.read().decode())
    assert "Traceback" not in said.err
    return said


def test_the_doctor_reads_the_certificate(bridge: Bridge, make: Make) -> None:
    """It says until when the certificate is valid, and names an untrusted one and the option."""
    busbridge = make(without_flag(bridge))
    untrusted = busbridge("doctor")
    assert untrusted.code == 3
    (found,) = (each for each in untrusted.rows if each["check"] == "certificate")
    assert found["result"] == "failed"
    assert "see --ca-file" in found["text"]
    for more in ((), ("--websocket",)):
        busbridge.options = ("--ca-file", str(bridge.ca), *more)
        said = busbridge.done("doctor", "--entity", "look")
        (found,) = (each for each in said.rows if each["check"] == "certificate")
        assert found["result"] == "ok"
        assert found["text"].startswith("trusted, valid until 2")
