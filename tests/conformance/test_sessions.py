"""Session receivers over raw AMQP 1.0: how an attach waits, is answered and is given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from bridge.gateway.links.sessions import TIMEOUT_S, wait_s
from bridge.gateway.server import Gateway
from bridge.model.entity import EntityStatus, Queue
from bridge.wire.amqp10.message import (
    AmqpMessage,
    decode_message,
    encode_message,
)
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Source,
    Transfer,
)
from bridge.wire.amqp10.types import Array, Described, Symbol, Uint, Ulong, read_value
from bridge.wire.link_properties import ticks
from tests.bench.memory_sessions import MemorySessions
from tests.conformance.client import Client, sas
from tests.conformance.served import client, gateway, queue_of
from tests.fixtures.waiting import until

QUEUE = Queue(name="q", lock_duration_ms=5_000, requires_session=True)
FILTER = Symbol("com.microsoft:session-filter")
LOCKED_UNTIL = Symbol("com.microsoft:locked-until-utc")
TIMEOUT = Symbol("com.microsoft:timeout")
SENDER = 20


@asynccontextmanager
async def served(
    queue: Queue = QUEUE, **settings: Any
) -> AsyncIterator[tuple[Gateway, int, Client]]:
    """A gateway with a queue that requires sessions, and a client of it."""
    async with gateway(queue=queue, **settings) as (door, port), client(port) as peer:
        yield door, port, peer


def accept(peer: Client, handle: int, wanted: Any, *, timeout_ms: int | None = None) -> None:
    """Ask for a session."""
    properties = None if timeout_ms is None else {TIMEOUT: Uint(timeout_ms)}
    source = Source("q", filter={FILTER: wanted})
    peer.attach(handle, "q", role=True, source=source, properties=properties)


async def accepted(peer: Client, handle: int) -> str:
    """Wait for an answer that gives a session; returns its id."""
    attach = await peer.next(Attach, handle=handle)
    assert attach.source is not None, (await peer.next(Detach, handle=handle)).error
    return str(attach.source.filter[FILTER])


async def refused(peer: Client, handle: int) -> Any:
    """Wait for an answer that refuses; returns its error."""
    assert (await peer.next(Attach, handle=handle)).source is None
    return (await peer.next(Detach, handle=handle)).error


async def send(peer: Client, session_id: str, *bodies: bytes) -> None:
    """Send messages of a session."""
    peer.attach(SENDER, "q", role=False)
    await peer.next(Attach, handle=SENDER)
    for body in bodies:
        properties = MessageProperties(group_id=session_id)
        peer.transfer(SENDER, encode_message(AmqpMessage(properties, value=body)))
    for _ in bodies:
        await peer.next(Disposition)
    peer.send_detach(SENDER)
    await peer.next(Detach, handle=SENDER)


async def received(peer: Client, handle: int) -> tuple[bytes, int]:
    """Wait for a message: its body and its delivery count."""
    _, payload = await peer.next(Transfer, handle=handle)
    header, _ = read_value(payload, 0)
    body = decode_message(payload).value
    assert isinstance(body, bytes)
    return body, header.value[4] or 0


def sessions_of(door: Gateway) -> MemorySessions:
    """The queue behind a gateway."""
    queue = queue_of(door)
    assert isinstance(queue, MemorySessions)
    return queue


# -- accepting


async def test_a_named_session_is_answered_with_its_id_and_the_end_of_its_lock() -> None:
    """Also one without messages; the end is told in .NET ticks."""
    async with served() as (_, _, peer):
        accept(peer, 7, "one")
        attach = await peer.next(Attach, handle=7)

        assert attach.source == Source("q", filter={FILTER: "one"})
        end_s = (attach.properties[LOCKED_UNTIL] - 621_355_968_000_000_000) / 1e7
        assert 4 < end_s - time.time() <= 5


async def test_a_described_filter_is_answered_in_kind() -> None:
    """The Go client describes its filter, and reads no other."""
    async with served() as (_, _, peer):
        accept(peer, 7, Described(Ulong(0x137000000C), "one"))
        attach = await peer.next(Attach, handle=7)

        assert attach.source.filter[FILTER] == Described(Ulong(0x137000000C), "one")


@pytest.mark.parametrize("wanted", [7, [], Described(Ulong(1), 5)])
async def test_a_filter_that_is_no_text_is_refused(wanted: Any) -> None:
    """With what is wrong about it; the connection goes on."""
    async with served() as (_, _, peer):
        accept(peer, 7, wanted)
        assert (await refused(peer, 7)).condition == "com.microsoft:argument-error"
        accept(peer, 8, "")
        assert await accepted(peer, 8) == ""


async def test_the_next_session_is_waited_for() -> None:
    """No answer until there is one; who came first gets the first."""
    async with served() as (_, _, peer):
        accept(peer, 7, None)
        accept(peer, 8, None)
        accept(peer, 9, "named")
        assert await accepted(peer, 9) == "named"
        assert not [each for each, _ in peer.frames if isinstance(each, Attach)]
        await send(peer, "one", b"a")
        assert await accepted(peer, 7) == "one"
        await send(peer, "two", b"b")
        assert await accepted(peer, 8) == "two"


async def test_credit_that_comes_before_the_answer_counts() -> None:
    """The session's messages follow the answer at once, in order."""
    async with served() as (_, _, peer):
        accept(peer, 7, None)
        peer.credit(7, 5)
        await send(peer, "one", b"a", b"b")
        assert await accepted(peer, 7) == "one"
        assert [await received(peer, 7) for _ in range(2)] == [(b"a", 0), (b"b", 0)]


