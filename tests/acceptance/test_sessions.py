"""Sessions through the real Python client, and through the library: one contract.

Accepting, order, locks, state, what is refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage

from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import expect_silence, now, receive, take
from tests.fixtures.waiting import eventually

LOCK_S = 5
LOCKED_UNTIL = b"x-opt-locked-until"
LAST_MS = 253_402_300_799_999
_IN_SESSIONS = {"LockDuration": "PT5S", "MaxDeliveryCount": 3, "RequiresSession": True}

ENTITIES = {
    f"{name}-{lane}": _IN_SESSIONS
    for name in ("sessions", "next", "listed", "cases")
    for lane in LANES
}
TOPICS = [
    {
        "Name": f"session-topic-{lane}",
        "Subscriptions": [
            {"Name": "strict", "Properties": _IN_SESSIONS},
            {"Name": "plain", "Properties": {"LockDuration": "PT5S"}},
            {
                "Name": "spelt",
                "Properties": {"LockDuration": "PT5S"},
                "Rules": [
                    {
                        "Name": "spelt",
                        "Properties": {
                            "FilterType": "Correlation",
                            "CorrelationFilter": {"SessionId": "Filtered"},
                        },
                    }
                ],
            },
        ],
    }
    for lane in LANES
]


class Bus:
    """A client, with a sender for each queue that is sent to: opening one takes half a second."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.client = lane.client
        self.words = lane.words
        self.errors = lane.errors
        self._senders: dict[str, Any] = {}

    def name(self, entity: str) -> str:
        """The client's own entity of this name."""
        return f"{entity}-{self.lane.name}"

    def sender(self, queue: str = "sessions") -> Any:
        """The sender of a queue."""
        if queue not in self._senders:
            self._senders[queue] = self.client.get_queue_sender(self.name(queue))
        return self._senders[queue]

    def of(self, session_id: str, *bodies: str, **fields: Any) -> Iterator[Any]:
        """Messages of a session."""
        return (self.lane.message(body, session_id=session_id, **fields) for body in bodies)

    def send(self, *messages: Any, queue: str = "sessions") -> None:
        """Send messages in this order."""
        self.sender(queue).send_messages(list(messages))

    def session(self, session_id: Any, queue: str = "sessions", **options: Any) -> Any:
        """A receiver of a session; it opens when it is entered."""
        return self.client.get_queue_receiver(self.name(queue), session_id=session_id, **options)

    def next_session(self, queue: str, **options: Any) -> Any:
        """A receiver of the next session; it opens when it is entered."""
        return self.session(self.words.NEXT_AVAILABLE_SESSION, queue, **options)

    def dead_letters(self) -> Any:
        """A receiver of dead letters."""
        return self.client.get_queue_receiver(self.name("sessions"), sub_queue="deadletter")


@pytest.fixture(scope="module", params=LANES)
def bus(request: pytest.FixtureRequest, bridge: Any) -> Iterator[Bus]:
    """The SDK through the gateway, and the library in both lanes; none retries."""
    with lane_of(request.param, bridge) as lane:
        yield Bus(lane)


def bodies(messages: Iterable[Any]) -> list[str]:
    """What is in messages."""
    return [str(message) for message in messages]


def test_a_session_is_received_in_order_by_one_receiver(bus: Bus) -> None:
    """Other receivers are refused until the holder is gone; other sessions are free."""
    for number in range(3):
        bus.send(*bus.of("one", f"a{number}"), *bus.of("two", f"b{number}"))
    with bus.session("one") as receiver:
        assert receiver.session.session_id == "one"
        left = receiver.session.locked_until_utc - datetime.now(UTC)
        assert 3 < left.total_seconds() <= LOCK_S
        with pytest.raises(bus.errors.SessionCannotBeLockedError), bus.session("one"):
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


def test_a_session_id_has_no_case(bus: Bus) -> None:
    """One session, lock, order and state, however its id is spelt; each message keeps its own."""
    for spelling in ("Order-7", "oRDER-7", "ORDER-7"):
        bus.send(*bus.of(spelling, f"of {spelling}"))
    with bus.session("order-7") as receiver:
        assert receiver.session.session_id == "order-7"
        with pytest.raises(bus.errors.SessionCannotBeLockedError), bus.session("ORDER-7"):
            pass
        spelt = ["Order-7", "oRDER-7", "ORDER-7"]
        assert [each.session_id for each in receiver.peek_messages(3)] == spelt
        first, second, third = receive(receiver, 3)
        assert [each.session_id for each in (first, second, third)] == spelt
        assert bodies([first, second, third]) == [f"of {each}" for each in spelt]
        receiver.session.renew_lock()
        receiver.session.set_state("kept")
        receiver.complete_message(first)
        receiver.defer_message(second)
        receiver.complete_message(third)
    with bus.session("ORDER-7") as receiver:
        assert receiver.session.get_state() == b"kept"
        (deferred,) = receiver.receive_deferred_messages([second.sequence_number])
        assert (str(deferred), deferred.session_id) == ("of oRDER-7", "oRDER-7")
        receiver.complete_message(deferred)
        receiver.session.set_state(None)
        expect_silence(receiver, for_s=0.2)
    with bus.session("order-7") as receiver:
        assert receiver.session.get_state() in (None, b"")


