"""What goes on in a cluster one of whose nodes stays dead."""

from __future__ import annotations

import asyncio

import pytest

from bridge.broker.connection.endpoint import parse_url
from bridge.engine.api import ReceiveMode
from bridge.engine.clock import now_ms
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from tests.brokers.node import CREDENTIALS
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing

pytestmark = pytest.mark.long

ROUNDS = 4
AHEAD_MS = 3_000

LATE_MS = 2_000
"""Less than half of what a deletion takes (docs/rabbitmq-faults.md: slow-delete)."""


async def works(door: Door) -> bool:
    """Send a message, and receive it."""
    client = door.client(ReceiveMode.RECEIVE_AND_DELETE)
    try:
        await door.send("elected")
        await client.receive()
    except ServiceBusError:
        return False
    finally:
        await client.receiver.close()
    return True


async def test_schedules_go_on_while_deletions_take_5_s(cluster: Broker) -> None:
    """The deletions are of buckets that are over, and of the files that outlast a kill."""
    assert cluster.cluster is not None
    ours, dying, _ = cluster.cluster.nodes
    endpoint = parse_url(f"amqp://{CREDENTIALS}@127.0.0.1:{ours.port}")
    queue = model.Queue(name="orders")
    async with open_door(endpoint, ours.management_url, queue) as door:
        await until(lambda: door.sidecar.leading)
        await asyncio.to_thread(dying.kill)
        await until(lambda: works(door))
        (leader,) = door.sidecar.leading
        wheel = leader.sequencer.memory.wheel
        client, made, late_ms = door.client(ReceiveMode.RECEIVE_AND_DELETE), set(), []
        for number in range(ROUNDS):
            due_ms = now_ms() + AHEAD_MS
            message = outgoing(str(number), scheduled_ms=due_ms)
            await door.namespace.schedule(door.path, [message])
            made |= set(wheel.buckets)
            await client.receive()
            late_ms.append(now_ms() - due_ms)

        assert all(0 <= each < LATE_MS for each in late_ms), late_ms
        assert len(made) > 1
        await until(lambda: not wheel.buckets)  # they go, too
        assert door.sidecar.leading == [leader]