async def test_a_wait_ends_before_the_clients_own() -> None:
    """With `com.microsoft:timeout`; nobody else is held up."""
    async with served() as (_, _, peer):
        began = time.monotonic()
        accept(peer, 7, None, timeout_ms=1_000)
        error = await refused(peer, 7)

        assert error.condition == "com.microsoft:timeout"
        assert time.monotonic() - began > 0.7
        await send(peer, "one", b"a")
        accept(peer, 8, None)
        assert await accepted(peer, 8) == "one"


@pytest.mark.parametrize(
    ("properties", "expected_s"),
    [
        (None, TIMEOUT_S),
        ({}, TIMEOUT_S),
        ({TIMEOUT: "soon"}, TIMEOUT_S),
        ({TIMEOUT: -1}, TIMEOUT_S),
        ({TIMEOUT: Uint(60_000)}, 59.8),
        ({TIMEOUT: 100}, 0.05),
        ({TIMEOUT: 0}, 0),
    ],
)
def test_how_long_a_client_waits(properties: Any, expected_s: float) -> None:
    """As long as it says, a little less; Azure's default where it says nothing."""
    assert wait_s(properties) == pytest.approx(expected_s)


def test_ticks() -> None:
    """100 ns each, from the first day of the year 1 on."""
    assert ticks(0) == 621_355_968_000_000_000
    assert ticks(1) - ticks(0) == 10_000


async def test_a_session_has_one_holder() -> None:
    """Another one is refused until the first is gone, by whatever connection."""
    async with served() as (_, port, peer), client(port) as other:
        accept(peer, 7, "one")
        await accepted(peer, 7)
        accept(other, 7, "one")
        assert (await refused(other, 7)).condition == "com.microsoft:session-cannot-be-locked"
        peer.send_detach(7)
        await peer.next(Detach, handle=7)
        accept(other, 8, "one")
        assert await accepted(other, 8) == "one"


async def test_many_sessions_on_one_connection() -> None:
    """500 receivers, each with its own session; all wait at first."""
    async with served(replace(QUEUE, lock_duration_ms=60_000)) as (door, _, peer):
        handles = range(100, 600)
        for handle in handles:
            accept(peer, handle, None)
        for handle in handles:
            await send(peer, f"s{handle}", b"x")
        found = {await accepted(peer, handle) for handle in handles}

        assert found == {f"s{handle}" for handle in handles}
        (connection,) = door.connections
        assert len(connection.sessions) == 500


# -- giving up


async def test_a_client_that_gives_up_is_answered_and_forgotten() -> None:
    """An attach to nothing and a detach; the session goes to the next in line."""
    async with served() as (_, _, peer):
        accept(peer, 7, None)
        accept(peer, 8, None)
        peer.send_detach(7)
        assert (await peer.next(Attach, handle=7)).source is None
        assert (await peer.next(Detach, handle=7)).error is None
        await send(peer, "one", b"a")
        assert await accepted(peer, 8) == "one"


async def test_a_connection_that_ends_gives_up_its_place() -> None:
    """Whether it waits or holds a session."""
    async with served() as (door, port, peer):
        async with client(port) as other:
            accept(other, 7, None)
            accept(other, 8, "held")
            await accepted(other, 8)
        await until(lambda: len(door.connections) == 1)
        accept(peer, 8, None)
        await send(peer, "one", b"a")
        assert await accepted(peer, 8) == "one"
        accept(peer, 9, "held")
        assert await accepted(peer, 9) == "held"


