"""Locks of routes that are lost, or cannot be had: of an order, of sessions, of messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from bridge.engine.api import Complete, Disposition, Received, ReceiveMode, Release
from bridge.gateway.server import Gateway
from bridge.model.entity import Queue
from bridge.model.errors import MessageSizeExceeded
from bridge.model.name import EntityPath
from bridge.relay.machine.lowest import PARTITION_SHIFT
from bridge.relay.plan.route import Place, RelayFile, Route
from bridge.relay.plan.source_identity import lock_name
from bridge.relay.running import held_sessions, lane, route_run
from bridge.relay.running.relay import Relay
from bridge.relay.running.session_lock import SessionLock
from bridge.relay.running.status import RouteState, RouteStatus
from tests.bench.memory_namespace import MemoryNamespace
from tests.bench.memory_queue import MemoryQueue, MemoryReceiver
from tests.bench.memory_sessions import MemorySessionReceiver, MemorySessions
from tests.conformance.remote import ONCE, remote, text, texts
from tests.conformance.served import QUEUE, gateway, queue_of
from tests.conformance.test_relay import SESSIONS, bodies, count_in, fill, relaying, side
from tests.fixtures.tap import busy, tap
from tests.fixtures.waiting import until

CONTROL = Queue(name="busbridge-relay", lock_duration_ms=5_000, requires_session=True)
ORDER = lock_name("azure", "q")
COUNT = 40
RENEWAL = "com.microsoft:renew-session-lock"


class Gated(MemoryNamespace):
    """A namespace whose peeks wait at a gate.

    Attributes:
        has_come: a peek waits.
    """

    def __init__(self, *definitions: Queue) -> None:
        super().__init__(*definitions)
        self.gate = asyncio.Event()
        self.has_come = asyncio.Event()

    async def peek(
        self, path: EntityPath, start: int, count: int, session_id: str | None = None
    ) -> Any:
        """Peek when the gate is open."""
        self.has_come.set()
        await self.gate.wait()
        return await super().peek(path, start, count, session_id)


@dataclass
class Ordered:
    """A route that keeps the order of `q`, and the session that is its lock."""

    namespace: Gated
    status: RouteStatus
    source: Gateway
    target: Gateway
    to_port: int

    @property
    def control(self) -> MemorySessions:
        """The control queue."""
        found = self.namespace._queues[CONTROL.name, EntityPath("q").sub_queue]
        assert isinstance(found, MemorySessions)
        return found

    async def is_taken_over(self) -> MemorySessionReceiver:
        """End the route's lock, and have another process take it."""
        self.control.holder(ORDER)._on_lock_end()
        return await self.control.accept(
            ORDER, ReceiveMode.PEEK_LOCK, lambda _: None, lambda _: None, 1.0
        )


@asynccontextmanager
async def ordered(
    arrange: Callable[[MemoryQueue], None] = lambda _: None, **options: Any
) -> AsyncIterator[Ordered]:
    """Run a route from `q` to `q` that keeps its order; the gate is shut.

    Args:
        arrange: done to the source's queue before the route begins.
    """
    namespace = Gated(QUEUE, CONTROL)
    async with gateway(namespace=namespace) as (source, from_port), gateway() as (target, to_port):
        await fill(from_port, texts(COUNT))
        arrange(queue_of(source))
        here, there = side("azure", from_port), side("local", to_port)
        route = Route(
            name="orders", source=Place(here, "q"), target=Place(there, "q"), order="entity",
            **options,
        )  # fmt: skip
        file = RelayFile({"azure": here, "local": there}, (route,), Place(here, CONTROL.name))
        relay = Relay(file)
        relay.start()
        (status,) = relay.statuses
        try:
            yield Ordered(namespace, status, source, target, to_port)
        finally:
            namespace.gate.set()
            await relay.stop()


async def test_an_order_whose_lock_is_lost_before_anything_is_received_is_not_begun() -> None:
    """While the source is looked at another process takes the order: this one stands by."""
    async with ordered() as both:
        await both.namespace.has_come.wait()
        other = await both.is_taken_over()
        both.namespace.gate.set()
        await until(lambda: both.status.state is RouteState.STANDING_BY)
        assert count_in(both.target) == 0
        assert not queue_of(both.source).locked
        await other.close()
        await until(lambda: both.status.relayed == COUNT)
        assert await bodies(both.to_port) == [str(each) for each in range(COUNT)]


