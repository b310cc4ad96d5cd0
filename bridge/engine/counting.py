"""How many messages entities have, by state, counted when somebody asks.

    ready       what RabbitMQ says when a queue is declared passively
    delivered   what the bridges hold: this one knows, the others are asked
    scheduled   the index of the entity's sequencer, or, where that is in another process, the
                buckets that it has filled
    sizes       RabbitMQ's figures, seconds old

Every number is counted, none is kept: after a crash they are as true as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from bridge.broker.connection.channel import Channel
from bridge.broker.errors import BrokerError, NotFound
from bridge.broker.management.api import Management
from bridge.engine.deferral.entities import Deferral
from bridge.engine.peers import Peers
from bridge.engine.receiving.intake import Intake
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.sessions.accepting import Accepting
from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.model.errors import ServiceBusError
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names

COUNT_S = 5.0
"""So long RabbitMQ and the other bridges may take; then an entity has the counts of the last time,
or, if it was never counted, what is known by then."""

WaitingHere = Callable[[str, int, int], list[int] | None]
"""Names the scheduled messages of an entity, from a number on; `None`: not led here."""

log = logging.getLogger(__name__)


class Counting:
    """Counts.

    Args:
        own_queue: returns the queue in which this bridge is asked.
        scheduled: returns how many messages of an entity wait for their time, or `None` when this
            process does not look after it.
        waiting_here: names them, likewise.
    """

    def __init__(
        self,
        *,
        intake: Intake,
        management: Management,
        receiving: Receiving,
        deferral: Deferral,
        sessions: Accepting,
        peers: Peers,
        own_queue: Callable[[], str],
        scheduled: Callable[[str], int | None],
        waiting_here: WaitingHere,
    ) -> None:
        self._intake = intake
        self._management = management
        self._receiving = receiving
        self._deferral = deferral
        self._sessions = sessions
        self._peers = peers
        self._own_queue = own_queue
        self._scheduled = scheduled
        self._waiting_here = waiting_here
        self._last: dict[str, Counts] = {}

    async def counts(self, entities: Sequence[model.Entity]) -> list[Counts]:
        """Return the counts of each entity.

        Raises:
            BrokerError: RabbitMQ refuses to tell.
        """
        try:
            async with asyncio.timeout(COUNT_S):
                await self._count_all(entities)
        except TimeoutError:
            log.warning("counts.late entities=%d", len(entities))
        return [self._last.get(_key(each), Counts()) for each in entities]

    def held(self, paths: Sequence[str]) -> list[int]:
        """Return three numbers an entity: what this process holds of its active messages, of its
        dead letters, and of what is deferred.
        """
        return [
            count
            for path in paths
            for count in (
                self._receiving.held(EntityPath(path)) + self._sessions.held(path),
                self._receiving.held(EntityPath(path, SubQueue.DEAD_LETTER)),
                self._deferral.held(path),
            )
        ]

    async def _count_all(self, entities: Sequence[model.Entity]) -> None:
        held = await self.held_anywhere([each.path for each in entities])
        sizes = await self._management.queue_bytes([name for e in entities for name in _queues(e)])
        with contextlib.closing(_Ready(self._intake, sizes)) as ready:
            for at, entity in enumerate(entities):
                of_it = held[3 * at : 3 * at + 3]
                self._last[_key(entity)] = await self._count(ready, entity, *of_it)

    async def held_anywhere(self, paths: Sequence[str]) -> list[int]:
        """Return what all bridges hold, as `held` does."""
        answers = await asyncio.gather(*(self._ask(each, paths) for each in await self._others()))
        own = self.held(paths)
        told = [answer for answer in answers if len(answer) == len(own)]
        return [sum(counts) for counts in zip(own, *told, strict=True)]

    async def waiting(self, path: str, start: int, count: int) -> list[int]:
        """Return the lowest numbers that wait for their time, from one on; its leader knows."""
        known = self._waiting_here(path, start, count)
        if known is not None:
            return known
        asks = (self._peers.waiting(each, path, start, count) for each in await self._others())
        answers = await asyncio.gather(*asks)
        return sorted({number for answer in answers for number in answer})[:count]

    async def _others(self) -> list[str]:
        """Return the queues of the other bridges."""
        bridges = await self._management.queues_below(names.BRIDGE_QUEUES)
        return [each for each in bridges if each != self._own_queue()]

    async def _ask(self, bridge: str, paths: Sequence[str]) -> list[int]:
        try:
            return await self._peers.held(bridge, paths)
        except (ServiceBusError, BrokerError) as error:
            log.warning("counts.unanswered queue=%s error=%s", bridge, error)
            return []

    async def _count(
        self, ready: _Ready, entity: model.Entity, held: int, held_dead: int, held_deferred: int
    ) -> Counts:
        path = entity.path
        size_bytes = sum(ready.sizes.get(name, 0) for name in _queues(entity))
        if isinstance(entity, model.Topic):
            return Counts(scheduled=await self._waiting(path), size_bytes=size_bytes)
        is_queue = isinstance(entity, model.Queue)
        arrived = await ready.count(names.inbox(path)) if is_queue else 0
        there = await ready.count(names.active_queue(path)) + held + arrived
        is_source = bool(target_of(entity))
        return Counts(
            active=0 if is_source else there,
            transfer=there if is_source else 0,
            dead_letter=await ready.count(names.dead_letter_queue(path)) + held_dead,
            scheduled=await self._waiting(path) if is_queue else 0,
            deferred=await ready.count(names.deferred_queue(path)) + held_deferred,
            size_bytes=size_bytes,
        )

    async def _waiting(self, path: str) -> int:
        known = self._scheduled(path)
        if known is not None:
            return known
        buckets = await self._management.queues_below(names.bucket_prefix(path))
        with contextlib.closing(_Ready(self._intake, dict.fromkeys(buckets, 0))) as ready:
            return sum([await ready.count(bucket) for bucket in buckets])


class _Ready:
    """Asks RabbitMQ how many messages its queues could deliver now.

    Attributes:
        sizes: of the queues that are there, in bytes.
    """

    def __init__(self, intake: Intake, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self._intake = intake
        self._channel: Channel | None = None

    async def count(self, queue: str) -> int:
        """Return the count of one queue; 0 when it is not there."""
        if queue not in self.sizes:
            return 0
        if self._channel is None:
            self._channel = await self._intake.channel()
        try:
            return (await self._channel.declarations.declare_queue(queue, passive=True)).messages
        except NotFound:
            self._channel = None  # RabbitMQ has closed it
            return 0

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            with contextlib.suppress(BrokerError):
                self._channel.abandon()


def _key(entity: model.Entity) -> str:
    return entity.path.lower()


def _queues(entity: model.Entity) -> list[str]:
    """Return the names of all queues that messages of an entity may be in, but for scheduled."""
    if isinstance(entity, model.Topic):
        return [name for each in entity.subscriptions for name in _queues(each)]
    path = entity.path
    own = [names.active_queue(path), names.dead_letter_queue(path), names.deferred_queue(path)]
    return [*own, names.inbox(path)] if isinstance(entity, model.Queue) else own
