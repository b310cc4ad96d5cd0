"""An entity that nobody numbers is told, with since when; one of another bridge's is not."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pika

from bridge.broker.connection.endpoint import Endpoint
from bridge.cli.measures import LEADERLESS_MAX, of_leaderless
from bridge.sidecar.sidecar import Sidecar
from bridge.topology import names
from tests.fixtures.sidecar import Rig
from tests.fixtures.waiting import until

MakeRig = Callable[..., Rig]


@asynccontextmanager
async def at_work(endpoint: Endpoint, *rigs: Rig) -> AsyncIterator[Sidecar]:
    """A sidecar in this process that looks after these entities."""
    sidecar = Sidecar(endpoint)
    for each in rigs:
        sidecar.add_entity(each.queue)
    working = asyncio.create_task(sidecar.run())
    try:
        yield sidecar
    finally:
        await sidecar.stop()
        await working


async def test_an_entity_without_a_leader_is_named_with_since_when(
    rig: MakeRig, endpoint: Endpoint
) -> None:
    """Here its journal was written by a newer bridge; its neighbour is numbered all the same."""
    broken, whole = rig(), rig()
    broken.channel.basic_publish(
        "",
        names.journal(broken.queue.name),
        b"\x07from the future",
        pika.BasicProperties(headers={"x-busbridge-entry": "marker"}, delivery_mode=2),
    )
    whole.publish(b"a")
    before_ms = time.time() * 1000
    async with at_work(endpoint, broken, whole) as sidecar:
        await asyncio.to_thread(whole.take, 1)
        name = broken.queue.name
        await until(lambda: any("since" in each for each in sidecar.reasons))
        (told,) = [each for each in sidecar.reasons if "since" in each]
        assert re.match(rf"Nobody numbers what is sent to '{name}' \(since 20\d\d-.*Z\);", told)
        assert list(sidecar.leaderless) == [name]
        assert before_ms <= sidecar.leaderless[name] <= time.time() * 1000
        await until(lambda: any("version 7" in each for each in sidecar.reasons))


async def test_what_another_bridge_numbers_has_a_leader(rig: MakeRig, endpoint: Endpoint) -> None:
    """It is without one as far as this bridge knows only until that is clear."""
    orders = rig()
    other = orders.start()
    orders.publish(b"a")
    await asyncio.to_thread(orders.take, 1)
    async with at_work(endpoint, orders) as sidecar:
        await sidecar.connected.wait()
        await until(lambda: not sidecar.leaderless)
        assert not sidecar.meters[orders.queue.name].is_active
        other.kill()
        await until(lambda: sidecar.meters[orders.queue.name].is_active)
        assert not sidecar.leaderless
        assert sidecar.meters[orders.queue.name].takeover_s < 10
    assert not sidecar.reasons[1:]


def test_of_many_entities_without_a_leader_the_longest_have_a_sample() -> None:
    """All are counted."""
    since = {f"orders-{number}": 1_000 * number for number in range(1, 101)}

    count, longest = of_leaderless(since)

    assert [sample.value for sample in count.samples] == [100]
    assert count.name == "busbridge_entities_without_leader"
    assert [sample.value for sample in longest.samples] == [*range(1, LEADERLESS_MAX + 1)]
    assert [sample.value for family in of_leaderless({}) for sample in family.samples] == [0]
