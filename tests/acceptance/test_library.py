"""The library straight on RabbitMQ keeps the contract that the SDK has through the gateway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from bridge.client import ServiceBusClient, ServiceBusMessage
from bridge.client.exceptions import ServiceBusAuthenticationError, ServiceBusCommunicationError
from tests.acceptance.lanes import LANES, Lane, lane_of
from tests.acceptance.sdk import (
    expect_silence,
    native_channel,
    native_get,
    numbers,
    receive,
    sleep_until,
    take,
)
from tests.fixtures.waiting import eventually

LOCK_S = 5

_NAMES = (
    "abandon",
    "aside",
    "batch",
    "cancel",
    "competing",
    "complete",
    "dead",
    "deferred-first",
    "delete",
    "exhausted",
    "iterate",
    "large",
    "locks",
    "native",
    "others",
    "outlives",
    "peek",
    "properties",
    "told",
    "unreasonable",
)
ENTITIES: dict[str, dict[str, Any]] = {
    f"{name}-{lane}": {"LockDuration": "PT5S", "MaxDeliveryCount": 3}
    for name in _NAMES
    for lane in LANES[1:]
}
ENTITIES |= {
    f"expires-{lane}": {"DeadLetteringOnMessageExpiration": True, "MaxDeliveryCount": 3}
    for lane in LANES[1:]
}
ENTITIES |= {
    f"once-{lane}": {
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": "PT1M",
    }
    for lane in LANES[1:]
}
ENTITIES |= {
    "crossed": {},
    "passes-on": {"ForwardTo": "crossed", "ForwardDeadLetteredMessagesTo": "crossed"},
}
TOPICS = [
    {
        "Name": f"news-{lane}",
        "Subscriptions": [
            {"Name": "all"},
            {
                "Name": "red",
                "Rules": [
                    {
                        "Name": "red",
                        "Properties": {
                            "FilterType": "Sql",
                            "SqlFilter": {"SqlExpression": "colour = 'red'"},
                        },
                    }
                ],
            },
        ],
    }
    for lane in LANES[1:]
]


@pytest.fixture(scope="module", params=LANES[1:])
def lane(request: pytest.FixtureRequest, bridge: Any) -> Iterator[Lane]:
    """The library on pika, and on aio-pika; the Azure SDK has these scenarios elsewhere."""
    with lane_of(request.param, bridge) as made:
        yield made


def test_a_message_is_received_once_with_its_number(lane: Lane) -> None:
    """Single, list and batch; what is completed does not come again."""
    queue = f"batch-{lane.name}"
    with lane.client.get_queue_sender(queue) as sender:
        sender.send_messages(lane.message("one"))
        sender.send_messages([lane.message("two"), lane.message("three")])
        batch = sender.create_message_batch()
        batch.add_message(lane.message("four"))
        assert len(batch) == 1
        sender.send_messages(batch)
    with lane.client.get_queue_receiver(queue) as receiver:
        messages = receive(receiver, 4)
        assert [str(each) for each in messages] == ["one", "two", "three", "four"]
        assert numbers(messages) == [1, 2, 3, 4]
        assert [each.delivery_count for each in messages] == [0] * 4
        for message in messages:
            receiver.complete_message(message)
        with pytest.raises(lane.errors.MessageAlreadySettled):
            receiver.complete_message(messages[0])
        expect_silence(receiver, for_s=0.3)


def test_properties_arrive_as_sent(lane: Lane) -> None:
    """Each property, and application properties of each type that all clients have."""
    queue = f"properties-{lane.name}"
    given = {"text": "t", "whole": 7, "long": 1 << 40, "part": 1.5, "yes": True, "raw": b"as text"}
    lane.send(
        queue,
        "body",
        application_properties=given,
        message_id="id",
        subject="subject",
        content_type="text/plain",
        correlation_id="correlation",
        to="to",
        reply_to="reply",
        reply_to_session_id="replies",
        partition_key="key",
        time_to_live=timedelta(hours=1),
    )
    with lane.client.get_queue_receiver(queue) as receiver:
        (got,) = take(receiver)
    assert got.application_properties == {
        b"text": b"t",
        b"whole": 7,
        b"long": 1 << 40,
        b"part": 1.5,
        b"yes": True,
        b"raw": b"as text",
    }
    assert (got.message_id, got.subject, got.content_type) == ("id", "subject", "text/plain")
    assert (got.correlation_id, got.to, got.reply_to) == ("correlation", "to", "reply")
    assert (got.reply_to_session_id, got.partition_key) == ("replies", "key")
    assert got.time_to_live == timedelta(hours=1)
    assert got.expires_at_utc == got.enqueued_time_utc + got.time_to_live
    assert abs(got.enqueued_time_utc - datetime.now(UTC)) < timedelta(seconds=30)
    assert b"".join(got.body) == b"body"


def test_abandoning(lane: Lane) -> None:
    """An abandoned message is there at once, before later ones, one more on its count."""
    queue = f"abandon-{lane.name}"
    lane.send(queue, "first", "second")
    with lane.client.get_queue_receiver(queue) as receiver:
        for count in range(2):
            (message,) = receive(receiver)
            assert (str(message), message.delivery_count) == ("first", count)
            receiver.abandon_message(message)
        first, second = take(receiver, 2)
        assert (str(first), first.delivery_count) == ("first", 2)
        assert (str(second), second.delivery_count) == ("second", 0)


def test_dead_lettering(lane: Lane) -> None:
    """With reason and description; a dead letter cannot be dead-lettered again."""
    queue = f"dead-{lane.name}"
    lane.send(queue, "bad", application_properties={"kept": 1.5})
    with (
        lane.client.get_queue_receiver(queue) as receiver,
        lane.client.get_queue_receiver(queue, sub_queue="deadletter") as dead,
    ):
        (message,) = receive(receiver)
        receiver.dead_letter_message(message, reason="why", error_description="because")
        (found,) = receive(dead)
        assert (found.dead_letter_reason, found.dead_letter_error_description) == ("why", "because")
        assert found.sequence_number == message.sequence_number
        assert found.application_properties[b"kept"] == 1.5
        with pytest.raises(lane.errors.ServiceBusError):
            dead.dead_letter_message(found)
        dead.complete_message(found)
        expect_silence(receiver, for_s=0.3)


def test_what_is_no_text_is_no_reason(lane: Lane) -> None:
    """It is refused before anything is done: all that the client holds stays locked."""
    queue = f"unreasonable-{lane.name}"
    lane.send(queue, "one", "two")
    with lane.client.get_queue_receiver(queue) as receiver:
        one, two = receive(receiver, 2)
        with pytest.raises(TypeError):
            receiver.dead_letter_message(one, error_description=ValueError("x"))
        with pytest.raises(TypeError):
            receiver.dead_letter_message(one, reason=404)
        with pytest.raises(UnicodeEncodeError):
            receiver.dead_letter_message(one, reason="\ud800")
        receiver.complete_message(one)
        receiver.complete_message(two)
        expect_silence(receiver, for_s=0.3)


def test_too_many_deliveries(lane: Lane) -> None:
    """After MaxDeliveryCount of them a message is a dead letter."""
    queue = f"exhausted-{lane.name}"
    lane.send(queue, "hopeless")
    with (
        lane.client.get_queue_receiver(queue) as receiver,
        lane.client.get_queue_receiver(queue, sub_queue="deadletter") as dead,
    ):
        for count in range(3):
            (message,) = receive(receiver)
            assert message.delivery_count == count
            receiver.abandon_message(message)
        (found,) = take(dead)
        assert found.dead_letter_reason == "MaxDeliveryCountExceeded"


def _locks(name: str, bridge: Any) -> None:
    queue = f"locks-{name}"
    with lane_of(name, bridge) as lane:
        lane.send(queue, "slow", "renewed", "kept")
        with lane.client.get_queue_receiver(queue) as receiver, lane.renewer() as renewer:
            slow, renewed, kept = receive(receiver, 3)
            renewer.register(receiver, kept, max_lock_renewal_duration=30)
            sleep_until(slow.locked_until_utc, and_s=-LOCK_S / 2)
            before = time.time()
            until = receiver.renew_message_lock(renewed)
            assert until.timestamp() - LOCK_S >= before - 0.01
            sleep_until(slow.locked_until_utc, and_s=0.3)
            with pytest.raises(lane.errors.MessageLockLostError):
                receiver.complete_message(slow)
            with pytest.raises(lane.errors.MessageLockLostError):
                receiver.renew_message_lock(slow)
            receiver.complete_message(renewed)
            receiver.complete_message(kept)
            (again,) = receive(receiver)
            assert (again.sequence_number, again.delivery_count) == (slow.sequence_number, 1)
            assert again.lock_token != slow.lock_token
            receiver.complete_message(again)


def test_locks_end_unless_they_are_renewed(bridge: Any) -> None:
    """By hand or by a renewer; what ends is delivered again, and settled by its new lock only."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: _locks(name, bridge), LANES[1:]))