def test_the_next_session_has_the_id_of_its_oldest_message(bus: Bus) -> None:
    """As that message has it."""
    bus.send(*bus.of("Next", "1"), queue="cases")
    bus.send(*bus.of("nEXT", "2"), queue="cases")
    with bus.next_session("cases", max_wait_time=120) as receiver:
        assert receiver.session.session_id == "Next"
        assert bodies(take(receiver)) == ["1"]
    with bus.next_session("cases", max_wait_time=120) as receiver:
        assert receiver.session.session_id == "nEXT"
        receiver.session.renew_lock()
        assert bodies(take(receiver)) == ["2"]


def test_a_message_of_a_session_has_no_lock_of_its_own(bus: Bus) -> None:
    """Its annotation says the year 9999, also of one that is deferred and peeked, as at Azure."""
    bus.send(*bus.of("locked", "1"), *bus.of("locked", "2"))
    with bus.session("locked") as receiver:
        first, second = receive(receiver, 2)
        receiver.defer_message(first)
        (peeked,) = receiver.peek_messages(1, sequence_number=first.sequence_number)
        if bus.lane.name == "azure":
            assert first.locked_until_utc is None
            assert first._raw_amqp_message.annotations[LOCKED_UNTIL] == LAST_MS
            assert peeked._raw_amqp_message.annotations[LOCKED_UNTIL] == LAST_MS
            peeked._receiver = None  # who peeks without a session reads the annotation
            assert peeked.locked_until_utc.year == 9999
        left = receiver.session.locked_until_utc - datetime.now(UTC)
        assert left.total_seconds() <= LOCK_S
        (again,) = receiver.receive_deferred_messages([first.sequence_number])
        for message in (again, second):
            receiver.complete_message(message)


def test_filters_compare_session_ids_as_they_are_written(bus: Bus) -> None:
    """A correlation filter takes one spelling alone; its session has both."""
    topic = bus.name("session-topic")
    with bus.client.get_topic_sender(topic) as sender:
        sender.send_messages([*bus.of("Filtered", "1"), *bus.of("filtered", "2")])
    with bus.client.get_subscription_receiver(topic, "spelt") as receiver:
        assert bodies(take(receiver)) == ["1"]
        expect_silence(receiver, for_s=0.2)
    with bus.client.get_subscription_receiver(topic, "plain") as receiver:
        assert bodies(take(receiver, 2)) == ["1", "2"]
    with bus.client.get_subscription_receiver(topic, "strict", session_id="FILTERED") as receiver:
        assert bodies(take(receiver, 2)) == ["1", "2"]


def test_the_next_session_with_messages_is_given(bus: Bus) -> None:
    """Each to one receiver; who finds none waits as long as it says, or until there is one."""
    began = time.monotonic()
    with (
        pytest.raises(bus.errors.OperationTimeoutError),
        bus.next_session("next", max_wait_time=1),
    ):
        pass
    assert time.monotonic() - began < 30
    bus.send(*bus.of("first", "1"), *bus.of("second", "2"), queue="next")
    with (
        bus.next_session("next", max_wait_time=120) as one,
        bus.next_session("next", max_wait_time=120) as other,
    ):
        found = {one.session.session_id, other.session.session_id}
        assert found == {"first", "second"}
        assert sorted(bodies(take(one) + take(other))) == ["1", "2"]
        later = threading.Timer(0.5, bus.send, bus.of("third", "3"), {"queue": "next"})
        later.start()
        began = time.monotonic()
        with bus.next_session("next", max_wait_time=120) as third:
            assert third.session.session_id == "third"
            assert bodies(take(third)) == ["3"]
        later.join()
        assert time.monotonic() - began < 60


def _locks(bus: Bus) -> None:
    with bus.lane.renewer() as renewer:
        for name in ("lapses", "renewed", "kept"):
            bus.send(*bus.of(name, "x", "y"))
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
            with pytest.raises(bus.errors.SessionLockLostError):
                lapses.complete_message(messages[0])
            with pytest.raises(bus.errors.SessionLockLostError):
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


