""".NET's clients through the bridge, beside those of RabbitMQ itself.

Azure.Messaging.ServiceBus through the bridge beside RabbitMQ.Client on RabbitMQ, and AMQPNetLite
through the bridge beside AMQPNetLite on RabbitMQ's own AMQP 1.0: 1 KiB messages in quorum queues of
one RabbitMQ, which also does the bridge's work. Rounds alternate; medians are compared.

    DOTNET_KIT=KIT python -m tests.bench.dotnet [--only CLIENT-WORK]... [--rounds N]
        [--rabbitmq TREE]

DOTNET_KIT names a program that compiles and runs C# (`KIT TOOLS FILE ARGUMENTS`). Printed beside
the rates: the processor time of RabbitMQ, of the bridge and of the client for a message, and of all
together, which other work on the machine changes less than the rates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.figure import Figure, compare, report
from tests.bench.processor_time import ProcessorTime
from tests.bench.rabbit import Bench, bench, installations, options_of
from tests.bench.server import bridge_server
from tests.bench.singles import Target, target_of, until

ROUNDS = 3
WARM = 200
"""Messages that a client sends, or receives, before its clock starts."""

SOURCE = Path(__file__).parent / "dotnet" / "Clients.cs"

READS = ("receive", "process")
"""Kinds of work that begin with a full queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A client through the bridge, and its peer on RabbitMQ.

    Attributes:
        work: see Clients.cs.
        count: messages a round.
        floor: least ratio of the rates.
        cheapness_floor: least ratio of the peer's processor time of all processes to ours.
    """

    client: str
    peer: str
    work: str
    count: int
    floor: float | None = None
    cheapness_floor: float | None = None

    @property
    def name(self) -> str:
        """What `--only` and the entity are called."""
        return f"{self.client}-{self.work}"


SCENARIOS = (
    Scenario(client="azure", peer="rabbitmq", work="send-1", count=1_500, floor=0.25),
    Scenario(
        client="azure",
        peer="rabbitmq",
        work="send-100",
        count=10_000,
        floor=0.35,
        cheapness_floor=0.3,
    ),
    Scenario(client="azure", peer="rabbitmq", work="batches", count=20_000, floor=0.35),
    Scenario(client="azure", peer="rabbitmq", work="receive", count=8_000, floor=0.15),
    Scenario(client="azure", peer="rabbitmq", work="process", count=8_000, floor=0.1),
    Scenario(client="amqpnetlite", peer="amqpnetlite", work="send-1", count=1_500, floor=0.35),
    Scenario(client="amqpnetlite", peer="amqpnetlite", work="send-100", count=10_000, floor=0.3),
    Scenario(client="amqpnetlite", peer="amqpnetlite", work="receive", count=8_000, floor=0.12),
    Scenario(client="amqpnetlite", peer="amqpnetlite", work="process", count=8_000, floor=0.12),
)

WORDS = {
    "azure": "Azure's SDK",
    "rabbitmq": "RabbitMQ.Client",
    "amqpnetlite": "AMQPNetLite",
    "send-1": "sends, one at a time",
    "send-100": "sends, 100 in flight",
    "batches": "sends in batches of 100",
    "receive": "receive 100, complete each",
    "process": "processor, 20 calls, 200 prefetched",
}


@dataclass
class Samples:
    """What the rounds of one side of a scenario gave."""

    rates: list[float] = field(default_factory=list)
    rabbitmq_us: list[float] = field(default_factory=list)
    bridge_us: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)

    @property
    def all_us(self) -> list[float]:
        """What all processes took for a message, round by round."""
        bridge_us = self.bridge_us or [0.0] * len(self.rates)
        of_all = zip(self.rabbitmq_us, bridge_us, self.client_us, strict=True)
        return [sum(each) for each in of_all]


class Rounds:
    """The clients' work on one RabbitMQ, a round at a time."""

    def __init__(self, rabbit: Bench, kit: str) -> None:
        self._rabbit = rabbit
        self._kit = kit
        self.times = ProcessorTime(rabbit)
        self._stored: dict[str, int] = {}

    async def round(self, client: str, target: Target, scenario: Scenario, into: Samples) -> None:
        """Let a client do its work once; add what was measured to the samples."""
        process = await self._start(client, target, scenario)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
            if line == b"ready\n":
                await self._until(target, self._before(target, scenario))
                measure = self.times.begin(target.process_id)
                process.stdin.write(b"\n")
                line = await process.stdout.readline()
            _, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise RuntimeError(f"{client} failed at {scenario.work}: {errors.decode()[-2000:]}")
        await self._until(target, self._after(target, scenario))
        rabbitmq_us, *bridge_us = measure.each_us(scenario.count)
        found = json.loads(line)
        into.rates.append(found["rate"])
        into.client_us.append(found["client_us"])
        into.rabbitmq_us.append(rabbitmq_us)
        into.bridge_us += bridge_us

    async def _start(
        self, client: str, target: Target, scenario: Scenario
    ) -> asyncio.subprocess.Process:
        tools = os.environ.get("DOTNET_TOOLS", str(Path(tempfile.gettempdir()) / "dotnet-tools"))
        place = ("127.0.0.1", str(target.port), target.user, target.password, target.address)
        pipe = asyncio.subprocess.PIPE
        command = (self._kit, tools, str(SOURCE), client, scenario.work, *place)
        return await asyncio.create_subprocess_exec(
            *command, str(scenario.count), stdin=pipe, stdout=pipe, stderr=pipe
        )

    def _before(self, target: Target, scenario: Scenario) -> int:
        """Return the messages in the queue when the client is ready."""
        if scenario.work in READS:
            return scenario.count
        return self._stored.get(target.queue, 0) + WARM

    def _after(self, target: Target, scenario: Scenario) -> int:
        """Return the messages in the queue when its work is done; called once a round."""
        if scenario.work in READS:
            return 0
        before = self._stored.get(target.queue, 0)
        self._stored[target.queue] = before + WARM + scenario.count
        return self._stored[target.queue]

    async def _until(self, target: Target, count: int) -> None:
        """Wait until the queue has so many messages ready."""
        found = -1

        async def has() -> bool:
            nonlocal found
            found = await self._rabbit.messages(target.queue, target.virtual_host)
            return found == count

        try:
            await until(has)
        except TimeoutError as error:
            raise TimeoutError(f"{target.queue} has {found} messages, not {count}") from error


