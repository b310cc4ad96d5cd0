"""A RabbitMQ client that knows nothing of the bridge (pika), on both ends of a queue."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pika
from azure.servicebus import ServiceBusMessage

from tests.acceptance.sdk import (
    client_of,
    expect_silence,
    native_channel,
    native_get,
    now,
    numbers,
    receive,
    seconds,
    send,
    sleep_until,
    take,
    unique,
)
from tests.fixtures.waiting import eventually

ENTITIES = {
    name: {"LockDuration": "PT5S", "MaxDeliveryCount": 3, "DeadLetteringOnMessageExpiration": True}
    for name in ("in", "in-bound", "out", "mixed", "past-the-door", "Mixed.Case", "dead", "many")
}

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def test_native_in(bridge: Any) -> None:
    """A native message is numbered, timed and received, its properties where an SDK looks."""
    properties = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        correlation_id="c-1",
        reply_to="replies",
        message_id="m-1",
        type="OrderPlaced",
        expiration="60000",
        delivery_mode=2,
        headers={"text": "ä", "number": 5, "long": 2**40, "yes": True, "nothing": None},
    )
    with client_of(bridge) as client, native_channel(bridge) as channel:
        before = now()
        channel.basic_publish("in", "", b'{"a": 1}', properties)
        with client.get_queue_receiver("in") as receiver:
            (message,) = take(receiver)
        assert b"".join(message.body) == b'{"a": 1}'
        assert message.sequence_number == 1
        assert before <= message.enqueued_time_utc <= now()
        assert message.delivery_count == 0
        assert message.message_id == "m-1"
        assert message.correlation_id == "c-1"
        assert message.reply_to == "replies"
        assert message.content_type == "application/json"
        assert message.subject == "OrderPlaced"
        assert message.time_to_live == seconds(60)
        assert message.application_properties == {
            b"text": "ä".encode(), b"number": 5, b"long": 2**40, b"yes": True, b"nothing": None,
        }  # fmt: skip


def test_native_in_without_any_property(bridge: Any) -> None:
    """A bare native message gets what an SDK needs to settle it; any routing key does."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        channel.basic_publish("in", "any.key", b"bare")
        with client.get_queue_receiver("in") as receiver:
            (message,) = take(receiver)
        assert b"".join(message.body) == b"bare"
        assert message.message_id


def test_native_in_with_odd_properties(bridge: Any) -> None:
    """A message that RabbitMQ takes and AMQP 1.0 cannot express holds up no other message."""
    odd = pika.BasicProperties(
        message_id=b"f\xfcr",
        type=b"\xff",
        reply_to=b"\xff",
        timestamp=1_800_000_000_000_000_000,
        headers={"x-opt-time-to-live": -5, "x-opt-priority": "high", "x-busbridge-body": "mine"},
    )
    with client_of(bridge) as client, native_channel(bridge) as channel:
        channel.basic_publish("in", "", b"odd", odd)
        channel.basic_publish("in", "", b"next")
        with client.get_queue_receiver("in") as receiver:
            messages = take(receiver, 2)
    assert [str(message) for message in messages] == ["odd", "next"]
    assert messages[0].message_id == "f\N{REPLACEMENT CHARACTER}r"


def test_native_publisher_to_a_bound_exchange(bridge: Any) -> None:
    """A user's exchange that is bound to the front exchange leads into the entity."""
    mine = unique("mine")
    with client_of(bridge) as client, native_channel(bridge) as channel:
        channel.exchange_declare(mine, "topic", durable=True)
        channel.exchange_bind("in-bound", mine, routing_key="orders.#")
        channel.basic_publish(mine, "orders.eu.new", b"through mine", PERSISTENT)
        with client.get_queue_receiver("in-bound") as receiver:
            (message,) = take(receiver)
        assert b"".join(message.body) == b"through mine"
        assert message.sequence_number == 1
        channel.exchange_delete(mine)


def test_native_out(bridge: Any) -> None:
    """An SDK's message is consumed from the queue as a RabbitMQ user expects it."""
    sent = ServiceBusMessage(
        b'{"a": 1}',
        message_id="m-1",
        correlation_id="c-1",
        reply_to="replies",
        content_type="application/json",
        subject="OrderPlaced",
        time_to_live=seconds(60),
        application_properties={"text": "ä", "number": 5, "yes": True},
    )
    with client_of(bridge) as client, native_channel(bridge) as channel:
        send(client, "out", sent)
        _, properties, body = native_get(channel, "out")
        assert body == b'{"a": 1}'
        assert properties.message_id == "m-1"
        assert properties.correlation_id == "c-1"
        assert properties.reply_to == "replies"
        assert properties.content_type == "application/json"
        assert properties.type == "OrderPlaced"
        assert properties.delivery_mode == 2
        assert 0 < int(properties.expiration) <= 60_000
        assert properties.headers["text"] == "ä"
        assert properties.headers["number"] == 5
        assert properties.headers["yes"] is True
        assert properties.headers["x-opt-sequence-number"] == 1
        enqueued_s = properties.headers["x-opt-enqueued-time"] / 1000
        assert abs(enqueued_s - time.time()) < 10


def test_native_consumer_and_sdk_receiver_compete(bridge: Any) -> None:
    """A native consumer and an SDK receiver share a queue; each message goes to one of them.

    Many times and without a pause: what comes ahead of a receiver must not be the other one's.
    """
    with client_of(bridge) as client, native_channel(bridge) as channel:
        with client.get_queue_sender("mixed") as sender:
            sender.send_messages([ServiceBusMessage(str(i)) for i in range(100)])
        bodies = []
        with client.get_queue_receiver("mixed") as receiver:
            for _ in range(50):
                bodies += [str(message) for message in take(receiver)]
                bodies.append(native_get(channel, "mixed")[2].decode())
            expect_silence(receiver)
        assert sorted(bodies, key=int) == [str(i) for i in range(100)]


