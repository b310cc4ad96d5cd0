"""`busbridge migrate verify`: two bridges that were sent the same, but for what is planted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from bridge.testing.process import Bridge
from tests.acceptance.busbridge import Said
from tests.acceptance.sdk import client_of, receive
from tests.acceptance.two_bridges import MigrateCommands, config, two_bridges
from tests.fixtures.broker import Broker

BOTH: dict[str, dict[str, Any]] = {"same": {}, "planted": {}, "sessions": {"RequiresSession": True}}
TOPIC = {"Name": "events", "Subscriptions": [{"Name": "audit"}]}

COUNT = 600
"""Messages of a queue: three pages of a peek."""

WRONG_BODY, WRONG_PROPERTY, DEFERRED_THERE, DELIVERED_THERE, GONE_THERE = 3, 4, 7, 8, 300
DEAD = 5
DUE = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(scope="module")
def bridges(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bridge, Bridge]]:
    """Two bridges: the second has other messages at some numbers."""
    folder = tmp_path_factory.mktemp("verification")
    source = config(folder, "n0", BOTH, TOPIC)
    target = config(folder, "n1", {**BOTH, "there-alone": {}}, TOPIC)
    with two_bridges(broker, source, target) as both:
        fill(both[0], is_planted=False)
        fill(both[1], is_planted=True)
        yield both


def fill(bridge: Bridge, *, is_planted: bool) -> None:
    """Send what both get; a planted difference is in `planted` alone."""

    def message(number: int, **fields: Any) -> ServiceBusMessage:
        return ServiceBusMessage(
            f"order {number}",
            message_id=f"m{number}",
            application_properties={"n": number},
            **fields,
        )

    with client_of(bridge) as client:
        for queue in ("same", "planted"):
            every = [message(number) for number in range(1, COUNT + 1)]
            if is_planted and queue == "planted":
                every[WRONG_BODY - 1] = ServiceBusMessage(
                    "Order 3", message_id="m3", application_properties={"n": 3}
                )
                every[WRONG_PROPERTY - 1].application_properties = {"n": -4}
                every.append(message(COUNT + 1))
            with client.get_queue_sender(queue) as sender:
                for at in range(0, len(every), 100):
                    sender.send_messages(every[at : at + 100])
                if not (is_planted and queue == "planted"):
                    sender.schedule_messages(message(0), DUE)
            settle(client, queue, is_planted=is_planted and queue == "planted")
        with client.get_topic_sender("events") as sender:
            sender.send_messages([message(1), message(2)])
            sender.schedule_messages(message(3), DUE)
        with client.get_queue_sender("sessions") as sender:
            sender.send_messages([message(number, session_id=f"s{number}") for number in (1, 2)])


def settle(client: Any, queue: str, *, is_planted: bool) -> None:
    """Dead-letter one message, and do what is planted with others."""
    with client.get_queue_receiver(queue) as receiver:
        found = {each.sequence_number: each for each in receive(receiver, GONE_THERE)}
        receiver.dead_letter_message(found[DEAD], reason="bad")
        if is_planted:
            receiver.defer_message(found[DEFERRED_THERE])
            receiver.complete_message(found[GONE_THERE])
            receiver.abandon_message(found[DELIVERED_THERE])
            (again,) = receive(receiver)
            assert again.sequence_number == DELIVERED_THERE
    if is_planted:
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            assert receive(dead)[0].sequence_number == DEAD


class Verify(MigrateCommands):
    """The command, with both bridges as profiles."""

    def __call__(self, *words: str) -> Said:
        """Run it, without what differs between two bridges that were sent the same."""
        return self.said("verify", *words, "--leave-out", "enqueued_time")


@pytest.fixture
def verify(profiles: None, capsys: pytest.CaptureFixture[str]) -> Verify:
    """The command; the profiles `here` and `there` are the two bridges."""
    return Verify(capsys)


def test_two_sides_that_are_the_same_have_no_difference(verify: Verify) -> None:
    """Over several pages, in all states, in topics and with sessions."""
    said = verify("same", "events", "sessions")
    assert said.code == 0, said
    assert said.err.endswith("0 differences. Nothing was changed.\n")
    rows = {(row["entity"], row["queue"]): row for row in said.rows}
    assert rows["same", "messages"]["source"] == {"active": COUNT - 1, "scheduled": 1}
    assert rows["same", "dead letters"]["target"] == {"dead_letter": 1}
    assert rows["events", "messages"]["source"] == {"scheduled": 1}
    assert rows["events/Subscriptions/audit", "messages"]["target"] == {"active": 2}
    assert rows["sessions", "messages"]["source"] == {"active": 2}
    assert {row["differing"] for row in rows.values()} == {0}


def test_each_planted_difference_is_found_by_its_number(verify: Verify) -> None:
    """A byte, a property, a state, a delivery, one that is gone, and one that is scheduled."""
    said = verify("planted")
    assert said.code == 3
    found = {row["number"]: row for row in said.rows if row["part"] == "difference"}
    parts = {number: (row["is_at"], row["differs"]) for number, row in found.items()}
    both = ["source", "target"]
    assert parts[WRONG_BODY] == (both, ["body"])
    assert parts[WRONG_PROPERTY] == (both, ["application_properties"])
    assert parts[DEFERRED_THERE][1][0] == "state"
    assert parts[GONE_THERE] == (["source"], [])
    last_is_at, last_differs = parts[COUNT + 1]
    assert (last_is_at, last_differs[0]) == (both, "state")
    others = found.keys() - {WRONG_BODY, WRONG_PROPERTY, DEFERRED_THERE, GONE_THERE, COUNT + 1}
    assert {tuple(found[number]["differs"]) for number in others} <= {("delivery_count",)}
    assert said.err.endswith(f"{len(found)} differences. Nothing was changed.\n")


def test_what_is_left_out_is_no_difference(verify: Verify) -> None:
    """The same planted ones, without a part."""
    names = ("body", "application_properties", "delivery_count")
    words = [word for name in names for word in ("--leave-out", name)]
    found = {row["number"] for row in verify("planted", *words).rows if row["part"] == "difference"}
    assert found == {DEFERRED_THERE, GONE_THERE, COUNT + 1}


def test_an_entity_that_one_side_alone_has_is_a_difference(verify: Verify) -> None:
    """By its name; and the others are compared all the same."""
    said = verify("there-alone", "sessions")
    assert said.code == 3
    rows = {(row["entity"], row["queue"]): row for row in said.rows}
    assert rows["there-alone", "messages"]["missing_at"] == ["source"]
    assert rows["sessions", "messages"]["missing_at"] == []


def test_states_of_sessions_are_compared_if_asked_and_held_sessions_named(
    verify: Verify, bridges: tuple[Bridge, Bridge]
) -> None:
    """A state that differs, one that is there alone, one without messages; each by its session."""
    for bridge, states in zip(
        bridges,
        ({"s1": b"same", "s2": b"here", "gone": b"alone"}, {"s1": b"same", "s2": b"there"}),
        strict=True,
    ):
        with client_of(bridge) as client:
            for session_id, state in states.items():
                with client.get_queue_receiver("sessions", session_id=session_id) as receiver:
                    receiver.session.set_state(state)
    assert verify("sessions").code == 0, "unasked no session is locked"
    said = verify("sessions", "--session-states")
    assert said.code == 3, said
    rows = {row["session_id"]: row["is_at"] for row in said.rows if row["part"] == "session"}
    assert rows == {"s2": ["source", "target"], "gone": ["source"]}
    (counts,) = [row for row in said.rows if row["part"] == "session_states"]
    assert (counts["compared"], counts["not_compared"], counts["differing"]) == (3, 0, 2)
    assert said.err.endswith("2 differences. Nothing was changed.\n")
    with (
        client_of(bridges[1]) as client,
        client.get_queue_receiver("sessions", session_id="s1"),
    ):
        said = verify("sessions", "--session-states")
    assert said.code == 3, said
    assert "not compared: session 's1' at the target: " in said.err
    assert verify("same", "--session-states").code == 0, "an entity without sessions has no states"


def test_an_entity_that_neither_side_has_is_a_mistake(verify: Verify) -> None:
    """Exit code 2."""
    said = verify("nothing-of-that-name")
    assert (said.code, said.out) == (2, "")
    assert "has such an entity" in said.err
