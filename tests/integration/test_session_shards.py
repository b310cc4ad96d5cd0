"""Sessions of one entity in four queues, which two bridges own between them, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, ReceiveMode
from bridge.engine.sessions import owner
from bridge.model import entity as model
from bridge.model.errors import SessionCannotBeLocked, SessionLockLost
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names, shards
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door
from tests.integration.session_door import PATH, SessionClient, bodies, of_session, send

COUNT = 4
QUEUE = model.Queue(
    name="orders",
    lock_duration_ms=5_000,
    max_delivery_count=3,
    requires_session=True,
    session_shards=COUNT,
    folds_session_ids=True,
)
SESSIONS = [f"b{number:02}" for number in range(12)]
DEAD = EntityPath("orders", SubQueue.DEAD_LETTER)


def of_shard(shard: int) -> str:
    """A session that is in a shard."""
    return next(each for each in SESSIONS if shards.shard_of(QUEUE, each) == shard)


@pytest_asyncio.fixture
async def doors(endpoint: Endpoint, broker: Broker) -> AsyncIterator[tuple[Door, Door]]:
    """Two bridges."""
    url = broker.management_url
    async with (
        open_door(endpoint, url, QUEUE) as first,
        open_door(endpoint, url, QUEUE, with_sidecar=False) as second,
    ):
        yield first, second


def owned(door: Door, queue: model.Queue = QUEUE) -> set[int]:
    """The shards that a bridge owns."""
    ready, count = door.namespace._sessions.owners.ready, queue.session_shards
    return {shard for shard in range(count) if ready(("orders", shard)) is not None}


def chosen(doors: tuple[Door, Door], entity: model.Queue = QUEUE) -> list[set[int]]:
    """The shards that each of two bridges is to own."""
    bridges = [each.namespace._locks.instance for each in doors]
    found: list[set[int]] = [set(), set()]
    for shard in range(entity.session_shards):
        queue = names.sessions_queue("orders", shard)
        first = shards.in_order_of_choice(bridges, queue)[0]
        found[bridges.index(first)].add(shard)
    return found


async def every_session(doors: tuple[Door, Door]) -> list[SessionClient]:
    """A receiver of each session, at one bridge and the other in turn."""
    return [
        await SessionClient(doors[at % 2]).accept(session_id)
        for at, session_id in enumerate(SESSIONS)
    ]


async def test_each_session_is_in_one_shard_in_order_and_bridges_share_the_shards(
    doors: tuple[Door, Door],
) -> None:
    """Accept, receive, settle, state, renewal and list, wherever a shard is owned."""
    for number in range(3):
        for session_id in SESSIONS:
            await send(doors[0], session_id, str(number))
    clients = await every_session(doors)
    assert [owned(each) for each in doors] == chosen(doors)
    for at, client in enumerate(clients):
        other, session_id = doors[1 - at % 2], SESSIONS[at]
        received = await client.receive(3)
        assert bodies(received) == ["0", "1", "2"]
        with pytest.raises(SessionCannotBeLocked):
            await SessionClient(other).accept(session_id)
        await other.namespace.set_session_state(PATH, session_id, session_id.encode())
        assert await client.door.namespace.session_state(PATH, session_id) == session_id.encode()
        until_ms = await client.door.namespace.renew_session_lock(PATH, session_id)
        assert client.receiver.locked_until_ms == until_ms
        await client.settle(received[0], Abandon())
        for each in received[1:]:
            await client.settle(each, Complete())
        (again,) = await client.receive()
        assert (again.record.body, again.delivery_count) == (b"0", 1)
        await client.settle(again, Complete())
        await client.close()
    listed = await doors[1].namespace.list_sessions(PATH, updated_after_ms=None, skip=2, top=50)
    assert listed == SESSIONS[2:]


async def test_the_next_session_comes_from_any_shard_to_one_receiver(
    doors: tuple[Door, Door],
) -> None:
    """Of many that ask at once at both bridges, each has another; who is too many waits."""
    await SessionClient(doors[1]).accept("nobody's")
    waiting = [
        asyncio.create_task(SessionClient(doors[at % 2]).accept()) for at in range(len(SESSIONS))
    ]
    late = [asyncio.create_task(SessionClient(each).accept()) for each in doors]
    for session_id in SESSIONS:
        await send(doors[0], session_id, "1", "2")
    given = [*waiting, *late]
    await until(lambda: sum(each.done() for each in given) == len(SESSIONS))
    clients = [each.result() for each in given if each.done()]
    assert sorted(each.receiver.session_id for each in clients) == SESSIONS
    for client in clients:
        received = await client.receive(2)
        assert bodies(received) == ["1", "2"]
        assert [each.delivery_count for each in received] == [0, 0]
    for wait in given:
        wait.cancel()
    await asyncio.gather(*given, return_exceptions=True)
    await until(lambda: all("0 waiting" in repr(each.messages) for each in all_owners(doors)))
    held = sum(len(each.messages.machine.holders) for each in all_owners(doors))
    assert held == len(SESSIONS) + 1, "what was given to who was too late is free"


def all_owners(doors: tuple[Door, Door]) -> list[owner.SessionOwner]:
    """The owners of both bridges."""
    return [each for door in doors for each in door.namespace._sessions.owners.all if each.is_ready]


async def test_counts_peeks_dead_letters_and_deferred_messages_are_of_all_shards(
    doors: tuple[Door, Door],
) -> None:
    """One dead-letter queue, one journal, and sums."""
    for session_id in SESSIONS:
        await send(doors[0], session_id, f"1 of {session_id}", f"2 of {session_id}")
    clients = await every_session(doors)
    received = [(await client.receive(1))[0] for client in clients]
    for client, each in zip(clients[:4], received[:4], strict=True):
        await client.settle(each, DeadLetter())
    for client, each in zip(clients[4:8], received[4:8], strict=True):
        await client.settle(each, Defer())
    (counts,) = await doors[0].namespace.counting.counts([QUEUE])
    total = 2 * len(SESSIONS)
    assert (counts.active, counts.dead_letter, counts.deferred) == (total - 8, 4, 4)
    peeked = await doors[1].namespace.peek(PATH, 1, 100)
    assert len(peeked) == total - 4
    of_one = await doors[0].namespace.peek(PATH, 1, 9, SESSIONS[11])
    assert bodies(list(of_one)) == [f"1 of {SESSIONS[11]}", f"2 of {SESSIONS[11]}"]
    dead = await doors[1].client(path=DEAD).receive(4)
    assert sorted(bodies(dead)) == [f"1 of {each}" for each in SESSIONS[:4]]
    (back,) = await clients[4].door.namespace.receive_deferred(
        PATH, [received[4].sequence_number], ReceiveMode.PEEK_LOCK, SESSIONS[4]
    )
    await clients[4].settle(back, Complete())
    for client, each in zip(clients[8:], received[8:], strict=True):
        await client.settle(each, Complete())

    async def are_left() -> bool:
        return len(await doors[0].namespace.peek(PATH, 1, 100)) == total - 4 - 1 - 4

    await until(are_left)


async def test_another_bridge_owns_the_shards_of_one_that_ends(
    endpoint: Endpoint, broker: Broker
) -> None:
    """In order, with states and counts; receivers of the other shards notice nothing."""
    url = broker.management_url
    async with open_door(endpoint, url, QUEUE) as second:
        async with open_door(endpoint, url, QUEUE, with_sidecar=False) as first:
            for session_id in SESSIONS:
                await send(second, session_id, "1", "2", "3")
            clients = await every_session((second, first))
            ours, theirs = owned(second), owned(first)
            for client in clients:
                received = await client.receive(2)
                await client.settle(received[0], Complete())
                await client.door.namespace.set_session_state(
                    PATH, client.receiver.session_id, b"state"
                )
        for client in clients[::2]:
            session_id = client.receiver.session_id
            if shards.shard_of(QUEUE, session_id) in theirs:
                assert isinstance(await client.wait_for_loss(), SessionLockLost)
            else:
                assert shards.shard_of(QUEUE, session_id) in ours
                assert bodies(await client.receive(1)) == ["3"]
                await client.close()
        for session_id in SESSIONS:
            again = await SessionClient(second).accept(session_id)
            received = await again.receive(2)
            assert bodies(received) == ["2", "3"]
            assert await second.namespace.session_state(PATH, session_id) == b"state"
        assert owned(second) == set(range(COUNT))


async def test_a_bridge_that_comes_later_owns_its_shards_when_nobody_holds_a_session(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then they stay where they are; what is in them comes in order."""
    monkeypatch.setattr(owner, "SWEEP_S", 0.3)
    url = broker.management_url
    async with open_door(endpoint, url, QUEUE) as first:
        for session_id in SESSIONS:
            await send(first, session_id, "1", "2")
        held = [await SessionClient(first).accept(each) for each in SESSIONS]
        assert owned(first) == set(range(COUNT))
        async with open_door(endpoint, url, QUEUE, with_sidecar=False) as second:
            await asyncio.sleep(1)
            assert owned(first) == set(range(COUNT))
            for each in held:
                await each.close()
            wanted = chosen((first, second))
            await until(lambda: [owned(first), owned(second)] == wanted)
            for session_id in SESSIONS:
                client = await SessionClient(second).accept(session_id)
                received = await client.receive(2)
                assert bodies(received) == ["1", "2"]
                assert [each.delivery_count for each in received] == [0, 0]