def test_a_lock_outlives_its_receiver(lane: Lane) -> None:
    """It is settled through another receiver of the client."""
    queue = f"outlives-{lane.name}"
    lane.send(queue, "mine")
    with lane.client.get_queue_receiver(queue) as receiver:
        (message,) = receive(receiver)
    with lane.client.get_queue_receiver(queue) as other:
        expect_silence(other, for_s=0.3)
        other.complete_message(message)
        expect_silence(other, for_s=0.3)


def test_receiving_and_deleting(lane: Lane, bridge: Any) -> None:
    """A received message is gone from RabbitMQ."""
    queue = f"delete-{lane.name}"
    lane.send(queue, "a", "b", "c")
    mode = lane.words.ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with lane.client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        messages = receive(receiver, 3)
        assert [str(each) for each in messages] == ["a", "b", "c"]
        with pytest.raises(ValueError, match=r"RECEIVE_AND_DELETE|receive_mode|peek"):
            receiver.complete_message(messages[0])
    with native_channel(bridge) as channel:
        count = lambda: channel.queue_declare(queue, passive=True).method.message_count  # noqa: E731
        eventually(lambda: count() == 0, "the queue is empty")


def test_receiving_by_iteration(lane: Lane) -> None:
    """Iterating gives each message, an abandoned one a second time."""
    queue = f"iterate-{lane.name}"
    lane.send(queue, *(f"m{i}" for i in range(4)))
    seen = []
    with lane.client.get_queue_receiver(queue, max_wait_time=1) as receiver:
        for message in receiver:
            seen.append(str(message))
            if message.delivery_count == 0 and str(message) == "m2":
                receiver.abandon_message(message)
            else:
                receiver.complete_message(message)
    assert sorted(seen) == ["m0", "m1", "m2", "m2", "m3"]


