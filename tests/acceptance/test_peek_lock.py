"""Peek-lock through the real Python client: locks, settlement, counts."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import pytest
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from tests.acceptance.sdk import (
    client_of,
    expect_silence,
    native_channel,
    numbers,
    receive,
    send,
    sleep_until,
    take,
)

ENTITIES = {
    name: {"LockDuration": "PT5S", "MaxDeliveryCount": 10}
    for name in (
        "abandon",
        "annotations",
        "competing",
        "iterate",
        "leaving",
        "lock-complete",
        "lock-ends",
        "lock-instant",
        "lock-renew",
        "lock-renewer",
        "no-sessions",
        "outlives-connection",
        "outlives-link",
        "prefetch",
        "receive-and-delete",
        "receive-and-delete-order",
    )
} | {
    "max-delivery": {"LockDuration": "PT5S", "MaxDeliveryCount": 3},
    "release": {"LockDuration": "PT1M"},  # no lock is to end by itself
}

LOCK_S = 5
"""LockDuration of these queues."""


def test_a_completed_message_is_gone(bridge: Any) -> None:
    """A completed message comes back neither at once nor when its lock would have ended."""
    with client_of(bridge) as client:
        send(client, "lock-complete", "once")
        with client.get_queue_receiver("lock-complete") as receiver:
            (message,) = receive(receiver)
            assert message.delivery_count == 0
            raw = message.raw_amqp_message
            assert raw.delivery_annotations == {b"x-opt-lock-token": message.lock_token}
            assert message.lock_token == uuid.UUID(bytes_le=message._delivery_tag)
            receiver.complete_message(message)
            expect_silence(receiver, for_s=LOCK_S + 1)


def test_delivery_annotations_arrive_as_sent(bridge: Any) -> None:
    """Behind the token; whoever receives and deletes gets them alone."""
    sent = {b"mine": b"value", b"number": 3}
    with client_of(bridge) as client:
        for mode in ServiceBusReceiveMode:
            with client.get_queue_sender("annotations") as sender:
                message = AmqpAnnotatedMessage(data_body=b"x", delivery_annotations=sent)
                sender.send_messages(message)
            with client.get_queue_receiver("annotations", receive_mode=mode) as receiver:
                (received,) = receive(receiver)
                found = dict(received.raw_amqp_message.delivery_annotations or {})
                if mode is ServiceBusReceiveMode.PEEK_LOCK:
                    assert found.pop(b"x-opt-lock-token") == received.lock_token
                    receiver.complete_message(received)
                assert found == sent


def test_lock_ends(bridge: Any) -> None:
    """When the lock ends, settling and renewing fail, and the message is delivered again."""
    with client_of(bridge) as client:
        send(client, "lock-ends", "slow")
        with client.get_queue_receiver("lock-ends") as receiver:
            (message,) = receive(receiver)
            sleep_until(message.locked_until_utc, and_s=0.5)
            with pytest.raises(MessageLockLostError):
                receiver.complete_message(message)
            with pytest.raises(MessageLockLostError):
                receiver.renew_message_lock(message)
            (again,) = receive(receiver)
            assert again.delivery_count == 1
            assert again.sequence_number == message.sequence_number
            assert again.lock_token != message.lock_token
            receiver.complete_message(again)


def test_lock_holds_until_its_instant(bridge: Any) -> None:
    """Nobody else gets a locked message before the instant that its holder was told."""
    with client_of(bridge) as client:
        send(client, "lock-instant", "mine")
        with (
            client.get_queue_receiver("lock-instant") as holder,
            client.get_queue_receiver("lock-instant") as other,
        ):
            (message,) = receive(holder)
            (later,) = receive(other)
            # The next lock begins when the message is delivered again: its end tells when.
            begins = later.locked_until_utc.timestamp() - LOCK_S
            assert begins >= message.locked_until_utc.timestamp()
            assert later.delivery_count == 1
            other.complete_message(later)


def test_renewal_gives_a_full_lock_from_now(bridge: Any) -> None:
    """Two renewals keep a message completable long after its first lock's end."""
    with client_of(bridge) as client:
        send(client, "lock-renew", "long work")
        with client.get_queue_receiver("lock-renew") as receiver:
            (message,) = receive(receiver)
            for _ in range(2):
                time.sleep(LOCK_S * 0.6)
                before = time.time()
                until = receiver.renew_message_lock(message)
                after = time.time()
                assert before - 0.01 <= until.timestamp() - LOCK_S <= after
            time.sleep(LOCK_S * 0.6)
            receiver.complete_message(message)
            expect_silence(receiver)


