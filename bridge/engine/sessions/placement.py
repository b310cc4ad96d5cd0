"""The bridge that is to own a shard: every shard has an order of bridges, equal at all bridges.

RabbitMQ makes the bridge that has stood by longest the owner. So a bridge that needs a shard makes
the first bridge in the shard's order stand by, and then stands by itself. An owner that is not the
first in the order gives the shard up while no receiver holds a session of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from bridge.broker.errors import BrokerError
from bridge.engine.peers import Peers
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.topology.shards import count_of, in_order_of_choice
from bridge.wire import sessions as wire

STAND_BY_S = 3.0
"""The longest wait for a bridge's answer; then the bridge is passed over."""

KNOWN_S = 5.0
"""The time that a list of bridges is used before it is read again."""

Bridges = Callable[[], Awaitable[list[bytes]]]

log = logging.getLogger(__name__)


class Placement:
    """Makes other bridges stand by at the shards that they are to own.

    Args:
        bridges: returns the names of all running bridges.
    """

    def __init__(self, peers: Peers, bridges: Bridges, locks: ProcessLocks) -> None:
        self._peers = peers
        self._bridges = bridges
        self._locks = locks
        self._known: list[bytes] = []
        self._known_s = float("-inf")
        self._looking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Placement({len(self._known)} bridges)"

    def forget(self) -> None:
        """Read the list of bridges anew at the next use: a bridge is gone."""
        self._known_s = float("-inf")

    async def offer(self, queue: model.ReceiveEntity, shard: int) -> None:
        """Make one bridge before this one in the shard's order stand by: the first to answer."""
        if count_of(queue) == 1:
            return
        for bridge in await self._before(queue, shard):
            if await self._stands_by(bridge, queue, shard):
                return

    async def stands_by_elsewhere(self, queue: model.ReceiveEntity, shard: int) -> bool:
        """Make the first bridge in the shard's order stand by; return whether another one does."""
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
                await self._peers.ask(bridge, question)
                return True
        return False
