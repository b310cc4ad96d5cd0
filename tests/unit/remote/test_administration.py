"""Administration of a namespace that is busy, lost or refusing, as Azure is, or no namespace."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from bridge.model.properties import EntityKind
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.credentials import RemoteToken, SharedKey
from bridge.remote.entity import entity_node
from bridge.remote.errors import (
    RemoteBusy,
    RemoteConnectionLost,
    RemoteError,
    RemoteNotFound,
    RemoteOtherEntity,
    RemoteRefused,
    RemoteUnauthorized,
)
from bridge.remote.patience import Patience
from bridge.wire.atom.client import API_VERSION

KEY = "c2VjcmV0PT0="
QUEUE = """<entry xmlns="http://www.w3.org/2005/Atom"><id>https://one.example/{name}</id>
<title type="text">{name}</title><content type="application/xml">
<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
  xmlns:i="http://www.w3.org/2001/XMLSchema-instance">
<LockDuration>PT1M</LockDuration><MaxDeliveryCount>10</MaxDeliveryCount>
<AuthorizationRules><AuthorizationRule i:type="SharedAccessAuthorizationRule">
<ClaimType>SharedAccessKey</ClaimType><Rights><AccessRights>Listen</AccessRights></Rights>
<KeyName>reader</KeyName><PrimaryKey>a&amp;b</PrimaryKey></AuthorizationRule></AuthorizationRules>
<Status>Active</Status><CreatedAt>2026-11-02T09:14:03.12Z</CreatedAt>
<AccessedAt>0001-01-01T00:00:00Z</AccessedAt>
<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">
<d2p1:ActiveMessageCount>3</d2p1:ActiveMessageCount>
<d2p1:DeadLetterMessageCount>1</d2p1:DeadLetterMessageCount></CountDetails>
<SizeInBytes>512</SizeInBytes><MessageCount>4</MessageCount>
<OfALaterVersion>kept</OfALaterVersion></QueueDescription></content></entry>"""
NOTHING = '<feed xmlns="http://www.w3.org/2005/Atom"><title>Publicly Listed Services</title></feed>'

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def free_port() -> int:
    """Return a port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def at_port(port: int) -> str:
    """Return host and port."""
    return f"127.0.0.1:{port}"


@asynccontextmanager
async def served(
    answer: Answer, *, total_s: float = 15.0, more: str = "", place: Callable[[int], str] = at_port
) -> AsyncIterator[RemoteAdministration]:
    """A namespace that answers by a function, and its administration.

    Args:
        more: what stands behind the rest in its connection string.
        place: returns host and port of the Endpoint, given the port.
    """
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    text = f"Endpoint=sb://{place(port)};UseDevelopmentEmulator=true{more}"
    try:
        address, patience = RemoteAddress.of(text), Patience(total_s=total_s, sleep=at_once)
        key = SharedKey("root", KEY)
        async with RemoteAdministration(address, key, patience=patience) as found:
            yield found
    finally:
        await runner.cleanup()


async def at_once(wait_s: float) -> None:
    """Wait no time before a request is made again."""
    WAITED_S.append(wait_s)


WAITED_S: list[float] = []


def entry(name: str) -> web.Response:
    """Return the answer that describes a queue."""
    return web.Response(text=QUEUE.format(name=name), content_type="application/xml")


def error(status: int, detail: str) -> web.Response:
    """Return the answer that refuses."""
    return web.Response(status=status, text=f"<Error><Detail>{detail}</Detail></Error>")


