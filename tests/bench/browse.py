"""Peeks at random places of a long queue, the first after a start, and what being peeked costs.

The queue is filled as a sequencer does it. Peeks are the engine's own, in this process, without the
SDK; receivers likewise. The cost is the rate at which a queue that somebody has peeked is received
from and completed, beside one that nobody has.

    python -m tests.bench.browse [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import time

from bridge.broker.connection.address import take_address
from bridge.broker.handover import Publish
from bridge.engine.api import Complete
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Queue, Tier
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.wire.envelope import Item
from tests.bench.door import PROPERTIES
from tests.bench.figure import Figure, compare, report
from tests.bench.rabbit import Bench, bench, fill, installations
from tests.integration.door import Door, open_door

ENTRIES = int(os.environ.get("BROWSE_ENTRIES", "1_000_000"))
CHUNK = 50_000
SNAPSHOT_EVERY = 2_000
PEEKS = 100
PEEK_MS = 20.0
LONG = Queue(name="long")
RECEIVED = 5_000
ROUNDS = 5
CREDIT = 500
SHARE = 0.9
PLAIN = tuple(Queue(name=f"plain-{number}", lock_duration_ms=300_000) for number in range(ROUNDS))
PEEKED = tuple(Queue(name=f"peeked-{number}", lock_duration_ms=300_000) for number in range(ROUNDS))
TERM = bytes([7] * 16)


def main() -> int:
    """Run and report; 1 when a figure is on the wrong side of its bound."""
    figures = asyncio.run(_all())
    return 0 if report("Browse", figures) else 1


async def _all() -> list[Figure]:
    figures: list[Figure] = []
    for installation in installations(sys.argv[1:]):
        async with bench(installation) as rabbit:
            async with _door(rabbit, LONG, *PLAIN, *PEEKED) as door:
                figures += await _cost(rabbit, door)
                await _fill(rabbit, LONG, ENTRIES)
                first_s, median_ms = await _peeks(door)
                figures += _figures(rabbit, "first peek ever", first_s, median_ms)
            async with _door(rabbit, LONG) as door:
                first_s, median_ms = await _peeks(door)
                figures += _figures(rabbit, "first peek after a start", first_s, median_ms)
    return figures


def _door(rabbit: Bench, *queues: Queue):  # type: ignore[no-untyped-def]
    return open_door(rabbit.node.endpoint, rabbit.node.management_url, *queues, with_sidecar=False)


def _figures(rabbit: Bench, first: str, first_s: float, peeks_ms: list[float]) -> list[Figure]:
    median = statistics.median(peeks_ms)
    where = f"of 1 at random places of {ENTRIES:,}"
    return [
        Figure(name=f"{first}, {ENTRIES:,}", unit="s", ours=first_s, rabbitmq=rabbit.version),
        Figure(
            name=f"{PEEKS} peeks {where}, median",
            unit="ms",
            ours=median,
            ratio=median,
            floor=PEEK_MS,
            is_ceiling=True,
            rabbitmq=rabbit.version,
            samples={"ours": peeks_ms},
        ),
    ]


async def _peeks(door: Door) -> tuple[float, list[float]]:
    """Return how long the first took, in s, and those at random places, in ms."""
    path, chance, taken = EntityPath(LONG.name), random.Random(1), []
    begun = time.perf_counter()
    (found,) = await door.namespace.peek(path, 1, 1)
    first_s = time.perf_counter() - begun
    oldest = found.sequence_number
    for _ in range(PEEKS):
        number = chance.randint(oldest, ENTRIES)
        begun = time.perf_counter()
        (found,) = await door.namespace.peek(path, number, 1)
        taken.append((time.perf_counter() - begun) * 1_000)
        assert found.sequence_number == number
    return first_s, taken


async def _cost(rabbit: Bench, door: Door) -> list[Figure]:
    plain, peeked, beside = [], [], []
    for one, other in zip(PLAIN, PEEKED, strict=True):
        for queue in (one, other):
            await _fill(rabbit, queue, 2 * RECEIVED + 2 * CREDIT)
        await door.namespace.peek(EntityPath(other.name), 1, 1)
        for queue in (one, other):  # what a first peek and a first receiver cost once
            await _receive(door, queue, 2 * CREDIT)
        plain.append(await _receive(door, one, RECEIVED))
        peeked.append(await _receive(door, other, RECEIVED))
        peeking = asyncio.create_task(_peek_on(door, other))
        beside.append(await _receive(door, other, RECEIVED))
        peeking.cancel()
        plain.append(await _receive(door, one, RECEIVED))
    version = rabbit.version
    name = "received and completed"
    return [
        compare(
            f"{name}, once peeked, beside never peeked",
            "/s",
            peeked,
            plain,
            peer="plain",
            floor=SHARE,
            rabbitmq=version,
        ),
        compare(
            f"{name}, a peeker in the same process",
            "/s",
            beside,
            plain,
            peer="plain",
            rabbitmq=version,
        ),
    ]


async def _peek_on(door: Door, queue: Queue) -> None:
    while True:
        await door.namespace.peek(EntityPath(queue.name), 1, 10)


async def _receive(door: Door, queue: Queue, count: int) -> float:
    """Receive and complete; return the rate."""
    path = EntityPath(queue.name)
    client = door.client(path=path)
    begun = time.perf_counter()
    for _ in range(count // CREDIT):
        received = await client.receive(CREDIT)
        await asyncio.gather(*(_complete(door, path, each.lock_token) for each in received))
    rate = count / (time.perf_counter() - begun)
    await client.receiver.close()
    return rate


async def _complete(door: Door, path: EntityPath, token: object) -> None:
    await door.namespace.settle(path, token, Complete())  # type: ignore[arg-type]


async def _fill(rabbit: Bench, queue: Queue, count: int) -> None:
    """Publish numbered messages into a queue and its journal, as a sequencer does."""
    sequencer = Sequencer(queue, Tier.STANDARD, blank(is_partitioned=False))
    mark = marker(queue, TERM, "boot")
    publishes = [Publish("", names.journal(queue.name), mark.properties, mark.body)]
    channel = await rabbit.connection.channel()
    await take_address(channel)
    now_ms = time.time_ns() // 1_000_000
    for number in range(1, count + 1):
        item = Item(PROPERTIES, b"%d" % number)
        for each in sequencer.apply(SendCommand(number.to_bytes(16), (item,)), now_ms).publications:
            publishes.append(Publish(*each))
        if number % SNAPSHOT_EVERY == 0:
            publishes += [Publish(*each) for each in sequencer.snapshot(TERM, "boot", 0)]
        if len(publishes) >= CHUNK:
            await fill(channel, publishes)
            publishes = []
    await fill(channel, publishes)
    await channel.close()


if __name__ == "__main__":
    sys.exit(main())
