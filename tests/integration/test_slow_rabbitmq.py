"""Schedules while RabbitMQ is slow: each answer of it takes hundreds of milliseconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pamqp.base
import pamqp.commands as spec
import pytest

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import parse_url
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.machine.inbox.wheel import place
from bridge.model.entity import Tier
from bridge.sidecar.leader.leader import RETURNING_S, Leader
from bridge.sidecar.leader.leader_state import LeaderState
from bridge.sidecar.leader.snapshots import MARGIN_S
from bridge.sidecar.shared_connection import SharedConnection
from bridge.topology import names
from bridge.topology.parts import bucket_queue
from bridge.wire import stamp
from bridge.wire.envelope import Item
from tests.fixtures.relay import Relay
from tests.fixtures.sidecar import BARE, Rig
from tests.fixtures.waiting import eventually, until
from tests.integration.test_takeover import ELDER, publish_all

MakeRig = Callable[..., Rig]

FORGOTTEN_S = RETURNING_S + MARGIN_S + 1
"""Time after a takeover in which all arrivals have come again, and are forgotten."""

WITHIN_S = 150.0
SOON_MS = 3_000
"""Far enough ahead to be scheduled on a machine that is busy."""

DELAY_S = 0.5
"""Each way: making a bucket then takes 6 s, three times as long as the finest interval."""


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


@pytest.mark.long
def test_a_schedule_that_is_due_at_a_takeover_stops_nobody(rig: MakeRig) -> None:
    """Its arrival comes again, and needs no bucket any more: it is active at once.

    Its bucket has a copy, which is dropped.
    """
    orders = rig()
    first = orders.start(failpoint="sequencer.number.confirmed")
    first.wait_ready()
    due_ms = now_ms() + SOON_MS
    orders.send(b"due", due_ms=due_ms)
    first.process.wait(120)
    eventually(lambda: now_ms() > due_ms)
    orders.send(b"behind")
    with Relay(orders.url, delay_s=DELAY_S) as relay:
        orders.start(url=relay.url)

        seen = orders.take(2, within_s=WITHIN_S)
        orders.send(b"last")
        (last,) = orders.take(1, within_s=WITHIN_S)

    assert [each.body for each in seen] == [b"due", b"behind"]
    assert last.body == b"last", "the copy was not dropped"
    assert seen[0].headers["x-busbridge-scheduled"] == 1


def test_a_bucket_that_is_being_made_holds_up_nothing_else(rig: MakeRig) -> None:
    """Messages sent behind a schedule are numbered behind it, and come before the bucket is there.

    A batch with the schedule in it, too; and the schedule's number is known at once.
    """
    orders = rig()
    with Relay(orders.url) as relay:
        orders.start(url=relay.url)
        orders.send(b"begun")
        orders.take(1)
        relay.delay_s = 1.0
        begin_s = time.monotonic()
        assert orders.schedule(b"later", due_ms=now_ms() + 3_600_000) == [2]
        orders.publish(b"native", headers={"x-opt-scheduled-enqueue-time": now_ms() + 7_200_000})
        orders.send(b"behind")
        seen = orders.take(1, within_s=WITHIN_S)
        took_s = time.monotonic() - begin_s
        assert not orders.buckets(), f"in {took_s:.1f} s"
        relay.delay_s = 0.0

        assert [(each.body, each.number) for each in seen] == [(b"behind", 3)]
        eventually(lambda: len(orders.buckets()) == 2)


@pytest.mark.parametrize("kind", ["enveloped", "native"])
def test_what_is_due_before_its_bucket_is_made_is_active_in_time(rig: MakeRig, kind: str) -> None:
    """It waits in the inbox, and is acked there when it is active."""
    orders = rig()
    with Relay(orders.url) as relay:
        orders.start(url=relay.url)
        orders.send(b"begun")
        orders.take(1)
        relay.delay_s = 0.7
        due_ms = now_ms() + 4_500
        if kind == "native":
            orders.publish(b"due", headers={"x-opt-scheduled-enqueue-time": due_ms})
        else:
            orders.send(b"due", due_ms=due_ms)
        (seen,) = orders.take(1, within_s=WITHIN_S)
        relay.delay_s = 0.0
        orders.sidecars[-1].stop()
    orders.start()
    orders.send(b"last")

    assert due_ms <= seen.at_ms < due_ms + 10_000
    assert [each.body for each in orders.take(1, before_kill=[seen])] == [b"last"]


@pytest.mark.long
async def test_health_names_what_waits_for_rabbitmq(rig: MakeRig) -> None:
    """The takeover, publications without a confirm, and schedules without a bucket."""
    orders = rig()
    with Relay(orders.url) as relay:
        endpoint = parse_url(relay.url)
        connection = await Connection.open(endpoint, name="slow")
        shared = SharedConnection(connection)
        await shared.open()
        state = LeaderState(orders.queue, Tier.STANDARD)
        leader = Leader(state, connection, shared)
        living = asyncio.create_task(leader.run())
        orders.publish(b"a")
        relay.delay_s = 1.0
        told: set[str] = set()

        async def is_told(reason: str) -> bool:
            told.update(state.waits.sentences())
            return any(reason in each for each in told)

        await until(lambda: is_told("the new leader reads the journal"))
        await until(lambda: leader.is_ready)
        due_ms = now_ms() + 3_600_000
        orders.send(b"later", due_ms=due_ms)
        await until(lambda: is_told("of scheduled messages is being made"))
        relay.delay_s = 4.0
        orders.publish(b"b")
        await until(lambda: is_told("RabbitMQ has not confirmed what was published"))
        relay.delay_s = 0.0
        await until(lambda: not state.waits.sentences(), within_s=WITHIN_S)
        assert all(each.startswith(f"'{orders.queue.name}' waits since") for each in told)
        await leader.stop()
        await living
        await connection.close()


class AtOpening:
    """Holds back the opening of the bucket, and what follows on its channel."""

    def __call__(self, method: pamqp.base.Frame) -> bool:
        """Whether this method is held."""
        return isinstance(method, spec.Basic.Consume) and names.BUCKETS_SUFFIX in method.queue


async def test_an_activation_that_may_be_lost_is_known_until_its_bucket_is_open(
    rig: MakeRig, connection: Connection
) -> None:
    """The queue may lack what the journal has; the bucket's message is published again then.

    Though RabbitMQ opens the bucket long after all arrivals have come again.
    """
    orders = rig()
    queue = orders.queue
    with Relay(orders.url, holds=AtOpening()) as relay:
        endpoint = parse_url(relay.url)
        slow = await Connection.open(endpoint, name="slow")
        shared = SharedConnection(slow)
        await shared.open()
        elder = Sequencer(queue, Tier.STANDARD, blank(is_partitioned=False))
        due_ms = now_ms()
        where = place(due_ms, due_ms)
        elder.memory.wheel.add(where)
        item = Item(BARE, b"due", None, due_ms)
        entries = [marker(queue, ELDER, shared.boot), *elder.snapshot(ELDER, shared.boot, 0)]
        (scheduled,) = elder.apply(SendCommand(bytes(15) + b"a", (item,)), due_ms - 1).publications
        waiting = stamp.unwait(scheduled.properties)
        (activation,) = elder.activate(waiting, b"due", due_ms)
        in_journal = activation._replace(exchange="", routing_key=names.journal(queue.name))
        orders.channel.queue_declare(
            scheduled.routing_key,
            durable=True,
            arguments=dict(bucket_queue(queue.name, *where).arguments),
        )
        await publish_all(connection, *entries, scheduled, in_journal)
        orders.publish(b"a")
        leader = Leader(LeaderState(queue, Tier.STANDARD), slow, shared)
        living = asyncio.create_task(leader.run())
        await asyncio.to_thread(orders.take, 1)
        await until(relay.holding.is_set)
        begin_s = time.monotonic()
        await until(lambda: time.monotonic() > begin_s + FORGOTTEN_S)
        relay.release()

        (seen,) = await asyncio.to_thread(orders.take, 1)
        await until(lambda: not leader.sequencer.memory.activated)
        await leader.stop()
        await living
        await slow.close()

    assert (seen.body, seen.number) == (b"due", 2)
