"""Message expiration through the real Python client."""

from __future__ import annotations

import random
import threading
import time
from datetime import timedelta
from typing import Any

import pika
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from tests.acceptance.sdk import (
    client_of,
    expect_silence,
    native_channel,
    now,
    receive,
    seconds,
    send,
    sleep_until,
    take,
)
from tests.fixtures.waiting import eventually

FOREVER = "P10675199DT2H48M5.4775807S"
LOCK = {"LockDuration": "PT5S", "MaxDeliveryCount": 10}
DEAD = {"DeadLetteringOnMessageExpiration": True}

ENTITIES = {
    "ttl-message": LOCK,
    "ttl-capped": LOCK | {"DefaultMessageTimeToLive": "PT30S"},
    "ttl-default-dead": LOCK | DEAD | {"DefaultMessageTimeToLive": "PT2S"},
    "ttl-forever": LOCK | {"DefaultMessageTimeToLive": FOREVER},
    "ttl-locked": LOCK | DEAD,
    "ttl-dead": LOCK | DEAD,
    "ttl-drop": LOCK | {"MaxDeliveryCount": 1},
}

LOCK_S = 5


def lifetime(message: ServiceBusReceivedMessage) -> timedelta:
    """Return how long a message lives by its own word."""
    assert message.expires_at_utc is not None
    assert message.enqueued_time_utc is not None
    return message.expires_at_utc - message.enqueued_time_utc


def dead_letter(client: ServiceBusClient, queue: str) -> ServiceBusReceivedMessage:
    """Return the one message of the dead-letter queue, completed."""
    with client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
        (message,) = take(dead)
        expect_silence(dead, for_s=0.5)
    return message


def test_message_time_to_live(bridge: Any) -> None:
    """A message lives for its TTL from its acceptance and is never delivered after it."""
    with client_of(bridge) as client:
        send(
            client,
            "ttl-message",
            ServiceBusMessage("short", time_to_live=seconds(1)),
            ServiceBusMessage("long", time_to_live=seconds(3600)),
            ServiceBusMessage("short again", time_to_live=seconds(1)),
        )
        time.sleep(1.5)
        with client.get_queue_receiver("ttl-message") as receiver:
            (message,) = take(receiver)
            assert str(message) == "long"
            assert message.time_to_live == seconds(3600)
            assert lifetime(message) == seconds(3600)
            expect_silence(receiver)
    with native_channel(bridge) as channel:
        eventually(
            lambda: channel.queue_declare("ttl-message", passive=True).method.message_count == 0,
            "the expired are gone from RabbitMQ",
        )


def test_entity_default_is_default_and_silent_cap(bridge: Any) -> None:
    """The entity's TTL serves messages without one and silently cuts longer ones."""
    with client_of(bridge) as client:
        send(
            client,
            "ttl-capped",
            ServiceBusMessage("none"),
            ServiceBusMessage("longer", time_to_live=seconds(3600)),
            ServiceBusMessage("longest", time_to_live=timedelta(days=49)),
            ServiceBusMessage("shorter", time_to_live=seconds(20)),
        )
        with client.get_queue_receiver("ttl-capped") as receiver:
            messages = take(receiver, 4)
        assert {str(message): lifetime(message) for message in messages} == {
            "none": seconds(30),
            "longer": seconds(30),
            "longest": seconds(30),
            "shorter": seconds(20),
        }


def test_entity_default_expires(bridge: Any) -> None:
    """A message without TTL expires by the entity's, and goes where the entity says."""
    with client_of(bridge) as client:
        send(client, "ttl-default-dead", "x")
        time.sleep(2.5)
        with client.get_queue_receiver("ttl-default-dead") as receiver:
            expect_silence(receiver)
        message = dead_letter(client, "ttl-default-dead")
        assert message.dead_letter_reason == "TTLExpiredException"


def test_longest_time_to_live(bridge: Any) -> None:
    """An entity with Azure's default TTL, the longest there is, works as any other."""
    with client_of(bridge) as client:
        send(client, "ttl-forever", "no TTL")
        with client.get_queue_receiver("ttl-forever") as receiver:
            (message,) = take(receiver)
        assert str(message) == "no TTL"


def test_a_locked_message_outlives_its_expiry(bridge: Any) -> None:
    """A locked message may be renewed and completed after its expiry; then it was not expired."""
    with client_of(bridge) as client:
        send(client, "ttl-locked", ServiceBusMessage("x", time_to_live=seconds(2)))
        with client.get_queue_receiver("ttl-locked") as receiver:
            (message,) = receive(receiver)
            sleep_until(message.expires_at_utc, and_s=0.5)
            receiver.renew_message_lock(message)
            time.sleep(LOCK_S / 2)
            receiver.complete_message(message)
            expect_silence(receiver)
        with client.get_queue_receiver("ttl-locked", sub_queue="deadletter") as dead:
            expect_silence(dead)


@pytest.mark.parametrize("how", ["abandoned", "released", "lock ended"])
def test_expiry_takes_effect_when_the_lock_ends(bridge: Any, how: str) -> None:
    """A message that expired under its lock is dead-lettered at once when the lock ends."""
    with client_of(bridge) as client:
        send(client, "ttl-locked", ServiceBusMessage(how, time_to_live=seconds(2)))
        with client.get_queue_receiver("ttl-locked") as receiver:
            (message,) = receive(receiver)
            sleep_until(message.expires_at_utc, and_s=0.2)
            if how == "abandoned":
                receiver.abandon_message(message)
            elif how == "released":
                receiver._handler.settle_messages(
                    message._delivery_id, message._delivery_tag, "released"
                )
            else:
                sleep_until(message.locked_until_utc)
            expired = time.monotonic()
            found = dead_letter(client, "ttl-locked")
            assert time.monotonic() - expired < 60
            assert str(found) == how
            assert found.dead_letter_reason == "TTLExpiredException"
            expect_silence(receiver)