def test_competing_receivers(lane: Lane) -> None:
    """Each message goes to one of several receivers."""
    queue, count = f"competing-{lane.name}", 60
    with lane.client.get_queue_sender(queue) as sender:
        sender.send_messages([lane.message(str(i)) for i in range(count)])

    def work(index: int) -> list[int]:
        seen = []
        with lane.client.get_queue_receiver(queue, max_wait_time=1) as receiver:
            for message in receiver:
                seen.append(int(str(message)))
                receiver.complete_message(message)
        return seen

    with ThreadPoolExecutor(3) as pool:
        seen = [each for found in pool.map(work, range(3)) for each in found]
    assert sorted(seen) == list(range(count))


def test_expiration(lane: Lane) -> None:
    """An expired message becomes a dead letter where the entity says so."""
    queue = f"expires-{lane.name}"
    lane.send(queue, "brief", time_to_live=timedelta(seconds=1))
    with lane.client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
        (found,) = take(dead)
        assert found.dead_letter_reason == "TTLExpiredException"


def test_duplicates_are_dropped(lane: Lane) -> None:
    """A second message of one id is dropped where the entity says so."""
    queue = f"once-{lane.name}"
    lane.send(queue, "one", "two", message_id="same")
    lane.send(queue, "three", message_id="other")
    with lane.client.get_queue_receiver(queue) as receiver:
        assert [str(each) for each in take(receiver, 2)] == ["one", "three"]
        expect_silence(receiver, for_s=0.3)


