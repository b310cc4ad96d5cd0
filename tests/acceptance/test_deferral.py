"""Deferral through the real Python client: received by sequence number, in every way there is."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, ServiceBusError

from bridge.topology import names
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
from tests.fixtures.waiting import eventually

DEAD = ServiceBusSubQueue.DEAD_LETTER
QUEUE = "deferral"

ENTITIES = {
    QUEUE: {"LockDuration": "PT5S", "MaxDeliveryCount": 10},
    "deferral-kill": {"LockDuration": "PT5S"},
    "deferral-reason": {},
    "deferral-copy": {},
}


def test_a_second_copy_of_a_deferred_message_is_dropped(bridge: Any) -> None:
    """A leader that is killed leaves one; the message is deferred, and not active as well."""
    queue = "deferral-copy"
    active = names.active_queue(queue)
    with client_of(bridge) as client, native_channel(bridge) as channel:
        send(client, queue, "once")
        eventually(lambda: channel.queue_declare(active, passive=True).method.message_count)
        method, properties, body = channel.basic_get(active)
        for _ in range(2):
            channel.basic_publish(method.exchange, "", body, properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver)
            receiver.defer_message(message)
            expect_silence(receiver)
            assert message.sequence_number is not None
            (found,) = receiver.receive_deferred_messages(message.sequence_number)
            receiver.complete_message(found)
            expect_silence(receiver)


def test_a_deferred_message_comes_back_by_its_number(bridge: Any) -> None:
    """Unchanged, in the state DEFERRED, and no receiver gets it before."""
    sent = ServiceBusMessage(
        b"\x00\xffbody",
        message_id="id",
        subject="s",
        application_properties={"text": "t", "nothing": None},
    )
    with client_of(bridge) as client:
        send(client, QUEUE, sent)
        with client.get_queue_receiver(QUEUE) as receiver:
            (message,) = receive(receiver)
            receiver.defer_message(message)
            expect_silence(receiver)
            assert message.sequence_number is not None
            (found,) = receiver.receive_deferred_messages(message.sequence_number)
            assert found.state is ServiceBusMessageState.DEFERRED
            assert found.sequence_number == message.sequence_number
            assert found.enqueued_time_utc == message.enqueued_time_utc
            assert b"".join(found.body) == b"\x00\xffbody"
            assert (found.message_id, found.subject) == ("id", "s")
            assert found.application_properties == {b"text": b"t", b"nothing": None}
            assert found.lock_token is not None
            receiver.renew_message_lock(found)
            receiver.complete_message(found)
            with pytest.raises(MessageNotFoundError):
                receiver.receive_deferred_messages(message.sequence_number)


def test_one_missing_number_fails_the_request(bridge: Any) -> None:
    """Azure's live test: of three deferred ones [3, 4] and [5, 6, 7] are errors."""
    with client_of(bridge) as client:
        send(client, QUEUE, "1", "2", "3")
        with client.get_queue_receiver(QUEUE) as receiver:
            messages = receive(receiver, 3)
            for message in messages:
                receiver.defer_message(message)
            first, second, third = numbers(messages)
            for wanted in ([third, third + 1], [third + 2, third + 3, third + 4]):
                with pytest.raises(ServiceBusError):
                    receiver.receive_deferred_messages(wanted)
            found = receiver.receive_deferred_messages([first, second, third])
            assert [str(message) for message in found] == ["1", "2", "3"]
            for message in found:
                receiver.complete_message(message)


def test_received_and_deleted(bridge: Any) -> None:
    """In receive-and-delete it is gone with the answer."""
    with client_of(bridge) as client:
        send(client, QUEUE, "x")
        with client.get_queue_receiver(QUEUE) as receiver:
            (message,) = receive(receiver)
            receiver.defer_message(message)
        assert message.sequence_number is not None
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with client.get_queue_receiver(QUEUE, receive_mode=mode) as deleting:
            (found,) = deleting.receive_deferred_messages(message.sequence_number)
            assert str(found) == "x"
            with pytest.raises(MessageNotFoundError):
                deleting.receive_deferred_messages(message.sequence_number)


