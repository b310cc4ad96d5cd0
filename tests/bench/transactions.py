"""Transactions of one receive and one send, beside the two without a transaction.

qpid-jms and azure-messaging-servicebus for Java, each in a process of its own that keeps its
connection. Rounds with transactions and without alternate; medians are compared. Both end with the
message settled behind the send: without a transaction it is acknowledged, or completed.

    python -m tests.bench.transactions [--only CLIENT-IN_FLIGHT]... [--rounds N] [--rabbitmq TREE]

Printed beside the rates: the processor time of RabbitMQ and of the bridge for each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from azure.servicebus import ServiceBusClient

from tests.acceptance.driver import java_program
from tests.bench.figure import Figure, compare, report
from tests.bench.processor_time import ProcessorTime
from tests.bench.rabbit import bench, installations, options_of
from tests.bench.sdk_client import send_batches
from tests.bench.server import BridgeServer, bridge_server

ROUNDS = 5
ROUND_S = 300.0
STORED = 2_000
"""Messages that the queue gets before each round, if the sends go elsewhere; else once."""

FLOOR = 1 / 3

CLIENTS = {
    "jms": ("JmsRates", "jms", "qpid-jms"),
    "java": ("Rates", "java", "azure-messaging-servicebus"),
}
"""The program of each client, its folder, and the client's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a client does.

    Attributes:
        in_flight: how many do that side by side.
        transacted, plain: how often in a round: half a second's work or more.
        is_across: the sends go to another queue than the receives come from.
    """

    client: str
    in_flight: int
    transacted: int
    plain: int
    is_across: bool = False

    @property
    def name(self) -> str:
        """What `--only` and the entity are called."""
        return f"{self.client}-{self.in_flight}{'-across' * self.is_across}"

    @property
    def title(self) -> str:
        """What the report calls it."""
        where = ", to another queue" * self.is_across
        return f"{CLIENTS[self.client][2]}, {self.in_flight} in flight{where}"


SCENARIOS = (
    Scenario(client="jms", in_flight=1, transacted=200, plain=300),
    Scenario(client="jms", in_flight=32, transacted=1_500, plain=3_000),
    Scenario(client="java", in_flight=1, transacted=150, plain=200),
    Scenario(client="java", in_flight=32, transacted=800, plain=1_500),
    Scenario(client="jms", in_flight=1, transacted=200, plain=300, is_across=True),
    Scenario(client="jms", in_flight=32, transacted=1_000, plain=1_900, is_across=True),
    Scenario(client="java", in_flight=1, transacted=150, plain=200, is_across=True),
    Scenario(client="java", in_flight=32, transacted=800, plain=1_500, is_across=True),
)


@dataclass
class Samples:
    """What the rounds of one scenario gave, with transactions or without."""

    rates: list[float] = field(default_factory=list)
    rabbitmq_us: list[float] = field(default_factory=list)
    bridge_us: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Client:
    """A running client."""

    process: asyncio.subprocess.Process

    async def rate(self, kind: str, count: int, in_flight: int) -> float:
        """Have it do a round; return how often a second it has received and sent."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{kind} {count} {in_flight}\n".encode())
        async with asyncio.timeout(ROUND_S):
            line = await self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            raise RuntimeError((await self.process.stderr.read()).decode()[-4000:])
        return float(json.loads(line)["rate"])


@asynccontextmanager
async def client(scenario: Scenario, server: BridgeServer) -> AsyncIterator[Client]:
    """Run a scenario's client until the end of the block."""
    program, folder, _ = CLIENTS[scenario.client]
    target = f"{scenario.name}-target" if scenario.is_across else scenario.name
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *java_program(program, of=folder),
        *(server.connection_string, scenario.name, target),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )
    try:
        yield Client(process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _store(server: BridgeServer, queue: str) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as stored,
        stored.get_queue_sender(queue) as sender,
    ):
        send_batches(sender, STORED)


async def _samples(
    scenario: Scenario, server: BridgeServer, times: ProcessorTime, rounds: int
) -> dict[str, Samples]:
    counts = {"transacted": scenario.transacted, "plain": scenario.plain}
    samples = {kind: Samples() for kind in counts}
    async with client(scenario, server) as running:
        for number in range(rounds + 1):
            print(f"\r{scenario.name}: round {number} of {rounds} ", end="", file=sys.stderr)
            for kind, count in counts.items():
                if scenario.is_across or number == 0:
                    await asyncio.to_thread(_store, server, scenario.name)
                measure = times.begin(server.process_id)
                rate = await running.rate(kind, count, scenario.in_flight)
                rabbitmq_us, bridge_us = measure.each_us(count + 2 * scenario.in_flight)
                if number:  # the first one warms the client up
                    samples[kind].rates.append(rate)
                    samples[kind].rabbitmq_us.append(rabbitmq_us)
                    samples[kind].bridge_us.append(bridge_us)
    print("\r" + " " * 70, end="\r", file=sys.stderr)
    return samples


def _figures(scenario: Scenario, samples: dict[str, Samples], version: str) -> list[Figure]:
    ours, plain = samples["transacted"], samples["plain"]
    peer = "without"
    return [
        compare(
            scenario.title,
            "1/s",
            ours.rates,
            plain.rates,
            peer=peer,
            floor=FLOOR,
            rabbitmq=version,
        ),
        *(
            Figure(
                name=f"  {whose} processor time for each",
                unit="us",
                ours=statistics.median(mine),
                peer=peer,
                peers=statistics.median(theirs),
                rabbitmq=version,
                samples={"ours": mine, peer: theirs},
            )
            for whose, mine, theirs in (
                ("RabbitMQ's", ours.rabbitmq_us, plain.rabbitmq_us),
                ("the bridge's", ours.bridge_us, plain.bridge_us),
            )
        ),
    ]


async def _all(arguments: list[str], wanted: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    scenarios = [each for each in SCENARIOS if not wanted.only or each.name in wanted.only]
    queues = [each.name for each in scenarios]
    queues += [f"{each.name}-target" for each in scenarios if each.is_across]
    for installation in installations(arguments):
        async with bench(installation) as rabbit:
            times = ProcessorTime(rabbit)
            with bridge_server(queues, *options_of(rabbit.node)) as server:
                await times.learn_idle([server.process_id])
                for each in scenarios:
                    samples = await _samples(each, server, times, wanted.rounds)
                    figures += _figures(each, samples, rabbit.version)
    return figures


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", help="CLIENT-IN_FLIGHT")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    wanted, rest = parser.parse_known_args()
    return 0 if report("Transactions", asyncio.run(_all(rest, wanted))) else 1


if __name__ == "__main__":
    sys.exit(main())
