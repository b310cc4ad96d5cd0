"""One owner of a single active consumer queue at a time, asked through the queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError, NotFound
from bridge.engine.ownership import asking
from bridge.engine.ownership.ownership import Ask, Ownership
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.sender import Sender
from bridge.model.errors import ServerBusy
from bridge.topology import parts
from bridge.wire import headers
from bridge.wire.basic import Properties, Table, text
from bridge.wire.reply import encode_found
from tests.fixtures.waiting import until

QUEUE = "orders/$sessions"
ASKS: Table = {headers.KIND: text("where")}


class Process:
    """A bridge's part in a queue: what it owns, and what it was told."""

    def __init__(self, name: str, connections: ConsumerConnections, sender: Sender) -> None:
        self.name = name.encode()
        self.sender = sender
        self.is_owner = False
        self.is_ready = True
        self.losses = 0
        self.messages: list[bytes] = []
        self.refused: list[bytes] = []
        self.ownership = Ownership(
            QUEUE,
            self,
            route=connections.route(QUEUE),
            sender=sender,
            asks="where",
            point="engine.session.acked",
        )

    async def ask(self) -> bytes:
        """Return who owns the queue."""
        return (await asking.ask(self.sender, QUEUE, ASKS, b"", what="anything")).content

    # What the ownership says.

    def became_owner(self) -> None:
        """It is this process."""
        self.is_owner = True

    def lost(self, channel: Channel, error: BrokerError) -> None:
        """It is not any more."""
        self.is_owner = False
        self.losses += 1

    def arrived(self, delivery: Delivery, kind: object, table: Table) -> None:
        """Keep a message."""
        if delivery.body == b"malformed":
            raise ValueError("malformed")
        self.messages.append(delivery.body)

    def reply_to(self, ask: Ask) -> bytes | None:
        """Say who it is."""
        if ask.body:
            raise ValueError("an ask has no body")
        return encode_found(self.name) if self.is_ready else None

    def refuse(self, delivery: Delivery, error: str) -> None:
        """Settle what cannot be read."""
        self.refused.append(delivery.body)
        delivery.channel.consumers.ack(delivery.tag)


@asynccontextmanager
async def running(endpoint: Endpoint, name: str) -> AsyncIterator[Process]:
    """A process with connections of its own."""

    async def on_up(connection: object) -> None:
        pass

    connections = ConsumerConnections(endpoint, name=name, on_up=on_up)
    sender = Sender(endpoint, name=name)
    connections.start()
    sender.start()
    await sender.ready.wait()
    try:
        yield Process(name, connections, sender)
    finally:
        await asyncio.gather(connections.close(), sender.close())


@pytest_asyncio.fixture
async def processes(
    endpoint: Endpoint, confirming: Channel
) -> AsyncIterator[tuple[Process, Process]]:
    """Two that consume the queue: the first owns it."""
    await confirming.declarations.declare_queue(parts.sessions_queue("orders"))
    async with running(endpoint, "one") as first, running(endpoint, "two") as second:
        await first.ownership.stand_by()
        await second.ownership.stand_by()
        yield first, second


async def test_whoever_asks_is_answered_by_the_owner(processes: tuple[Process, Process]) -> None:
    """And by the next one when that has left; nothing of the asks stays in the queue."""
    first, second = processes
    assert await second.ask() == await first.ask() == b"one"
    assert (first.is_owner, second.is_owner) == (True, False)
    first.ownership.leave()
    assert await first.ask() == b"two"
    assert second.is_owner
    assert second.messages == []


async def test_the_next_owner_has_the_token_at_once(processes: tuple[Process, Process]) -> None:
    """Though nobody asks, and with all that the earlier one held, in order."""
    first, second = processes
    await first.ask()
    first.ownership.keep_token()
    for body in (b"1", b"2"):
        await first.sender.publish("", QUEUE, Properties(delivery_mode=2).encode(), body)
    await until(lambda: first.messages == [b"1", b"2"])
    assert not second.is_owner
    await first.ownership.close()
    await until(lambda: second.is_owner)
    await until(lambda: second.messages == [b"1", b"2"])
    assert first.losses == 0, "it has left by itself"


async def test_asks_wait_until_there_is_an_answer(processes: tuple[Process, Process]) -> None:
    """In order; what goes with the owner is asked of the next."""
    first, second = processes
    first.is_ready = False
    waiting = asyncio.create_task(second.ask())
    await until(lambda: first.ownership.waiting == 1)
    assert first.ownership.channel is not None
    first.ownership.channel.abandon()
    assert await waiting == b"two"
    second.is_ready = False
    waiting = asyncio.create_task(first.ask())
    await until(lambda: second.ownership.waiting == 1)
    second.is_ready = True
    second.ownership.serve()
    assert await waiting == b"two"


async def test_what_cannot_be_read_stops_nobody(processes: tuple[Process, Process]) -> None:
    """A message or an ask: it is refused, and the next one has its turn."""
    first, second = processes
    properties = Properties(headers=ASKS, delivery_mode=2).encode()
    await first.sender.publish("", QUEUE, properties, b"no ask")
    await first.sender.publish("", QUEUE, Properties(delivery_mode=2).encode(), b"malformed")
    assert await second.ask() == b"one"
    assert first.refused == [b"no ask", b"malformed"]


async def test_a_queue_that_is_gone_is_said_and_can_come_back(
    processes: tuple[Process, Process], connection: object, confirming: Channel
) -> None:
    """The owner is told that it is none; who stands by or asks gets an error of Azure's."""
    first, _ = processes
    await first.ask()
    await confirming.declarations.delete_queue(QUEUE)
    await until(lambda: first.losses == 1)
    with pytest.raises(NotFound):
        await first.ownership.stand_by()
    with pytest.raises(ServerBusy):
        await asking.in_time(first.ownership.stand_by, what="anything")
    with pytest.raises(ServerBusy):
        await first.ask()
    await confirming.declarations.declare_queue(parts.sessions_queue("orders"))
    await first.ownership.stand_by()
    assert await first.ask() == b"one"


async def test_who_gives_up_standing_by_does_not_undo_it_for_others(
    endpoint: Endpoint, confirming: Channel
) -> None:
    """Two ask for it at once, and one of them is cancelled."""
    await confirming.declarations.declare_queue(parts.sessions_queue("orders"))
    async with running(endpoint, "one") as process:
        waits = [asyncio.create_task(process.ownership.stand_by()) for _ in range(2)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await waits[1]
        assert waits[0].cancelled()
        assert await process.ask() == b"one"
        assert process.is_owner
