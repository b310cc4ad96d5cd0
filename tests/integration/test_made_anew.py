"""A queue that is deleted and made anew while messages of the earlier one are locked here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.administration.changes import Administration
from bridge.engine.administration.directory import Directory
from bridge.engine.administration.policies import Policies
from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Disposition,
    Received,
    ReceiveMode,
)
from bridge.model import entity as model
from bridge.model.errors import MessageLockLost, MessageNotFound
from bridge.topology.definitions import incarnation_of
from bridge.wire.basic import text
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door

QUEUE = model.Queue(name="orders", lock_duration_ms=60_000)
DISPOSITIONS = (
    Complete(),
    DeadLetter(reason="why"),
    Defer(),
    Abandon(),
    Abandon(properties={"k": text("v")}),
)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue, whose messages another one numbers."""
    async with open_door(endpoint, broker.management_url, QUEUE, with_sidecar=False) as opened:
        yield opened


@pytest_asyncio.fixture
async def other(door: Door, endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """The other bridge."""
    async with open_door(endpoint, broker.management_url) as opened:
        yield opened


async def make_anew(door: Door, other: Door, *, is_told: bool) -> None:
    """Delete the queue and make it anew at the other bridge; the one is told, or finds it so."""
    before = incarnation_of(door.namespace.entity(door.path))

    def is_known(where: Door) -> bool:
        there = where.namespace.directory.find("orders")
        return there is not None and incarnation_of(there) != before

    administration = other.namespace.administration
    if not is_told:
        administration = Administration(
            Directory(other.management),
            other.management,
            other.namespace._connections,
            lambda: other.namespace.capabilities,
            Policies(other.management, lambda: other.namespace.directory.namespace),
            session_shards=1,
        )
    await administration.delete("orders")
    await administration.create(QUEUE)
    if not is_told:
        assert incarnation_of(door.namespace.entity(door.path)) == before
        other.namespace.reconciler.due.wake()
        door.namespace.reconciler.due.wake()
    await until(lambda: is_known(door) and is_known(other))


async def settle(door: Door, received: Received, disposition: Disposition) -> None:
    """End a lock."""
    assert received.lock_token is not None
    await door.namespace.settle(door.path, received.lock_token, disposition)


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_lock_ends_with_its_queue(door: Door, other: Door, is_told: bool) -> None:
    """The token reaches no message of a later queue of that name, in whichever way it is used."""
    client = door.client()
    await door.send(*map(str, range(len(DISPOSITIONS))))
    locked = await client.receive(len(DISPOSITIONS))
    await make_anew(door, other, is_told=is_told)
    await door.send("new")
    (new,) = await door.client().receive()
    assert (new.sequence_number, new.record.body) == (1, b"new")
    for received, disposition in zip(locked, DISPOSITIONS, strict=True):
        with pytest.raises(MessageLockLost):
            await settle(door, received, disposition)
    (counts,) = await door.namespace.counting.counts([door.namespace.entity(door.path)])
    assert (counts.active, counts.dead_letter) == (1, 0)
    with pytest.raises(MessageNotFound):
        await door.namespace.receive_deferred(door.path, [3], ReceiveMode.PEEK_LOCK)
    await settle(door, new, Complete())


async def test_an_open_receiver_goes_on_with_the_queue_of_now(door: Door, other: Door) -> None:
    """Where the bridge has seen nothing of the time between."""
    client = door.client()
    await door.send("old")
    await client.receive()
    client.receiver.add_credit(1)
    await make_anew(door, other, is_told=False)
    await door.send("new")
    (new,) = await client.wait(1)
    assert new.record.body == b"new"
    await settle(door, new, Complete())


@pytest.mark.parametrize("is_told", [True, False])
async def test_the_lock_of_a_deferred_message_ends_with_its_queue(
    door: Door, other: Door, is_told: bool
) -> None:
    """And the message is not among those of the queue of now."""
    await door.send("a")
    (received,) = await door.client().receive()
    await settle(door, received, Defer())
    (deferred,) = await door.namespace.receive_deferred(door.path, [1], ReceiveMode.PEEK_LOCK)
    await make_anew(door, other, is_told=is_told)
    with pytest.raises(MessageLockLost):
        await settle(door, deferred, DeadLetter(reason="why"))

    async def is_empty() -> bool:
        (counts,) = await door.namespace.counting.counts([door.namespace.entity(door.path)])
        return (counts.active, counts.dead_letter, counts.deferred) == (0, 0, 0)

    await until(is_empty)
