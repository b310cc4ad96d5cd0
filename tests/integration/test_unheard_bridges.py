"""Peeks at a bridge that has not heard of another one yet, which holds messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine import membership
from bridge.engine.api import DeadLetter, Defer
from bridge.engine.browse import unrecorded_settlements
from bridge.model import entity as model
from bridge.model.name import EntityPath
from tests.fixtures.broker import Broker
from tests.fixtures.counting_calls import Calls
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

COUNT = 5
ORDERS = model.Queue(name="orders", lock_duration_ms=300_000)
LISTED = "engine/bridges.py:_list"


@asynccontextmanager
async def hearing(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """Open a bridge that has listed the others, and hears of new ones by what they tell."""
    async with open_door(endpoint, broker.management_url, ORDERS) as door:
        telling = asyncio.create_task(door.namespace.membership.run())
        try:
            await until(lambda: door.namespace.membership.is_listed)
            yield door
        finally:
            telling.cancel()


@asynccontextmanager
async def untold(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """Open a bridge that tells nobody that it is here."""
    async with open_door(endpoint, broker.management_url) as door:
        await door.namespace.directory.read()
        yield door


async def shown(door: Door, path: EntityPath) -> list[int]:
    """Return the numbers that a peek shows, which compares counts."""
    return [each.sequence_number for each in await door.namespace.peek(path, 1, 250)]


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each peek compares counts, and no bridge lists the others again."""
    monkeypatch.setattr(unrecorded_settlements, "LOOK_S", 0.0)
    monkeypatch.setattr(membership, "HERE_S", 3_600.0)


@pytest.mark.parametrize("has_peeked", [False, True], ids=["a first peek", "a later peek"])
async def test_what_a_bridge_holds_that_nobody_has_heard_of_is_shown(
    endpoint: Endpoint, broker: Broker, has_peeked: bool
) -> None:
    """Messages, dead letters and deferred ones: that it was not asked says nothing of them."""
    async with hearing(endpoint, broker) as door, untold(endpoint, broker) as holder:
        await door.send(*(str(each) for each in range(3 * COUNT)))
        receiver = holder.client()
        for how in (DeadLetter(), Defer()):
            for each in await receiver.receive(COUNT):
                assert each.lock_token is not None
                await holder.namespace.settle(door.path, each.lock_token, how)
        if has_peeked:
            assert len(await shown(door, door.path)) == 2 * COUNT
            assert len(await shown(door, door.dead_letters)) == COUNT
        await receiver.receive(COUNT)
        await holder.client(path=holder.dead_letters).receive(COUNT)
        for _ in range(3):
            assert len(await shown(door, door.path)) == 2 * COUNT
            assert len(await shown(door, door.dead_letters)) == COUNT
        assert door.namespace.membership.heard == set()


async def test_peeks_list_no_bridges_while_no_count_says_that_a_message_is_gone(
    endpoint: Endpoint, broker: Broker
) -> None:
    """What bridges tell each other anyway says who is there."""
    async with hearing(endpoint, broker) as door:
        await door.send(*(str(each) for each in range(COUNT)))
        await shown(door, door.path)
        with Calls().of() as found:
            for _ in range(3):
                assert len(await shown(door, door.path)) == COUNT
        assert found[LISTED] == 0
