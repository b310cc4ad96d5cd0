"""A queue of RabbitMQ that is dead for a minute, under load: what it costs, what is left of it."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Complete, DeadLetter, Disposition, Received, ReceiveMode
from bridge.model import entity as model
from tests.fixtures.broker import Broker
from tests.fixtures.dead import dead_queue
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.test_dead_queues import NAME, QUEUES, Others, attempt, door

__all__ = ["door"]


@pytest.fixture(scope="module")
def broker(own_broker: Broker) -> Broker:
    """No other test meets what these do to a RabbitMQ."""
    return own_broker


class Traffic:
    """Everything that asks the dead entity's queues, again and again, and what came of it."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._numbers = itertools.count()
        self.is_sending = True
        self.accepted: set[str] = set()
        self.received: set[str] = set()

    @property
    def missing(self) -> set[str]:
        """What was accepted and has not been received."""
        return self.accepted - self.received

    async def run(self) -> None:
        """Go on until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._send, self._schedule, self._receive, self._defer, self._drain):
                tasks.create_task(work())

    async def _send(self) -> None:
        while self.is_sending:
            body = f"sent-{next(self._numbers)}"
            if await attempt(partial(self._door.send, body)):
                self.accepted.add(body)
            await asyncio.sleep(0.05)

    async def _schedule(self) -> None:
        while self.is_sending:
            body = f"scheduled-{next(self._numbers)}"
            due_ms = int(time.time() * 1000) + 8_000
            message = [outgoing(body, scheduled_ms=due_ms)]
            if await attempt(partial(self._door.namespace.schedule, self._door.path, message)):
                self.accepted.add(body)
            await asyncio.sleep(1)

    async def _receive(self) -> None:
        """Complete what comes; now and then dead-letter it, which may take several attempts."""
        client = self._door.client()
        for number in itertools.count():
            client.receiver.add_credit(1)
            await until(lambda: client.received, within_s=600)
            received = client.received.pop()
            body = received.record.body.decode()
            how = DeadLetter(reason="mine") if number % 10 == 5 else Complete()
            if await attempt(partial(self._settle, received, how)) and how == Complete():
                self.received.add(body)

    async def _settle(self, received: Received, how: Disposition) -> None:
        assert received.lock_token is not None
        await self._door.namespace.settle(self._door.path, received.lock_token, how)

    async def _drain(self) -> None:
        """Complete the dead letters."""
        path = self._door.dead_letters
        client = self._door.client(path=path)
        while True:
            client.receiver.add_credit(1)
            await until(lambda: client.received, within_s=600)
            received = client.received.pop()
            assert received.lock_token is not None
            if await attempt(
                partial(self._door.namespace.settle, path, received.lock_token, Complete())
            ):
                self.received.add(received.record.body.decode())

    async def _defer(self) -> None:
        """Ask for deferred messages, none of which are there."""
        ask = partial(
            self._door.namespace.receive_deferred, self._door.path, [1], ReceiveMode.PEEK_LOCK
        )
        while True:
            await attempt(ask)
            await asyncio.sleep(1)


@pytest_asyncio.fixture
async def elsewhere(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge of another virtual host with the same entities, of which none dies."""
    queues = (model.Queue(name=name, lock_duration_ms=60_000) for name in QUEUES)
    with broker.fresh_vhost() as name:
        there = replace(endpoint, vhost=name)
        async with open_door(there, broker.management_url, *queues) as opened:
            await until(lambda: all(opened.sidecar.meters[name].is_active for name in QUEUES))
            yield opened


class Share(NamedTuple):
    """What passed in a while.

    Attributes:
        ratio: how many times what passed elsewhere.
        cost_ms: processor time of both bridges for each message that passed.
    """

    ratio: float
    cost_ms: float


async def share(others: Others, twins: Others, seconds: float) -> Share:
    """Have both work at the same time."""
    for each in (others, twins):
        each.passed = 0
        await each.lock()
    begin_s = time.thread_time()
    await asyncio.gather(others.work_for(seconds), twins.work_for(seconds))
    spent_s = time.thread_time() - begin_s
    for each in (others, twins):
        await each.complete()
    return Share(others.passed / twins.passed, 1_000 * spent_s / (others.passed + twins.passed))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "queue", ["", "/$inbox", "/$journal", "/$scheduled/*", "/$deferred", "/$deadletterqueue"]
)
async def test_a_queue_that_is_dead_for_a_minute_costs_the_others_nothing(
    door: Door, elsewhere: Door, broker: Broker, vhost: str, queue: str
) -> None:
    """No lock, no count, not a quarter of their rate; and afterwards nothing is lost.

    The rate is compared with that of a bridge which has nothing to do with the dead queue, on the
    same RabbitMQ at the same time. They share a processor, so what a message costs is compared too.
    """
    others, twins, traffic = Others(door), Others(elsewhere), Traffic(door)
    running = asyncio.create_task(traffic.run())
    try:
        # The first scheduled messages have been through a bucket then.
        before = await share(others, twins, 12)
        async with dead_queue(broker, vhost, NAME + queue):
            # The first failure may cost those of one connection; a stream is waited for for 30 s.
            await until(lambda: [*door.namespace.state.silent, *door.sidecar.silent], within_s=120)
            await asyncio.sleep(5)
            during = [await share(others, twins, 15) for _ in range(4)]
        print(f"{NAME}{queue}: {before} before, {during} meanwhile, {others.passed / 15:.0f}/s")
        assert statistics.mean(each.ratio for each in during) > 0.75 * before.ratio
        assert statistics.mean(each.cost_ms for each in during) < 2 * before.cost_ms
        await until(lambda: attempt(partial(door.send, "last")), within_s=120)
        traffic.is_sending = False
        with suppress(TimeoutError):
            await until(lambda: not traffic.missing or running.done(), within_s=180)
        assert not running.done(), running
        assert traffic.missing == set()
        await until(lambda: not [*door.namespace.state.silent, *door.sidecar.silent], within_s=120)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
