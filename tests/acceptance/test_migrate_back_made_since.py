"""What was made at a migration's target behind the run: named, and brought to a place for it."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.cli.main import main
from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, receive, send, take, texts
from tests.acceptance.test_migrate_back import Migrate, bodies, shows
from tests.acceptance.test_migrate_run import snapshot
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT5S"}
QUEUES: dict[str, dict[str, Any]] = {"orders": LOCK}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit", "Properties": LOCK}]}
EXTRA = "events/Subscriptions/extra"
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def migrate(profiles: None, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """The commands; the profiles `here` and `there` are the two bridges."""
    return Migrate(capsys)


def made(*words: str, at: str) -> None:
    """Make an entity."""
    assert main(["create", *words, "-n", at]) == 0


def fill(target: Bridge) -> None:
    """Have the target take messages in what was made there: 2 events, 3 refunds and 2 tabs."""
    with client_of(target) as client:
        with client.get_topic_sender("events") as sender:
            sender.send_messages([ServiceBusMessage("event 1"), ServiceBusMessage("event 2")])
        send(client, "refunds", "refund 1", "refund 2", "refund 3")
        with client.get_queue_receiver("refunds") as receiver:
            first, second, third = receive(receiver, 3)
            receiver.defer_message(first)
            receiver.dead_letter_message(second, reason="bad")
            receiver.abandon_message(third)
        for name in ("red", "blue"):
            send(client, "tabs", ServiceBusMessage(f"tab {name}", session_id=name))
        with client.get_queue_receiver("tabs", session_id="red") as receiver:
            receiver.session.set_state(b"open")
    eventually(shows(target, EXTRA, 2), "the events are there")
    eventually(shows(target, "refunds/$DeadLetterQueue", 1), "the refunds are there")


def test_what_was_made_at_the_target_comes_back_when_the_source_has_a_place_for_it(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """A subscription, queues and a rule are named with what to do; given a place all comes once."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "orders", "order")
    eventually(shows(source, "orders", 1), "it is there")
    assert migrate("run", "*").code == 0
    short = ("--lock-duration", "PT5S")
    made("subscription", "events", "extra", *short, at="there")
    made("queue", "refunds", *short, at="there")
    made("queue", "tabs", "--requires-session", *short, at="there")
    made("rule", "events", "audit", "vip", "--filter", "colour = 'red'", at="there")
    fill(target)

    said = migrate("back", "refunds")
    assert (said.code, "refunds: the target alone has it: 3 messages" in said.err) == (1, True)
    said = migrate("back", "absent")
    assert (said.code, "has such an entity" in said.err) == (2, True)
    said = migrate("back", "*", "--return")
    assert (said.code, "Nothing was changed" in said.err) == (1, True), said.err
    left = {row["entity"]: row for row in said.rows if row["part"] == "left"}
    counts = {path: left[path]["count"] for path in (EXTRA, "refunds", "tabs")}
    assert counts == {EXTRA: 2, "refunds": 3, "tabs": 2}
    (rule,) = (row for row in said.rows if row["part"] == "definition")
    assert rule["text"].startswith("rule 'vip' is at the target alone")
    assert f"{rule['entity']}: {rule['text']}" in said.err
    for path, row in left.items():
        assert f"{path}: {row['text']}: {row['do']}." in said.err
        command = shlex.split(row["do"].split("`")[1])[1:]
        assert main(command + (["--requires-session"] if path == "tabs" else [])) == 0

    said = migrate("back", "*")
    assert said.code == 3, said.err
    assert "refunds: it was made when a run had ended: 3 messages stay at the target" in said.err
    said = migrate("back", "*", "--return")
    assert said.code == 3, said.err
    assert [row for row in said.rows if row["part"] in ("left", "refused")] == []
    eventually(shows(source, "refunds", 2), "all is shown")
    after = snapshot(source, "orders", EXTRA, "refunds", "refunds/$DeadLetterQueue", "tabs")
    assert {path: bodies(after, path) for path in after} == {
        "orders": {"order": "active"},
        EXTRA: {"event 1": "active", "event 2": "active"},
        "refunds": {"refund 1": "deferred", "refund 3": "active"},
        "refunds/$DeadLetterQueue": {"refund 2": "active"},
        "tabs": {"tab red": "active", "tab blue": "active"},
    }
    with client_of(source) as client:
        with client.get_queue_receiver("tabs", session_id="red") as receiver:
            assert bytes(receiver.session.get_state()) == b"open"
        with client.get_queue_receiver("refunds") as receiver:
            assert texts(take(receiver, 1)) == ["refund 3"]
    for path in ("refunds", "tabs"):
        with client_of(target) as client, pytest.raises(Exception, match="disabled"):
            send(client, path, ServiceBusMessage("not there", session_id="red"))

    said = migrate("back", "*", "--return")
    assert "refunds is disabled at the target: it has come back before" in said.err
    assert bodies(snapshot(source, "refunds"), "refunds") == {"refund 1": "deferred"}

    said = migrate.said("verify", "orders", "tabs", "--session-states")
    assert said.code == 3
    hidden = [row for row in said.rows if row["part"] == "not_compared"]
    assert [row["entity"] for row in hidden] == ["orders", "tabs"]
    assert all(f"{row['entity']}: {row['text']}." in said.err for row in hidden)
    assert all("it has come back to here (`busbridge migrate back`)" in str(row) for row in hidden)


def test_verify_says_which_entity_does_not_show_its_messages_and_compares_the_others(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """One that is disabled for another reason: with what helps."""
    for side in ("here", "there"):
        for queue in ("closed", "open"):
            made("queue", queue, at=side)
    assert main(["update", "queue", "closed", "--status", "Disabled", "-n", "there"]) == 0
    said = migrate.said("verify", "closed", "open")
    assert (said.code, "1 difference" in said.err) == (3, True), said.err
    assert "closed: its messages do not show: " in said.err
    assert "`busbridge update ... --status Active`" in said.err
    assert [row["entity"] for row in said.rows if row["part"] == "entity"] == ["open", "open"]