async def _measure(rabbit: Bench, wanted: argparse.Namespace, kit: str) -> list[Figure]:
    rounds = Rounds(rabbit, kit)
    scenarios = [each for each in SCENARIOS if not wanted.only or each.name in wanted.only]
    _, port = rabbit.node.endpoint.hosts[0]
    figures: list[Figure] = []
    with ExitStack() as stack:
        names = [each.name for each in scenarios]
        server = stack.enter_context(bridge_server(names, *options_of(rabbit.node)))
        await rounds.times.learn_idle([server.process_id])
        for scenario in scenarios:
            own = f"own-{scenario.name}"
            await rabbit.declare_quorum(own)
            address = f"/queues/{own}" if scenario.peer == "amqpnetlite" else own
            sides = (
                (scenario.client, target_of(server, scenario.name), Samples()),
                (scenario.peer, Target("guest", "guest", port, address, own, None), Samples()),
            )
            for number in range(wanted.rounds):
                said = f"{scenario.name}: round {number + 1} of {wanted.rounds}"
                print(f"\r{said} ", end="", file=sys.stderr)
                for client, target, samples in sides:
                    await rounds.round(client, target, scenario, samples)
            print("\r" + " " * 70, end="\r", file=sys.stderr)
            figures += _figures(scenario, sides[0][2], sides[1][2], rabbit.version)
    return figures


def _figures(scenario: Scenario, ours: Samples, peers: Samples, version: str) -> list[Figure]:
    name, peer = f"{WORDS[scenario.client]}: {WORDS[scenario.work]}", WORDS[scenario.peer]
    costs = (
        ("RabbitMQ", ours.rabbitmq_us, peers.rabbitmq_us),
        ("the client", ours.client_us, peers.client_us),
    )
    return [
        compare(
            name,
            "msg/s",
            ours.rates,
            peers.rates,
            peer=peer,
            floor=scenario.floor,
            rabbitmq=version,
        ),
        *(
            compare(
                f"  processor time of {whose}, a message",
                "us",
                mine,
                theirs,
                peer=peer,
                rabbitmq=version,
            )
            for whose, mine, theirs in costs
        ),
        Figure(
            name="  processor time of the bridge, a message",
            unit="us",
            ours=statistics.median(ours.bridge_us),
            rabbitmq=version,
        ),
        _cheapness(scenario, ours.all_us, peers.all_us, version),
    ]


def _cheapness(scenario: Scenario, ours: list[float], peers: list[float], version: str) -> Figure:
    """Return the figure of what all processes took: the ratio is the peer's time beside ours."""
    peer = WORDS[scenario.peer]
    mine, theirs = statistics.median(ours), statistics.median(peers)
    return Figure(
        name="  processor time of all, a message",
        unit="us",
        ours=mine,
        peer=peer,
        peers=theirs,
        ratio=theirs / mine,
        floor=scenario.cheapness_floor,
        rabbitmq=version,
        rounds=tuple(their / my for my, their in zip(ours, peers, strict=True)),
        samples={"ours": ours, peer: peers},
    )


async def _all(arguments: list[str], wanted: argparse.Namespace, kit: str) -> list[Figure]:
    figures: list[Figure] = []
    for installation in installations(arguments):
        async with bench(installation) as rabbit:
            figures += await _measure(rabbit, wanted, kit)
    return figures


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", help="CLIENT-WORK, as azure-batches")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    wanted, rest = parser.parse_known_args()
    kit = os.environ.get("DOTNET_KIT")
    if kit is None:
        print("Not measured: DOTNET_KIT is not set.")
        return 0
    return 0 if report("Clients of .NET", asyncio.run(_all(rest, wanted, kit))) else 1


if __name__ == "__main__":
    sys.exit(main())
