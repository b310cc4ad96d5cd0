"""What processors cost RabbitMQ: the SDKs' streaming receivers, of several credits.

Each keeps up with 200 messages a second, while a relay before RabbitMQ counts what the bridge says
to it; and each drains a backlog, without the relay.

    python -m tests.bench.processors [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pamqp.base
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bridge.broker.node.installation import Installation
from bridge.broker.node.private import Node
from bridge.topology.capabilities import Capabilities
from tests.bench.figure import Figure, report
from tests.bench.rabbit import bench, installations
from tests.bench.sdk_client import BODY, send_batches
from tests.bench.server import bridge_server
from tests.fixtures.relay import Relay

PACE = 200
KEEPING_UP = 800
BACKLOG = 3_000
CREDITS = (10, 50, 200)
COMMANDS = ("Basic.Qos", "Basic.Consume", "Basic.Cancel", "Basic.Get")
COMMANDS_MAX = 0.05
"""So many of each of the first three a message, since RabbitMQ 4.3."""

NODE = Path(__file__).parents[1] / "acceptance" / "node" / "processor.mjs"
CLIENTS = {
    "Python": [sys.executable, "-m", "tests.bench.processor_client"],
    "JavaScript": ["node", str(NODE)],
}
START_S = 3.0
END_S = 120.0


class Counting:
    """Counts the methods that a relay passes on."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def holds(self, method: pamqp.base.Frame) -> bool:
        """Count one; nothing is held back."""
        self.counts[method.name] += 1
        return False


@contextmanager
def processor(
    client: str, connection: str, queue: str, credit: int, count: int
) -> Iterator[subprocess.Popen[str]]:
    """Run a processor until it has had `count` messages."""
    command = [*CLIENTS[client], connection, queue, str(credit), str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def rate_of(process: subprocess.Popen[str], count: int) -> float:
    """Return how many messages a second it had; it must have had them all."""
    said, _ = process.communicate(timeout=END_S)
    result = json.loads(said.splitlines()[-1])
    if result["received"] < count:
        raise RuntimeError(f"{result['received']} of {count} messages came")
    return float(result["rate"])


def send_at_pace(connection: str, queue: str, count: int) -> None:
    """Send single messages, `PACE` a second; what is late is caught up with."""
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender(queue) as sender,
    ):
        begin = time.monotonic()
        for number in range(count):
            time.sleep(max(begin + number / PACE - time.monotonic(), 0))
            sender.send_messages(ServiceBusMessage(BODY))


def keep_up(node: Node, version: str) -> list[Figure]:
    """Commands a message of processors that keep up."""
    host, port = node.endpoint.hosts[0]
    figures = []
    counting = Counting()
    with Relay(f"amqp://guest:guest@{host}:{port}/%2F", holds=counting.holds) as relay:
        where = ("--rabbitmq-url", relay.url, "--management-url", node.management_url)
        queues = [f"{client}-{credit}" for client in CLIENTS for credit in CREDITS]
        with bridge_server(queues, *where) as bridge:
            for client in CLIENTS:
                for credit in CREDITS:
                    queue = f"{client}-{credit}"
                    string = bridge.connection_string
                    with processor(client, string, queue, credit, KEEPING_UP) as process:
                        time.sleep(START_S)
                        counting.counts.clear()
                        send_at_pace(string, queue, KEEPING_UP)
                        rate = rate_of(process, KEEPING_UP)
                    figures += _commands(f"{client}, credit {credit}", counting, rate, version)
    return figures


def _commands(name: str, counting: Counting, rate: float, version: str) -> list[Figure]:
    counts = {each: counting.counts[each] / KEEPING_UP for each in COMMANDS}
    print(f"  [{version}] {name}: {rate:.0f}/s, a message: {counts}", flush=True)
    is_bound = not Capabilities.of(version).nack_counts
    return [
        Figure(
            name=f"{name}, keeps up: {each} a message",
            unit="",
            ours=count,
            ratio=count,
            floor=COMMANDS_MAX if is_bound and each != "Basic.Get" else None,
            is_ceiling=True,
            rabbitmq=version,
        )
        for each, count in counts.items()
    ]


def drain(node: Node, version: str) -> list[Figure]:
    """Messages a second of processors that have a backlog."""
    host, port = node.endpoint.hosts[0]
    where = ("--rabbitmq-url", f"amqp://guest:guest@{host}:{port}")
    where += ("--management-url", node.management_url)
    queues = [f"{client}-{credit}" for client in CLIENTS for credit in CREDITS]
    figures = []
    with bridge_server([f"backlog-{queue}" for queue in queues], *where) as bridge:
        for client in CLIENTS:
            for credit in CREDITS:
                queue = f"backlog-{client}-{credit}"
                string = bridge.connection_string
                with (
                    ServiceBusClient.from_connection_string(string) as sdk,
                    sdk.get_queue_sender(queue) as sender,
                ):
                    send_batches(sender, BACKLOG)
                with processor(client, string, queue, credit, BACKLOG) as process:
                    rate = rate_of(process, BACKLOG)
                name = f"{client}, credit {credit}, drains a backlog"
                print(f"  [{version}] {name}: {rate:.0f}/s", flush=True)
                figures.append(Figure(name=name, unit="msg/s", ours=rate, rabbitmq=version))
    return figures


def main() -> int:
    """Measure, print, and return the exit code."""
    figures = asyncio.run(_all(installations(sys.argv[1:])))
    return 0 if report("Processors", figures) else 1


async def _all(found: list[Installation]) -> list[Figure]:
    figures: list[Figure] = []
    for installation in found:
        async with bench(installation) as rabbit:
            for measure in (keep_up, drain):
                figures += await asyncio.to_thread(measure, rabbit.node, rabbit.version)
    return figures


if __name__ == "__main__":
    sys.exit(main())
