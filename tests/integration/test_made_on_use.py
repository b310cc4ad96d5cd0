"""The queues that an entity does not have until they are used, and those of earlier versions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import NotFound
from bridge.broker.queue_on_use import POINT, make_on_use
from bridge.engine.api import Complete
from bridge.machine.inbox.accepted_ids import SEGMENT_ROWS
from bridge.model import entity as model
from bridge.model.errors import SessionCannotBeLocked
from bridge.topology import names, parts
from tests.fixtures.broker import Broker
from tests.fixtures.sidecar import Rig, SidecarProcess, numbers
from tests.fixtures.waiting import eventually, until
from tests.integration.door import Door, open_door
from tests.integration.session_door import PATH, SessionClient, bodies, send

QUEUE = model.Queue(name="orders", requires_session=True, lock_duration_ms=60_000)


async def is_there(connection: Connection, queue: str) -> bool:
    """Whether RabbitMQ has a queue."""
    try:
        await (await connection.channel()).declarations.declare_queue(queue, passive=True)
    except NotFound:
        return False
    return True


async def is_accepted(door: Door, session_id: str) -> bool:
    """Accept a session, unless it is locked."""
    with contextlib.suppress(SessionCannotBeLocked):
        await SessionClient(door).accept(session_id)
        return True
    return False


async def test_the_states_of_sessions_have_a_queue_from_the_first_receiver_on(
    endpoint: Endpoint, broker: Broker, connection: Connection
) -> None:
    """Each shard its own; a message alone needs none, and the entity takes them along."""
    queue = replace(QUEUE, session_shards=2)
    states = [names.sessions_queue("orders", shard) for shard in range(2)]
    async with open_door(endpoint, broker.management_url, queue, session_shards=2) as door:
        await send(door, "a", "one")
        assert not any([await is_there(connection, each) for each in states])
        client = await SessionClient(door).accept("a")
        (message,) = await client.receive()
        assert bodies([message]) == ["one"]
        await door.namespace.set_session_state(PATH, "a", b"half")
        for each in states:  # this bridge stands by at all shards
            await until(lambda each=each: is_there(connection, each))
        await door.namespace.administration.delete("orders")
        await client.wait_for_loss()
        await until(lambda: not door.namespace._sessions.owners.all)
        assert not any([await is_there(connection, each) for each in states])


async def test_two_bridges_make_the_queue_of_states_at_once(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Both receivers have their sessions, and each other's states."""
    url = broker.management_url
    async with (
        open_door(endpoint, url, QUEUE, session_shards=1) as first,
        open_door(endpoint, url, QUEUE, with_sidecar=False, session_shards=1) as second,
    ):
        doors = {"a": first, "b": second}
        clients = await asyncio.gather(
            *(SessionClient(door).accept(session_id) for session_id, door in doors.items())
        )
        for session_id, door in doors.items():
            await door.namespace.set_session_state(PATH, session_id, session_id.encode())
        for session_id, client in zip(doors, clients, strict=True):
            await send(first, session_id, session_id)
            (message,) = await client.receive()
            assert bodies([message]) == [session_id]
            await client.settle(message, Complete())
            await client.close()
        for session_id, door in zip("ba", (first, second), strict=True):
            await until(
                partial(is_accepted, door, session_id)
            )  # the other one's close is on its way
            state = await door.namespace.session_state(PATH, session_id)
            assert state == session_id.encode()


async def test_states_in_a_queue_that_an_earlier_version_has_made_are_found(
    endpoint: Endpoint, broker: Broker, connection: Connection
) -> None:
    """Earlier versions made it with the entity; a state is there, or none is."""
    url = broker.management_url
    channel = await connection.channel()
    await channel.declarations.declare_queue(parts.sessions_queue("orders"))
    async with open_door(endpoint, url, QUEUE, session_shards=1) as door:
        client = await SessionClient(door).accept("a")
        await door.namespace.set_session_state(PATH, "a", b"half")
        await client.close()
    async with open_door(endpoint, url, QUEUE, session_shards=1) as door:
        await SessionClient(door).accept("a")
        assert await door.namespace.session_state(PATH, "a") == b"half"


