"""Sessions accepted one after the other, and the messages of one: beside an in-memory server.

The same client, the same gateway; rounds alternate between the two, medians are compared.

    python -m tests.bench.session_rates [--rabbitmq TREE]...
"""

from __future__ import annotations

import sys

from bridge.broker.node.private import Node
from tests.bench.client_process import measured, python_client
from tests.bench.figure import Figure, compare
from tests.bench.rabbit import options_of, report_each
from tests.bench.server import bridge_server, memory_server

ROUNDS = 3

SCENARIOS = (
    ("accepted", "sessions/s", "1,000 sessions of 10 accepted, next available, by 8", 0.5),
    ("in-order", "msg/s", "one session: receive 100, complete each", None),
)
"""Scenario of `session_client`, unit, what it is called, least ratio."""


def main() -> int:
    """Measure, print, and return the exit code."""
    return report_each("Rates of sessions", _measure)


def _measure(node: Node) -> list[Figure]:
    queues = [scenario for scenario, *_ in SCENARIOS]
    with (
        bridge_server(queues, *options_of(node), requires_session=True) as bridge,
        memory_server(queues, "--requires-session") as memory,
    ):
        return [
            _compare(bridge.connection_string, memory, bridge.rabbitmq_version, *each)
            for each in SCENARIOS
        ]


def _compare(
    ours: str, peers: str, version: str, scenario: str, unit: str, name: str, floor: float | None
) -> Figure:
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(ROUNDS):
        mine.append(_rate(ours, scenario))
        theirs.append(_rate(peers, scenario))
        rates = f"{mine[-1]:.0f} and {theirs[-1]:.0f} {unit}"
        print(f"{name}: round {number + 1} of {ROUNDS}: {rates}", file=sys.stderr, flush=True)
    return compare(name, unit, mine, theirs, peer="in memory", floor=floor, rabbitmq=version)


def _rate(connection: str, scenario: str) -> float:
    command = python_client("session_client", connection, scenario, scenario)
    return float(measured(scenario, command)["rate"])


if __name__ == "__main__":
    sys.exit(main())
