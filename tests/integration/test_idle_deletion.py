"""Temporary entities on a real RabbitMQ, by a clock that the test sets: what is used stays."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pika
import pytest
import pytest_asyncio

from bridge.engine.api import Received, ReceiveMode
from bridge.engine.namespace import RabbitNamespace
from bridge.machine.usage.idleness import LOOK_MS, temporaries
from bridge.model import entity as model
from bridge.model.entity import EntityStatus
from bridge.model.errors import EntityDisabled, EntityNotFound
from bridge.model.name import EntityPath
from bridge.sidecar.sidecar import Sidecar
from bridge.topology import definitions
from tests.fixtures.broker import Broker
from tests.fixtures.idle_bridge import FileClock, idle_bridge
from tests.fixtures.waiting import until
from tests.integration.door import outgoing

MINUTE_MS = 60_000
IDLE_MS = 5 * MINUTE_MS
STEP_MS = 20_000
"""Less than what counts as a gap in looking."""

ROOT = Path(__file__).parents[2]

JOBS = model.Queue(name="Jobs", auto_delete_on_idle_ms=IDLE_MS)
AUDIT = model.Subscription(topic="events", name="audit", auto_delete_on_idle_ms=IDLE_MS)
KEPT = model.Subscription(topic="events", name="kept")
EVENTS = model.Topic(name="events", auto_delete_on_idle_ms=2 * IDLE_MS, subscriptions=(AUDIT, KEPT))


@dataclass
class Rig:
    """A bridge, its clock, and a native client."""

    broker: Broker
    vhost: str
    namespace: RabbitNamespace
    sidecar: Sidecar
    clock: FileClock

    async def send(self, path: str, body: str) -> None:
        """Send a message, and wait until it has its number."""
        meters = self.sidecar.meters[self.namespace.entity(EntityPath(path)).path]
        before = meters.arrivals
        await self.namespace.send(EntityPath(path), [outgoing(body)])
        await until(lambda: meters.arrivals > before)

    def has(self, path: str) -> bool:
        """Whether an entity is there."""
        return self.namespace.directory.find(path) is not None

    def status(self, path: str) -> EntityStatus | None:
        """Return an entity's status; None when it is not there."""
        found = self.namespace.directory.find(path)
        return None if found is None else found.status

    async def gone(self, path: str) -> None:
        """Wait until an entity is deleted."""
        await until(lambda: not self.has(path))

    def left(self, path: str) -> list[str]:
        """Return what RabbitMQ has of an entity: queues, exchanges, and the definition."""
        base = path.lower()
        found = [
            row["name"]
            for kind in ("queues", "exchanges")
            for row in self.broker.management("GET", f"/api/{kind}/{self.vhost}")
            if row["name"] == base or row["name"].startswith(base + "/$")
        ]
        name = definitions.parameter_name(self.vhost, path)
        rows = self.broker.management("GET", "/api/global-parameters")
        return found + [row["name"] for row in rows if row["name"] == name]

    async def pass_time(self, by_ms: int) -> None:
        """Let time pass, no faster than the leaders can look."""
        while by_ms > 0:
            step_ms = min(by_ms, STEP_MS)
            await until(self.has_looked)
            self.clock.advance(step_ms)
            by_ms -= step_ms
        await until(self.has_looked)

    def has_looked(self) -> bool:
        """Whether the leaders here have looked at what they watch, a moment ago."""
        return all(
            self.clock() - leader.sequencer.memory.uses.looked_ms < LOOK_MS
            for leader in self.sidecar.leading
            if temporaries(leader.entity)
        )

    def native(self) -> Any:
        """Return a channel of a native client."""
        connection = pika.BlockingConnection(pika.URLParameters(self.broker.url_of(self.vhost)))
        channel = connection.channel()
        channel.confirm_delivery()
        return channel


@pytest.fixture
def clock(tmp_path: Path) -> FileClock:
    """A clock that shows the right time, for now."""
    (tmp_path / "clock").write_text("0")
    return FileClock(tmp_path / "clock")


@pytest_asyncio.fixture
async def rig(broker: Broker, vhost: str, clock: FileClock) -> AsyncIterator[Rig]:
    """A bridge with a temporary queue and a temporary topic."""
    async with idle_bridge(broker.url_of(vhost), broker.management_url, clock, JOBS, EVENTS) as (
        namespace,
        sidecar,
    ):
        await until(lambda: len(sidecar.leading) == 2)
        rig = Rig(broker, vhost, namespace, sidecar, clock)
        await until(rig.has_looked)
        yield rig


def ignore(received: Received) -> None:
    """Take a message, and do nothing."""


async def test_what_nobody_uses_is_deleted_and_nothing_of_it_is_left(rig: Rig) -> None:
    """Not before its five minutes; messages that wait are no use."""
    jobs = EntityPath("jobs")
    await rig.send("jobs", "waits")
    await rig.pass_time(IDLE_MS - 15_000)
    assert rig.status("jobs") is rig.status(AUDIT.path) is EntityStatus.ACTIVE

    await rig.pass_time(15_000)
    await rig.gone("jobs")
    await rig.gone(AUDIT.path)
    await until(lambda: not rig.left("jobs") and not rig.left(AUDIT.path))
    with pytest.raises(EntityNotFound):
        await rig.namespace.send(jobs, [outgoing("late")])

    assert rig.status("events") is rig.status(KEPT.path) is EntityStatus.ACTIVE
    await rig.pass_time(IDLE_MS)
    await rig.gone("events")
    await until(lambda: not rig.left("events") and not rig.left(KEPT.path))


