"""Browse through the real Python client: what a peek shows, and that it changes nothing."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AioClient

from tests.acceptance.sdk import (
    client_of,
    native_channel,
    native_get,
    now,
    numbers,
    receive,
    seconds,
    send,
    sleep_until,
    take,
    texts,
)
from tests.fixtures.waiting import eventually

BESIDE = 1_000
"""So many messages go by four receivers and a peeker."""

AHEAD = 4 * 20
"""What four receivers ask for; what one of them gives back unread another has later."""

DEAD = ServiceBusSubQueue.DEAD_LETTER

ENTITIES = {
    name: {"LockDuration": "PT1M", "MaxDeliveryCount": 2}
    for name in (
        "aio",
        "content",
        "dead",
        "dead-counts",
        "deferred",
        "emptied",
        "locked",
        "numbers",
        "pages",
        "scheduled",
        "settled",
    )
} | {
    "beside": {"LockDuration": "PT1M", "MaxDeliveryCount": 10},
    "failed": {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "session-ids": {"RequiresSession": True},
    "crowded-session-ids": {"RequiresSession": True},
    "entity-ttl": {"DefaultMessageTimeToLive": "PT1H"},
    "dead-expired": {"DeadLetteringOnMessageExpiration": True},
}

TOPICS = [
    {
        "Name": "events",
        "Properties": {},
        "Subscriptions": [{"Name": name, "Properties": {}} for name in ("all", "other")],
    },
    {
        "Name": "crowded",
        "Properties": {},
        "Subscriptions": [{"Name": "beside", "Properties": {}}],
    },
]


def peek(
    client: ServiceBusClient, queue: str, count: int = 20, **options: Any
) -> list[ServiceBusReceivedMessage]:
    """Peek from the first number on, by a receiver of its own."""
    sub_queue = options.pop("sub_queue", None)
    with client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
        return list(receiver.peek_messages(count, **{"sequence_number": 1, **options}))


def test_an_empty_queue_shows_nothing_and_a_peek_locks_nothing(bridge: Any) -> None:
    """Messages come in the order of their numbers, again and again, and can still be received."""
    with client_of(bridge) as client:
        assert peek(client, "numbers") == []
        send(client, "numbers", "1", "2", "3")
        for _ in range(3):
            assert texts(peek(client, "numbers")) == ["1", "2", "3"]
        first = peek(client, "numbers")[0]
        assert (first.sequence_number, first.delivery_count) == (1, 0)
        assert first.state is ServiceBusMessageState.ACTIVE
        assert first.lock_token is None
        assert abs(first.enqueued_time_utc - now()) < timedelta(seconds=20)
        with client.get_queue_receiver("numbers") as receiver:
            messages = take(receiver, 3)
            assert [message.delivery_count for message in messages] == [0, 0, 0]


def test_a_receiver_goes_on_where_it_was(bridge: Any) -> None:
    """Azure's live test: a peek without a number begins behind the last that was seen."""
    with client_of(bridge) as client:
        send(client, "pages", *map(str, range(30)))
        with client.get_queue_receiver("pages") as receiver:
            pages = [receiver.peek_messages(12) for _ in range(4)]
            assert [len(page) for page in pages] == [12, 12, 6, 0]
            assert [str(m) for page in pages for m in page] == list(map(str, range(30)))
            assert texts(receiver.peek_messages(2, sequence_number=17)) == ["16", "17"]


def test_a_message_comes_as_it_was_sent(bridge: Any) -> None:
    """Body, properties and values of all types that an application property may have."""
    values = {
        "text": "t",
        "number": 7,
        "real": 1.5,
        "yes": True,
        "nothing": None,
    }
    sent = ServiceBusMessage(
        b"\x00\xffbody",
        message_id="id",
        subject="s",
        correlation_id="c",
        content_type="text/x",
        application_properties=values,
    )
    with client_of(bridge) as client:
        send(client, "content", sent)
        (peeked,) = peek(client, "content")
        with client.get_queue_receiver("content") as receiver:
            (received,) = receive(receiver)
            assert peeked.application_properties == received.application_properties
            assert b"".join(peeked.body) == b"\x00\xffbody"
            for name in ("message_id", "subject", "correlation_id", "content_type"):
                assert getattr(peeked, name) == getattr(received, name) != None  # noqa: E711
            assert peeked.raw_amqp_message.annotations == {
                key: value
                for key, value in received.raw_amqp_message.annotations.items()
                if key != b"x-opt-locked-until"
            }
            receiver.complete_message(received)


