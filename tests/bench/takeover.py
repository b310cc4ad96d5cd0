"""How long nobody numbers when a bridge ends: on a long journal, restart after restart, under load.

A second sidecar stands by. What is measured is seen from outside: the longest silence on the active
queue after the first one has ended, under a steady load of envelopes. It holds RabbitMQ's election,
the takeover and the first number.

    python -m tests.bench.takeover [--rabbitmq TREE]...
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from bridge.broker.connection.address import take_address
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.handover import Publish
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Queue, Tier
from bridge.topology import names
from bridge.wire import envelope
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item, Operation
from tests.bench.door import PROPERTIES, Door
from tests.bench.figure import Figure, report
from tests.bench.rabbit import Bench, Sidecar, bench, fill, installations

ENTRIES = int(os.environ.get("TAKEOVER_ENTRIES", "1_000_000"))
SCHEDULED = 1_000
FAR_MS = 86_400_000
SNAPSHOT_EVERY = 2_000
CHUNK = 50_000
LOAD_S = 0.005
RESTARTS = 10
EVERY_S = 5.0
QUEUE = Queue(name="takeover")
TERM = bytes([7] * 16)
MEDIAN_S = 2.0
GROWTH = 1.5
SPREAD_S = 0.1
"""Shorter silences count as this: they differ by the start of a process, not by the journal."""


def main() -> int:
    """Run and report; 1 when a figure is on the wrong side of its bound."""
    figures = asyncio.run(_all())
    return 0 if report("Takeover", figures) else 1


async def _all() -> list[Figure]:
    figures: list[Figure] = []
    for installation in installations(sys.argv[1:]):
        async with bench(installation) as rabbit:
            await rabbit.declare(QUEUE)
            await _write_journal(rabbit, QUEUE)
            await _schedule(rabbit, QUEUE)
            for name, end in (("stopped", _stop), ("killed", Sidecar.kill)):
                figures += await _restarts(rabbit, name, end)
    return figures


async def _stop(sidecar: Sidecar) -> None:
    await sidecar.stop()


async def _restarts(
    rabbit: Bench, name: str, end: Callable[[Sidecar], Awaitable[None]]
) -> list[Figure]:
    queue = QUEUE
    serving = await Sidecar.start(rabbit.node, queue)
    witness = Witness()
    channel = await witness.open(rabbit, queue)
    load = asyncio.create_task(_load(rabbit, queue, name))
    silences = []
    standby = await Sidecar.start(rabbit.node, queue)
    try:
        for _ in range(RESTARTS):
            begun_s = time.monotonic()
            await end(serving)
            after = await Sidecar.start(rabbit.node, queue)
            await asyncio.sleep(max(begun_s + EVERY_S - time.monotonic(), 0))
            await witness.heard_since(begun_s)
            silences.append(witness.longest_silence_s(begun_s))
            print(f"  {name}: {silences[-1]:.2f} s", flush=True)
            serving, standby = standby, after
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        await serving.stop()
        await standby.stop()
        await channel.close()
    witness.judge()
    growth = statistics.median(silences[-3:]) / max(statistics.median(silences[:3]), SPREAD_S)
    version = rabbit.version
    samples = {"ours": silences}
    median = statistics.median(silences)
    entries = f"{ENTRIES:,} entries, {SCHEDULED:,} scheduled"
    return [
        Figure(
            name=f"silence, {name} ({entries}), median of {RESTARTS}",
            unit="s",
            ours=median,
            ratio=median,
            floor=MEDIAN_S,
            is_ceiling=True,
            rabbitmq=version,
            samples=samples,
        ),
        Figure(
            name=f"silence, {name}, last three beside first three",
            unit="s",
            ours=statistics.median(silences[-3:]),
            peer="first",
            peers=statistics.median(silences[:3]),
            ratio=growth,
            floor=GROWTH,
            is_ceiling=True,
            rabbitmq=version,
        ),
    ]


async def _write_journal(rabbit: Bench, queue: Queue) -> None:
    """Fill a journal as a sequencer does, but for the messages themselves."""
    sequencer = Sequencer(queue, Tier.STANDARD, blank(is_partitioned=False))
    stream = names.journal(queue.name)
    mark = marker(queue, TERM, "boot")
    publishes = [Publish("", stream, mark.properties, mark.body)]
    channel = await _addressed(rabbit)
    for number in range(1, ENTRIES + 1):
        item = Item(PROPERTIES, b"%d" % number)
        for each in sequencer.apply(SendCommand(number.to_bytes(16), (item,)), number).publications:
            publishes.append(Publish("", stream, each.properties, each.body))
        if number % SNAPSHOT_EVERY == 0:
            parts = sequencer.snapshot(TERM, "boot", SNAPSHOT_EVERY)
            publishes += [Publish("", stream, each.properties, each.body) for each in parts]
        if len(publishes) >= CHUNK:
            await fill(channel, publishes)
            publishes = []
    await fill(channel, publishes)
    await channel.close()


async def _schedule(rabbit: Bench, queue: Queue) -> None:
    """Have messages wait, all over a day."""
    serving = await Sidecar.start(rabbit.node, queue)
    door = await Door.open(rabbit.connection, queue.name)
    now_ms = time.time_ns() // 1_000_000
    for number in range(SCHEDULED // 100):
        due_ms = now_ms + (number + 1) * FAR_MS * 100 // SCHEDULED
        await door.send([Item(PROPERTIES, b"later", None, due_ms)] * 100)
    await serving.stop()


async def _addressed(rabbit: Bench) -> Channel:
    channel = await rabbit.connection.channel()
    await take_address(channel)
    return channel


async def _load(rabbit: Bench, queue: Queue, name: str) -> None:
    """Send, each message with a body of its own: what is left of one run comes in the next."""
    channel = await rabbit.connection.channel()
    begun_s = time.monotonic()
    for number in itertools.count(1):
        item = Item(PROPERTIES, b"%s %d" % (name.encode(), number))
        body = envelope.encode(Operation.SEND, os.urandom(16), [item])
        channel.publisher.publish(names.front(queue.name), "", envelope.SILENT_PROPERTIES, body)
        await asyncio.sleep(max(begun_s + number * LOAD_S - time.monotonic(), 0))


class Witness:
    """A native consumer that remembers when it heard which number."""

    def __init__(self) -> None:
        self._heard: list[float] = []
        self._bodies: dict[int, bytes] = {}
        self._faults: list[str] = []

    async def open(self, rabbit: Bench, queue: Queue) -> Channel:
        """Begin to listen; returns the channel."""
        channel = await rabbit.connection.channel()

        def on_delivery(delivery: Delivery) -> None:
            self._heard.append(time.monotonic())
            table = Properties.decode(delivery.properties).headers or {}
            number = table["x-opt-sequence-number"][1]
            assert isinstance(number, int)
            if self._bodies.setdefault(number, delivery.body) != delivery.body:
                self._faults.append(f"{number} is two messages")
            channel.consumers.ack(delivery.tag)

        await channel.consumers.qos(2_000)
        await channel.consumers.consume(names.active_queue(queue.name), on_delivery)
        return channel

    async def heard_since(self, begun_s: float) -> None:
        """Wait until something was heard a second after that moment or later."""
        async with asyncio.timeout(120):
            while not self._heard or self._heard[-1] < begun_s + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def longest_silence_s(self, begun_s: float) -> float:
        """Return the longest time without a message since a moment."""
        times = [begun_s, *(each for each in self._heard if each >= begun_s)]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def judge(self) -> None:
        """Fail when a number was missing, or named two messages."""
        numbers = sorted(self._bodies)
        gaps = [each for each, after in itertools.pairwise(numbers) if after != each + 1]
        assert not self._faults, self._faults[:5]
        assert not gaps, f"nothing after {gaps[:5]}"
        assert len(set(self._bodies.values())) == len(self._bodies), "a message has two numbers"


if __name__ == "__main__":
    sys.exit(main())
