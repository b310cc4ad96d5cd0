"""Credit is legal at any moment from a link's attach on, for each kind of link, by each way.

Tried from outside, with bytes, and with a RabbitMQ behind the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from bridge.broker.connection.endpoint import Endpoint
from bridge.engine.receiving.ready_messages import BRING_S
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.wire.amqp10.message import AmqpMessage, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Rejected,
    Transfer,
)
from tests.fixtures.broker import Broker
from tests.fixtures.waiting import until
from tests.integration.door import open_door
from tests.integration.gateway_door import Peer, Served, peer, serve

LOCK_MS = 60_000
QUEUES = (
    model.Queue(name="plain", lock_duration_ms=LOCK_MS),
    model.Queue(name="other", lock_duration_ms=LOCK_MS),
    model.Queue(name="sessions", lock_duration_ms=LOCK_MS, requires_session=True),
)

LINK, BYSTANDER = 7, 80
COUNT, CREDIT = 3, 5
TEXTS = [str(number) for number in range(COUNT)]


@pytest_asyncio.fixture
async def served(endpoint: Endpoint, broker: Broker) -> AsyncIterator[Served]:
    """A bridge with plain queues and one that requires sessions."""
    async with open_door(endpoint, broker.management_url, *QUEUES) as door, serve(door) as served:
        yield served


@dataclass(frozen=True)
class Kind:
    """A kind of link on which the bridge sends.

    Attributes:
        attach: asks for the link.
        fill: brings three messages to it.
        waits: the attach is answered only when there is a message.
        is_node: its messages are replies: there is none before the link is there.
    """

    attach: Callable[[Peer], None]
    fill: Callable[[Peer], Awaitable[None]]
    waits: bool = False
    is_node: bool = False


def receiver(address: str, *session: str | None, deletes: bool = False) -> Kind:
    """A link on which the client receives messages."""

    async def fill(of: Peer) -> None:
        await of.send_texts(address, TEXTS, "s" if session else None)

    def attach(of: Peer) -> None:
        of.receive_from(LINK, address, *session, deletes=deletes)

    return Kind(attach, fill, waits=session == (None,))


def dead_letters() -> Kind:
    """A link on which the client receives dead letters."""

    async def fill(of: Peer) -> None:
        await of.send_texts("plain", TEXTS)
        of.receive_from(91, "plain")
        of.credit(91, COUNT)
        for _ in TEXTS:
            transfer, _ = await of.next(Transfer, handle=91)
            of.send(Disposition(True, transfer.delivery_id, None, False, Rejected()))
            await of.outcome(transfer.delivery_id)
        await of.detach(91)

    return Kind(lambda of: of.receive_from(LINK, "plain/$DeadLetterQueue"), fill)


def node(address: str) -> Kind:
    """A link on which the client takes a node's replies, here of refused requests."""

    async def fill(of: Peer) -> None:
        of.attach(92, address, role=False)
        await of.next(Attach, handle=92)
        for text in TEXTS:
            properties = MessageProperties(message_id=text, reply_to=f"client-{LINK}")
            request = AmqpMessage(properties, {"operation": "none"}, text)
            of.transfer(92, encode_message(request), settled=True)
        await of.detach(92)

    return Kind(lambda of: of.attach(LINK, address, role=True), fill, is_node=True)


KINDS = {
    "plain": receiver("plain"),
    "plain, deletes": receiver("plain", deletes=True),
    "a session": receiver("sessions", "s"),
    "a session, deletes": receiver("sessions", "s", deletes=True),
    "the next session": receiver("sessions", None),
    "the next session, deletes": receiver("sessions", None, deletes=True),
    "dead letters": dead_letters(),
    "$management": node("plain/$management"),
    "$cbs": node("$cbs"),
}


@dataclass(frozen=True)
class Way:
    """A way in which a client grants credit.

    Attributes:
        flows: the flows, each a credit and whether it drains.
        is_early: they come with the attach, in the same bytes, and not after the answer.
    """

    flows: tuple[tuple[int, bool], ...]
    is_early: bool

    @property
    def drains(self) -> bool:
        """Whether what is left of the credit is to come back at once."""
        return self.flows[-1][1]


LARGE = 0xFFFF_FFFF
FLOWS = {
    "": ((CREDIT, False),),
    "with a drain": ((CREDIT, True),),
    "with a drain behind it": ((CREDIT, False), (CREDIT, True)),
    "none, then some": ((0, False), (CREDIT, False)),
    "very large": ((LARGE, False),),
    "very large, with a drain": ((LARGE, True),),
}
WAYS = {
    f"{'with the attach' if is_early else 'after the answer'} {name}".strip(): Way(flows, is_early)
    for is_early in (True, False)
    for name, flows in FLOWS.items()
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(each, marks=pytest.mark.long) if "deletes" in each else each for each in KINDS],
)
async def test_credit_brings_what_is_there(served: Served, kind: str) -> None:
    """The messages that come are those that were granted and are there; a drain ends with that.

    By each way, messages waiting or not. Other work on the connection is not disturbed.
    """
    for name, way in WAYS.items():
        for are_waiting in (True, False):
            try:
                await grant(served, KINDS[kind], way, are_waiting=are_waiting)
            except BaseException as error:
                error.add_note(f"credit {name}, {'waiting' if are_waiting else 'none there'}")
                raise


