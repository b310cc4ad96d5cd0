"""One scenario of sessions with the real clients; prints what it measured as JSON.

python -m tests.bench.session_client CONNECTION_STRING QUEUE SCENARIO
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

SCRIPT = Path(__file__).parents[1] / "acceptance" / "node" / "sessions.mjs"
BODY = b"x" * 1024
SESSIONS = 1_000
OF_EACH = 10
RECEIVERS = 8
IN_ORDER = 4_000
AT_ONCE = 100


def send(sender: ServiceBusSender, session_ids: list[str]) -> None:
    """Send a message of each of these sessions, in batches."""
    for first in range(0, len(session_ids), AT_ONCE):
        batch = sender.create_message_batch()
        for number, session_id in enumerate(session_ids[first : first + AT_ONCE], first):
            batch.add_message(
                ServiceBusMessage(BODY, session_id=session_id, message_id=str(number))
            )
        sender.send_messages(batch)


def accepted(connection: str, queue: str) -> dict[str, float]:
    """Sessions a second: 8 receivers accept one after the other, and complete what is there.

    The JavaScript client: a receiver is a link of its one connection, and costs the client little.
    """
    numbers = (str(SESSIONS), str(OF_EACH), str(RECEIVERS))
    command = ["node", str(SCRIPT), connection, queue, *numbers]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def in_order(client: ServiceBusClient, queue: str) -> dict[str, float]:
    """Messages a second of one session: receive up to 100, complete each."""
    expected = 0
    with client.get_queue_receiver(queue, session_id="one") as receiver:
        begin = time.perf_counter()
        while expected < IN_ORDER:
            messages = receiver.receive_messages(AT_ONCE, max_wait_time=10)
            assert messages, "it has more messages"
            for message in messages:
                assert message.message_id == str(expected), "out of order"
                receiver.complete_message(message)
                expected += 1
        return {"rate": IN_ORDER / (time.perf_counter() - begin)}


def main() -> None:
    """Run the scenario that the arguments name."""
    connection, queue, scenario = sys.argv[1:4]
    with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            if scenario == "accepted":
                send(sender, [f"s{each}" for each in range(SESSIONS) for _ in range(OF_EACH)])
            else:
                send(sender, ["one"] * IN_ORDER)
        if scenario == "in-order":
            print(json.dumps(in_order(client, queue)))
            return
    print(json.dumps(accepted(connection, queue)))


if __name__ == "__main__":
    main()
