"""What a message that is received and completed costs, and a peek, in calls of functions.

    python -m tests.bench.calls [--rabbitmq TREE] [--count N] [--json]

Counted is every call of a Python function whose code is in `bridge`, between the client's flow
that asks for one message and the disposition that tells it of its completion: flow in, consumer,
delivery in, lock, transfer out, disposition in, ack, disposition out. A generator that goes on and
a comprehension are calls; what is the standard library's or C's is none. Of the constructors that
dataclasses generate, whose code is in no file, there is a count of its own. A **move** is a call
whose code is in another file than the call before it. A peek is counted from its request to its
response, when RabbitMQ's counts are due to be compared again.

The bridge is plain Python in this process, with a RabbitMQ of its own; the client is the real SDK
in another process, which takes one message after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from types import FrameType
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusReceiver

from bridge.access.access import Access
from bridge.broker.node.installation import Installation
from bridge.cli.build import BUILD
from bridge.gateway.server import Gateway
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import Queue
from tests.bench.figure import Figure, report
from tests.bench.memory_server import ROOT_RULE
from tests.bench.rabbit import ROOT, bench, installations
from tests.bench.sdk_client import send_batches
from tests.bench.server import connection_string
from tests.fixtures.waiting import until
from tests.integration.door import open_door

BRIDGE = f"{ROOT / 'bridge'}/"
QUEUE = Queue(name="calls", lock_duration_ms=300_000)
COUNT = 200
WARM = 50
"""Messages that are taken before: by then the reader knows the habits of its receiver."""

LEFT = 100
"""Messages that are left behind: as much comes ahead while it counts as is taken."""

CALLS_MAX = 300

WARM_PEEKS = 10
"""Peeks that are made before: by then readers of the entity's streams stand, and have entries."""

PEEKS = 10
PEEKED = (5, 50)
"""Messages of each peek."""

BETWEEN_PEEKS_S = 1.2
"""Time after which a peek compares RabbitMQ's counts again."""

PEEK_CALLS_MAX = {5: 1_250, 50: 3_800}
CLIENT_S = 120.0


class Tally:
    """The calls of this thread while it counts.

    Attributes:
        calls: how often each function was called, by its file and name.
        moves: how often the file changed.
        generated: calls of constructors that dataclasses have generated.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.moves = 0
        self.generated = 0
        self._last = ""

    def start(self) -> None:
        """Count from now on."""
        sys.setprofile(self._on_event)

    def stop(self) -> None:
        """Count no more."""
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        path = code.co_filename
        if path.startswith(BRIDGE):
            self.calls[path, code.co_qualname] += 1
            self.moves += path != self._last
            self._last = path
        elif path == "<string>" and str(frame.f_globals.get("__name__")).startswith("bridge."):
            self.generated += 1

    def result(self, count: int) -> dict[str, Any]:
        """Return what each of so many messages cost; functions without the rare ones."""
        files: dict[str, dict[str, float]] = {}
        for (path, name), calls in self.calls.most_common():
            if calls / count >= 0.05:
                files.setdefault(path.removeprefix(BRIDGE), {})[name] = round(calls / count, 2)
        return {
            "calls": round(self.calls.total() / count, 1),
            "generated": round(self.generated / count, 1),
            "moves": round(self.moves / count, 1),
            "files": dict(sorted(files.items(), key=lambda each: -sum(each[1].values()))),
        }


async def count_calls(
    installation: Installation, count: int
) -> tuple[dict[str, Any], dict[int, dict[str, Any]], str]:
    """Return what a message costs, what peeks cost by their messages, and RabbitMQ's version."""
    async with (
        bench(installation) as rabbit,
        open_door(rabbit.node.endpoint, rabbit.node.management_url, QUEUE) as door,
    ):
        telling = asyncio.create_task(door.namespace.membership.run())
        await until(lambda: door.namespace.membership.is_listed)
        gateway = Gateway(door.namespace, Access(AccessRuleSet(namespace=(ROOT_RULE,))))
        port = await gateway.listen(socket.create_server(("127.0.0.1", 0)))
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.calls", "--client", connection_string(str(port))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert client.stdin is not None
        async with asyncio.timeout(CLIENT_S):
            receives, peeks = Tally(), {count: Tally() for count in PEEKED}
            await _ask(client, f"send {WARM + count + LEFT}")
            await _ask(client, f"receive {WARM}")
            await _ask(client, f"receive {count}", receives)
            for peeked, tally in peeks.items():
                for _ in range(WARM_PEEKS):
                    await _ask(client, f"peek {peeked}")
                for _ in range(PEEKS):
                    await asyncio.sleep(BETWEEN_PEEKS_S)
                    await _ask(client, f"peek {peeked}", tally)
            client.stdin.close()
            await client.wait()
        await gateway.stop()
        telling.cancel()
        found = {peeked: tally.result(PEEKS) for peeked, tally in peeks.items()}
        return receives.result(count), found, rabbit.version