async def grant(served: Served, kind: Kind, way: Way, *, are_waiting: bool) -> None:
    """Grant credit to a link of a connection on which another link holds a lock."""
    async with peer(served) as of, peer(served) as sender:
        await sender.send_texts("other", ["locked"])
        of.receive_from(BYSTANDER, "other")
        of.credit(BYSTANDER, 1)
        locked, _ = await of.next(Transfer, handle=BYSTANDER)

        if are_waiting and not kind.is_node:
            await kind.fill(sender)
            await until(lambda: _are_there(served, COUNT + 1))  # the locked one, too
        kind.attach(of)
        if are_waiting and kind.is_node:
            await kind.fill(of)
        if not way.is_early:
            if kind.waits and not are_waiting:
                await kind.fill(sender)
            await of.next(Attach, handle=LINK)
        for credit, drain in way.flows:
            of.credit(LINK, credit, drain=drain)
        if way.is_early and kind.waits and not are_waiting:
            await kind.fill(sender)

        came = 0
        if way.drains:
            flow = await of.drained(LINK)
            came = of.came(LINK)
            assert came == COUNT if are_waiting else came >= kind.waits
            assert flow.delivery_count == way.flows[-1][0]
            assert len(await of.bodies(LINK, came)) == came
            of.credit(LINK, CREDIT, count=flow.delivery_count)
        if not are_waiting and not kind.waits:
            assert of.came(LINK) == came == 0
            await kind.fill(of if kind.is_node else sender)
        assert len(await of.bodies(LINK, COUNT - came)) == COUNT - came
        await of.complete(locked.delivery_id)
        assert not [each for each, _ in of.frames if isinstance(each, Detach)]
        await of.detach(LINK)


async def _are_there(served: Served, count: int) -> bool:
    """Whether so many messages that were sent have their numbers, and are where they belong."""
    namespace = served.door.namespace
    entities = [namespace.entity(EntityPath(each.name)) for each in QUEUES]
    counts = await namespace.counting.counts(entities)
    return sum(each.active + each.dead_letter for each in counts) == count


async def test_a_long_session_comes_in_order_under_any_credit(served: Served) -> None:
    """Receivers that ask for more with each message get the messages in their order."""
    texts = [str(number) for number in range(900)]
    async with peer(served) as of:
        await of.send_texts("sessions", texts, "s")
        await until(lambda: _are_there(served, len(texts)))
        of.receive_from(LINK, "sessions", "s", deletes=True)
        await of.next(Attach, handle=LINK)
        of.credit(LINK, LARGE)
        assert await of.bodies(LINK, len(texts)) == texts


async def test_a_client_that_sends_may_say_anything_of_credit(served: Served) -> None:
    """On the link on which it sends credit is the bridge's to grant; its messages are stored."""
    for name, way in WAYS.items():
        try:
            await grant_where_it_sends(served, way)
        except BaseException as error:
            error.add_note(f"credit {name}")
            raise


async def grant_where_it_sends(served: Served, by: Way) -> None:
    """Grant credit on a link on which the client sends one message, and take that."""
    async with peer(served) as of:
        of.attach(LINK, "plain", role=False)
        if not by.is_early:
            await of.next(Attach, handle=LINK)
        for credit, drain in by.flows:
            of.credit(LINK, credit, drain=drain, echo=True)
        number = of.transfer(LINK, encode_message(AmqpMessage(value="one")))
        assert await of.outcome(number) == Accepted()
        of.receive_from(8, "plain", deletes=True)
        of.credit(8, 1)
        assert await of.bodies(8, 1) == ["one"]


async def test_a_drain_of_an_empty_queue_is_answered_when_rabbitmq_says_so(served: Served) -> None:
    """Not only when the wait for a silent RabbitMQ ends: half of the drains take half of it."""
    clock = asyncio.get_running_loop().time
    async with peer(served) as of:
        of.receive_from(LINK, "plain")
        await of.next(Attach, handle=LINK)
        count, took_s = 0, []
        for _ in range(9):
            began_s = clock()
            of.credit(LINK, CREDIT, count=count, drain=True)
            count = (await of.drained(LINK)).delivery_count
            took_s.append(clock() - began_s)
        assert sorted(took_s)[4] < BRING_S / 2, took_s
