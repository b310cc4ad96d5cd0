"""Batch delete and purge by the one Python client that has them, azure-servicebus 7.13.0b1.

python batch_delete.py CONNECTION_STRING QUEUE [SCENARIO...]

Prints one JSON object a scenario. It connects by WebSockets in TLS (PORT and CA in the
environment): so this client takes the address of a server.
Each scenario has a queue of its own, `QUEUE-SCENARIO`; `topic/events` has a subscription `audit`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusSubQueue,
    TransportType,
)
from azure.servicebus.exceptions import ServiceBusError

CONNECTION_STRING, PREFIX, *WANTED = sys.argv[1:]
SCENARIOS: dict[str, Callable[[ServiceBusClient, str], str | None]] = {}
NOTHING = timedelta(0)


def scenario(run: Callable[[ServiceBusClient, str], str | None]) -> None:
    """Note a scenario under its function's name."""
    SCENARIOS[run.__name__] = run


def now(offset: timedelta = NOTHING) -> datetime:
    """Return an instant."""
    return datetime.now(timezone.utc) + offset  # noqa: UP017


def send(client: ServiceBusClient, queue: str, *bodies: str, **fields: Any) -> None:
    """Send messages in one batch."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, **fields) for body in bodies])


def bodies(messages: list[Any]) -> list[str]:
    """Return what messages say."""
    return [str(message) for message in messages]


def rest(receiver: Any) -> list[str]:
    """Receive and complete all that is left."""
    found: list[str] = []
    while messages := receiver.receive_messages(100, max_wait_time=1):
        for message in messages:
            receiver.complete_message(message)
        found += bodies(messages)
    return found


@scenario
def counts(client: ServiceBusClient, queue: str) -> None:
    """The oldest go first, as many as are asked for; then all; then none."""
    send(client, queue, *(str(number) for number in range(10)))
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.delete_messages(max_message_count=4) == 4
        assert bodies(receiver.peek_messages(1)) == ["4"]
        assert receiver.delete_messages() == 6
        assert receiver.delete_messages() == 0
        assert rest(receiver) == []


@scenario
def before(client: ServiceBusClient, queue: str) -> None:
    """Nothing that is younger than the time goes, and what stays was not counted."""
    send(client, queue, "old", "older")
    time.sleep(0.05)
    limit = now()
    time.sleep(0.05)
    send(client, queue, *(f"young {number}" for number in range(5)))
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.purge_messages(before=limit) == 2
        messages = receiver.receive_messages(5, max_wait_time=120)
        assert bodies(messages)[0] == "young 0", bodies(messages)
        assert [message.delivery_count for message in messages] == [0] * len(messages)
        for message in messages:
            receiver.complete_message(message)
        assert len(messages) + len(rest(receiver)) == 5


@scenario
def others(client: ServiceBusClient, queue: str) -> None:
    """Locked, deferred and scheduled messages stay."""
    send(client, queue, "locked", "deferred", "waits")
    with client.get_queue_sender(queue) as sender:
        (number,) = sender.schedule_messages(
            ServiceBusMessage("scheduled"), now(timedelta(minutes=5))
        )
    with client.get_queue_receiver(queue) as receiver:
        locked, deferred = receiver.receive_messages(2, max_wait_time=120)
        receiver.defer_message(deferred)
        assert receiver.purge_messages(before=now(timedelta(hours=1))) == 1
        receiver.complete_message(locked)
        (again,) = receiver.receive_deferred_messages(deferred.sequence_number)
        receiver.complete_message(again)
        assert rest(receiver) == []
    with client.get_queue_sender(queue) as sender:
        sender.cancel_scheduled_messages(number)


@scenario
def dead_letters(client: ServiceBusClient, queue: str) -> None:
    """A dead-letter queue, whose messages are in no order of their times."""
    send(client, queue, "first", "second")
    with client.get_queue_receiver(queue) as receiver:
        early = receiver.receive_messages(2, max_wait_time=120)
        time.sleep(0.05)
        limit = now()
        time.sleep(0.05)
        send(client, queue, "third")
        for message in [*receiver.receive_messages(1, max_wait_time=120), *early]:
            receiver.dead_letter_message(message)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        assert receiver.delete_messages(before=limit) == 2
        assert rest(receiver) == ["third"]


@scenario
def subscription(client: ServiceBusClient, queue: str) -> None:
    """One subscription's messages; its topic's others keep theirs."""
    with client.get_topic_sender("events") as sender:
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
    with client.get_subscription_receiver("events", "audit") as receiver:
        assert receiver.purge_messages() == 3
    with client.get_subscription_receiver("events", "other") as receiver:
        assert rest(receiver) == ["0", "1", "2"]


@scenario
def session(client: ServiceBusClient, queue: str) -> None:
    """The messages of the session that is held, in order; no other's."""
    queue += "-session"
    send(client, queue, "a0", "a1", "a2", session_id="a")
    send(client, queue, "b0", session_id="b")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.delete_messages(max_message_count=1) == 1
        (message,) = receiver.receive_messages(1, max_wait_time=120)
        assert str(message) == "a1"
        assert receiver.purge_messages() == 1
        receiver.complete_message(message)
        assert receiver.purge_messages() == 0
        time.sleep(0.05)
        limit = now()
        time.sleep(0.05)
        send(client, queue, "a3", session_id="a")
        assert receiver.purge_messages(before=limit) == 0
        assert rest(receiver) == ["a3"]
    with client.get_queue_receiver(queue, session_id="b") as receiver:
        assert rest(receiver) == ["b0"]


@scenario
def limits(client: ServiceBusClient, queue: str) -> str:
    """4,000 at most a request; one more is refused, and nothing is deleted."""
    send(client, queue, "stays")
    with client.get_queue_receiver(queue) as receiver:
        try:
            receiver.delete_messages(max_message_count=4001)
        except ServiceBusError as error:
            text = str(error)
        else:
            raise AssertionError("it was taken")
        assert "4000" in text, text
        assert rest(receiver) == ["stays"]
    return text


@scenario
def many(client: ServiceBusClient, queue: str) -> str:
    """A purge of more than one request may name."""
    for _ in range(9):
        send(client, queue, *(["x"] * 500))
    with client.get_queue_receiver(queue) as receiver:
        began = time.monotonic()
        assert receiver.purge_messages(before=now(timedelta(minutes=1))) == 4500
        took_s = time.monotonic() - began
        assert rest(receiver) == []
    return f"4500 in {took_s:.1f} s"


def outcome_of(name: str) -> dict[str, object]:
    """Run a scenario with a client of its own."""
    with ServiceBusClient.from_connection_string(
        CONNECTION_STRING,
        retry_total=0,
        custom_endpoint_address=f"sb://localhost:{os.environ['PORT']}",
        transport_type=TransportType.AmqpOverWebsocket,
        connection_verify=os.environ["CA"],
    ) as client:
        try:
            detail, is_ok = SCENARIOS[name](client, f"{PREFIX}-{name}") or "", True
        except Exception:
            detail, is_ok = traceback.format_exc(), False
    return {"scenario": name, "ok": is_ok, "detail": detail}


def main() -> None:
    """Run the scenarios that are asked for, or all, at once: a client waits most of the time."""
    with ThreadPoolExecutor(len(SCENARIOS)) as threads:
        for outcome in threads.map(outcome_of, WANTED or SCENARIOS):
            print(json.dumps(outcome), flush=True)


main()
