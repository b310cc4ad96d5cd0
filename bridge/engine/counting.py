"""The message counts of entities, by state, counted at each request.

    ready       RabbitMQ's answer to a passive declaration of the queue
    held        messages that bridges hold, and those that the library's clients report as held;
                other bridges are asked
    scheduled   the index of the entity's sequencer; if that is in another process, the ready
                messages of the buckets
    sizes       RabbitMQ's figures, some seconds old

No count is stored, so a crash makes none wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from bridge.broker.errors import BrokerError, BrokerSilent, PublishRefused
from bridge.broker.management.api import Management
from bridge.broker.ready_counts import ReadyCounts
from bridge.engine import texts
from bridge.engine.deferral.entities import Deferral
from bridge.engine.ownership.services import Services
from bridge.engine.peers import Peers, WaitingHere, bridges
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.sessions.accepting import Accepting
from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.model.errors import ServerBusy, ServiceBusError
from bridge.model.forwarding import target_of
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.shards import active_queues, message_queues

COUNT_S = 5.0
"""The longest wait for RabbitMQ and the other bridges. Then, or when a bridge does not answer, an
entity has its last counts; one that was never counted has the counts that are known by then."""

log = logging.getLogger(__name__)


class Counting:
    """Counts the messages of entities, and names scheduled ones.

    Args:
        of_clients: returns the counts of an entity's messages that the library's clients hold:
            active messages, and dead letters.
        scheduled: returns the count of an entity's scheduled messages, or `None` when this process
            does not lead the entity.
        waiting_here: returns their numbers, or `None` likewise.
    """

    def __init__(
        self,
        services: Services,
        *,
        management: Management,
        receiving: Receiving,
        deferral: Deferral,
        sessions: Accepting,
        peers: Peers,
        of_clients: Callable[[str], list[int]],
        scheduled: Callable[[str], int | None],
        waiting_here: WaitingHere,
    ) -> None:
        self._connections = services.connections
        self._locks = services.locks
        self._management = management
        self._receiving = receiving
        self._deferral = deferral
        self._sessions = sessions
        self._peers = peers
        self._of_clients = of_clients
        self._scheduled = scheduled
        self._waiting_here = waiting_here
        self._last: dict[str, Counts] = {}

    async def counts(self, entities: Sequence[model.Entity]) -> list[Counts]:
        """Return the counts of each entity; after `COUNT_S` the last known ones, or zeros.

        Raises:
            BrokerError: RabbitMQ refuses to answer.
        """
        try:
            async with asyncio.timeout(COUNT_S):
                await self._count_all(entities)
        except TimeoutError:
            log.warning("counts.late entities=%d", len(entities))
        return [self._last.get(_key(each), Counts()) for each in entities]

    def held(self, paths: Sequence[str]) -> list[int]:
        """Return three counts an entity: held active messages, dead letters and deferred messages.

        They are of this process, and of the library's clients that report to it.
        """
        return [count for path in paths for count in self._held(path)]

    def _held(self, path: str) -> tuple[int, int, int]:
        active, dead = self._of_clients(path)
        return (
            active + self._receiving.held(EntityPath(path)) + self._sessions.held(path),
            dead + self._receiving.held(EntityPath(path, SubQueue.DEAD_LETTER)),
            self._deferral.held(path),
        )

    async def _count_all(self, entities: Sequence[model.Entity]) -> None:
        try:
            held = await self.held_anywhere([each.path for each in entities])
        except ServiceBusError as error:
            log.warning("counts.unanswered error=%s", error)
            entities = [each for each in entities if _key(each) not in self._last]
            held = self.held([each.path for each in entities])
        sizes = await self._management.queue_bytes([name for e in entities for name in _queues(e)])
        with contextlib.closing(ReadyCounts(self._connections, sizes)) as ready:
            for at, entity in enumerate(entities):
                size_bytes = sum(sizes.get(name, 0) for name in _queues(entity))
                try:
                    counts = await self._count(ready, entity, *held[3 * at : 3 * at + 3])
                except BrokerSilent as error:
                    log.warning("counts.unknown entity=%s error=%s", entity.path, error)
                else:
                    self._last[_key(entity)] = replace(counts, size_bytes=size_bytes)

    async def held_anywhere(self, paths: Sequence[str]) -> list[int]:
        """Return the sums of all bridges' `held`.

        Raises:
            ServiceBusError: a running bridge gives no answer.
        """
        answers = await asyncio.gather(*(self._ask(each, paths) for each in await self._others()))
        own = self.held(paths)
        told = [answer for answer in answers if len(answer) == len(own)]
        return [sum(counts) for counts in zip(own, *told, strict=True)]

    async def waiting(self, path: str, start: int, count: int) -> list[int]:
        """Return the lowest numbers of an entity's scheduled messages, from `start` on.

        The entity's leader knows them; if this process is not the leader, all bridges are asked.
        """
        known = self._waiting_here(path, start, count)
        if known is not None:
            return known
        asks = (self._peers.waiting(each, path, start, count) for each in await self._others())
        answers = await asyncio.gather(*asks)
        return sorted({number for answer in answers for number in answer})[:count]

    async def _others(self) -> list[bytes]:
        """Return the names of the other bridges."""
        return [each for each in await bridges(self._management) if each != self._locks.instance]

    async def _ask(self, bridge: bytes, paths: Sequence[str]) -> list[int]:
        try:
            return await self._peers.held(bridge, paths)
        except ServerBusy as error:
            if isinstance(error.__cause__, PublishRefused):
                return []  # its queue is dead with its node, and its messages are returned
            raise
        except BrokerError as error:
            raise ServerBusy(texts.busy(error)) from error

    async def _count(
        self,
        ready: ReadyCounts,
        entity: model.Entity,
        held: int,
        held_dead: int,
        held_deferred: int,
    ) -> Counts:
        path = entity.path
        if isinstance(entity, model.Topic):
            return Counts(scheduled=await self._waiting(path))
        is_queue = isinstance(entity, model.Queue)
        # Without a leader one ready message is the ownership token (`sidecar.ownership_token`).
        arrived = max(await ready.of(names.inbox(path)) - 1, 0) if is_queue else 0
        active = [await ready.of(queue) for queue in active_queues(entity)]
        there = sum(active) + held + arrived
        is_source = bool(target_of(entity))
        return Counts(
            active=0 if is_source else there,
            transfer=there if is_source else 0,
            dead_letter=await ready.of(names.dead_letter_queue(path)) + held_dead,
            scheduled=await self._waiting(path) if is_queue else 0,
            deferred=await ready.of(names.deferred_queue(path)) + held_deferred,
        )

    async def _waiting(self, path: str) -> int:
        known = self._scheduled(path)
        if known is not None:
            return known
        buckets = await self._management.queues_below(names.bucket_prefix(path))
        with contextlib.closing(ReadyCounts(self._connections)) as ready:
            return sum([await ready.of(bucket) for bucket in buckets])


def _key(entity: model.Entity) -> str:
    return entity.path.lower()


def _queues(entity: model.Entity) -> list[str]:
    """Return the names of all queues that may have messages of an entity, without its buckets."""
    found = message_queues(entity)
    return [*found, names.inbox(entity.path)] if isinstance(entity, model.Queue) else found
