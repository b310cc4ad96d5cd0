"""`busbridge migrate finish`: the source loses what a run has copied, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from bridge.cli.main import main
from bridge.commands.migration.connection import run_name
from bridge.commands.migration.emptying import WAIT_S, SourceEmptying, SourceLook
from bridge.commands.output import Progress
from bridge.commands.target import target_named
from bridge.model.entity import Queue
from bridge.operations.migration.last_copied import LastCopied, state_digest
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.namespace import RemoteNamespace
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, receive, send
from tests.acceptance.test_migrate_run import BEGIN, Snapshot, digests, fill_many, snapshot
from tests.acceptance.two_bridges import MigrateCommands
from tests.fixtures.terminal import terminal
from tests.fixtures.waiting import eventually

QUEUES: dict[str, dict[str, Any]] = {
    "orders": {},
    "sessions": {"RequiresSession": True},
    "many": {},
    "apart": {},
    "anew": {},
    "late": {},
    "states": {"RequiresSession": True},
    "asked": {"RequiresSession": True},
    "quick": {"RequiresSession": True},
}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "mail"}]}
PLACES = (
    "orders",
    "orders/$DeadLetterQueue",
    "sessions",
    "events",
    "events/Subscriptions/audit",
    "events/Subscriptions/audit/$DeadLetterQueue",
    "events/Subscriptions/mail",
)
MEANT = ("orders", "sessions", "events")
DUE = datetime.now(UTC) + timedelta(days=1)
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def bridges(bridges: tuple[Bridge, Bridge]) -> tuple[Bridge, Bridge]:
    """The bridge with the messages, and an empty one."""
    fill(bridges[0])
    return bridges


def fill(bridge: Bridge) -> None:
    """Bring messages into all states."""
    with client_of(bridge) as client:
        send(client, "orders", *(ServiceBusMessage(f"order {n}") for n in range(1, 9)))
        with client.get_queue_receiver("orders") as receiver:
            one, two, three, four, *others = receive(receiver, 5)
            receiver.complete_message(one)
            receiver.defer_message(two)
            receiver.dead_letter_message(three, reason="bad")
            receiver.dead_letter_message(four, reason="worse")
            for each in others:
                receiver.abandon_message(each)
        with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            first, *others = receive(dead, 2)
            dead.defer_message(first)
            for each in others:
                dead.abandon_message(each)
        with client.get_queue_sender("orders") as sender:
            sender.schedule_messages([ServiceBusMessage("later"), ServiceBusMessage("then")], DUE)
        with client.get_topic_sender("events") as sender:
            sender.send_messages([ServiceBusMessage(f"event {n}") for n in range(3)])
            sender.schedule_messages(ServiceBusMessage("event later"), DUE)
        with client.get_subscription_receiver("events", "audit") as receiver:
            first, *others = receive(receiver, 3)
            receiver.dead_letter_message(first, reason="bad")
            for each in others:
                receiver.abandon_message(each)
        for number in range(6):
            send(client, "sessions", ServiceBusMessage(f"s {number}", session_id=f"s{number % 3}"))
        with client.get_queue_receiver("sessions", session_id="s1") as receiver:
            receiver.defer_message(receive(receiver, 1)[0])
        with client.get_queue_receiver("sessions", session_id="s2") as receiver:
            receiver.session.set_state(b"paid")


class Migrate(MigrateCommands):
    """The command, with both bridges as profiles."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(capsys)
        self.namespace = target_named("here").address.namespace

    def __call__(self, *words: str) -> Said:
        """Run it."""
        return self.said(*words)

    def run(self, *entities: str) -> None:
        """Copy entities."""
        said = self("run", "--still", "0.5", "--yes", *entities)
        assert said.code == 0, said.err

    def finish(self, *entities: str) -> Said:
        """Empty the source."""
        return self("finish", *entities, "--yes", self.namespace)


