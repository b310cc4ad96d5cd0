"""Deleting idle temporary entities: the leader of a queue or topic watches it.

look      every half minute: list consumers and present bridges; write an entry to the journal
idle?     ask every bridge, and list RabbitMQ's consumers
delete    `engine.administration.disposal`
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Coroutine, Sequence

from bridge.background.tasks import Tasks
from bridge.broker.errors import BrokerError
from bridge.engine.administration.disposal import Disposal
from bridge.engine.administration.usage import NOT_LED
from bridge.engine.clock import now_ms
from bridge.machine.usage.idleness import key_of, temporaries, watched
from bridge.model.entity import Entity, EntityStatus, SendEntity, Subscription, Topic
from bridge.model.errors import ServiceBusError
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.sidecar import Sidecar
from bridge.topology.entity_table import Changes

TICK_S = 1.0

NOT_LED_MS = 1_000
"""The interval of the checks whether this process leads a temporary entity."""

ABANDONED_S = 30.0
"""Time after which this process finishes the deletion of an entity that is `Deleting` and has no
leader here: perhaps no process is its leader."""

log = logging.getLogger(__name__)


class IdleWatch:
    """Watches the temporary entities that a sidecar leads.

    It keeps a heap of the times at which something is due, so that a second costs the entities for
    which something is due.

    Args:
        clock: the time (UTC ms).
        tick_s: the interval of the checks whether a look is due.
    """

    def __init__(
        self,
        sidecar: Sidecar,
        disposal: Disposal,
        clock: Callable[[], int] = now_ms,
        tick_s: float = TICK_S,
    ) -> None:
        self._sidecar = sidecar
        self._disposal = disposal
        self._clock = clock
        self._tick_s = tick_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._running = Tasks()
        self._due_ms: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._deleting_s: dict[str, float | None] = {}
        self._looked_ms = 0

    def follow(self, changes: Changes) -> None:
        """Take over which entities are temporary, or being deleted, from changed definitions."""
        for path in changes.before:
            self._due_ms.pop(path, None)
            self._deleting_s.pop(path, None)
        for path, front in changes.fronts:
            if temporaries(front) or _deleting(front):
                self._put(path, 0)
            if front.status is EntityStatus.DELETING:
                self._deleting_s[path] = None

    def accessed_ms(self, front: str, key: bytes) -> int:
        """Return when an entity was used last, as far as its leader here knows (UTC ms).

        Uses are what was sent to a queue or topic, and what bridges have reported; 0: never;
        `NOT_LED`: the entity is not led here. The entity need not be temporary.

        Args:
            front: the path of the queue or topic (lower case).
            key: the entity's own key.
        """
        leader = self._sidecar.routes.leader_of(front)
        if leader is None:
            return NOT_LED
        memory = leader.sequencer.memory
        sent_ms = memory.enqueued_ms if key == key_of(leader.entity) else 0
        return max(sent_ms, memory.uses.accessed_ms(key))

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._tick_s)
                for path in self._take_due():
                    leader = self._sidecar.routes.leader_of(path)
                    if leader is None:
                        self._put(path, self._clock() + NOT_LED_MS)
                    else:
                        self._put(path, self._clock())  # until it is minded, each tick tries
                        self._begin(leader.name, self._mind(leader, path))
                self._mind_abandoned()
        finally:
            self._running.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def _put(self, path: str, at_ms: int) -> None:
        """Look at a queue or topic at this time."""
        self._due_ms[path] = at_ms
        heapq.heappush(self._heap, (at_ms, path))

    def _take_due(self) -> list[str]:
        """Return the queues and topics (lower case) for which something is due."""
        found: list[str] = []
        now_ms = self._clock()
        if now_ms < self._looked_ms:
            for each in list(self._due_ms):  # the clock was put back: nothing waits for its times
                self._put(each, now_ms)
        self._looked_ms = now_ms
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, path = heapq.heappop(self._heap)
            if self._due_ms.get(path) == at_ms and path not in found:
                found.append(path)
        return found

    def _begin(self, name: str, work: Coroutine[None, None, None]) -> None:
        """Start work as a task, unless work for the same entity is under way."""
        if name in self._tasks:
            work.close()
            return
        self._tasks[name] = task = self._running.start(_noted(name, work), f"idle watch {name}")
        task.add_done_callback(lambda done: self._tasks.pop(name))

    async def _mind(self, leader: Leader, path: str) -> None:
        deleting = _deleting(leader.entity)
        for entity in deleting:
            await self._delete(leader, entity)
        if deleting:
            return
        uses = leader.sequencer.memory.uses
        if self._clock() >= uses.next_ms(leader.entity):
            await self._look(leader)
            for entity in uses.idle(leader.entity, self._clock()):
                if await self._is_idle(leader, entity, is_refused=False):
                    await self._delete(leader, entity)
        if path in self._due_ms and leader.is_ready:
            self._put(path, uses.next_ms(leader.entity))

    async def _look(self, leader: Leader) -> None:
        """List consumers and bridges, and note the uses in the journal.

        Raises:
            BrokerError, ServiceBusError: the consumers or bridges cannot be listed.
        """
        front = leader.entity
        entities = watched(front)
        consumed = await self._disposal.consumed(entities)
        bridges = await self._disposal.bridges()
        if not leader.is_ready:
            return
        sequencer = leader.sequencer
        sequencer.memory.uses.look(
            front,
            bridges=bridges,
            consumed=[key_of(each) for each, has in zip(entities, consumed, strict=True) if has],
            has_scheduled=len(sequencer.memory.pending) > 0,
            now_ms=self._clock(),
        )
        leader.submit((sequencer.journal.note_uses(sequencer.memory),), site="sequencer.journal")

    async def _is_idle(self, leader: Leader, entity: Entity, *, is_refused: bool) -> bool:
        """Ask all bridges for the last use; a bridge that does not answer counts as using it.

        Args:
            is_refused: whether a bridge that does not refuse the entity yet counts as using it:
                it has not heard of the deletion.
        """
        front = leader.entity
        entities: Sequence[Entity] = entity.subscriptions if isinstance(entity, Topic) else [entity]
        asked = [entity, *(each for each in entities if each is not entity)]
        uses, now_ms = leader.sequencer.memory.uses, self._clock()
        for answer in await self._disposal.ages_ms([each.path for each in asked]):
            told = [(0, False)] * len(asked) if answer is None else answer
            for each, (age_ms, refuses) in zip(asked, told, strict=False):
                if age_ms >= 0 or (is_refused and not refuses):
                    uses.answer(front, key_of(each), max(age_ms, 0), now_ms)
        await self._look(leader)
        return self._is_idle_here(leader, entity)

    def _is_idle_here(self, leader: Leader, entity: Entity) -> bool:
        """Whether the leader is ready, and an entity idle by the uses that the leader knows."""
        uses = leader.sequencer.memory.uses
        return leader.is_ready and uses.is_idle(entity, self._clock())

    async def _delete(self, leader: Leader, entity: Entity) -> None:
        log.info("idle.delete entity=%s", entity.path)

        async def is_idle() -> bool:
            return await self._is_idle(leader, entity, is_refused=True)

        async def is_drained() -> bool:
            await self._disposal.drain(leader.name)
            return self._is_idle_here(leader, entity)

        await self._disposal.delete(entity.path, is_idle, is_drained)

    def _mind_abandoned(self) -> None:
        """Finish begun deletions of queues and topics without a leader: the inbox is gone."""
        now_s = asyncio.get_running_loop().time()
        for path, since_s in self._deleting_s.items():
            if self._sidecar.routes.leader_of(path) is not None:
                self._deleting_s[path] = None
            elif since_s is None:
                self._deleting_s[path] = now_s
            elif now_s - since_s > ABANDONED_S:
                self._begin(path, self._disposal.finish(path))


def _deleting(front: SendEntity) -> list[Entity]:
    """Return the entities with the status Deleting: a queue or topic, or else subscriptions."""
    if front.status is EntityStatus.DELETING:
        return [front]
    subscriptions: Sequence[Subscription] = front.subscriptions if isinstance(front, Topic) else ()
    return [each for each in subscriptions if each.status is EntityStatus.DELETING]


async def _noted(name: str, work: Coroutine[None, None, None]) -> None:
    """Await work and log its failure; the next tick tries again."""
    try:
        await work
    except (ServiceBusError, BrokerError, TimeoutError) as error:
        log.warning("idle.failed entity=%s error=%s", name, error)
    except Exception:
        log.exception("idle.failed entity=%s", name)
