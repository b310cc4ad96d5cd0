"""Deliverers of a real RabbitMQ ask what transactions have settled, and carry that out.

A commit is put into the inbox by hand; the bridge that has the lock is gone before it settles.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import ConnectionLost
from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Disposition,
    Received,
    ReceiveMode,
)
from bridge.engine.settlement.disposition_fields import outcome_of
from bridge.engine.settlement.held_message import HeldMessage
from bridge.engine.settlement.owner import Owner
from bridge.machine.inbox.decided import Decided
from bridge.machine.queue.inquiries import locked_message
from bridge.message.locked_source import source_of
from bridge.model import entity as model
from bridge.model.errors import MessageNotFound
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.wire import commits, envelope
from bridge.wire.basic import text
from bridge.wire.commits import NO_INQUIRY, CommitContent, CommitVerdict, LockOutcome
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.session_door import SessionClient, of_session
from tests.integration.transacting import member

ORDERS = model.Queue(name="orders", lock_duration_ms=300_000, max_delivery_count=10)
PLAIN = model.Queue(name="plain", lock_duration_ms=300_000)
SESSIONS = model.Queue(name="sessions", requires_session=True, lock_duration_ms=300_000)
AUDIT = EntityPath("events/subscriptions/audit")
TOPIC = model.Topic(
    name="events",
    subscriptions=(model.Subscription(topic="events", name="audit", lock_duration_ms=300_000),),
)
DEFERS = Defer(properties={"colour": text("red")})


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """The bridge that leads, and delivers in the end; its entity has transactions."""
    async with open_door(endpoint, broker.management_url, ORDERS, PLAIN) as opened:
        await begin(opened, "orders")
        yield opened


async def begin(door: Door, path: str) -> None:
    """Mark an entity's first transaction: this bridge is the only one."""
    door.namespace.membership.is_listed = True
    await door.namespace.transactional(path)


def held(door: Door, received: Received) -> tuple[Owner, HeldMessage]:
    """Return a locked message, and its owner."""
    assert received.lock_token is not None
    found = door.namespace._locks.find(received.lock_token)
    assert found is not None
    return found


async def commit(door: Door, *settled: tuple[Received, Disposition]) -> tuple[CommitVerdict, str]:
    """Commit what becomes of locked messages; nobody carries it out."""
    outcomes, front = [], ""
    for received, disposition in settled:
        owner, holding = held(door, received)
        front = names.front_path(owner.path.entity)
        message = locked_message(holding, source_of(owner))
        outcomes.append(LockOutcome(message, holding.inquiry, *outcome_of(disposition)))
    return await put(door, front, outcomes)


async def put(door: Door, front: str, outcomes: list[LockOutcome]) -> tuple[CommitVerdict, str]:
    """Put a commit into an inbox; return the leader's verdict."""
    body = commits.encode(uuid.uuid4().bytes, CommitContent(outcomes=outcomes))
    sender = door.namespace._sender
    done = await sender.ask("", names.inbox(front), envelope.HEADERS, body, persistent=True)
    return commits.decode_verdict(done.content)


def decided(door: Door, path: str = "orders") -> Decided:
    """Return what the leader keeps."""
    leader = door.sidecar.routes.leader_of(path)
    assert leader is not None
    return leader.sequencer.memory.decided


def bodies(received: list[Received]) -> list[bytes]:
    """Return the messages' bodies."""
    return [each.record.body for each in received]


async def none_is_left(door: Door, path: EntityPath | None = None) -> None:
    """Drain a receiver: nothing comes."""
    client = door.client(ReceiveMode.PEEK_LOCK, path)
    client.receiver.add_credit(10)
    await client.receiver.drain()
    assert client.received == []
    await client.receiver.close()


async def lose(door: Door) -> None:
    """End the bridge's receiving connections: RabbitMQ takes back what it has locked."""
    for connection in door.namespace._connections.pool.connections:
        connection._transport.lose(ConnectionLost(text="by the test"))


async def locked_by_one_that_is_gone(
    endpoint: Endpoint,
    broker: Broker,
    door: Door,
    dispositions: list[Disposition | None],
    path: EntityPath | None = None,
) -> None:
    """Have another bridge lock messages and commit what becomes of some; it is gone then."""
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as gone:
        received = await gone.client(path=path).receive(len(dispositions))
        settled = [
            (each, disposition)
            for each, disposition in zip(received, dispositions, strict=True)
            if disposition is not None
        ]
        if settled:
            assert await commit(gone, *settled) == (CommitVerdict.COMMITTED, "")