def test_automatic_renewal(bridge: Any) -> None:
    """The client's own renewer keeps a lock for as long as the work takes."""
    with client_of(bridge) as client, AutoLockRenewer() as renewer:
        send(client, "lock-renewer", "long work")
        with client.get_queue_receiver("lock-renewer") as receiver:
            (message,) = receive(receiver)
            renewer.register(receiver, message, max_lock_renewal_duration=60)
            time.sleep(LOCK_S * 2)
            receiver.complete_message(message)


def test_abandon(bridge: Any) -> None:
    """An abandoned message is there at once, before later ones, one more on its count."""
    with client_of(bridge) as client:
        send(client, "abandon", "first", "second")
        with client.get_queue_receiver("abandon") as receiver:
            for count in range(3):
                (message,) = receive(receiver)
                assert str(message) == "first"
                assert message.delivery_count == count
                receiver.abandon_message(message)
            first, second = take(receiver, 2)
            assert (str(first), first.delivery_count) == ("first", 3)
            assert (str(second), second.delivery_count) == ("second", 0)


def test_max_delivery_count(bridge: Any) -> None:
    """A message is delivered MaxDeliveryCount times and then dead-lettered, whoever failed it."""
    with client_of(bridge) as client:
        send(client, "max-delivery", "hopeless")
        with (
            client.get_queue_receiver("max-delivery") as receiver,
            client.get_queue_receiver("max-delivery", sub_queue="deadletter") as dead,
        ):
            for count in range(2):
                (message,) = receive(receiver)
                assert message.delivery_count == count
                receiver.abandon_message(message)
            (message,) = receive(receiver)
            sleep_until(message.locked_until_utc)
            (found,) = take(dead)
            assert found.dead_letter_reason == "MaxDeliveryCountExceeded"
            assert found.delivery_count == 3
            assert found.dead_letter_error_description == (
                "Message couldn't be consumed after maximum delivery attempts."
            )
            expect_silence(receiver)


def test_fifty_releases_leave_the_count_alone(bridge: Any) -> None:
    """A message that is released fifty times has been delivered to nobody."""
    with client_of(bridge) as client:
        send(client, "release", "patient", "next")
        with client.get_queue_receiver("release") as receiver:
            for _ in range(50):
                (message,) = receive(receiver)
                assert str(message) == "patient"
                assert message.delivery_count == 0
                receiver._handler.settle_messages(
                    message._delivery_id, message._delivery_tag, "released"
                )
            messages = take(receiver, 2)
            assert [str(message) for message in messages] == ["patient", "next"]
            assert [message.delivery_count for message in messages] == [0, 0]


@pytest.mark.long
def test_what_a_leaving_receiver_did_not_read(bridge: Any) -> None:
    """Five receivers ask for five, take one and leave; no message counts a delivery for it."""
    with client_of(bridge) as client:
        for _ in range(5):
            send(client, "leaving", "early")
            with client.get_queue_receiver("leaving") as receiver:
                messages = receiver.receive_messages(5, max_wait_time=120)
                receiver.complete_message(messages[0])
                for message in messages[1:]:
                    receiver._handler.settle_messages(
                        message._delivery_id, message._delivery_tag, "released"
                    )
                # The rest of the five is still asked for: these come and are not read.
                send(client, "leaving", "late", "late")
        with client.get_queue_receiver("leaving") as receiver:
            left = take(receiver, 10)
            assert [message.delivery_count for message in left] == [0] * 10
            assert numbers(left) == sorted(numbers(left))
            expect_silence(receiver)


def test_messages_in_the_clients_buffer(bridge: Any) -> None:
    """The lock runs while a message lies in the client's buffer; then it is delivered again."""
    with client_of(bridge) as client:
        send(client, "prefetch", *(f"m{i}" for i in range(5)))
        with client.get_queue_receiver("prefetch", prefetch_count=10) as receiver:
            (first,) = receive(receiver)
            receiver.complete_message(first)
            time.sleep(LOCK_S + 1)
            stale = receive(receiver, 1)[0]
            assert stale.delivery_count == 0
            with pytest.raises(ServiceBusError):
                receiver.complete_message(stale)
        with client.get_queue_receiver("prefetch") as receiver:
            messages = take(receiver, 4)
            assert all(message.delivery_count >= 1 for message in messages)
            assert [str(message) for message in messages] == [f"m{i}" for i in range(1, 5)]


def test_a_lock_outlives_its_link(bridge: Any) -> None:
    """A message is completed through another receiver after the one that got it has closed."""
    with client_of(bridge) as client:
        send(client, "outlives-link", "mine")
        with client.get_queue_receiver("outlives-link") as receiver:
            (message,) = receive(receiver)
            locked_until = message.locked_until_utc
        with client.get_queue_receiver("outlives-link") as other:
            expect_silence(other)
            other.complete_message(message)
            sleep_until(locked_until, and_s=0.5)
            expect_silence(other)


