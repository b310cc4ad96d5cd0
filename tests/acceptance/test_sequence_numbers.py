"""Sequence numbers and times of enqueueing, through the real Python client."""

from __future__ import annotations

import threading
from datetime import UTC, timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.acceptance.sdk import client_of, expect_silence, now, numbers, receive, send, take

ENTITIES: dict[str, dict[str, object]] = {
    name: {}
    for name in (
        "numbers",
        "numbers-a",
        "numbers-b",
        "numbers-forged",
        "numbers-many",
        "numbers-stay",
        "numbers-time",
        "two-consumers",
    )
}


def test_from_one_without_gaps_in_order_of_arrival(bridge: Any) -> None:
    """The numbers of an entity begin at 1 and rise by one, whichever way a message was sent."""
    with client_of(bridge) as client:
        with client.get_queue_sender("numbers") as sender:
            for i in range(5):
                sender.send_messages(ServiceBusMessage(str(i)))
            sender.send_messages([ServiceBusMessage(str(i)) for i in range(5, 25)])
            batch = sender.create_message_batch()
            for i in range(25, 50):
                batch.add_message(ServiceBusMessage(str(i)))
            sender.send_messages(batch)
        with client.get_queue_receiver("numbers") as receiver:
            messages = take(receiver, 50)
        assert [str(message) for message in messages] == [str(i) for i in range(50)]
        assert numbers(messages) == list(range(1, 51))


def test_each_entity_counts_for_itself(bridge: Any) -> None:
    """Numbers are relative to the queue."""
    with client_of(bridge) as client:
        for queue in ("numbers-a", "numbers-b"):
            send(client, queue, "x", "y")
            with client.get_queue_receiver(queue) as receiver:
                assert numbers(take(receiver, 2)) == [1, 2]


def test_a_client_cannot_choose(bridge: Any) -> None:
    """Number, time, state and count that a client writes are replaced by the service's own."""
    forged = AmqpAnnotatedMessage(
        data_body=b"forged",
        header={"delivery_count": 7},
        annotations={
            b"x-opt-sequence-number": 999_999,
            b"x-opt-enqueued-time": 1,
            b"x-opt-locked-until": 1,
            b"x-opt-message-state": 2,
            b"x-opt-enqueue-sequence-number": 5,
            b"x-opt-mine": "kept",
        },
    )
    with client_of(bridge) as client:
        before = now()
        send(client, "numbers-forged", "first", forged, "third")
        with client.get_queue_receiver("numbers-forged") as receiver:
            messages = receive(receiver, 3)
            second = messages[1]
            assert second.locked_until_utc > before
            for message in messages:
                receiver.complete_message(message)
        assert numbers(messages) == [1, 2, 3]
        assert before <= second.enqueued_time_utc <= now()
        assert second.delivery_count == 0
        assert second.state.name == "ACTIVE"
        assert second.raw_amqp_message.annotations[b"x-opt-mine"] in ("kept", b"kept")


def test_concurrent_senders(bridge: Any) -> None:
    """Several senders at once: no number twice, no gap, each sender's order kept."""
    senders, each = 4, 25

    def work(name: int) -> None:
        with client_of(bridge) as own, own.get_queue_sender("numbers-many") as sender:
            for i in range(each):
                sender.send_messages(ServiceBusMessage(f"{name} {i}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with client_of(bridge) as client, client.get_queue_receiver("numbers-many") as receiver:
        messages = take(receiver, senders * each)
    assert numbers(messages) == list(range(1, senders * each + 1))
    for name in range(senders):
        mine = [str(message) for message in messages if str(message).startswith(f"{name} ")]
        assert mine == [f"{name} {i}" for i in range(each)]


def test_enqueued_time(bridge: Any) -> None:
    """The time of enqueueing is UTC, in milliseconds, the service's own, and never goes back."""
    with client_of(bridge) as client:
        before = now()
        send(client, "numbers-time", *(str(i) for i in range(20)))
        after = now()
        with client.get_queue_receiver("numbers-time") as receiver:
            times = [message.enqueued_time_utc for message in take(receiver, 20)]
        assert times == sorted(times)
        assert before <= times[0]
        assert times[-1] <= after + timedelta(milliseconds=100)
        assert all(time.utcoffset() == timedelta(0) for time in times)
        assert all(time.astimezone(UTC).microsecond % 1000 == 0 for time in times)


def test_two_consumers_complete_in_the_order_2_3_1(bridge: Any) -> None:
    """Messages are fetched in order of number; two consumers may complete them as 2, 3, 1."""
    completed = []
    with client_of(bridge) as client:
        send(client, "two-consumers", "one", "two", "three")
        with (
            client.get_queue_receiver("two-consumers") as slow,
            client.get_queue_receiver("two-consumers") as quick,
        ):
            (first,) = receive(slow)
            for _ in range(2):
                (message,) = receive(quick)
                quick.complete_message(message)
                completed.append(message.sequence_number)
            slow.complete_message(first)
            completed.append(first.sequence_number)
            assert completed == [2, 3, 1]
            expect_silence(quick)


def test_a_number_stays_with_its_message(bridge: Any) -> None:
    """Abandoning or losing a lock changes neither the number nor the time."""
    with client_of(bridge) as client:
        send(client, "numbers-stay", "x", "y")
        with client.get_queue_receiver("numbers-stay") as receiver:
            (first,) = receive(receiver)
            receiver.abandon_message(first)
            again, other = take(receiver, 2)
        assert numbers([first, again, other]) == [1, 1, 2]
        assert again.enqueued_time_utc == first.enqueued_time_utc
