"""What is received and deleted is settled when it is in the client's output, and not before."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Received, ReceiveMode, Undeliverable
from bridge.model import entity as model
from bridge.model.errors import SessionCannotBeLocked
from bridge.model.name import EntityPath, SubQueue
from bridge.wire import sessions as wire
from bridge.wire.amqp10.message import AmqpMessage, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import Attach, Disposition, Modified, Transfer
from bridge.wire.amqp10.types import Array, Uint
from tests.conformance.served import connections_of
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Door
from tests.integration.door import open_door as open_any_door
from tests.integration.gateway_door import Served, peer, serve
from tests.integration.session_door import SessionClient, bodies, send

PLAIN = model.Queue(name="plain", lock_duration_ms=60_000)
ORDERS = model.Queue(
    name="orders", lock_duration_ms=60_000, max_delivery_count=2, requires_session=True
)
DELETES = ReceiveMode.RECEIVE_AND_DELETE

SEEN = 0x4000_0001
"""The number of the next transfer, after the reply to the client's token."""

open_door = partial(open_any_door, session_shards=1)


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with a plain queue and one that requires sessions."""
    async with open_door(endpoint, broker.management_url, PLAIN, ORDERS) as opened:
        yield opened


@pytest_asyncio.fixture
async def doors(endpoint: Endpoint, broker: Broker) -> AsyncIterator[tuple[Door, Door]]:
    """Two bridges: the first owns the sessions, the second asks it."""
    url = broker.management_url
    async with (
        open_door(endpoint, url, ORDERS, with_sidecar=False) as first,
        open_door(endpoint, url, ORDERS) as second,
    ):
        await SessionClient(first).accept("nobody's")
        yield first, second


class Slow(SessionClient):
    """A client whose output takes messages only when the test says so."""

    def _deliver(self, received: Received) -> None:
        self.received.append(received)
        self._arrived.set()


@pytest.mark.parametrize("ending", ["detach", "close"])
@pytest.mark.parametrize("session", [(), ("s",)], ids=["plain", "session"])
async def test_what_a_shut_window_keeps_back_is_not_lost(
    door: Door, session: tuple[str, ...], ending: str
) -> None:
    """A client takes two of ten transfers and leaves: the others are the next one's, uncounted."""
    address = "orders" if session else "plain"
    texts = [str(number) for number in range(10)]
    async with serve(door) as served, peer(served) as other:
        async with peer(served) as of:
            await of.send_texts(address, texts, *session)
            of.receive_from(7, address, *session, deletes=True)
            await of.next(Attach, handle=7)
            of.credit(7, 10, next_incoming_id=SEEN, incoming_window=2)
            assert await of.bodies(7, 2) == texts[:2]
            await until(lambda: _blocked(served) == 8)
            if ending == "detach":
                await of.detach(7)
        other.receive_from(8, address, *session)
        other.credit(8, 8)
        assert [await other.message(8) for _ in range(8)] == [(text, 0) for text in texts[2:]]


@pytest.mark.parametrize("session", [(), ("s",)], ids=["plain", "session"])
async def test_what_a_window_kept_back_is_settled_when_it_opens(
    door: Door, session: tuple[str, ...]
) -> None:
    """All come once, in their order; nothing is left."""
    address = "orders" if session else "plain"
    texts = [str(number) for number in range(10)]
    async with serve(door) as served, peer(served) as of:
        await of.send_texts(address, texts, *session)
        of.receive_from(7, address, *session, deletes=True)
        await of.next(Attach, handle=7)
        for came in range(0, 10, 2):
            window = {"next_incoming_id": SEEN + came, "incoming_window": 2}
            of.credit(7, 10 - came, count=came, **window)
            assert await of.bodies(7, 2) == texts[came : came + 2]
        await until(lambda: door.namespace.counters.received_and_deleted == 10)
        await until(lambda: _is_empty(door, address))


async def test_a_receiver_settles_what_it_says_it_has_taken(doors: tuple[Door, Door]) -> None:
    """Any bridge may own the session; the other messages are the next receiver's, uncounted."""
    first, second = doors
    for at in (first, second):
        await send(second, "a", "1", "2", "3")
        client = await Slow(at).accept("a", mode=DELETES)
        assert bodies(await client.receive(3)) == ["1", "2", "3"]
        client.receiver.taken()
        await until(lambda: first.namespace.counters.received_and_deleted >= 1)
        await client.close()
        other = await _accept(first, mode=DELETES)
        received = await other.receive(2)
        assert [(each.record.body, each.delivery_count) for each in received] == [
            (b"2", 0),
            (b"3", 0),
        ]
        await until(lambda: first.namespace.counters.received_and_deleted >= 3)
        await other.close()
        first.namespace.counters.received_and_deleted = 0