def test_dead_lettering_on_expiration(bridge: Any) -> None:
    """Where the entity says so, expired messages are dead-lettered whole, with Azure's reason."""
    with client_of(bridge) as client:
        sent = ServiceBusMessage(
            "x",
            time_to_live=seconds(1),
            subject="s",
            message_id="id",
            application_properties={"k": 5},
        )
        send(client, "ttl-dead", sent)
        time.sleep(1.2)
        found = dead_letter(client, "ttl-dead")
        assert found.dead_letter_reason == "TTLExpiredException"
        assert found.dead_letter_error_description == "The message expired and was dead lettered."
        assert (str(found), found.subject, found.message_id) == ("x", "s", "id")
        assert found.application_properties[b"k"] == 5
        with client.get_queue_receiver("ttl-dead") as receiver:
            expect_silence(receiver)


def test_other_reasons_dead_letter_always(bridge: Any) -> None:
    """With dead-lettering on expiration off, expiry drops, but the other reasons still keep."""
    queue = "ttl-drop"
    with client_of(bridge) as client:
        send(client, queue, ServiceBusMessage("expires", time_to_live=seconds(1)))
        time.sleep(1.2)
        with client.get_queue_receiver(queue) as receiver:
            expect_silence(receiver)
            with client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
                expect_silence(dead)
            send(client, queue, "fails", "refused")
            first, second = receive(receiver, 2)
            receiver.abandon_message(first)
            receiver.dead_letter_message(second, reason="mine", error_description="told")
            with client.get_queue_receiver(queue, sub_queue="deadletter") as dead:
                reasons = {str(found): found.dead_letter_reason for found in take(dead, 2)}
        assert reasons == {"fails": "MaxDeliveryCountExceeded", "refused": "mine"}


def test_dead_letters_do_not_expire(bridge: Any) -> None:
    """A dead letter is subject to no TTL, neither its own nor the entity's."""
    with client_of(bridge) as client:
        with client.get_queue_receiver("ttl-default-dead") as receiver:
            send(client, "ttl-default-dead", ServiceBusMessage("x", time_to_live=seconds(2)))
            (message,) = receive(receiver)
            receiver.dead_letter_message(message, reason="mine")
        sleep_until(message.expires_at_utc, and_s=0.5)
        assert dead_letter(client, "ttl-default-dead").dead_letter_reason == "mine"


def test_scheduled_and_time_to_live(bridge: Any) -> None:
    """The TTL of a scheduled message counts from its activation: 2 s and 4 s make 6 s."""
    with client_of(bridge) as client:
        due = now() + seconds(2)
        message = ServiceBusMessage("x", time_to_live=seconds(4), scheduled_enqueue_time_utc=due)
        with client.get_queue_sender("ttl-dead") as sender:
            sender.send_messages(message)
            sender.schedule_messages(ServiceBusMessage("y", time_to_live=seconds(4)), due)
        with client.get_queue_receiver("ttl-dead") as receiver:
            for found in receive(receiver, 2):
                assert found.enqueued_time_utc >= due
                assert lifetime(found) == seconds(4)
                receiver.abandon_message(found)
            sleep_until(due, and_s=3)
            first, second = receive(receiver, 2)
            receiver.abandon_message(first)
            receiver.abandon_message(second)
            sleep_until(due, and_s=4.5)
            expect_silence(receiver)
        with client.get_queue_receiver("ttl-dead", sub_queue="deadletter") as dead:
            assert {found.dead_letter_reason for found in take(dead, 2)} == {"TTLExpiredException"}


def test_nothing_expired_is_delivered(bridge: Any) -> None:
    """Of 200 messages with TTLs around the time of receiving, none is delivered after its own."""
    chance = random.Random(20261121)
    with client_of(bridge) as client:
        with client.get_queue_sender("ttl-message") as sender:
            for _ in range(20):
                batch = [ServiceBusMessage("x", time_to_live=1) for _ in range(10)]
                for message in batch:
                    # The client's own setter knows whole seconds only.
                    message.raw_amqp_message.header.time_to_live = chance.randint(1, 4000)
                sender.send_messages(batch)
        received = 0
        with client.get_queue_receiver("ttl-message") as receiver:
            while messages := receiver.receive_messages(10, max_wait_time=2):
                for message in messages:
                    received += 1
                    locked_s = message.locked_until_utc.timestamp() - LOCK_S
                    assert locked_s < message.expires_at_utc.timestamp()
                    receiver.complete_message(message)
        assert received < 200


def test_native_expiration_zero(bridge: Any) -> None:
    """A native message with expiration 0 is delivered only if a receiver waits for it."""
    properties = pika.BasicProperties(expiration="0", delivery_mode=2)
    with client_of(bridge) as client, native_channel(bridge) as channel:
        channel.basic_publish("ttl-dead", "", b"nobody waits", properties)
        assert bytes(next(iter(dead_letter(client, "ttl-dead").body))) == b"nobody waits"
        with client.get_queue_receiver("ttl-dead") as receiver:
            expect_silence(receiver)
            publish = threading.Timer(
                1, channel.basic_publish, ("ttl-dead", "", b"awaited", properties)
            )
            publish.start()
            found = [b"".join(message.body) for message in receive(receiver)]
            publish.join()
            assert found == [b"awaited"]