async def test_sends_keep_queue_and_topic_and_no_subscription(rig: Rig) -> None:
    """A new rule keeps a subscription, and its topic."""
    for _ in range(2):
        await rig.pass_time(IDLE_MS - MINUTE_MS)
        await rig.send("jobs", "a")
        await rig.send("events", "b")
        await rig.namespace.administration.create_rule(
            KEPT.path, model.Rule(name=os.urandom(4).hex(), filter=model.TrueFilter())
        )
    assert rig.status("jobs") is rig.status("events") is EntityStatus.ACTIVE
    await rig.gone(AUDIT.path)


async def test_receivers_schedules_and_native_consumers_keep_what_they_use(rig: Rig) -> None:
    """As long as they last, and five minutes more."""
    consumer = rig.native()
    consumer.basic_consume("events/subscriptions/audit", lambda *_: None)
    receiver = rig.namespace.open_receiver(
        EntityPath("jobs"), mode=ReceiveMode.PEEK_LOCK, deliver=ignore
    )
    await rig.pass_time(IDLE_MS + MINUTE_MS)
    assert rig.status("jobs") is rig.status(AUDIT.path) is EntityStatus.ACTIVE
    due_ms = rig.clock() + 60 * MINUTE_MS
    (number,) = await rig.namespace.schedule(
        EntityPath("jobs"), [outgoing("later", scheduled_ms=due_ms)]
    )
    await receiver.close()
    consumer.connection.close()
    await rig.pass_time(IDLE_MS + MINUTE_MS)
    await rig.gone(AUDIT.path)
    assert rig.status("jobs") is EntityStatus.ACTIVE
    await rig.namespace.cancel_scheduled(EntityPath("jobs"), [number])
    await rig.pass_time(IDLE_MS - 15_000)
    assert rig.status("jobs") is EntityStatus.ACTIVE
    await rig.pass_time(15_000)
    await rig.gone("jobs")


async def test_who_sends_while_it_is_being_deleted_has_it_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doors refuse; a native publisher is heard, its message stays, and the status of before."""
    found = rig.namespace.directory.find("jobs")
    assert isinstance(found, model.Queue)
    await rig.namespace.administration.update(replace(found, status=EntityStatus.RECEIVE_DISABLED))
    monkeypatch.setattr("bridge.engine.administration.disposal.SETTLE_S", 1.0)
    await rig.pass_time(IDLE_MS)
    await until(lambda: rig.status("jobs") is EntityStatus.DELETING)
    with pytest.raises(EntityDisabled):
        await rig.namespace.send(EntityPath("jobs"), [outgoing("refused")])
    channel = rig.native()
    channel.basic_publish("jobs", "", b"in time", mandatory=True)

    await until(lambda: rig.status("jobs") is EntityStatus.RECEIVE_DISABLED)
    await until(lambda: channel.queue_declare("jobs", passive=True).method.message_count == 1)
    channel.connection.close()
    await rig.pass_time(IDLE_MS)
    await rig.gone("jobs")


@pytest.mark.kills
@pytest.mark.parametrize(
    "point",
    [
        "disposal.marked",
        "disposal.closed",
        "disposal.begun",
        "disposal.removed",
    ],
)
async def test_a_successor_finishes_what_a_killed_bridge_began(
    broker: Broker, vhost: str, clock: FileClock, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bridges; the one that deletes is killed at a step, and nothing of the queue is left."""
    monkeypatch.setattr("bridge.sidecar.idle_watch.ABANDONED_S", 0.5)
    url = broker.url_of(vhost)
    async with idle_bridge(url, broker.management_url, clock, JOBS) as (namespace, sidecar):
        await until(lambda: len(sidecar.leading) == 1)
    # The first to come leads.
    arguments = [sys.executable, "-m", "tests.fixtures.idle_bridge", url, broker.management_url]
    other = subprocess.Popen(  # noqa: ASYNC220 - it is killed, and waited for in a thread
        [*arguments, str(clock.path)],
        env={**os.environ, "BUSBRIDGE_FAILPOINT": point},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        assert await asyncio.to_thread(other.stdout.readline) == "ready\n"
        async with idle_bridge(url, broker.management_url, clock) as (namespace, sidecar):
            rig = Rig(broker, vhost, namespace, sidecar, clock)
            steps = IDLE_MS // STEP_MS + 1
            for _ in range(steps):
                await asyncio.sleep(0.15)  # the other process shows nobody when it has looked
                clock.advance(STEP_MS)
            await until(lambda: other.poll() is not None)
            await rig.gone("jobs")
            await until(lambda: not rig.left("jobs"))
    finally:
        other.kill()
        other.wait(120)
        other.stdout.close()