def test_what_is_settled_is_left_out_and_what_is_locked_is_not(bridge: Any) -> None:
    """In any order of settling, at once."""
    with client_of(bridge) as client:
        send(client, "settled", *map(str, range(6)))
        assert len(peek(client, "settled")) == 6
        with client.get_queue_receiver("settled") as receiver:
            messages = receive(receiver, 6)
            assert len(peek(client, "settled")) == 6
            for message in (messages[4], messages[1]):
                receiver.complete_message(message)
                assert str(message) not in texts(peek(client, "settled"))
            receiver.abandon_message(messages[0])
            left = texts(peek(client, "settled"))
            assert left == ["0", "2", "3", "5"]
            for message in messages[2:4] + messages[5:]:
                receiver.complete_message(message)
            take(receiver)
            assert peek(client, "settled") == []


def test_what_was_settled_before_the_first_peek_is_left_out(bridge: Any) -> None:
    """The bridges tell what they know, though nobody had asked before."""
    with client_of(bridge) as client:
        send(client, "locked", *map(str, range(5)))
        with client.get_queue_receiver("locked") as receiver:
            messages = receive(receiver, 5)
            for message in messages[1:4]:
                receiver.complete_message(message)
            assert texts(peek(client, "locked")) == ["0", "4"]
            receiver.complete_message(messages[0])
            receiver.complete_message(messages[4])


