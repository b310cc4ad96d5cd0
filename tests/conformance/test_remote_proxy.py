"""A namespace behind an HTTP proxy, as in a network that lets nothing else through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web

from bridge.commands.doctor_checks import certificate, clock, ports
from bridge.commands.target import NamespaceLogin
from bridge.remote.address import RemoteAddress
from bridge.remote.administration import RemoteAdministration
from bridge.remote.errors import RemoteConnectionLost, RemoteRefused
from bridge.remote.outcomes import Complete
from bridge.remote.patience import Patience
from bridge.remote.proxy import proxy_of
from tests.conformance.remote import ONCE, ROOT, WAIT_S, remote, text
from tests.conformance.served import Certified, gateway, queue_of, server_tls
from tests.fixtures.connect_proxy import ConnectProxy, connect_proxy
from tests.unit.remote.test_administration import entry

AZURE = "one.servicebus.windows.net"
PLACE = f"{AZURE}:443"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy but those of a test."""
    for name in ("http", "https", "all", "no", "ws", "wss"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


async def describe(request: web.Request) -> web.StreamResponse:
    """Describe a queue."""
    return entry(request.path.strip("/"))


@asynccontextmanager
async def behind_a_proxy(
    certified: Certified,
    monkeypatch: pytest.MonkeyPatch,
    *,
    password: str = "",
    is_encrypted: bool = False,
) -> AsyncIterator[tuple[ConnectProxy, RemoteAddress]]:
    """A namespace of Azure's name, which the proxy alone can find."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", describe)
    async with (
        gateway(app=app, tls=server_tls(certified), is_tls_only=True) as (_, port),
        connect_proxy(
            {PLACE: port}, password=password, tls=server_tls(certified) if is_encrypted else None
        ) as proxy,
    ):
        login = f"{password}@" if password else ""
        place = (
            f"{login}localhost:{proxy.port}" if is_encrypted else f"{login}127.0.0.1:{proxy.port}"
        )
        monkeypatch.setenv("HTTPS_PROXY", f"http{'s' * is_encrypted}://{place}")
        yield proxy, RemoteAddress.of(AZURE, ca_file=certified[0], websocket=True)


@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("password", ["", "me:secret"])
async def test_messages_and_administration_go_through_the_proxy(
    certified: Certified, monkeypatch: pytest.MonkeyPatch, password: str, *, is_encrypted: bool
) -> None:
    """To the name that the connection string has, and encrypted up to the namespace."""
    async with behind_a_proxy(
        certified, monkeypatch, password=password, is_encrypted=is_encrypted
    ) as (proxy, address):
        async with remote(address, patience=ONCE) as namespace:
            await (await namespace.sender("q")).send([text("m")])
            receiver = await namespace.receiver("q")
            (found,) = await receiver.receive(1, WAIT_S)
            assert found.message.data == b"m"
            await receiver.settle(found, Complete())
        assert proxy.asked == [PLACE]
        async with RemoteAdministration(address, ROOT, patience=ONCE) as administration:
            assert (await administration.get("Queue", "orders")).path == "orders"
        assert proxy.asked == [PLACE, PLACE]


async def test_a_proxy_that_goes_away_leaves_a_send_in_doubt_and_comes_back(
    certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any connection; the next send goes, and each message is there once."""
    async with behind_a_proxy(certified, monkeypatch) as (proxy, address):
        async with remote(address, patience=Patience(total_s=WAIT_S)) as namespace:
            sender = await namespace.sender("q")
            await sender.send([text("0")])
            proxy.cut()
            with pytest.raises(RemoteConnectionLost) as caught:
                await sender.send([text("1")])
            assert caught.value.in_doubt
            await sender.send([text("2")])
            management = await namespace.management("q")
            assert [each.data for each in await management.peek(1, 10)] == [b"0", b"2"]
        assert len(proxy.asked) == 2


async def test_a_proxy_that_refuses_is_named_without_its_password(
    certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the sentence of messages and of administration."""
    async with behind_a_proxy(certified, monkeypatch, password="me:secret") as (proxy, address):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:wrong@127.0.0.1:{proxy.port}")
        expected = f"through the proxy http://127.0.0.1:{proxy.port}: 407 Proxy Authentication"
        async with (
            remote(address, patience=ONCE) as namespace,
            RemoteAdministration(address, ROOT, patience=ONCE) as administration,
        ):
            for call in (lambda: namespace.sender("q"), lambda: administration.get("Queue", "q")):
                with pytest.raises(RemoteConnectionLost, match=expected) as caught:
                    await call()
                assert "wrong" not in str(caught.value)
                assert not caught.value.in_doubt


async def test_the_doctor_looks_through_the_proxy(
    certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the port and the certificate of the namespace; what the proxy refuses is its fault."""
    now = datetime.now(UTC)
    async with behind_a_proxy(certified, monkeypatch, password="me:secret") as (proxy, address):
        target = NamespaceLogin("one", address, ROOT)
        way = f"through the proxy http://127.0.0.1:{proxy.port}"
        found = [each async for each in ports(target)]
        found += [await certificate(target, lambda: now), await clock(target, lambda: now)]
        assert [each.result for each in found] == ["ok", "warning", "ok"]  # it ends tomorrow
        assert way in found[0].text
        assert set(proxy.asked) == {PLACE}
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        (found_one,) = [each async for each in ports(target)]
        assert found_one.result == "failed"
        assert "answers 407 Proxy Authentication Required" in found_one.text


async def test_the_doctor_looks_through_a_proxy_that_is_encrypted_itself(
    certified: Certified, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay's messages go through one; its certificate is verified as the namespace's is."""
    now = datetime.now(UTC)
    async with behind_a_proxy(certified, monkeypatch, is_encrypted=True) as (proxy, address):
        target = NamespaceLogin("one", address, ROOT)
        found = [each async for each in ports(target)]
        found += [await certificate(target, lambda: now), await clock(target, lambda: now)]
        assert [each.result for each in found] == ["ok", "warning", "ok"]
        assert f"through the proxy https://localhost:{proxy.port}" in found[0].text
        stranger = NamespaceLogin("one", RemoteAddress.of(AZURE, websocket=True), ROOT)
        (found_one,) = [each async for each in ports(stranger)]
        assert found_one.result == "failed"
        assert "certificate is not trusted" in found_one.text


async def test_a_proxy_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the namespace, which was never asked."""
    async with connect_proxy({}) as gone:
        pass
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{gone.port}")
    async with remote(RemoteAddress.of(AZURE, websocket=True), patience=ONCE) as namespace:
        with pytest.raises(RemoteConnectionLost, match=f"the proxy http://127.0.0.1:{gone.port}:"):
            await namespace.sender("q")


async def test_the_doctor_names_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the port and the certificate behind it; its password is not shown."""
    async with connect_proxy({}) as gone:
        pass
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{gone.port}")
    target = NamespaceLogin("one", RemoteAddress.of(AZURE, websocket=True), ROOT)
    found = [each async for each in ports(target)]
    found.append(await certificate(target, lambda: datetime.now(UTC)))
    text = f"the proxy http://127.0.0.1:{gone.port} does not answer: Connection refused"
    assert [(each.result, each.text) for each in found] == [("failed", text)] * 2


async def test_this_machine_is_reached_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge of localhost is not the proxy's."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    async with gateway() as (served, port):
        address = RemoteAddress.of(
            f"Endpoint=sb://localhost:{port};UseDevelopmentEmulator=true", websocket=True
        )
        async with remote(address, patience=ONCE) as namespace:
            await (await namespace.sender("q")).send([text("m")])
        assert len(queue_of(served).waiting) == 0


@pytest.mark.parametrize(
    ("variable", "value", "url", "expected"),
    [
        ("HTTPS_PROXY", "http://p:1", "wss://one/", "http://p:1"),
        ("https_proxy", "p:1", "https://one/", "http://p:1"),
        ("HTTPS_PROXY", "http://p:1", "ws://one/", None),
        ("HTTP_PROXY", "http://p:1", "ws://one/", "http://p:1"),
        ("ALL_PROXY", "http://p:1", "wss://one/", "http://p:1"),
        ("HTTPS_PROXY", "http://p:1", "wss://[::1]/", None),
        ("HTTPS_PROXY", "http://p:1", "wss://127.0.0.2/", None),
        ("HTTPS_PROXY", "http://p:1", "wss://a.local.one/", None),
        ("HTTPS_PROXY", "", "wss://one/", None),
    ],
)
def test_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, url: str, expected: str | None
) -> None:
    """A WebSocket's is that of HTTP; NO_PROXY takes names out."""
    monkeypatch.setenv("NO_PROXY", ".local.one")
    monkeypatch.setenv(variable, value)
    assert proxy_of(url) == expected


def test_a_proxy_that_is_none_of_http_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its password is not shown."""
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@p:1080")
    with pytest.raises(RemoteRefused, match="The proxy socks5://p:1080 of the environment") as met:
        proxy_of("https://one/")
    assert "secret" not in str(met.value)
