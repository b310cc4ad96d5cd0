"""Explicit dead-lettering and the dead-letter sub-queue, through the real Python client."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from tests.acceptance.sdk import client_of, expect_silence, receive, send, sleep_until, take

DEAD = ServiceBusSubQueue.DEAD_LETTER
QUEUE = "dead-letter"

ENTITIES = {QUEUE: {"LockDuration": "PT5S"}, "dead-letter-limit": {"MaxDeliveryCount": 3}}


def test_reason_and_description(bridge: Any) -> None:
    """A dead-lettered message has the reason and the description that were given, and its all."""
    sent = ServiceBusMessage(
        b"\x00\xffbody",
        message_id="id",
        correlation_id="c",
        subject="s",
        content_type="x/y",
        application_properties={"text": "t", "number": 5, "nothing": None},
    )
    with client_of(bridge) as client:
        send(client, QUEUE, sent)
        with client.get_queue_receiver(QUEUE) as receiver:
            (message,) = receive(receiver)
            reason, description = "my reason", "described\nat length: ä☃" + "x" * 2000
            receiver.dead_letter_message(message, reason=reason, error_description=description)
            expect_silence(receiver)
        with client.get_queue_receiver(QUEUE, sub_queue=DEAD) as dead:
            (found,) = take(dead)
            expect_silence(dead)
    assert found.dead_letter_reason == reason
    assert found.dead_letter_error_description == description
    assert b"".join(found.body) == b"\x00\xffbody"
    assert found.message_id == "id"
    assert (found.correlation_id, found.subject, found.content_type) == ("c", "s", "x/y")
    assert found.application_properties[b"text"] == b"t"
    assert found.application_properties[b"number"] == 5
    assert found.application_properties[b"nothing"] is None
    assert found.sequence_number
    assert found.delivery_count == message.delivery_count


def test_without_reason(bridge: Any) -> None:
    """A reason is not needed."""
    with client_of(bridge) as client:
        send(client, QUEUE, "x")
        with client.get_queue_receiver(QUEUE) as receiver:
            receiver.dead_letter_message(receive(receiver)[0])
        with client.get_queue_receiver(QUEUE, sub_queue=DEAD) as dead:
            (found,) = take(dead)
            assert str(found) == "x"
            assert not found.dead_letter_reason


def test_settling_in_the_sub_queue(bridge: Any) -> None:
    """A dead letter is locked, abandoned, renewed and completed as any other message."""
    with client_of(bridge) as client:
        send(client, QUEUE, "x")
        with client.get_queue_receiver(QUEUE) as receiver:
            receiver.dead_letter_message(receive(receiver)[0], reason="r")
        with client.get_queue_receiver(QUEUE, sub_queue=DEAD) as dead:
            (first,) = receive(dead)
            dead.abandon_message(first)
            (second,) = receive(dead)
            assert second.delivery_count == first.delivery_count
            dead.renew_message_lock(second)
            sleep_until(second.locked_until_utc, and_s=0.5)
            (third,) = receive(dead)
            assert third.dead_letter_reason == "r"
            dead.complete_message(third)
            expect_silence(dead)


def test_a_dead_letter_keeps_its_delivery_count(bridge: Any) -> None:
    """Failed once before, it has 1: an abandon or a lapsed lock adds none, a deferral one."""
    with client_of(bridge) as client:
        send(client, QUEUE, "x")
        with client.get_queue_receiver(QUEUE) as receiver:
            receiver.abandon_message(receive(receiver)[0])
            receiver.dead_letter_message(receive(receiver)[0], reason="r")
        with client.get_queue_receiver(QUEUE, sub_queue=DEAD) as dead:
            (peeked,) = dead.peek_messages(1)
            assert peeked.delivery_count == 1
            (first,) = receive(dead)
            assert first.delivery_count == 1
            dead.abandon_message(first)
            (second,) = receive(dead)
            assert second.delivery_count == 1
            dead.defer_message(second)
            (deferred,) = dead.receive_deferred_messages([second.sequence_number])
            assert deferred.delivery_count == 2
            dead.complete_message(deferred)
            expect_silence(dead)


def test_no_dead_letter_of_a_dead_letter(bridge: Any) -> None:
    """A message of the dead-letter queue cannot be dead-lettered, and stays."""
    with client_of(bridge) as client:
        send(client, QUEUE, "x")
        with client.get_queue_receiver(QUEUE) as receiver:
            receiver.dead_letter_message(receive(receiver)[0], reason="r")
        with client.get_queue_receiver(QUEUE, sub_queue=DEAD) as dead:
            (message,) = receive(dead)
            with pytest.raises(ServiceBusError):
                dead.dead_letter_message(message, reason="again")
        with client.get_queue_receiver(QUEUE, sub_queue=DEAD) as dead:
            (found,) = take(dead)
            assert found.dead_letter_reason == "r"


def test_dead_letters_have_no_delivery_limit(bridge: Any) -> None:
    """MaxDeliveryCount (3 here) does not limit deliveries from the dead-letter queue."""
    with client_of(bridge) as client:
        send(client, "dead-letter-limit", "x")
        with client.get_queue_receiver("dead-letter-limit") as receiver:
            receiver.dead_letter_message(receive(receiver)[0], reason="r")
        with client.get_queue_receiver("dead-letter-limit", sub_queue=DEAD) as dead:
            for _ in range(8):
                dead.abandon_message(receive(dead)[0])
            take(dead)


def test_resubmission(bridge: Any) -> None:
    """A dead letter can be sent again as a new message."""
    with client_of(bridge) as client:
        send(client, QUEUE, ServiceBusMessage("x", application_properties={"try": 1}))
        with client.get_queue_receiver(QUEUE) as receiver:
            receiver.dead_letter_message(receive(receiver)[0], reason="r")
            with client.get_queue_receiver(QUEUE, sub_queue=DEAD) as dead:
                (found,) = receive(dead)
                send(client, QUEUE, ServiceBusMessage(b"".join(found.body)))
                dead.complete_message(found)
            (again,) = take(receiver)
            assert str(again) == "x"
            assert again.delivery_count == 0
            assert not again.dead_letter_reason


def test_the_sub_queue_takes_no_messages(bridge: Any) -> None:
    """Nobody can send to a dead-letter queue."""
    with client_of(bridge) as client, pytest.raises(ServiceBusError):
        send(client, f"{QUEUE}/$DeadLetterQueue", "x")
