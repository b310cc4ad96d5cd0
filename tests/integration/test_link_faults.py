"""A fault in the handling of one link ends that link: others keep locks, sessions and channels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.api import Complete, Received, ReceiveMode
from bridge.machine.amqp10.link import OutgoingDelivery, OutgoingLink
from bridge.machine.amqp10.session import AmqpSession
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.wire.amqp10.performatives import Accepted, Attach, Detach, Disposition, Transfer
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import Client, Door, open_door
from tests.integration.gateway_door import peer, serve
from tests.integration.session_door import SessionClient, bodies, of_session

ORDERS = model.Queue(name="orders", lock_duration_ms=60_000)
SESSIONS = model.Queue(name="sessions", lock_duration_ms=60_000, requires_session=True)
OF_SESSIONS = EntityPath("sessions")

FAULTY, SOUND = 7, 8


@pytest_asyncio.fixture
async def door(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Door]:
    """A bridge with a plain queue and one that requires sessions, in one shard."""
    url = broker.management_url
    async with open_door(endpoint, url, ORDERS, SESSIONS, session_shards=1) as opened:
        yield opened


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sending on the link `FAULTY` fails inside the bridge."""
    send = OutgoingLink.send

    def fail(link: OutgoingLink, *arguments: Any, **options: Any) -> Any:
        if link.handle == FAULTY:
            raise RuntimeError("a fault of the bridge")
        return send(link, *arguments, **options)

    monkeypatch.setattr(OutgoingLink, "send", fail)


@pytest.mark.parametrize("deletes", [False, True], ids=["locks", "deletes"])
@pytest.mark.parametrize("session", [(), ("s",)], ids=["plain", "session"])
@pytest.mark.usefixtures("faulty")
async def test_a_link_that_fails_ends_alone_and_gives_its_message_back(
    door: Door, session: tuple[str, ...], deletes: bool
) -> None:
    """The client's other link keeps its lock, and the failed link's message comes uncounted."""
    address = "sessions" if session else "orders"
    async with serve(door) as served, peer(served) as of:
        await of.send_texts("orders", ["innocent"])
        of.receive_from(SOUND, "orders")
        of.credit(SOUND, 1)
        innocent, _ = await of.next(Transfer, handle=SOUND)
        of.receive_from(FAULTY, address, *session, deletes=deletes)
        await of.next(Attach, handle=FAULTY)
        of.credit(FAULTY, 5)
        await of.send_texts(address, ["one"], *session)
        detach = await of.next(Detach, handle=FAULTY)
        assert detach.error.condition == "amqp:internal-error"

        of.receive_from(9, address, *session)
        of.credit(9, 1)
        assert await of.message(9) == ("one", 0)
        await of.complete(innocent.delivery_id)


@pytest.mark.parametrize("wanted", ["s", None], ids=["named", "next"])
@pytest.mark.parametrize("deletes", [False, True], ids=["locks", "deletes"])
async def test_what_fails_while_a_link_opens_gives_its_session_back(
    door: Door, monkeypatch: pytest.MonkeyPatch, wanted: str | None, deletes: bool
) -> None:
    """The client hears of it, its other link goes on, and the session is the next one's at once."""
    accept = OutgoingLink.accept

    def fail(link: OutgoingLink, **changes: Any) -> None:
        if link.handle == FAULTY:
            raise RuntimeError("a fault of the bridge")
        accept(link, **changes)

    monkeypatch.setattr(OutgoingLink, "accept", fail)
    async with serve(door) as served, peer(served) as of:
        await of.send_texts("sessions", ["one", "two"], "s")
        await of.send_texts("orders", ["innocent"])
        of.receive_from(SOUND, "orders")
        of.credit(SOUND, 1)
        innocent, _ = await of.next(Transfer, handle=SOUND)
        for handle in (FAULTY, 9):
            of.receive_from(handle, "sessions", wanted, deletes=deletes)
            of.credit(handle, 5)
            if handle == FAULTY:
                detach = await of.next(Detach, handle=FAULTY)
                assert detach.error.condition == "amqp:internal-error"
        assert [await of.message(9) for _ in range(2)] == [("one", 0), ("two", 0)]
        await of.complete(innocent.delivery_id)


@pytest.mark.parametrize("session", [(), ("s",)], ids=["plain", "session"])
async def test_a_settlement_whose_answer_fails_ends_its_link_alone(
    door: Door, monkeypatch: pytest.MonkeyPatch, session: tuple[str, ...]
) -> None:
    """The message is settled; the other link keeps the lock that it has on the same channel."""
    address = "sessions" if session else "orders"
    settle = AmqpSession.settle_outgoing

    def fail(self: AmqpSession, delivery: OutgoingDelivery, outcome: Any) -> None:
        if delivery.link.handle == FAULTY:
            raise RuntimeError("a fault of the bridge")
        settle(self, delivery, outcome)

    monkeypatch.setattr(AmqpSession, "settle_outgoing", fail)
    async with serve(door) as served, peer(served) as of:
        await of.send_texts("orders", ["innocent"])
        of.receive_from(SOUND, "orders")
        of.credit(SOUND, 1)
        innocent, _ = await of.next(Transfer, handle=SOUND)
        of.receive_from(FAULTY, address, *session)
        await of.next(Attach, handle=FAULTY)
        await of.send_texts(address, ["one"], *session)
        of.credit(FAULTY, 1)
        faulty, _ = await of.next(Transfer, handle=FAULTY)
        of.send(Disposition(True, faulty.delivery_id, None, False, Accepted()))
        detach = await of.next(Detach, handle=FAULTY)
        assert detach.error.condition == "amqp:internal-error"
        await of.complete(innocent.delivery_id)


async def test_a_receiver_that_fails_ends_alone(door: Door) -> None:
    """Its message is the next receiver's, uncounted; a lock on the same channel stays."""
    await door.send("1", "2")
    sound = door.client()
    (locked,) = await sound.receive(1)
    failing = Client()
    failing.receiver = door.namespace.open_receiver(
        door.path, mode=ReceiveMode.PEEK_LOCK, deliver=_fail
    )
    failing.receiver.add_credit(5)
    await until(lambda: "1 receivers" in repr(door.namespace))
    (second,) = await sound.receive(1)
    assert (second.record.body, second.delivery_count) == (b"2", 0)
    await door.complete(locked, second)


async def test_a_session_whose_receiver_fails_is_free_again(door: Door) -> None:
    """Sessions of the same shard, and their locks, stay with their receivers."""
    namespace = door.namespace
    await namespace.send(OF_SESSIONS, [of_session("a", "1"), of_session("b", "2")])
    sound = await SessionClient(door, OF_SESSIONS).accept("a")
    (locked,) = await sound.receive(1)
    lost: list[Exception] = []
    failing = await namespace.accept_session(
        OF_SESSIONS,
        "b",
        mode=ReceiveMode.PEEK_LOCK,
        deliver=_fail,
        on_lost=lost.append,
        timeout_s=120,
    )
    failing.add_credit(5)
    await until(lambda: lost)
    other = await SessionClient(door, OF_SESSIONS).accept("b")
    (second,) = await other.receive(1)
    assert (bodies([second]), second.delivery_count) == (["2"], 0)
    for each in (locked, second):
        assert each.lock_token is not None
        await namespace.settle(OF_SESSIONS, each.lock_token, Complete())
    assert not sound.lost


def _fail(received: Received) -> None:
    raise RuntimeError("a fault of a receiver")
