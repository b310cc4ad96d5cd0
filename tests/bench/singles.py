"""Single sends of AMQP 1.0 clients through the bridge, beside RabbitMQ's own AMQP 1.0.

Both store each message in a quorum queue of one RabbitMQ, which also does the bridge's work; the
bridge's messages are numbered and in the journal, too. Rounds alternate; medians are compared.

    python -m tests.bench.singles [--beside TREE] [--only CLIENT-IN_FLIGHT]... [--rounds N]
        [--rabbitmq TREE]

Printed beside the rates: the processor time of RabbitMQ and of the bridge for a message, until the
entity's queue has it, without what they take when nothing is sent. With `--beside`, the same of
another checkout of the bridge, in turns. With DOTNET_KIT (a program that compiles and runs C#:
`KIT TOOLS FILE ARGUMENTS`), AMQPNetLite too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.client_process import measured, python_client
from tests.bench.figure import Figure, compare, report
from tests.bench.processor_time import ProcessorTime
from tests.bench.rabbit import Bench, bench, installations
from tests.bench.server import BridgeServer, bridge_server

ROUNDS = 5
WARM = 200
"""Messages that a client sends before its clock starts."""

BESIDE = "beside"
DEADLINE_S = 120.0
USER, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
DOTNET = Path(__file__).parent / "dotnet" / "Singles.cs"

SCENARIOS = (
    ("proton", 1, 1_500, None),
    ("proton", 100, 8_000, 0.6),
    ("AMQPNetLite", 1, 1_500, None),
    ("AMQPNetLite", 100, 15_000, 0.35),
)
"""Client, messages in flight, messages a round, least ratio."""


@dataclass
class Samples:
    """What the rounds of one scenario gave, of one server."""

    rates: list[float] = field(default_factory=list)
    rabbitmq_us: list[float] = field(default_factory=list)
    bridge_us: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages are sent to.

    Attributes:
        queue: the queue of RabbitMQ that has them in the end.
        process_id: the bridge's process, or `None`.
        virtual_host: the queue's.
    """

    user: str
    password: str
    port: int
    address: str
    queue: str
    process_id: int | None
    virtual_host: str = "/"


def run_client(client: str, target: Target, count: int, in_flight: int) -> dict[str, float]:
    """Send messages from a process of its own; return what it measured."""
    if client == "proton":
        url = f"amqp://{target.user}:{target.password}@127.0.0.1:{target.port}"
        command = python_client("singles_client", "send", url)
    else:
        tools = os.environ.get("DOTNET_TOOLS", str(Path(tempfile.gettempdir()) / "dotnet-tools"))
        command = [os.environ["DOTNET_KIT"], tools, str(DOTNET), "127.0.0.1", str(target.port)]
        command += [target.user, target.password]
    command += [target.address, str(count), str(in_flight)]
    return measured(client, command)


class Singles:
    """The servers on one RabbitMQ, and the measuring of one round."""

    def __init__(self, rabbit: Bench) -> None:
        self._rabbit = rabbit
        self.times = ProcessorTime(rabbit)
        self._stored: dict[tuple[str, str], int] = {}

    async def round(self, client: str, target: Target, count: int, in_flight: int) -> list[float]:
        """Send; return the rate, and RabbitMQ's and the bridge's microseconds for a message."""
        measure = self.times.begin(target.process_id)
        sent = await asyncio.to_thread(run_client, client, target, count, in_flight)
        place = target.queue, target.virtual_host
        total = self._stored[place] = self._stored.get(place, 0) + count + WARM
        await until(self._has(*place, total))
        return [sent["rate"], *measure.each_us(count + WARM), 0.0][:3]

    def _has(self, queue: str, virtual_host: str, count: int) -> Callable[[], Awaitable[bool]]:
        async def has() -> bool:
            return await self._rabbit.messages(queue, virtual_host) >= count

        return has


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    end_s = time.monotonic() + DEADLINE_S
    while not await holds():
        if time.monotonic() > end_s:
            raise TimeoutError("the messages have not come")
        await asyncio.sleep(0.05)


def target_of(server: BridgeServer, queue: str, virtual_host: str = "/") -> Target:
    """Return an entity of a bridge."""
    port = int(server.connection_string.split("localhost:")[1].split(";")[0])
    return Target(USER, KEY, port, queue, queue, server.process_id, virtual_host)


