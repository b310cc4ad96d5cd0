"""`busbridge migrate back` between two bridges: the source goes on as the target has left it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from bridge.operations.migration.return_effects import BROUGHT
from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, receive, send, take, texts
from tests.acceptance.test_migrate_run import BEGIN, Snapshot, killed, snapshot
from tests.acceptance.two_bridges import MigrateCommands
from tests.fixtures.waiting import eventually

LOCK = {"LockDuration": "PT5S"}
QUEUES: dict[str, dict[str, Any]] = {
    "orders": LOCK,
    "sessions": {**LOCK, "RequiresSession": True},
    "many": LOCK,
    "away": LOCK,
    "held": {"LockDuration": "PT2M", "RequiresSession": True},
}
TOPIC = {
    "Name": "events",
    "Subscriptions": [{"Name": "audit", "Properties": LOCK}, {"Name": "mail"}],
}
DUE = datetime.now(UTC) + timedelta(days=1)
pytestmark = pytest.mark.timeout(900)


class Migrate(MigrateCommands):
    """The commands, with both bridges as profiles."""

    def __call__(self, verb: str, *words: str) -> Said:
        """Run one."""
        return self.said(verb, "--still", "1", "--yes", *words)


@pytest.fixture
def migrate(profiles: None, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """The commands; the profiles `here` and `there` are the two bridges."""
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


@pytest.mark.long
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
    there = snapshot(target, "orders")["orders"]

    said = migrate("back", "orders", "--return")
    assert said.code == 0, said.err
    total = next(row["stays"] for row in said.rows if row.get("entity") == "orders")
    assert f"sent to the source; {total} stay." in said.err
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
    for text in ("later 2", "new later", "new 1", "new 2", "new 3"):
        was = next(n for n, each in there.items() if each.message.data.decode() == text)
        assert mapped[was] == now[text]
    with client_of(target) as client, pytest.raises(Exception, match="disabled"):
        send(client, "orders", "not there")
    said = migrate("back", "orders", "--return")
    assert (said.code, "it has come back before" in said.err) == (0, True)
    with client_of(source) as client, client.get_queue_receiver("orders") as receiver:
        found = take(receiver, 6)
        assert texts(found) == ["4", "5", "6", "new 1", "new 2", "new 3"]


@pytest.mark.long
def test_states_of_sessions_and_copies_of_subscriptions_come_back(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """A session is settled session by session; a copy comes to its subscription alone."""
    source, target = bridges
    audit, mail = (f"events/Subscriptions/{name}" for name in ("audit", "mail"))
    with client_of(source) as client:
        for n in range(6):
            send(client, "sessions", ServiceBusMessage(f"{n}", session_id=f"s{n % 2}"))
        with client.get_topic_sender("events") as sender:
            sender.send_messages([ServiceBusMessage(f"event {n}") for n in range(3)])
            sender.schedule_messages(ServiceBusMessage("event later"), DUE)
    for path, count in (("sessions", 6), (audit, 3), (mail, 3), ("events", 1)):
        eventually(shows(source, path, count), "all is at the source")
    assert migrate("run", "sessions", "events").code == 0
    with client_of(target) as client:
        with client.get_queue_receiver("sessions", session_id="s0") as receiver:
            one, two, _ = receive(receiver, 3)
            receiver.complete_message(one)
            receiver.defer_message(two)
            receiver.session.set_state(b"paid")
        send(client, "sessions", ServiceBusMessage("new", session_id="s1"))
        with client.get_subscription_receiver("events", "audit") as receiver:
            first, second, _ = receive(receiver, 3)
            receiver.complete_message(first)
            receiver.dead_letter_message(second, reason="bad")
        with client.get_subscription_receiver("events", "mail") as receiver:
            for each in receive(receiver, 3):
                receiver.complete_message(each)
        with client.get_topic_sender("events") as sender:
            sender.send_messages(ServiceBusMessage("event new"))
    eventually(shows(target, mail, 1), "all is settled")
    eventually(shows(target, "sessions", 6), "all is settled")

    said = migrate("back", "sessions", "events", "--return")
    assert said.code == 0, said.err
    paths = ("sessions", audit, audit + "/$DeadLetterQueue", mail, "events")
    after = snapshot(source, *paths)
    assert {path: bodies(after, path) for path in paths} == {
        "sessions": {
            "1": "active",
            "2": "deferred",
            "3": "active",
            "4": "active",
            "5": "active",
            "new": "active",
        },
        audit: {"event 2": "active", "event new": "active"},
        audit + "/$DeadLetterQueue": {"event 1": "active"},
        mail: {"event new": "active"},
        "events": {"event later": "scheduled"},
    }
    with (
        client_of(source) as client,
        client.get_queue_receiver("sessions", session_id="s0") as receiver,
    ):
        assert bytes(receiver.session.get_state()) == b"paid"
        assert texts(receive(receiver, 1)) == ["4"]


def test_a_session_that_somebody_holds_at_the_target_ends_it_by_name(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """Nothing is held or changed then."""
    source, target = bridges
    with client_of(source) as client:
        send(client, "held", ServiceBusMessage("x", session_id="red"))
    eventually(shows(source, "held", 1), "it is at the source")
    assert migrate("run", "held").code == 0
    with client_of(target) as client:
        with client.get_queue_receiver("held", session_id="red") as receiver:
            receive(receiver, 1)
            said = migrate("back", "held")
        assert said.code == 1
        assert "held: session 'red' at the target: " in said.err
        send(client, "held", ServiceBusMessage("y", session_id="red"))


def test_entities_are_named(migrate: Migrate) -> None:
    """What no run has moved would count as settled."""
    said = migrate("back")
    assert (said.code, "Name the entities that a run has moved" in said.err) == (2, True)


BACK = ("migrate", "back", "--from", "here", "--to", "there", "--still", "0.1", "--yes", "--return")


def begun(*words: str) -> subprocess.Popen[bytes]:
    """The command as a process."""
    return subprocess.Popen([sys.executable, "-c", BEGIN, *BACK, *words])


def moved_and_used(both: tuple[Bridge, Bridge], migrate: Migrate, queue: str) -> list[str]:
    """Move a queue, have the target settle most of it, and return what it has afterwards."""
    source, target = both
    with client_of(source) as client:
        send(client, queue, *(ServiceBusMessage(f"{n}") for n in range(400)))
        with client.get_queue_sender(queue) as sender:
            later = [ServiceBusMessage(f"later {n}") for n in range(100)]
            sender.schedule_messages(later, DUE)
    eventually(shows(source, queue, 500), "all is at the source")
    assert migrate("run", queue).code == 0
    with client_of(target) as client:
        with client.get_queue_receiver(queue) as receiver:
            for each in take(receiver, 300):
                assert each is not None
        send(client, queue, *(ServiceBusMessage(f"new {n}") for n in range(100)))
    eventually(shows(target, queue, 300), "all is settled")
    return sorted(each.message.data.decode() for each in snapshot(target, queue)[queue].values())


def check_back(source: Bridge, queue: str, wanted: list[str]) -> None:
    """See that the source has each message once."""
    found = snapshot(source, queue)[queue].values()
    assert sorted(each.message.data.decode() for each in found) == wanted


@pytest.mark.long
@pytest.mark.usefixtures("migrate")
def test_a_command_that_is_killed_goes_on_where_both_sides_are(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """Killed while it settles, and while it sends, each message is at the source once."""
    source, _ = bridges
    wanted = moved_and_used(bridges, migrate, "many")

    def brought() -> int:
        found = snapshot(source, "many")["many"].values()
        return sum(BROUGHT in each.message.application_property_values for each in found)

    moments: tuple[Callable[[], bool], ...] = (
        lambda: len(snapshot(source, "many")["many"]) < 400,
        lambda: brought() > 0,
        lambda: brought() > 100,
    )
    kills = 0
    for moment in moments:
        process = begun("many")
        eventually(lambda: process.poll() is not None or moment(), "it has come so far")  # noqa: B023
        kills += process.poll() is None
        killed(process)
    assert kills
    assert begun("many").wait(240) == 0
    check_back(source, "many", wanted)


@pytest.mark.long
@pytest.mark.usefixtures("migrate")
def test_a_command_goes_on_when_either_bridge_was_killed(
    bridges: tuple[Bridge, Bridge], migrate: Migrate
) -> None:
    """What had no answer is looked for, and is at the source once."""
    source, target = bridges
    wanted = moved_and_used(bridges, migrate, "away")
    process = begun("away")
    eventually(lambda: len(snapshot(source, "away")["away"]) < 400, "it settles")
    source.kill()
    source.start()
    target.kill()
    target.start()
    assert process.wait(300) == 0
    check_back(source, "away", wanted)