KILLED_CLIENT = """
import os, signal, sys
from azure.servicebus import ServiceBusClient

client = ServiceBusClient.from_connection_string(sys.argv[1])
(message,) = client.get_queue_receiver("outlives-connection").receive_messages(1, max_wait_time=120)
print(message.locked_until_utc.timestamp(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lock_outlives_its_connection(bridge: Any) -> None:
    """When a client dies its lock runs to its end; then the message counts one delivery."""
    with client_of(bridge) as client:
        send(client, "outlives-connection", "mine")
        died = subprocess.run(
            [sys.executable, "-c", KILLED_CLIENT, bridge.connection_string],
            capture_output=True,
            text=True,
            check=False,
        )
        assert died.returncode == -signal.SIGKILL, died.stderr
        locked_until_s = float(died.stdout)
        with client.get_queue_receiver("outlives-connection") as other:
            (again,) = receive(other)
            assert again.delivery_count == 1
            assert again.locked_until_utc.timestamp() - LOCK_S >= locked_until_s
            other.complete_message(again)


def test_receive_and_delete(bridge: Any) -> None:
    """In receive-and-delete a message is gone when it has been sent to the client."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client_of(bridge) as client:
        send(client, "receive-and-delete", "a", "b", "c")
        with client.get_queue_receiver("receive-and-delete", receive_mode=mode) as receiver:
            messages = receive(receiver, 3)
            assert [str(message) for message in messages] == ["a", "b", "c"]
            assert all(message.delivery_count == 0 for message in messages)
            assert [len(message._delivery_tag) for message in messages] == [16] * 3
            with pytest.raises(ValueError, match=r"RECEIVE_AND_DELETE|receive_mode|peek"):
                receiver.complete_message(messages[0])
        with client.get_queue_receiver("receive-and-delete") as receiver:
            expect_silence(receiver, for_s=LOCK_S + 1)
        with native_channel(bridge) as channel:
            queue = channel.queue_declare("receive-and-delete", passive=True)
            assert queue.method.message_count == 0


@pytest.mark.parametrize("prefetch_count", [0, 200])
def test_what_is_received_and_deleted_comes_in_order(bridge: Any, prefetch_count: int) -> None:
    """A receiver that takes a backlog in parts has it in the order of its numbers."""
    queue, mode = "receive-and-delete-order", ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client_of(bridge) as client:
        with client.get_queue_sender(queue) as sender:
            for _ in range(2):
                sender.send_messages([ServiceBusMessage("one of many")] * 500)
        receiver = client.get_queue_receiver(
            queue, receive_mode=mode, prefetch_count=prefetch_count, max_wait_time=120
        )
        with receiver:
            found: list[int] = []
            while len(found) < 1_000:
                part = numbers(receiver.receive_messages(50))
                assert part, "the queue seems to be empty"
                found += part
    assert found == list(range(found[0], found[0] + 1_000))


def test_receiving_by_iteration(bridge: Any) -> None:
    """Iterating gives each message, an abandoned one a second time."""
    with client_of(bridge) as client:
        send(client, "iterate", *(f"m{i}" for i in range(5)))
        with client.get_queue_receiver("iterate", max_wait_time=2) as receiver:
            seen = []
            for message in receiver:
                seen.append(str(message))
                if message.delivery_count == 0 and str(message) == "m2":
                    receiver.abandon_message(message)
                else:
                    receiver.complete_message(message)
        assert sorted(seen) == ["m0", "m1", "m2", "m2", "m3", "m4"]


def test_competing_receivers(bridge: Any) -> None:
    """Every message goes to exactly one of several receivers at a time."""
    count = 60
    with client_of(bridge) as client:
        with client.get_queue_sender("competing") as sender:
            sender.send_messages([ServiceBusMessage(str(i)) for i in range(count)])
        seen: list[int] = []

        def work() -> None:
            with client_of(bridge) as own, own.get_queue_receiver("competing") as receiver:
                while messages := receiver.receive_messages(7, max_wait_time=2):
                    for message in messages:
                        assert message.delivery_count == 0
                        receiver.complete_message(message)
                        seen.append(int(str(message)))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seen) == list(range(count))


def test_session_id_on_a_queue_without_sessions(bridge: Any) -> None:
    """A message with a session id is received as any other; a session cannot be opened."""
    with client_of(bridge) as client:
        send(client, "no-sessions", ServiceBusMessage("x", session_id="s1"))
        with client.get_queue_receiver("no-sessions") as receiver:
            (message,) = take(receiver)
            assert message.session_id == "s1"
        with (
            pytest.raises(ServiceBusError),
            client.get_queue_receiver("no-sessions", session_id="s1") as receiver,
        ):
            receiver.receive_messages(max_wait_time=1)
