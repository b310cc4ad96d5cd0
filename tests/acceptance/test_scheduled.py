"""Scheduled messages through the real Python client."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError

from tests.acceptance.sdk import (
    client_of,
    expect_silence,
    now,
    numbers,
    receive,
    seconds,
    send,
    sleep_until,
    take,
)

YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)

ENTITIES: dict[str, dict[str, object]] = {
    name: {}
    for name in (
        "schedule-at-once",
        "schedule-batch",
        "schedule-call",
        "schedule-cancel",
        "schedule-later",
        "schedule-many",
        "schedule-order",
        "schedule-past",
        "schedule-property",
        "schedule-unknown",
    )
}


def test_through_the_property(bridge: Any) -> None:
    """A message with a scheduled enqueue time is enqueued at that time, and says that it was."""
    with client_of(bridge) as client:
        due = now() + seconds(2)
        message = ServiceBusMessage("x", scheduled_enqueue_time_utc=due, subject="s")
        send(client, "schedule-property", message, "at once")
        with client.get_queue_receiver("schedule-property") as receiver:
            first, second = take(receiver, 2)
            assert now() >= due
        assert str(first) == "at once"
        assert (str(second), second.subject) == ("x", "s")
        assert due <= second.enqueued_time_utc < due + seconds(1)
        assert second.scheduled_enqueue_time_utc == due
        assert second.delivery_count == 0
        # Azure's JavaScript live test sendAndSchedule
        states = ServiceBusMessageState.ACTIVE, ServiceBusMessageState.SCHEDULED
        assert (first.state, second.state) == states


def test_property_in_a_batch(bridge: Any) -> None:
    """Each message of a batch has its own time."""
    with client_of(bridge) as client, client.get_queue_sender("schedule-batch") as sender:
        due = now() + seconds(2)
        sender.send_messages(
            [
                ServiceBusMessage("late", scheduled_enqueue_time_utc=due + seconds(0.5)),
                ServiceBusMessage("now"),
                ServiceBusMessage("soon", scheduled_enqueue_time_utc=due),
            ]
        )
        with client.get_queue_receiver("schedule-batch") as receiver:
            assert [str(message) for message in take(receiver, 3)] == ["now", "soon", "late"]


def test_through_the_call(bridge: Any) -> None:
    """Scheduling returns numbers; at activation a message gets a new one, as if sent then."""
    with client_of(bridge) as client, client.get_queue_sender("schedule-call") as sender:
        due = now() + seconds(2)
        messages = [ServiceBusMessage("a"), ServiceBusMessage("b")]
        scheduled = sender.schedule_messages(messages, due)
        assert scheduled == [1, 2]
        sender.send_messages(ServiceBusMessage("c"))
        with client.get_queue_receiver("schedule-call") as receiver:
            first, *rest = take(receiver, 3)
            assert now() >= due
        assert (str(first), first.sequence_number) == ("c", 3)
        assert [str(message) for message in rest] == ["a", "b"]
        assert numbers(rest) == [4, 5]
        for message in rest:
            assert message.scheduled_enqueue_time_utc == due
            assert message.enqueued_time_utc >= due
            assert message.delivery_count == 0


def test_due_order(bridge: Any) -> None:
    """Messages arrive in the order of their times, not of their scheduling."""
    with client_of(bridge) as client, client.get_queue_sender("schedule-order") as sender:
        start = now() + seconds(1.5)
        for i in (3, 1, 4, 0, 2):
            sender.schedule_messages(ServiceBusMessage(str(i)), start + seconds(i * 0.2))
        with client.get_queue_receiver("schedule-order") as receiver:
            messages = take(receiver, 5)
        assert [str(message) for message in messages] == ["0", "1", "2", "3", "4"]
        for i, message in enumerate(messages):
            assert message.enqueued_time_utc >= start + seconds(i * 0.2)


def test_past_and_present(bridge: Any) -> None:
    """A time that has passed means now, .NET's time for none, too; a number may be its last."""
    with client_of(bridge) as client, client.get_queue_sender("schedule-past") as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("past"), now() - seconds(60))
        with client.get_queue_receiver("schedule-past") as receiver:
            (message,) = take(receiver)
            assert str(message) == "past"
            assert message.sequence_number >= number
            none = ServiceBusMessage("none", scheduled_enqueue_time_utc=YEAR_1)
            sender.send_messages(none)
            assert [str(each) for each in take(receiver)] == ["none"]


