"""A gateway on the engine in memory, in the test's own loop, and raw clients of it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from bridge.access.access import Access
from bridge.gateway.server import Gateway
from bridge.gateway.settings import Settings
from bridge.model.access_rules import RuleSet
from bridge.model.entity import AuthorizationRule, Queue
from bridge.model.name import parse_path
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.types import Described, Symbol, Ulong
from tests.bench.memory_namespace import MemoryNamespace
from tests.bench.memory_queue import MemoryQueue
from tests.conformance.client import Client, sas
from tests.conformance.door import ROOT_RULE

QUEUE = Queue(name="q", lock_duration_ms=5_000)
Q = parse_path("q")


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
        access or Access(RuleSet(namespace=rules or (ROOT_RULE,))),
        Settings(**settings),  # type: ignore[arg-type]
        app=app,
    )
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
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


def queue_of(served: Gateway) -> MemoryQueue:
    """Return the queue behind a gateway."""
    assert isinstance(served.namespace, MemoryNamespace)
    return served.namespace._queue(Q)
