"""What whoever takes over reads of the journal does not grow with those before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.connection.connection import Connection
from bridge.model.entity import Tier
from bridge.sidecar.leader import Leader
from bridge.sidecar.leader_state import LeaderState
from bridge.sidecar.shared_connection import SharedConnection
from tests.fixtures.sidecar import Rig

MESSAGES = 3_000


async def test_each_of_ten_restarts_reads_no_more_than_the_one_before(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection
) -> None:
    """One reads what the first wrote since its last snapshot; the others a few entries."""
    orders = rig()
    for number in range(MESSAGES // 100):
        orders.send(*(b"%d" % number for _ in range(100)))
    read: list[int] = []
    numbers: list[int] = []
    for index in range(10):
        state = LeaderState(orders.queue, Tier.STANDARD)
        leader = Leader(state, connection, shared)
        living = asyncio.create_task(leader.run())
        orders.publish(b"last")
        seen = await asyncio.to_thread(orders.take, 1 if index else MESSAGES + 1)
        numbers += [each.number for each in seen]
        read.append(leader.meters.takeover_entries)
        await leader.stop()
        await living

    assert numbers == list(range(1, MESSAGES + 11))
    assert read[1] > 500
    # A marker or two, a snapshot, one message and the end of the term before; and the own marker.
    assert max(read[2:]) < 10, read
