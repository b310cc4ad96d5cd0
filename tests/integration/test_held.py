"""Entities that a migration holds: nothing comes, goes or falls due at any bridge until its end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import ReceiveMode
from bridge.engine.clock import now_ms
from bridge.engine.settlement.locktable import INSTANCE_BYTES
from bridge.machine.inbox.wheel import place
from bridge.model import entity as model
from bridge.model.errors import EntityConflict, EntityDisabled, ServerBusy
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.topology.parts import bound_by_own_name
from bridge.wire.basic import Properties
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

ORDERS, OTHER, SOURCE, SESSIONS = (
    EntityPath(name) for name in ("orders", "other", "source", "sessions")
)
RUN = "run-1"
QUEUES = (
    model.Queue(name="orders"),
    model.Queue(name="other"),
    model.Queue(name="source", forward_to="orders"),
    model.Queue(name="sessions", requires_session=True),
)
BARE = Properties(delivery_mode=2).encode()


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """The bridge that leads, and by which entities are held."""
    async with open_door(endpoint, broker.management_url, *QUEUES) as opened:
        await until(lambda: len(opened.sidecar.leading) == len(QUEUES))
        yield opened


@pytest_asyncio.fixture
async def beside(door: Door, endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """Another one, which is told."""
    async with open_door(endpoint, broker.management_url, with_sidecar=False) as opened:
        yield opened


async def hold(door: Door, path: EntityPath, *others: Door) -> None:
    """Hold an entity: other bridges know it then."""
    await door.namespace.administration.hold(path.entity, RUN)
    assert all(each.namespace.entity(path).held == RUN for each in (door, *others))


async def release(door: Door, path: EntityPath, *others: Door) -> None:
    """End the hold, likewise."""
    await door.namespace.administration.release(path.entity, RUN)
    await until(lambda: not any(each.namespace.entity(path).held for each in (door, *others)))


async def bodies(door: Door, path: EntityPath, count: int) -> list[str]:
    """Receive and delete so many messages."""
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE, path)
    found = await client.receive(count)
    await client.receiver.close()
    return [each.record.body.decode() for each in found]


async def test_every_bridge_refuses_and_names_the_run_until_the_hold_ends(
    door: Door, beside: Door
) -> None:
    """Sends, schedules, cancels and receives; peeks go on, and what is locked can be settled."""
    await door.send("a", "b")
    client = beside.client()
    (locked,) = await client.receive(1)
    await client.receiver.close()
    await hold(door, ORDERS, beside)
    for each in (door, beside):
        namespace = each.namespace
        for busy in (
            namespace.send(ORDERS, [outgoing("c")]),
            namespace.schedule(ORDERS, [outgoing("c", scheduled_ms=now_ms() + 60_000)]),
            namespace.cancel_scheduled(ORDERS, [7]),
        ):
            with pytest.raises(ServerBusy, match=f"'orders' is held by the migration '{RUN}'"):
                await busy
        for disabled in (
            namespace.receive_deferred(ORDERS, [7], ReceiveMode.PEEK_LOCK),
            namespace.delete_messages(ORDERS, 1, now_ms()),
        ):
            with pytest.raises(EntityDisabled, match=f"'orders' is held by the migration '{RUN}'"):
                await disabled
        with pytest.raises(EntityDisabled, match=RUN):
            each.client()
        peeked = await namespace.peek(ORDERS, 0, 10)
        assert [found.record.body for found in peeked] == [b"a", b"b"]
        assert any(f"'{RUN}' holds 'orders'" in warning for warning in namespace.state.warnings)
    await beside.complete(locked)
    await release(door, ORDERS, beside)
    await door.send("c")
    assert await bodies(beside, ORDERS, 2) == ["b", "c"]
    assert not any(RUN in warning for warning in beside.namespace.state.warnings)


async def test_sessions_of_a_held_entity_are_not_given(door: Door) -> None:
    """Nor are their states."""
    await hold(door, SESSIONS)
    for refused in (
        door.namespace.accept_session(
            SESSIONS,
            "s",
            mode=ReceiveMode.PEEK_LOCK,
            deliver=lambda received: None,
            on_lost=lambda error: None,
            timeout_s=5.0,
        ),
        door.namespace.session_state(SESSIONS, "s"),
    ):
        with pytest.raises(EntityDisabled, match=RUN):
            await refused


def waits(door: Door) -> bool:
    """Whether the message that is due is scheduled still."""
    leader = door.sidecar.routes.leader_of("orders")
    assert leader is not None
    return len(leader.sequencer.memory.pending) == 1


async def test_what_is_due_waits_for_the_end_of_the_hold_also_at_another_leader(
    endpoint: Endpoint, broker: Broker
) -> None:
    """A message of another queue that is due later is there before it."""
    async with open_door(endpoint, broker.management_url, *QUEUES) as first:
        due_ms = now_ms() + 3_000
        await first.namespace.schedule(ORDERS, [outgoing("held", scheduled_ms=due_ms)])
        await hold(first, ORDERS)
        await first.namespace.schedule(OTHER, [outgoing("free", scheduled_ms=due_ms + 500)])
        assert await bodies(first, OTHER, 1) == ["free"]
        assert waits(first)
    async with open_door(endpoint, broker.management_url, *QUEUES) as then:
        await until(lambda: len(then.sidecar.leading) == len(QUEUES))
        await then.namespace.schedule(OTHER, [outgoing("free", scheduled_ms=now_ms() + 1_500)])
        assert await bodies(then, OTHER, 1) == ["free"]
        assert waits(then)
        await release(then, ORDERS)
        assert await bodies(then, ORDERS, 1) == ["held"]


async def test_what_comes_meanwhile_gets_its_number_when_the_hold_ends(
    door: Door, confirming: Channel
) -> None:
    """Native publishers cannot be refused; the order is that of arrival."""
    await door.send("before")
    await hold(door, ORDERS)
    for text in (b"one", b"two"):
        await confirming.publisher.publish_confirmed("orders", "", BARE, text)
    meters = door.sidecar.meters["orders"]
    await until(lambda: meters.at_hand == 2)
    assert len(await door.namespace.peek(ORDERS, 0, 10)) == 1
    await release(door, ORDERS)
    client = door.client()
    found = await client.receive(3)
    assert [(each.sequence_number, each.record.body) for each in found] == [
        (1, b"before"),
        (2, b"one"),
        (3, b"two"),
    ]


async def test_the_leader_follows_a_hold_when_another_bridge_has_answered_it(
    door: Door, beside: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is numbered behind the answer; how long all took is in the log."""
    caplog.set_level(logging.INFO)
    leader = door.sidecar.routes.leader_of("orders")
    assert leader is not None
    await beside.namespace.administration.hold("orders", RUN)
    assert leader.is_held
    assert "hold.followed path=orders bridges=2 ms=" in caplog.text
    await release(beside, ORDERS, door)


