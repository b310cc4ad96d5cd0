"""Transactions of an entity that a migration holds: what they have decided is told meanwhile."""

from __future__ import annotations

import asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Complete
from bridge.engine.transactions import commit_content
from bridge.wire import commits
from bridge.wire.commits import CommitVerdict
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door
from tests.integration.session_door import PATH, SessionClient, bodies, send
from tests.integration.test_transacted_states import ORDERS, state_of
from tests.integration.transacting import TransactionClient, member

RUN = "run-1"


async def hold(door: Door) -> None:
    """Hold the queue, and see that its bridge follows."""
    await door.namespace.administration.hold("orders", RUN)
    await until(lambda: door.namespace.entity(PATH).held == RUN)


async def release(door: Door) -> None:
    """End the hold."""
    await door.namespace.administration.release("orders", RUN)
    await until(lambda: not door.namespace.entity(PATH).held)


async def lose(door: Door) -> None:
    """Have the bridge lose the queue's sessions, and own them again."""
    (owner,) = door.namespace._sessions.owners.all
    assert owner.ownership.channel is not None
    owner.ownership.channel.abandon()
    await until(lambda: not owner.is_ready)
    await until(lambda: owner.is_ready)


async def test_a_shards_new_owner_is_ready_while_a_migration_holds_its_entity(
    endpoint: Endpoint, broker: Broker
) -> None:
    """It asks its leader what transactions have decided, and is answered."""
    async with member(endpoint, broker.management_url, ORDERS) as door:
        await send(door, "one", "a", "b")
        client = await SessionClient(door).accept("one")
        (received, _) = await client.receive(2)
        transaction = TransactionClient(door)
        await transaction.settle(received, Complete())
        await transaction.set_state("one", b"new")
        await transaction.commit()
        await hold(door)
        await lose(door)
        states = door.namespace.importing.states
        assert [each for each, _ in await states.digests(PATH, RUN)] == ["one"]
        await release(door)
        client = await SessionClient(door).accept("one")
        assert await state_of(door) == b"new"
        assert bodies(await client.receive()) == ["b"]


async def test_a_commit_that_waits_for_the_end_of_a_hold_is_refused_if_its_session_was_lost(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Its session's next owner has asked meanwhile, and was told that nothing is decided."""
    async with member(endpoint, broker.management_url, ORDERS) as door:
        await send(door, "one", "a")
        client = await SessionClient(door).accept("one")
        (received,) = await client.receive()
        await door.namespace.set_session_state(PATH, "one", b"old")
        before = TransactionClient(door)
        await before.set_state("one", b"older")
        await before.commit()
        transaction = TransactionClient(door)
        await transaction.settle(received, Complete())
        await transaction.set_state("one", b"never")
        transaction.session_id, transaction.sends = "one", ["never"]
        entity = door.namespace.directory.send_entity(PATH)
        body = commit_content.encode(transaction.work(), entity)
        await hold(door)
        (leader,) = door.sidecar.leading
        committing = asyncio.create_task(door.namespace._sending.ask_leader(entity, body))
        await until(lambda: leader._arrivals.was_passed_over)
        await lose(door)
        assert leader._arrivals.was_passed_over
        await release(door)
        await asyncio.gather(committing, return_exceptions=True)  # it may have waited for too long
        answer = await door.namespace._sending.ask_leader(entity, body)
        verdict, _ = commits.decode_verdict(answer.content)
        assert verdict is CommitVerdict.REFUSED
        client = await SessionClient(door).accept("one")
        assert await state_of(door) == b"older"
        assert bodies(await client.receive()) == ["a"]
