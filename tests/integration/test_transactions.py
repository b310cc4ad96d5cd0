"""Transactions through the engine's verbs, on a real RabbitMQ: all or nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
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
from bridge.engine.transaction_verbs import PinnedLock, TransactionWork
from bridge.engine.transactions import commit_content, pins, transacting
from bridge.engine.transactions.transacting import Transacting
from bridge.model import entity as model
from bridge.model.errors import (
    MessageLockLost,
    TransactionInDoubt,
    TransactionRolledBack,
)
from bridge.model.name import EntityPath
from bridge.wire import commits
from bridge.wire.basic import text
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.session_door import SessionClient
from tests.integration.session_door import send as send_to_session

ORDERS = model.Queue(name="orders", lock_duration_ms=5_000, max_delivery_count=4)
SESSIONS = model.Queue(name="orders", lock_duration_ms=60_000, requires_session=True)


@asynccontextmanager
async def member(
    endpoint: Endpoint, broker: Broker, *queues: model.Queue, with_sidecar: bool = True
) -> AsyncIterator[Door]:
    """Start a bridge that tells the others what it knows."""
    async with open_door(
        endpoint, broker.management_url, *queues, with_sidecar=with_sidecar, session_shards=1
    ) as opened:
        telling = asyncio.create_task(opened.namespace.membership.run())
        try:
            await until(lambda: opened.namespace.membership.knows(commits.FEATURE))
            yield opened
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with member(endpoint, broker, ORDERS) as opened:
        yield opened


class Client:
    """A transaction as a gateway has it."""

    def __init__(self, door: Door, path: EntityPath | None = None) -> None:
        self.verbs: Transacting = door.namespace.transacting
        self.path = path or door.path
        self.settlements: list[tuple[PinnedLock, Disposition]] = []
        self.sends: list[str] = []
        self.cancels: list[int] = []
        self.identity = os.urandom(16)

    async def settle(
        self, received: Received, disposition: Disposition, path: EntityPath | None = None
    ) -> None:
        """Pin a message's lock."""
        assert received.lock_token is not None
        pin = await self.verbs.pin(path or self.path, received.lock_token)
        self.settlements.append((pin, disposition))

    def work(self) -> TransactionWork:
        """Return what a commit carries."""
        sends = [self.verbs.prepare(self.path, self.path, [outgoing(each)]) for each in self.sends]
        return TransactionWork(
            identity=self.identity,
            pinned=self.path,
            sends=sends,
            settlements=self.settlements,
            cancels=self.cancels,
        )

    async def commit(self) -> None:
        """Carry out all, or nothing."""
        await self.verbs.commit(self.work())


async def ready(channel: Channel, queue: str) -> int:
    """How many messages wait in a queue, as RabbitMQ says."""
    return (await channel.declarations.declare_queue(queue, passive=True)).messages


async def test_a_commit_settles_and_sends(door: Door, confirming: Channel) -> None:
    """Each of the five ways of settling a message, and two sends, at once."""
    await door.send("complete", "abandon", "changed", "dead", "defer")
    client, transaction = door.client(), Client(door)
    received = await client.receive(5)
    ways = (
        Complete(),
        Abandon(),
        Abandon(properties={"tries": text("1")}),
        DeadLetter(reason="why", properties={"colour": text("red")}),
        Defer(),
    )
    for each, disposition in zip(received, ways, strict=True):
        await transaction.settle(each, disposition)
    transaction.sends = ["new", "newer"]
    assert transaction.verbs.size_bytes(transaction.work()) < 1_000
    await transaction.commit()
    found = await client.receive(4)
    assert {each.record.body: each.delivery_count for each in found} == {
        b"abandon": 1,
        b"changed": 1,
        b"new": 0,
        b"newer": 0,
    }
    changed = next(each for each in found if each.record.body == b"changed")
    assert (changed.record.properties.headers or {})["tries"] == text("1")
    (dead,) = await door.client(path=door.dead_letters).receive()
    assert (dead.record.body, dead.sequence_number) == (b"dead", 4)
    (deferred,) = await door.namespace.receive_deferred(
        door.path, [5], ReceiveMode.RECEIVE_AND_DELETE
    )
    assert deferred.record.body == b"defer"
    assert door.namespace.transacting.in_doubt == 0
    await door.complete(*found)
    await door.complete(dead, path=door.dead_letters)
    await door.namespace.close()
    assert await ready(confirming, "orders") == 0


