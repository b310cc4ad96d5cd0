"""What a migration leaves alone at its source: closed entities, by name, and its own queues."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from bridge.cli.main import main
from bridge.commands.target import target_named
from bridge.testing.process import Bridge
from tests.acceptance.sdk import client_of, send
from tests.acceptance.test_migrate_run import Run, marks, snapshot, there
from tests.fixtures.waiting import eventually

OWN = "busbridge-migrated-0123456789ab"
QUEUES: dict[str, dict[str, Any]] = {"shut": {}, "later": {}, "beside-1": {}, OWN: {}}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}
DUE = datetime.now(UTC) + timedelta(days=1)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def run(profiles: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command; the profiles `here` and `there` are the two bridges."""
    return Run(capsys)


def set_status(queue: str, status: str) -> None:
    """Set a queue's status at the source."""
    assert main(["update", "queue", queue, "--status", status, "-n", "here"]) == 0


def filled(bridge: Bridge, queue: str, *, is_scheduled: bool = False) -> None:
    """Bring a message, or one that is scheduled, too."""
    with client_of(bridge) as client:
        send(client, queue, "1")
        if is_scheduled:
            with client.get_queue_sender(queue) as sender:
                sender.schedule_messages(ServiceBusMessage("2"), DUE)
    eventually(lambda: len(snapshot(bridge, queue)[queue]) == 1 + is_scheduled, "it is there")


@pytest.mark.parametrize(
    ("queue", "status", "text"),
    [
        ("shut", "Disabled", "its messages cannot be looked at"),
        ("later", "SendDisabled", "its scheduled messages cannot be cancelled"),
    ],
)
def test_a_closed_source_is_named_with_the_remedy_and_nothing_is_changed(
    bridges: tuple[Bridge, Bridge], run: Run, queue: str, status: str, text: str
) -> None:
    """By the plan, the run, and the removal at the end; open again, each of them goes on."""
    source, target = bridges
    filled(source, queue, is_scheduled=True)
    set_status(queue, status)
    said = run.said("plan", queue)
    assert said.code == 3
    (found,) = [each for each in said.rows if each.get("level") == "refusal"]
    remedy = f"`busbridge update queue {queue} --status Active`"
    assert text in found["text"]
    assert remedy in found["text"]
    said = run("--yes", queue)
    assert (said.code, text in said.err, remedy in said.err) == (1, True, True)
    assert "Nothing was changed" in said.err
    assert not there(target, queue)

    set_status(queue, "Active")
    said = run("--yes", queue)
    assert said.code == 0, said.err
    set_status(queue, "ReceiveDisabled")
    name = target_named("here").address.namespace
    said = run.said("finish", queue, "--yes", name)
    assert said.code == 1
    assert "it is ReceiveDisabled at the source, so its messages cannot be received" in said.err
    assert remedy in said.err
    assert "Nothing was removed" in said.err
    set_status(queue, "Active")
    assert run.said("finish", queue, "--yes", name).code == 0


def test_queues_that_migrations_into_the_source_have_made_are_left_out(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """A namespace may have been a target once; the plan and the run say so, once each."""
    source, target = bridges
    filled(source, "beside-1")
    filled(source, OWN)
    said = run.said("plan", "beside-1", "busbridge*")
    assert said.code == 0, said.err
    assert said.err.count(f"{OWN}: left out. Migrations into this namespace have made it") == 1
    assert OWN not in {each.get("entity") for each in said.rows}
    said = run("--yes", "beside-1", "busbridge*")
    assert said.code == 0, said.err
    assert said.err.count(f"{OWN}: left out.") == 1
    assert [each["entity"] for each in said.rows] == ["beside-1"]
    assert OWN not in marks(target, "busbridge-migrated-")
    said = run("--yes", OWN)
    assert (said.code, "has no such entity" in said.err) == (2, True)
