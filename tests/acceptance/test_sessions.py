"""Sessions through the real Python client: accepting, order, locks, state, what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.acceptance.sdk import client_of, expect_silence, now, receive, take

LOCK_S = 5
_IN_SESSIONS = {"LockDuration": "PT5S", "MaxDeliveryCount": 3, "RequiresSession": True}

ENTITIES = {"sessions": _IN_SESSIONS, "next": _IN_SESSIONS, "listed": _IN_SESSIONS}
TOPICS = [
    {
        "Name": "session-topic",
        "Subscriptions": [
            {"Name": "strict", "Properties": _IN_SESSIONS},
            {"Name": "plain", "Properties": {"LockDuration": "PT5S"}},
        ],
    }
]


class Bus:
    """A client, with a sender for each queue that is sent to: opening one takes half a second."""

    def __init__(self, client: ServiceBusClient) -> None:
        self.client = client
        self._senders: dict[str, ServiceBusSender] = {}

    def sender(self, queue: str = "sessions") -> ServiceBusSender:
        """The sender of a queue."""
        if queue not in self._senders:
            self._senders[queue] = self.client.get_queue_sender(queue)
        return self._senders[queue]

    def send(self, *messages: ServiceBusMessage, queue: str = "sessions") -> None:
        """Send messages in this order."""
        self.sender(queue).send_messages(list(messages))

    def session(
        self, session_id: Any, queue: str = "sessions", **options: Any
    ) -> ServiceBusReceiver:
        """A receiver of a session; it opens when it is entered."""
        return self.client.get_queue_receiver(queue, session_id=session_id, **options)

    def dead_letters(self) -> ServiceBusReceiver:
        """A receiver of dead letters."""
        return self.client.get_queue_receiver("sessions", sub_queue=ServiceBusSubQueue.DEAD_LETTER)


@pytest.fixture(scope="module")
def bus(bridge: Any) -> Iterator[Bus]:
    """A client that does not retry."""
    with client_of(bridge) as client:
        yield Bus(client)


def of(session_id: str, *bodies: str, **fields: Any) -> Iterator[ServiceBusMessage]:
    """Messages of a session."""
    return (ServiceBusMessage(body, session_id=session_id, **fields) for body in bodies)


def bodies(messages: Iterable[ServiceBusReceivedMessage]) -> list[str]:
    """What is in messages."""
    return [str(message) for message in messages]


def test_a_session_is_received_in_order_by_one_receiver(bus: Bus) -> None:
    """Whoever else asks for it is refused until its holder is gone; others are free."""
    for number in range(3):
        bus.send(*of("one", f"a{number}"), *of("two", f"b{number}"))
    with bus.session("one") as receiver:
        assert receiver.session.session_id == "one"
        left = receiver.session.locked_until_utc - datetime.now(UTC)
        assert 3 < left.total_seconds() <= LOCK_S
        with pytest.raises(SessionCannotBeLockedError), bus.session("one"):
            pass
        with bus.session("two") as other:
            assert bodies(take(other, 3)) == ["b0", "b1", "b2"]
        first, *others = receive(receiver, 3)
        assert bodies([first, *others]) == ["a0", "a1", "a2"]
        assert (first.session_id, first.delivery_count) == ("one", 0)
        assert first.lock_token is not None
        for message in (first, *others):
            receiver.complete_message(message)
        expect_silence(receiver, for_s=0.2)
    with bus.session("one") as receiver:
        expect_silence(receiver, for_s=0.2)


def test_the_next_session_with_messages_is_given(bus: Bus) -> None:
    """Each to one receiver; who finds none waits as long as it says, or until there is one."""
    began = time.monotonic()
    with (
        pytest.raises(OperationTimeoutError),
        bus.session(NEXT_AVAILABLE_SESSION, "next", max_wait_time=1),
    ):
        pass
    assert time.monotonic() - began < 4
    bus.send(*of("first", "1"), *of("second", "2"), queue="next")
    with (
        bus.session(NEXT_AVAILABLE_SESSION, "next", max_wait_time=5) as one,
        bus.session(NEXT_AVAILABLE_SESSION, "next", max_wait_time=5) as other,
    ):
        found = {one.session.session_id, other.session.session_id}
        assert found == {"first", "second"}
        assert sorted(bodies(take(one) + take(other))) == ["1", "2"]
        later = threading.Timer(0.5, bus.send, of("third", "3"), {"queue": "next"})
        later.start()
        began = time.monotonic()
        with bus.session(NEXT_AVAILABLE_SESSION, "next", max_wait_time=9) as third:
            assert third.session.session_id == "third"
            assert bodies(take(third)) == ["3"]
        later.join()
        assert time.monotonic() - began < 6


def test_locks_end_unless_they_are_renewed(bus: Bus) -> None:
    """A lapsed lock counts a delivery; a renewed one holds, by hand or by the client's renewer."""
    with AutoLockRenewer() as renewer:
        for name in ("lapses", "renewed", "kept"):
            bus.send(*of(name, "x", "y"))
        with (
            bus.session("lapses") as lapses,
            bus.session("renewed") as renewed,
            bus.session("kept", auto_lock_renewer=renewer) as kept,
        ):
            messages = [receive(receiver)[0] for receiver in (lapses, renewed, kept)]
            end = lapses.session.locked_until_utc
            time.sleep(2)
            before = renewed.session.locked_until_utc
            until = renewed.session.renew_lock()
            assert until - before > timedelta(seconds=1)
            assert until <= now() + timedelta(seconds=LOCK_S + 1)
            time.sleep(max(0.0, (end - now()).total_seconds()) + 0.7)
            with pytest.raises(SessionLockLostError):
                lapses.complete_message(messages[0])
            with pytest.raises(SessionLockLostError):
                lapses.session.renew_lock()
            with bus.session("lapses") as again:
                (message,) = receive(again)
                assert (str(message), message.delivery_count) == ("x", 1)
                again.complete_message(message)
                (message,) = receive(again)
                assert (str(message), message.delivery_count) == ("y", 0)
                again.complete_message(message)
            renewed.complete_message(messages[1])
            time.sleep(2)
            kept.complete_message(messages[2])
            assert kept.session.auto_renew_error is None
            assert bodies(take(kept)) == ["y"]


