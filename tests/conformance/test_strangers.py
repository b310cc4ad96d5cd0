"""What somebody gets who has shown no token: little, for a short time, and nothing of others'."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.gateway.client.admission import ConnectionEnd, NotAdmitted, network_of
from bridge.machine.amqp10.limits import Limits
from bridge.wire.amqp10.frame import ProtocolHeader, encode_frame
from bridge.wire.amqp10.performatives import Attach, Close, Detach, Open, SaslInit
from tests.conformance.client import Client, sas
from tests.conformance.served import client, gateway, server_tls
from tests.fixtures.waiting import until

SASL = ProtocolHeader.SASL.value
AMQP = ProtocolHeader.AMQP.value
ANONYMOUS = SASL + encode_frame(0, SaslInit("ANONYMOUS"), frame_type=1)


async def stranger(port: int, said: bytes = b"") -> Client:
    """Connect and say something."""
    connected = await Client.connect(port)
    connected.write(said)
    connected.read()
    return connected


@pytest.mark.parametrize(
    "said",
    [
        b"",
        SASL[:5],
        SASL,
        ANONYMOUS[:-3],
        ANONYMOUS + AMQP,
        ANONYMOUS + AMQP + encode_frame(0, Open("x"))[:-1],
    ],
    ids=["nothing", "half a header", "a header", "half a login", "a login", "half an open"],
)
async def test_a_login_that_does_not_end(said: bytes) -> None:
    """A client without a token in time is disconnected and counted, at each step of the login."""
    async with gateway(authorization_s=0.2) as (served, port):
        peer = await stranger(port, said)
        await peer.closed(within_s=120)
        await peer.close()

        await until(lambda: not served.connections)
        assert served.admission.ended[ConnectionEnd.UNAUTHENTICATED] == 1
        assert (served.admission.connections, served.admission.unauthenticated) == (0, 0)


async def test_a_handshake_that_does_not_end(certified: tuple[Path, Path]) -> None:
    """A TLS handshake has no longer than a login, and counts as a connection meanwhile."""
    tls = server_tls(certified)
    async with gateway(tls=tls, is_tls_only=True, authorization_s=0.5) as (served, port):
        peer = await stranger(port, b"\x16\x03\x01")
        await until(lambda: served.admission.unauthenticated == 1)
        await peer.closed(within_s=120)
        await peer.close()
        nonsense = await stranger(port, b"GET / HTTP/1.1\r\n\r\n")
        await nonsense.closed()
        await nonsense.close()

        await until(lambda: not served.admission.connections)
        assert served.admission.ended[ConnectionEnd.TLS] == 2


@pytest.mark.parametrize(
    "said",
    [
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x00\x01\x01\x00",
        b"AMQP\x03\x01\x01\x00",
        b"AMQP\x02\x01\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n\r\n\x00\r\nQUIT\n!\x11\x00\x0c",
    ],
    ids=["AMQP 0-9-1", "AMQP 1.1", "SASL 1.1", "AMQP TLS", "TLS", "PROXY 2"],
)
async def test_another_protocol(said: bytes) -> None:
    """Another protocol is answered with the header that would have been understood, and counted."""
    async with gateway() as (served, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        async with asyncio.timeout(120):
            answer = await reader.read()
        writer.close()

        assert answer == SASL
        assert served.admission.ended[ConnectionEnd.LOGIN] == 1


async def test_frames_after_the_login_of_the_wrong_kind() -> None:
    """A SASL frame after the outcome, and a frame before `open`, end the connection."""
    async with gateway() as (served, port):
        for said in (ANONYMOUS + ANONYMOUS[8:], ANONYMOUS + AMQP + encode_frame(0, Close())[:-3]):
            peer = await stranger(port, said + b"\0" * 8)
            await peer.closed()
            await peer.close()

        assert served.admission.ended[ConnectionEnd.LOGIN] == 2


async def test_strangers_of_one_address() -> None:
    """An address has so many connections without a token; those with one do not count."""
    async with gateway(unauthenticated_max=3) as (served, port):
        known = [await (await Client.connect(port)).open() for _ in range(3)]
        turned_away = await stranger(port)
        await turned_away.closed()
        for each in known:
            assert await each.put_token(sas()) == 202
        async with client(port) as another:
            another.attach(7, "q", role=False)
            await another.next(Attach, handle=7)
        for each in (*known, turned_away):
            await each.close()

        assert served.admission.refused[NotAdmitted.ADDRESS] == 1
        await until(lambda: not served.admission.connections)


async def test_connections_of_all_clients() -> None:
    """A bridge has so many connections; when one ends there is room for another."""
    async with gateway(connections_max=2) as (served, port), client(port) as first:
        second = await (await Client.connect(port)).open()
        assert await second.put_token(sas()) == 202
        third = await stranger(port)
        await third.closed()
        await third.close()
        assert served.admission.refused[NotAdmitted.CONNECTIONS] == 1
        await second.close()
        await until(lambda: served.admission.connections == 1)
        async with client(port) as fourth:
            assert await fourth.put_token(sas()) == 202
        assert await first.put_token(sas()) == 202


def test_what_one_address_is() -> None:
    """All addresses of one IPv6 network count as one, as one owner has all of them."""
    assert network_of("10.0.0.1") == network_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db9::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")


async def test_links_before_a_token() -> None:
    """Without a token there are eight links, whatever they ask for; to an entity there is none."""
    async with gateway() as (served, port):
        peer = await (await Client.connect(port)).open()
        for role in (True, False):
            peer.attach(1, "q", role=role)
            detach = await peer.next(Detach, handle=1)
            assert detach.error.condition == "amqp:unauthorized-access"
            peer.send_detach(1)
        for handle in range(9):
            peer.attach(handle, "$cbs" if handle % 2 else "q", role=True)
        close = await peer.next(Close)
        await peer.closed()
        await peer.close()

        assert close.error.condition == "amqp:resource-limit-exceeded"
        assert served.admission.ended[ConnectionEnd.LOGIN] == 1


async def test_links_of_a_connection() -> None:
    """With a token there are as many as the limit says, and one that is detached counts no more."""
    async with gateway(limits=Limits(links_max=20)) as (served, port), client(port) as peer:
        for _ in range(50):
            peer.attach(7, "q", role=False)
            peer.send_detach(7)
        for handle in range(10, 28):
            peer.attach(handle, "q", role=False)
        await peer.next(Attach, handle=27)
        peer.attach(28, "q", role=False)
        close = await peer.next(Close)

        assert close.error.condition == "amqp:resource-limit-exceeded"
        assert served.admission.ended[ConnectionEnd.FAULT] == 1
