"""`busbridge migrate plan` between two bridges: what there is, what is refused, the steps."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from bridge.cli.main import main
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, receive, send
from tests.acceptance.two_bridges import MigrateCommands, config, two_bridges
from tests.fixtures.broker import Broker
from tests.fixtures.terminal import terminal
from tests.fixtures.waiting import eventually

SOURCE: dict[str, dict[str, Any]] = {
    "orders": {},
    "archive": {},
    "inbound": {"ForwardTo": "entry"},
    "entry": {"ForwardTo": "archive", "ForwardDeadLetteredMessagesTo": "archive"},
    "sessions": {
        "RequiresSession": True,
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": "PT1M",
    },
    "mail": {"MaxDeliveryCount": 3},
    "other": {},
    "onward": {"ForwardTo": "other"},
}
TARGET: dict[str, dict[str, Any]] = {
    "sessions": {"RequiresSession": False},
    "mail": {"MaxDeliveryCount": 7},
    "other": {},
}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}

ACTIVE, DEFERRED, DEAD, SCHEDULED, COPIES = 5, 2, 3, 1, 4
IN_SESSIONS = 3


@pytest.fixture(scope="module")
def bridges(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bridge, Bridge]]:
    """The bridge with the messages, and the other one."""
    folder = tmp_path_factory.mktemp("migration")
    source = config(folder, "source", SOURCE, TOPIC)
    target = config(folder, "target", TARGET)
    with two_bridges(broker, source, target) as both:
        fill(both[0])
        with client_of(both[1]) as client:
            send(client, "mail", "of the target's own")
        yield both


def fill(bridge: Bridge) -> None:
    """Bring messages into all states."""
    with client_of(bridge) as client:
        every = [ServiceBusMessage("x" * (each + 1)) for each in range(DEFERRED + DEAD + ACTIVE)]
        send(client, "orders", *every)
        with client.get_queue_receiver("orders") as receiver:
            for message in receive(receiver, DEFERRED + DEAD):
                if len(str(message)) <= DEFERRED:
                    receiver.defer_message(message)
                else:
                    receiver.dead_letter_message(message, reason="bad")
        with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            dead.defer_message(receive(dead)[0])
        due = datetime.now(UTC) + timedelta(days=1)
        with client.get_queue_sender("orders") as sender:
            sender.schedule_messages(ServiceBusMessage("later"), due)
        with client.get_topic_sender("events") as sender:
            sender.send_messages([ServiceBusMessage("copy")] * COPIES)
            sender.schedule_messages(ServiceBusMessage("later"), due)
        for number in range(IN_SESSIONS):
            send(client, "sessions", ServiceBusMessage("s", session_id=f"s{number}"))


class Plan(MigrateCommands):
    """The command, with both bridges as profiles."""

    def __call__(self, *words: str) -> Said:
        """Run it."""
        return self.said("plan", *words)

    def parts(self, *words: str) -> dict[str, list[dict[str, Any]]]:
        """Run it; return its rows by their part."""
        found: dict[str, list[dict[str, Any]]] = {}
        for row in self(*words).rows:
            found.setdefault(row.pop("part"), []).append(row)
        return found


@pytest.fixture
def plan(
    profiles: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Plan:
    """The command; the profiles `here` and `there` are the two bridges."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    return Plan(capsys)


def test_each_entity_is_counted_by_state_as_told_and_by_peek(plan: Plan) -> None:
    """What the bridge tells is what peeks show, but for deferred dead letters and bytes."""

    def row(*words: str) -> dict[str, Any]:
        return plan.parts("orders", *words)["entity"][0]

    states = {"active": ACTIVE, "deferred": DEFERRED, "dead_letter": DEAD, "scheduled": SCHEDULED}
    as_told = states | {"deferred": DEFERRED + 1, "dead_letter": DEAD - 1}
    eventually(lambda: as_told.items() <= row().items(), "the counts are told")
    told = row()
    assert (told["counted"], told["bytes_by_state"], told["largest_bytes"]) == ("as told", {}, None)

    peeked = row("--peek")
    by_peek = states | {"deferred_dead_letter": 1, "dead_letter": DEAD - 1}
    assert by_peek.items() <= peeked.items()
    sizes = peeked["bytes_by_state"]
    assert peeked["bytes"] == sum(sizes.values())
    assert peeked["counted"] == "by peek"
    assert set(sizes) == {*states, "deferred_dead_letter"}
    assert peeked["largest_bytes"] * ACTIVE >= sizes["active"] > 0


def test_what_stands_against_it_is_named_and_the_exit_code_says_so(plan: Plan) -> None:
    """A property that is fixed, and messages at the target."""
    said = plan()
    assert said.code == 3
    rows = [row for row in said.rows if row["part"] == "finding"]
    refusals = [(row["entity"], row["subject"]) for row in rows if row["level"] == "refusal"]
    assert refusals == [
        ("mail", "messages"),
        ("sessions", "RequiresDuplicateDetection"),
        ("sessions", "RequiresSession"),
    ]
    changes = [(row["entity"], row["text"]) for row in rows if row["level"] == "change"]
    assert ("mail", "7 at the target becomes 3.") in changes
    losses = {(row["entity"], row["subject"]) for row in rows if row["level"] == "loss"}
    assert {("", "access"), ("", "locks"), ("sessions", "RequiresDuplicateDetection")} == losses
    assert said.err.endswith("3 refusals, 3 losses. Nothing was changed.\n")


