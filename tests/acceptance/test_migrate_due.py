"""A scheduled message that is due between a kill of `migrate run` and the next one is handled once.

Behind the mark that all is verified the target has it already, and the source activates it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.cli.main import main
from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, send, take, texts
from tests.acceptance.test_migrate_run import Run, begun, killed, snapshot, there
from tests.fixtures.held_wire import HeldWire, Way
from tests.fixtures.waiting import eventually

QUEUES: dict[str, dict[str, Any]] = {"payments": {}, "forwarding": {}, "sent": {}}
TOPIC = {
    "Name": "events",
    "Subscriptions": [
        {"Name": "audit"},
        {"Name": "sends-on", "Properties": {"ForwardTo": "sent"}},
    ],
}
SUBSCRIPTIONS = ("audit", "sends-on")
LATER = datetime.now(UTC) + timedelta(days=1)
DUE_S = 150
"""What is due within 60 s is not copied at all."""

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.fixture
def wire(bridges: tuple[Bridge, Bridge]) -> Iterator[HeldWire]:
    """The way to the source."""
    made = HeldWire(bridges[0].port)
    yield made
    made.close()


@pytest.fixture
def run(
    profiles: None,
    bridges: tuple[Bridge, Bridge],
    wire: HeldWire,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command, which reaches the source by the wire."""
    text = bridges[0].connection_string.replace(f":{bridges[0].port}", f":{wire.port}")
    monkeypatch.setenv("HERE", text)
    return Run(capsys)


def test_what_was_due_at_the_source_meanwhile_is_named_before_the_target_gives_it_out(
    bridges: tuple[Bridge, Bridge], run: Run, wire: HeldWire
) -> None:
    """Removed at the source, it is received once; a topic's is found where it was sent on."""
    source, target = bridges
    due = datetime.now(UTC) + timedelta(seconds=DUE_S)
    with client_of(source) as client:
        send(client, "payments", "now")
        with client.get_queue_sender("payments") as sender:
            sender.schedule_messages(ServiceBusMessage("pay", message_id="p1"), due)
            sender.schedule_messages(ServiceBusMessage("then", message_id="p2"), LATER)
        with client.get_topic_sender("events") as sender:
            sender.schedule_messages(ServiceBusMessage("event", message_id="e1"), due)
    eventually(lambda: len(snapshot(source, "payments")["payments"]) == 3, "all is at the source")
    words = ("payments", "events", "sent")
    wire.hold_at(b"cancel-scheduled-message", Way.THERE)
    process = begun(*words)
    eventually(lambda: wire.is_held or process.poll() is not None, "it cancels")
    assert wire.is_held
    killed(process)
    wire.cut()
    said = run.said("plan", *words)
    assert said.code == 0, said.rows
    holds = {each["entity"]: each["text"] for each in said.rows if each.get("subject") == "hold"}
    assert set(holds) == {*words, *(f"events/Subscriptions/{name}" for name in SUBSCRIPTIONS)}
    assert "`busbridge migrate run --from here --to there` holds the target's" in holds["sent"]
    assert "It has verified all: do not give up" in holds["sent"]

    def was_due() -> bool:
        found = snapshot(source, "payments", "sent", "events/Subscriptions/audit")
        states = [each.message.state for each in found["payments"].values()]
        others = found["sent"] and found["events/Subscriptions/audit"]
        return states.count("active") == 2 and bool(others)

    eventually(was_due, "the source has activated it", within_s=DUE_S + 120)
    said = run("--yes", *words)
    assert said.code == 1, said.err
    assert "payments: message 4 has come to the source" in said.err
    assert "has the same one as 2 of payments, scheduled" in said.err
    assert "sent: message 1 has come to the source" in said.err
    assert "The target stays held" in said.err
    with client_of(target) as client, pytest.raises(Exception, match="held"):
        client.get_queue_receiver("payments").receive_messages(max_wait_time=1)

    said = run("--yes", *words)
    assert said.code == 1, said.err
    for path in ("payments", "sent", "events/Subscriptions/audit"):
        numbered = "sys.SequenceNumber = 4" if path == "payments" else "sys.SequenceNumber >= 1"
        assert main(["purge", path, "-n", "here", "--where", numbered, "--yes"]) == 0
    said = run("--yes", *words)
    assert said.code == 0, said.err
    with client_of(target) as client:
        with client.get_queue_receiver("payments") as receiver:
            assert texts(take(receiver, 2)) == ["now", "pay"]
        with client.get_queue_receiver("sent") as receiver:
            assert texts(take(receiver, 1)) == ["event"]
    left = snapshot(source, "payments", "sent")
    assert [each.message.data for each in left["payments"].values()] == [b"now"]
    assert not left["sent"]
    assert [each.due_ms is not None for each in there(target, "payments").values()] == [True]
