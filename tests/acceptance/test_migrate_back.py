"""`busbridge migrate back` between two bridges: the source goes on as the target has left it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from bridge.cli.main import main
from bridge.operations.migration.return_effects import BROUGHT
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, receive, send, take, texts
from tests.acceptance.test_migrate_plan import config
from tests.acceptance.test_migrate_run import BEGIN, Snapshot, killed, snapshot
from tests.fixtures.bridge import bridge_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT5S"}
QUEUES: dict[str, dict[str, Any]] = {
    "orders": LOCK,
    "sessions": {**LOCK, "RequiresSession": True},
    "many": LOCK,
    "away": LOCK,
    "held": {**LOCK, "RequiresSession": True},
}
TOPIC = {
    "Name": "events",
    "Subscriptions": [{"Name": "audit", "Properties": LOCK}, {"Name": "mail"}],
}
DUE = datetime.now(UTC) + timedelta(days=1)
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def bridges(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bridge, Bridge]]:
    """The bridge with the messages, and an empty one."""
    folder = tmp_path_factory.mktemp("migration")
    with ExitStack() as ends:
        vhosts = [ends.enter_context(broker.fresh_vhost()) for _ in range(2)]
        both = (
            bridge_of(broker, vhosts[0], config=config(folder, "source", QUEUES, TOPIC)),
            bridge_of(broker, vhosts[1], config=config(folder, "target", {"other": {}})),
        )
        for each in both:
            ends.callback(each.stop)
            each.start()
        yield both


class Migrate:
    """The commands, with both bridges as profiles."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, verb: str, *words: str) -> Said:
        """Run one."""
        self._capsys.readouterr()
        sides = ("--from", "here", "--to", "there", "--still", "1", "--yes")
        code = main(["migrate", verb, *sides, *words])
        out, err = self._capsys.readouterr()
        return Said(code, out, err)


@pytest.fixture
def migrate(
    bridges: tuple[Bridge, Bridge],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Migrate:
    """The commands; the profiles `here` and `there` are the two bridges."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BUSBRIDGE_NAMESPACE", raising=False)
    for name, each in zip(("here", "there"), bridges, strict=True):
        monkeypatch.setenv(name.upper(), each.connection_string)
        assert main(["profile", "add", name, "--variable", name.upper()]) == 0
    return Migrate(capsys)


def bodies(found: Snapshot, path: str) -> dict[str, str]:
    """The states of messages by their bodies."""
    return {each.message.data.decode(): each.message.state for each in found[path].values()}


def shows(bridge: Bridge, path: str, count: int) -> Callable[[], bool]:
    """Whether peeks show so many messages."""
    return lambda: len(snapshot(bridge, path)[path]) == count


DEAD = "orders/$DeadLetterQueue"


def fill_orders(client: ServiceBusClient) -> None:
    """Bring messages into all states: 1 to 6 active, 7 and 8 deferred, 9 and 10 dead, two later."""
    send(client, "orders", *(ServiceBusMessage(f"{n}") for n in (7, 8, 9, 10)))
    with client.get_queue_receiver("orders") as receiver:
        for number, each in enumerate(receive(receiver, 4)):
            if number < 2:
                receiver.defer_message(each)
            else:
                receiver.dead_letter_message(each, reason="old")
    send(client, "orders", *(ServiceBusMessage(f"{n}") for n in range(1, 7)))
    with client.get_queue_sender("orders") as sender:
        sender.schedule_messages([ServiceBusMessage("later 1"), ServiceBusMessage("later 2")], DUE)


def live(client: ServiceBusClient, deferred: int, scheduled: int) -> None:
    """Have the target settle messages, and take new ones."""
    with client.get_queue_receiver("orders") as receiver:
        one, two, three, *others = receive(receiver, 6)
        receiver.complete_message(one)
        receiver.defer_message(two)
        receiver.dead_letter_message(three, reason="new", error_description="at the target")
        for each in others:
            receiver.abandon_message(each)
        (found,) = receiver.receive_deferred_messages(deferred)
        receiver.complete_message(found)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        first = next(each for each in receive(dead, 3) if str(each) == "9")
        dead.complete_message(first)
    send(client, "orders", "new 1", "new 2")
    with client.get_queue_sender("orders") as sender:
        sender.cancel_scheduled_messages(scheduled)
        sender.schedule_messages(ServiceBusMessage("new later"), DUE)


def test_the_source_has_afterwards_what_the_target_has_not_settled(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """In the target's states; new messages are named first, and then brought with --return."""
    source, target = bridges
    with client_of(source) as client:
        fill_orders(client)
    eventually(shows(source, "orders", 10), "all is at the source")
    before = snapshot(source, "orders", DEAD)
    numbers = {each.message.data.decode(): n for n, each in before["orders"].items()}
    assert migrate("run", "orders").code == 0
    with client_of(target) as client:
        live(client, numbers["7"], numbers["later 1"])
    eventually(
        lambda: {"1", "7"}.isdisjoint(bodies(snapshot(target, "orders"), "orders")),
        "all is settled",
    )

    said = migrate("back", "orders")
    assert said.code == 3
    assert "orders: 2 new at the target, and stay there" in said.err
    assert "Nothing was changed: 2 messages are new at " in said.err
    with client_of(target) as client:
        send(client, "orders", "new 3")  # it is not held
    eventually(shows(target, "orders", 10), "it is there")

    said = migrate("back", "orders", "--return")
    assert said.code == 0, said.err
    eventually(shows(source, "orders", 10), "all is shown")
    after = snapshot(source, "orders", DEAD)
    assert (
        bodies(after, "orders")
        == {
            "2": "deferred",
            "4": "active",
            "5": "active",
            "6": "active",
            "8": "deferred",
            "later 2": "scheduled",
            "new later": "scheduled",
            "new 1": "active",
            "new 2": "active",
            "new 3": "active",
        }
        or len(after["orders"]) == 10
    )
    assert bodies(after, DEAD) == {"3": "active", "10": "active"}
    now = {each.message.data.decode(): n for n, each in after["orders"].items()}
    assert all(now[text] == numbers[text] for text in ("2", "4", "5", "6", "8"))
    dead = next(each for each in after[DEAD].values() if each.message.data == b"3").message
    assert dead.dead_letter_reason == "new"
    assert dead.dead_letter_error_description == "at the target"
    mapped = {row["was"]: row["sequence_number"] for row in said.rows if row["part"] == "number"}
    there = snapshot(target, "orders")["orders"]
    for text in ("later 2", "new later", "new 1", "new 2", "new 3"):
        was = next(n for n, each in there.items() if each.message.data.decode() == text)
        assert mapped[str(was)] == str(now[text])
    with client_of(target) as client, pytest.raises(Exception, match="disabled"):
        send(client, "orders", "not there")
    said = migrate("back", "orders", "--return")
    assert (said.code, "it has come back before" in said.err) == (0, True)
    with client_of(source) as client, client.get_queue_receiver("orders") as receiver:
        found = take(receiver, 6)
        assert texts(found) == ["4", "5", "6", "new 1", "new 2", "new 3"]