def test_what_a_native_consumer_took_is_not_shown(bridge: Any) -> None:
    """RabbitMQ's count says that the oldest are gone; and an empty queue shows nothing."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        send(client, "emptied", *map(str, range(5)))
        for _ in range(3):
            native_get(channel, "emptied")
        # While its count changes RabbitMQ is asked again, a second later.
        eventually(lambda: texts(peek(client, "emptied")) == ["3", "4"], "the oldest are gone")
        for _ in range(2):
            native_get(channel, "emptied")
        eventually(lambda: peek(client, "emptied") == [], "nothing is shown")


def test_scheduled_messages_are_shown_until_they_are_cancelled_or_due(bridge: Any) -> None:
    """They are shown as scheduled, with their numbers; a topic shows its own, too."""
    later = now() + seconds(3600)
    with client_of(bridge) as client:
        send(client, "scheduled", "active")
        with client.get_queue_sender("scheduled") as sender:
            (kept,) = sender.schedule_messages(ServiceBusMessage("kept"), later)
            (gone,) = sender.schedule_messages(ServiceBusMessage("gone"), later)
            sender.schedule_messages(ServiceBusMessage("due"), now() + seconds(4))
            found = peek(client, "scheduled")
            assert texts(found) == ["active", "kept", "gone", "due"]
            assert [m.state.name for m in found] == ["ACTIVE", *3 * ["SCHEDULED"]]
            assert numbers(found)[1:3] == [kept, gone]
            assert found[1].scheduled_enqueue_time_utc == later
            sender.cancel_scheduled_messages(gone)
            eventually(
                lambda: (
                    [(str(m), m.state.name) for m in peek(client, "scheduled")]
                    == [("active", "ACTIVE"), ("kept", "SCHEDULED"), ("due", "ACTIVE")]
                ),
                "the due one is active",
            )
        with client.get_topic_sender("events") as sender:
            (number,) = sender.schedule_messages(ServiceBusMessage("later"), later)
        with client.get_queue_receiver("events/subscriptions/all") as receiver:
            assert "later" not in texts(receiver.peek_messages(50, sequence_number=1))
        assert number


def test_deferred_messages_are_shown_as_they_are(bridge: Any) -> None:
    """With the changes that deferring made, until they are settled."""
    with client_of(bridge) as client:
        send(client, "deferred", "1", "2", "3")
        with client.get_queue_receiver("deferred") as receiver:
            first, second, third = receive(receiver, 3)
            receiver.defer_message(second)
            receiver.complete_message(third)
            found = peek(client, "deferred")
            assert texts(found) == ["1", "2"]
            assert [m.state.name for m in found] == ["ACTIVE", "DEFERRED"]
            (again,) = receiver.receive_deferred_messages(second.sequence_number)
            assert texts(peek(client, "deferred")) == ["1", "2"]
            receiver.complete_message(again)
            assert texts(peek(client, "deferred")) == ["1"]
            receiver.complete_message(first)


def test_dead_letters_are_shown_in_their_queue_alone(bridge: Any) -> None:
    """With reason and description, whether a client or RabbitMQ moved them."""
    with client_of(bridge) as client:
        send(client, "dead", "mine", "failed", "left")
        with client.get_queue_receiver("dead") as receiver:
            mine, failed, _ = messages = receive(receiver, 3)
            receiver.dead_letter_message(mine, reason="why", error_description="because")
            for message in messages[1:]:
                receiver.abandon_message(message)
            failed, left = receive(receiver, 2)
            receiver.abandon_message(failed)
            assert texts(peek(client, "dead")) == ["left"]
            found = peek(client, "dead", sub_queue=DEAD)
            assert texts(found) == ["mine", "failed"]
            assert [m.dead_letter_reason for m in found] == ["why", "MaxDeliveryCountExceeded"]
            assert found[0].dead_letter_error_description == "because"
            receiver.complete_message(left)
        with client.get_queue_receiver("dead", sub_queue=DEAD) as receiver:
            take(receiver)
        assert texts(peek(client, "dead", sub_queue=DEAD)) == ["failed"]
        assert peek(client, "dead") == []


def test_a_peek_shows_how_often_a_message_has_failed(bridge: Any) -> None:
    """From the first peek on: abandoned, its lock ended, and while it is locked again."""
    with client_of(bridge) as client:
        send(client, "failed", "often", "never")
        with client.get_queue_receiver("failed") as receiver:
            often, never = receive(receiver, 2)
            receiver.abandon_message(often)
            receiver.complete_message(never)
            assert [m.delivery_count for m in peek(client, "failed")] == [1]
            (again,) = receive(receiver)
            assert again.delivery_count == 1
            assert [m.delivery_count for m in peek(client, "failed")] == [1]
            receiver.abandon_message(again)
            assert [m.delivery_count for m in peek(client, "failed")] == [2]
            (again,) = receive(receiver)
            sleep_until(again.locked_until_utc, and_s=0.5)
            eventually(
                lambda: [m.delivery_count for m in peek(client, "failed")] == [3],
                "the end of a lock counts",
            )
            (again,) = receive(receiver)
            assert again.delivery_count == 3
            receiver.defer_message(again)
            assert [m.delivery_count for m in peek(client, "failed")] == [4]
            receiver.complete_message(*receiver.receive_deferred_messages(again.sequence_number))


def test_a_peek_at_dead_letters_shows_the_count_that_a_receiver_sees(bridge: Any) -> None:
    """Moved by RabbitMQ or by the client; to abandon one there counts nothing."""
    with client_of(bridge) as client:
        send(client, "dead-counts", "failed", "mine")
        with client.get_queue_receiver("dead-counts") as receiver:
            for _ in range(2):
                failed, mine = receive(receiver, 2)
                assert str(failed) == "failed"
                receiver.abandon_message(failed)
                if mine.delivery_count == 1:
                    receiver.dead_letter_message(mine, reason="r")
                else:
                    receiver.abandon_message(mine)
        eventually(lambda: len(peek(client, "dead-counts", sub_queue=DEAD)) == 2, "both are there")
        with client.get_queue_receiver("dead-counts", sub_queue=DEAD) as receiver:
            for _ in range(2):
                found = peek(client, "dead-counts", sub_queue=DEAD)
                assert {str(m): m.delivery_count for m in found} == {"failed": 2, "mine": 1}
                messages = receive(receiver, 2)
                assert {str(m): m.delivery_count for m in messages} == {"failed": 2, "mine": 1}
                for message in messages:
                    receiver.abandon_message(message)


def test_an_expired_message_is_shown_among_the_dead_letters(bridge: Any) -> None:
    """And not among the others."""
    with client_of(bridge) as client:
        send(client, "dead-expired", ServiceBusMessage("old", time_to_live=seconds(4)), "young")
        assert texts(peek(client, "dead-expired")) == ["old", "young"]
        eventually(
            lambda: texts(peek(client, "dead-expired", sub_queue=DEAD)) == ["old"],
            "it is a dead letter",
        )
        (dead,) = peek(client, "dead-expired", sub_queue=DEAD)
        assert dead.dead_letter_reason == "TTLExpiredException"
        assert texts(peek(client, "dead-expired")) == ["young"]


def test_only_a_ttl_of_the_message_itself_is_shown(bridge: Any) -> None:
    """Azure: an entity's TTL shows in expires_at when the message is received."""
    with client_of(bridge) as client:
        send(client, "entity-ttl", "entity's")
        send(client, "entity-ttl", ServiceBusMessage("own", time_to_live=seconds(60)))
        entitys, own = peek(client, "entity-ttl")
        assert (entitys.time_to_live, entitys.expires_at_utc) == (None, None)
        assert own.expires_at_utc == own.enqueued_time_utc + seconds(60)
        with client.get_queue_receiver("entity-ttl") as receiver:
            received, _ = take(receiver, 2)
            assert received.expires_at_utc == received.enqueued_time_utc + seconds(3600)