async def test_a_hold_says_that_a_bridge_does_not_follow_and_may_be_asked_again(
    door: Door, confirming: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge that gives no answer may give numbers still."""
    monkeypatch.setattr("bridge.engine.definition_followers.FOLLOWED_S", 1.0)
    silent = names.bridge_queue(bytes(range(INSTANCE_BYTES)))
    declarations = confirming.declarations
    await declarations.declare_queue(silent, durable=False, exclusive=True, auto_delete=True)
    await declarations.bind(bound_by_own_name(names.ADMINISTRATION, silent))
    with pytest.raises(ServerBusy, match=r"'orders' is held .* not all bridges .* Ask again"):
        await door.namespace.administration.hold("orders", RUN)
    assert door.namespace.entity(ORDERS).held == RUN
    await declarations.delete_queue(silent)
    await door.namespace.administration.hold("orders", RUN)


async def test_what_gets_its_number_with_its_bucket_waits_for_the_end_of_the_hold(
    door: Door,
) -> None:
    """A native message does; what has a number goes to its bucket, and its arrival is acked."""
    leader = door.sidecar.routes.leader_of("orders")
    assert leader is not None
    await hold(door, ORDERS)
    done: list[str] = []
    far_ms = now_ms() + 40 * 86_400_000
    where = place(far_ms, now_ms())
    wheel = leader.sequencer.memory.wheel
    assert not wheel.is_usable(where)
    messages = leader._buckets.messages
    messages.await_number(where, far_ms, lambda: done.append("numbered"), 1)
    messages.await_bucket(where, far_ms, lambda: done.append("stored"), 1)
    await until(lambda: wheel.is_usable(where) and bool(done))
    messages.fire()
    assert done == ["stored"]
    await release(door, ORDERS)
    await until(lambda: done == ["stored", "numbered"])


async def test_forwarding_waits_at_a_held_source_and_before_a_held_target(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing becomes a dead letter."""
    caplog.set_level(logging.INFO)
    await hold(door, ORDERS)
    await door.namespace.send(SOURCE, [outgoing("a"), outgoing("b")])
    await until(lambda: "forward.waits entity=source" in caplog.text)
    await hold(door, SOURCE)
    await release(door, ORDERS)
    await door.send("alone")
    assert await bodies(door, ORDERS, 1) == ["alone"]
    await release(door, SOURCE)
    assert await bodies(door, ORDERS, 2) == ["a", "b"]
    (counts,) = await door.namespace.counting.counts([door.namespace.entity(SOURCE)])
    assert counts.dead_letter == 0


async def test_one_run_holds_an_entity_and_ends_its_own_hold(door: Door) -> None:
    """Both may be said twice: a run that was killed begins again."""
    administration = door.namespace.administration
    for _ in range(2):
        await administration.hold("Orders", RUN)
    for refused in (administration.hold("orders", "b"), administration.release("orders", "b")):
        with pytest.raises(EntityConflict, match=f"'orders' is held by the migration '{RUN}'"):
            await refused
    await administration.update(model.Queue(name="orders", max_delivery_count=3))
    assert door.namespace.entity(ORDERS).held == RUN
    for _ in range(2):
        await administration.release("orders", RUN)
    await door.send("a")
    assert await bodies(door, ORDERS, 1) == ["a"]