def test_a_closed_receiver_counts_nothing(bus: Bus) -> None:
    """Its session is free at once, with what it had not settled, in order."""
    bus.send(*of("closed", "a", "b", "c"))
    for _ in range(4):  # more often than MaxDeliveryCount
        with bus.session("closed") as receiver:
            found = receive(receiver, 3)
            assert [each.delivery_count for each in found] == [0, 0, 0]
            assert bodies(found) == ["a", "b", "c"]
    with bus.session("closed") as receiver:
        take(receiver, 3)


def test_an_abandoned_message_comes_first_again(bus: Bus) -> None:
    """Order holds under abandon; too often, and the message is a dead letter."""
    bus.send(*of("order", "a", "b", "c"))
    with bus.session("order") as receiver:
        for count in range(3):
            (message,) = receive(receiver)
            assert (str(message), message.delivery_count) == ("a", count)
            receiver.abandon_message(message)
        assert bodies(take(receiver, 2)) == ["b", "c"]
    with bus.dead_letters() as receiver:
        (message,) = take(receiver)
    assert (message.session_id, message.dead_letter_reason) == (
        "order",
        "MaxDeliveryCountExceeded",
    )


def test_state_is_kept_with_the_session(bus: Bus) -> None:
    """What was set is there for the next holder, 256 KB at most; None and b"" clear it."""
    with bus.session("state") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state("first")
        assert receiver.session.get_state() == b"first"
    with bus.session("state") as receiver:
        assert receiver.session.get_state() == b"first"
        largest = bytes(range(256)) * 1024
        receiver.session.set_state(largest)
        assert receiver.session.get_state() == largest
        with pytest.raises(MessageSizeExceededError):
            receiver.session.set_state(largest + b"x")
        assert receiver.session.get_state() == largest
        for nothing in (None, b""):
            receiver.session.set_state("second")
            receiver.session.set_state(nothing)
            assert receiver.session.get_state() is None


def test_sessions_are_listed(bus: Bus) -> None:
    """Those with messages or a state, page by page; or those whose state was set since a time."""
    assert list(bus.client.list_queue_sessions("listed")) == []
    names = [f"s{number:03}" for number in range(120)]
    bus.send(*(ServiceBusMessage("x", session_id=name) for name in names), queue="listed")
    with bus.session("empty", "listed") as receiver:
        began = now() - timedelta(seconds=1)
        receiver.session.set_state(b"mine")
    assert sorted(bus.client.list_queue_sessions("listed")) == ["empty", *names]
    assert list(bus.client.list_queue_sessions("listed", state_updated_after=began)) == ["empty"]
    later = now() + timedelta(hours=1)
    assert list(bus.client.list_queue_sessions("listed", state_updated_after=later)) == []


