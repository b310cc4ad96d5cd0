"""A gateway on the in-memory engine, in a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bridge.access.access import Access
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.server import Gateway
from bridge.model.access_rules import AccessRuleSet
from bridge.model.entity import AuthorizationRule, Queue, Right
from tests.bench.memory_namespace import MemoryNamespace
from tests.fixtures.listening import free_listener

KEY = "SAS_KEY_VALUE"
RULE_NAME = "RootManageSharedAccessKey"
ROOT_RULE = AuthorizationRule(name=RULE_NAME, primary_key=KEY, rights=frozenset(Right))

T = TypeVar("T")


class Door:
    """A running gateway.

    Attributes:
        gateway, namespace: belong to the thread's loop; use `call`.
        port, tls_port: where it listens.
    """

    def __init__(
        self,
        *queues: Queue,
        settings: GatewaySettings | None = None,
        rules: tuple[AuthorizationRule, ...] = (ROOT_RULE,),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._queues = queues
        self._settings = settings
        self._rules = rules
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.gateway: Gateway
        self.namespace: MemoryNamespace
        self.port = self.tls_port = 0

    def __enter__(self) -> Door:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.gateway.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    async def _start(self) -> None:
        self.namespace = MemoryNamespace(*self._queues)
        access = Access(AccessRuleSet(namespace=self._rules))
        self.gateway = Gateway(self.namespace, access, self._settings)
        self.port = await self.gateway.listen(free_listener())
        if self._tls is not None:
            listener = free_listener()
            self.tls_port = await self.gateway.listen(listener, tls=self._tls)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the gateway's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def call(self, function: Callable[[], T]) -> T:
        """Call something in the gateway's loop."""

        async def work() -> T:
            return function()

        return self.run(work())

    @property
    def connection_string(self) -> str:
        """The connection string that SDKs take."""
        return connection_string(self.port)


def connection_string(port: int, *, rule: str = RULE_NAME, key: str = KEY) -> str:
    """Return a connection string for a port of this machine."""
    return (
        f"Endpoint=sb://localhost:{port};SharedAccessKeyName={rule};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )
