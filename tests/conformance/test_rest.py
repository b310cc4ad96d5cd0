"""The limits of messages over HTTP, with an engine in memory."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from bridge.access.access import Access
from bridge.gateway.http.http import HttpConnection
from bridge.gateway.server import Gateway
from bridge.model.access_policy import AccessPolicy
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import AuthorizationRule, Queue, Right
from bridge.rest import bodies, messages
from bridge.rest.messages import Messages
from bridge.rest.target import Verb, parse_target
from bridge.wire.amqp10.performatives import Attach, Disposition
from tests.bench.memory_namespace import MemoryNamespace
from tests.conformance.client import sas
from tests.conformance.door import ROOT_RULE
from tests.conformance.probe import check, undisturbed
from tests.conformance.served import client, gateway, message
from tests.conformance.test_storms import TURN_S_MAX, probing
from tests.fixtures.waiting import until


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Gateway, int]]:
    """A gateway with the API of messages, and its port."""
    space = MemoryNamespace(Queue(name="q", lock_duration_ms=60_000))
    access = Access(AccessRuleSet(namespace=(ROOT_RULE,)))
    rest = Messages(space, access)

    async def answer(request: web.Request) -> web.StreamResponse:
        target = parse_target(request.method, request.raw_path)
        assert target is not None
        return await rest.answer(request, target)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with gateway(namespace=space, app=app, access=access) as (running, port):
        yield running, port
        space.forget()


def head(method: str, path: str, *fields: str) -> bytes:
    """Return the head of a request with a token."""
    lines = (f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: {sas()}", *fields)
    return "\r\n".join([*lines, "", ""]).encode()


async def status(port: int, said: bytes) -> int:
    """Return the status of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(120):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])


def test_paths() -> None:
    """Read from the right; words in any case; what is no path of messages is another API's."""
    token = "7da9cfd5-40d5-4bb1-8d64-ec5a52e1c547"
    expected: dict[tuple[str, str], tuple[Verb, str] | None] = {
        ("POST", "/q/messages"): (Verb.SEND, "q"),
        ("POST", "/q/Messages/?timeout=60"): (Verb.SEND, "q"),
        ("POST", "/a/b/messages/HEAD?timeout=1"): (Verb.PEEK_LOCK, "a/b"),
        ("DELETE", "/t/Subscriptions/s/messages/head"): (
            Verb.RECEIVE_AND_DELETE,
            "t/Subscriptions/s",
        ),
        ("PUT", f"/q/messages/a%2Fb/{token}"): (Verb.UNLOCK, "q"),
        ("POST", f"/q/messages/2/{token.upper()}"): (Verb.RENEW, "q"),
        ("DELETE", f"/q/$DeadLetterQueue/messages/2/{token}"): (
            Verb.DELETE,
            "q/$DeadLetterQueue",
        ),
        ("PUT", "/q/messages/2/other"): None,
        ("PUT", "/q/messages"): None,
        ("GET", "/q/messages/head"): None,
        ("POST", "/messages"): None,
        ("DELETE", "/q"): None,
    }
    for (method, path), found in expected.items():
        target = parse_target(method, path)
        assert (None if target is None else (target.verb, target.address)) == found, path


async def test_too_many_waits_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 503; who leaves makes room."""
    monkeypatch.setattr(messages, "WAITS_MAX", 1)
    async with served() as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("POST", "/q/messages/head?timeout=60"))

        async def is_full() -> bool:
            return await status(port, head("POST", "/q/messages/head?timeout=0")) == 503

        async def is_free() -> bool:
            return await status(port, head("POST", "/q/messages/head?timeout=0")) == 204

        await until(is_full)
        writer.transport.abort()
        await until(is_free)


async def test_too_many_bodies_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 503; a body that is stored, or whose client has left, does not count any more."""
    monkeypatch.setattr(bodies, "BODIES_BYTES_MAX", 100_000)
    whole = head("POST", "/q/messages", "Content-Length: 60000") + bytes(60_000)
    async with served() as (_, port):
        for _ in range(3):
            assert await status(port, whole) == 201
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole[:-1])

        def answers(code: int) -> Callable[[], object]:
            async def found() -> bool:
                return await status(port, whole) == code

            return found

        await until(answers(503))
        writer.transport.abort()
        await until(answers(201))