async def test_an_order_whose_lock_is_another_s_is_left_at_once() -> None:
    """The link of its session ends, and nothing more is sent; not only when it is renewed next."""
    async with ordered(rate_per_s=4.0, credit=20) as both:
        both.namespace.gate.set()
        await until(lambda: both.status.relayed >= 4)
        other = await both.is_taken_over()
        await until(lambda: both.status.state is RouteState.STANDING_BY)
        sent = both.status.relayed
        assert sent < COUNT, "its next renewal is later than the last message of this rate"
        assert count_in(both.target) == sent
        assert not queue_of(both.source).locked
        await other.close()
        await until(lambda: both.status.relayed == COUNT)
        assert await bodies(both.to_port) == [str(each) for each in range(COUNT)]


async def test_a_lock_that_cannot_be_renewed_is_given_up_before_it_ends() -> None:
    """A server that is busy refuses each renewal; then another may have the session."""
    async with gateway(queue=SESSIONS) as (_, port), tap(port) as azure:
        azure.when("request", busy, operation=RENEWAL, times=99)
        failures: list[BaseException] = []
        async with remote(azure.port, patience=ONCE) as namespace:
            session = await namespace.session_receiver("q", "s")
            status = RouteStatus("orders", "", "")
            lock = SessionLock(session, status.now_ms, failures.append)
            assert "throttled" in await lock.lost()
            assert status.now_ms() < session.locked_until_ms
            assert failures
            assert not lock.lease.is_held(status.now_ms())
            await lock.release()


async def test_nothing_of_a_session_is_sent_when_its_lock_may_have_ended() -> None:
    """Renewals fail for longer than the lock lasts: no message comes twice."""
    async with (
        gateway(queue=SESSIONS) as (_, from_port),
        gateway(queue=SESSIONS) as (_, to_port),
        tap(from_port) as azure,
    ):
        azure.when("request", busy, operation=RENEWAL, times=5)
        await fill(from_port, [text(str(each), "s") for each in range(COUNT)])
        options = {"credit": 10, "sessions_at_once": 1, "rate_per_s": 4.0}
        async with relaying(azure.port, to_port, **options) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed >= COUNT)
            await until(lambda: not status.unconfirmed)
            assert status.incomplete == 0
        assert azure.is_done
        assert await bodies(to_port, session_id="s") == [str(each) for each in range(COUNT)]


@pytest.mark.parametrize("outage_s", [60.0, 1.0])
async def test_a_session_that_is_locked_at_the_target_waits_for_its_state(outage_s: float) -> None:
    """The others go on meanwhile, and the route with them; however long it takes."""
    async with (
        gateway(queue=SESSIONS) as (_, from_port),
        gateway(queue=SESSIONS) as (_, to_port),
        remote(from_port) as source,
        remote(to_port) as target,
    ):
        for each in "AB":
            await fill(from_port, [text(str(number), each) for number in range(5)])
            session = await source.session_receiver("q", each)
            await session.set_state(b"old")
            await session.close()
        busy_one = await target.session_receiver("q", "A")
        options = {"states": True, "outage_s": outage_s, "sessions_at_once": 2}
        async with relaying(from_port, to_port, **options) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed == 5 and "'A' is locked" in status.last_error)
            assert status.state is RouteState.RUNNING
            assert not relay.reasons
            assert await busy_one.state() is None
            await busy_one.close()
            await until(lambda: status.relayed == 10 and not status.unconfirmed)
        for each in "AB":
            session = await target.session_receiver("q", each)
            assert await session.state() == b"old"
            await session.close()
            assert await bodies(to_port, session_id=each) == [str(number) for number in range(5)]


class Picky(MemoryNamespace):
    """A namespace that refuses the states of sessions.

    Attributes:
        refused: the sessions whose states it refuses.
    """

    refused = frozenset({"A", "B"})

    async def set_session_state(
        self, path: EntityPath, session_id: str, state: bytes | None
    ) -> None:
        """Set a state, if it is not refused."""
        if session_id in self.refused:
            raise MessageSizeExceeded("The state is too large.")
        await super().set_session_state(path, session_id, state)


