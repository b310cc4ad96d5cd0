"""A processor: the SDK's streaming receiver, which completes what comes until it has had enough.

python -m tests.bench.processor_client CONNECTION_STRING QUEUE CREDIT COUNT
"""

from __future__ import annotations

import json
import sys
import time

from azure.servicebus import ServiceBusClient

IDLE_S = 15


def main() -> None:
    """Receive and complete; print how many, and how many a second after the first."""
    connection, queue, credit, count = sys.argv[1:5]
    done = 0
    begin = end = 0.0
    with (
        ServiceBusClient.from_connection_string(connection, retry_total=0) as client,
        client.get_queue_receiver(
            queue, prefetch_count=int(credit), max_wait_time=IDLE_S
        ) as receiver,
    ):
        for message in receiver:
            begin = begin or time.perf_counter()
            receiver.complete_message(message)
            done += 1
            end = time.perf_counter()
            if done >= int(count):
                break
    print(json.dumps({"received": done, "rate": done / max(end - begin, 0.001)}))


if __name__ == "__main__":
    main()
