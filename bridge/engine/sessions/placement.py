"""Which bridge is to own a shard: each has its order of bridges, the same wherever it is asked for.

RabbitMQ makes the bridge the owner that has stood by longest. So whoever needs a shard first has
the bridge stand by that comes first in the shard's order, and then does so itself. An owner that is
not the first, because it came first or another has failed, gives a shard up while nobody holds a
session of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from bridge.broker.errors import BrokerError
from bridge.engine.peers import Peers
from bridge.engine.settlement.locktable import LockTable
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.topology.shards import count_of, in_order_of_choice
from bridge.wire import sessions as wire

STAND_BY_S = 3.0
"""A bridge that has not answered by then is passed over."""

KNOWN_S = 5.0
"""So long a list of bridges is taken for true."""

Bridges = Callable[[], Awaitable[list[bytes]]]

log = logging.getLogger(__name__)


class Placement:
    """Has other bridges stand by at shards that are theirs by choice.

    Args:
        bridges: returns the names of all bridges that are there.

    Attributes:
        peers: asks other bridges.
    """

    def __init__(self, bridges: Bridges, locks: LockTable) -> None:
        self._bridges = bridges
        self._locks = locks
        self._known: list[bytes] = []
        self._known_s = float("-inf")
        self._looking = asyncio.Lock()
        self.peers: Peers

    def __repr__(self) -> str:
        return f"Placement({len(self._known)} bridges)"

    def forget(self) -> None:
        """A bridge is gone."""
        self._known_s = float("-inf")

    async def offer(self, queue: model.ReceiveEntity, shard: int) -> None:
        """Have the first that answers of those before this bridge stand by."""
        if count_of(queue) == 1:
            return
        for bridge in await self._before(queue, shard):
            if await self._stands_by(bridge, queue, shard):
                return

    async def stands_by_elsewhere(self, queue: model.ReceiveEntity, shard: int) -> bool:
        """Have the bridge that is to own a shard stand by; whether that is another, and does."""
        if count_of(queue) == 1:
            return False
        before = await self._before(queue, shard)
        return bool(before) and await self._stands_by(before[0], queue, shard)

    async def _before(self, queue: model.ReceiveEntity, shard: int) -> list[bytes]:
        """Return the bridges that come before this one in a shard's order."""
        resource = names.sessions_queue(queue.path, shard)
        order = in_order_of_choice(await self._all(), resource)
        own = next((at for at, each in enumerate(order) if self._locks.is_named(each)), 0)
        return order[:own]

    async def _all(self) -> list[bytes]:
        loop = asyncio.get_running_loop()
        async with self._looking:
            if loop.time() - self._known_s > KNOWN_S:
                try:
                    self._known = await self._bridges()
                except BrokerError as error:
                    log.info("session.bridges_unknown error=%s", error)
                self._known_s = loop.time()
        return self._known

    async def _stands_by(self, bridge: bytes, queue: model.ReceiveEntity, shard: int) -> bool:
        question = wire.question(wire.STAND_BY, queue.path, shard, {})
        with contextlib.suppress(BrokerError, ServiceBusError, TimeoutError):
            async with asyncio.timeout(STAND_BY_S):
                await self.peers.ask(bridge, question)
                return True
        return False
