"""Adapting the journals' size bounds to the backlogs: the leader of an entity watches its journal.

The watch covers entities whose maximum size is above the usual bound. A raised bound is a policy
for one journal. The policy is deleted when the bound is lowered to the usual one, and when the
entity is gone.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import chain

from bridge.broker.errors import BrokerError
from bridge.broker.management.api import Management
from bridge.broker.ready_counts import ReadyCounts
from bridge.machine.inbox.journal_bound import (
    LOWER_AFTER_S,
    JournalBound,
    most_bytes,
    needed_entries,
)
from bridge.model.entity import Topic
from bridge.model.errors import ServiceBusError
from bridge.model.name import short_id
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.sidecar import Sidecar
from bridge.topology.definitions import incarnation_of
from bridge.topology.parts import JOURNAL_BYTES_MAX
from bridge.topology.policy import RAISED_PREFIX, raised_bound
from bridge.topology.resources import Policy
from bridge.topology.shards import active_queues
from bridge.wire.gaps import OWN

LOOK_S = 10.0

log = logging.getLogger(__name__)


class JournalWatch:
    """Watches the journals of the entities that a sidecar leads.

    Args:
        base_bytes: the usual bound.
        look_s: the interval of the looks.
        lower_after_s: how long a lower bound must have been enough.
    """

    def __init__(
        self,
        sidecar: Sidecar,
        management: Management,
        *,
        base_bytes: int = JOURNAL_BYTES_MAX,
        look_s: float = LOOK_S,
        lower_after_s: float = LOWER_AFTER_S,
    ) -> None:
        self._sidecar = sidecar
        self._management = management
        self._base_bytes = base_bytes
        self._look_s = look_s
        self._lower_after_s = lower_after_s
        self._bounds: dict[str, JournalBound] = {}
        self._raised: dict[str, Policy] | None = None

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self._look_s)
            try:
                await self._look()
            except (BrokerError, ServiceBusError) as error:
                log.warning("journal.unwatched error=%s", error)

    async def _look(self) -> None:
        large = [
            leader
            for leader in self._sidecar.leading
            if most_bytes(leader.entity) > self._base_bytes
        ]
        if not large and self._raised == {}:
            return
        policies = await self._management.policies()
        self._raised = {each.name: each for each in policies if each.name.startswith(RAISED_PREFIX)}
        for leader in large:
            await self._mind(leader)
        await self._remove_stale({leader.name for leader in large})

    async def _mind(self, leader: Leader) -> None:
        assert self._raised is not None
        wanted = raised_bound(leader.name, self._base_bytes)
        policy = self._raised.get(wanted.name)
        raised = policy.definition.get("max-length-bytes") if policy else None
        there = raised if isinstance(raised, int) else self._base_bytes
        bound = self._bounds.get(leader.name)
        if bound is None or bound.bytes != there:
            bound = self._bounds[leader.name] = JournalBound(
                there, most_bytes(leader.entity), self._base_bytes, self._lower_after_s
            )
        needed = await self._needed_bytes(leader)
        if needed is None:
            return
        if bound.look(needed, asyncio.get_running_loop().time()):
            await self._put(leader.name, bound.bytes)
        if not bound.is_enough(needed):
            log.warning(
                "journal.too_small entity=%s bytes=%d needed=%d", leader.name, bound.bytes, needed
            )

    async def _put(self, name: str, size_bytes: int) -> None:
        policy = raised_bound(name, size_bytes)
        if size_bytes > self._base_bytes:
            await self._management.put_policy(policy)
        else:
            await self._management.delete_policy(policy.name)
        log.info("journal.bound entity=%s bytes=%d", name, size_bytes)

    async def _needed_bytes(self, leader: Leader) -> int | None:
        """Return how many bytes of the journal are needed.

        None: this sequencer has published nothing yet, so the average size of an entry is unknown.
        """
        sequencer = leader.sequencer
        if not sequencer.journal.entries:
            return None
        average = sequencer.journal.bytes // sequencer.journal.entries
        return await self._needed_entries(leader) * average

    async def _needed_entries(self, leader: Leader) -> int:
        counts = ReadyCounts(self._sidecar.pool.route(leader.name))
        topic = leader.entity
        if not isinstance(topic, Topic):
            queues = active_queues(topic)
            await counts.ask(queues)
            return sum(map(counts.of, queues))
        memory = leader.sequencer.memory
        left_out = dict(memory.left_out)
        queues_of = {
            short_id(incarnation_of(each)): active_queues(each) for each in topic.subscriptions
        }
        asked = (queues for short, queues in queues_of.items() if short not in left_out)
        await counts.ask(chain.from_iterable(asked))
        given = memory.given()
        ready: dict[bytes, int] = {}
        for short, queues in queues_of.items():
            missed = left_out.get(short)
            if missed is not None:
                missing = memory.subscriptions.get(short, 0) - missed.number + 1
                ready[short] = min(missing, given.get(short, 0))
            else:
                ready[short] = sum(map(counts.of, queues))
        last = sum(memory.counters) - memory.skipped.get(OWN, 0)
        return needed_entries(given, last, ready)

    async def _remove_stale(self, watched: set[str]) -> None:
        """Delete the policies of entities that are gone, or whose maximum size was lowered."""
        assert self._raised is not None
        mine = {raised_bound(leader.name, 0).name for leader in self._sidecar.leading}
        large = {raised_bound(name, 0).name for name in watched}
        known = {raised_bound(each.path, 0).name for each in self._sidecar.entities}
        for name in self._raised:
            if name not in known or (name in mine and name not in large):
                await self._management.delete_policy(name)
                log.info("journal.bound policy=%s removed", name)