def test_deferred_messages_stay_in_their_session(bus: Bus) -> None:
    """They are received under its lock, by whoever holds it then, and settled as any."""
    bus.send(*of("defers", "a", "b", "c"))
    with bus.session("defers") as receiver:
        first, second, third = receive(receiver, 3)
        receiver.defer_message(first)
        receiver.defer_message(second)
        receiver.complete_message(third)
        expect_silence(receiver, for_s=0.2)
    with bus.session("other") as receiver, pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages([first.sequence_number])
    with bus.session("defers") as receiver:
        numbers = [first.sequence_number, second.sequence_number]
        one, other = receiver.receive_deferred_messages(numbers)
        assert bodies([one, other]) == ["a", "b"]
        receiver.complete_message(one)
        receiver.dead_letter_message(other, reason="done with")
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(numbers)
    with bus.dead_letters() as receiver:
        (message,) = take(receiver)
    assert (str(message), message.session_id, message.dead_letter_reason) == (
        "b",
        "defers",
        "done with",
    )


def test_other_ways_to_receive_a_session(bus: Bus) -> None:
    """Receive and delete; a scheduled message; a dead letter, which is read without a session."""
    due = now() + timedelta(seconds=1)
    bus.sender().schedule_messages(next(of("ways", "late")), due)
    bus.send(*of("ways", "a", "b"))
    deleting = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with bus.session("ways", receive_mode=deleting) as receiver:
        assert bodies(receive(receiver, 3)) == ["a", "b", "late"]
    bus.send(*of("ways", "bad"))
    with bus.session("ways") as receiver:
        (message,) = receive(receiver)
        receiver.dead_letter_message(message, reason="why", error_description="because")
    with bus.dead_letters() as receiver:
        (message,) = take(receiver)
    assert (str(message), message.dead_letter_reason) == ("bad", "why")


def test_what_a_session_queue_refuses(bus: Bus) -> None:
    """A message without session id, by each way, and with it its batch; a plain receiver."""
    sender = bus.sender()
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        sender.send_messages(ServiceBusMessage("none"))
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        sender.schedule_messages(ServiceBusMessage("none"), now() + timedelta(hours=1))
    with pytest.raises(ServiceBusError, match="SessionId was not set"):
        sender.send_messages([*of("refused", "with"), ServiceBusMessage("without")])
    keyed = AmqpAnnotatedMessage(
        data_body=b"x",
        properties={"group_id": "refused"},
        annotations={"x-opt-partition-key": "other"},
    )
    with pytest.raises(ServiceBusError, match="PartitionKey:other"):
        sender.send_messages(keyed)
    with (
        pytest.raises(ServiceBusError, match="create a non-sessionful message receiver"),
        bus.client.get_queue_receiver("sessions") as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=1)
    with bus.session("refused") as receiver:
        expect_silence(receiver, for_s=0.2)


def test_a_subscription_that_requires_sessions(bus: Bus) -> None:
    """Its messages come in sessions; one without session id is a dead letter of it alone."""
    with bus.client.get_topic_sender("session-topic") as sender:
        sender.send_messages([*of("one", "a", "b")])
        sender.send_messages(ServiceBusMessage("stray"))
    strict = bus.client.get_subscription_receiver("session-topic", "strict", session_id="one")
    with strict as receiver:
        assert bodies(take(receiver, 2)) == ["a", "b"]
        receiver.session.set_state(b"mine")
    assert list(bus.client.list_subscription_sessions("session-topic", "strict")) == ["one"]
    with bus.client.get_subscription_receiver("session-topic", "plain") as receiver:
        assert bodies(take(receiver, 3)) == ["a", "b", "stray"]
    dead = bus.client.get_subscription_receiver(
        "session-topic", "strict", sub_queue=ServiceBusSubQueue.DEAD_LETTER
    )
    with dead as receiver:
        (message,) = take(receiver)
    assert (str(message), message.dead_letter_reason) == ("stray", "Session ID is null.")
    assert message.dead_letter_error_description == (
        "Session enabled entity doesn't allow a message whose session identifier is null."
    )
