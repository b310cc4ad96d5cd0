"""What clients are told, and can still do, while a bridge waits for them before its stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID

import pytest

from bridge.gateway.departures import Departures
from bridge.gateway.server import Gateway
from bridge.model.entity import Queue
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Close,
    Disposition,
    Flow,
    Modified,
    Source,
    Transfer,
)
from bridge.wire.amqp10.types import Array, Symbol
from tests.conformance.client import Client
from tests.conformance.served import client, gateway, message, queue_of
from tests.conformance.test_sessions import send

SESSIONS = Queue(name="q", lock_duration_ms=60_000, requires_session=True)
OUT, IN = 7, 8
PEEK = {"from-sequence-number": 1, "message-count": 1}


@asynccontextmanager
async def departing(served: Gateway) -> AsyncIterator[asyncio.Task[None]]:
    """Let the clients of a gateway go, in a task that ends when none has anything locked."""
    departures = Departures(served, lambda token: token in queue_of(served).locked)

    async def wait() -> None:
        while departures.look(asyncio.get_running_loop().time()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    task = asyncio.create_task(wait())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def sending(peer: Client, *bodies: bytes) -> None:
    """Send on the link OUT."""
    peer.attach(OUT, "q", role=False)
    await peer.next(Attach, handle=OUT)
    for body in bodies:
        assert await peer.outcome(peer.transfer(OUT, message(body))) == Accepted()
    peer.frames.clear()


async def receiving(peer: Client, credit: int) -> Transfer:
    """Receive a message on the link IN, which has more credit."""
    peer.attach(IN, "q", role=True)
    await peer.next(Attach, handle=IN)
    peer.credit(IN, credit)
    transfer, _ = await peer.next(Transfer)
    assert isinstance(transfer, Transfer)
    return transfer


def settle(peer: Client, transfer: Transfer, outcome: object = None) -> None:
    """Complete a message, or settle it as an outcome says."""
    number = transfer.delivery_id
    assert number is not None
    peer.send(Disposition(True, number, None, False, outcome or Accepted()))


async def is_told_to_go(peer: Client) -> None:
    """Wait until the bridge closes the connection."""
    close = await peer.next(Close)
    assert close.error.condition == "amqp:connection:forced"
    peer.send(Close())
    await peer.closed()


async def test_who_has_nothing_locked_goes_at_once() -> None:
    """Also with links, and credit; nobody else comes in."""
    async with gateway() as (served, port), client(port) as peer:
        await sending(peer, b"a")
        settle(peer, await receiving(peer, 5))
        await peer.next(Disposition)
        async with departing(served) as task:
            await is_told_to_go(peer)
            await task
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("outcome", [Accepted(), Modified(True, False)])
async def test_who_has_a_message_keeps_the_connection_until_it_is_settled(outcome: object) -> None:
    """Sends, requests and new links go on; it gets no other message, on no link."""
    async with gateway() as (served, port), client(port) as peer, client(port) as other:
        await sending(peer, b"a")
        transfer = await receiving(peer, 5)
        async with departing(served) as task:
            await is_told_to_go(other)
            assert await peer.outcome(peer.transfer(OUT, message(b"b"))) == Accepted()
            peer.attach(9, "q", role=True)
            await peer.next(Attach, handle=9)
            peer.credit(9, 5)
            token = UUID(bytes_le=transfer.delivery_tag)
            renewed = await peer.manage(
                "q", "com.microsoft:renew-lock", {"lock-tokens": Array("uuid", (token,))}
            )
            assert renewed.application_properties["statusCode"] == 200
            assert not task.done()
            settle(peer, transfer, outcome)
            answer = await peer.next(Disposition, role=False)
            assert type(answer.state) is type(outcome)
            await is_told_to_go(peer)
            await task
        assert not [each for each, _ in peer.frames if isinstance(each, Transfer)]
        assert len(queue_of(served).active) == 1 + isinstance(outcome, Modified)


async def test_a_drain_is_answered() -> None:
    """JavaScript and .NET wait for it after a receive that brought less than they asked for."""
    async with gateway() as (served, port), client(port) as peer:
        await sending(peer, b"a")
        transfer = await receiving(peer, 5)
        async with departing(served) as task:
            peer.credit(IN, 4, count=1, drain=True)
            flow = await peer.next(Flow, handle=IN)
            assert (flow.link_credit, flow.delivery_count) == (0, 5)
            settle(peer, transfer)
            await is_told_to_go(peer)
            await task


async def test_a_lock_that_ends_is_waited_for_no_longer() -> None:
    """Its client may never come back to it."""
    async with gateway() as (served, port), client(port) as peer:
        await sending(peer, b"a")
        transfer = await receiving(peer, 1)
        async with departing(served) as task:
            await peer.manage("q", "com.microsoft:peek-message", PEEK)
            assert not task.done()
            del queue_of(served).locked[UUID(bytes_le=transfer.delivery_tag)]
            await is_told_to_go(peer)
            await task


async def test_who_goes_by_itself_is_waited_for_no_longer() -> None:
    """Its locks end with their time, as always."""
    async with gateway() as (served, port), client(port) as peer:
        await sending(peer, b"a")
        await receiving(peer, 1)
        async with departing(served) as task:
            await peer.close()
            await task


async def test_a_session_is_kept_while_a_message_of_it_is_worked_on() -> None:
    """Its link stays, and no other session is given, to a link that waits or a new one."""
    async with gateway(queue=SESSIONS) as (served, port), client(port) as peer:
        session = {Symbol("com.microsoft:session-filter"): "one"}
        peer.attach(OUT, "q", role=False)
        await peer.next(Attach, handle=OUT)
        await send(peer, "one", b"a", b"b")
        peer.attach(IN, "q", role=True, source=Source("q", filter=session))
        await peer.next(Attach, handle=IN)
        peer.credit(IN, 1)
        transfer, _ = await peer.next(Transfer)
        following = Source("q", filter={Symbol("com.microsoft:session-filter"): None})
        peer.attach(9, "q", role=True, source=following)
        async with departing(served) as task:
            peer.attach(10, "q", role=True, source=following)
            await send(peer, "two", b"c")
            peer.credit(IN, 1, count=1)
            renewed = await peer.manage(
                "q", "com.microsoft:renew-session-lock", {"session-id": "one"}
            )
            assert renewed.application_properties["statusCode"] == 200
            settle(peer, transfer)
            await peer.next(Disposition, role=False)
            await is_told_to_go(peer)
            await task
        kinds = [each for each, _ in peer.frames if isinstance(each, Attach | Transfer)]
        assert not kinds