async def test_a_deferred_message_is_settled_by_its_number(door: Door) -> None:
    """And a dead letter."""
    await door.send("a", "b")
    client = door.client()
    for each, disposition in zip(await client.receive(2), (Defer(), DeadLetter()), strict=True):
        assert each.lock_token is not None
        await door.namespace.settle(door.path, each.lock_token, disposition)
    transaction = Client(door)
    (deferred,) = await door.namespace.receive_deferred(door.path, [1], ReceiveMode.PEEK_LOCK)
    (dead,) = await door.client(path=door.dead_letters).receive()
    await transaction.settle(deferred, Complete())
    await transaction.settle(dead, Complete(), door.dead_letters)
    await transaction.commit()
    listed = await door.namespace._deferral.listed(door.namespace.directory.receivable(door.path))
    assert listed is not None
    assert [list(each) for each in listed] == [[], []]


async def test_a_rollback_leaves_the_locks_as_they_were(door: Door) -> None:
    """They can be settled right then; a plain settlement of a pinned lock is refused."""
    await door.send("a", "b")
    client, transaction = door.client(), Client(door)
    first, second = await client.receive(2)
    await transaction.settle(first, Complete())
    assert first.lock_token is not None
    with pytest.raises(MessageLockLost):
        await door.complete(first)
    with pytest.raises(MessageLockLost):
        await transaction.settle(first, Complete())
    await door.namespace.renew_locks(door.path, [first.lock_token])
    transaction.verbs.release([pin for pin, _ in transaction.settlements])
    await door.complete(first, second)


async def test_a_lock_is_pinned_beyond_its_time(door: Door) -> None:
    """Its message is settled by a commit that comes later; the others come again."""
    await door.send("pinned", "plain")
    client, transaction = door.client(), Client(door)
    pinned, _ = await client.receive(2)
    await transaction.settle(pinned, Complete())
    (again,) = await client.receive()
    assert (again.record.body, again.delivery_count) == (b"plain", 1)
    await transaction.commit()
    await door.complete(again)
    assert door.namespace.counters.locks_expired == 1