def test_cancel(bridge: Any) -> None:
    """A cancelled message never arrives; its number is not known any more."""
    with client_of(bridge) as client, client.get_queue_sender("schedule-cancel") as sender:
        due = now() + seconds(2)
        messages = [ServiceBusMessage(str(i)) for i in range(4)]
        scheduled = sender.schedule_messages(messages, due)
        sender.cancel_scheduled_messages(scheduled[1:3])
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(scheduled[1])
        with client.get_queue_receiver("schedule-cancel") as receiver:
            assert [str(message) for message in take(receiver, 2)] == ["0", "3"]
            expect_silence(receiver)
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(scheduled[0])


def test_cancel_an_unknown_number(bridge: Any) -> None:
    """Cancelling a number that was never scheduled is Azure's error, and cancels nothing else."""
    with client_of(bridge) as client, client.get_queue_sender("schedule-unknown") as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("x"), now() + seconds(2))
        for unknown in ([987_654_321], [number, 987_654_321]):
            with pytest.raises(MessageNotFoundError):
                sender.cancel_scheduled_messages(unknown)
        with client.get_queue_receiver("schedule-unknown") as receiver:
            assert [str(message) for message in take(receiver)] == ["x"]


def test_schedule_and_cancel_at_once(bridge: Any) -> None:
    """A message that is cancelled right after it was scheduled does not come."""
    with client_of(bridge) as client, client.get_queue_sender("schedule-at-once") as sender:
        for _ in range(10):
            due = now() + seconds(1.5)
            sender.cancel_scheduled_messages(
                sender.schedule_messages([ServiceBusMessage("x"), ServiceBusMessage("y")], due)
            )
        sleep_until(due, and_s=0.5)
        with client.get_queue_receiver("schedule-at-once") as receiver:
            expect_silence(receiver)


@pytest.mark.long
def test_many_for_one_instant(bridge: Any) -> None:
    """A thousand messages for one instant all arrive, none early, in order."""
    count = 1000
    with client_of(bridge) as client, client.get_queue_sender("schedule-many") as sender:
        due = now() + seconds(5)
        scheduled: list[int] = []
        for first in range(0, count, 100):
            batch = [ServiceBusMessage(str(first + i)) for i in range(100)]
            scheduled += sender.schedule_messages(batch, due)
        # Where this takes longer than until then, active ones have numbers in between.
        assert (scheduled, len(set(scheduled))) == (sorted(scheduled), count)
        with client.get_queue_receiver("schedule-many", prefetch_count=500) as receiver:
            bodies: list[int] = []
            deadline = time.monotonic() + 120
            while len(bodies) < count and time.monotonic() < deadline:
                for message in receiver.receive_messages(500, max_wait_time=10):
                    assert message.enqueued_time_utc >= due
                    bodies.append(int(str(message)))
                    receiver.complete_message(message)
        assert bodies == list(range(count))


def test_a_scheduled_message_can_be_abandoned_after_activation(bridge: Any) -> None:
    """After its activation a scheduled message is a message as any other."""
    with client_of(bridge) as client, client.get_queue_sender("schedule-later") as sender:
        sender.schedule_messages(ServiceBusMessage("x"), now() + seconds(1))
        with client.get_queue_receiver("schedule-later") as receiver:
            (first,) = receive(receiver)
            receiver.abandon_message(first)
            (again,) = take(receiver)
        assert again.delivery_count == 1
        assert again.sequence_number == first.sequence_number
