"""One life of a sequencer, in this process, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bridge.broker.connection import Connection
from bridge.broker.endpoint import Endpoint
from bridge.broker.keeper import Keeper
from bridge.model.entity import Tier
from bridge.sidecar.intake import PrefetchChanged
from bridge.sidecar.life import Life
from bridge.sidecar.office import Office
from bridge.sidecar.sidecar import Sidecar
from tests.fixtures.sidecar import Rig


async def test_a_life_that_has_ended_comes_into_office_no_more(
    rig: Callable[..., Rig], connection: Connection
) -> None:
    """An arrival that is one too many may come in one packet with the last confirm of the start."""
    orders = rig()
    orders.publish(b"a")
    office = Office(orders.queue, Tier.STANDARD)
    life = Life(office, connection, await connection.channel(), boot="boot")
    living = asyncio.create_task(life.run())
    while not hasattr(life, "flights"):  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0)
    life.flights.on_landed = lambda: life.fail(PrefetchChanged(text="16 arrivals from now on"))

    with pytest.raises(PrefetchChanged):
        await living

    assert office.meters.arrivals == 0
    assert orders.is_empty()


async def test_the_backlog_is_also_what_rabbitmq_has_not_sent_yet(
    rig: Callable[..., Rig], endpoint: Endpoint
) -> None:
    """It is more than may be sent ahead, falls, and is none when all have their numbers."""
    orders = rig()
    count = 2_000
    for _ in range(count):
        orders.publish(b"a")
    keeper = Keeper()
    keeper.start()
    sidecar = Sidecar(endpoint, keeper)
    sidecar.add_entity(orders.queue)
    sidecar._offices[orders.queue.name.lower()].prefetch = 16
    meters = sidecar.meters[orders.queue.name]
    working = asyncio.create_task(sidecar.run())
    try:
        async with asyncio.timeout(30):
            while meters.ready <= count // 2:
                await sidecar.count_ready()
                await asyncio.sleep(0)
            assert 0 < meters.backlog <= count
            while meters.arrivals < count or meters.backlog:
                await sidecar.count_ready()
                await asyncio.sleep(0.01)
    finally:
        await sidecar.stop()
        await working
        await keeper.close()