def test_scheduling_and_cancelling(lane: Lane) -> None:
    """A cancelled message never comes; another one comes at its time, not before."""
    queue = f"cancel-{lane.name}"
    due = datetime.now(UTC) + timedelta(seconds=2)
    with lane.client.get_queue_sender(queue) as sender:
        first, second = sender.schedule_messages([lane.message("no"), lane.message("yes")], due)
        sender.cancel_scheduled_messages(first)
        assert second == first + 1
        with pytest.raises(lane.errors.ServiceBusError):
            sender.cancel_scheduled_messages([first])
        sender.send_messages(lane.message("too", scheduled_enqueue_time_utc=due))
    with lane.client.get_queue_receiver(queue) as receiver:
        got = take(receiver, 2)
        assert sorted(str(each) for each in got) == ["too", "yes"]
        for each in got:
            assert each.enqueued_time_utc >= due - timedelta(milliseconds=1)


def test_deferring(lane: Lane) -> None:
    """A deferred message comes by its number only, and is settled in every way.

    Each deferral counts a delivery (Azure's JavaScript live tests deferredMessage).
    """
    queue = f"aside-{lane.name}"
    lane.send(queue, "a", "b", "c")
    with lane.client.get_queue_receiver(queue) as receiver:
        aside = receive(receiver, 3)
        for message in aside:
            receiver.defer_message(message)
        expect_silence(receiver, for_s=0.3)
        first, second, third = receiver.receive_deferred_messages(numbers(aside))
        assert [str(each) for each in (first, second, third)] == ["a", "b", "c"]
        assert (aside[0].delivery_count, first.delivery_count) == (0, 1)
        assert first.state == lane.words.ServiceBusMessageState.DEFERRED
        with pytest.raises(lane.errors.MessageNotFoundError):
            receiver.receive_deferred_messages(first.sequence_number)
        receiver.renew_message_lock(first)
        receiver.complete_message(first)
        receiver.abandon_message(second)
        receiver.defer_message(third)
        (third,) = receiver.receive_deferred_messages([third.sequence_number])
        assert third.delivery_count == 2
        receiver.dead_letter_message(third, reason="late")
        with pytest.raises(lane.errors.MessageNotFoundError):
            receiver.receive_deferred_messages([third.sequence_number])
        (again,) = receiver.receive_deferred_messages([second.sequence_number])
        assert again.delivery_count == 2
        receiver.complete_message(again)
    with lane.client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
        (found,) = take(dead)
        assert (str(found), found.dead_letter_reason) == ("c", "late")


def test_peeking(lane: Lane) -> None:
    """Nothing is locked; the next peek goes on behind the last."""
    queue = f"peek-{lane.name}"
    lane.send(queue, "a", "b", "c", subject="s")
    with lane.client.get_queue_receiver(queue) as receiver:
        peeked = receiver.peek_messages(2) + receiver.peek_messages(2)
        assert [(str(each), each.subject) for each in peeked] == [(x, "s") for x in "abc"]
        assert numbers(receiver.peek_messages(5, sequence_number=2)) == [2, 3]
        with pytest.raises(ValueError, match="peek"):
            receiver.complete_message(peeked[0])
        assert len(take(receiver, 3)) == 3
        eventually(lambda: receiver.peek_messages(5, sequence_number=1) == [], "nothing is there")


