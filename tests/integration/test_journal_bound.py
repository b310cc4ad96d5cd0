"""The journal's bound follows the backlog: raised by policy, lowered when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import ReceiveMode
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.sidecar.journal_watch import JournalWatch
from bridge.topology.policy import RAISED_PREFIX
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

BASE_BYTES = 16 << 10
QUEUE = model.Queue(name="orders", max_size_mb=2)
BODY = "x" * 250


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge that watches journals with a small usual bound."""
    async with open_door(endpoint, broker.management_url, QUEUE) as opened:
        watch = JournalWatch(
            opened.sidecar,
            opened.management,
            base_bytes=BASE_BYTES,
            look_s=0.1,
            lower_after_s=0.3,
        )
        watching = asyncio.create_task(watch.run())
        yield opened
        watching.cancel()


async def bounds(door: Door) -> dict[str, Any]:
    """The raised bounds, by journal."""
    return {
        policy.name.removeprefix(RAISED_PREFIX): policy.definition["max-length-bytes"]
        for policy in await door.management.policies()
        if policy.name.startswith(RAISED_PREFIX)
    }


async def effective(door: Door) -> object:
    """The bound that RabbitMQ applies to the journal."""
    row = await door.management.queue("orders/$journal")
    assert row is not None
    return (row.get("effective_policy_definition") or {}).get("max-length-bytes")


async def test_a_backlog_raises_the_bound_and_its_end_lowers_it(door: Door) -> None:
    """RabbitMQ applies it at once; it is the entity's size at most."""

    async def is_raised() -> bool:
        return (await bounds(door)).get("orders", 0) > BASE_BYTES

    for _ in range(100):
        await door.namespace.send(EntityPath("orders"), [outgoing(BODY)])
    await until(is_raised)
    found = await bounds(door)
    assert found["orders"] in range(100 * 250, QUEUE.max_size_mb * 1_048_576 + 1)

    async def is_applied() -> bool:
        return await effective(door) == (await bounds(door))["orders"]

    await until(is_applied)
    # Another entity's creation applies all policies anew; this one stays.
    await door.namespace.apply(model.Namespace(queues=(QUEUE, model.Queue(name="other"))))
    assert await is_raised()
    await door.client(ReceiveMode.RECEIVE_AND_DELETE).receive(100)

    async def is_lowered() -> bool:
        return not await bounds(door)

    await until(is_lowered)
