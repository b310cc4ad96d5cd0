"""`busbridge migrate run` between two bridges: all messages keep their numbers, each once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from bridge.cli.main import main
from bridge.operations.migration.copy_effects import PeekedMessage, peeked
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import credential_in
from bridge.remote.errors import RemoteError
from bridge.remote.namespace import RemoteNamespace
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, receive, send, take, texts
from tests.acceptance.two_bridges import MigrateCommands
from tests.fixtures.terminal import terminal
from tests.fixtures.waiting import eventually

QUEUES: dict[str, dict[str, Any]] = {
    "orders": {"MaxDeliveryCount": 5},
    "inbound": {"ForwardTo": "orders"},
    "large": {},
    "sessions": {"RequiresSession": True},
    "killed": {},
    "cancelled": {},
    "away": {},
    "shown": {},
    "refused": {},
    "busy": {},
} | {f"many-{number}": {} for number in range(9)}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}, {"Name": "mail"}]}
PLACES = (
    "orders",
    "orders/$DeadLetterQueue",
    "large",
    "many-3",
    "sessions",
    "events",
    "events/Subscriptions/audit",
    "events/Subscriptions/audit/$DeadLetterQueue",
    "events/Subscriptions/mail",
)
pytestmark = pytest.mark.timeout(900)

PATHS = ("many-*", "orders", "inbound", "large", "sessions", "events")
SENDS = """
import os, time
from azure.servicebus import ServiceBusClient, ServiceBusMessage
with ServiceBusClient.from_connection_string(os.environ["HERE"]) as client:
    with client.get_queue_sender("busy") as sender:
        while True:
            sender.send_messages(ServiceBusMessage("x")); time.sleep(0.05)
"""
NOT_HELD = "and no run holds it"
DUE = datetime.now(UTC) + timedelta(days=1)

Snapshot = dict[str, dict[int, PeekedMessage]]


@pytest.fixture(scope="module")
def bridges(bridges: tuple[Bridge, Bridge]) -> tuple[Bridge, Bridge]:
    """The bridge with the messages, and an empty one."""
    fill(bridges[0])
    return bridges


def fill(bridge: Bridge) -> None:
    """Bring messages into all states."""
    with client_of(bridge) as client:
        every = [
            ServiceBusMessage(f"order {n}", message_id=f"m{n}", application_properties={"n": n})
            for n in range(1, 9)
        ]
        send(client, "orders", *every)
        with client.get_queue_receiver("orders") as receiver:
            one, two, three, *others = receive(receiver, 4)
            receiver.complete_message(one)
            receiver.defer_message(two)
            receiver.dead_letter_message(three, reason="bad", error_description="worse")
            for each in others:
                receiver.abandon_message(each)
        for number in range(12):  # more than a transfer of the Standard tier takes
            send(client, "large", f"{number}" * 60_000)
        with client.get_queue_sender("orders") as sender:
            sender.schedule_messages([ServiceBusMessage("later"), ServiceBusMessage("then")], DUE)
        send(client, "inbound", "forwarded")
        send(client, "many-3", "of many")  # more entities than are copied side by side
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


async def _snapshot(bridge: Bridge, paths: tuple[str, ...]) -> Snapshot:
    text = bridge.connection_string
    credential = credential_in(text)
    assert credential is not None
    found: Snapshot = {}
    async with RemoteNamespace(RemoteAddress.of(text), credential) as namespace:
        for path in paths:
            messages: dict[int, PeekedMessage] = {}
            start = 1
            while page := await namespace.management_of(path).peek(start, 250):
                for each in page:
                    shown = peeked(each, is_dead="$Dead" in path)
                    messages[shown.number] = shown
                start = max(messages) + 1
            found[path] = messages
    return found


def snapshot(bridge: Bridge, *paths: str) -> Snapshot:
    """What peeks show."""
    return asyncio.run(_snapshot(bridge, paths))


def digests(found: Snapshot) -> dict[str, dict[int, bytes]]:
    """The digests of messages by number."""
    return {path: {n: each.digest for n, each in there.items()} for path, there in found.items()}


class Run(MigrateCommands):
    """The command, with both bridges as profiles."""

    def __call__(self, *words: str) -> Said:
        """Run it."""
        return self.said("run", "--still", "1", *words)


@pytest.fixture
def run(profiles: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command; the profiles `here` and `there` are the two bridges."""
    return Run(capsys)


