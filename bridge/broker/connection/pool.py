"""A pool of connections: each queue is assigned to one, so that a dead queue harms few others.

RabbitMQ answers a consume or a get of a quorum queue without a leader by ending the whole
connection (541 INTERNAL_ERROR; docs/rabbitmq-faults.md: no-leader): at once when the queue's Raft
server is stopped, after half a minute when there is no majority. All unacked messages of the
connection return, and their delivery counts rise. So the pool gives each queue (or entity) one of
several connections, which it opens at the first request. A queue that may have ended a connection
is a suspect (`machine/suspects.py`): it gets a connection of its own, until it has answered and has
had nothing under way there for a while.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from bridge.background.supervisor import Supervisor
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import ConnectionLost
from bridge.broker.reconnect import keep_connected
from bridge.machine.suspects import Suspects, named_in

SIZE = 16
"""Number of shared connections: the first failure of a queue costs a sixteenth of the queues."""

SETTLE_S = 1.0
"""Time before a connection that replaces a lost one is used. After a failure of the broker a quorum
queue may deliver out of order for a moment: messages that were never delivered come before those
that were unacked (docs/rabbitmq-faults.md: order-after-kill)."""

RETURN_S = 5.0
"""Time without work after which a suspect's own connection ends. A suspect that has answered then
uses a shared connection again."""

LOOK_S = 0.25

_ERROR_CODES = range(500, 600)
"""Reply codes of a connection that RabbitMQ ends for an error on it; 320 is connection-forced."""

Serve = Callable[["_Member", Connection], Awaitable[None]]

log = logging.getLogger(__name__)


class ConnectionLease:
    """A queue's or an entity's use of one connection, until that connection ends."""

    def __init__(self, connection: Connection, owner: str) -> None:
        self.connection = connection
        self.owner = owner

    def __repr__(self) -> str:
        return f"<ConnectionLease of {self.connection!r} for {self.owner!r}>"

    async def channel(self) -> Channel:
        """Open a channel for the lease's owner."""
        return await self.connection.channel(self.owner)

    def channel_soon(self) -> Channel:
        """Open a channel without waiting; see `Connection.channel_soon`."""
        return self.connection.channel_soon(self.owner)

    @property
    def is_blocked(self) -> bool:
        """Whether RabbitMQ has an alarm and reads nothing from the connection."""
        return self.connection.is_blocked


class ChannelRoute:
    """Channels to one queue or entity, on the connection that serves it at the time."""

    def __init__(self, pool: Pool, owner: str) -> None:
        self._pool = pool
        self._owner = owner

    async def channel(self) -> Channel:
        """Open a channel, after waiting for a connection."""
        return await (await self._pool.lease(self._owner)).channel()

    def channel_soon(self) -> Channel:
        """Open a channel without waiting.

        Raises:
            BrokerError: there is no connection, or half of its channels are in use.
        """
        return self._pool.lease_now(self._owner).channel_soon()