def test_settled_in_every_way(bridge: Any) -> None:
    """Each deferral counts, an abandon and a lapsed lock too; dead-lettered it moves.

    0 at first, 1 and 2: Azure's JavaScript live tests deferredMessage.
    """
    with client_of(bridge) as client:
        send(client, QUEUE, "x")
        with client.get_queue_receiver(QUEUE) as receiver:
            (message,) = receive(receiver)
            assert message.delivery_count == 0
            receiver.defer_message(message)
            number = message.sequence_number or 0
            (first,) = receiver.receive_deferred_messages(number)
            assert first.delivery_count == 1
            receiver.abandon_message(first)
            (second,) = receiver.receive_deferred_messages(number)
            assert second.delivery_count == 2
            receiver.defer_message(second)
            (third,) = receiver.receive_deferred_messages(number)
            assert third.delivery_count == 3
            sleep_until(third.locked_until_utc)
            with pytest.raises(MessageLockLostError):
                receiver.complete_message(third)
            found: list[Any] = []

            def is_back() -> bool:
                try:
                    found.extend(receiver.receive_deferred_messages(number))
                except MessageNotFoundError:
                    return False
                return True

            eventually(is_back, "deferred again after its lock")
            assert found[0].delivery_count == 4
            receiver.dead_letter_message(found[0], reason="r", error_description="d")
            expect_silence(receiver)
        with client.get_queue_receiver(QUEUE, sub_queue=DEAD) as dead:
            (letter,) = receive(dead)
            assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("r", "d")
            assert letter.delivery_count == 4
            dead.defer_message(letter)
            expect_silence(dead)
            (letter,) = dead.receive_deferred_messages(letter.sequence_number or 0)
            assert (letter.dead_letter_reason, letter.delivery_count) == ("r", 5)
            dead.complete_message(letter)


def test_a_reason_that_is_no_text(bridge: Any) -> None:
    """The dead-lettering is refused as an argument, and the message stays locked."""
    queue = "deferral-reason"
    with client_of(bridge) as client:
        send(client, queue, "x")
        with client.get_queue_receiver(queue) as receiver:
            (message,) = receive(receiver)
            receiver.defer_message(message)
            number = message.sequence_number or 0
            (found,) = receiver.receive_deferred_messages(number)
            with pytest.raises(ServiceBusError, match="must be a string"):
                receiver.dead_letter_message(found, reason=404)  # type: ignore[arg-type]
        # The SDK closes a receiver whose settlement is refused.
        with client.get_queue_receiver(queue) as other:
            other.complete_message(found)
            with pytest.raises(MessageNotFoundError):
                other.receive_deferred_messages(number)


def test_deferred_by_token(bridge: Any) -> None:
    """After its receiver is closed a message is deferred, and completed, through $management."""
    with client_of(bridge) as client:
        send(client, QUEUE, "x")
        with client.get_queue_receiver(QUEUE) as receiver:
            (message,) = receive(receiver)
        with client.get_queue_receiver(QUEUE) as other:
            other.defer_message(message)
            expect_silence(other)
            (found,) = other.receive_deferred_messages(message.sequence_number or 0)
            other.complete_message(found)
            expect_silence(other)


async def test_aio(bridge: Any) -> None:
    """The asyncio client does the same."""
    async with AioClient.from_connection_string(bridge.connection_string, retry_total=0) as client:
        async with client.get_queue_sender(QUEUE) as sender:
            await sender.send_messages(ServiceBusMessage("x"))
        async with client.get_queue_receiver(QUEUE) as receiver:
            (message,) = await receiver.receive_messages(1, max_wait_time=120)
            await receiver.defer_message(message)
            assert message.sequence_number is not None
            (found,) = await receiver.receive_deferred_messages(message.sequence_number)
            assert str(found) == "x"
            await receiver.complete_message(found)


def test_what_is_deferred_outlives_a_kill(start_bridge: Any) -> None:
    """kill -9 of the bridge loses no deferred message, locked or not, and doubles none."""
    bridge = start_bridge()
    with client_of(bridge) as client:
        send(client, "deferral-kill", *"abc")
        with client.get_queue_receiver("deferral-kill") as receiver:
            messages = receive(receiver, 3)
            for message in messages:
                receiver.defer_message(message)
            receiver.receive_deferred_messages(numbers(messages)[:1])
    bridge.restart()
    with client_of(bridge) as client, client.get_queue_receiver("deferral-kill") as receiver:
        expect_silence(receiver)
        found = receiver.receive_deferred_messages(numbers(messages))
        assert [str(message) for message in found] == ["a", "b", "c"]
        for message in found:
            receiver.complete_message(message)
        send(client, "deferral-kill", "next")
        assert [str(message) for message in take(receiver)] == ["next"]
