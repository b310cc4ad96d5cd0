"""A gateway on the engine in memory, in the test's own loop, and raw clients of it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from bridge.access.access import Access
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.connection.connection import ClientConnection
from bridge.gateway.server import Gateway
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import AuthorizationRule, Queue
from bridge.model.name import parse_path
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.types import Described, Symbol, Ulong
from tests.bench.memory_namespace import MemoryNamespace
from tests.bench.memory_queue import MemoryQueue
from tests.conformance.client import Client, sas
from tests.conformance.door import ROOT_RULE
from tests.fixtures.listening import free_listener

QUEUE = Queue(name="q", lock_duration_ms=5_000)
Q = parse_path("q")

Certified = tuple[Path, Path]
"""A certificate and its key, of the fixture `certified`."""


def server_tls(certified: Certified) -> ssl.SSLContext:
    """Return the context of a server with this certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certified)
    return context


def client_tls(certified: Certified) -> ssl.SSLContext:
    """Return the context of a client that trusts this certificate."""
    return ssl.create_default_context(cafile=certified[0])


@asynccontextmanager
async def gateway(
    *rules: AuthorizationRule,
    namespace: MemoryNamespace | None = None,
    tls: ssl.SSLContext | None = None,
    is_tls_only: bool = False,
    app: web.Application | None = None,
    queue: Queue = QUEUE,
    access: Access | None = None,
    message_bytes_max: int = 262_144,
    **settings: object,
) -> AsyncIterator[tuple[Gateway, int]]:
    """Run a gateway; yields it with its port."""
    namespace = namespace or MemoryNamespace(queue)
    namespace.sent_bytes_max = message_bytes_max
    served = Gateway(
        namespace,
        access or Access(AccessRuleSet(namespace=rules or (ROOT_RULE,))),
        GatewaySettings(**settings),  # type: ignore[arg-type]
        app=app,
    )
    listener = free_listener()
    port = await served.listen(listener, tls=tls, is_tls_only=is_tls_only)
    try:
        yield served, port
    finally:
        await served.stop()


@asynccontextmanager
async def client(
    port: int, *, authorised: bool = True, product: str | None = None
) -> AsyncIterator[Client]:
    """Connect, and put a token for everything; `product` is the SDK that it says it is."""
    properties = None if product is None else {Symbol("product"): product}
    connected = await (await Client.connect(port)).open(properties=properties)
    try:
        if authorised:
            assert await connected.put_token(sas()) == 202
        yield connected
    finally:
        await connected.close()


def message(body: bytes) -> bytes:
    """Return the smallest message."""
    return writing.encode(Described(Ulong(0x75), body))


def connections_of(served: Gateway) -> list[ClientConnection]:
    """Return the AMQP connections of a gateway."""
    return [each for each in served.connections if isinstance(each, ClientConnection)]


def queue_of(served: Gateway) -> MemoryQueue:
    """Return the queue behind a gateway."""
    assert isinstance(served.connections.namespace, MemoryNamespace)
    return served.connections.namespace.queue(Q)