class Pool:
    """Connections that open at the first request and are opened again when they are lost.

    Args:
        name: the connections' name in RabbitMQ; a number or a suspect's name is added to it.
        judges: whether the pool itself clears a suspect that answers and has nothing under way;
            otherwise the caller clears it by `give_back`.
        supervisor: keeps the connections, and names those that cannot be opened.

    Attributes:
        endpoint: the hosts and the login.
        suspects: the queues that may have ended a connection.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        name: str,
        judges: bool = True,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.suspects = Suspects()
        self.endpoint = endpoint
        self._name = name
        self._judges = judges
        self._supervisor = supervisor or Supervisor()
        self._shared: dict[int, _Member] = {}
        self._own: dict[str, _Member] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Pool {self._name!r} [{len(self._shared)} shared, {len(self._own)} of suspects]>"

    @property
    def connections(self) -> list[Connection]:
        """The connections that are up."""
        members = (*self._shared.values(), *self._own.values())
        return [each.connection for each in members if each.connection is not None]

    @property
    def is_up(self) -> bool:
        """Whether any connection is up."""
        return bool(self.connections)

    def route(self, owner: str) -> ChannelRoute:
        """Return a route to a queue or an entity."""
        return ChannelRoute(self, owner)

    async def lease(self, owner: str) -> ConnectionLease:
        """Return a lease of the connection that serves a queue or an entity, once it is up."""
        while True:
            member = self._member(owner)
            if not member.ready.is_set():
                reason = f"the connection {member.name!r} is not open"
                with self._supervisor.waits.begin(owner, reason):
                    await member.ready.wait()
            if member.connection is not None and self._member(owner) is member:
                return ConnectionLease(member.connection, owner)

    def lease_now(self, owner: str) -> ConnectionLease:
        """Return a lease of the connection that serves a queue or an entity, without waiting.

        Raises:
            ConnectionLost: the connection is not up.
        """
        connection = self._member(owner).connection
        if connection is None:
            raise ConnectionLost(text="not connected")
        return ConnectionLease(connection, owner)

    @asynccontextmanager
    async def apart(self, owner: str) -> AsyncIterator[ConnectionLease]:
        """Lease a new connection for one purpose; a slow answer on it delays no other queue.

        Raises:
            BrokerError: the connection cannot be opened.
        """
        connection = await Connection.open(self.endpoint, name=f"{self._name} {owner}")
        try:
            yield ConnectionLease(connection, owner)
        finally:
            await connection.close()

    def suspect(self, owner: str, error: str) -> None:
        """Mark a queue that gave no answer as suspect; its next lease is of its own connection."""
        self.suspects.failed(owner, error, time.time_ns() // 1_000_000)
        log.warning("queue.silent name=%s error=%s", owner, error)

    def give_back(self, owner: str) -> None:
        """Clear a suspect, end its own connection, and serve it on a shared one again.

        The suspect has answered and has nothing under way.
        """
        self.suspects.cleared(owner)
        member = self._own.pop(owner, None)
        if member is not None:
            self._end(member)
            log.info("queue.answers name=%s", owner)

    def flush(self) -> None:
        """Write the collected frames of all connections without waiting for the turn's end."""
        for member in (*self._shared.values(), *self._own.values()):
            if member.connection is not None:
                member.connection.flush()

    def open(self) -> None:
        """Lease connections, also after a `close`."""
        self._is_closed = False

    async def close(self) -> None:
        """Close all connections, and lease none."""
        self._is_closed = True
        for member in (*self._shared.values(), *self._own.values()):
            self._end(member)
        self._shared.clear()
        self._own.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _member(self, owner: str) -> _Member:
        if self._is_closed:
            raise ConnectionLost(text="closing")
        if owner in self.suspects:
            member = self._own.get(owner)
            if member is None or member.task.done():
                name = f"{self._name} {owner}"
                member = _Member(self._supervisor, self, name, partial(self._serve_suspect, owner))
                self._own[owner] = member
            return member
        number = zlib.crc32(owner.encode()) % SIZE
        member = self._shared.get(number)
        if member is None or member.task.done():
            member = _Member(self._supervisor, self, f"{self._name} {number + 1}", self._serve)
            self._shared[number] = member
        return member

    def _end(self, member: _Member) -> None:
        self._ending.add(member.task)
        member.task.add_done_callback(self._ending.discard)
        member.task.cancel()

    async def _serve(self, member: _Member, connection: Connection) -> None:
        if member.has_been_up:
            await asyncio.sleep(SETTLE_S)
        member.open(connection)
        await asyncio.get_running_loop().create_future()

    async def _serve_suspect(self, owner: str, member: _Member, connection: Connection) -> None:
        await asyncio.sleep(max(self.suspects.pause_s(owner), SETTLE_S))
        member.open(connection)
        quiet_s = 0.0
        while quiet_s < RETURN_S:
            await asyncio.sleep(LOOK_S)
            if self._judges and connection.queue_answers and not connection.awaits_queue:
                self.suspects.answered(owner)
            quiet_s = quiet_s + LOOK_S if connection.is_idle else 0.0
        # The queue is not used now. When it has not answered, it stays a suspect, and its next
        # lease opens another connection of its own.
        if self.suspects.is_answering(owner):
            self.suspects.cleared(owner)
            log.info("queue.answers name=%s", owner)
        self._own.pop(owner, None)
        member.is_over = True

    def note_end(self, connection: Connection, error: ConnectionLost) -> None:
        """Mark the queues that may have caused the end of a connection as suspects."""
        if error.code in _ERROR_CODES:
            for owner in named_in(error.text, connection.unanswered - {""}):
                self.suspect(owner, str(error))


class _Member:
    """A place in the pool: a connection, and after its loss the next one.

    Attributes:
        is_over: a suspect's connection is not used any more.
    """

    def __init__(self, supervisor: Supervisor, pool: Pool, name: str, serve: Serve) -> None:
        self.connection: Connection | None = None
        self.ready = asyncio.Event()
        self.has_been_up = False
        self.is_over = False
        self.name = name
        self._pool = pool
        self._serve = serve
        self.task = keep_connected(
            supervisor,
            pool.endpoint,
            self._work,
            kind="connection",
            name=name,
            may_end=lambda: self.is_over,
        ).task
        # Leases that wait here look for another member.
        self.task.add_done_callback(lambda task: self.ready.set())

    def open(self, connection: Connection) -> None:
        """Give the connection to the leases that wait."""
        self.has_been_up = True
        self.connection = connection
        self.ready.set()

    async def _work(self, connection: Connection) -> None:
        connection.on_closed = partial(self._on_closed, connection)
        try:
            await self._serve(self, connection)
        finally:
            self.connection = None
            self.ready.clear()

    def _on_closed(self, connection: Connection, error: ConnectionLost) -> None:
        self.connection = None
        self.ready.clear()
        self._pool.note_end(connection, error)