async def test_a_token_that_expires_while_its_client_waits() -> None:
    """The attach is refused."""
    async with gateway(queue=QUEUE) as (_, port), client(port, authorised=False) as peer:
        assert await peer.put_token(sas(expires_s=time.time() + 2)) == 202
        accept(peer, 7, None)
        assert (await refused(peer, 7)).condition == "amqp:unauthorized-access"


async def test_an_entity_that_is_disabled_while_clients_wait() -> None:
    """Waiting clients are refused, and the holder of a session loses its link."""
    async with served() as (door, _, peer):
        accept(peer, 7, None)
        accept(peer, 8, "one")
        await accepted(peer, 8)
        queue = sessions_of(door)
        queue.definition = replace(QUEUE, status=EntityStatus.DISABLED)
        door.connections.recheck()
        assert (await refused(peer, 7)).condition == "com.microsoft:entity-disabled"
        detach = await peer.next(Detach, handle=8)
        assert detach.error.condition == "com.microsoft:entity-disabled"


# -- holding


async def test_a_lock_that_ends_detaches_the_link() -> None:
    """Then the session's state is not for it any more; its messages are counted."""
    async with served() as (door, _, peer):
        await send(peer, "one", b"a")
        accept(peer, 7, "one")
        await accepted(peer, 7)
        peer.credit(7, 1)
        assert await received(peer, 7) == (b"a", 0)
        sessions_of(door).holder("one")._on_lock_end()
        detach = await peer.next(Detach, handle=7)
        assert detach.error.condition == "com.microsoft:session-lock-lost"
        peer.send(Detach(7, True))
        reply = await peer.manage("q", "com.microsoft:get-session-state", {"session-id": "one"})
        assert reply.application_properties["statusCode"] == 410
        condition = reply.application_properties["errorCondition"]
        assert condition == "com.microsoft:session-lock-lost"
        (connection,) = door.connections
        assert connection.sessions == {}
        accept(peer, 8, None)
        assert await accepted(peer, 8) == "one"
        peer.credit(8, 1)
        assert await received(peer, 8) == (b"a", 1)


async def test_a_detach_ends_the_lock_and_counts_nothing() -> None:
    """The next holder gets the messages that were not settled, in their order."""
    async with served() as (_, port, peer), client(port) as other:
        await send(peer, "one", b"a", b"b")
        accept(peer, 7, None)
        await accepted(peer, 7)
        peer.credit(7, 2)
        assert [await received(peer, 7) for _ in range(2)] == [(b"a", 0), (b"b", 0)]
        peer.send_detach(7)
        accept(other, 7, None)
        assert await accepted(other, 7) == "one"
        other.credit(7, 2)
        assert [await received(other, 7) for _ in range(2)] == [(b"a", 0), (b"b", 0)]


async def test_messages_are_settled_on_the_link() -> None:
    """A session's receiver settles as any other does."""
    async with served() as (door, _, peer):
        await send(peer, "one", b"a")
        accept(peer, 7, None)
        await accepted(peer, 7)
        peer.credit(7, 1)
        transfer, _ = await peer.next(Transfer, handle=7)
        peer.send(Disposition(True, transfer.delivery_id, None, False, Accepted()))
        assert await peer.outcome(transfer.delivery_id) == Accepted()
        assert sessions_of(door).of("one").locked == {}


async def test_a_drain_gives_the_credit_back() -> None:
    """The JavaScript client waits for that."""
    async with served() as (_, _, peer):
        accept(peer, 7, "one")
        await accepted(peer, 7)
        peer.credit(7, 5)
        peer.credit(7, 5, drain=True)
        flow = await peer.until(lambda: next((f for f, _ in peer.frames if is_drained(f)), None))
        assert flow.delivery_count == 5


def is_drained(performative: Any) -> bool:
    """Whether this gives all credit of the receiver back."""
    return getattr(performative, "drain", False) and performative.link_credit == 0


# -- operations


