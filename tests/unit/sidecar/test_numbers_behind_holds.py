"""Native messages that wait for their bucket while a migration holds their entity."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.connection.pool import ConnectionLease
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.machine.inbox.wheel import place
from bridge.model.entity import Queue, Tier
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import LeaderState
from bridge.sidecar.shared_connection import SharedConnection
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item
from tests.fixtures.model_broker import ClockLoop, ModelBroker
from tests.unit.sidecar.test_orderly_end import Term, turns

QUEUE = Queue(name="orders")
HELD = replace(QUEUE, held="run-1")
HOUR_MS = 3_600_000
DUE_MS = 10 * HOUR_MS


def test_a_native_message_waits_for_the_bucket_that_it_needs_when_the_hold_ends() -> None:
    """In the journal alone it would come again after a kill, and get a second number."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        broker = ModelBroker(loop)
        connection = await Connection.open(Endpoint(hosts=(("model", 5672),)), name="test")
        term = Term(connection, broker)
        await term.begin()
        shared = SharedConnection(connection)
        shared.boot = "boot"
        time_ms = [0]
        state = LeaderState(HELD, Tier.STANDARD)
        lease = ConnectionLease(connection, QUEUE.name)
        leader = Leader(state, lease, shared, clock=lambda: time_ms[0])
        leader.in_flight, leader.orderly_end = term.in_flight, term.end
        leader.sequencer = Sequencer(QUEUE, Tier.STANDARD, blank(is_partitioned=False))
        leader.is_ready = True
        delivery = Delivery(1, False, "", "", b"", b"native", "", cast("Channel", None), 0)
        item = Item(Properties(delivery_mode=2).encode(), b"native", scheduled_ms=DUE_MS)
        leader._carry_out(delivery, SendCommand(None, (item,)))
        messages, made = leader._buckets.messages, place(DUE_MS, 0)
        awaiting, wheel = messages._awaiting, leader.sequencer.memory.wheel
        assert awaiting.wanted == [made]
        wheel.add(made)
        awaiting.made(made)
        leader.go_on()
        await turns()
        assert not leader.sequencer.journal.entries, "it is held"
        time_ms[0] = DUE_MS - 10_000
        state.entity = QUEUE
        leader.go_on()
        await turns()
        needed = place(DUE_MS, time_ms[0])
        assert needed != made
        assert awaiting.wanted == [needed]
        assert not leader.sequencer.journal.entries, "it has no number before its bucket"
        messages.close()
        await term.close()
        await connection.close()

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(work())
