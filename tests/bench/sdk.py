"""The real SDK through the bridge, beside the same client against an in-memory server.

Both servers speak through the same gateway, so the difference is what RabbitMQ, the sequencer and
the engine cost. Rounds alternate between the two; medians are compared.

    python -m tests.bench.sdk [--rabbitmq TREE]...
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bridge.broker.node.private import Node
from tests.bench.client_process import measured, python_client
from tests.bench.figure import Figure, compare
from tests.bench.rabbit import options_of, report_each
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


def run_client(connection: str, queue: str, scenario: str, count: int) -> dict[str, Any]:
    """Run one scenario in a process of its own."""
    command = python_client("sdk_client", connection, queue, scenario, count)
    return measured(scenario, command)


@contextmanager
def servers(node: Node) -> Iterator[tuple[str, str, str]]:
    """The connection strings of the bridge and of the memory server, and RabbitMQ's version."""
    # A queue for each: what one leaves behind is not the next one's.
    queues = [scenario for scenario, *_ in SCENARIOS]
    with bridge_server(queues, *options_of(node)) as bridge, memory_server(queues) as memory:
        yield bridge.connection_string, memory, bridge.rabbitmq_version


def main() -> int:
    """Measure, print, and return the exit code."""
    return report_each("SDK through the bridge", _measure)


def _measure(node: Node) -> list[Figure]:
    figures: list[Figure] = []
    with servers(node) as (ours, peers, version):
        for scenario, count, name, floor in SCENARIOS:
            mine: list[dict[str, Any]] = []
            theirs: list[dict[str, Any]] = []
            for number in range(ROUNDS):
                print(f"\r{name}: round {number + 1} of {ROUNDS} ", end="", file=sys.stderr)
                mine.append(run_client(ours, scenario, scenario, count))
                theirs.append(run_client(peers, scenario, scenario, count))
            print("\r" + " " * 70, end="\r", file=sys.stderr)
            figures.append(
                compare(
                    name,
                    "msg/s",
                    [sample["rate"] for sample in mine],
                    [sample["rate"] for sample in theirs],
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
    mine: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
    version: str,
) -> Figure:
    ours_ms, peers_ms = (
        [sample for run in runs for sample in run["ms"]] for runs in (mine, theirs)
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