async def test_the_operations_of_a_session() -> None:
    """State, renewal and list, in Azure's shapes."""
    async with served() as (_, _, peer):
        accept(peer, 7, "one")
        await accepted(peer, 7)
        named = {"session-id": "one"}

        reply = await peer.manage("q", "com.microsoft:get-session-state", named)
        assert reply.value == {"session-state": None}
        stored = {**named, "session-state": b"mine"}
        reply = await peer.manage("q", "com.microsoft:set-session-state", stored)
        assert (reply.application_properties["statusCode"], reply.value) == (200, {})
        reply = await peer.manage("q", "com.microsoft:get-session-state", named)
        assert reply.value == {"session-state": b"mine"}
        reply = await peer.manage("q", "com.microsoft:renew-session-lock", named)
        assert 4 < reply.value["expiration"] / 1000 - time.time() <= 5
        page = {"last-updated-time": 253_402_300_800_000, "skip": 0, "top": 100}
        reply = await peer.manage("q", "com.microsoft:get-message-sessions", page)
        assert reply.value == {"skip": 0, "sessions-ids": Array("string", ("one",))}
        reply = await peer.manage("q", "com.microsoft:get-message-sessions", {**page, "skip": 1})
        assert reply.application_properties["statusCode"] == 204


@pytest.mark.parametrize(
    "operation",
    [
        "renew-session-lock",
        "get-session-state",
        "set-session-state",
        "receive-by-sequence-number",
        "update-disposition",
    ],
)
async def test_a_session_is_its_holders_alone(operation: str) -> None:
    """Requests of a client that does not hold the session are refused."""
    async with served() as (_, port, peer), client(port) as other:
        accept(other, 7, "one")
        await accepted(other, 7)
        reply = await peer.manage("q", f"com.microsoft:{operation}", {"session-id": "one"})

        assert reply.application_properties["statusCode"] == 410
        condition = reply.application_properties["errorCondition"]
        assert condition == "com.microsoft:session-lock-lost"


@pytest.mark.parametrize(
    ("operation", "body", "condition"),
    [
        ("renew-session-lock", {}, "com.microsoft:argument-error"),
        ("get-session-state", {"session-id": 7}, "com.microsoft:argument-error"),
        ("set-session-state", {"session-id": "one", "session-state": "x"}, "argument-error"),
        (
            "set-session-state",
            {"session-id": "one", "session-state": b"x" * 262_145},
            "size-exceeded",
        ),
        ("get-message-sessions", {"skip": -1, "top": 1}, "com.microsoft:argument-error"),
        ("get-message-sessions", {"last-updated-time": "now"}, "com.microsoft:argument-error"),
        ("renew-lock", {"lock-tokens": Array("uuid", ())}, "amqp:not-allowed"),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": Array("long", (1,))},
            "amqp:not-allowed",
        ),
    ],
)
async def test_requests_that_are_refused(operation: str, body: Any, condition: str) -> None:
    """A session that is named wrongly or not at all, and what a session's message has not."""
    async with served() as (_, _, peer):
        accept(peer, 7, "one")
        await accepted(peer, 7)
        reply = await peer.manage("q", f"com.microsoft:{operation}", body)

        assert reply.application_properties["statusCode"] in (400, 403)
        assert condition in reply.application_properties["errorCondition"]


@pytest.mark.parametrize("entity", ["q", "q/$DeadLetterQueue"])
async def test_there_are_no_sessions_where_none_are_required(entity: str) -> None:
    """A plain queue, and a dead-letter queue of any."""
    queue = replace(QUEUE, requires_session=entity != "q")
    async with served(queue) as (_, _, peer):
        for operation in ("get-session-state", "get-message-sessions"):
            body = {"session-id": "one", "skip": 0, "top": 1}
            reply = await peer.manage(entity, f"com.microsoft:{operation}", body)
            assert reply.application_properties["errorCondition"] == "amqp:not-allowed"
        accept(peer, 7, "one")
        if entity == "q":
            assert (await refused(peer, 7)).condition == "amqp:not-allowed"


async def test_a_stop_lets_go_of_sessions() -> None:
    """Waiting receivers are not answered any more, and held sessions are free."""
    async with served(stop_s=1.0) as (door, _, peer):
        accept(peer, 7, "one")
        await accepted(peer, 7)
        accept(peer, 8, None)
        await asyncio.sleep(0)
        queue = sessions_of(door)
        await door.stop()
        assert not queue._held
        assert not queue._waiting


async def test_a_request_may_name_the_link_that_holds_its_session() -> None:
    """The Go client asks so for deferred messages: in memory there are none, in any session."""
    async with served() as (_, _, peer):
        accept(peer, 7, "one")
        attach = await peer.next(Attach, handle=7)
        numbers = {"sequence-numbers": Array("long", (1,))}
        operation = "com.microsoft:receive-by-sequence-number"
        for name, status in ((attach.name, 501), ("another", 400)):
            reply = await peer.manage("q", operation, numbers, associated=name)
            assert reply.application_properties["statusCode"] == status
