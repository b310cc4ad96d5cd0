"""`busbridge migrate run` between two bridges, beside batched sends of the Python SDK's.

Messages of 1 KiB in all states, over 20 entities: queues, queues with sessions and topics. The time
is that of the whole command, with its start, its watch of a second, both verifications and the
cancellations at the source. Sends are measured before and after it, at the target. Then the peak of
the command's memory.

    python -m tests.bench.migration [--messages COUNT] [--bytes SIZE] [--rounds COUNT]
        [--rabbitmq TREE]...
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from bridge.broker.node.private import Node
from bridge.model.properties import EntityKind
from bridge.operations.changes import scheduled
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import credential_in
from bridge.remote.entity import entity_node
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import DeadLetter, Defer
from bridge.wire.amqp10.message_properties import MessageProperties
from tests.bench.figure import Figure, compare
from tests.bench.rabbit import options_of, report_each
from tests.bench.relay_client import namespace_of
from tests.bench.sdk import run_client
from tests.bench.sdk_client import BATCH, BODY
from tests.bench.server import BridgeServer, bridge_server
from tests.fixtures.broker import Broker

MESSAGES = 50_000
QUEUES, SESSION_QUEUES, TOPICS = 14, 4, 2
ENTITIES = QUEUES + SESSION_QUEUES + TOPICS
SESSIONS = 50
PART = 12
"""One message in so many is scheduled, one is deferred, and one is a dead letter."""

SENDS = 12_000
ROUNDS = 3
FLOOR = 0.3
"""The least part of the rate of batched sends."""

MEMORY_MB_MAX = 200.0
DUE_MS = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp() * 1000)
WAIT_S = 30.0


async def fill(connection: str, count: int, size_bytes: int) -> None:
    """Make the entities, and bring messages into all states, so many in each."""
    address, credential = RemoteAddress.of(connection), credential_in(connection)
    assert credential is not None
    async with RemoteAdministration(address, credential) as administration:
        for at in range(QUEUES):
            node = entity_node(EntityKind.QUEUE, {})
            await administration.create("Queue", node, f"queue-{at}")
        for at in range(SESSION_QUEUES):
            node = entity_node(EntityKind.QUEUE, {"RequiresSession": "true"})
            await administration.create("Queue", node, f"sessions-{at}")
        for at in range(TOPICS):
            await administration.create("Topic", entity_node(EntityKind.TOPIC, {}), f"topic-{at}")
            node = entity_node(EntityKind.SUBSCRIPTION, {})
            await administration.create("Subscription", node, f"topic-{at}", "all")
    async with namespace_of(connection) as namespace:
        body = BODY[:size_bytes]
        for at in range(QUEUES):
            await fill_entity(namespace, f"queue-{at}", f"queue-{at}", [body] * count)
        for at in range(SESSION_QUEUES):
            await fill_sessions(namespace, f"sessions-{at}", [body] * count)
        for at in range(TOPICS):
            path = f"topic-{at}/Subscriptions/all"
            await fill_entity(namespace, f"topic-{at}", path, [body] * count)


async def fill_entity(
    namespace: RemoteNamespace, entity: str, path: str, bodies: Sequence[bytes]
) -> None:
    """Send messages, schedule some, defer some, and make some dead letters."""
    some = len(bodies) // PART
    every = [RemoteMessage.of(data=each) for each in bodies]
    await schedule(namespace, entity, every[:some])
    await send(namespace, entity, every[some:])
    receiver = await namespace.receiver(path)
    for outcome in (Defer(), DeadLetter("bad", "for the bench")):
        left = some
        while left:
            found = await receiver.receive(min(left, BATCH), WAIT_S)
            assert found, f"nothing comes of {path}"
            await receiver.settle_all(found, outcome)
            left -= len(found)
    await receiver.close()


async def fill_sessions(namespace: RemoteNamespace, entity: str, bodies: Sequence[bytes]) -> None:
    """Send messages of some sessions, and schedule some."""
    some = len(bodies) // PART
    every = [
        RemoteMessage.of(
            data=each, properties=MessageProperties(group_id=f"session-{at // BATCH % SESSIONS}")
        )
        for at, each in enumerate(bodies)
    ]
    await send(namespace, entity, every[some:])
    await schedule(namespace, entity, every[:some])


async def send(namespace: RemoteNamespace, entity: str, messages: Sequence[RemoteMessage]) -> None:
    """Send messages in batches, four under way."""
    sender = await namespace.sender(entity)
    batches = [messages[at : at + BATCH] for at in range(0, len(messages), BATCH)]
    for at in range(0, len(batches), 4):
        await asyncio.gather(*(sender.send(each) for each in batches[at : at + 4]))
    await sender.close()


async def schedule(
    namespace: RemoteNamespace, entity: str, messages: Sequence[RemoteMessage]
) -> None:
    """Schedule messages, 100 at a time."""
    management = await namespace.management(entity)
    for at in range(0, len(messages), BATCH):
        await management.schedule([scheduled(each, DUE_MS) for each in messages[at : at + BATCH]])


def run_migration(source: str, target: str) -> tuple[int, float, float]:
    """Run the command; return how many messages it moved, its seconds, and its peak in MB."""
    with tempfile.TemporaryDirectory(prefix="busbridge-bench-") as folder:
        environment = {**os.environ, "XDG_CONFIG_HOME": folder, "HERE": source, "THERE": target}
        command = [sys.executable, "-m", "bridge.cli.command"]
        for name in ("here", "there"):
            subprocess.run(
                [*command, "profile", "add", name, "--variable", name.upper()],
                env=environment, check=True, capture_output=True,
            )  # fmt: skip
        rows = Path(folder) / "rows"
        begin = time.perf_counter()
        with rows.open("wb") as out:
            process = subprocess.Popen(
                [*command, "migrate", "run", "--from", "here", "--to", "there", "--still", "1",
                 "--yes", "--json"],
                env=environment, stdin=subprocess.DEVNULL, stdout=out,
            )  # fmt: skip
            peak_mb = 0.0
            while process.poll() is None:
                peak_mb = max(peak_mb, _peak_mb(process.pid))
                time.sleep(0.1)
        took_s = time.perf_counter() - begin
        assert process.returncode == 0, f"migrate run: exit code {process.returncode}"
        moved = sum(json.loads(each)["messages"] for each in rows.read_text().splitlines())
        return moved, took_s, peak_mb


def _peak_mb(process_id: int) -> float:
    """Return the most memory that a process has had; 0 when it has just ended."""
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next((int(each.split()[1]) / 1024 for each in lines if each.startswith("VmHWM")), 0.0)


class Round(NamedTuple):
    """One migration beside the sends before and after it, and the most memory that it had."""

    moved: int
    version: str
    ours: float
    sends: float
    peak_mb: float


def migrated(source: BridgeServer, target: BridgeServer, count: int, size: int) -> Round:
    """Fill, and measure the sends and the command."""
    asyncio.run(fill(source.connection_string, count // ENTITIES, size))
    sends = [run_client(target.connection_string, "sends", "batched", SENDS)["rate"]]
    moved, took_s, peak_mb = run_migration(source.connection_string, target.connection_string)
    sends.append(run_client(target.connection_string, "sends", "batched", SENDS)["rate"])
    assert moved >= count // ENTITIES * ENTITIES, f"{moved:,} messages were moved"
    version = target.rabbitmq_version
    return Round(moved, version, moved / took_s, statistics.median(sends), peak_mb)


def figures_of(rounds: Sequence[Round]) -> list[Figure]:
    """Return the figures of some rounds."""
    moved, version = rounds[0].moved, rounds[0].version
    peak_mb = max(each.peak_mb for each in rounds)
    return [
        compare(
            f"migrate run: {moved:,} messages in all states", "msg/s",
            [each.ours for each in rounds], [each.sends for each in rounds],
            peer="azure-servicebus, batched", floor=FLOOR, rabbitmq=version,
        ),
        Figure(
            name=f"migrate run: {moved:,} messages, its peak of memory",
            unit="MB",
            ours=peak_mb,
            peer="may be at most",
            peers=MEMORY_MB_MAX,
            ratio=peak_mb / MEMORY_MB_MAX,
            floor=1.0,
            is_ceiling=True,
            rabbitmq=version,
        ),
    ]  # fmt: skip


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--bytes", type=int, default=len(BODY))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options, rest = parser.parse_known_args()

    def measure(node: Node) -> list[Figure]:
        url, management = options_of(node)[1::2]
        broker = Broker(url, management.replace("//", "//guest:guest@"))
        rounds = []
        for _ in range(options.rounds):
            with broker.fresh_vhost() as here, broker.fresh_vhost() as there:
                ours, theirs = (
                    ("--rabbitmq-url", broker.url_of(each), "--management-url", management)
                    for each in (here, there)
                )
                with (
                    bridge_server([], *ours) as source,
                    bridge_server(["sends"], *theirs) as target,
                ):
                    rounds.append(migrated(source, target, options.messages, options.bytes))
        return figures_of(rounds)

    return report_each("Migration of all states", measure, rest)


if __name__ == "__main__":
    sys.exit(main())