async def test_a_state_that_the_target_refuses_holds_up_its_session_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as sessions at once, and the others go on; each goes when the target takes it."""
    monkeypatch.setattr(held_sessions, "AGAIN_S", 0.2)
    monkeypatch.setattr(route_run, "STATES_S", 0.2)
    picky = Picky(SESSIONS)
    async with (
        gateway(queue=SESSIONS) as (_, from_port),
        gateway(namespace=picky) as (_, to_port),
        remote(from_port) as source,
        remote(to_port) as target,
    ):
        for each in "ABCD":
            await fill(from_port, [text(str(number), each) for number in range(5)])
            session = await source.session_receiver("q", each)
            await session.set_state(each.encode())
            await session.close()
        async with relaying(from_port, to_port, states=True, sessions_at_once=2) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed == 10 and status.held_up_sessions == 2)
            assert status.state is RouteState.RUNNING
            assert not status.is_sound
            (reason,) = relay.reasons
            assert "holds up 2 sessions: q refuses the state of the session" in reason
            picky.refused = frozenset()
            await until(lambda: status.relayed == 20 and not status.unconfirmed)
            await until(lambda: not relay.reasons)
        for each in "ABCD":
            session = await target.session_receiver("q", each)
            assert await session.state() == each.encode()
            await session.close()
            assert await bodies(to_port, session_id=each) == [str(number) for number in range(5)]


def lock(queue: MemoryQueue, count: int) -> list[UUID]:
    """Lock the first messages of a queue; return the tokens of their locks."""
    found: list[UUID] = []

    def deliver(received: Received) -> None:
        assert received.lock_token is not None
        found.append(received.lock_token)

    MemoryReceiver(queue, ReceiveMode.PEEK_LOCK, deliver).add_credit(count)
    queue.pump()
    return found


async def test_what_comes_behind_younger_ones_is_put_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As from a queue that a restart has put out of order: nothing is begun again for it."""
    monkeypatch.setattr(lane, "AWAITED_S", 60.0)
    async with ordered(lambda queue: queue.active.reverse()) as both:
        both.namespace.gate.set()
        await until(lambda: both.status.relayed == COUNT)
        assert not both.status.last_error
        assert await bodies(both.to_port) == [str(each) for each in range(COUNT)]


async def test_what_comes_back_a_little_later_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come already is kept meanwhile, and goes behind it."""
    monkeypatch.setattr(lane, "AWAITED_S", 60.0)
    tokens: list[UUID] = []
    async with ordered(lambda queue: tokens.extend(lock(queue, COUNT - 1))) as both:
        queue = queue_of(both.source)
        await until(lambda: len(queue.locked) == COUNT)
        both.namespace.gate.set()
        for each in tokens:
            queue.settle(each, Release())
        await until(lambda: both.status.relayed == COUNT)
        assert not both.status.last_error
        assert await bodies(both.to_port) == [str(each) for each in range(COUNT)]


@pytest.mark.parametrize("credit", [1_000, 5])
@pytest.mark.parametrize("outcome", [Release(), Complete()])
async def test_what_a_consumer_keeps_locked_is_awaited_in_place(
    outcome: Disposition, credit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Named, and the route is not begun again: what it has locked stays so. Then all go on.

    What was completed is not waited for; what comes finds room among more than the credit.
    """
    tokens: list[UUID] = []
    async with ordered(lambda queue: tokens.extend(lock(queue, 1)), credit=credit) as both:
        both.namespace.gate.set()
        queue, status = queue_of(both.source), both.status
        (token,) = tokens
        queue.locked[token][1].cancel()  # its lock is renewed for ever
        number = queue.locked[token][0].number
        await until(lambda: status.state is RouteState.AWAITING)
        assert f"message {number} of q comes next" in status.last_error
        assert not status.is_sound
        held = min(credit, COUNT - 1)
        await until(lambda: len(queue.locked) == held + 1 and status.unconfirmed == held)
        assert count_in(both.target) == 0
        queue.settle(token, outcome)
        relayed = COUNT - isinstance(outcome, Complete)
        await until(lambda: status.relayed == relayed and not status.unconfirmed)
        await until(lambda: status.state is RouteState.RUNNING)
        assert await bodies(both.to_port) == [str(each) for each in range(COUNT - relayed, COUNT)]
    assert "relay.ended" not in caplog.text


async def test_what_is_locked_in_a_partition_holds_up_no_other_one() -> None:
    """A partitioned source has an order within each partition alone."""

    def arrange(queue: MemoryQueue) -> None:
        for place, each in enumerate(sorted(queue.active)):
            each.number = (min(place, 1) << PARTITION_SHIFT) + place + 1
        lock(queue, 1)

    async with ordered(arrange) as both:
        both.namespace.gate.set()
        await until(lambda: both.status.relayed >= COUNT - 1)
        assert not both.status.last_error
        await until(lambda: both.status.relayed == COUNT)
        found = await bodies(both.to_port)
        assert found == [*(str(each) for each in range(1, COUNT)), "0"]


def end_locks(queue: MemoryQueue) -> None:
    """End the locks of all messages."""
    for token in list(queue.locked):
        queue.locked[token][1].cancel()
        queue._on_lock_end(token)


async def test_messages_whose_locks_are_lost_take_no_credit() -> None:
    """They come again, as many at once as before."""
    async with gateway() as (source, from_port), gateway() as (_, to_port):
        await fill(from_port, texts(8))
        async with relaying(from_port, to_port, rate_per_s=0.05, credit=7) as relay:
            (status,) = relay.statuses
            await until(lambda: status.relayed == 1 and len(queue_of(source).locked) == 7)
            end_locks(queue_of(source))
            await until(lambda: len(queue_of(source).locked) == 7)
            assert status.relayed == 1