async def test_a_pin_is_over_after_150_seconds(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message goes back, and the commit is rolled back."""
    monkeypatch.setattr(pins, "PIN_MS", 1_000)
    await door.send("a")
    client, transaction = door.client(), Client(door)
    (first,) = await client.receive()
    await transaction.settle(first, Complete())
    transaction.sends = ["never"]
    (again,) = await client.receive()
    assert (again.record.body, again.delivery_count) == (b"a", 1)
    with pytest.raises(TransactionRolledBack):
        await transaction.commit()
    await door.complete(again)


async def test_a_lost_lock_rolls_all_back(door: Door) -> None:
    """RabbitMQ has taken the messages back: nothing of the transaction is stored."""
    await door.send("a", "b")
    client, transaction = door.client(), Client(door)
    for each in await client.receive(2):
        await transaction.settle(each, Complete())
    transaction.sends = ["never"]
    token = transaction.settlements[0][0].lock_token
    door.namespace._pins.channel_of(token).abandon()
    await until(lambda: len(door.namespace._locks) == 0)
    with pytest.raises(TransactionRolledBack):
        await transaction.commit()
    received = await client.receive(2)
    assert [each.record.body for each in received] == [b"a", b"b"]
    await door.complete(*received)
    await door.send("last")
    (last,) = await client.receive()
    assert last.record.body == b"last"


async def test_a_cancel_that_comes_too_late_rolls_all_back(door: Door) -> None:
    """The lock goes on with the time that it had left."""
    await door.send("a")
    client, transaction = door.client(), Client(door)
    (received,) = await client.receive()
    await transaction.settle(received, Complete())
    transaction.sends, transaction.cancels = ["never"], [99]
    with pytest.raises(TransactionRolledBack, match="99"):
        await transaction.commit()
    await door.complete(received)


async def test_a_commit_in_doubt_is_decided_later(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a leader nobody knows; the locks are kept, and carried out when one is there."""
    monkeypatch.setattr(transacting, "IN_DOUBT_S", 2.0)
    async with member(endpoint, broker, ORDERS) as leading:
        await leading.send("a")
        async with member(endpoint, broker, with_sidecar=False) as door:
            await until(
                lambda: "orders" in {e.name for e in door.namespace.directory.namespace.queues}
            )
            client, transaction = door.client(), Client(door)
            (received,) = await client.receive()
            await transaction.settle(received, Complete())
            transaction.sends = ["new"]
            await door.namespace.transactional("orders")
            await leading.sidecar.stop()
            with pytest.raises(TransactionInDoubt):
                await transaction.commit()
            assert door.namespace.transacting.in_doubt == 1
            with pytest.raises(MessageLockLost):
                await door.complete(received)
            async with member(endpoint, broker):
                await until(lambda: door.namespace.transacting.in_doubt == 0)
                (new,) = await client.receive()
                assert new.record.body == b"new"
                await door.complete(new)


async def test_a_commit_settles_what_another_bridge_holds(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Messages of a session that another bridge owns; a rollback leaves them to their receiver."""
    async with (
        member(endpoint, broker, SESSIONS) as first,
        member(endpoint, broker, with_sidecar=False) as second,
    ):
        await until(lambda: bool(second.namespace.directory.namespace.queues))
        await SessionClient(first).accept("nobody's")
        await send_to_session(first, "a", "1", "2", "3")
        for door in (first, second):
            session = await SessionClient(door).accept("a")
            received = await session.receive(3)
            rolled_back, transaction = Client(door), Client(door)
            await rolled_back.settle(received[1], Complete())
            rolled_back.verbs.release([pin for pin, _ in rolled_back.settlements])
            await asyncio.sleep(0.2)
            for each in received[:2]:
                await transaction.settle(each, Complete())
            transaction.sends = []
            await transaction.commit()
            await session.settle(received[2], Complete())
            await session.close()
            await send_to_session(first, "a", "1", "2", "3")


async def test_a_bridge_asks_about_what_another_one_has_pinned_and_left(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session's message is never in RabbitMQ's hands meanwhile: its owner asks the leader."""
    async with (
        member(endpoint, broker, SESSIONS) as first,
        member(endpoint, broker, with_sidecar=False) as second,
    ):
        await until(lambda: bool(second.namespace.directory.namespace.queues))
        await SessionClient(first).accept("nobody's")
        await send_to_session(first, "a", "1", "2")
        session = await SessionClient(second).accept("a")
        left, committed = await session.receive(2)
        monkeypatch.setattr(pins, "PIN_MS", 1_000)
        for each in (left, committed):
            transaction = Client(second)
            await transaction.settle(each, Complete())
        entity = second.namespace.directory.send_entity(second.path)
        body = commit_content.encode(transaction.work(), entity)
        await second.namespace._sending.ask_leader(entity, body)
        (again,) = await session.receive(1)
        assert (again.record.body, again.delivery_count) == (b"1", 1)
        last = Client(second)
        await last.settle(again, Complete())
        await last.commit()
        await until(lambda: first.namespace.counters.completed == 2)
        await session.close()
        await send_to_session(first, "a", "3")
        session = await SessionClient(first).accept("a")
        assert [each.record.body for each in await session.receive(1)] == [b"3"]