async def test_what_was_decided_is_carried_out_by_the_next_deliverer_in_its_place(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """What nobody has settled comes in its order; the leader is told what is carried out."""
    await door.send("free", "done", "dead", "deferred", "changed", "behind")
    changed = Abandon(properties={"colour": text("blue")})
    dead = DeadLetter(reason="r", description="d", properties={"colour": text("green")})
    what = [None, Complete(), dead, DEFERS, changed, None]
    await locked_by_one_that_is_gone(endpoint, broker, door, what)
    assert decided(door).open_count == 4
    client = door.client()
    first, last, again = await client.receive(3)
    assert bodies([first, last, again]) == [b"free", b"behind", b"changed"]
    assert (again.record.properties.headers or {})["colour"] == text("blue")
    assert again.delivery_count == 1
    assert held(door, first)[1].inquiry != NO_INQUIRY
    (buried,) = await door.client(path=door.dead_letters).receive()
    table = buried.record.properties.headers or {}
    assert (buried.record.body, table["DeadLetterReason"]) == (b"dead", text("r"))
    assert table["colour"] == text("green")
    (deferred,) = await door.namespace.receive_deferred(door.path, [4], ReceiveMode.PEEK_LOCK)
    assert deferred.record.body == b"deferred"
    await until(lambda: decided(door).open_count == 0)
    await door.complete(first, last, again, deferred)
    await none_is_left(door)


async def test_a_drain_ends_behind_the_answer_and_a_receiver_keeps_its_credit(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """What was settled uses none of it up."""
    await door.send("a", "b")
    await locked_by_one_that_is_gone(endpoint, broker, door, [Complete(), Complete()])
    client = door.client()
    client.receiver.add_credit(1)
    await client.receiver.drain()
    assert client.received == []
    client.receiver.add_credit(1)
    await until(lambda: decided(door).open_count == 0)
    await door.send("c")
    assert bodies(await client.wait(1)) == [b"c"]


async def test_many_come_again_in_their_order(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """Every third was settled; new messages come behind."""
    await door.send(*map(str, range(60)))
    await locked_by_one_that_is_gone(
        endpoint, broker, door, [Complete() if each % 3 == 0 else None for each in range(60)]
    )
    await door.send("new")
    client = door.client()
    received = await client.receive(41)
    expected = [str(each).encode() for each in range(60) if each % 3] + [b"new"]
    assert bodies(received) == expected
    await door.complete(*received)
    await none_is_left(door)


async def test_the_same_bridge_asks_when_it_has_lost_its_connection(door: Door) -> None:
    """A commit by the lock that it lost is refused; one by the new lock is carried out."""
    await door.send("a", "b")
    client = door.client()
    old, _ = await client.receive(2)
    owner, holding = held(door, old)
    message = locked_message(holding, source_of(owner))
    lost = LockOutcome(message, holding.inquiry, *outcome_of(Complete()))
    await lose(door)
    new, other = await client.receive(2)
    assert bodies([new, other]) == [b"a", b"b"]
    verdict, reason = await put(door, "orders", [lost])
    assert verdict is CommitVerdict.REFUSED
    assert "was lost before the commit" in reason
    assert (await commit(door, (new, Complete())))[0] is CommitVerdict.COMMITTED
    await lose(door)
    assert bodies(await client.receive(1)) == [b"b"]
    await until(lambda: decided(door).open_count == 0)


async def test_dead_letters_are_asked_for(door: Door, endpoint: Endpoint, broker: Broker) -> None:
    """By their own queue's name: the active message of that number is another one."""
    await door.send("a", "b")
    for each in await door.client().receive(2):
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, DeadLetter(reason="r"))
    path = door.dead_letters
    await locked_by_one_that_is_gone(endpoint, broker, door, [Complete(), None], path)
    (left,) = await door.client(path=path).receive(1)
    assert left.record.body == b"b"
    await until(lambda: decided(door).open_count == 0)


async def test_queues_are_asked_for_side_by_side(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """Each by its own leader; what one waits for holds no other up."""
    await begin(door, "plain")
    paths = door.path, EntityPath("plain")
    for path in paths:
        await door.namespace.send(path, [outgoing("a"), outgoing("b")])
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as gone:
        for path in paths:
            received = await gone.client(path=path).receive(2)
            assert (await commit(gone, (received[0], Complete())))[0] is CommitVerdict.COMMITTED
    clients = [door.client(path=path) for path in paths]
    for found in await asyncio.gather(*(each.receive(1) for each in clients)):
        assert bodies(found) == [b"b"]
    await until(lambda: not any(decided(door, each.entity).open_count for each in paths))


async def test_a_subscription_asks_its_topics_leader(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """Its copies are known by its own numbers."""
    await door.namespace.apply(model.Namespace(topics=(TOPIC,)))
    await begin(door, str(AUDIT))
    topic = EntityPath("events")
    await door.namespace.send(topic, [outgoing("a"), outgoing("b")])
    await locked_by_one_that_is_gone(endpoint, broker, door, [Complete(), None], AUDIT)
    assert bodies(await door.client(path=AUDIT).receive(1)) == [b"b"]
    await until(lambda: decided(door, "events").open_count == 0)


async def test_the_next_owner_of_a_shard_asks_before_it_gives_a_session(
    endpoint: Endpoint, broker: Broker
) -> None:
    """What was settled is in no session; the others are in their order."""
    path, dead = EntityPath("sessions"), EntityPath("sessions", SubQueue.DEAD_LETTER)
    async with open_door(endpoint, broker.management_url, SESSIONS) as gone:
        await begin(gone, "sessions")
        for each in "abcd":
            await gone.namespace.send(path, [of_session("s", each)])
        received = await (await SessionClient(gone, path).accept("s")).receive(3)
        settled = zip(received[::2], (Complete(), DeadLetter(reason="r")), strict=True)
        assert (await commit(gone, *settled))[0] is CommitVerdict.COMMITTED
    async with open_door(endpoint, broker.management_url) as door:
        await door.namespace.send(path, [of_session("s", "e")])
        left = await (await SessionClient(door, path).accept("s")).receive(3)
        assert bodies(left) == [b"b", b"d", b"e"]
        assert held(door, left[0])[1].inquiry != NO_INQUIRY
        assert bodies(await door.client(path=dead).receive(1)) == [b"c"]
        await until(lambda: decided(door, "sessions").open_count == 0)
        verdict, _ = await commit(door, *[(each, Complete()) for each in left])
        assert verdict is CommitVerdict.COMMITTED
        await lose(door)  # the owner itself has all of them again
        await until(lambda: decided(door, "sessions").open_count == 3)
        await until(lambda: decided(door, "sessions").open_count == 0)
        assert await door.namespace.peek(path, 0, 10) == []


async def test_the_next_owner_of_deferred_messages_asks(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """What was settled cannot be received by its number; the others can."""
    await door.send("a", "b", "c")
    for each in await door.client().receive(3):
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, Defer())
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as gone:
        numbers = [1, 2, 3]
        received = await gone.namespace.receive_deferred(door.path, numbers, ReceiveMode.PEEK_LOCK)
        settled = list(zip(received, (Complete(), DeadLetter(reason="r")), strict=False))
        assert (await commit(gone, *settled))[0] is CommitVerdict.COMMITTED
    mode = ReceiveMode.PEEK_LOCK
    (left,) = await door.namespace.receive_deferred(door.path, [3], mode)
    assert left.record.body == b"c"
    assert held(door, left)[1].inquiry != NO_INQUIRY
    for number in (1, 2):
        with pytest.raises(MessageNotFound):
            await door.namespace.receive_deferred(door.path, [number], mode)
    assert bodies(await door.client(path=door.dead_letters).receive(1)) == [b"b"]
    await until(lambda: decided(door).open_count == 0)
    await door.complete(left)


async def test_what_was_asked_for_waits_until_there_is_a_leader(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Health says so; then it goes on."""
    async with open_door(endpoint, broker.management_url, ORDERS) as first:
        await begin(first, "orders")
        await first.send("a", "b")
        received = await first.client().receive(2)
        assert (await commit(first, (received[0], Complete())))[0] is CommitVerdict.COMMITTED
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as delivers:
        client = delivers.client()
        client.receiver.add_credit(2)
        asked = delivers.namespace._supervisor.waits
        await until(lambda: any("transactions have settled" in each for each in asked.sentences()))
        assert client.received == []
        async with open_door(endpoint, broker.management_url):
            assert bodies(await client.wait(1)) == [b"b"]


async def test_first_deliveries_and_other_entities_ask_nobody(
    door: Door, endpoint: Endpoint, broker: Broker
) -> None:
    """What comes again of an entity without transactions is delivered at once."""
    await door.send("a")
    plain = EntityPath("plain")
    other = Door(door.namespace, door.sidecar, door.management, plain)
    await other.send("b")
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as gone:
        await gone.client(path=plain).receive(1)
    (first,) = await door.client().receive(1)
    (again,) = await other.client().receive(1)
    assert all(held(door, each)[1].inquiry == NO_INQUIRY for each in (first, again))
    assert all("0 asked" in repr(decided(door, each)) for each in ("orders", "plain"))


@pytest.mark.kills
@pytest.mark.parametrize("point", ["engine.commit.decided", "engine.complete.acked"])
async def test_the_next_deliverer_completes_what_a_killed_bridge_has_committed(
    endpoint: Endpoint, broker: Broker, vhost: str, point: str
) -> None:
    """Killed between the decision and the ack, or when RabbitMQ may not have the ack yet."""
    async with member(endpoint, broker.management_url, ORDERS) as door:
        await door.send("a", "behind")
        killed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.transacting"),
            *(broker.url_of(vhost), broker.management_url),
            env=dict(os.environ, BUSBRIDGE_FAILPOINT=point),
        )
        async with asyncio.timeout(120):
            assert await killed.wait() == -signal.SIGKILL
        client = door.client()
        received = await client.receive(2)
        assert bodies(received) == [b"behind", b"new"]
        await door.complete(*received)
        await none_is_left(door)
        if point == "engine.commit.decided":
            await until(lambda: decided(door).open_count == 0)