@pytest.fixture
def migrate(
    profiles: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Migrate:
    """The command; the profiles `here` and `there` are the two bridges."""
    monkeypatch.setenv("TERM", "xterm")
    return Migrate(capsys)


def first(bridge: Bridge, queue: str) -> int:
    """The lowest number that a peek shows, or a high one."""

    async def peeked() -> int:
        credential = credential_in(bridge.connection_string)
        assert credential is not None
        address = RemoteAddress.of(bridge.connection_string)
        async with RemoteNamespace(address, credential) as namespace:
            shown = await namespace.management_of(queue).peek(1, 1)
            return int(shown[0].sequence_number or 0) if shown else 1_000_000

    return asyncio.run(peeked())


def empty(found: Snapshot) -> bool:
    """Whether no message is shown."""
    return not any(found.values())


def test_the_source_is_emptied_of_what_was_copied_and_of_nothing_else(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """What has come since is named by its number, and nothing is removed then."""
    source, target = bridges
    eventually(lambda: len(snapshot(source, "sessions")["sessions"]) == 6, "all is there")
    migrate.run(*MEANT)
    copied, before = snapshot(target, *PLACES), snapshot(source, *PLACES)
    with client_of(source) as client:
        send(client, "orders", "behind the copy")
        eventually(lambda: snapshot(source, "orders") != {"orders": before["orders"]}, "it came")
        (new,) = snapshot(source, "orders")["orders"].keys() - before["orders"].keys()
        said = migrate.finish(*MEANT)
        assert said.code == 1
        assert f"orders: message {new} (active)" in said.err
        assert "1 message has come to here behind the copy" in said.err
        assert digests(snapshot(source, *PLACES)).items() >= digests({
            path: each for path, each in before.items() if path != "orders"
        }).items()  # fmt: skip
        with client.get_queue_receiver("orders") as receiver:
            for each in receive(receiver, 5):
                if each.sequence_number == new:
                    receiver.complete_message(each)
                else:
                    receiver.abandon_message(each)
        with client.get_queue_receiver("sessions", session_id="s2") as receiver:
            receiver.session.set_state(b"shipped")
        said = migrate.finish(*MEANT)
        assert said.code == 1
        assert "sessions: session 's2': its state was set behind the copy" in said.err
        assert "1 state of a session was set at here behind the copy" in said.err
        assert not empty(snapshot(source, *PLACES))
        with client.get_queue_receiver("sessions", session_id="s2") as receiver:
            assert bytes(receiver.session.get_state()) == b"shipped"
            receiver.session.set_state(b"paid")
    said = migrate.finish(*MEANT)
    assert said.code == 0, said.err
    rows = {row["entity"]: row for row in said.rows}
    assert {name: rows["orders"][name] for name in STATES} == dict(
        zip(STATES, (4, 0, 1, 1, 1), strict=True)
    )
    assert (rows["sessions"]["active"], rows["sessions"]["deferred"]) == (5, 1)
    assert rows["sessions"]["session_states"] == 1
    assert rows["events/Subscriptions/audit"]["dead_letter"] == 1
    assert empty(snapshot(source, *PLACES))
    assert digests(snapshot(target, *PLACES)) == digests(copied)
    said = migrate.finish(*MEANT)
    assert said.code == 1
    assert "orders: no run that has come to its end has copied it" in said.err


STATES = ("active", "scheduled", "deferred", "dead_letter", "deferred_dead_letter")


def test_the_name_of_the_namespace_is_needed(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """By a script in an option; at a terminal it is typed."""
    source, _ = bridges
    with client_of(source) as client:
        send(client, "apart", "one")
    eventually(lambda: not empty(snapshot(source, "apart")), "it is there")
    migrate.run("apart")
    assert migrate("finish", "apart").code == 2
    assert migrate("finish", "apart", "--yes", "another").code == 2
    words = ["migrate", "finish", "--from", "here", "--to", "there", "apart"]
    for typed, code in (("y", 2), (migrate.namespace, 0)):
        assert not empty(snapshot(source, "apart"))
        with terminal([sys.executable, "-c", BEGIN, *words]) as shown:
            shown.awaits(f"Type {migrate.namespace} to go on:")
            shown.type(f"{typed}\n")
            assert (shown.code() == 0) == (code == 0)
    assert empty(snapshot(source, "apart"))


def test_what_changes_while_it_asks_is_seen_and_a_held_session_is_named_before(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """The question may be answered much later: nothing is removed then."""
    source, _ = bridges
    with client_of(source) as client:
        send(client, "asked", ServiceBusMessage("one", session_id="s"))
    eventually(lambda: not empty(snapshot(source, "asked")), "it is there")
    migrate.run("asked")
    mark = f"busbridge-{run_name(target_named('here'))}-0"
    words = ["migrate", "finish", "--from", "here", "--to", "there", "asked"]
    with (
        client_of(source) as client,
        client.get_queue_receiver("asked", session_id="s"),
        terminal([sys.executable, "-c", BEGIN, *words]) as shown,
    ):
        shown.awaits(f"Type {migrate.namespace} to go on:")
        assert "held: asked: session 's'" in shown.text
        assert main(["create", "queue", mark, "-n", "there"]) == 0
        try:
            shown.type(f"{migrate.namespace}\n")
            assert shown.code() == 1
        finally:
            assert main(["delete", "queue", mark, "-n", "there", "--yes"]) == 0
    assert "has not come to its end" in shown.text
    assert not empty(snapshot(source, "asked"))


def test_sessions_are_emptied_without_a_wait_for_more(bridges: tuple[Bridge, Bridge]) -> None:
    """As many are received as a peek has shown, of several sessions side by side."""
    source, _ = bridges
    sessions = 40
    with client_of(source) as client:
        for n in range(sessions):
            send(client, "quick", ServiceBusMessage(f"{n}", session_id=f"s{n}"))
    eventually(lambda: len(snapshot(source, "quick")["quick"]) == sessions, "all is there")

    async def emptied() -> SourceEmptying:
        credential = credential_in(source.connection_string)
        assert credential is not None
        address = RemoteAddress.of(source.connection_string)
        async with RemoteNamespace(address, credential) as namespace:
            copied = LastCopied(path="quick", lasts={0: sessions})
            queue = Queue(name="quick", requires_session=True)
            emptying = SourceEmptying(namespace, queue, copied, Progress(None))
            await emptying.empty(asyncio.Event())
            return emptying

    began_s = time.monotonic()
    assert asyncio.run(emptied()).removed == {"active": sessions}
    assert time.monotonic() - began_s < sessions * WAIT_S / 2
    assert empty(snapshot(source, "quick"))


def test_an_entity_that_was_made_anew_at_the_target_is_none_that_was_copied(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """Nor is one whose run has not come to its end, or that it still holds."""
    source, _ = bridges
    with client_of(source) as client:
        send(client, "anew", "one")
    eventually(lambda: not empty(snapshot(source, "anew")), "it is there")
    said = migrate.finish("anew")
    assert (said.code, "anew: no run that has" in said.err) == (1, True)
    migrate.run("anew")
    assert main(["delete", "queue", "anew", "-n", "there", "--yes"]) == 0
    said = migrate.finish("anew")
    assert (said.code, "anew: it is not at the target" in said.err) == (1, True)
    mark = f"busbridge-{run_name(target_named('here'))}-0"
    assert main(["create", "queue", mark, "-n", "there"]) == 0
    said = migrate.finish("anew")
    assert (said.code, "has not come to its end" in said.err) == (1, True)
    assert main(["delete", "queue", mark, "-n", "there", "--yes"]) == 0
    assert not empty(snapshot(source, "anew"))


def test_it_is_killed_and_goes_on_by_the_same_command(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """What the killed one had locked is left until the locks end, which is said."""
    source, target = bridges
    fill_many(source, "many", 1_000, 0)
    migrate.run("many")
    copied = digests(snapshot(target, "many"))
    words = ["migrate", "finish", "--from", "here", "--to", "there", "many", "--yes"]
    process = subprocess.Popen([sys.executable, "-c", BEGIN, *words, migrate.namespace])
    eventually(lambda: process.poll() is not None or first(source, "many") > 1, "it removes")
    process.kill()
    process.wait()
    codes: list[int] = []

    def is_over() -> bool:
        codes.append(migrate.finish("many").code)
        return codes[-1] != 3

    if process.returncode:
        eventually(is_over, "all is removed")
        assert codes[-1] == 0
    assert empty(snapshot(source, "many"))
    assert digests(snapshot(target, "many")) == copied


def test_what_comes_while_it_removes_stays(bridges: tuple[Bridge, Bridge]) -> None:
    """A message is removed by its number alone; others go back."""
    source, _ = bridges
    with client_of(source) as client:
        send(client, "late", *(ServiceBusMessage(f"{n}") for n in range(1, 6)))
    eventually(lambda: len(snapshot(source, "late")["late"]) == 5, "all is there")

    async def emptied() -> SourceLook:
        credential = credential_in(source.connection_string)
        assert credential is not None
        address = RemoteAddress.of(source.connection_string)
        async with RemoteNamespace(address, credential) as namespace:
            copied = LastCopied(path="late", lasts={0: 3})
            emptying = SourceEmptying(namespace, Queue(name="late"), copied, Progress(None))
            left = await emptying.empty(asyncio.Event())
            assert emptying.removed == {"active": 3}
            return left

    assert asyncio.run(emptied()).new.texts == [f"late: message {n} (active)" for n in (4, 5)]
    assert list(snapshot(source, "late")["late"]) == [4, 5]


def test_a_state_that_is_set_while_it_removes_stays_and_is_named(
    bridges: tuple[Bridge, Bridge],
) -> None:
    """It is compared under the lock of its session; the messages of that session go."""
    source, _ = bridges
    with client_of(source) as client:
        for session_id in ("a", "b"):
            send(client, "states", ServiceBusMessage("x", session_id=session_id))
            with client.get_queue_receiver("states", session_id=session_id) as receiver:
                receiver.session.set_state(b"paid")
    eventually(lambda: len(snapshot(source, "states")["states"]) == 2, "all is there")

    async def emptied() -> SourceEmptying:
        credential = credential_in(source.connection_string)
        assert credential is not None
        address = RemoteAddress.of(source.connection_string)
        async with RemoteNamespace(address, credential) as namespace:
            states = {
                state_digest("A", sha256(b"paid").digest()),
                state_digest("b", sha256(b"not yet").digest()),
            }
            copied = LastCopied(path="states", lasts={0: 2}, states=frozenset(states))
            queue = Queue(name="states", requires_session=True)
            emptying = SourceEmptying(namespace, queue, copied, Progress(None))
            await emptying.empty(asyncio.Event())
            return emptying

    found = asyncio.run(emptied())
    assert (found.removed, found.states) == ({"active": 2}, 1)
    assert found.stays == ["states: session 'b': its state was set behind the copy"]
    with (
        client_of(source) as client,
        client.get_queue_receiver("states", session_id="b") as receiver,
    ):
        assert bytes(receiver.session.get_state()) == b"paid"
