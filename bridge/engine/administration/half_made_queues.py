"""Queues that RabbitMQ has half made are deleted, so that they are made anew.

A node that is killed while it makes a quorum queue may know the queue afterwards, while the queue's
Raft server waits for its first election for ever (docs/rabbitmq-faults.md: half-made). Such a queue
never had a message, and answers no consume and no publish. RabbitMQ shows it by term 0 and an empty
log on every member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from bridge.broker.errors import BrokerError, ManagementRefused
from bridge.broker.management.api import Management
from bridge.engine.administration.changes import Administration
from bridge.engine.clock import now_ms
from bridge.engine.state import MadeAgain
from bridge.machine.suspects import Suspect
from bridge.model.errors import ServerBusy
from bridge.topology.names import base_of, front_path

LOOK_S = 5.0

SILENT_MS = 10_000
"""How long a queue gives no answer before it is looked at; an election takes a second."""

DELETION_S = 6.0
"""The time in which a deletion ends that a bridge began before it was killed: RabbitMQ waits 5 s
for such a queue's Raft server."""

log = logging.getLogger(__name__)

Silent = Callable[[], Iterable[Suspect]]


class HalfMadeQueues:
    """Deletes half-made queues among those that give no answer.

    Args:
        administration: whose change locks let one bridge at a time make or delete an entity's
            queues.
        made_again: is told of each.
        silent: the queues and entities without an answer.

    Attributes:
        silent: the sources of queues and entities without an answer; more may be added.
    """

    def __init__(
        self,
        management: Management,
        administration: Administration,
        made_again: MadeAgain,
        silent: Silent,
    ) -> None:
        self.silent = [silent]
        self._management = management
        self._administration = administration
        self._made_again = made_again

    async def run(self) -> None:
        """Look every `LOOK_S`, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            since_ms = now_ms() - SILENT_MS
            silent = [each for source in self.silent for each in source()]
            for base in {base_of(each.name) for each in silent if each.since_ms <= since_ms}:
                try:
                    await self._look(base)
                except (BrokerError, ServerBusy) as error:
                    log.warning("queue.not_looked_at base=%s error=%s", base, error)

    async def _look(self, base: str) -> None:
        """Delete what is half made of an entity's queues."""
        if not await self._half_made(base):
            return
        path = front_path(base)
        async with self._administration.alone(path):
            await asyncio.sleep(DELETION_S)
            for name in await self._half_made(base):
                with await self._administration.channel(path) as channel:
                    await channel.declarations.delete_queue(name)
                log.warning("queue.half_made name=%s", name)
                self._made_again.note(f"the queue {name!r}", "killed while it made that")

    async def _half_made(self, base: str) -> list[str]:
        """Return the half-made ones among the queues of an entity."""
        names = [
            each for each in await self._management.queues_below(base) if base_of(each) == base
        ]
        return [name for name in names if await self._is_half_made(name)]

    async def _is_half_made(self, name: str) -> bool:
        queue = await self._management.queue(name)
        if queue is None or queue.get("type") != "quorum":
            return False
        try:
            return await self._management.never_had_a_leader(name, members=len(queue["members"]))
        except ManagementRefused as error:
            log.warning("queue.status_refused name=%s error=%s", name, error)
            return False
