"""Counts of a page of entities: beside as many, and beside ten times as many.

A bridge's engine with `FEW`, then `MANY` queues counts a page of 100. Beside it what RabbitMQ takes
for as many passive declares, ahead of the answers and one after another.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bridge.broker.connection.channel import Channel
from bridge.broker.ready_counts import ReadyCounts
from bridge.model.entity import Namespace, Queue
from bridge.topology import names
from tests.bench.figure import Figure, report
from tests.bench.rabbit import Bench, bench, installations
from tests.fixtures.waiting import until
from tests.integration.door import open_door

FEW, MANY = 100, 1_000
PAGE = 100
ROUNDS = 5
START_S = 600.0

PAGE_MAX_S = 1.0
"""The longest that a page may take, beside `MANY` entities."""


def cpu_s(bench: Bench) -> float:
    """Return the processor time that RabbitMQ has used."""
    assert bench.node._process is not None
    fields = Path(f"/proc/{bench.node._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def timed(bench: Bench, work: Callable[[], Awaitable[object]]) -> tuple[list[float], float]:
    """Return the seconds of each round, and RabbitMQ's processor time a round."""
    samples, before_s = [], cpu_s(bench)
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        await work()
        samples.append(time.perf_counter() - begin)
    return samples, (cpu_s(bench) - before_s) / ROUNDS


async def declared_in_turn(channel: Channel, queues: list[str]) -> None:
    """Ask queues for their counts one after another."""
    for queue in queues:
        await channel.declarations.declare_queue(queue, passive=True)


async def count(node: Bench, entities: int) -> list[Figure]:
    """Return the figures of pages beside so many entities."""
    made = [Queue(name=f"queue-{number:04}") for number in range(entities)]
    url = node.node.management_url
    async with open_door(node.node.endpoint, url, *made[:FEW]) as door:
        for at in range(FEW, entities, FEW):
            await door.namespace.apply(Namespace(queues=tuple(made[at : at + FEW])))
        await until(lambda: len(door.sidecar.leading) == entities, within_s=START_S)
        page = door.namespace.directory.namespace.queues[:PAGE]
        counts, used_s = await timed(node, lambda: door.namespace.counting.counts(page))
        one, used_one_s = await timed(node, lambda: door.namespace.counting.counts(page[:1]))
    queues = [
        named(each.path)
        for each in page
        for named in (names.active_queue, names.dead_letter_queue, names.inbox)
    ]
    with await node.connection.channel() as channel:
        in_turn, _ = await timed(node, lambda: declared_in_turn(channel, queues))
    ahead, _ = await timed(node, lambda: ReadyCounts(node.connection).ask(queues))
    beside = f"beside {entities} entities"
    print(
        f"  [{node.version}] {beside}: RabbitMQ used {used_s:.2f} s of processor a page, "
        f"{used_one_s:.3f} s an entity alone",
        flush=True,
    )
    return [
        Figure(
            name=f"a page of {PAGE} counted, {beside}; the longest of {ROUNDS}",
            unit="s",
            ours=max(counts),
            ratio=max(counts),
            floor=PAGE_MAX_S if entities == MANY else None,
            is_ceiling=True,
            rabbitmq=node.version,
            samples={"page": counts, "one": one},
        ),
        Figure(
            name=f"its {len(queues)} queues asked ahead, {beside}",
            unit="s",
            ours=min(ahead),
            peer="one after another",
            peers=min(in_turn),
            rabbitmq=node.version,
            samples={"ahead": ahead, "in turn": in_turn},
        ),
    ]


async def main() -> bool:
    """Measure each RabbitMQ of the command line."""
    figures = []
    for installation in installations(sys.argv[1:]):
        async with bench(installation) as node:
            for entities in (FEW, MANY):
                figures += await count(node, entities)
    return report("Counts", figures)


if __name__ == "__main__":
    sys.exit(not asyncio.run(main()))
