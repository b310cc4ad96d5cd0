"""Peeks of deferred messages, beside what a receive by number finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from bridge.broker.connection.endpoint import Endpoint
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
from bridge.model.errors import MessageNotFound
from bridge.model.name import EntityPath, SubQueue
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.session_door import SessionClient, of_session

PEEK_LOCK, DELETE = ReceiveMode.PEEK_LOCK, ReceiveMode.RECEIVE_AND_DELETE


@dataclass(frozen=True)
class Case:
    """An entity whose messages, or dead letters, are deferred.

    Attributes:
        path: what is received from.
        send_path: what is sent to.
    """

    namespace: model.Namespace
    path: EntityPath
    send_path: EntityPath
    has_sessions: bool = False


def _queue(
    sub_queue: SubQueue = SubQueue.NONE, *, partitioned: bool = False, sessions: bool = False
) -> Case:
    queue = model.Queue(name="orders", enable_partitioning=partitioned, requires_session=sessions)
    path = EntityPath("orders", sub_queue)
    return Case(model.Namespace(queues=(queue,)), path, EntityPath("orders"), sessions)


def _subscription(sub_queue: SubQueue = SubQueue.NONE) -> Case:
    subscriptions = tuple(model.Subscription(topic="events", name=name) for name in ("a", "b"))
    topic = model.Topic(name="events", subscriptions=subscriptions)
    path = EntityPath(subscriptions[0].path, sub_queue)
    return Case(model.Namespace(topics=(topic,)), path, EntityPath("events"))


CASES: dict[str, Callable[[], Case]] = {
    "queue": _queue,
    "partitioned queue": lambda: _queue(partitioned=True),
    "session queue": lambda: _queue(sessions=True),
    "subscription": _subscription,
    "dead letters": lambda: _queue(SubQueue.DEAD_LETTER),
    "dead letters of a session queue": lambda: _queue(SubQueue.DEAD_LETTER, sessions=True),
    "dead letters of a subscription": lambda: _subscription(SubQueue.DEAD_LETTER),
}


async def settle(door: Door, path: EntityPath, received: Received, how: Disposition) -> None:
    """Settle a message."""
    assert received.lock_token is not None
    await door.namespace.settle(path, received.lock_token, how)


async def move(
    door: Door, path: EntityPath, how: Disposition, count: int, *, of_session: bool
) -> list[int]:
    """Receive messages and settle them in the same way; return their numbers."""
    if of_session:
        session = await SessionClient(door, path).accept("s")
        messages = await session.receive(count)
    else:
        client = door.client(path=path)
        messages = await client.receive(count)
    for each in messages:
        await settle(door, path, each, how)
    await (session if of_session else client.receiver).close()
    return sorted(each.sequence_number for each in messages)


async def defer(door: Door, case: Case, count: int) -> list[int]:
    """Send messages and defer them all; return their numbers."""
    for _ in range(count):
        await door.namespace.send(case.send_path, [of_session("s", "x")])
    if case.path.sub_queue is SubQueue.NONE:
        return await move(door, case.path, Defer(), count, of_session=case.has_sessions)
    active = EntityPath(case.path.entity)
    await move(door, active, DeadLetter(), count, of_session=case.has_sessions)
    return await move(door, case.path, Defer(), count, of_session=False)


async def receive(door: Door, case: Case, number: int, mode: ReceiveMode = PEEK_LOCK) -> Received:
    """Receive a deferred message by its number."""
    (found,) = await door.namespace.receive_deferred(case.path, [number], mode)
    return found


async def shown(door: Door, case: Case) -> list[int]:
    """Return the numbers of the deferred messages that a peek shows."""
    peeked = await door.namespace.peek(case.path, 0, 250)
    return [each.sequence_number for each in peeked if each.is_deferred]


async def found(door: Door, case: Case, numbers: list[int]) -> list[int]:
    """Return those of the numbers that a receive finds; the messages stay deferred."""
    there = []
    for number in numbers:
        try:
            message = await receive(door, case, number)
        except MessageNotFound:
            continue
        await settle(door, case.path, message, Defer())
        there.append(number)
    return there


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(each, marks=pytest.mark.long)
        if each.startswith(("partitioned", "dead letters of"))
        else each
        for each in CASES
    ],
)
async def test_the_first_peek_shows_what_a_receive_by_number_finds(
    endpoint: Endpoint, broker: Broker, kind: str
) -> None:
    """Five deferred, numbers 2, 4 and 5 completed by a bridge that has ended: 1 and 3 are shown."""
    case = CASES[kind]()
    async with open_door(endpoint, broker.management_url) as door:
        await door.namespace.apply(case.namespace)
        numbers = await defer(door, case, 5)
        for at in (1, 3, 4):
            await receive(door, case, numbers[at], DELETE)
    async with open_door(endpoint, broker.management_url) as door:
        assert await shown(door, case) == [numbers[0], numbers[2]]
        assert await found(door, case, numbers) == [numbers[0], numbers[2]]
        await receive(door, case, numbers[0], DELETE)
        assert await shown(door, case) == [numbers[2]]
        (last,) = await defer(door, case, 1)
        assert await shown(door, case) == [numbers[2], last]


async def test_a_first_peek_beside_the_owner_of_another_bridge_sees_its_locked_ones(
    endpoint: Endpoint, broker: Broker
) -> None:
    """A deferred message that is locked is still there; what is completed then is not."""
    case = _queue()
    async with (
        open_door(endpoint, broker.management_url) as owner,
        open_door(endpoint, broker.management_url) as other,
    ):
        await owner.namespace.apply(case.namespace)
        await other.namespace.directory.read()
        numbers = await defer(owner, case, 4)
        await receive(owner, case, numbers[0], DELETE)
        locked = await receive(owner, case, numbers[2])
        assert await shown(other, case) == numbers[1:]
        await settle(owner, case.path, locked, Complete())

        async def is_left_out() -> bool:
            return await shown(other, case) == [numbers[1], numbers[3]]

        await until(is_left_out)


async def test_a_queue_of_deferred_messages_that_somebody_purged_shows_none(
    endpoint: Endpoint, broker: Broker, vhost: str
) -> None:
    """Messages that are deferred later are shown."""
    case = _queue()
    async with open_door(endpoint, broker.management_url) as door:
        await door.namespace.apply(case.namespace)
        numbers = await defer(door, case, 3)
        assert await shown(door, case) == numbers
    async with open_door(endpoint, broker.management_url) as door:
        queue = quote("orders/$deferred", safe="")
        broker.management("DELETE", f"/api/queues/{vhost}/{queue}/contents")
        assert await shown(door, case) == []
        later = await defer(door, case, 2)
        assert await shown(door, case) == later


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 2))]
)
@pytest.mark.parametrize("kind", ["queue", "dead letters"])
async def test_whatever_bridges_did_that_have_ended_a_peek_shows_what_a_receive_finds(
    endpoint: Endpoint, broker: Broker, kind: str, seed: int
) -> None:
    """Each bridge settles some in any way and order, some of them without a peek."""
    chance = random.Random(seed)
    case = CASES[kind]()
    ways: list[Disposition] = [Complete(), Abandon(), Defer()]
    if case.path.sub_queue is SubQueue.NONE:
        ways.append(DeadLetter())
    there: list[int] = []
    gone: list[int] = []
    async with open_door(endpoint, broker.management_url) as door:
        await door.namespace.apply(case.namespace)
    for bridge in range(4):
        async with open_door(endpoint, broker.management_url) as door:
            there += await defer(door, case, chance.randint(2, 6))
            for number in chance.sample(there, chance.randint(1, len(there) - 1)):
                how = chance.choice(ways)
                await settle(door, case.path, await receive(door, case, number), how)
                if isinstance(how, Complete | DeadLetter):
                    there.remove(number)
                    gone.append(number)
            if bridge % 2:
                assert await shown(door, case) == sorted(there)
    async with open_door(endpoint, broker.management_url) as door:
        assert await shown(door, case) == sorted(there)
        assert await found(door, case, sorted(there + gone)) == sorted(there)