async def _measure(rabbit: Bench, wanted: argparse.Namespace) -> list[Figure]:
    singles = Singles(rabbit)
    scenarios = [each for each in SCENARIOS if each[0] == "proton" or "DOTNET_KIT" in os.environ]
    if len(scenarios) < len(SCENARIOS):
        print("AMQPNetLite: not measured, DOTNET_KIT is not set.")
    names = {_name(*each): each for each in scenarios}
    names = {name: each for name, each in names.items() if not wanted.only or name in wanted.only}
    figures: list[Figure] = []
    host, port = rabbit.node.endpoint.hosts[0]
    url = f"amqp://guest:guest@{host}:{port}"
    api = ("--management-url", rabbit.node.management_url)
    with ExitStack() as stack:
        ours = stack.enter_context(bridge_server([*names], "--rabbitmq-url", url, *api))
        beside = None
        if wanted.beside is not None:
            await rabbit.make_virtual_host(BESIDE)
            there = ("--rabbitmq-url", f"{url}/{BESIDE}", *api)
            beside = stack.enter_context(bridge_server([*names], *there, tree=wanted.beside))
        await singles.times.learn_idle(
            each.process_id for each in (ours, beside) if each is not None
        )
        for name, (client, in_flight, count, floor) in names.items():
            own = f"own-{name}"
            await rabbit.declare_quorum(own)
            targets = {
                "ours": target_of(ours, name),
                "RabbitMQ": Target("guest", "guest", port, f"/queues/{own}", own, None),
            }
            if beside is not None:
                targets[BESIDE] = target_of(beside, name, BESIDE)
            samples = {each: Samples() for each in targets}
            for number in range(wanted.rounds):
                print(f"\r{name}: round {number + 1} of {wanted.rounds} ", end="", file=sys.stderr)
                for each, target in targets.items():
                    _note(samples[each], await singles.round(client, target, count, in_flight))
            print("\r" + " " * 70, end="\r", file=sys.stderr)
            figures += _figures(f"{client}, {in_flight} in flight", samples, floor, rabbit.version)
    return figures


def _name(client: str, in_flight: int, *_: object) -> str:
    return f"{client.lower()}-{in_flight}"


def _note(samples: Samples, result: list[float]) -> None:
    rate, rabbitmq_us, bridge_us = result
    samples.rates.append(rate)
    samples.rabbitmq_us.append(rabbitmq_us)
    samples.bridge_us.append(bridge_us)


def _figures(
    name: str, samples: dict[str, Samples], floor: float | None, version: str
) -> list[Figure]:
    ours, peers = samples["ours"], samples["RabbitMQ"]
    rates = compare(
        name, "msg/s", ours.rates, peers.rates, peer="RabbitMQ", floor=floor, rabbitmq=version
    )
    figures = [
        rates,
        compare(
            "  RabbitMQ's processor time a message",
            "us",
            ours.rabbitmq_us,
            peers.rabbitmq_us,
            peer="RabbitMQ",
            rabbitmq=version,
        ),
        Figure(
            name="  the bridge's processor time a message",
            unit="us",
            ours=statistics.median(ours.bridge_us),
            rabbitmq=version,
        ),
    ]
    if BESIDE in samples:
        beside = samples[BESIDE]
        kinds = (
            ("rate", ours.rates, beside.rates),
            ("RabbitMQ us", ours.rabbitmq_us, beside.rabbitmq_us),
            ("bridge us", ours.bridge_us, beside.bridge_us),
        )
        for kind, mine, theirs in kinds:
            figures.append(
                compare(f"  beside: {kind}", "", mine, theirs, peer="beside", rabbitmq=version)
            )
    return figures


async def _all(arguments: list[str], wanted: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    for installation in installations(arguments):
        async with bench(installation) as rabbit:
            figures += await _measure(rabbit, wanted)
    return figures


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--beside", type=Path, help="another checkout of the bridge")
    parser.add_argument("--only", action="append", help="CLIENT-IN_FLIGHT")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    wanted, rest = parser.parse_known_args()
    return 0 if report("Single sends", asyncio.run(_all(rest, wanted))) else 1


if __name__ == "__main__":
    sys.exit(main())