async def test_a_queue_of_states_that_was_deleted_by_hand_is_made_again_and_named(
    endpoint: Endpoint, broker: Broker, confirming: Channel
) -> None:
    """The holder of a session has lost it; another receiver gets it, and health says why."""
    async with open_door(endpoint, broker.management_url, QUEUE, session_shards=1) as door:
        holder = await SessionClient(door).accept("a")
        await confirming.declarations.delete_queue(names.sessions_queue("orders"))
        await holder.wait_for_loss()
        again = await SessionClient(door).accept("a")
        await send(door, "a", "since")
        assert bodies(await again.receive()) == ["since"]
        wanted = f"the queue {names.sessions_queue('orders')!r}"
        await until(lambda: any(wanted in each for each in door.namespace.state.warnings))


async def test_no_queue_outlives_its_entity(connection: Connection) -> None:
    """A bridge makes it while another one deletes the entity, whose exchanges are gone."""
    states = parts.sessions_queue("orders")
    with pytest.raises(NotFound):
        await make_on_use(connection, states, names.dead_letter_exchange("orders"))
    assert not await is_there(connection, states.name)


async def test_a_queue_that_was_there_stays_though_the_exchange_is_gone(
    connection: Connection,
) -> None:
    """An exchange that was deleted by hand takes no states of sessions with it."""
    states = parts.sessions_queue("orders")
    await (await connection.channel()).declarations.declare_queue(states)
    with pytest.raises(NotFound):
        await make_on_use(connection, states, names.dead_letter_exchange("orders"))
    assert await is_there(connection, states.name)


def accept(rig: Rig, first: int, count: int) -> None:
    """Publish messages with ids that rise."""
    for number in range(first, first + count):
        rig.publish(b"%d" % number, message_id=str(number))


def ended(sidecar: SidecarProcess) -> None:
    """Wait until a sidecar has been killed by its failpoint."""
    assert sidecar.process.wait(120) < 0


def test_the_history_has_a_stream_when_a_thousand_ids_are_accepted(
    rig: Callable[..., Rig],
) -> None:
    """Till then the journal has them; duplicates are dropped before and after, across kills."""
    queue = rig(requires_duplicate_detection=True)
    history = names.history(queue.queue.name)
    first = queue.start()
    accept(queue, 0, 10)
    before = queue.take(10)
    assert not queue.has(history)
    first.kill()

    second = queue.start()
    accept(queue, 0, SEGMENT_ROWS)
    more = queue.take(SEGMENT_ROWS - 10, before_kill=before)
    assert numbers(more) == list(range(11, SEGMENT_ROWS + 1))
    eventually(lambda: queue.has(history))
    second.kill()

    third = queue.start()
    accept(queue, 0, SEGMENT_ROWS + 1)
    (only,) = queue.take(1, before_kill=more)
    assert (only.body, only.number) == (b"%d" % SEGMENT_ROWS, SEGMENT_ROWS + 1)
    (meters,) = third.stop().values()
    assert meters["duplicates"] == SEGMENT_ROWS


def test_a_kill_between_making_the_history_and_writing_it_forgets_no_id(
    rig: Callable[..., Rig],
) -> None:
    """The ids stay in the journal until their segment is confirmed."""
    queue = rig(requires_duplicate_detection=True)
    killed = queue.start(failpoint=POINT)
    killed.wait_ready()
    accept(queue, 0, SEGMENT_ROWS)
    ended(killed)
    assert queue.has(names.history(queue.queue.name))

    second = queue.start()
    accept(queue, 0, SEGMENT_ROWS + 1)
    found = queue.take(SEGMENT_ROWS + 1)
    assert {each.body for each in found} == {b"%d" % each for each in range(SEGMENT_ROWS + 1)}
    assert len({each.number for each in found}) == SEGMENT_ROWS + 1
    second.kill()
