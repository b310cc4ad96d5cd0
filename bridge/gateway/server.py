"""The gateway: listeners, connections, and an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from itertools import islice

from aiohttp import web

from bridge.access.access import Access
from bridge.background.supervisor import Supervisor
from bridge.engine.api import Namespace
from bridge.gateway.admission import Admission, Ended
from bridge.gateway.backlog import Backlog
from bridge.gateway.connection import Connection
from bridge.gateway.endings import Endings
from bridge.gateway.first_byte import FirstByte
from bridge.gateway.listener import Listener
from bridge.gateway.settings import Settings
from bridge.gateway.site import Site
from bridge.gateway.turns import Turns

_log = logging.getLogger("busbridge.gateway")

RECHECKS_MAX = 200
"""The most links that are checked in one turn after a change of entities."""

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
        connections: the AMQP connections.
        others: the transports of HTTP connections, WebSockets included, and of silent clients.
        site: the HTTP side of the gateway.
        admission: the connection limits, and counts of refused connections.
        backlog: the limits of unfinished, unconfirmed and unread bytes of all connections.
        turns, turns_of_unauthenticated: the schedulers of client input; unauthenticated clients
            take no time from others.
        endings: the ended links that are not released yet.
        is_stopping: nothing more is taken of any client.
    """

    def __init__(
        self,
        namespace: Namespace,
        access: Access,
        settings: Settings | None = None,
        *,
        app: web.Application | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.namespace = namespace
        self.access = access
        self.settings = settings if settings is not None else Settings()
        self._supervisor = supervisor or Supervisor()
        self.connections: set[Connection] = set()
        self.others: set[asyncio.Transport] = set()
        self.site = Site(self, app)
        self.is_stopping = False
        self.admission = Admission(self.settings.connections_max, self.settings.unauthenticated_max)
        self.backlog = Backlog(self.settings)
        loop = asyncio.get_running_loop()
        self.turns = Turns(loop, self.settings.turn_s)
        self.turns_of_unauthenticated = Turns(loop, self.settings.unauthenticated_turn_s)
        self.endings = Endings(loop)
        self._loop = loop
        self._unchecked: dict[Connection, None] = {}
        self._checks: Iterator[None] | None = None
        self._changed = asyncio.Event()
        self._listeners: list[Listener] = []
        access.on_changed.append(self.recheck)

    def __repr__(self) -> str:
        return f"<Gateway listeners={len(self._listeners)} connections={len(self.connections)}>"

    def add(self, connection: Connection) -> None:
        """Add an AMQP connection."""
        self.connections.add(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self.connections.discard(connection)
        self._changed.set()

    def note_ended(self, connection: Connection, reason: Ended) -> None:
        """Count a connection that the bridge ends."""
        self.admission.ended[reason] += 1
        connection.log.info("connection.ended", reason=reason.value)

    def recheck(self, connection: Connection | None = None) -> None:
        """End the links that are not allowed any more, after a change of entities or of rules.

        Args:
            connection: the one whose tokens alone have changed.
        """
        checked = self.connections if connection is None else (connection,)
        self._unchecked |= dict.fromkeys(checked)
        if self._checks is None:
            self._checks = self._recheck_each()
            self._recheck_some()

    def _recheck_each(self) -> Iterator[None]:
        """Check the links of all waiting connections, one a step."""
        while self._unchecked:
            connection = next(iter(self._unchecked))
            del self._unchecked[connection]
            yield from connection.links.recheck()

    def _recheck_some(self) -> None:
        """Check some links in this turn of the event loop, and the others in the next turns."""
        assert self._checks is not None
        for _ in islice(self._checks, RECHECKS_MAX - 1):
            pass
        if next(self._checks, self) is self:
            self._checks = None
        else:
            self._loop.call_soon(self._recheck_some)

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
                lambda visit: FirstByte(self, visit),
                tls=tls,
                is_tls_only=is_tls_only,
                handshake_s=self.settings.authorization_s,
                supervisor=self._supervisor,
            )
        )
        host, port = listener.getsockname()[:2]
        _log.info("gateway.listening host=%s port=%d tls=%s", host, port, tls is not None)
        return int(port)

    async def stop(self) -> None:
        """Take nothing more, answer operations under way, then close every connection.

        A sender hears of stored messages before its connection ends, or it would send them again.
        """
        self.is_stopping = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.stop()
        self.site.end_waits()
        self.endings.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.stop_s):
                for connection in list(self.connections):
                    await connection.work.answered()
                await self.site.answered()
        for connection in list(self.connections):
            connection.say_goodbye()
        deadline_s = time.monotonic() + GOODBYE_S
        while self.connections and time.monotonic() < deadline_s:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), deadline_s - time.monotonic())
        for connection in list(self.connections):
            connection.abort()
        for transport in list(self.others):
            transport.abort()
        await asyncio.sleep(0)
        self.endings.finish()
        await self.site.close()
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()