async def test_a_description_is_read_with_counts_and_times() -> None:
    """A time of the year 1 is none; a count that is not told is 0."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["api-version"] == API_VERSION
        assert request.headers["Authorization"].startswith("SharedAccessSignature sr=")
        return entry("orders")

    async with served(answer) as namespace:
        found = await namespace.get("Queue", "orders")
    assert (found.path, found.status) == ("orders", "Active")
    assert (found.counts.active, found.counts.dead_letter, found.counts.scheduled) == (3, 1, 0)
    assert found.counts.size_bytes == 512
    assert found.time("CreatedAt") == "2026-11-02T09:14:03.12Z"
    assert found.time("AccessedAt") is None
    assert found.properties == {
        "LockDuration": "PT1M",
        "MaxDeliveryCount": "10",
        "Status": "Active",
    }
    assert [rule.name for rule in found.access_rules] == ["reader"]


async def test_an_update_keeps_what_it_does_not_change_and_what_it_does_not_know() -> None:
    """Access rules with their keys, and elements of later versions; counts are not sent."""
    bodies = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "PUT":
            assert request.headers["If-Match"] == "*"
            bodies.append(await request.text())
        return entry("orders")

    async with served(answer) as namespace:
        there = await namespace.get("Queue", "orders")
        await namespace.update("Queue", there.changed({"MaxDeliveryCount": "3"}), "orders")
    (body,) = bodies
    assert "<MaxDeliveryCount>3</MaxDeliveryCount>" in body
    assert "<PrimaryKey>a&amp;b</PrimaryKey>" in body
    assert 'i:type="SharedAccessAuthorizationRule"' in body
    assert "<OfALaterVersion>kept</OfALaterVersion>" in body
    assert not [name for name in ("CountDetails", "MessageCount", "CreatedAt") if name in body]
    names = [body.index(f"<{name}>") for name in ("LockDuration", "MaxDeliveryCount", "Status")]
    assert names == sorted(names)


async def test_of_a_connection_string_for_one_entity_only_this_one_is_listed_and_changed() -> None:
    """The key of an entity may not list a namespace; an entity outside is never asked for."""
    asked = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return entry("orders")

    async with served(answer, more=";EntityPath=orders") as namespace:
        assert [each.path async for each in namespace.queues()] == ["orders"]
        assert [each.path async for each in namespace.topics()] == []
        assert (await namespace.find("orders")).path == "orders"
        assert set(asked) == {"/orders"}
        asked.clear()
        there = await namespace.get("Queue", "orders")
        for call in (
            namespace.get("Queue", "other"),
            namespace.find("other"),
            namespace.delete("other"),
            namespace.create("Queue", there.changed({}), "other"),
            namespace.update("Queue", there.changed({}), "other"),
            anext(namespace.subscriptions("other")),
            anext(namespace.rules("other", "all")),
        ):
            with pytest.raises(RemoteOtherEntity, match="not for 'other'"):
                await call
        assert asked == ["/orders"]


async def test_administration_that_is_not_at_the_emulators_port_is_found_at_that_of_amqp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a bridge has it; what changes something is asked once, and the place is kept."""
    asked = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request.method, request.path))
        return entry("orders")

    def without_port(port: int) -> str:
        monkeypatch.setattr("bridge.remote.address.EMULATOR_ADMINISTRATION_PORT", free_port())
        monkeypatch.setattr("bridge.remote.address.AMQP_PORT", port)
        return "127.0.0.1"

    async with served(answer, place=without_port) as namespace:
        await namespace.delete("orders")
        await namespace.get("Queue", "orders")
    assert asked == [
        ("GET", "/$namespaceinfo"), ("DELETE", "/orders"), ("GET", "/orders"),
    ]  # fmt: skip


