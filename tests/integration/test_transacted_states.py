"""States of sessions in transactions, on a real RabbitMQ: set with all else, once, or never."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Complete
from bridge.engine.sessions import pinned_states
from bridge.engine.transactions import commit_content, transacting
from bridge.model import entity as model
from bridge.model.errors import (
    ServerBusy,
    ServiceBusError,
    SessionLockLost,
    TransactionInDoubt,
    TransactionRolledBack,
)
from bridge.topology import names
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door
from tests.integration.session_door import PATH, SessionClient, bodies, send
from tests.integration.transacting import TransactionClient, member

ORDERS = model.Queue(name="orders", lock_duration_ms=60_000, requires_session=True)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with one queue, which requires sessions."""
    async with member(endpoint, broker.management_url, ORDERS) as opened:
        yield opened


async def state_of(door: Door, session_id: str = "one") -> bytes | None:
    """Return the state of a held session."""
    return await door.namespace.session_state(PATH, session_id)


async def state_messages(confirming: Channel) -> int:
    """How many messages the queue of states has that nobody holds, once all bridges have ended."""
    name = names.sessions_queue("orders")
    return (await confirming.declarations.declare_queue(name, passive=True)).messages


async def test_a_commit_sets_a_state_together_with_all_else(door: Door) -> None:
    """What it settles and sends, too; before, the state is the earlier one."""
    await send(door, "one", "first")
    client = await SessionClient(door).accept("one")
    (received,) = await client.receive()
    transaction = TransactionClient(door)
    await transaction.settle(received, Complete())
    await transaction.set_state("one", b"new")
    assert await state_of(door) is None
    assert transaction.verbs.size_bytes(transaction.work()) < 1_000
    await transaction.commit()
    assert await state_of(door) == b"new"
    later = TransactionClient(door)
    await later.set_state("ONE", b"newer")
    await later.set_state("one", b"newest")
    await later.commit()
    assert await state_of(door) == b"newest"
    assert await door.namespace.list_sessions(PATH, updated_after_ms=0, skip=0, top=9) == ["one"]
    cleared = TransactionClient(door)
    await cleared.set_state("one", None)
    assert await state_of(door) == b"newest"
    await cleared.commit()
    assert await state_of(door) is None


async def test_a_rollback_leaves_the_state_as_it_was(door: Door, confirming: Channel) -> None:
    """It can be set right behind it; a session without a state has none in the end."""
    await SessionClient(door).accept("one")
    for before in (None, b"old"):
        await door.namespace.set_session_state(PATH, "one", before)
        transaction = TransactionClient(door)
        await transaction.set_state("one", b"never")
        transaction.verbs.release_sessions(transaction.states)
        assert await state_of(door) == before
    transaction = TransactionClient(door)
    await transaction.set_state("one", b"never")
    transaction.verbs.release_sessions(transaction.states)
    await door.namespace.set_session_state(PATH, "one", b"set")
    assert await state_of(door) == b"set"
    await door.namespace.set_session_state(PATH, "one", None)
    await door.namespace.close()
    assert await state_messages(confirming) == 1, "but for the ownership token"


