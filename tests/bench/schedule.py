"""Scheduled messages: how late they are, how many may wait, and what they cost.

Lateness is what a native consumer of the entity's queue sees on the same clock. Beside it, in the
same run: kombu's ladder of TTL queues.

    python -m tests.bench.schedule [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import sys
import time

from bridge.broker.connection.delivery import Delivery
from bridge.model.entity import Queue
from bridge.topology import names
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item
from tests.bench import ladder
from tests.bench.door import PROPERTIES, Door, Refusal, lateness
from tests.bench.figure import Figure, report
from tests.bench.rabbit import Bench, Sidecar, bench, installations

SPREAD = 300
SPREAD_S = 15
BURST = 30_000
PENDING = 500_000
PENDING_BYTES = 4_096
FAR_MS = 30 * 86_400_000
BATCH = 100
AT_ONCE = 20
PLAIN = 50_000
CANCELS = 200
LEAD_S = 15
ROUNDS = 3
SETTLE_S = 5


def main() -> int:
    """Run and report; 1 when a figure is on the wrong side of its bound."""
    figures = asyncio.run(_all())
    return 0 if report("Schedule", figures) else 1


async def _all() -> list[Figure]:
    figures: list[Figure] = []
    for installation in installations(sys.argv[1:]):
        async with bench(installation) as rabbit:
            figures += await _timed(rabbit)
            figures += await _pending(rabbit)
    return figures


def percentile(values: list[float], percent: int) -> float:
    """Return a percentile."""
    return statistics.quantiles(values, n=100)[percent - 1]


async def _timed(rabbit: Bench) -> list[Figure]:
    queue = Queue(name="timed")
    await rabbit.declare(queue)
    port = rabbit.node.endpoint.hosts[0][1]
    await asyncio.to_thread(ladder.declare, f"amqp://guest:guest@127.0.0.1:{port}//")
    sidecar = await Sidecar.start(rabbit.node, queue)
    door = await Door.open(rabbit.connection, queue.name)
    spread, spread_ladder = [], []
    for _ in range(ROUNDS):
        spread.append(await _spread(rabbit, door))
        spread_ladder.append(await _ladder_spread(rabbit))
    bursts = [await _burst(rabbit, door) for _ in range(ROUNDS)]
    lasts = [max(each) for each in bursts]
    burst_ladder = await _ladder_burst(rabbit)
    await sidecar.stop()

    def spread_figure(percent: int, most: float) -> Figure:
        ours = [percentile(each, percent) for each in spread]
        peers = [percentile(each, percent) for each in spread_ladder]
        return Figure(
            name=f"{SPREAD} over {SPREAD_S} s, idle: lateness p{percent}",
            unit="ms",
            ours=statistics.median(ours),
            peer="ladder",
            peers=statistics.median(peers),
            ratio=statistics.median(ours),
            floor=min(most, statistics.median(peers)),
            is_ceiling=True,
            rabbitmq=rabbit.version,
            samples={
                "ours": [late for each in spread for late in each],
                "ladder": [late for each in spread_ladder for late in each],
            },
        )

    early_ms = -min(min(each) for each in (*bursts, *spread))
    return [
        spread_figure(50, 5),
        spread_figure(99, 15),
        Figure(
            name=f"{BURST} for one instant: lateness of the last",
            unit="ms",
            ours=statistics.median(lasts),
            peer="ladder" if len(burst_ladder) == BURST else f"ladder ({len(burst_ladder)} came)",
            peers=max(burst_ladder),
            ratio=statistics.median(lasts),
            floor=3_000,
            is_ceiling=True,
            rabbitmq=rabbit.version,
            rounds=tuple(lasts),
            samples={"ours": [late for each in bursts for late in each], "ladder": burst_ladder},
        ),
        _bound("the earliest of all: early by", "ms", early_ms, 0, rabbit),
    ]


async def _spread(rabbit: Bench, door: Door) -> list[float]:
    begin_ms = int(time.time() * 1000) + 3_000
    dues = [begin_ms + n * SPREAD_S * 1000 // SPREAD for n in range(SPREAD)]
    watch = asyncio.create_task(_watch(rabbit, SPREAD))
    for start in range(0, SPREAD, 20):
        await door.send([_item(100, due_ms) for due_ms in dues[start : start + 20]])
    return await watch


async def _burst(rabbit: Bench, door: Door) -> list[float]:
    due_ms = int(time.time() * 1000) + LEAD_S * 1000
    watch = asyncio.create_task(_watch(rabbit, BURST))
    batches = [[_item(1024, due_ms)] * BATCH for _ in range(BURST // BATCH)]
    await door.send_all(batches, AT_ONCE)
    assert time.time() * 1000 < due_ms, "scheduling took too long"
    return await watch


async def _watch(rabbit: Bench, count: int) -> list[float]:
    def due_ms(delivery: Delivery) -> float:
        return float(delivery.body[:16])

    return await lateness(rabbit.connection, names.active_queue("timed"), count, due_ms)


async def _ladder_spread(rabbit: Bench) -> list[float]:
    begin_ms = int(time.time() * 1000) + 3_000
    # The ladder knows whole seconds: a message is due so long after it was published.
    dues = [begin_ms + n * SPREAD_S * 1000 // SPREAD // 1000 * 1000 for n in range(SPREAD)]
    return await _ladder(rabbit, dues, 100)


async def _ladder_burst(rabbit: Bench) -> list[float]:
    due_ms = int(time.time() * 1000) + LEAD_S * 1000
    return await _ladder(rabbit, [due_ms] * BURST, 1024)


async def _ladder(rabbit: Bench, dues_ms: list[int], size: int) -> list[float]:
    def due_ms(delivery: Delivery) -> float:
        table = Properties.decode(delivery.properties).headers or {}
        return float(table["due"][1])  # type: ignore[arg-type]

    watching = lateness(rabbit.connection, ladder.QUEUE, len(dues_ms), due_ms, is_peer=True)
    watch = asyncio.create_task(watching)
    channel = await rabbit.connection.channel()
    await ladder.publish(channel, dues_ms, size)
    await channel.close()
    return await watch


async def _pending(rabbit: Bench) -> list[Figure]:
    queue = Queue(name="pending")
    await rabbit.declare(queue)
    sidecar = await Sidecar.start(rabbit.node, queue)
    door = await Door.open(rabbit.connection, queue.name)
    await door.send([_item(PENDING_BYTES, 0)])
    idle_mb = sidecar.memory_mb()
    plain = await _rate(door, PLAIN, 0)
    due_ms = int(time.time() * 1000) + FAR_MS
    begin = time.perf_counter()
    numbers = await door.send_all(
        [[_item(PENDING_BYTES, due_ms)] * BATCH for _ in range(PENDING // BATCH)], AT_ONCE
    )
    scheduled = PENDING / (time.perf_counter() - begin)
    grown_mb = sidecar.memory_mb() - idle_mb
    # RabbitMQ is still busy with what it has just taken.
    await asyncio.sleep(SETTLE_S)
    cancels = [await _cancel(door, number) for number in random.sample(numbers, CANCELS)]
    await sidecar.kill()
    begin = time.perf_counter()
    sidecar = await Sidecar.start(rabbit.node, queue)
    await door.send([_item(PENDING_BYTES, 0)])
    ready_s = time.perf_counter() - begin
    left = random.sample(sorted(set(numbers)), CANCELS * 2)
    await asyncio.gather(*(_try_cancel(door, number) for number in left))
    cancellable_s = time.perf_counter() - begin
    counters = await sidecar.stop()
    waiting = counters["pending"]["pending"]  # type: ignore[index]
    assert PENDING - 3 * CANCELS <= waiting <= PENDING, waiting
    share = Figure(
        name="schedules of 4 KB, stored and answered",
        unit="msg/s",
        ours=scheduled,
        peer="plain sends",
        peers=plain,
        ratio=scheduled / plain,
        floor=0.5,
        rabbitmq=rabbit.version,
    )
    return [
        share,
        _bound(f"{PENDING} pending: memory above idle", "MB", grown_mb, 150, rabbit),
        _bound("cancel of any one: p50", "ms", statistics.median(cancels), 10, rabbit),
        _bound("cancel of any one: p99", "ms", percentile(cancels, 99), 10, rabbit),
        _bound("killed: numbers again after", "s", ready_s, 10, rabbit),
        _bound("killed: all cancellable after", "s", cancellable_s, 60, rabbit),
    ]


async def _rate(door: Door, count: int, due_ms: int) -> float:
    begin = time.perf_counter()
    batches = [[_item(PENDING_BYTES, due_ms)] * BATCH for _ in range(count // BATCH)]
    await door.send_all(batches, AT_ONCE)
    return count / (time.perf_counter() - begin)


async def _cancel(door: Door, number: int) -> float:
    begin = time.perf_counter()
    await door.cancel(number)
    return (time.perf_counter() - begin) * 1000


async def _try_cancel(door: Door, number: int) -> None:
    # Some were cancelled before.
    with contextlib.suppress(Refusal):
        await door.cancel(number)


def _item(size: int, due_ms: int) -> Item:
    body = f"{due_ms:016d}".encode().ljust(size, b".")
    return Item(PROPERTIES, body, scheduled_ms=due_ms)


def _bound(name: str, unit: str, ours: float, most: float, rabbit: Bench) -> Figure:
    return Figure(
        name=name,
        unit=unit,
        ours=ours,
        peer="at most",
        peers=most,
        ratio=ours,
        floor=most,
        is_ceiling=True,
        rabbitmq=rabbit.version,
    )


if __name__ == "__main__":
    sys.exit(main())