@pytest.mark.parametrize("speaks", ["nothing", "something else"])
async def test_administration_that_is_nowhere_says_how_to_name_its_port(
    monkeypatch: pytest.MonkeyPatch, speaks: str
) -> None:
    """With the place that was asked first; RabbitMQ at the other port is none."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"AMQP\x00\x00\x09\x01")
        writer.close()

    port, other = free_port(), free_port()
    monkeypatch.setattr("bridge.remote.address.EMULATOR_ADMINISTRATION_PORT", port)
    monkeypatch.setattr("bridge.remote.address.AMQP_PORT", other)
    listening = await asyncio.start_server(refuse, "127.0.0.1", other)
    if speaks == "nothing":
        listening.close()
    address = RemoteAddress.of("Endpoint=sb://localhost;UseDevelopmentEmulator=true")
    async with RemoteAdministration(address, SharedKey("root", KEY)) as namespace:
        with pytest.raises(RemoteConnectionLost) as caught:
            await namespace.delete("orders")
    listening.close()
    assert str(caught.value).startswith(f"http://localhost:{port} does not answer: Connection ref")
    assert "name it in the Endpoint: sb://HOST:PORT." in str(caught.value)
    assert not caught.value.in_doubt


@pytest.mark.parametrize("content", [None, "no certificates"])
async def test_a_ca_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    """Before anything is asked."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    address = RemoteAddress.of("one.example", ca_file=file)
    async with RemoteAdministration(address, SharedKey("root", KEY)) as namespace:
        with pytest.raises(RemoteRefused, match=f"The CA file {file} cannot be read"):
            await namespace.get("Queue", "q")


async def test_what_is_forwarded_to_has_a_token_of_its_own() -> None:
    """As the SDKs send it: the namespace asks whether the client may send there."""
    headers = []

    async def answer(request: web.Request) -> web.StreamResponse:
        headers.append(request.headers["ServiceBusSupplementaryAuthorization"])
        return entry("orders")

    async with served(answer) as namespace:
        node = entity_node(EntityKind.QUEUE, {"ForwardTo": "sb://one.example/other"})
        await namespace.create("Queue", node, "orders")
    assert "sr=sb%3A%2F%2Fone.example%2Fother&" in headers[0]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_busy_namespace_is_asked_again(method: str) -> None:
    """It has done nothing: a change is made again, too; after the wait that it asks for."""
    count = 0
    WAITED_S.clear()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        return error(503, "50009 Please wait 6 seconds and try again.") if count < 3 else entry("q")

    async with served(answer) as namespace:
        if method == "GET":
            await namespace.get("Queue", "q")
        elif method == "PUT":
            await namespace.create("Queue", entity_node(EntityKind.QUEUE, {}), "q")
        else:
            await namespace.delete("q")
    assert count == 3
    assert len(WAITED_S) == 2
    assert min(WAITED_S) >= 6


async def test_a_namespace_that_stays_busy_is_given_up() -> None:
    """With its own words."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return error(503, "Too busy.")

    async with served(answer, total_s=0.05) as namespace:
        with pytest.raises(RemoteBusy, match="Too busy"):
            await namespace.get("Queue", "q")


async def test_a_read_whose_connection_is_lost_is_made_again_and_a_change_is_not() -> None:
    """Who knows whether it was made: that is said."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        if seen.count(request.method) < 2 and len(seen) > 1:
            assert request.transport is not None
            request.transport.abort()
        return entry("q")

    async with served(answer) as namespace:
        await namespace.get("Queue", "q")
        seen.clear()
        seen.append("-")
        await namespace.get("Queue", "q")
        assert seen == ["-", "GET", "GET"]
        with pytest.raises(RemoteConnectionLost) as lost:
            await namespace.create("Queue", entity_node(EntityKind.QUEUE, {}), "q")
        assert lost.value.in_doubt
        assert seen == ["-", "GET", "GET", "PUT"]


@pytest.mark.parametrize(("method", "count"), [("GET", 3), ("PUT", 1)])
async def test_a_change_that_failed_inside_the_namespace_is_not_made_again(
    method: str, count: int
) -> None:
    """It may have been made; a read is made again."""
    seen = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        return error(500, "Something.") if len(seen) < 3 else entry("q")

    async with served(answer) as namespace:
        if method == "GET":
            await namespace.get("Queue", "q")
        else:
            with pytest.raises(RemoteError, match="Something"):
                await namespace.create("Queue", entity_node(EntityKind.QUEUE, {}), "q")
    assert seen == [method] * count


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 412, 501])
async def test_what_the_namespace_refuses_is_asked_for_once(status: int, method: str) -> None:
    """A quota, too, which a queue's senders wait for: the user is told at once."""
    seen = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        return error(status, "SubCode=40300. The quota is used up.")

    async with served(answer) as namespace:
        if method == "GET":
            work = namespace.get("Queue", "q")
        else:
            work = namespace.create("Queue", entity_node(EntityKind.QUEUE, {}), "q")
        with pytest.raises(RemoteError, match="used up"):
            await work
    assert seen == [method]


