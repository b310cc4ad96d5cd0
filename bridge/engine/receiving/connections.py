"""The consuming connections: a pool for receiving from queues, an extra one, and one that looks.

The extra connection consumes this bridge's own queue, and nothing else is done there: so it
outlasts the others, and the name in lock tokens lasts with it. Another one looks at queues. What
declares has a connection for each entity and time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bridge.background.supervisor import Standing, Supervisor
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.connection.kept_channels import KeptChannels
from bridge.broker.connection.pool import SETTLE_S, ChannelRoute, ConnectionLease, Pool
from bridge.broker.errors import ConnectionLost
from bridge.broker.reconnect import is_permanent, keep_connected
from bridge.broker.streams.standing_reader import StandingReaders


class ConsumerConnections:
    """The connections that messages come in on; lost ones are opened again.

    Args:
        on_up: awaited with each new extra connection, before it is used otherwise.
        supervisor: keeps the connections.

    Attributes:
        pool: the connections that queues are received from.
        looking: channels for looking at streams and queues, one exchange after another.
        standing: the readers of streams that stand on such channels.
        lost: the reason why there is no extra connection, else `None`.
        ready: set while there is an extra connection.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        name: str,
        on_up: Callable[[Connection], Awaitable[None]],
        supervisor: Supervisor | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._name = name
        self._on_up = on_up
        self._connection: Connection | None = None
        self._has_been_up = False
        self._supervisor = supervisor or Supervisor()
        self._standing: Standing | None = None
        self.pool = Pool(endpoint, name=name, supervisor=self._supervisor)
        self._looking = Pool(endpoint, name=f"{name}, looking", supervisor=self._supervisor)
        self.looking = KeptChannels(self)
        self.standing = StandingReaders()
        self.lost: BaseException | None = ConnectionLost(text="not connected yet")
        self.ready = asyncio.Event()

    def __repr__(self) -> str:
        return f"ConsumerConnections(lost={self.lost!r})"

    def start(self) -> None:
        """Open the extra connection, and keep it until `close`.

        The process ends when RabbitMQ refuses the first one for good.
        """
        self._standing = keep_connected(
            self._supervisor,
            self._endpoint,
            self._work,
            kind="consuming",
            name=self._name,
            on_lost=self._on_lost,
            is_final=lambda error: not self._has_been_up and is_permanent(error),
        )

    async def close(self) -> None:
        """Close all connections."""
        self.standing.close()
        self.looking.close()
        if self._standing is not None:
            self._standing.task.cancel()
            await asyncio.gather(self._standing.task, return_exceptions=True)
        await asyncio.gather(self.pool.close(), self._looking.close())

    def route(self, queue: str) -> ChannelRoute:
        """Return the route that opens channels for receiving from a queue."""
        return self.pool.route(queue)

    async def channel(self) -> Channel:
        """Open a channel for looking whether queues exist and what is in them."""
        lease = await self._looking.lease("looks at queues")
        return await lease.connection.channel()  # without an owner, which could become a suspect

    async def own_channel(self) -> Channel:
        """Open a channel on the extra connection, once it is there, for the bridge's own queues.

        They are exclusive: RabbitMQ lets no other connection bind them.
        """
        await self.ready.wait()
        if self._connection is None:
            raise ConnectionLost(text="not connected")
        return await self._connection.channel()

    @asynccontextmanager
    async def apart(self, purpose: str) -> AsyncIterator[ConnectionLease]:
        """Lease a new connection for the declarations of one entity.

        RabbitMQ may answer a declaration by ending the whole connection (541, under load).

        Raises:
            BrokerError: the connection cannot be opened.
        """
        async with self.pool.apart(purpose) as lease:
            yield lease

    async def _work(self, connection: Connection) -> None:
        if self._has_been_up:
            await asyncio.sleep(SETTLE_S)
        await self._on_up(connection)
        self._has_been_up = True
        self._connection = connection
        self.lost = None
        self.ready.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._connection = None
            self.ready.clear()

    def _on_lost(self, error: BaseException) -> None:
        self.lost = error
