"""The relay from one queue of a bridge to another, beside what its parts can do alone.

A relay is bounded by 1 / (1/S + 1/R) of its sends and its receives: S is batched sends, R receive
100 and complete, each alone at the same bridge. Rounds alternate. The peer is the best relay that
azure-servicebus can be made to. RabbitMQ's own shovel, which knows no locks, numbers or times, and
has no bridge between, is printed beside: from one of its quorum queues to another.

    python -m tests.bench.relay [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from typing import Any

from bridge.broker.node.private import Node
from tests.bench.client_process import measured, python_client
from tests.bench.figure import Figure, compare
from tests.bench.rabbit import options_of, report_each, shovel_rate_of
from tests.bench.remote import run_remote
from tests.bench.server import bridge_server

ROUNDS = 5
COUNT = 8_000
SHOVELLED = 40_000
SINGLES = 200
ROUND_SINGLES = 40
"""Single messages of a round."""

PART = 0.6
"""The least part of 1 / (1/S + 1/R)."""

TIMES = 2.0
"""How many times the peer's rate it is at least."""

SINGLE_MS = 5.0
"""What one message may take above a send and a receive."""

QUEUES = [f"{name}-{part}" for name in ("ours", "theirs", "one") for part in ("from", "to")]


def run_relay(connection: str, name: str, scenario: str, count: int) -> dict[str, Any]:
    """Run one scenario of `relay_client` in a process of its own."""
    command = python_client(
        "relay_client", connection, f"{name}-from", f"{name}-to", scenario, count
    )
    return measured(scenario, command)


def main() -> int:
    """Measure, print, and return the exit code."""
    return report_each("Relay between two queues", _measure)


def _measure(node: Node) -> list[Figure]:
    ours: list[float] = []
    theirs: list[float] = []
    bounds: list[float] = []
    shovel: list[float] = []
    with bridge_server([*QUEUES, "sends", "receives"], *options_of(node)) as bridge:
        connection = bridge.connection_string
        for number in range(ROUNDS):
            print(f"\rrelay: round {number + 1} of {ROUNDS} ", end="", file=sys.stderr)
            sends = run_remote(connection, "sends", "batched", COUNT)
            receives = run_remote(connection, "receives", "receive-100", COUNT // 2)
            bounds.append(1 / (1 / sends + 1 / receives))
            ours.append(run_relay(connection, "ours", "ours", COUNT)["rate"])
            shovel.append(asyncio.run(shovel_rate_of(node, f"shovel-{number}", SHOVELLED)))
            theirs.append(run_relay(connection, "theirs", "azure-servicebus", COUNT // 4)["rate"])
        print("\r" + " " * 70, end="\r", file=sys.stderr)
        singles = run_relay(connection, "one", "single", SINGLES)
        version = bridge.rabbitmq_version
    relayed, direct = (statistics.median(singles[f"{each}_ms"]) for each in ("relayed", "direct"))
    rounds = [
        statistics.median(singles["relayed_ms"][at : at + ROUND_SINGLES])
        / (statistics.median(singles["direct_ms"][at : at + ROUND_SINGLES]) + SINGLE_MS)
        for at in range(0, SINGLES, ROUND_SINGLES)
    ]
    return [
        compare(
            "relay: batches of 1 KiB", "msg/s", ours, bounds,
            peer="1/(1/S + 1/R)", floor=PART, rabbitmq=version,
        ),
        compare(
            "relay: batches of 1 KiB", "msg/s", ours, theirs,
            peer="azure-servicebus", floor=TIMES, rabbitmq=version,
        ),
        compare(
            "relay: batches of 1 KiB", "msg/s", ours, shovel,
            peer="RabbitMQ's shovel, without bridges", rabbitmq=version,
        ),
        Figure(
            name="relay: one message, idle",
            unit="ms",
            ours=relayed,
            peer="a send, a receive, and 5 ms",
            peers=direct + SINGLE_MS,
            ratio=relayed / (direct + SINGLE_MS),
            floor=1.0,
            is_ceiling=True,
            rabbitmq=version,
            rounds=tuple(rounds),
            samples={"ours": singles["relayed_ms"], "direct": singles["direct_ms"]},
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