async def _ask(client: asyncio.subprocess.Process, what: str, tally: Tally | None = None) -> None:
    """Have the client do something, and count meanwhile."""
    assert client.stdin is not None
    assert client.stdout is not None
    if tally is not None:
        tally.start()
    client.stdin.write(f"{what}\n".encode())
    assert await client.stdout.readline() == b"done\n"
    if tally is not None:
        tally.stop()


def work(connection: str) -> None:
    """Do what each line of the standard input says, and print when it is done."""
    with (
        ServiceBusClient.from_connection_string(connection, retry_total=0) as client,
        client.get_queue_sender(QUEUE.name) as sender,
        client.get_queue_receiver(QUEUE.name) as receiver,
    ):
        for line in sys.stdin:
            what, *arguments = line.split()
            if what == "send":
                send_batches(sender, int(arguments[0]))
            elif what == "receive":
                _receive(receiver, int(arguments[0]))
            else:
                count = int(arguments[0])
                found = receiver.peek_messages(max_message_count=count, sequence_number=1)
                assert len(found) == count
            print("done", flush=True)


def _receive(receiver: ServiceBusReceiver, count: int) -> None:
    for _ in range(count):
        (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=10)
        receiver.complete_message(message)


def print_table(result: dict[str, Any]) -> None:
    """Print the calls by file and function."""
    for path, functions in result["files"].items():
        print(f"{sum(functions.values()):8.2f} {path}")
        for name, calls in functions.items():
            print(f"{calls:16.2f} {name}")


def main() -> int:
    """Count, print, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=COUNT, help="messages")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    arguments, rest = parser.parse_known_args()
    if arguments.client is not None:
        work(arguments.client)
        return 0
    if BUILD != "python":  # machine code has no frames
        plain = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
        again = [sys.executable, "-m", "tests.bench.calls", *sys.argv[1:]]
        return subprocess.run(again, env=plain, cwd=ROOT, check=False).returncode
    result, peeks, version = asyncio.run(count_calls(installations(rest)[0], arguments.count))
    if arguments.json:
        print(json.dumps({"receive": result, "peeks": peeks}, indent=1))
        return 0
    print_table(result)
    for peek in peeks.values():
        print_table(peek)
    figures = [
        Figure(
            name="Function calls, receive 1 + complete",
            unit="calls",
            ours=result["calls"],
            ratio=result["calls"],
            floor=CALLS_MAX,
            is_ceiling=True,
            rabbitmq=version,
        ),
        Figure(name="Constructors", unit="calls", ours=result["generated"], rabbitmq=version),
        Figure(name="Changes of file", unit="moves", ours=result["moves"], rabbitmq=version),
    ]
    figures += [
        Figure(
            name=f"Function calls, peek of {count}",
            unit="calls",
            ours=peek["calls"],
            ratio=peek["calls"],
            floor=PEEK_CALLS_MAX[count],
            is_ceiling=True,
            rabbitmq=version,
        )
        for count, peek in peeks.items()
    ]
    return 0 if report("Calls a message", figures) else 1


if __name__ == "__main__":
    sys.exit(main())