def test_a_part_that_the_target_takes_is_planned_with_its_steps(plan: Plan) -> None:
    """What forwards is emptied first, from the beginning of the chain."""
    words = ("orders", "archive", "inbound", "entry", "events")
    assert plan(*words).code == 0
    parts = plan.parts(*words, "--peek")
    assert [(row["entity"], row["kind"], row["at_target"]) for row in parts["entity"]] == [
        ("archive", "queue", "new"),
        ("entry", "queue", "new"),
        ("inbound", "queue", "new"),
        ("orders", "queue", "new"),
        ("events", "topic", "new"),
        ("events/Subscriptions/audit", "subscription", "new"),
    ]
    steps = [(row["what"], row["entity"]) for row in parts["step"]]
    assert steps == [
        ("stop", ""),
        ("drain", "inbound"),
        ("drain", "entry"),
        ("define", ""),
        ("copy", "events"),
        ("copy", "orders"),
        ("compare", ""),
        ("start", ""),
    ]
    by_entity = {row["entity"]: row for row in parts["entity"]}
    assert by_entity["events"]["scheduled"] == 1
    assert by_entity["events/Subscriptions/audit"]["active"] == COPIES
    total = ACTIVE + DEFERRED + DEAD + SCHEDULED + COPIES + 1
    (time,) = parts["time"]
    assert (time["messages"], time["reads"], time["credits_s"]) == (total, 3 * total, 1)


def test_a_forwarding_target_that_is_left_out_is_refused(plan: Plan) -> None:
    """Its messages would go nowhere; one that the target has is there for them."""
    assert plan("onward").code == 0
    said = plan("inbound")
    assert said.code == 3
    (refusal,) = [row for row in said.rows if row.get("level") == "refusal"]
    assert (refusal["entity"], refusal["subject"]) == ("inbound", "ForwardTo")


def test_sessions_are_counted_and_not_locked(plan: Plan, bridges: tuple[Bridge, Bridge]) -> None:
    """A receiver has one meanwhile."""
    with (
        client_of(bridges[0]) as client,
        client.get_queue_receiver("sessions", session_id="s0") as receiver,
    ):
        (row,) = plan.parts("sessions", "--peek")["entity"]
        assert (row["active"], row["sessions"]) == (IN_SESSIONS, IN_SESSIONS)
        (message,) = receive(receiver)
        assert message.delivery_count == 0
        receiver.abandon_message(message)


def test_rights_that_were_tried_are_told(plan: Plan) -> None:
    """The source's entities were peeked at."""
    assert plan.parts("orders")["right"] == [
        {"namespace": "here", "right": "Manage", "entity": "", "has": True},
        {"namespace": "there", "right": "Manage", "entity": "", "has": True},
        {"namespace": "here", "right": "Listen", "entity": "", "has": True},
    ]


def test_nothing_is_changed(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither definitions nor messages, on either side."""

    def everything() -> list[list[Any]]:
        found = []
        for name in ("here", "there"):
            capsys.readouterr()
            assert main(["ls", "-n", name]) == 0
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            found.append([{**row, "size_bytes": 0} for row in rows])
            for path in ("orders", "sessions"):
                assert main(["peek", path, "--all", "-n", name]) in (0, 1)
                found.append(capsys.readouterr().out.splitlines())
        return found

    before = everything()
    plan("--peek")
    assert everything() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing-of-that-name",), "'here' has no such entity"),
        (("--to", "here"), "are one namespace"),
        (("--to", "nowhere"), "There is no profile 'nowhere'"),
        (("--to", "Endpoint=sb://x/;SharedAccessKey=y"), "A connection string has a key"),
    ],
)
def test_what_cannot_be_planned_is_said(plan: Plan, words: tuple[str, ...], said: str) -> None:
    """Exit code 2, and nothing on standard output."""
    found = plan(*words)
    assert (found.code, found.out) == (2, "")
    assert said in found.err


def test_a_terminal_shows_tables(plan: Plan) -> None:
    """Entities, findings, steps, rights and the time."""
    line = ["-m", "bridge.cli.command", "migrate", "plan", "--from", "here", "--to", "there"]
    with terminal([sys.executable, *line, "orders", "--peek"]) as shown:
        assert shown.code() == 0
    for head in ("at target", "level", "what", "has", "measured s"):
        assert any(head in each for each in shown.lines), head
    assert "part" not in shown.text.split()
    assert "stop all that sends and receives" in shown.text
    assert "0 refusals, 2 losses. Nothing was changed." in shown.text
