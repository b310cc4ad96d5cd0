"""A namespace that is reached over TLS through a tap, which plays Azure under stress."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bridge.model.entity import Queue
from bridge.remote.credentials import RemoteCredential
from bridge.remote.namespace import RemoteNamespace
from tests.bench.memory_namespace import MemoryNamespace
from tests.bench.memory_queue import MemoryQueue
from tests.conformance.remote import ROOT, Waits, remote, tls_address
from tests.conformance.served import Certified, client_tls, gateway, queue_of, server_tls
from tests.fixtures.tap import Tap, tap


@dataclass
class Stressed:
    """A tap, a namespace behind it, and how long its client was told to wait."""

    azure: Tap
    namespace: RemoteNamespace
    waits: Waits
    queue: MemoryQueue
    memory: MemoryNamespace


@asynccontextmanager
async def stressed(
    certified: Certified, credential: RemoteCredential = ROOT, **options: Any
) -> AsyncIterator[Stressed]:
    """Open a namespace through a tap, with the queues `q` and, of sessions, `s`."""
    server = server_tls(certified)
    waits = Waits()
    queues = Queue(name="q", lock_duration_ms=60_000), Queue(name="s", requires_session=True)
    memory = MemoryNamespace(*queues)
    patience = options.pop("patience", None) or waits.patience
    async with (
        gateway(namespace=memory, tls=server, is_tls_only=True) as (served, port),
        tap(port, bridge_tls=client_tls(certified), tls=server) as azure,
        remote(
            tls_address(azure.port, certified[0]), credential, patience=patience, **options
        ) as namespace,
    ):
        yield Stressed(azure, namespace, waits, queue_of(served), memory)
