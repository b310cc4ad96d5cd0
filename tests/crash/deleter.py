"""Deletes a queue's messages in batches, by the client that can; prints one JSON object a call.

python deleter.py CONNECTION_STRING QUEUE PORT CA, until its standard input ends. What is printed
before a call has `count` null; an answered call is printed again with it. Uses nothing but the
client itself: it runs in an environment of its own.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusClient, TransportType

CONNECTION_STRING, QUEUE, PORT, CA = sys.argv[1:]
ASKED_MAX = 60
YOUNG_MS = 300
"""Messages of the last moments are not to be deleted."""

logging.getLogger("azure").setLevel(logging.CRITICAL)


def delete(receiver: object, chance: random.Random, call: int) -> None:
    """Delete some messages, and print before and after."""
    asked = chance.randint(1, ASKED_MAX)
    now = datetime.now(timezone.utc)  # noqa: UP017
    before = now - timedelta(milliseconds=YOUNG_MS)
    note = {"call": call, "before_ms": round(before.timestamp() * 1000), "asked": asked}
    print(json.dumps({**note, "count": None}), flush=True)
    count = receiver.delete_messages(  # type: ignore[attr-defined]
        max_message_count=asked, before=before
    )
    print(json.dumps({**note, "count": count}), flush=True)


def work(ending: threading.Event) -> None:
    """Connect, delete, and connect again after each failure."""
    chance = random.Random("deleter")
    call = 0
    while not ending.is_set():
        try:
            with (
                ServiceBusClient.from_connection_string(
                    CONNECTION_STRING,
                    retry_total=0,
                    custom_endpoint_address=f"sb://localhost:{PORT}",
                    transport_type=TransportType.AmqpOverWebsocket,
                    connection_verify=CA,
                ) as client,
                client.get_queue_receiver(QUEUE) as receiver,
            ):
                while not ending.wait(chance.uniform(0, 0.3)):
                    call += 1
                    delete(receiver, chance, call)
        except Exception:
            time.sleep(0.2)


def main() -> None:
    """Work until standard input ends."""
    ending = threading.Event()
    worker = threading.Thread(target=work, args=(ending,))
    worker.start()
    sys.stdin.read()
    ending.set()
    worker.join()


main()
