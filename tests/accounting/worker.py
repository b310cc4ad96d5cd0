"""Python clients at ordinary work: the SDK, one call after the other and in tasks, and the library.

    python -m tests.accounting.worker CLIENT KIND CONNECTION_STRING AMQP_URL PLACE

CLIENT is azure, azure-aio, pika or aio-pika; KIND is batch, sessions or delete. Prints what it does
and sees, a line of JSON each, until its standard input ends; then it closes with what it holds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import azure.servicebus
import azure.servicebus.aio
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceiveMode

from tests.acceptance.lanes import lane_of
from tests.accounting.fates import fate_of, takes_deferred

BATCH = 20
WAIT_S = 0.5
PAUSE_S = 0.2
LATE_S = 0.5
IN_SESSION = 15
"""So many messages are taken from a session before the next one's turn."""

logging.getLogger("azure").setLevel(logging.CRITICAL)
_printing = threading.Lock()
_ending = threading.Event()


def say(what: str, message: Any, **fields: object) -> None:
    """Print an event; it is out before whatever comes next is begun."""
    line = {
        "what": what,
        "id": message.message_id,
        "number": message.sequence_number,
        "session": message.session_id or "",
        "at": time.time_ns() // 1_000_000,
        **fields,
    }
    with _printing:
        print(json.dumps(line), flush=True)


def got(message: Any, until: datetime | None) -> None:
    """Print a delivery."""
    say(
        "got",
        message,
        count=message.delivery_count or 0,
        until=round(until.timestamp() * 1000) if until is not None else None,
    )


def ways(receiver: Any) -> dict[str, Any]:
    """Return the call that carries a fate out."""
    return {
        "complete": receiver.complete_message,
        "abandon": receiver.abandon_message,
        "throw": receiver.abandon_message,
        "dead": receiver.dead_letter_message,
        "defer": receiver.defer_message,
    }


def settle(receiver: Any, message: Any, how: str) -> bool:
    """Settle a message and print how it went; return whether it was done."""
    say("settling", message, how=how)
    try:
        ways(receiver)[how](message)
    except Exception as error:
        say("refused", message, how=how, error=repr(error))
        return False
    say("settled", message, how=how)
    return True


def handle(receiver: Any, message: Any, fate: str) -> None:
    """Do with a message what its fate says."""
    if fate == "lapse":
        say("settling", message, how=fate)
        return
    done = settle(receiver, message, "complete" if fate == "late" else fate)
    if done and fate == "defer" and takes_deferred(message.message_id):
        (again,) = receiver.receive_deferred_messages([message.sequence_number])
        got(again, again.locked_until_utc)
        settle(receiver, again, "complete")


def handle_all(receiver: Any, messages: list[Any], *, in_session: bool) -> None:
    """Settle what was received together; what is late comes last."""
    fates = []
    for message in messages:
        session = receiver.session if in_session else None
        got(message, session.locked_until_utc if session else message.locked_until_utc)
        fate = fate_of(message.message_id, message.delivery_count or 0, in_session=in_session)
        fates.append((fate == "late", fate, message))
    waited = False
    for is_late, fate, message in sorted(fates, key=lambda each: each[0]):
        if is_late and not waited:
            waited = _ending.wait(LATE_S) or True
        handle(receiver, message, fate)


def batch(client: Any, place: str) -> None:
    """Receive and settle batches until something fails."""
    with receiver_of(client, place) as receiver:
        while not _ending.is_set():
            messages = receiver.receive_messages(BATCH, max_wait_time=WAIT_S)
            handle_all(receiver, messages, in_session=False)


def sessions(client: Any, place: str) -> None:
    """Receive one session after the other."""
    while not _ending.is_set():
        with receiver_of(
            client, place, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2
        ) as receiver:
            for _ in range(IN_SESSION):
                messages = receiver.receive_messages(3, max_wait_time=WAIT_S)
                handle_all(receiver, messages, in_session=True)
                if not messages:
                    break


def delete(client: Any, place: str) -> None:
    """Receive and delete."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with receiver_of(client, place, receive_mode=mode) as receiver:
        while not _ending.is_set():
            for message in receiver.receive_messages(BATCH, max_wait_time=WAIT_S):
                got(message, None)
                say("settled", message, how="delete")


def receiver_of(client: Any, place: str, **options: Any) -> Any:
    """Return a receiver of a queue or a subscription."""
    topic, is_subscription, name = place.partition("/subscriptions/")
    if is_subscription:
        return client.get_subscription_receiver(topic, name, **options)
    return client.get_queue_receiver(place, **options)


async def batch_in_tasks(connection_string: str, place: str) -> None:
    """Receive batches; settle each message in a task of its own."""
    make = azure.servicebus.aio.ServiceBusClient.from_connection_string
    async with make(connection_string) as client, receiver_of(client, place) as receiver:
        while not _ending.is_set():
            messages = await receiver.receive_messages(BATCH, max_wait_time=WAIT_S)
            await asyncio.gather(*(_handle_in_task(receiver, each) for each in messages))


async def _handle_in_task(receiver: Any, message: Any) -> None:
    got(message, message.locked_until_utc)
    fate = fate_of(message.message_id, message.delivery_count or 0)
    if fate == "late":
        await asyncio.sleep(LATE_S)
    if fate == "lapse":
        say("settling", message, how=fate)
        return
    done = await _settle_in_task(receiver, message, "complete" if fate == "late" else fate)
    if done and fate == "defer" and takes_deferred(message.message_id):
        (again,) = await receiver.receive_deferred_messages([message.sequence_number])
        got(again, again.locked_until_utc)
        await _settle_in_task(receiver, again, "complete")


async def _settle_in_task(receiver: Any, message: Any, how: str) -> bool:
    say("settling", message, how=how)
    try:
        await ways(receiver)[how](message)
    except Exception as error:
        say("refused", message, how=how, error=repr(error))
        return False
    say("settled", message, how=how)
    return True


@contextmanager
def client_of(lane: str, connection_string: str, amqp_url: str) -> Iterator[Any]:
    """A client of the SDK or of the library."""
    where = SimpleNamespace(connection_string=connection_string, amqp_url=amqp_url)
    with lane_of(lane, where, retry_total=3) as made:
        yield made.client


def work(lane: str, kind: str, connection_string: str, amqp_url: str, place: str) -> None:
    """Work, and begin again after each failure, until told to end."""
    kinds = {"batch": batch, "sessions": sessions, "delete": delete}
    while not _ending.is_set():
        try:
            if lane == "azure-aio":
                asyncio.run(batch_in_tasks(connection_string, place))
                continue
            with client_of(lane, connection_string, amqp_url) as client:
                kinds[kind](client, place)
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            _ending.wait(PAUSE_S)


def main() -> None:
    """Work until standard input ends."""
    worker = threading.Thread(target=work, args=tuple(sys.argv[1:]))
    worker.start()
    sys.stdin.read()
    _ending.set()
    worker.join()


if __name__ == "__main__":
    main()