@pytest.mark.parametrize(
    "said",
    [
        lambda: head("POST", "/q/messages/head?timeout=60") * 400,
        lambda: (
            head("POST", "/q/messages/head?timeout=60", "Content-Length: 2000000")
            + bytes(1_900_000)
        ),
    ],
    ids=["requests", "body"],
)
async def test_who_leaves_unheard_takes_nothing(said: Callable[[], bytes]) -> None:
    """Behind so much input the client's end is not seen: what comes then is another's."""
    async with served() as (running, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said())

        async def is_held() -> bool:
            (only,) = (each.get_protocol() for each in running.connections.others)
            return isinstance(only, HttpConnection) and not only.is_heard

        await until(is_held)
        writer.transport.abort()
        assert await status(port, head("POST", "/q/messages", "Content-Length: 1") + b"x") == 201
        assert await status(port, head("POST", "/q/messages/head?timeout=30")) == 201


async def test_a_receive_whose_right_is_taken_away_while_it_waits_gets_nothing() -> None:
    """A message that comes then goes to another receiver, uncounted."""
    rights = frozenset({Right.LISTEN})
    listener = AuthorizationRule(name="listener", primary_key="k", rights=rights)
    async with served() as (running, port):
        running.access.take_definitions(AccessRuleSet(namespace=(listener,)))
        said = head("POST", "/q/messages/head?timeout=60")
        said = said.replace(sas().encode(), sas(rule="listener", key="k").encode())
        waiting = asyncio.create_task(status(port, said))
        await until(lambda: running.site._requests)
        running.access.take_definitions(AccessRuleSet())
        assert await status(port, head("POST", "/q/messages", "Content-Length: 1") + b"x") == 201
        assert await waiting == 401
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("POST", "/q/messages/head?timeout=30", "Connection: close"))
        async with asyncio.timeout(120):
            answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert b'"DeliveryCount":1' in answer.replace(b" ", b"")


async def test_a_property_as_large_as_a_message_s_properties_may_be() -> None:
    """As large as AMQP's clients may send; a receive over HTTP answers it."""
    async with served() as (_, port):
        for size_bytes, expected in ((32_768, 201), (110_000, 201)):
            field = f'Notes: "{"x" * size_bytes}"'
            said = head("POST", "/q/messages", field, "Content-Length: 1")
            assert await status(port, said + b"x") == expected


async def test_a_compressed_body_is_stored_as_it_was_sent() -> None:
    """Its receiver unpacks it, as at Azure; the field Content-Encoding is no property."""
    body = gzip.compress(b"one order")
    fields = f"Content-Length: {len(body)}", "Content-Encoding: gzip"
    async with served() as (_, port):
        assert await status(port, head("POST", "/q/messages", *fields) + body) == 201
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("DELETE", "/q/messages/head?timeout=60", "Connection: close"))
        async with asyncio.timeout(120):
            answer = await reader.read()
        writer.close()
    assert answer.endswith(b"\r\n\r\n" + body)


@undisturbed
async def test_batches_hold_up_nobody() -> None:
    """While clients send the largest batches, no turn of the loop takes long."""
    batch = json.dumps([{"Body": "x", "UserProperties": {"a": 1}}] * 5_000).encode()
    said = head(
        "POST",
        "/q/messages",
        "Content-Type: application/vnd.microsoft.servicebus.json",
        f"Content-Length: {len(batch)}",
    )
    async with served() as (_, port), client(port) as honest:
        honest.attach(7, "q", role=False)
        await honest.next(Attach, handle=7)
        with probing() as probe:
            sending = [asyncio.create_task(status(port, said + batch)) for _ in range(5)]
            for _ in range(20):
                honest.transfer(7, message(b"x"))
                await honest.next(Disposition)
            assert await asyncio.gather(*sending) == [201] * 5

    check(probe.longest_s, TURN_S_MAX)


async def test_a_right_is_gone_that_is_taken_away_while_the_body_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is stored for a client that may no longer send."""
    is_read = asyncio.Event()
    read = bodies.Body.read

    async def noted(body: bodies.Body, *given: Any) -> bytes:
        is_read.set()
        return await read(body, *given)

    monkeypatch.setattr(bodies.Body, "read", noted)
    async with served() as (running, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("POST", "/q/messages", "Content-Length: 2") + b"a")
        async with asyncio.timeout(120):
            await is_read.wait()
            running.access.replace(AccessPolicy())
            writer.write(b"b")
            line = await reader.readline()
        writer.close()
        assert int(line.split()[1]) == 401