def test_a_peek_shows_nothing_that_was_settled(lane: Lane, bridge: Any) -> None:
    """Messages may be settled in any order; before the first peek no settlement is recorded."""
    queue = f"told-{lane.name}"
    stream = f"{queue}/$settled"
    lane.send(queue, *"abcdef")
    with lane.client.get_queue_receiver(queue) as receiver:
        held = receive(receiver, 6)
        receiver.complete_message(held.pop(4))
        with native_channel(bridge) as channel, pytest.raises(ChannelClosedByBroker, match="404"):
            channel.queue_declare(stream, passive=True)
        receiver.peek_messages(1)
        receiver.complete_message(held.pop(2))
        for message in held:
            receiver.abandon_message(message)
        found: list[list[int]] = []

        def is_right() -> bool:
            found.append(numbers(receiver.peek_messages(9, sequence_number=1)))
            return found[-1] == [1, 2, 4, 6]

        eventually(is_right, "what was settled is gone")
        for _ in range(5):
            assert is_right(), found
        take(receiver, 4)


def test_a_first_peek_shows_the_deferred_messages_that_are_there(lane: Lane) -> None:
    """Of five deferred ones 2, 4 and 5 were completed before anybody peeked."""
    queue = f"deferred-first-{lane.name}"
    lane.send(queue, *"12345")
    with lane.client.get_queue_receiver(queue) as receiver:
        for message in receive(receiver, 5):
            receiver.defer_message(message)
        for message in receiver.receive_deferred_messages([2, 4, 5]):
            receiver.complete_message(message)
        assert numbers(receiver.peek_messages(9, sequence_number=1)) == [1, 3]
        for message in receiver.receive_deferred_messages([1, 3]):
            receiver.complete_message(message)
        assert numbers(receiver.peek_messages(9, sequence_number=1)) == []


def test_what_others_have_peeked(lane: Lane, bridge: Any) -> None:
    """A client that begins when somebody has peeked tells what it settles."""
    queue = f"others-{lane.name}"
    lane.send(queue, *"abcd")
    with ExitStack() as ends:
        azure = ends.enter_context(lane_of("azure", bridge))
        peeking = ends.enter_context(azure.client.get_queue_receiver(queue))

        def peeked() -> list[int]:
            return numbers(peeking.peek_messages(9, sequence_number=1))

        eventually(lambda: len(peeked()) == 4, "all are there")
        other = ends.enter_context(lane_of(lane.name, bridge))
        receiver = ends.enter_context(other.client.get_queue_receiver(queue))
        held = receive(receiver, 4)
        receiver.complete_message(held.pop(2))
        for message in held:
            receiver.abandon_message(message)
        eventually(lambda: peeked() == [1, 2, 4], "what was settled is gone")
        take(receiver, 3)


def test_topics(lane: Lane) -> None:
    """A subscription gets what its rules select, under numbers of its own."""
    topic = f"news-{lane.name}"
    with lane.client.get_topic_sender(topic) as sender:
        for colour in ("blue", "red"):
            sender.send_messages(lane.message(colour, application_properties={"colour": colour}))
    with lane.client.get_subscription_receiver(topic, "all") as receiver:
        assert [str(each) for each in take(receiver, 2)] == ["blue", "red"]
    with lane.client.get_subscription_receiver(topic, "red") as receiver:
        (message,) = receive(receiver)
        assert (str(message), message.sequence_number) == ("red", 1)
        assert message.enqueued_sequence_number == 2
        receiver.dead_letter_message(message, reason="tested")
    with lane.client.get_subscription_receiver(topic, "red", sub_queue="deadletter") as dead:
        (found,) = take(dead)
        assert (str(found), found.dead_letter_reason) == ("red", "tested")


def test_too_large(lane: Lane) -> None:
    """A message above the tier's limit is refused, and what a batch has no room for."""
    queue = f"large-{lane.name}"
    with lane.client.get_queue_sender(queue) as sender:
        with pytest.raises(lane.errors.MessageSizeExceededError):
            sender.send_messages(lane.message("x" * (300 * 1024)))
        batch = sender.create_message_batch(max_size_in_bytes=1_000)
        with pytest.raises(lane.errors.MessageSizeExceededError):
            batch.add_message(lane.message("x" * 1_000))


