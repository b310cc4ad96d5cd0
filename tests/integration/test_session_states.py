"""States of sessions through the engine: what was answered is so, in memory and in RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.handover import HandOver, Publish
from bridge.engine.clock import now_ms
from bridge.engine.ownership.ownership import Ownership
from bridge.engine.sessions import stored_states
from bridge.model import entity as model
from bridge.wire.sessions import state_properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.session_door import PATH, SessionClient

COUNT = 600
STATE = b"x" * (256 << 10)
"""So many so large ones take longer to come than a takeover of no messages."""

QUEUE = model.Queue(name="orders", lock_duration_ms=60_000, requires_session=True)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with a queue that requires sessions, in one shard."""
    async with open_door(endpoint, broker.management_url, QUEUE, session_shards=1) as opened:
        yield opened


def ownership_of(door: Door) -> Ownership:
    """A bridge's place among those who may own the sessions."""
    (owner,) = door.namespace._sessions.owners.all
    return owner.ownership


async def stored(door: Door, client: SessionClient) -> bytes | None:
    """What RabbitMQ has of the session: the bridge loses all it knows, and reads it again."""
    channel = ownership_of(door).channel
    assert channel is not None
    channel.abandon()
    await client.wait_for_loss()
    await client.accept("a")
    return await door.namespace.session_state(PATH, "a")


async def test_who_takes_over_knows_all_states_when_it_gives_sessions(
    door: Door, endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """It waits for them as long as they take to come."""
    await SessionClient(door).accept("first's")
    async with open_door(
        endpoint, broker.management_url, QUEUE, with_sidecar=False, session_shards=1
    ) as other:
        await SessionClient(other).accept("other's")
        (here,) = door.namespace._sessions.owners.all
        (there,) = other.namespace._sessions.owners.all
        await until(lambda: there.ownership.channel is not None)
        moving = HandOver(confirming)
        for number in range(COUNT):
            properties = state_properties(f"s{number}", now_ms())
            publish = Publish("", here.ownership.resource, properties, STATE)
            await moving.move([publish], failpoint="bench.hop")
        await until(lambda: len(here.stored.states) == COUNT)
        assert here.ownership.channel is not None
        here.ownership.channel.abandon()
        await until(lambda: there.is_ready)
        await SessionClient(other).accept(f"s{COUNT - 1}")
        assert await other.namespace.session_state(PATH, f"s{COUNT - 1}") == STATE


async def test_of_states_that_are_set_at_once_the_later_counts(door: Door) -> None:
    """Though they have the same millisecond: here, and in RabbitMQ."""
    namespace = door.namespace
    client = await SessionClient(door).accept("a")
    for number in range(5):
        changes = (b"first %d" % number, b"second %d" % number)
        await asyncio.gather(*(namespace.set_session_state(PATH, "a", each) for each in changes))
        assert await namespace.session_state(PATH, "a") == changes[-1]
    assert await stored(door, client) == b"second 4"


async def test_a_state_that_is_cleared_while_it_is_set_is_cleared(door: Door) -> None:
    """The later request counts."""
    namespace = door.namespace
    client = await SessionClient(door).accept("a")
    await asyncio.gather(
        namespace.set_session_state(PATH, "a", b"state"),
        namespace.set_session_state(PATH, "a", None),
    )
    assert await namespace.session_state(PATH, "a") is None
    assert await stored(door, client) is None


async def test_a_state_that_was_cleared_stays_cleared_when_rabbitmq_forgets_acks(
    door: Door, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not confirm them, so a kill may bring back what was acked."""
    client = await SessionClient(door).accept("a")
    await door.namespace.set_session_state(PATH, "a", b"state")
    with monkeypatch.context() as lost:
        lost.setattr(stored_states, "ack", lambda channel, tag, point: None)
        await door.namespace.set_session_state(PATH, "a", None)
        await door.namespace.set_session_state(PATH, "a", None)
        assert await door.namespace.session_state(PATH, "a") is None
        assert await door.namespace.list_sessions(PATH, updated_after_ms=0, skip=0, top=9) == []
    assert await stored(door, client) is None
    resource = ownership_of(door).resource
    await door.namespace.close()
    state = await confirming.declarations.declare_queue(resource, passive=True)
    assert state.messages == 1, "but for the ownership token"


async def test_what_was_cleared_does_not_come_again(door: Door) -> None:
    """Though RabbitMQ had not brought it yet when it was to be cleared."""
    namespace = door.namespace
    client = await SessionClient(door).accept("a")
    channel = ownership_of(door).channel
    assert channel is not None
    socket = channel._transport._socket
    assert socket is not None
    socket.pause_reading()
    setting = asyncio.create_task(namespace.set_session_state(PATH, "a", b"state"))
    await asyncio.wait((setting,), timeout=0.5)
    clearing = asyncio.create_task(namespace.set_session_state(PATH, "a", None))
    await asyncio.wait((clearing,), timeout=0.5)
    if not clearing.done():
        socket.resume_reading()
    await asyncio.gather(setting, clearing)
    channel.abandon()
    socket.resume_reading()
    await client.wait_for_loss()
    await client.accept("a")
    assert await namespace.session_state(PATH, "a") is None