def test_publishers_of_both_kinds_share_the_numbers(bridge: Any) -> None:
    """Native and SDK messages are numbered in one row, in the order of their confirms."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        with client.get_queue_sender("many") as sender:
            for i in range(10):
                sender.send_messages(ServiceBusMessage(f"sdk {i}"))
                channel.basic_publish("many", "", f"native {i}".encode(), PERSISTENT)
        with client.get_queue_receiver("many") as receiver:
            messages = take(receiver, 20)
        bodies = [b"".join(message.body).decode() for message in messages]
        assert bodies == [f"{kind} {i}" for i in range(10) for kind in ("sdk", "native")]
        assert numbers(messages) == list(range(1, 21))


def test_past_the_front_door(bridge: Any) -> None:
    """A message that was published into the queue itself is sent to the inbox, and numbered."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        channel.basic_publish("", "past-the-door", b"smuggled", PERSISTENT)
        with client.get_queue_receiver("past-the-door") as receiver:
            (message,) = take(receiver)
            assert b"".join(message.body) == b"smuggled"
            assert message.sequence_number == 1
            assert message.enqueued_time_utc is not None
            assert message.delivery_count == 0
            expect_silence(receiver)


def test_native_forgery(bridge: Any) -> None:
    """A native publisher cannot choose number, time or count either."""
    headers = {
        "x-opt-sequence-number": 777,
        "x-opt-enqueued-time": 1,
        "x-delivery-count": 9,
        "x-death": [{"reason": "expired", "queue": "elsewhere", "count": 3}],
        "mine": "kept",
    }
    with client_of(bridge) as client, native_channel(bridge) as channel:
        send(client, "past-the-door", "before")
        channel.basic_publish(
            "past-the-door", "", b"forged", pika.BasicProperties(headers=headers, delivery_mode=2)
        )
        with client.get_queue_receiver("past-the-door") as receiver:
            before, forged = take(receiver, 2)
        assert forged.sequence_number == (before.sequence_number or 0) + 1
        assert forged.enqueued_time_utc >= before.enqueued_time_utc
        assert forged.delivery_count == 0
        assert forged.application_properties[b"mine"] == b"kept"


def test_names_in_any_case(bridge: Any) -> None:
    """An entity's name is not case-sensitive to an SDK; in RabbitMQ it stands as documented."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        send(client, "MIXED.CASE", "x")
        with client.get_queue_receiver("mixed.case") as receiver:
            assert str(take(receiver)[0]) == "x"
        names = [name for name in ("Mixed.Case", "mixed.case") if _is_exchange(bridge, name)]
        assert names
        channel.basic_publish(names[0], "", b"native", PERSISTENT)
        with client.get_queue_receiver("Mixed.Case") as receiver:
            take(receiver)


def test_native_rejection_dead_letters(bridge: Any) -> None:
    """A message that a native consumer rejects without requeue becomes a dead letter."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        send(client, "dead", "rejected")
        eventually(
            lambda: channel.queue_declare("dead", passive=True).method.message_count == 1,
            "the message is in the queue",
        )
        method, _, _ = channel.basic_get("dead")
        channel.basic_reject(method.delivery_tag, requeue=False)
        with client.get_queue_receiver("dead", sub_queue="deadletter") as dead:
            (message,) = take(dead)
        assert str(message) == "rejected"
        assert message.dead_letter_reason


def test_native_consumer_of_the_dead_letter_queue(bridge: Any) -> None:
    """Dead letters are plain RabbitMQ messages, with Azure's reason as headers."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        send(client, "dead", "explicit")
        with client.get_queue_receiver("dead") as receiver:
            (message,) = receive(receiver)
            receiver.dead_letter_message(message, reason="mine", error_description="told")
        _, properties, body = native_get(channel, "dead/$deadletterqueue")
        assert body == b"explicit"
        assert properties.headers["DeadLetterReason"] == "mine"
        assert properties.headers["DeadLetterErrorDescription"] == "told"


def test_native_scheduling(bridge: Any) -> None:
    """A native publisher schedules with the header that carries the time."""
    with client_of(bridge) as client, native_channel(bridge) as channel:
        due = now() + seconds(2)
        headers = {"x-opt-scheduled-enqueue-time": int(due.timestamp() * 1000)}
        properties = pika.BasicProperties(headers=headers, delivery_mode=2)
        channel.basic_publish("in", "", b"later", properties)
        with client.get_queue_receiver("in") as receiver:
            expect_silence(receiver, for_s=0.5)
            (message,) = take(receiver)
        assert message.enqueued_time_utc >= due
        sleep_until(due)


def test_native_scheduling_before_the_year_1(bridge: Any) -> None:
    """The message is there at once, with a time that an SDK can read."""
    properties = pika.BasicProperties(
        delivery_mode=2, headers={"x-opt-scheduled-enqueue-time": -(2**63)}
    )
    with client_of(bridge) as client, native_channel(bridge) as channel:
        channel.basic_publish("many", "", b"early", properties)
        with client.get_queue_receiver("many") as receiver:
            (message,) = take(receiver)
        assert message.scheduled_enqueue_time_utc == datetime(1, 1, 1, tzinfo=UTC)


def _is_exchange(bridge: Any, name: str) -> bool:
    with native_channel(bridge) as channel:
        try:
            channel.exchange_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
    return True
