"""The real SDK through the bridge, beside the same client against an in-memory server.

Both servers speak through the same gateway, so the difference is what RabbitMQ, the sequencer and
the engine cost. Rounds alternate between the two; medians are compared.

    python -m tests.bench.sdk [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bridge.broker.node.installation import Installation
from bridge.broker.node.private import Node
from tests.bench.figure import Figure, compare, report
from tests.bench.rabbit import bench, installations
from tests.bench.server import bridge_server, memory_server

ROUNDS = 5

SCENARIOS = (
    ("batched", 12_000, "SDK batched sends, stored and confirmed", 0.7),
    ("receive-100", 4_000, "SDK receive 100 + complete each", 0.5),
    ("receive-1", 3_000, "SDK receive 1 + complete", 0.5),
    ("single", 1_000, "SDK single sends", None),
    ("schedule", 1_000, "SDK schedules", None),
)
"""Scenario of `sdk_client`, messages a round (half a second or more), what it is called, least
ratio."""

SINGLE_SEND_LATER_MS_MAX = 5.0
"""A single confirmed send may take this much longer than the in-memory server's (p50)."""


def run_client(connection: str, queue: str, scenario: str, count: int) -> dict[str, object]:
    """Run one scenario in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.sdk_client", connection, queue, scenario, str(count)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{scenario} failed: {done.stderr[-2000:]}")
    result: dict[str, object] = json.loads(done.stdout)
    return result


@contextmanager
def servers(node: Node) -> Iterator[tuple[str, str, str]]:
    """The connection strings of the bridge and of the memory server, and RabbitMQ's version."""
    host, port = node.endpoint.hosts[0]
    where = ("--rabbitmq-url", f"amqp://guest:guest@{host}:{port}")
    where += ("--management-url", node.management_url)
    # A queue for each: what one leaves behind is not the next one's.
    queues = [scenario for scenario, *_ in SCENARIOS]
    with bridge_server(queues, *where) as bridge, memory_server(queues) as memory:
        yield bridge.connection_string, memory, bridge.rabbitmq_version


def main() -> int:
    """Measure, print, and return the exit code."""
    figures = asyncio.run(_all(installations(sys.argv[1:])))
    return 0 if report("SDK through the bridge", figures) else 1


async def _all(found: list[Installation]) -> list[Figure]:
    figures: list[Figure] = []
    for installation in found:
        async with bench(installation) as rabbit:
            figures += await asyncio.to_thread(_measure, rabbit.node)
    return figures


def _measure(node: Node) -> list[Figure]:
    figures: list[Figure] = []
    with servers(node) as (ours, peers, version):
        for scenario, count, name, floor in SCENARIOS:
            mine: list[dict[str, object]] = []
            theirs: list[dict[str, object]] = []
            for number in range(ROUNDS):
                print(f"\r{name}: round {number + 1} of {ROUNDS} ", end="", file=sys.stderr)
                mine.append(run_client(ours, scenario, scenario, count))
                theirs.append(run_client(peers, scenario, scenario, count))
            print("\r" + " " * 70, end="\r", file=sys.stderr)
            figures.append(
                compare(
                    name,
                    "msg/s",
                    [float(str(sample["rate"])) for sample in mine],
                    [float(str(sample["rate"])) for sample in theirs],
                    peer="in memory",
                    floor=floor,
                    rabbitmq=version,
                )
            )
            if "ms" in mine[0]:
                figures.append(_latency(scenario, name, mine, theirs, version))
    return figures


def _latency(
    scenario: str,
    name: str,
    mine: list[dict[str, object]],
    theirs: list[dict[str, object]],
    version: str,
) -> Figure:
    ours_ms, peers_ms = (
        [sample for run in runs for sample in run["ms"]]  # type: ignore[attr-defined]
        for runs in (mine, theirs)
    )
    ours, peers = statistics.median(ours_ms), statistics.median(peers_ms)
    is_single = scenario == "single"
    return Figure(
        name=f"{name}, p50 a message" + (", later by at most 5 ms" if is_single else ""),
        unit="ms",
        ours=ours,
        peer="in memory",
        peers=peers,
        ratio=ours - peers if is_single else None,
        floor=SINGLE_SEND_LATER_MS_MAX if is_single else None,
        is_ceiling=True,
        rabbitmq=version,
        samples={"ours": ours_ms, "in memory": peers_ms},
    )


if __name__ == "__main__":
    sys.exit(main())
