"""Peeks at once when RabbitMQ comes back that was killed: it tells old counts then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.engine.api import DeadLetter
from bridge.model import entity as model
from bridge.model.errors import ServerBusy
from bridge.model.name import EntityPath
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

pytestmark = pytest.mark.kills

COUNT = 60
ROUNDS = 4
ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)


async def answered(door: Door, path: EntityPath) -> list[int]:
    """Return the numbers that the first peek shows that is not refused."""
    while True:
        with contextlib.suppress(ServerBusy):
            return [each.sequence_number for each in await door.namespace.peek(path, 0, 250)]
        await asyncio.sleep(0.01)


@pytest.mark.timeout(900)
async def test_the_first_peeks_show_all_that_is_there(start_broker: Callable[..., Broker]) -> None:
    """Of messages some of which were settled shortly before, and some of which were held."""
    broker = await asyncio.to_thread(start_broker)
    assert broker.node is not None
    with broker.fresh_vhost() as vhost:
        endpoint = parse_url(broker.url_of(vhost))
        async with open_door(endpoint, broker.management_url, ORDERS) as door:
            for _ in range(ROUNDS):
                await one_round(broker, endpoint, door)


async def one_round(broker: Broker, endpoint: Endpoint, door: Door) -> None:
    """Send, settle, kill RabbitMQ, and peek with a bridge that has not looked before."""
    assert broker.node is not None
    await door.send(*(str(each) for each in range(COUNT)))
    client = door.client()
    received = await client.receive(COUNT // 2)
    await door.complete(*received[: COUNT // 6])
    for each in received[COUNT // 6 : COUNT // 3]:
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, DeadLetter(reason="bad"))
    await door.namespace.disposal.drain(names.front(ORDERS.name))  # shown is what has a number
    active = await answered(door, door.path)
    dead = await answered(door, door.dead_letters)
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as looking:
        await looking.namespace.directory.read()
        await asyncio.to_thread(broker.node.kill)
        starting = asyncio.ensure_future(asyncio.to_thread(broker.node.start))
        found = await asyncio.gather(
            answered(looking, looking.path), answered(looking, looking.dead_letters)
        )
        await starting
    assert found == [active, dead]
    await client.receiver.close()
    await until(lambda: _is_up(door))


async def _is_up(door: Door) -> bool:
    with contextlib.suppress(ServerBusy):
        await door.send("up")
        return True
    return False
