"""One scenario of the real azure-servicebus client against a server; prints its samples as JSON.

python -m tests.bench.sdk_client CONNECTION_STRING QUEUE SCENARIO COUNT
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

BODY = b"x" * 1024
BATCH = 100


def send_batches(sender: ServiceBusSender, count: int) -> None:
    """Send `count` messages in batches of 100."""
    for first in range(0, count, BATCH):
        batch = sender.create_message_batch()
        for _ in range(min(BATCH, count - first)):
            batch.add_message(ServiceBusMessage(BODY))
        sender.send_messages(batch)


def batched(client: ServiceBusClient, queue: str, count: int) -> dict[str, object]:
    """Messages a second, in batches of 100."""
    with client.get_queue_sender(queue) as sender:
        send_batches(sender, BATCH)
        begin = time.perf_counter()
        send_batches(sender, count)
        return {"rate": count / (time.perf_counter() - begin)}


def single(client: ServiceBusClient, queue: str, count: int) -> dict[str, object]:
    """Milliseconds of each single send."""
    samples = []
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(BODY))
        for _ in range(count):
            begin = time.perf_counter()
            sender.send_messages(ServiceBusMessage(BODY))
            samples.append((time.perf_counter() - begin) * 1000)
    return {"ms": samples, "rate": 1000 * count / sum(samples)}


def schedule(client: ServiceBusClient, queue: str, count: int) -> dict[str, object]:
    """Schedules a second, one message a call."""
    import datetime

    due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage(BODY), due)
        begin = time.perf_counter()
        for _ in range(count):
            sender.schedule_messages(ServiceBusMessage(BODY), due)
        return {"rate": count / (time.perf_counter() - begin)}


def _receive(client: ServiceBusClient, queue: str, count: int, at_once: int) -> dict[str, object]:
    with client.get_queue_sender(queue) as sender:
        send_batches(sender, count + at_once)
    samples = []
    with client.get_queue_receiver(queue) as receiver:
        for message in receiver.receive_messages(max_message_count=at_once, max_wait_time=10):
            receiver.complete_message(message)
        done = 0
        begin = time.perf_counter()
        while done < count:
            started = time.perf_counter()
            messages = receiver.receive_messages(max_message_count=at_once, max_wait_time=10)
            for message in messages:
                receiver.complete_message(message)
            if not messages:
                break
            samples.append((time.perf_counter() - started) * 1000 / len(messages))
            done += len(messages)
        rate = done / (time.perf_counter() - begin)
    return {"ms": samples, "rate": rate, "received": done}


def receive_100(client: ServiceBusClient, queue: str, count: int) -> dict[str, object]:
    """Receive 100, complete each: messages a second, and milliseconds a message."""
    return _receive(client, queue, count, 100)


def receive_1(client: ServiceBusClient, queue: str, count: int) -> dict[str, object]:
    """Receive 1, complete it: messages a second, and milliseconds a message."""
    return _receive(client, queue, count, 1)


SCENARIOS: dict[str, Callable[[ServiceBusClient, str, int], dict[str, object]]] = {
    "batched": batched,
    "single": single,
    "schedule": schedule,
    "receive-100": receive_100,
    "receive-1": receive_1,
}


def main() -> None:
    """Run the scenario that the arguments name."""
    connection, queue, scenario, count = sys.argv[1:5]
    with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        print(json.dumps(SCENARIOS[scenario](client, queue, int(count))))


if __name__ == "__main__":
    main()