async def test_where_nothing_listens_the_first_request_says_so_at_once() -> None:
    """And that nothing was done."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        text = f"Endpoint=sb://127.0.0.1:{taken.getsockname()[1]};UseDevelopmentEmulator=true"
        async with RemoteAdministration(RemoteAddress.of(text), SharedKey("root", KEY)) as it:
            with pytest.raises(RemoteConnectionLost, match="Connection refused") as lost:
                await it.get("Queue", "q")
    assert not lost.value.in_doubt


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RemoteRefused),
        (401, RemoteUnauthorized),
        (404, RemoteNotFound),
        (409, RemoteRefused),
        (500, RemoteRefused),
    ],
)
async def test_a_refusal_has_the_namespaces_own_words(status: int, kind: type[RemoteError]) -> None:
    """Those of its document; without one, the status."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/bare"):
            return web.Response(status=status, text="<html><br></html>")
        return error(status, "SubCode=40000. Not so.")

    async with served(answer, total_s=0) as namespace:
        with pytest.raises(kind, match=r"SubCode=40000\. Not so"):
            await namespace.get("Queue", "q")
        with pytest.raises(kind, match=f"{status}"):
            await namespace.get("Queue", "bare")


@pytest.mark.parametrize("text", [NOTHING, QUEUE.replace("QueueDescription", "TopicDescription")])
async def test_what_is_of_another_kind_is_not_there(text: str) -> None:
    """Azure answers with an empty feed for a queue or topic that does not exist."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text.replace("{name}", "q"))

    async with served(answer) as namespace:
        with pytest.raises(RemoteNotFound, match="There is no queue 'q'"):
            await namespace.get("Queue", "q")


@pytest.mark.parametrize("text", ["<html><br></html>", "hello", "\xff"])
async def test_what_is_no_namespace_is_said_to_be_none(text: str) -> None:
    """A web page at the address, or any other server."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=text.encode("latin-1"))

    async with served(answer) as namespace:
        with pytest.raises(RemoteError, match="is it Service Bus"):
            await namespace.get("Queue", "q")


async def test_a_list_is_read_page_by_page() -> None:
    """Each page's place is in the link of the one before, as Azure writes it."""
    asked = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request.path, request.query["$skip"], request.query["$top"]))
        skip = int(request.query["$skip"])
        next_url = f"{request.url.origin()}/$Resources/Queues?%24skip={skip + 2}&%24top=2"
        link = f'<link rel="next" href="{next_url}"/>'.replace("&", "&amp;")
        entries = "".join(QUEUE.format(name=f"q{number}") for number in (skip, skip + 1))
        feed = f'<feed xmlns="http://www.w3.org/2005/Atom">{link * (skip < 4)}{entries}</feed>'
        return web.Response(text=feed)

    async with served(answer) as namespace:
        found = [each.name async for each in namespace.queues()]
    assert found == ["q0", "q1", "q2", "q3", "q4", "q5"]
    assert [skip for _, skip, _ in asked] == ["0", "2", "4"]


async def test_a_token_of_an_issuer_is_a_bearers() -> None:
    """As azure-identity gives it."""
    seen = []

    class Issuer:
        async def token(self, audience: str, now_s: float) -> RemoteToken:
            return RemoteToken("a.b.c", "jwt", now_s + 60)

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return entry("q")

    async with served(answer) as namespace:
        namespace._credential = Issuer()
        await namespace.get("Queue", "q")
    assert seen == ["Bearer a.b.c"]
