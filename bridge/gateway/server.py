"""The gateway: listeners, connections, and an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time

from aiohttp import web

from bridge.access.access import Access
from bridge.background.supervisor import Supervisor
from bridge.engine.api import NamespaceVerbs
from bridge.gateway.client.connections import Connections
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.first_byte import FirstByte
from bridge.gateway.http.site import Site
from bridge.gateway.listener import Listener

_log = logging.getLogger("busbridge.gateway")

GOODBYE_S = 0.5
"""How long a stop waits for clients to answer the bridge's close."""


class Gateway:
    """The gateway of a namespace: AMQP 1.0, plain, in TLS and in WebSockets, and HTTP, on one port.

    Args:
        namespace: the engine's verbs.
        access: verifies tokens and keys.
        app: answers HTTP requests other than the WebSocket's (see `Site`).
        supervisor: keeps the listeners accepting.

    Attributes:
        access: verifies tokens and keys.
        connections: the AMQP connections, and what all connections share.
        admission, backlog: the limits of all connections, and counts.
        site: the HTTP side of the gateway.
    """

    def __init__(
        self,
        namespace: NamespaceVerbs,
        access: Access,
        settings: GatewaySettings | None = None,
        *,
        app: web.Application | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.access = access
        self.settings = settings if settings is not None else GatewaySettings()
        self._supervisor = supervisor or Supervisor()
        self.connections = Connections(namespace, access, self.settings)
        self.admission, self.backlog = self.connections.admission, self.connections.backlog
        self.site = Site(self.connections, app)
        self._listeners: list[Listener] = []
        access.on_changed.append(self.connections.recheck)

    def __repr__(self) -> str:
        return f"<Gateway listeners={len(self._listeners)} connections={len(self.connections)}>"

    async def listen(
        self,
        listener: socket.socket,
        *,
        tls: ssl.SSLContext | None = None,
        is_tls_only: bool = False,
    ) -> int:
        """Take connections on a listening socket; returns its port.

        With `tls`, clients may begin with TLS, and have to where `is_tls_only` says so.
        """
        await self.site.start()
        self._listeners.append(
            Listener(
                listener,
                self.admission,
                lambda visit: FirstByte(self.connections, self.site, visit),
                tls=tls,
                is_tls_only=is_tls_only,
                handshake_s=self.settings.authorization_s,
                supervisor=self._supervisor,
            )
        )
        host, port = listener.getsockname()[:2]
        _log.info("gateway.listening host=%s port=%d tls=%s", host, port, tls is not None)
        return int(port)

    def close_listeners(self) -> None:
        """Take no more connections."""
        for listener in self._listeners:
            listener.close()

    async def stop(self) -> None:
        """Take nothing more, answer operations under way, then close every connection.

        A sender hears of stored messages before its connection ends, or it would send them again.
        """
        connections = self.connections
        connections.is_stopping = True
        self.close_listeners()
        for connection in list(connections):
            connection.stop()
        self.site.end_waits()
        connections.endings.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.stop_s):
                for connection in list(connections):
                    await connection.work.answered()
                await self.site.answered()
        for connection in list(connections):
            connection.say_goodbye()
        deadline_s = time.monotonic() + GOODBYE_S
        while connections and time.monotonic() < deadline_s:
            connections.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connections.changed.wait(), deadline_s - time.monotonic())
        for connection in list(connections):
            connection.abort()
        for transport in list(connections.others):
            transport.abort()
        await asyncio.sleep(0)
        connections.endings.finish()
        await self.site.close()
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()