async def test_a_session_is_locked_until_its_transaction_ends(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Beyond the time of its lock, which then goes on."""
    short = model.Queue(name="orders", lock_duration_ms=5_000, requires_session=True)
    async with member(endpoint, broker.management_url, short) as door:
        client = await SessionClient(door).accept("one")
        other = await SessionClient(door).accept("two")
        transaction = TransactionClient(door)
        await transaction.set_state("one", b"new")
        await other.wait_for_loss()
        assert not client.lost
        await transaction.commit()
        assert await state_of(door) == b"new"
        await client.wait_for_loss()


async def test_a_session_that_its_receiver_gives_up_rolls_its_transaction_back(
    door: Door,
) -> None:
    """Nobody else has had it meanwhile; the next receiver finds the state as it was."""
    await send(door, "one", "first")
    client = await SessionClient(door).accept("one")
    await door.namespace.set_session_state(PATH, "one", b"old")
    transaction = TransactionClient(door)
    await transaction.set_state("one", b"never")
    await client.close()
    accepting = asyncio.create_task(SessionClient(door).accept())
    with pytest.raises(ServiceBusError):
        await SessionClient(door).accept("one")
    with pytest.raises(TransactionRolledBack, match="The session lock has expired"):
        await transaction.commit()
    following = await accepting
    assert following.receiver.session_id == "one"
    assert await state_of(door) == b"old"


async def test_who_has_no_session_sets_no_state(door: Door) -> None:
    """In a transaction as outside of one; nor is it too large."""
    transaction = TransactionClient(door)
    with pytest.raises(SessionLockLost):
        await transaction.set_state("one", b"never")
    await SessionClient(door).accept("one")
    with pytest.raises(ServiceBusError, match="state"):
        await transaction.set_state("one", bytes(300_000))
    assert await state_of(door) is None


async def test_one_transaction_after_the_other_sets_a_state(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change outside of them waits, too, for a while."""
    await SessionClient(door).accept("one")
    first, second = TransactionClient(door), TransactionClient(door)
    await first.set_state("one", b"first")
    waiting = asyncio.create_task(second.set_state("one", b"second"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await first.commit()
    await waiting
    monkeypatch.setattr(pinned_states, "FREE_S", 0.1)
    with pytest.raises(ServerBusy, match="a transaction that is not ended yet"):
        await door.namespace.set_session_state(PATH, "one", b"plain")
    with pytest.raises(ServerBusy):
        await TransactionClient(door).set_state("one", b"third")
    await second.commit()
    await door.namespace.set_session_state(PATH, "one", b"plain")
    assert await state_of(door) == b"plain"


async def test_of_states_that_a_transaction_sets_at_once_the_last_counts(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Here and where another bridge owns the session; another transaction has that meanwhile."""
    async with (
        member(endpoint, broker.management_url, ORDERS) as owner,
        member(endpoint, broker.management_url, with_sidecar=False) as other,
    ):
        await until(lambda: bool(other.namespace.directory.namespace.queues))
        await SessionClient(owner).accept("nobody's")
        for number, door in enumerate((owner, other)):
            session_id = f"s{number}"
            client = await SessionClient(door).accept(session_id)
            first, second = TransactionClient(door), TransactionClient(door)
            await first.set_state(session_id, b"first")
            pinned = owner.namespace._sessions.owners.all[0].pinned
            states = (b"second", b"third", b"last")
            setting = [asyncio.create_task(second.set_state(session_id, each)) for each in states]
            await asyncio.wait(setting, timeout=0.5)
            first.verbs.release_sessions(first.states)
            async with asyncio.timeout(pinned_states.FREE_S):
                await asyncio.gather(*setting)
            seen = second.verbs.state_in(second.identity, PATH, session_id)
            assert seen is not None
            assert seen.state == b"last"
            await second.commit()
            assert await state_of(door, session_id) == b"last"
            assert not pinned
            await client.close()


async def test_a_session_waits_once_for_all_that_a_transaction_sets(door: Door) -> None:
    """Its owner is asked for it twice, as by a bridge that does not put them in order."""
    await SessionClient(door).accept("one")
    pinned = door.namespace._sessions.owners.all[0].pinned
    await pinned.pin("one", b"first")
    pinning = [asyncio.create_task(pinned.pin("one", b"second")) for _ in range(3)]
    await asyncio.wait(pinning, timeout=0.1)
    pinned.release("one", b"first")
    async with asyncio.timeout(pinned_states.FREE_S):
        assert len(set(await asyncio.gather(*pinning))) == 1
    pinned.release("one", b"second")
    assert not pinned


async def test_a_pin_that_nobody_ends_is_let_go(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client's bridge was killed before it asked for a commit."""
    monkeypatch.setattr(pinned_states, "PIN_S", 0.5)
    client = await SessionClient(door).accept("one")
    transaction = TransactionClient(door)
    await transaction.set_state("one", b"never")
    await client.close()
    await until(lambda: not door.namespace._sessions.owners.all[0].pinned)
    with pytest.raises(TransactionRolledBack):
        await transaction.commit()
    await SessionClient(door).accept("one")
    assert await state_of(door) is None


@pytest.mark.parametrize("is_published", [True, False])
async def test_an_owner_asks_what_was_decided_about_a_pin_that_nobody_ends(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch, is_published: bool
) -> None:
    """The bridge of the client was killed behind the commit's envelope, or before it."""
    monkeypatch.setattr(pinned_states, "PIN_S", 3.0)
    async with member(endpoint, broker.management_url, ORDERS) as owner:
        await SessionClient(owner).accept("one")
        async with member(endpoint, broker.management_url, with_sidecar=False) as other:
            await until(lambda: bool(other.namespace.directory.namespace.queues))
            transaction = TransactionClient(other)
            await transaction.set_state("one", b"new")
            (pin,) = transaction.pins
            await other.namespace.transactional("orders")
            await other.namespace.transactions._states.keep(pin)
            body = commit_content.encode(
                transaction.work(), other.namespace.directory.send_entity(PATH)
            )
            if is_published:
                await other.namespace._sending.ask_leader(
                    other.namespace.directory.send_entity(PATH), body
                )
            await until(lambda: not owner.namespace._sessions.owners.all[0].pinned)
            assert await state_of(owner) == (b"new" if is_published else None)
            if not is_published:  # it is the fence: the envelope may come late
                await other.namespace._sending.ask_leader(
                    other.namespace.directory.send_entity(PATH), body
                )
                await owner.namespace.set_session_state(PATH, "one", b"old")
                await owner.namespace._sessions.owners.all[0].pinned.take_over()
                assert await state_of(owner) == b"old"


@pytest.mark.parametrize("lost", [pytest.param("before", marks=pytest.mark.long), "decided", "set"])
async def test_the_next_owner_sets_what_was_decided_once(
    endpoint: Endpoint, broker: Broker, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Its predecessor is gone before the commit, before it has set the state, or said so."""
    async with (
        member(endpoint, broker.management_url, ORDERS) as leading,
        member(endpoint, broker.management_url, with_sidecar=False) as owner,
    ):
        await until(lambda: bool(owner.namespace.directory.namespace.queues))
        client = await SessionClient(owner).accept("one")
        await owner.namespace.set_session_state(PATH, "one", b"old")
        transaction = TransactionClient(owner)
        await transaction.set_state("one", b"new")
        shard = owner.namespace._sessions.owners.all[0]
        if lost == "before":
            shard.ownership.channel.abandon()  # type: ignore[union-attr]
            await client.wait_for_loss()
            with pytest.raises(TransactionRolledBack, match="session lock has expired"):
                await transaction.commit()
        else:
            broken = asyncio.Event()

            async def breaks(*given: object) -> None:
                if lost == "set":
                    await replace(*given)  # type: ignore[arg-type]
                broken.set()
                await asyncio.Event().wait()

            replace = shard.stored.replace
            monkeypatch.setattr(shard.stored, "replace", breaks)
            committing = asyncio.create_task(transaction.commit())
            await broken.wait()
            await asyncio.wait_for(owner.namespace.close(), 60)
            await asyncio.wait({committing})
            assert isinstance(committing.exception(), TransactionInDoubt | None)
        following = await SessionClient(leading).accept("one")
        assert await state_of(leading) == (b"old" if lost == "before" else b"new")
        await leading.namespace.set_session_state(PATH, "one", None)
        # Nobody says any more that it was not set.
        await until(lambda: not leading.namespace._reports._due)
        shard = leading.namespace._sessions.owners.all[0]
        shard.ownership.channel.abandon()  # type: ignore[union-attr]
        await following.wait_for_loss()
        await SessionClient(leading).accept("one")
        assert await state_of(leading) is None


async def test_a_commit_that_has_no_answer_reads_as_decided(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that asks for its state is answered when that is known."""
    await SessionClient(door).accept("one")
    transaction = TransactionClient(door)
    await transaction.set_state("one", b"new")
    released = asyncio.Event()
    stored = door.namespace._sessions.owners.all[0].stored
    replace = stored.replace

    async def late(*given: object) -> None:
        await released.wait()
        await replace(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(stored, "replace", late)
    monkeypatch.setattr(transacting, "WRITTEN_S", 0.1)
    await transaction.commit()
    reading = asyncio.create_task(state_of(door))
    await asyncio.sleep(0)
    assert not reading.done()
    released.set()
    assert await reading == b"new"


@pytest.mark.parametrize("is_committed", [True, False])
async def test_messages_of_a_session_keep_their_order_when_its_receiver_gives_it_up(
    door: Door, is_committed: bool
) -> None:
    """Nobody gets what is behind a transaction's message before the transaction has ended."""
    await send(door, "one", "first", "second", "third")
    client = await SessionClient(door).accept("one")
    first, _ = await client.receive(2)
    transaction = TransactionClient(door)
    await transaction.settle(first, Complete())
    await client.close()
    accepting = asyncio.create_task(SessionClient(door).accept())
    with pytest.raises(ServiceBusError):
        await SessionClient(door).accept("one")
    assert not accepting.done()
    if is_committed:
        await transaction.commit()
    else:
        transaction.verbs.release([pin for pin, _ in transaction.settlements])
    following = await accepting
    expected = ["second", "third"] if is_committed else ["first", "second", "third"]
    assert bodies(await following.receive(len(expected))) == expected


async def test_a_message_keeps_its_sessions_lock_until_its_transaction_ends(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Beyond the time of the session's lock; what is behind it is in order when that is over."""
    short = model.Queue(name="orders", lock_duration_ms=5_000, requires_session=True)
    async with member(endpoint, broker.management_url, short) as door:
        await send(door, "one", "first", "second")
        client = await SessionClient(door).accept("one")
        other = await SessionClient(door).accept("two")
        (first,) = await client.receive()
        transaction = TransactionClient(door)
        await transaction.settle(first, Complete())
        await other.wait_for_loss()
        assert not client.lost
        transaction.verbs.release([pin for pin, _ in transaction.settlements])
        await client.wait_for_loss()
        following = await SessionClient(door).accept("one")
        found = await following.receive(2)
        assert [(each.record.body, each.delivery_count) for each in found] == [
            (b"first", 1),
            (b"second", 0),
        ]


@pytest.mark.kills
@pytest.mark.parametrize(
    "point",
    [
        "engine.commit.begun",
        *[f"engine.send.published:{nth}" for nth in range(1, 7)],
        "engine.commit.decided",
        "engine.complete.acked",
        *[f"engine.session.acked:{nth}" for nth in range(1, 6)],
    ],
)
async def test_a_killed_owner_leaves_the_state_with_all_else_or_without(
    endpoint: Endpoint, broker: Broker, vhost: str, point: str
) -> None:
    """Between the decision and the state, too; or it is not killed, and all is there."""
    async with member(endpoint, broker.management_url, ORDERS) as door:
        await send(door, "one", "a")
        killed = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.transacting"),
            *(broker.url_of(vhost), broker.management_url, "one"),
            env=dict(os.environ, BUSBRIDGE_FAILPOINT=point),
        )
        async with asyncio.timeout(120):
            how = await killed.wait()
        assert how in (-signal.SIGKILL, 0)
        assert how or ":" in point, "it was to be killed"
        client = await SessionClient(door).accept("one")
        (received,) = await client.receive()
        state = await state_of(door)
        if point in ("engine.commit.decided", "engine.complete.acked") or not how:
            assert (state, received.record.body) == (b"new", b"new")
        elif point == "engine.commit.begun":
            assert (state, received.record.body) == (b"old", b"a")
        else:
            assert (state == b"new") is (received.record.body == b"new")
        await client.settle(received, Complete())
        await send(door, "one", "last")
        (last,) = await client.receive()
        assert last.record.body == b"last"
