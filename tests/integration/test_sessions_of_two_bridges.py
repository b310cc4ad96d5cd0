"""Sessions of one entity, accepted at two bridges: one of them holds the messages of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Abandon, Complete, Defer, ReceiveMode
from bridge.engine.ownership.ownership import Ownership
from bridge.engine.sessions import remote
from bridge.model import entity as model
from bridge.model.errors import (
    MessageLockLost,
    OperationTimeout,
    SessionCannotBeLocked,
    SessionLockLost,
)
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door
from tests.integration.door import open_door as open_any_door
from tests.integration.session_door import PATH, SessionClient, bodies, send

QUEUE = model.Queue(
    name="orders", lock_duration_ms=5_000, max_delivery_count=3, requires_session=True
)

open_door = partial(open_any_door, session_shards=1)
"""One shard: one bridge owns all sessions, and the other asks it."""


@pytest_asyncio.fixture
async def doors(endpoint: Endpoint, broker: Broker) -> AsyncIterator[tuple[Door, Door]]:
    """Two bridges: the first holds the messages, the second stands by."""
    url = broker.management_url
    async with (
        open_door(endpoint, url, QUEUE, with_sidecar=False) as first,
        open_door(endpoint, url, QUEUE) as second,
    ):
        await SessionClient(first).accept("nobody's")
        yield first, second


async def test_a_session_is_received_at_another_bridge(doors: tuple[Door, Door]) -> None:
    """In order, and settled there."""
    first, second = doors
    await send(first, "a", "1", "2", "3")
    client = await SessionClient(second).accept("a")
    received = await client.receive(2)
    assert bodies(received) == ["1", "2"]
    await client.settle(received[0], Complete())
    await client.settle(received[1], Abandon())
    (again,) = await client.receive(1)
    assert (again.record.body, again.delivery_count) == (b"2", 1)
    with pytest.raises(SessionCannotBeLocked):
        await SessionClient(first).accept("a")
    await client.close()
    here = await SessionClient(first).accept()
    assert bodies(await here.receive(2)) == ["2", "3"]


async def test_who_waits_at_another_bridge_has_the_next_session(doors: tuple[Door, Door]) -> None:
    """As soon as it is there; and who gives up waits no more."""
    first, second = doors
    given_up = asyncio.create_task(SessionClient(second).accept())
    await until(lambda: "1 waiting" in repr(first.namespace._sessions))
    given_up.cancel()
    await until(lambda: "0 waiting" in repr(first.namespace._sessions))
    waiting = asyncio.create_task(SessionClient(second).accept())
    await until(lambda: "1 waiting" in repr(first.namespace._sessions))
    await send(first, "a", "1")
    assert (await waiting).receiver.session_id == "a"


async def test_a_session_is_not_left_with_who_does_not_hear_of_it(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver at a bridge that cannot be reached is skipped, and waits again later."""
    monkeypatch.setattr(remote, "HEARD_S", 0.5)
    url, queue = broker.management_url, replace(QUEUE, lock_duration_ms=60_000)
    async with (
        open_door(endpoint, url, queue) as first,
        open_door(endpoint, url, queue, with_sidecar=False) as second,
    ):
        await SessionClient(first).accept("nobody's")
        deaf = [asyncio.create_task(SessionClient(second).accept()) for _ in range(2)]
        await until(lambda: "2 waiting" in repr(first.namespace._sessions))
        connection = second.namespace._connections._connection
        assert connection is not None
        socket = connection._transport._socket
        assert socket is not None
        socket.pause_reading()
        hearing = asyncio.create_task(SessionClient(first).accept())
        await until(lambda: "3 waiting" in repr(first.namespace._sessions))
        await send(first, "a", "1")
        assert (await hearing).receiver.session_id == "a"
        socket.resume_reading()
        await send(first, "b", "1")
        await send(first, "c", "1")
        found = {(await each).receiver.session_id for each in deaf}
        if "a" in found:  # it was heard by itself that it was given, and only then that it was lost
            found.remove("a")
            found.add((await SessionClient(second).accept()).receiver.session_id)
        assert found == {"b", "c"}


async def test_state_lock_list_and_deferral_work_at_another_bridge(
    doors: tuple[Door, Door],
) -> None:
    """This holds at whichever bridge the messages are held."""
    first, second = doors
    await send(first, "a", "1")
    client = await SessionClient(second).accept("a")
    namespace = second.namespace
    assert await namespace.session_state(PATH, "a") is None
    await namespace.set_session_state(PATH, "a", b"state")
    assert await namespace.session_state(PATH, "a") == b"state"
    assert await first.namespace.session_state(PATH, "a") == b"state"
    until_ms = await namespace.renew_session_lock(PATH, "a")
    assert client.receiver.locked_until_ms == until_ms
    assert await namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=5) == ["a"]
    (message,) = await client.receive()
    await client.settle(message, Defer())
    (again,) = await namespace.receive_deferred(
        PATH, [message.sequence_number], ReceiveMode.PEEK_LOCK, "a"
    )
    await client.settle(again, Complete())
    await namespace.set_session_state(PATH, "a", None)
    await client.close()
    with pytest.raises(SessionLockLost):
        await namespace.renew_session_lock(PATH, "a")
    assert not await namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=5)