async def test_a_bridge_that_dies_has_taken_nothing_that_it_did_not_say(
    endpoint: Endpoint, broker: Broker
) -> None:
    """Its clients' messages are the next receiver's."""
    url = broker.management_url
    async with open_door(endpoint, url, ORDERS) as first:
        await SessionClient(first).accept("nobody's")
        async with open_door(endpoint, url, ORDERS, with_sidecar=False) as second:
            await send(first, "a", "1", "2")
            client = await Slow(second).accept("a", mode=DELETES)
            await client.receive(2)
            client.receiver.taken()
            await until(lambda: first.namespace.counters.received_and_deleted == 1)
        other = await _accept(first)
        (received,) = await other.receive(1)
        assert (received.record.body, received.delivery_count) == (b"2", 0)


async def test_a_bridge_of_an_earlier_version_says_nothing(
    doors: tuple[Door, Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for messages that are settled when they are sent."""
    first, second = doors
    monkeypatch.setattr(wire, "WHEN_TAKEN", wire.WHEN_SENT)
    await send(second, "a", "1", "2")
    client = await Slow(second).accept("a", mode=DELETES)
    assert bodies(await client.receive(2)) == ["1", "2"]
    await until(lambda: first.namespace.counters.received_and_deleted == 2)


@pytest.mark.parametrize("at", [0, 1], ids=["owner", "another bridge"])
async def test_what_no_client_can_have_is_a_dead_letter(doors: tuple[Door, Door], at: int) -> None:
    """Not lost, although nothing was locked; what came before and behind it is not touched."""

    class Choosy(Slow):
        def _deliver(self, received: Received) -> None:
            if received.record.body == b"2":
                raise Undeliverable("no client can have it")
            super()._deliver(received)

    door = doors[at]
    await send(door, "a", "1", "2", "3")
    client = await Choosy(door).accept("a", mode=DELETES)
    client.receiver.add_credit(3)
    assert bodies(await client.wait(2)) == ["1", "3"]
    dead = door.client(path=EntityPath("orders", SubQueue.DEAD_LETTER))
    (letter,) = await dead.receive(1)
    assert letter.record.body == b"2"
    await client.close()
    other = await _accept(door)
    assert bodies(await other.receive(2)) == ["1", "3"]


async def _accept(door: Door, mode: ReceiveMode = ReceiveMode.PEEK_LOCK) -> SessionClient:
    """Accept session `a`, once its owner has heard of its earlier receiver's end."""
    accepted = SessionClient(door)

    async def is_free() -> bool:
        with contextlib.suppress(SessionCannotBeLocked):
            await accepted.accept("a", mode=mode)
            return True
        return False

    await until(is_free)
    return accepted


def _blocked(served: Served) -> int:
    """How many messages wait for the windows of all clients."""
    return sum(
        len(session._blocked)
        for connection in connections_of(served.gateway)
        for session in connection._endpoint.sessions.values()
    )


async def _is_empty(door: Door, address: str) -> bool:
    namespace = door.namespace
    (counts,) = await namespace.counting.counts([namespace.entity(EntityPath(address))])
    return counts.total == 0


DEFERRED = "com.microsoft:receive-by-sequence-number"


@pytest.mark.parametrize("ending", ["detach", "close"])
async def test_deferred_messages_whose_reply_has_no_credit_are_not_lost(
    door: Door, ending: str
) -> None:
    """The client leaves, and they are deferred still; a reply that is sent settles them."""
    async with serve(door) as served, peer(served) as other:
        async with peer(served) as of:
            await of.send_texts("plain", ["one"])
            of.receive_from(7, "plain")
            of.credit(7, 1)
            transfer, _ = await of.next(Transfer, handle=7)
            deferring = Modified(undeliverable_here=True)
            of.send(Disposition(True, transfer.delivery_id, None, False, deferring))
            await of.outcome(transfer.delivery_id)
            of.attach(2, "plain/$management", role=False)
            of.attach(3, "plain/$management", role=True)
            await of.next(Attach, handle=3)
            request = AmqpMessage(
                MessageProperties(message_id="1"), {"operation": DEFERRED}, _wanted(1)
            )
            of.transfer(2, encode_message(request))
            await until(lambda: _replies_waiting(served) == 1)
            if ending == "detach":
                await of.detach(3)
        reply: AmqpMessage | None = None

        async def is_deferred() -> bool:
            nonlocal reply
            reply = await other.manage("plain", DEFERRED, _wanted(1))
            return reply.application_properties["statusCode"] == 200

        await until(is_deferred)
        assert reply is not None
        assert len(reply.value["messages"]) == 1
        assert "lock-token" not in reply.value["messages"][0]
        await until(lambda: _is_empty(door, "plain"))


def _wanted(number: int) -> dict[str, object]:
    return {"sequence-numbers": Array("long", (number,)), "receiver-settle-mode": Uint(0)}


def _replies_waiting(served: Served) -> int:
    """How many replies wait for the credit of all clients."""
    return sum(
        len(link._waiting)
        for connection in served.gateway.connections
        for link in {each for links in connection.reply_links._found.values() for each in links}
    )