@pytest.mark.long
def test_entities_with_messages_in_all_states_are_at_the_target_under_their_numbers(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """Definitions first; afterwards what is scheduled is there alone, and all may be received."""
    source, target = bridges
    eventually(lambda: len(snapshot(source, "orders")["orders"]) == 9, "all is at the source")
    before = snapshot(source, *PLACES)
    said = run("--yes", *PATHS)
    assert said.code == 0, said.err
    assert said.err.endswith("Start what receives, then what sends.\n")
    rows = {row["entity"]: row for row in said.rows}
    assert (rows["orders"]["messages"], rows["orders"]["cancelled"]) == (10, 2)
    assert (rows["events"]["messages"], rows["events"]["cancelled"]) == (7, 1)

    assert digests(snapshot(target, *PLACES)) == digests(before)
    after = snapshot(source, *PLACES)
    for path in PLACES:
        kept = {n: each.digest for n, each in before[path].items() if each.due_ms is None}
        assert digests(after)[path] == kept
    with client_of(target) as client:
        with client.get_queue_receiver("orders") as receiver:
            assert texts(take(receiver, 6)) == [f"order {n}" for n in range(4, 9)] + ["forwarded"]
            deferred = next(
                n for n, each in before["orders"].items() if each.message.state == "deferred"
            )
            assert texts(receiver.receive_deferred_messages(deferred)) == ["order 2"]
        with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (found,) = receive(dead)
            assert (str(found), found.dead_letter_reason) == ("order 3", "bad")
        send(client, "inbound", "new")
        with client.get_queue_receiver("orders") as receiver:
            (new,) = take(receiver, 1)
            assert new.sequence_number > max(before["orders"])
    said = run("--yes", "events")
    assert (said.code, "an earlier run has moved it" in said.err) == (1, True)
    assert "do not purge it: what was scheduled is there alone" in said.err


def test_a_run_at_a_target_that_lives_is_refused_and_holds_nothing(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """Whose messages are its own, or those of a run that has ended."""
    _, target = bridges
    assert main(["create", "queue", "refused", "-n", "there"]) == 0
    with client_of(target) as client:
        send(client, "refused", "its own")
        eventually(lambda: bool(there(target, "refused")), "it is there")
        said = run("--yes", "refused")
        assert (said.code, NOT_HELD in said.err) == (1, True)
        send(client, "refused", "goes")


def test_a_source_that_still_changes_is_named_before_anything_is_changed(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """By entity, with figures."""
    source, target = bridges
    stop = subprocess.Popen([sys.executable, "-c", SENDS])
    try:
        eventually(lambda: bool(snapshot(source, "busy")["busy"]), "it sends")
        said = run("--yes", "busy", "--still", "3")
    finally:
        stop.kill()
        stop.wait()
    assert said.code == 1
    assert "source: busy still changes: " in said.err
    with client_of(target) as client, pytest.raises(Exception, match="busy"):
        send(client, "busy", "not there")


BEGIN = "import sys; from bridge.cli.main import main; sys.exit(main(sys.argv[1:]))"
WORDS = ("migrate", "run", "--from", "here", "--to", "there", "--still", "0.1", "--yes")


def begun(*words: str) -> subprocess.Popen[bytes]:
    """The command as a process."""
    return subprocess.Popen([sys.executable, "-c", BEGIN, *WORDS, *words])


def killed(process: subprocess.Popen[bytes]) -> None:
    """Kill it."""
    process.kill()
    process.wait()


def fill_many(source: Bridge, queue: str, active: int, scheduled: int) -> Snapshot:
    """Send messages, and return what a peek shows."""
    with client_of(source) as client:
        for at in range(0, active, 500):
            send(client, queue, *(ServiceBusMessage(f"{at + n}") for n in range(500)))
        with client.get_queue_sender(queue) as sender:
            for _ in range(scheduled // 100):
                sender.schedule_messages([ServiceBusMessage("later")] * 100, DUE)
    eventually(
        lambda: len(snapshot(source, queue)[queue]) == active + scheduled, "all is at the source"
    )
    return snapshot(source, queue)


def check_moved(both: tuple[Bridge, Bridge], queue: str, before: Snapshot) -> None:
    """See that the target has all, that nothing is scheduled at the source, and that it lives."""
    source, target = both
    assert digests(snapshot(target, queue)) == digests(before)
    kept = {n: each.digest for n, each in before[queue].items() if each.due_ms is None}
    assert digests(snapshot(source, queue))[queue] == kept
    with client_of(target) as client:
        send(client, queue, "lives")


@pytest.mark.long
def test_a_run_that_is_killed_goes_on_where_the_target_is(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """Killed a few times at any instant, and begun again by the same command."""
    before = fill_many(bridges[0], "killed", 3_000, 100)
    kills = 0
    process = begun("killed")
    eventually(lambda: bool(there(bridges[1], "killed")), "the copy has begun")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 4
    for lives_s in (3.0, 4.0, 5.0, 6.0, 7.0):
        process = begun("killed")
        try:
            process.wait(lives_s)
            break
        except subprocess.TimeoutExpired:
            killed(process)
            kills += 1
    else:
        said = run("--yes", "killed")  # the last one may have been killed at its very end
        assert said.code == 0 or NOT_HELD in said.err
    assert kills
    check_moved(bridges, "killed", before)


@pytest.mark.long
def test_a_run_that_is_killed_while_it_cancels_goes_on_with_that(
    bridges: tuple[Bridge, Bridge], run: Run
) -> None:
    """The mark at the target says that all was verified; it is not copied or held again."""
    before = fill_many(bridges[0], "cancelled", 500, 3_000)
    process = begun("cancelled")
    eventually(lambda: bool(marks(bridges[1])), "all is verified")
    killed(process)
    if marks(bridges[1]):  # else it has come to its end before it was killed
        assert run("--yes", "cancelled").code == 0
    assert not marks(bridges[1])
    check_moved(bridges, "cancelled", before)


@pytest.mark.long
@pytest.mark.usefixtures("run")
def test_a_terminal_asks_and_shows_a_table(
    bridges: tuple[Bridge, Bridge], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far it is stands below, while it lasts."""
    monkeypatch.setenv("TERM", "xterm")
    before = fill_many(bridges[0], "shown", 500, 100)
    words = [word for word in WORDS if word != "--yes"]
    with terminal([sys.executable, "-c", BEGIN, *words, "shown"]) as shown:
        shown.awaits("All that sends and receives is stopped? [y/N]")
        shown.type("y\n")
        assert shown.code() == 0
    assert "600 messages are at the target under their numbers" in shown.text
    assert any("cancelled" in each for each in shown.lines)
    check_moved(bridges, "shown", before)


def marks(target: Bridge, prefix: str = "busbridge-migrate-") -> list[str]:
    """The marks of runs at the target, or other queues of migrations' own."""

    async def found() -> list[str]:
        credential = credential_in(target.connection_string)
        assert credential is not None
        address = RemoteAddress.of(target.connection_string)
        async with RemoteAdministration(address, credential) as administration:
            return [
                each.name async for each in administration.queues() if each.name.startswith(prefix)
            ]

    return asyncio.run(found())


@pytest.mark.long
@pytest.mark.usefixtures("run")
def test_a_run_goes_on_when_either_bridge_was_killed(bridges: tuple[Bridge, Bridge]) -> None:
    """What had no answer is imported again, and is there once."""
    before = fill_many(bridges[0], "away", 4_000, 100)
    process = begun("away")
    for each in (*reversed(bridges), bridges[1]):
        eventually(
            lambda: process.poll() is not None or bool(there(bridges[1], "away")), "it copies"
        )
        each.kill()
        each.start()
    assert process.wait(240) == 0
    check_moved(bridges, "away", before)


def there(target: Bridge, queue: str) -> dict[int, PeekedMessage]:
    """What the target has; nothing while the queue is not made."""
    try:
        return snapshot(target, queue)[queue]
    except RemoteError:
        return {}