@pytest.mark.long
async def test_a_shard_is_handed_over_when_its_dead_letters_are_confirmed(
    endpoint: Endpoint, broker: Broker, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next owner would receive them, and could make each a dead letter for a second time.

    The owner gives sessions meanwhile, and says in health for what it waits.
    """
    monkeypatch.setattr(owner, "SWEEP_S", 0.3)
    url, supervisor = broker.management_url, Supervisor()
    # Some of so many are to be the second bridge's.
    many = replace(QUEUE, session_shards=16, lock_duration_ms=120_000)
    async with open_door(endpoint, url, many, supervisor=supervisor) as first:
        for session_id in SESSIONS:
            await send(first, session_id, "1", "2")
        held = [await SessionClient(first).accept(each) for each in SESSIONS]
        received = [(await each.receive())[0] for each in held]
        await asyncio.to_thread(broker.node.rabbitmqctl, "eval", of_process("suspend", vhost))
        async with open_door(endpoint, url, many, with_sidecar=False) as second:
            await second.namespace._sessions.owners.find(many, 0)
            moving = [
                asyncio.create_task(client.settle(each, DeadLetter()))
                for client, each in zip(held, received, strict=True)
            ]
            departure = first.namespace._departure
            await until(lambda: not departure.is_idle)
            for each in held:
                await each.close()
            busy = {shards.shard_of(many, each) for each in SESSIONS}
            ours, theirs = chosen((first, second), many)
            await until(lambda: owned(second, many) == theirs - busy)
            await until(lambda: any("is to own" in each for each in supervisor.waits.sentences()))
            assert owned(first, many) == ours | busy
            await asyncio.to_thread(broker.node.rabbitmqctl, "eval", of_process("resume", vhost))
            await asyncio.gather(*moving)
            await until(lambda: [owned(each, many) for each in (first, second)] == [ours, theirs])
            assert departure.is_idle
            for session_id in SESSIONS:
                client = await SessionClient(second).accept(session_id)
                (last,) = await client.receive()
                assert last.record.body == b"2"
                await client.settle(last, Complete())
            dead = await second.client(path=DEAD).receive(len(SESSIONS))
            assert {each.record.body for each in dead} == {b"1"}
            (counts,) = await first.namespace.counting.counts([many])
            assert (counts.active, counts.dead_letter) == (0, len(SESSIONS))


def of_process(what: str, vhost: str) -> str:
    """An expression that suspends or resumes the process of the dead-letter queue."""
    return f"sys:{what}(whereis('{vhost}_{names.dead_letter_queue('orders')}'))."


async def test_a_dead_shard_holds_up_no_other(
    doors: tuple[Door, Door], broker: Broker, vhost: str
) -> None:
    """Its messages wait; those of others are numbered, accepted and received."""
    dead, alive = of_shard(2), of_shard(1)
    for each in (dead, alive):
        await send(doors[0], each, "early")  # a channel's first publish to a queue is no test
        client = await SessionClient(doors[0]).accept(each)
        await client.settle((await client.receive())[0], Complete())
        await client.close()
    process = f"'{vhost}_{names.active_queue('orders', 2)}'"
    suspend, resume = (f"sys:{what}(whereis({process}))." for what in ("suspend", "resume"))
    await asyncio.to_thread(broker.node.rabbitmqctl, "eval", suspend)
    sending = asyncio.create_task(send(doors[0], dead, "late"))
    client = await SessionClient(doors[0]).accept(alive)
    for number in range(20):
        await send(doors[0], alive, str(number))
    received = await client.receive(20)
    assert bodies(received) == [str(number) for number in range(20)]
    for each in received:
        await client.settle(each, Complete())
    await asyncio.to_thread(broker.node.rabbitmqctl, "eval", resume)
    await sending
    late = await SessionClient(doors[1]).accept(dead)
    assert bodies(await late.receive()) == ["late"]


async def test_native_consumers_of_any_shard_are_named_and_nothing_is_left_of_what_is_deleted(
    doors: tuple[Door, Door], confirming: Channel
) -> None:
    """The shards' queues are the entity's."""
    await confirming.consumers.consume(names.active_queue("orders", 3), lambda delivery: None)
    await SessionClient(doors[0]).accept(of_shard(0))
    await until(lambda: [each for door in doors for each in door.namespace.state.warnings])
    warnings = [each for door in doors for each in door.namespace.state.warnings]
    assert sum("orders" in each for each in warnings) == 1
    await doors[1].namespace.administration.delete("orders")
    for door in doors:
        await until(lambda door=door: not door.namespace._sessions.owners.all)
    assert not await doors[0].management.queues_below("orders")


async def test_a_subscriptions_sessions_are_in_shards_too(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Each copy is in one of the subscription's queues, in order in its session."""
    path = EntityPath("events/Subscriptions/audit")
    async with open_door(endpoint, broker.management_url) as door:
        administration = door.namespace.administration
        await administration.create(model.Topic(name="events"))
        made = await administration.create(
            model.Subscription(topic="events", name="audit", requires_session=True)
        )
        assert made.session_shards == COUNT
        for number in range(3):
            batch = [of_session(each, str(number)) for each in SESSIONS]
            await door.namespace.send(EntityPath("events"), batch)
        for _ in SESSIONS:
            client = await SessionClient(door, path).accept()
            received = await client.receive(3)
            assert bodies(received) == ["0", "1", "2"]
            for each in received:
                await client.settle(each, Complete())
        rows = await door.management.queues(("name", "messages"))
        shard_queues = set(shards.active_queues(made))
        assert {row["name"] for row in rows} >= shard_queues
