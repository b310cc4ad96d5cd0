"""`bridge.remote` through the bridge, beside azure-servicebus in the same run.

A relay between two namespaces stands on it: what it can carry is bounded by 1 / (1/S + 1/R) of its
sends and receives. Rounds alternate; medians are compared.

    python -m tests.bench.remote [--rabbitmq TREE]...
"""

from __future__ import annotations

import sys

from bridge.broker.node.private import Node
from tests.bench.client_process import measured, python_client
from tests.bench.figure import Figure, compare
from tests.bench.rabbit import options_of, report_each
from tests.bench.sdk import run_client
from tests.bench.server import bridge_server

ROUNDS = 5

SCENARIOS = (
    ("batched", "batched", 12_000, "remote: batched sends", 1.0),
    ("batched-4", "batched", 12_000, "remote: batched sends, four under way", 1.0),
    ("receive-100", "receive-100", 4_000, "remote: receive 100 + complete", 1.0),
    ("receive-ahead", "receive-100", 4_000, "remote: receive ahead + complete", 1.0),
)
"""Scenario of `remote_client`, and of `sdk_client`; messages a round; name; least ratio."""


def run_remote(connection: str, queue: str, scenario: str, count: int) -> float:
    """Run one scenario of the remote client's in a process of its own."""
    command = python_client("remote_client", connection, queue, scenario, count)
    return float(measured(scenario, command)["rate"])


def main() -> int:
    """Measure, print, and return the exit code."""
    return report_each("Remote client through the bridge", _measure)


def _measure(node: Node) -> list[Figure]:
    queues = [f"{scenario}-{whose}" for scenario, *_ in SCENARIOS for whose in ("ours", "theirs")]
    figures: list[Figure] = []
    with bridge_server(queues, *options_of(node)) as bridge:
        connection = bridge.connection_string
        for scenario, peer, count, name, floor in SCENARIOS:
            ours: list[float] = []
            theirs: list[float] = []
            for number in range(ROUNDS):
                print(f"\r{name}: round {number + 1} of {ROUNDS} ", end="", file=sys.stderr)
                ours.append(run_remote(connection, f"{scenario}-ours", scenario, count))
                theirs.append(run_client(connection, f"{scenario}-theirs", peer, count)["rate"])
            print("\r" + " " * 70, end="\r", file=sys.stderr)
            figures.append(
                compare(
                    name,
                    "msg/s",
                    ours,
                    theirs,
                    peer="azure-servicebus",
                    floor=floor,
                    rabbitmq=bridge.rabbitmq_version,
                )
            )
    return figures


if __name__ == "__main__":
    sys.exit(main())