def test_the_messages_of_one_session_can_be_peeked(bridge: Any) -> None:
    """By its receiver: what is settled is left out there, too."""
    with client_of(bridge) as client:
        for number in range(6):
            message = ServiceBusMessage(str(number), session_id=f"s{number % 2}")
            send(client, "session-ids", message)
        with client.get_queue_receiver("session-ids", session_id="s1") as receiver:
            assert texts(receiver.peek_messages(10, sequence_number=1)) == ["1", "3", "5"]
            take(receiver)
            assert texts(receiver.peek_messages(10, sequence_number=1)) == ["3", "5"]
            receiver.abandon_message(*receive(receiver))
            found = receiver.peek_messages(10, sequence_number=1)
            assert [(str(m), m.delivery_count) for m in found] == [("3", 1), ("5", 0)]


def test_a_session_behind_many_scheduled_messages_of_another_is_shown(bridge: Any) -> None:
    """An empty page would say that there are no more messages."""
    with client_of(bridge) as client:
        with client.get_queue_sender("crowded-session-ids") as sender:
            for _ in range(5):
                later = [ServiceBusMessage("later", session_id="other") for _ in range(1_000)]
                sender.schedule_messages(later, now() + timedelta(hours=1))
        send(client, "crowded-session-ids", ServiceBusMessage("1", session_id="a"))
        with client.get_queue_receiver("crowded-session-ids", session_id="a") as receiver:
            assert texts(receiver.peek_messages(9, sequence_number=1)) == ["1"]


def test_subscriptions_have_their_own_numbers(bridge: Any) -> None:
    """A message that one subscription has settled is still shown for the other."""
    with client_of(bridge) as client:
        with client.get_topic_sender("events") as sender:
            for text in ("a", "b", "c"):
                sender.send_messages(ServiceBusMessage(text))
        with (
            client.get_subscription_receiver("events", "all") as one,
            client.get_subscription_receiver("events", "other") as other,
        ):
            assert texts(one.peek_messages(9, sequence_number=1)) == ["a", "b", "c"]
            first, second, third = receive(one, 3)
            one.complete_message(second)
            one.dead_letter_message(third, reason="r")
            assert texts(one.peek_messages(9, sequence_number=1)) == ["a"]
            one.abandon_message(first)
            (found,) = one.peek_messages(9, sequence_number=1)
            assert (str(found), found.delivery_count) == ("a", 1)
            (first,) = receive(one)
            found, *_ = other.peek_messages(9, sequence_number=1)
            assert (str(found), found.delivery_count) == ("a", 0)
            assert texts(other.peek_messages(9, sequence_number=1)) == ["a", "b", "c"]
            one.complete_message(first)
        with client.get_subscription_receiver("events", "all", sub_queue=DEAD) as dead:
            (found,) = dead.peek_messages(9, sequence_number=1)
            assert (str(found), found.sequence_number) == ("c", 3)