async def test_drained_credit_brings_nothing_at_another_bridge(doors: tuple[Door, Door]) -> None:
    """A message on its way comes before the drain is done."""
    first, second = doors
    client = await SessionClient(second).accept("a")
    client.receiver.add_credit(30)
    await send(first, "a", *map(str, range(20)))
    await client.wait(1)
    await client.receiver.drain()
    there = len(client.received)
    await send(first, "a", "late")
    await until(lambda: "21 messages" in repr(first.namespace._sessions))
    assert len(client.received) == there


async def test_a_session_lock_ends_at_another_bridge(doors: tuple[Door, Door]) -> None:
    """The receiver is told, and what it had is counted."""
    first, second = doors
    await send(first, "a", "1")
    client = await SessionClient(second).accept("a")
    (message,) = await client.receive()
    assert isinstance(await client.wait_for_loss(), SessionLockLost)
    with pytest.raises(MessageLockLost):
        await client.settle(message, Complete())
    again = await SessionClient(second).accept()
    (message,) = await again.receive()
    assert message.delivery_count == 1


async def test_another_bridge_takes_over_when_the_holder_ends(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Its receivers are told; messages, order, counts and states are as they were."""
    url = broker.management_url
    async with open_door(endpoint, url, QUEUE) as second:
        async with open_door(endpoint, url, QUEUE, with_sidecar=False) as first:
            held = await SessionClient(first).accept("a")
            client = await SessionClient(second).accept("b")
            await send(second, "a", "1", "2")
            await send(second, "b", "3", "4")
            (message,) = await held.receive()
            await held.settle(message, Abandon())
            received = await client.receive(2)
            await client.settle(received[0], Complete())
            await second.namespace.set_session_state(PATH, "b", b"state")
        assert isinstance(await client.wait_for_loss(), SessionLockLost)
        with pytest.raises(MessageLockLost):
            await client.settle(received[1], Complete())
        there = await SessionClient(second).accept("a")
        messages = await there.receive(2)
        assert bodies(messages) == ["1", "2"]
        assert [each.delivery_count for each in messages] == [1, 0]
        other = await SessionClient(second).accept("b")
        (message,) = await other.receive()
        assert (message.record.body, message.delivery_count) == (b"4", 0)
        assert await second.namespace.session_state(PATH, "b") == b"state"


def ownership_of(door: Door) -> Ownership:
    """A bridge's place among those who may own the sessions."""
    (owner,) = door.namespace._sessions.owners.all
    return owner.ownership


def is_publishing_to(queue: str, door: Door) -> bool:
    """Whether a bridge has a publish to a queue that is not confirmed."""
    publishers = door.namespace._sender._publishers.values()
    return any(each.channel.publisher.leads_to(queue) for each in publishers)


async def test_a_state_that_comes_late_is_the_next_owners(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """It is confirmed when who owned the sessions has lost them, and keeps no copy of it."""
    assert broker.node is not None
    ctl = broker.node.rabbitmqctl
    process = f"whereis('{vhost}_{names.sessions_queue('orders')}')"
    url, queue = broker.management_url, replace(QUEUE, lock_duration_ms=60_000)
    async with open_door(endpoint, url, queue) as first:
        client = await SessionClient(first).accept("a")
        async with open_door(endpoint, url, queue, with_sidecar=False) as second:
            await SessionClient(second).accept("b")
            owned, next_owned = (ownership_of(each) for each in (first, second))
            await until(lambda: next_owned.channel is not None)
            await asyncio.to_thread(ctl, "eval", f"sys:suspend({process}).")
            storing = asyncio.create_task(first.namespace.set_session_state(PATH, "a", b"late"))
            await until(lambda: is_publishing_to(owned.resource, first))
            assert owned.channel is not None
            owned.channel.abandon()
            await client.wait_for_loss()
            await asyncio.to_thread(ctl, "eval", f"sys:resume({process}).")
            with pytest.raises(OperationTimeout):
                await storing
            await SessionClient(second).accept("a")
            assert await second.namespace.session_state(PATH, "a") == b"late"
            await second.namespace.set_session_state(PATH, "a", None)
        await SessionClient(first).accept("a")
        assert await first.namespace.session_state(PATH, "a") is None


async def test_the_sessions_of_a_bridge_that_ends_are_free_at_once(
    endpoint: Endpoint, broker: Broker
) -> None:
    """And who waits there has none of them."""
    url = broker.management_url
    async with open_door(endpoint, url, QUEUE) as first:
        await SessionClient(first).accept("nobody's")
        async with open_door(endpoint, url, QUEUE, with_sidecar=False) as second:
            held = await SessionClient(second).accept("a")
            waiting = asyncio.create_task(SessionClient(second).accept())
            await until(lambda: "1 waiting" in repr(first.namespace._sessions))
        await asyncio.gather(waiting, return_exceptions=True)
        again = await SessionClient(first).accept("a")
        assert again.receiver.locked_until_ms < held.receiver.locked_until_ms + 5_000
        await send(first, "b", "1")
        assert (await SessionClient(first).accept()).receiver.session_id == "b"
