"""The open connections of a gateway, and what they share: limits, turns and the engine's verbs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from bridge.access.access import Access
from bridge.engine.api import NamespaceVerbs
from bridge.gateway.client.admission import Admission, ConnectionEnd
from bridge.gateway.client.backlog import Backlog, Limited
from bridge.gateway.client.client import Client
from bridge.gateway.client.endings import Endings
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.client.turns import Turns

RECHECKS_MAX = 200
"""The most links that are checked in one turn after a change of entities."""


class OpenConnection(Client, Limited, Protocol):
    """An AMQP connection that is open."""

    @property
    def is_lost(self) -> bool:
        """Whether the client is gone, and with it all timers."""

    def flush(self) -> None:
        """Write the output."""

    def stop(self) -> None:
        """Take nothing more of the client and for the client; operations under way go on."""

    def say_goodbye(self) -> None:
        """Close because the bridge stops: SDKs connect again by themselves."""

    def abort(self) -> None:
        """Drop the connection at once."""


class Connections:
    """The AMQP connections of a gateway, one by one, and what all its connections share.

    Args:
        namespace, access, settings: as attributes of `Client`.

    Attributes:
        others: the transports of HTTP connections, WebSockets included, and of silent clients.
        admission: the connection limits, and counts of refused connections.
        backlog: the limits of unfinished, unconfirmed and unread bytes of all connections.
        turns, turns_of_unauthenticated: the schedulers of client input; unauthenticated clients
            take no time from others.
        endings: the ended links that are not released yet.
        is_stopping: nothing more is taken of any client.
        changed: set when a connection has ended.
    """

    def __init__(
        self, namespace: NamespaceVerbs, access: Access, settings: GatewaySettings
    ) -> None:
        self.namespace = namespace
        self.access = access
        self.settings = settings
        self.others: set[asyncio.Transport] = set()
        self.admission = Admission(settings.connections_max, settings.unauthenticated_max)
        self.backlog = Backlog(settings)
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(self._loop, settings.turn_s)
        self.turns_of_unauthenticated = Turns(self._loop, settings.unauthenticated_turn_s)
        self.endings = Endings(self._loop)
        self.is_stopping = False
        self.changed = asyncio.Event()
        self._open: set[OpenConnection] = set()
        self._unchecked: dict[OpenConnection, None] = {}
        self._checks: Iterator[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter(self._open)

    def add(self, connection: OpenConnection) -> None:
        """Add an AMQP connection."""
        self._open.add(connection)

    def remove(self, connection: OpenConnection) -> None:
        """Remove a connection that has ended."""
        self._open.discard(connection)
        self.changed.set()

    def note_ended(self, connection: OpenConnection, reason: ConnectionEnd) -> None:
        """Count a connection that the bridge ends."""
        self.admission.ended[reason] += 1
        connection.log.info("connection.ended", reason=reason.value)

    def recheck(self, connection: OpenConnection | None = None) -> None:
        """End the links that are not allowed any more, after a change of entities or of rules.

        Args:
            connection: the one whose tokens alone have changed.
        """
        checked = self._open if connection is None else (connection,)
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