def test_locks_end_unless_they_are_renewed(bridge: Any) -> None:
    """A lapsed lock counts a delivery; a renewed one holds, by hand or by the client's renewer."""

    def run(name: str) -> None:
        with lane_of(name, bridge) as lane:
            _locks(Bus(lane))

    with ThreadPoolExecutor() as pool:
        list(pool.map(run, LANES))


def test_a_closed_receiver_counts_nothing(bus: Bus) -> None:
    """Its session is free at once, with what it had not settled, in order."""
    bus.send(*bus.of("closed", "a", "b", "c"))
    for _ in range(4):  # more often than MaxDeliveryCount
        with bus.session("closed") as receiver:
            found = receive(receiver, 3)
            assert [each.delivery_count for each in found] == [0, 0, 0]
            assert bodies(found) == ["a", "b", "c"]
    with bus.session("closed") as receiver:
        take(receiver, 3)


def test_an_abandoned_message_comes_first_again(bus: Bus) -> None:
    """Order holds under abandon; too often, and the message is a dead letter."""
    bus.send(*bus.of("order", "a", "b", "c"))
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
    """The next holder gets the state, of 256 KB at most; None and b"" clear it."""
    with bus.session("state") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state("first")
        assert receiver.session.get_state() == b"first"
    with bus.session("state") as receiver:
        assert receiver.session.get_state() == b"first"
        largest = bytes(range(256)) * 1024
        receiver.session.set_state(largest)
        assert receiver.session.get_state() == largest
        with pytest.raises(bus.errors.MessageSizeExceededError):
            receiver.session.set_state(largest + b"x")
        assert receiver.session.get_state() == largest
        for nothing in (None, b""):
            receiver.session.set_state("second")
            receiver.session.set_state(nothing)
            assert receiver.session.get_state() is None


def test_sessions_are_listed(bus: Bus) -> None:
    """Those with messages or a state, page by page; or those whose state was set since a time."""
    assert list(bus.client.list_queue_sessions(bus.name("listed"))) == []
    names = [f"s{number:03}" for number in range(120)]
    bus.send(*(bus.lane.message("x", session_id=name) for name in names), queue="listed")
    with bus.session("empty", "listed") as receiver:
        began = now() - timedelta(seconds=1)
        receiver.session.set_state(b"mine")
    eventually(  # a send is answered before its messages have their numbers
        lambda: sorted(bus.client.list_queue_sessions(bus.name("listed"))) == ["empty", *names],
        "each session is listed",
    )
    assert list(bus.client.list_queue_sessions(bus.name("listed"), state_updated_after=began)) == [
        "empty"
    ]
    later = now() + timedelta(hours=1)
    assert list(bus.client.list_queue_sessions(bus.name("listed"), state_updated_after=later)) == []


def test_deferred_messages_stay_in_their_session(bus: Bus) -> None:
    """They are received under its lock, by whoever holds it then, and settled as any."""
    bus.send(*bus.of("defers", "a", "b", "c"))
    with bus.session("defers") as receiver:
        first, second, third = receive(receiver, 3)
        receiver.defer_message(first)
        receiver.defer_message(second)
        receiver.complete_message(third)
        expect_silence(receiver, for_s=0.2)
    with bus.session("other") as receiver, pytest.raises(bus.errors.MessageNotFoundError):
        receiver.receive_deferred_messages([first.sequence_number])
    with bus.session("defers") as receiver:
        numbers = [first.sequence_number, second.sequence_number]
        one, other = receiver.receive_deferred_messages(numbers)
        assert bodies([one, other]) == ["a", "b"]
        receiver.complete_message(one)
        receiver.dead_letter_message(other, reason="done with")
        with pytest.raises(bus.errors.MessageNotFoundError):
            receiver.receive_deferred_messages(numbers)
    with bus.dead_letters() as receiver:
        (message,) = take(receiver)
    assert (str(message), message.session_id, message.dead_letter_reason) == (
        "b",
        "defers",
        "done with",
    )


def test_peeking_shows_the_session_only(bus: Bus) -> None:
    """Its waiting messages, from a number on; none is locked."""
    bus.send(*bus.of("peeked", "a"), *bus.of("another", "b"), *bus.of("peeked", "c"))
    with bus.session("peeked") as receiver:
        found = receiver.peek_messages(5)
        assert bodies(found) == ["a", "c"]
        assert bodies(receiver.peek_messages(5, sequence_number=found[1].sequence_number)) == ["c"]
        take(receiver, 2)
    with bus.session("another") as receiver:
        take(receiver)


