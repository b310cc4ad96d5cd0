"""Runs named scenarios of an older azure-servicebus and prints one JSON object a scenario.

python scenarios.py CONNECTION_STRING QUEUE [SCENARIO...]

Uses nothing but the client itself: it runs in an environment of its own. The queue must be empty,
with a lock duration of 5 s and at least 10 deliveries.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus import exceptions as errors

CONNECTION_STRING, QUEUE, *WANTED = sys.argv[1:]
LOCK_S = 5.0
SCENARIOS: dict[str, Callable[[ServiceBusClient], str | None]] = {}


def scenario(run: Callable[[ServiceBusClient], str | None]) -> None:
    """Note a scenario under its function's name."""
    SCENARIOS[run.__name__] = run


def send(client: ServiceBusClient, *messages: ServiceBusMessage) -> None:
    """Send messages one by one."""
    with client.get_queue_sender(QUEUE) as sender:
        for message in messages:
            sender.send_messages(message)


def receive(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receive exactly so many."""
    messages: list[ServiceBusReceivedMessage] = []
    end = time.monotonic() + 120
    while len(messages) < count and (left_s := end - time.monotonic()) > 0:
        messages += receiver.receive_messages(count - len(messages), max_wait_time=left_s)
    assert len(messages) == count, f"{len(messages)} messages, not {count}"
    return messages


def expect_silence(receiver: ServiceBusReceiver) -> None:
    """There is nothing to receive."""
    assert receiver.receive_messages(1, max_wait_time=1) == []


def expect_error(kind: type[Exception], action: Callable[[], object]) -> str:
    """The action fails with this error; return its text."""
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def dead_letters(client: ServiceBusClient) -> ServiceBusReceiver:
    """A receiver of the dead-letter sub-queue."""
    return client.get_queue_receiver(QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER)


def soon(seconds: float) -> datetime:
    """An instant from now, in whole milliseconds."""
    instant = datetime.now(timezone.utc) + timedelta(seconds=seconds)  # noqa: UP017
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


@scenario
def single_send(client: ServiceBusClient) -> None:
    """One message there and gone."""
    send(client, ServiceBusMessage("hello", message_id="m1"))
    with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = receive(receiver)
        assert (str(message), message.message_id, message.delivery_count) == ("hello", "m1", 0)
        assert message.sequence_number
        assert message.locked_until_utc > soon(0)
        receiver.complete_message(message)
        expect_silence(receiver)


@scenario
def batch_send(client: ServiceBusClient) -> None:
    """A batch arrives in order, its numbers in a row."""
    with client.get_queue_sender(QUEUE) as sender:
        batch = sender.create_message_batch()
        for i in range(10):
            batch.add_message(ServiceBusMessage(str(i)))
        sender.send_messages(batch)
    with client.get_queue_receiver(QUEUE) as receiver:
        messages = receive(receiver, 10)
        assert [str(message) for message in messages] == [str(i) for i in range(10)]
        first = messages[0].sequence_number or 0
        assert [m.sequence_number for m in messages] == list(range(first, first + 10))
        for message in messages:
            receiver.complete_message(message)


@scenario
def abandon(client: ServiceBusClient) -> None:
    """Abandoning counts one delivery."""
    send(client, ServiceBusMessage("again"))
    with client.get_queue_receiver(QUEUE) as receiver:
        (first,) = receive(receiver)
        receiver.abandon_message(first)
        (second,) = receive(receiver)
        assert (first.delivery_count, second.delivery_count) == (0, 1)
        assert first.sequence_number == second.sequence_number
        receiver.complete_message(second)


@scenario
def dead_letter(client: ServiceBusClient) -> None:
    """Reason and description come along."""
    send(client, ServiceBusMessage("bad", application_properties={"a": 1}))
    with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = receive(receiver)
        receiver.dead_letter_message(message, reason="no good", error_description="bad ☃")
        expect_silence(receiver)
    with dead_letters(client) as dead:
        (found,) = receive(dead)
        assert (found.dead_letter_reason, found.dead_letter_error_description) == (
            "no good",
            "bad ☃",
        )
        dead.complete_message(found)


@scenario
def defer(client: ServiceBusClient) -> str:
    """A deferred message is received by its number and completed."""
    send(client, ServiceBusMessage("later"))
    with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = receive(receiver)
        receiver.defer_message(message)
        # This client settles without waiting for an answer, and asks on another link.
        end = time.monotonic() + 120
        while True:
            try:
                (deferred,) = receiver.receive_deferred_messages(message.sequence_number)
                break
            except errors.MessageNotFoundError:
                assert time.monotonic() < end
        assert str(deferred) == "later"
        receiver.complete_message(deferred)
        expect_silence(receiver)
    return "deferred and received by number"


@scenario
def close_with_unsettled(client: ServiceBusClient) -> str:
    """What a closed receiver held comes back."""
    send(client, ServiceBusMessage("one"))
    with client.get_queue_receiver(QUEUE) as receiver:
        receive(receiver)
    with client.get_queue_receiver(QUEUE) as receiver:
        (back,) = receive(receiver)
        receiver.complete_message(back)
    return f"delivery count {back.delivery_count}"


@scenario
def renew_lock(client: ServiceBusClient) -> None:
    """A renewed lock holds on."""
    send(client, ServiceBusMessage("long work"))
    with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = receive(receiver)
        time.sleep(LOCK_S * 0.6)
        receiver.renew_message_lock(message)
        time.sleep(LOCK_S * 0.7)
        receiver.complete_message(message)
        expect_silence(receiver)


@scenario
def lock_lost(client: ServiceBusClient) -> None:
    """A lock that has ended cannot be renewed."""
    send(client, ServiceBusMessage("too slow"))
    with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = receive(receiver)
        time.sleep(LOCK_S + 0.5)
        expect_error(errors.MessageLockLostError, lambda: receiver.renew_message_lock(message))
        (again,) = receive(receiver)
        assert again.delivery_count == 1
        receiver.complete_message(again)


@scenario
def schedule(client: ServiceBusClient) -> None:
    """Enqueued when due, with a new number."""
    due = soon(2)
    with client.get_queue_sender(QUEUE) as sender:
        (number,) = sender.schedule_messages(ServiceBusMessage("later"), due)
    with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = receive(receiver)
        assert message.enqueued_time_utc >= due
        assert (message.sequence_number or 0) > number
        receiver.complete_message(message)


@scenario
def schedule_cancel(client: ServiceBusClient) -> None:
    """What is cancelled stays away."""
    with client.get_queue_sender(QUEUE) as sender:
        messages = [ServiceBusMessage("never"), ServiceBusMessage("ever")]
        sender.cancel_scheduled_messages(sender.schedule_messages(messages, soon(2)))
    time.sleep(2)
    with client.get_queue_receiver(QUEUE) as receiver:
        expect_silence(receiver)


@scenario
def cancel_unknown(client: ServiceBusClient) -> str:
    """Cancelling an unknown number is an error."""
    with client.get_queue_sender(QUEUE) as sender:
        return expect_error(
            errors.MessageNotFoundError, lambda: sender.cancel_scheduled_messages(987_654_321)
        )


@scenario
def receive_and_delete(client: ServiceBusClient) -> None:
    """Received is gone."""
    send(client, ServiceBusMessage("1"), ServiceBusMessage("2"))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver(QUEUE, receive_mode=mode) as receiver:
        assert [str(message) for message in receive(receiver, 2)] == ["1", "2"]


@scenario
def time_to_live(client: ServiceBusClient) -> None:
    """What has expired is not received."""
    send(
        client,
        ServiceBusMessage("short", time_to_live=timedelta(seconds=1)),
        ServiceBusMessage("long", time_to_live=timedelta(hours=1)),
    )
    time.sleep(1.5)
    with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = receive(receiver)
        assert str(message) == "long"
        assert message.expires_at_utc - message.enqueued_time_utc == timedelta(hours=1)
        receiver.complete_message(message)


@scenario
def large(client: ServiceBusClient) -> None:
    """200 KiB there and back."""
    send(client, ServiceBusMessage(b"\x07" * 200 * 1024))
    with client.get_queue_receiver(QUEUE) as receiver:
        (message,) = receive(receiver)
        assert b"".join(message.body) == b"\x07" * 200 * 1024
        receiver.complete_message(message)


@scenario
def wrong_key(client: ServiceBusClient) -> str:
    """A wrong key is refused."""
    text = CONNECTION_STRING.replace("SharedAccessKey=", "SharedAccessKey=x")
    with ServiceBusClient.from_connection_string(text, retry_total=0) as other:
        return expect_error(
            errors.ServiceBusAuthenticationError, lambda: send(other, ServiceBusMessage("x"))
        )


@scenario
def unknown_entity(client: ServiceBusClient) -> str:
    """An unknown queue is refused."""
    sender = client.get_queue_sender("no-such-queue")
    return expect_error(
        errors.ServiceBusError, lambda: sender.send_messages(ServiceBusMessage("x"))
    )


def empty() -> None:
    """Leave the queue empty for the next scenario."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    time.sleep(LOCK_S)
    with ServiceBusClient.from_connection_string(CONNECTION_STRING) as client:
        for part in (None, ServiceBusSubQueue.DEAD_LETTER):
            with client.get_queue_receiver(QUEUE, sub_queue=part, receive_mode=mode) as receiver:
                while receiver.receive_messages(100, max_wait_time=1):
                    continue


def main() -> None:
    """Run what is wanted, or all."""
    for name in WANTED or SCENARIOS:
        started = time.monotonic()
        result = {"scenario": name, "ok": True, "detail": ""}
        try:
            with ServiceBusClient.from_connection_string(
                CONNECTION_STRING, retry_total=0
            ) as client:
                result["detail"] = SCENARIOS[name](client) or ""
        except Exception:
            result |= {"ok": False, "detail": traceback.format_exc()}
        result["seconds"] = round(time.monotonic() - started, 3)
        print(json.dumps(result), flush=True)
        if not result["ok"]:
            empty()


main()
