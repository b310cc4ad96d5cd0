"""What each kind of RabbitMQ's objects costs RabbitMQ: memory, time to declare, idle, restart.

A node of its own for each kind, so that one kind's figures do not stand on another's. 1,000 objects
of the kind beside what they need to exist. The figures have no floor: they say which objects of an
entity are worth sparing (docs/design/scale.md).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bridge.broker.connection.channel import Channel
from bridge.topology import parts
from bridge.topology.resources import Binding, Queue
from tests.bench.figure import Figure, report
from tests.bench.rabbit import Bench, bench, installations

COUNT = 1_000
IDLE_S = 30.0
SETTLE_S = 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Make = Callable[[Channel, int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of objects.

    Attributes:
        make: declares one.
        before: declares what all of them need; it is not measured.
    """

    name: str
    make: Make
    before: Make | None = None


async def _quorum(channel: Channel, number: int) -> None:
    await channel.declarations.declare_queue(parts.quorum_queue(f"quorum-{number}", {}))


async def _dead_lettering(channel: Channel, number: int) -> None:
    arguments = parts.dead_lettering("", f"dead-{number}")
    await channel.declarations.declare_queue(parts.quorum_queue(f"quorum-{number}", arguments))


async def _stream(channel: Channel, number: int) -> None:
    await channel.declarations.declare_queue(parts.journal(f"stream-{number}"))


async def _classic(channel: Channel, number: int) -> None:
    await channel.declarations.declare_queue(
        Queue(name=f"classic-{number}", arguments={"x-queue-type": "classic"})
    )


async def _exchange(channel: Channel, number: int) -> None:
    await channel.declarations.declare_exchange(
        parts.fixed_exchange(f"exchange-{number}", "fanout")
    )


async def _headers_exchange(channel: Channel, number: int) -> None:
    await channel.declarations.declare_exchange(
        parts.fixed_exchange(f"exchange-{number}", "headers", alternate_exchange="other")
    )


async def _one_queue(channel: Channel, number: int) -> None:
    if not number:
        await _classic(channel, 0)
        await channel.declarations.declare_exchange("shared", "direct")


async def _queue_and_exchange(channel: Channel, number: int) -> None:
    if not number:
        await _classic(channel, 0)
    await _exchange(channel, number)


async def _queue_and_headers(channel: Channel, number: int) -> None:
    if not number:
        await _classic(channel, 0)
    await _headers_exchange(channel, number)


async def _fanout_binding(channel: Channel, number: int) -> None:
    await channel.declarations.bind(Binding(source=f"exchange-{number}", destination="classic-0"))


async def _shared_binding(channel: Channel, number: int) -> None:
    await channel.declarations.bind(
        Binding(source="shared", destination="classic-0", routing_key=f"key-{number}")
    )


async def _headers_binding(channel: Channel, number: int) -> None:
    arguments = {"x-match": "all-with-x", parts.DEATH_HEADER: "expired"}
    await channel.declarations.bind(
        Binding(source=f"exchange-{number}", destination="classic-0", arguments=dict(arguments))
    )


KINDS = (
    Kind("nothing", _one_queue),
    Kind("quorum queue", _quorum),
    Kind("quorum queue that dead-letters at least once", _dead_lettering),
    Kind("stream", _stream),
    Kind("classic queue", _classic),
    Kind("fanout exchange", _exchange),
    Kind("headers exchange", _headers_exchange),
    Kind("binding of a fanout exchange each", _fanout_binding, _queue_and_exchange),
    Kind("binding of one direct exchange", _shared_binding, _one_queue),
    Kind("binding of a headers exchange each", _headers_binding, _queue_and_headers),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What 1,000 objects cost."""

    memory_mb: float
    declare_s: float
    declare_cpu_s: float
    idle_cpu_s: float
    restart_cpu_s: float


async def cost(rabbit: Bench, kind: Kind) -> Cost:
    """Make the objects of a kind on a fresh node, and measure."""
    channel = await rabbit.connection.channel()
    if kind.before is not None:
        for number in range(COUNT):
            await kind.before(channel, number)
    await asyncio.sleep(SETTLE_S)
    pid, empty = await _memory(rabbit)
    cpu = _cpu_s(pid)
    begin = time.perf_counter()
    for number in range(COUNT):
        await kind.make(channel, number)
    declared_s, declared_cpu_s = time.perf_counter() - begin, _cpu_s(pid) - cpu
    await asyncio.sleep(SETTLE_S)
    _, full = await _memory(rabbit)
    cpu = _cpu_s(pid)
    await asyncio.sleep(IDLE_S)
    idle_cpu_s = (_cpu_s(pid) - cpu) * 60 / IDLE_S
    await rabbit.connection.close()
    await rabbit.node.stop()
    await rabbit.node.start()
    await asyncio.sleep(SETTLE_S)
    pid, _ = await _memory(rabbit)
    return Cost(
        memory_mb=full - empty,
        declare_s=declared_s,
        declare_cpu_s=declared_cpu_s,
        idle_cpu_s=idle_cpu_s,
        restart_cpu_s=_cpu_s(pid),
    )


async def _memory(rabbit: Bench) -> tuple[int, float]:
    """Return the node's process id, and the memory that Erlang uses, in MB."""
    login = aiohttp.BasicAuth("guest", "guest")
    url = f"{rabbit.node.management_url}/api/nodes/{rabbit.node.name}"
    async with aiohttp.ClientSession(auth=login) as session:
        async with session.get(url) as answer:
            pid = int((await answer.json())["os_pid"])
        async with session.get(f"{url}/memory") as answer:
            found = (await answer.json())["memory"]
    return pid, found["total"]["erlang"] / 2**20


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


async def main(arguments: list[str]) -> int:
    """Measure every kind, or those whose names contain `--kind`'s words."""
    wanted = [each.removeprefix("--kind=") for each in arguments if each.startswith("--kind=")]
    figures = []
    for installation in installations([a for a in arguments if not a.startswith("--kind=")]):
        for kind in (k for k in KINDS if not wanted or any(w in k.name for w in wanted)):
            async with bench(installation) as rabbit:
                found = await cost(rabbit, kind)
            print(f"  {kind.name}: {found}", file=sys.stderr, flush=True)
            for name, unit, ours in (
                ("memory", "MB", found.memory_mb),
                ("to declare", "s", found.declare_s),
                ("to declare, processor", "s", found.declare_cpu_s),
                ("idle, processor a minute", "s", found.idle_cpu_s),
                ("restart of RabbitMQ, processor", "s", found.restart_cpu_s),
            ):
                figures.append(
                    Figure(
                        name=f"1,000 of {kind.name}: {name}",
                        unit=unit,
                        ours=ours,
                        rabbitmq=rabbit.version,
                    )
                )
    return 0 if report("Objects", figures) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