def test_a_receiver_that_is_not_entered(bus: Bus) -> None:
    """It accepts its session at its first call, and waits for `max_wait_time`."""
    bus.send(*bus.of("first call", "a"))
    receiver = bus.session("first call")
    assert bodies(take(receiver)) == ["a"]
    receiver.close()
    waiting = bus.next_session("next")
    began = time.monotonic()
    with pytest.raises(bus.errors.OperationTimeoutError):
        waiting.receive_messages(1, max_wait_time=1)
    assert time.monotonic() - began < 30
    waiting.close()
    bus.send(*bus.of("typed", "a"))
    with bus.session("typed") as receiver:
        (message,) = receive(receiver)
        with pytest.raises(TypeError, match="session lock"):
            receiver.renew_message_lock(message)
        receiver.complete_message(message)


def test_other_ways_to_receive_a_session(bus: Bus) -> None:
    """Receive and delete; a scheduled message; a dead letter, which is read without a session."""
    due = now() + timedelta(seconds=1)
    bus.sender().schedule_messages(next(bus.of("ways", "late")), due)
    bus.send(*bus.of("ways", "a", "b"))
    deleting = bus.words.ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with bus.session("ways", receive_mode=deleting) as receiver:
        assert bodies(receive(receiver, 3)) == ["a", "b", "late"]
    bus.send(*bus.of("ways", "bad"))
    with bus.session("ways") as receiver:
        (message,) = receive(receiver)
        receiver.dead_letter_message(message, reason="why", error_description="because")
    with bus.dead_letters() as receiver:
        (message,) = take(receiver)
    assert (str(message), message.dead_letter_reason) == ("bad", "why")


def test_what_a_session_queue_refuses(bus: Bus) -> None:
    """A message without session id, by each way, and with it its batch; a plain receiver."""
    sender = bus.sender()
    with pytest.raises(bus.errors.ServiceBusError, match="SessionId was not set"):
        sender.send_messages(bus.lane.message("none"))
    with pytest.raises(bus.errors.ServiceBusError, match="SessionId was not set"):
        sender.schedule_messages(bus.lane.message("none"), now() + timedelta(hours=1))
    with pytest.raises(bus.errors.ServiceBusError, match="SessionId was not set"):
        sender.send_messages([*bus.of("refused", "with"), bus.lane.message("without")])
    keyed = AmqpAnnotatedMessage(
        data_body=b"x",
        properties={"group_id": "refused"},
        annotations={"x-opt-partition-key": "other"},
    )
    if bus.lane.name == "azure":  # the library refuses such a message, whatever is in it
        with pytest.raises(bus.errors.ServiceBusError, match="PartitionKey:other"):
            sender.send_messages(keyed)
    with (
        pytest.raises(bus.errors.ServiceBusError, match="create a non-sessionful message receiver"),
        bus.client.get_queue_receiver(bus.name("sessions")) as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=1)
    with bus.session("refused") as receiver:
        expect_silence(receiver, for_s=0.2)


def test_a_session_id_has_128_characters_at_most(bus: Bus) -> None:
    """A longer one is refused when it is accepted: its state would be a frame that ends others'."""
    with bus.session("s" * 128):
        pass
    with (
        pytest.raises(bus.errors.ServiceBusError, match="129 characters"),
        bus.session("s" * 129),
    ):
        pass


def test_a_subscription_that_requires_sessions(bus: Bus) -> None:
    """Its messages come in sessions; one without session id is a dead letter of it alone."""
    with bus.client.get_topic_sender(bus.name("session-topic")) as sender:
        sender.send_messages([*bus.of("one", "a", "b")])
        sender.send_messages(bus.lane.message("stray"))
    strict = bus.client.get_subscription_receiver(
        bus.name("session-topic"), "strict", session_id="one"
    )
    with strict as receiver:
        assert bodies(take(receiver, 2)) == ["a", "b"]
        receiver.session.set_state(b"mine")
    assert list(bus.client.list_subscription_sessions(bus.name("session-topic"), "strict")) == [
        "one"
    ]
    with bus.client.get_subscription_receiver(bus.name("session-topic"), "plain") as receiver:
        assert bodies(take(receiver, 3)) == ["a", "b", "stray"]
    dead = bus.client.get_subscription_receiver(
        bus.name("session-topic"), "strict", sub_queue="deadletter"
    )
    with dead as receiver:
        (message,) = take(receiver)
    assert (str(message), message.dead_letter_reason) == ("stray", "Session ID is null.")
    assert message.dead_letter_error_description == (
        "Session enabled entity doesn't allow a message whose session identifier is null."
    )