def test_what_is_not_there(lane: Lane) -> None:
    """An entity that is not there is said when it is opened."""
    with (
        pytest.raises(lane.errors.MessagingEntityNotFoundError),
        lane.client.get_queue_receiver("nowhere"),
    ):
        pass
    with (
        pytest.raises(lane.errors.MessagingEntityNotFoundError),
        lane.client.get_queue_sender("nowhere"),
    ):
        pass


def test_what_forwards_cannot_be_received_from(lane: Lane) -> None:
    """Neither its messages nor its dead letters: a receiver would take them from the target."""
    for sub_queue in (None, "deadletter"):
        with (
            lane.client.get_queue_receiver("passes-on", sub_queue=sub_queue) as receiver,
            pytest.raises(lane.errors.ServiceBusError, match="auto-forwarding enabled"),
        ):
            receiver.receive_messages(max_wait_time=1)


def test_native_clients_see_the_same_message(lane: Lane, bridge: Any) -> None:
    """pika alone can read a sent message, and a message that pika publishes is received."""
    queue = f"native-{lane.name}"
    lane.send(queue, "for pika", subject="s", application_properties={"n": 7})
    with native_channel(bridge) as channel:
        _, properties, body = native_get(channel, queue)
        assert (body, properties.type, properties.headers["n"]) == (b"for pika", "s", 7)
        assert properties.headers["x-opt-sequence-number"] == 1
        channel.basic_publish(
            queue, "", b"from pika", pika.BasicProperties(type="t", headers={"k": "v"})
        )
    with lane.client.get_queue_receiver(queue) as receiver:
        (message,) = take(receiver)
    assert (str(message), message.subject, message.sequence_number) == ("from pika", "t", 2)
    assert message.application_properties == {b"k": b"v"}


def test_one_queue_for_all_clients(bridge: Any) -> None:
    """Each client receives the messages of every other one, with equal properties."""
    with ExitStack() as clients:
        lanes = [clients.enter_context(lane_of(name, bridge)) for name in LANES]
        receivers = [
            clients.enter_context(lane.client.get_queue_receiver("crossed")) for lane in lanes
        ]
        for giver in lanes:
            for receiver in receivers:
                giver.send("crossed", giver.name, application_properties={"n": 7, "f": 1.5})
                (message,) = take(receiver)
                assert str(message) == giver.name
                assert message.application_properties == {b"n": 7, b"f": 1.5}


def test_what_is_not_supported_is_refused_by_name(lane: Lane) -> None:
    """Never approximated."""
    with pytest.raises(NotImplementedError, match="transfer dead-letter"):
        lane.client.get_queue_receiver("crossed", sub_queue="transferdeadletter")
    with pytest.raises(ValueError, match="sub_queue"):
        lane.client.get_queue_receiver("crossed", session_id="s", sub_queue="deadletter")
    with (
        pytest.raises(lane.errors.ServiceBusError, match="does not require sessions"),
        lane.client.get_queue_receiver("crossed", session_id="s"),
    ):
        pass


def test_a_wrong_password_is_said_at_once(bridge: Any) -> None:
    """No retry helps."""
    _, _, place = bridge.amqp_url.rpartition("@")
    place = place.removeprefix("amqp://")
    began = time.monotonic()
    with (
        ServiceBusClient(f"amqp://nobody:wrong@{place}") as client,
        pytest.raises(ServiceBusAuthenticationError),
        client.get_queue_sender("crossed"),
    ):
        pass
    assert time.monotonic() - began < 30


def test_no_bridge_is_said(broker: Any, vhost: str) -> None:
    """A virtual host without a bridge: the error says what to do."""
    with (
        ServiceBusClient(broker.url_of(vhost), retry_total=0) as client,
        pytest.raises(ServiceBusCommunicationError, match="busbridge serve"),
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
