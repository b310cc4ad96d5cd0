"""Entities that come and go: a bridge keeps nothing of those that are gone."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Complete, Defer, ReceiveMode
from bridge.model import entity as model
from bridge.model.name import EntityPath
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

pytestmark = pytest.mark.long

ROUNDS = 30


def kept(door: Door) -> tuple[int, ...]:
    """How many channels, queues, pages, records, tasks and views of who peeks this bridge has."""
    namespace = door.namespace
    connections = {*namespace._connections.pool.connections}
    connections.add(namespace._connections._connection)  # type: ignore[arg-type]
    return (
        sum(len(each._channels) for each in connections),
        len(namespace._receiving._readers),
        len(namespace._receiving._settled.pages),
        len(namespace._deferral._queues),
        len(namespace._settlements._records),
        len(namespace._settlements._tasks),
        len(namespace.browsing._views),
    )


async def use(door: Door, name: str) -> None:
    """Make a queue, use it in every way, and delete it."""
    namespace, path = door.namespace, EntityPath(name)
    await namespace.administration.create(model.Queue(name=name))
    await until(lambda: namespace.directory.find(name) is not None)
    await namespace.send(path, [outgoing("one"), outgoing("two")])
    client = door.client(path=path)
    first, second = await client.receive(2)
    assert [first.sequence_number, second.sequence_number] == [1, 2]
    assert first.lock_token is not None
    assert second.lock_token is not None
    await namespace.settle(path, first.lock_token, Complete())
    await namespace.settle(path, second.lock_token, Defer())
    (peeked,) = await namespace.peek(path, 0, 10)
    assert peeked.sequence_number == 2
    (again,) = await namespace.receive_deferred(path, [2], ReceiveMode.PEEK_LOCK)
    assert again.lock_token is not None
    await namespace.settle(path, again.lock_token, Complete())
    client.receiver.add_credit(1)
    await namespace.administration.delete(name)
    await until(lambda: namespace.directory.find(name) is None)
    async with asyncio.timeout(120):
        await client.receiver.close()


async def test_nothing_is_kept_of_queues_that_are_gone(endpoint: Endpoint, broker: Broker) -> None:
    """One queue a round: channels, readers and tasks are as many as before the first."""
    async with open_door(endpoint, broker.management_url, model.Queue(name="orders")) as door:
        await door.send("x")
        await door.complete(*await door.client().receive())
        before = kept(door)
        for number in range(ROUNDS):
            await use(door, f"temporary-{number}")
        with contextlib.suppress(TimeoutError):
            await until(lambda: kept(door) == before, within_s=120)
        assert kept(door) == before


async def test_a_queue_made_anew_under_a_name_is_used_at_once(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Again and again, with nothing in between; each counts from 1."""
    async with open_door(endpoint, broker.management_url) as door:
        for _ in range(5):
            await use(door, "again")