@pytest.mark.parametrize(
    "entity", ["beside", pytest.param("crowded/subscriptions/beside", marks=pytest.mark.long)]
)
def test_a_peeker_at_full_speed_changes_nothing_for_four_receivers(
    bridge: Any, entity: str
) -> None:
    """Each message comes once, in order, with the count of its failed deliveries."""
    bodies = [f"m{number}" for number in range(BESIDE)]
    ending = threading.Event()
    pages: list[list[int]] = []

    def peek_on() -> None:
        with client_of(bridge) as client, client.get_queue_receiver(entity) as receiver:
            while not ending.is_set():
                page = receiver.peek_messages(50, sequence_number=1)
                pages.append([message.sequence_number or 0 for message in page])

    def work() -> list[tuple[str, int, int]]:
        found = []
        with client_of(bridge) as client, client.get_queue_receiver(entity) as receiver:
            while batch := receiver.receive_messages(20, max_wait_time=2):
                for message in batch:
                    count, number = message.delivery_count or 0, message.sequence_number or 0
                    found.append((str(message), number, count))
                    if number % 10 == 0 and not count:
                        receiver.abandon_message(message)
                    else:
                        receiver.complete_message(message)
        return found

    with ThreadPoolExecutor() as at_work, client_of(bridge) as client:
        peeking = at_work.submit(peek_on)
        with client.get_queue_sender(entity.split("/")[0]) as sender:
            for start in range(0, BESIDE, 50):
                batch = [ServiceBusMessage(body) for body in bodies[start : start + 50]]
                sender.send_messages(batch)
                if not start:
                    # Else receivers that are quick may leave nothing to be seen.
                    eventually(lambda: any(pages), "something is shown")
                    receiving = [at_work.submit(work) for _ in range(4)]
        received = [each.result() for each in receiving]
        ending.set()
        peeking.result()
    everything = [each for one in received for each in one]
    wanted = {(body, number, 0) for number, body in enumerate(bodies, 1)}
    again = {(body, number, 1) for body, number, _ in wanted if number % 10 == 0}
    assert Counter(everything) == Counter(wanted | again)
    for one in received:
        first = [number for _, number, count in one if not count]
        assert all(later > number - AHEAD for number, later in pairwise(first))
    assert any(pages)
    assert all(page == sorted(set(page)) for page in pages)


async def test_the_asynchronous_client_peeks_as_well(bridge: Any) -> None:
    """`peek_messages` of `azure.servicebus.aio`."""
    async with AioClient.from_connection_string(bridge.connection_string) as client:
        async with client.get_queue_sender("aio") as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_receiver("aio") as receiver:
            assert [str(message) for message in await receiver.peek_messages(5)] == ["x"]


@pytest.mark.long
def test_deferred_messages_are_found_whatever_a_killed_bridge_has_settled(
    start_bridge: Any,
) -> None:
    """Five deferred, 2, 4 and 5 completed before anybody peeked; then 1 completed, and a kill."""
    first = start_bridge()
    with client_of(first) as client:
        send(client, "deferred", *"12345")
        with client.get_queue_receiver("deferred") as receiver:
            messages = receive(receiver, 5)
            for message in messages:
                receiver.defer_message(message)
            for number in (2, 4, 5):
                (message,) = receiver.receive_deferred_messages(number)
                receiver.complete_message(message)
    first.kill()
    second = start_bridge()
    with client_of(second) as client:
        found = peek(client, "deferred")
        assert [(m.sequence_number, m.state.name) for m in found] == [
            (1, "DEFERRED"),
            (3, "DEFERRED"),
        ]
        with client.get_queue_receiver("deferred") as receiver:
            for message in receiver.receive_deferred_messages([1, 3]):
                if str(message) == "1":
                    receiver.complete_message(message)
    second.kill()
    with client_of(start_bridge()) as client:
        assert texts(peek(client, "deferred")) == ["3"]


@pytest.mark.long
def test_a_bridge_that_starts_anew_shows_the_same(start_bridge: Any) -> None:
    """It knows which messages a killed bridge had settled out of order after the first peek."""
    first = start_bridge()
    with client_of(first) as client:
        send(client, "settled", *map(str, range(6)))
        assert len(peek(client, "settled")) == 6
        with client.get_queue_receiver("settled") as receiver:
            messages = receive(receiver, 6)
            for message in messages[1:4]:
                receiver.complete_message(message)
            receiver.abandon_message(messages[4])
            found = peek(client, "settled")
            assert [(str(m), m.delivery_count) for m in found] == [("0", 0), ("4", 1), ("5", 0)]
    first.kill()
    with client_of(start_bridge()) as client:
        found = peek(client, "settled")
        assert [(str(m), m.delivery_count) for m in found] == [("0", 0), ("4", 1), ("5", 0)]
