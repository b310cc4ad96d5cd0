"""States of sessions that a migration's run stores while it holds their entity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.model import entity as model
from bridge.model.errors import (
    ArgumentOutOfRange,
    EntityConflict,
    EntityDisabled,
    MessageSizeExceeded,
    NotAllowed,
    OperationTimeout,
    ServerBusy,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.topology.parts import SESSION_STATE_BYTES_MAX
from bridge.topology.shards import shard_of
from bridge.wire import sessions as wire
from bridge.wire.basic import text
from bridge.wire.own_operations import IMPORT_SESSION_STATE
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.session_door import PATH, SessionClient, bodies, send

RUN = "run-1"
PLAIN = EntityPath("plain")
QUEUES = (
    model.Queue(name="orders", requires_session=True, lock_duration_ms=60_000),
    model.Queue(name="plain"),
)
STATES = {f"s{number}": b"state %d" % number for number in range(40)}


@pytest_asyncio.fixture
async def doors(endpoint: Endpoint, broker: Broker) -> AsyncIterator[tuple[Door, Door]]:
    """Two bridges, which share the shards of a queue."""
    url = broker.management_url
    async with member(open_door(endpoint, url, *QUEUES)) as first:
        await until(lambda: len(first.sidecar.leading) == len(QUEUES))
        async with member(open_door(endpoint, url, with_sidecar=False)) as second:
            yield first, second


@asynccontextmanager
async def member(opening: AbstractAsyncContextManager[Door]) -> AsyncIterator[Door]:
    """A bridge that tells the others what it knows."""
    async with opening as door:
        telling = asyncio.create_task(door.namespace.membership.run())
        try:
            yield door
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


async def hold(*doors: Door) -> None:
    """Hold the queue, when all bridges know what the others can."""
    await until(
        lambda: all(each.namespace.membership.knows(IMPORT_SESSION_STATE) for each in doors)
    )
    await doors[0].namespace.administration.hold("orders", RUN)
    await until(lambda: all(each.namespace.entity(PATH).held == RUN for each in doors))


async def release(*doors: Door) -> None:
    """End the hold."""
    await doors[0].namespace.administration.release("orders", RUN)
    await until(lambda: not any(each.namespace.entity(PATH).held for each in doors))


async def store(door: Door, states: dict[str, bytes]) -> None:
    """Have a bridge store states."""
    stored = door.namespace.importing.states.store
    await asyncio.gather(*(stored(PATH, RUN, each, state) for each, state in states.items()))


async def digests(door: Door) -> dict[str, bytes]:
    """What a bridge says of all states."""
    return dict(await door.namespace.importing.states.digests(PATH, RUN))


def digested(states: dict[str, bytes]) -> dict[str, bytes]:
    """What it should say."""
    return {each: sha256(state).digest() for each, state in states.items()}


async def state_of(door: Door, session_id: str) -> bytes | None:
    """What a receiver finds; it has the session for a moment."""
    client = await SessionClient(door).accept(session_id)
    state = await door.namespace.session_state(PATH, session_id)
    await client.close()
    return state


async def test_states_are_stored_through_any_bridge_and_no_session_is_locked(
    doors: tuple[Door, Door],
) -> None:
    """In all shards, whoever owns them; the same again, another one, and none."""
    first, second = doors
    await hold(first, second)
    assert await digests(first) == {}
    await store(first, dict.fromkeys(STATES, b"earlier"))
    for door in doors:
        await store(door, STATES)
    await first.namespace.importing.states.store(PATH, RUN, "s7", None)
    left = {each: state for each, state in STATES.items() if each != "s7"}
    for door in doors:
        assert await digests(door) == digested(left)
    owners = [each for door in doors for each in door.namespace._sessions.owners.all]
    assert not any(each.messages.machine.holders for each in owners)
    await release(first, second)
    await send(first, "s3", "a message")
    client = await SessionClient(second).accept("S3")
    assert await second.namespace.session_state(PATH, "s3") == STATES["s3"]
    assert bodies(await client.receive()) == ["a message"]
    await client.close()
    assert await state_of(first, "s7") is None
    await second.namespace.list_sessions(PATH, updated_after_ms=None, skip=0, top=100)


async def test_states_outlive_all_bridges(endpoint: Endpoint, broker: Broker) -> None:
    """While the queue is held, and behind the hold."""
    url = broker.management_url
    async with member(open_door(endpoint, url, *QUEUES)) as first:
        await until(lambda: len(first.sidecar.leading) == len(QUEUES))
        await hold(first)
        await store(first, STATES)
    async with member(open_door(endpoint, url)) as then:
        await until(lambda: then.namespace.membership.knows(IMPORT_SESSION_STATE))
        assert await digests(then) == digested(STATES)
        await release(then)
        assert await state_of(then, "s1") == STATES["s1"]


async def test_what_was_answered_is_stored_though_owners_lose_their_shards(
    doors: tuple[Door, Door],
) -> None:
    """A run that is told that it is busy, or in doubt, asks again."""
    first, second = doors
    await hold(first, second)
    is_over = False

    async def lose() -> None:
        while not is_over:
            await asyncio.sleep(1.0)
            for door in doors:
                for owner in door.namespace._sessions.owners.all:
                    if owner.is_ready and owner.ownership.channel is not None:
                        owner.ownership.channel.abandon()

    async def until_answered(door: Door, session_id: str, state: bytes) -> None:
        for _ in range(60):
            try:
                await door.namespace.importing.states.store(PATH, RUN, session_id, state)
            except (ServerBusy, OperationTimeout):
                await asyncio.sleep(0.2)
            else:
                return
        raise AssertionError(session_id)

    losing = asyncio.create_task(lose())
    for at in range(2):
        states = {each: b"%d of " % at + state for each, state in STATES.items()}
        await asyncio.gather(
            *(
                until_answered(doors[number % 2], each, state)
                for number, (each, state) in enumerate(states.items())
            )
        )
    is_over = True
    await losing
    await release(first, second)
    for each in ("s0", "s1", "s2", "s3", "s4", "s5"):
        assert await state_of(first, each) == states[each]


async def test_a_request_that_comes_behind_the_hold_changes_nothing(
    doors: tuple[Door, Door],
) -> None:
    """The bridge that passed it on held the entity; its owner knows that nobody does any more."""
    first, second = doors
    await hold(first, second)
    await store(first, {"s1": b"imported"})
    await release(first, second)
    client = await SessionClient(first).accept("s1")
    await first.namespace.set_session_state(PATH, "s1", b"the application's")
    entity = first.namespace.receive_entity(PATH)
    for door in doors:
        at = await door.namespace._sessions.owners.find(entity, shard_of(entity, "s1"))
        fields = {"session": text("s1"), "run": text(RUN), "state": ("x", b"late")}
        with pytest.raises(EntityConflict, match=f"not held by the migration '{RUN}'"):
            await at.ask(wire.IMPORT_STATE, fields)
    assert await first.namespace.session_state(PATH, "s1") == b"the application's"
    await client.close()


async def test_what_cannot_be_stored_is_refused_by_name(doors: tuple[Door, Door]) -> None:
    """Without the hold, for another run, beyond a bound, and without sessions."""
    first, _ = doors
    states = first.namespace.importing.states
    await hold(*doors)
    await release(*doors)
    with pytest.raises(EntityConflict, match="'orders' is not held by the migration 'run-1'"):
        await states.store(PATH, RUN, "s1", b"x")
    with pytest.raises(EntityConflict, match="'orders' is not held by the migration 'run-1'"):
        await states.digests(PATH, RUN)
    await first.namespace.administration.hold("plain", RUN)
    await hold(*doors)
    with pytest.raises(EntityDisabled, match="is held by the migration 'run-1'"):
        await states.store(PATH, "run-2", "s1", b"x")
    too_large = bytes(SESSION_STATE_BYTES_MAX + 1)
    with pytest.raises(MessageSizeExceeded, match="262145 bytes; 262144 at most"):
        await states.store(PATH, RUN, "s1", too_large)
    with pytest.raises(ArgumentOutOfRange, match="129 characters"):
        await states.store(PATH, RUN, "s" * 129, b"x")
    for path in (PLAIN, EntityPath("orders", SubQueue.DEAD_LETTER)):
        with pytest.raises(NotAllowed, match="does not require sessions"):
            await states.store(path, RUN, "s1", b"x")
    await states.store(PATH, RUN, "s" * 128, too_large[1:])
    assert list(await digests(first)) == ["s" * 128]


async def test_states_are_not_imported_beside_a_bridge_that_does_not_know_it(
    doors: tuple[Door, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may own a shard."""
    first, second = doors
    await hold(first, second)
    knows: Callable[[str], bool] = first.namespace.membership.knows
    monkeypatch.setattr(
        first.namespace.membership,
        "knows",
        lambda feature: feature != IMPORT_SESSION_STATE and knows(feature),
    )
    with pytest.raises(ServerBusy, match=IMPORT_SESSION_STATE):
        await first.namespace.importing.states.store(PATH, RUN, "s1", b"x")
