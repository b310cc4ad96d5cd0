"""Who takes over waits until the last sequencer's publications are over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.broker.connection.address import take_address
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.handover import HandOver, Publish
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Tier
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import LeaderState
from bridge.sidecar.shared_connection import SharedConnection
from bridge.topology import names
from bridge.wire import journal
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item
from tests.fixtures.sidecar import BARE, Rig

ELDER = bytes([7] * 16)
LATE = 300


async def test_publications_that_come_late_keep_their_numbers(
    rig: Callable[..., Rig], connection: Connection, shared: SharedConnection, endpoint: Endpoint
) -> None:
    """The next number is the one after those.

    When a connection ends, RabbitMQ may give its arrivals to the next sequencer while it still
    carries out what was published. Here that goes on while the next one reads the journal.
    """
    orders = rig()
    queue = orders.queue
    elder = Sequencer(queue, Tier.STANDARD, blank(is_partitioned=False))
    theirs = await Connection.open(endpoint, name="elder")
    channel = await theirs.channel()
    await channel.publisher.confirm_select()
    await take_address(channel)
    handover = HandOver(channel)

    async def publish(*entries: Publication) -> None:
        publishes = [Publish(*each) for each in entries]
        await handover.move(publishes, failpoint="sequencer.number")

    await publish(marker(queue, ELDER, shared.boot), *elder.snapshot(ELDER, shared.boot, 0))
    orders.publish(b"last")
    leader = Leader(LeaderState(queue, Tier.STANDARD), connection, shared)
    living = asyncio.create_task(leader.run())
    await _await_marker(connection, queue.name, but=ELDER)
    for number in range(1, LATE + 1):
        late = Item(BARE, b"%d" % number, None, None)
        await publish(*elder.apply(SendCommand(number.to_bytes(16), (late,)), 1_000).publications)
    assert not leader.is_ready
    await theirs.close()

    seen = await asyncio.to_thread(orders.take, LATE + 1)

    assert [each.number for each in seen] == list(range(1, LATE + 2))
    assert seen[-1].body == b"last"
    await leader.stop()
    await living


async def _await_marker(connection: Connection, entity: str, *, but: bytes) -> None:
    """Wait until another term than this has announced itself in the journal."""
    channel = await connection.channel()
    found = asyncio.Event()

    def on_delivery(delivery: Delivery) -> None:
        table = Properties.decode(delivery.properties).headers or {}
        is_marker = table.get("x-busbridge-entry", ("V", None))[1] == journal.MARKER.encode()
        if is_marker and journal.Marker.decode(delivery.body).term != but:
            found.set()

    await channel.consumers.qos(100)
    offset = {"x-stream-offset": ("S", b"first")}
    await channel.consumers.consume(names.journal(entity), on_delivery, arguments=offset)
    async with asyncio.timeout(120):
        await found.wait()
    await channel.close()
