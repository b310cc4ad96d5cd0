"""Transactions through the engine's verbs, on a real RabbitMQ: all or nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    ReceiveMode,
)
from bridge.engine.clock import now_ms
from bridge.engine.transactions import commit_content, pins, transacting
from bridge.machine.inbox.applied import Applied
from bridge.machine.inbox.arrival import TransactionCommand
from bridge.machine.inbox.sequencer import Sequencer
from bridge.model import entity as model
from bridge.model.errors import (
    MessageLockLost,
    TransactionInDoubt,
    TransactionRolledBack,
)
from bridge.model.name import EntityPath
from bridge.sidecar.leader import leader
from bridge.topology import names
from bridge.wire.basic import text
from tests.fixtures.broker import Broker
from tests.fixtures.counting_calls import Calls
from tests.fixtures.waiting import until
from tests.integration.door import Door, outgoing
from tests.integration.session_door import SessionClient
from tests.integration.session_door import send as send_to_session
from tests.integration.transacting import TransactionClient, member

ORDERS = model.Queue(name="orders", lock_duration_ms=5_000, max_delivery_count=4)
SESSIONS = model.Queue(name="orders", lock_duration_ms=60_000, requires_session=True)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue."""
    async with member(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


async def ready(channel: Channel, queue: str) -> int:
    """How many messages wait in a queue, as RabbitMQ says."""
    return (await channel.declarations.declare_queue(queue, passive=True)).messages


async def test_a_commit_settles_and_sends(door: Door, confirming: Channel) -> None:
    """Each of the five ways of settling a message, and two sends, at once."""
    await door.send("complete", "abandon", "changed", "dead", "defer")
    client, transaction = door.client(), TransactionClient(door)
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
    assert door.namespace.transactions.in_doubt == 0
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
    transaction = TransactionClient(door)
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
    client, transaction = door.client(), TransactionClient(door)
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
    client, transaction = door.client(), TransactionClient(door)
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
    client, transaction = door.client(), TransactionClient(door)
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
    client, transaction = door.client(), TransactionClient(door)
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
    client, transaction = door.client(), TransactionClient(door)
    (received,) = await client.receive()
    await transaction.settle(received, Complete())
    transaction.sends, transaction.cancels = ["never"], [99]
    with pytest.raises(TransactionRolledBack, match="99"):
        await transaction.commit()
    await door.complete(received)


async def test_a_commit_that_fails_inside_its_leader_is_rolled_back_and_answered(
    door: Door, monkeypatch: pytest.MonkeyPatch, confirming: Channel
) -> None:
    """Its client is not in doubt, its lock goes on, and no dead letter comes of it."""

    def fail(sequencer: Sequencer, command: TransactionCommand, now_ms: int) -> Applied:
        raise RuntimeError("a bug")

    await door.send("a")
    client, transaction = door.client(), TransactionClient(door)
    (received,) = await client.receive()
    await transaction.settle(received, Complete())
    transaction.sends = ["never"]
    with monkeypatch.context() as patched:
        patched.setattr(leader, "apply_transaction", fail)
        with pytest.raises(TransactionRolledBack, match="a bug"):
            await transaction.commit()
    again = TransactionClient(door)
    await again.settle(received, Complete())
    again.sends = ["new"]
    await again.commit()
    (new,) = await client.receive()
    assert (new.record.body, new.sequence_number) == (b"new", 2)
    await door.complete(new)
    assert await ready(confirming, names.dead_letter_queue("orders")) == 0


async def test_a_commit_in_doubt_is_decided_later(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a leader nobody knows; the locks are kept, and carried out when one is there."""
    monkeypatch.setattr(transacting, "IN_DOUBT_S", 2.0)
    async with member(endpoint, broker.management_url, ORDERS) as leading:
        await leading.send("a")
        async with member(endpoint, broker.management_url, with_sidecar=False) as door:
            await until(
                lambda: "orders" in {e.name for e in door.namespace.directory.namespace.queues}
            )
            client, transaction = door.client(), TransactionClient(door)
            (received,) = await client.receive()
            await transaction.settle(received, Complete())
            transaction.sends = ["new"]
            await door.namespace.transactional("orders")
            await leading.sidecar.stop()
            with pytest.raises(TransactionInDoubt):
                await transaction.commit()
            assert door.namespace.transactions.in_doubt == 1
            with pytest.raises(MessageLockLost):
                await door.complete(received)
            async with member(endpoint, broker.management_url):
                await until(lambda: door.namespace.transactions.in_doubt == 0)
                (new,) = await client.receive()
                assert new.record.body == b"new"
                await door.complete(new)


async def test_a_commit_settles_what_another_bridge_holds(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Messages of a session that another bridge owns; a rollback leaves them to their receiver."""
    async with (
        member(endpoint, broker.management_url, SESSIONS) as first,
        member(endpoint, broker.management_url, with_sidecar=False) as second,
    ):
        await until(lambda: bool(second.namespace.directory.namespace.queues))
        await SessionClient(first).accept("nobody's")
        await send_to_session(first, "a", "1", "2", "3")
        for door in (first, second):
            session = await SessionClient(door).accept("a")
            received = await session.receive(3)
            rolled_back, transaction = TransactionClient(door), TransactionClient(door)
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


async def test_a_rollback_gives_a_message_to_the_next_receiver_of_its_session(
    endpoint: Endpoint, broker: Broker
) -> None:
    """The session was lost meanwhile: the earlier lock ends, whichever bridge has it."""
    async with (
        member(endpoint, broker.management_url, SESSIONS) as first,
        member(endpoint, broker.management_url, with_sidecar=False) as second,
    ):
        await until(lambda: bool(second.namespace.directory.namespace.queues))
        await SessionClient(first).accept("nobody's")
        for door in (first, second):
            await send_to_session(first, "a", "1")
            session = await SessionClient(door).accept("a")
            (received,) = await session.receive()
            transaction = TransactionClient(door)
            await transaction.settle(received, Complete())
            await session.close()
            accepting = asyncio.create_task(SessionClient(door).accept())
            transaction.verbs.release([pin for pin, _ in transaction.settlements])
            later = await accepting
            assert later.receiver.session_id == "a"
            (again,) = await later.receive()
            assert again.record.body == b"1"
            with pytest.raises(MessageLockLost):
                await session.settle(received, Complete())
            await later.settle(again, Complete())
            await later.close()


async def test_a_bridge_asks_about_what_another_one_has_pinned_and_left(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session's message is never in RabbitMQ's hands meanwhile: its owner asks the leader."""
    async with (
        member(endpoint, broker.management_url, SESSIONS) as first,
        member(endpoint, broker.management_url, with_sidecar=False) as second,
    ):
        await until(lambda: bool(second.namespace.directory.namespace.queues))
        await SessionClient(first).accept("nobody's")
        await send_to_session(first, "a", "1", "2")
        session = await SessionClient(second).accept("a")
        left, committed = await session.receive(2)
        for each in (left, committed):
            transaction = TransactionClient(second)
            await transaction.settle(each, Complete())
        entity = second.namespace.directory.send_entity(second.path)
        body = commit_content.encode(transaction.work(), entity)
        await second.namespace._sending.ask_leader(entity, body)
        pinned = first.namespace._pins
        assert len(pinned) == 2
        with monkeypatch.context() as later:
            later.setattr(pinned, "_clock", lambda: now_ms() + pins.PIN_MS)
            pinned._end_overdue()
        (again,) = await session.receive(1)
        assert (again.record.body, again.delivery_count) == (b"1", 1)
        last = TransactionClient(second)
        await last.settle(again, Complete())
        await last.commit()
        await until(lambda: first.namespace.counters.completed == 2)
        await session.close()
        await send_to_session(first, "a", "3")
        session = await SessionClient(first).accept("a")
        assert [each.record.body for each in await session.receive(1)] == [b"3"]


async def test_what_is_in_no_transaction_calls_nothing_of_them(door: Door) -> None:
    """Also at an entity that once had one."""
    await door.send("a")
    client, transaction = door.client(), TransactionClient(door)
    await transaction.settle((await client.receive())[0], Complete())
    await transaction.commit()
    await until(lambda: repr(door.namespace._reports) == "CarriedOutReports(0)")
    await door.send("b")  # it is confirmed behind the report
    await door.complete(*await client.receive())
    with Calls().of("/engine/transactions/", "/transaction_verbs.py") as found:
        await door.send(*map(str, range(10)))
        await door.complete(*await client.receive(10))
    assert not found


async def test_a_plain_message_costs_no_more_calls_where_a_transaction_was(
    endpoint: Endpoint, broker: Broker
) -> None:
    """One sent, received and completed, beside the same at an entity that never had one.

    Timers, and what comes in one turn, change the counts: so each function, at its fewest calls
    there, is called no more often than at its most here.
    """
    async with member(endpoint, broker.management_url, ORDERS, model.Queue(name="plain")) as door:
        await door.send("a")
        transaction = TransactionClient(door)
        await transaction.settle((await door.client().receive())[0], Complete())
        await transaction.commit()
        await until(lambda: repr(door.namespace._reports) == "CarriedOutReports(0)")
        counts: dict[str, list[Counter[str]]] = {"orders": [], "plain": []}
        for _ in range(20):
            for name, found in counts.items():
                path = EntityPath(name)
                client = door.client(path=path)
                with Calls().of() as calls:
                    await door.namespace.send(path, [outgoing("b")])
                    await door.complete(*await client.receive(), path=path)
                found.append(calls)
        functions = set().union(*counts["orders"])
        fewest = {one: min(each[one] for each in counts["orders"]) for one in functions}
        most = {one: max(each[one] for each in counts["plain"]) for one in functions}
        assert not {one for one in functions if fewest[one] > most[one]}
        totals = {name: sorted(each.total() for each in found) for name, found in counts.items()}
        assert totals["orders"][0] <= totals["plain"][len(totals["plain"]) // 2], totals


async def test_a_message_for_another_entity_goes_by_way_of_the_pinned_one(
    endpoint: Endpoint, broker: Broker
) -> None:
    """In order; of a commit that is refused none does."""
    queues = ORDERS, model.Queue(name="audit")
    async with member(endpoint, broker.management_url, *queues) as door:
        await door.send("a")
        (received,) = await door.client().receive()
        audit = EntityPath("audit")
        for cancels in ((99,), ()):
            transaction = TransactionClient(door)
            await transaction.settle(received, Complete())
            prepared = [
                transaction.verbs.prepare(door.path, audit, [outgoing("1"), outgoing("2")]),
                transaction.verbs.prepare(door.path, door.path, [outgoing("own")]),
                transaction.verbs.prepare(door.path, audit, [outgoing("3")]),
            ]
            work = replace(transaction.work(), sends=prepared, cancels=cancels)
            with pytest.raises(TransactionRolledBack) if cancels else nullcontext():
                await transaction.verbs.commit(work)
        found = await door.client(path=audit).receive(3)
        assert [each.record.body for each in found] == [b"1", b"2", b"3"]
        (own,) = await door.client().receive()
        assert own.record.body == b"own"
        await door.complete(own)
        await door.complete(*found, path=audit)


@pytest.mark.kills
@pytest.mark.parametrize(
    "point",
    [
        "engine.commit.begun",
        *[f"engine.send.published:{nth}" for nth in (1, 2, 3)],
        "engine.commit.decided",
        "engine.complete.acked",
    ],
)
async def test_a_killed_bridge_leaves_all_or_nothing(
    endpoint: Endpoint, broker: Broker, vhost: str, point: str
) -> None:
    """Before the decision the message comes again; behind it, it is gone, and the new one there."""
    async with member(endpoint, broker.management_url, ORDERS) as door:
        await door.send("a")
        killed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.transacting"),
            *(broker.url_of(vhost), broker.management_url),
            env=dict(os.environ, BUSBRIDGE_FAILPOINT=point),
        )
        async with asyncio.timeout(120):
            assert await killed.wait() == -signal.SIGKILL
        client = door.client()
        (received,) = await client.receive()
        found = received.record.body
        await door.complete(received)
        await door.send("last")
        (last,) = await client.receive()
        assert last.record.body == b"last"
        await door.complete(last)
        if point == "engine.commit.begun":
            assert found == b"a"
        elif point.startswith("engine.send"):
            assert found in (b"a", b"new")
        else:
            assert found == b"new"
