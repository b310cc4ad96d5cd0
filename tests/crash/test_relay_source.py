"""Bridges and RabbitMQ are killed while relays copy into them: each message is numbered once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from bridge.broker.failpoint import STEPS
from bridge.remote.errors import RemoteError
from bridge.remote.management import RemoteManagement
from bridge.remote.message import RemoteMessage
from bridge.remote.patience import Patience
from bridge.testing.process import Bridge
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.relay_source import copy_annotations
from tests.acceptance.test_remote import remote
from tests.crash.siege import Siege
from tests.fixtures.bridge import StartBridge
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until

pytestmark = [pytest.mark.kills, pytest.mark.timeout(900)]

POINTS = (
    "engine.send.published",
    "engine.send.confirmed",
    *(f"sequencer.number.{step}" for step in STEPS),
    *(f"sequencer.journal.{step}" for step in STEPS[:2]),
)
SOURCE = "one.servicebus.windows.net/orders"
REACH_S = 40.0
WAIT_S = 120.0
OPEN_MAX = 300
"""Messages of the source that relays copy at a time."""


class Source:
    """The messages of a source, as two relays see them.

    Attributes:
        sent: the last number.
        waiting: what is not completed yet.
        copies: number of copies that a target has accepted.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.waiting: set[int] = set()
        self.copies = 0
        self.is_over = False
        self._chance = random.Random(5)

    def take(self) -> list[int]:
        """Return what one batch has; another relay may have the same messages, and no order."""
        while not self.is_over and len(self.waiting) < OPEN_MAX:
            self.sent += 1
            self.waiting.add(self.sent)
        found = sorted(self.waiting)
        size = self._chance.choice([1, 1, 5, 40, 150])
        return self._chance.sample(found, min(size, len(found)))

    def complete(self, numbers: list[int]) -> None:
        """Complete what is confirmed; some relays die before they have."""
        self.copies += len(numbers)
        if self.is_over or self._chance.random() < 0.7:
            self.waiting.difference_update(numbers)


async def copy(source: Source, bridge: Bridge, queue: str) -> None:
    """Copy until the source is over and empty."""
    async with remote(bridge, patience=Patience(total_s=WAIT_S)) as namespace:
        sender = await namespace.sender(queue, relay_source=SOURCE)
        while not source.is_over or source.waiting:
            numbers = source.take()
            if not numbers:
                continue
            lowest = min(source.waiting)
            batch = [
                RemoteMessage.of(
                    data=str(each).encode(),
                    properties=MessageProperties(message_id=str(each)),
                    annotations=copy_annotations(each, each, lowest),
                )
                for each in numbers
            ]
            try:
                await sender.send(batch)
            except RemoteError as error:
                if not (error.in_doubt or error.retryable):
                    raise
            else:
                source.complete(numbers)


async def numbered(management: RemoteManagement) -> Counter[int]:
    """Return how often each message of the source is there, with numbers of its own."""
    found: Counter[int] = Counter()
    number, last = 1, 0
    while page := await management.peek(number, 250):
        for each in page:
            assert each.sequence_number is not None
            assert each.sequence_number > last
            last = each.sequence_number
            found[int(each.data)] += 1
        number = last + 1
    return found


async def besieged(bridge: Bridge, queue: str, kill: Callable[[Callable[[], None]], None]) -> None:
    """Kill under the load of two relays; then every message of the source has one number."""
    source = Source()
    loop = asyncio.get_running_loop()

    def progress() -> None:
        copies = source.copies
        waiting = until(lambda: source.copies > copies + 500)
        asyncio.run_coroutine_threadsafe(waiting, loop).result(WAIT_S)

    relays = [asyncio.create_task(copy(source, bridge, queue)) for _ in range(2)]
    try:
        await until(lambda: source.copies > 500)
        await asyncio.to_thread(kill, progress)
        source.is_over = True
        await asyncio.gather(*relays)
    finally:
        for each in relays:
            each.cancel()
    async with remote(bridge, patience=Patience(total_s=WAIT_S)) as namespace:
        management = await namespace.management(queue)
        async with asyncio.timeout(WAIT_S):
            while (found := await numbered(management)).total() < source.sent:
                pass
    print(f"{source.sent} messages, {source.copies} copies accepted, {found.total()} numbered")
    assert found == Counter(range(1, source.sent + 1))


@pytest.mark.parametrize("queue", ["load", "unique"])
async def test_a_bridge_killed_while_relays_copy(start_bridge: StartBridge, queue: str) -> None:
    """At each step of a send, of its numbering and of the journal."""
    siege = Siege(await asyncio.to_thread(start_bridge))
    chance = random.Random(queue)

    def kill(progress: Callable[[], None]) -> None:
        for point in POINTS:
            siege.kill()
            siege.start_armed(f"{point}:{chance.randint(1, 30)}", within_s=REACH_S)
        siege.bridge.start()
        progress()

    await besieged(siege.bridge, queue, kill)


async def test_rabbitmq_killed_while_relays_copy(
    start_broker: Callable[[], Broker], start_bridge: StartBridge
) -> None:
    """Six kills, in turn of the bridge and of RabbitMQ."""
    broker = await asyncio.to_thread(start_broker)
    siege = Siege(await asyncio.to_thread(lambda: start_bridge(on=broker, vhost="/")))

    def kill(progress: Callable[[], None]) -> None:
        siege.kill_in_turn(kills=6, progress=progress, broker=broker)

    await besieged(siege.bridge, "load", kill)
