"""The numbers of scheduled messages, which an entity's leader alone knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from bridge.background.retry import retry
from bridge.broker.management.api import Management
from bridge.broker.ready_counts import ReadyCounts
from bridge.engine import texts
from bridge.engine.bridges import Bridges
from bridge.engine.count_questions import NOT_LED, CountQuestions, WaitingHere
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.model.errors import ServerBusy
from bridge.topology import names

LED_WITHIN_S = 15.0
"""How long a peek waits for a leader."""

ASK_AGAIN_S = 0.2


class _Unled(ServerBusy):
    """Nobody leads an entity now."""


class ScheduledNumbers:
    """Names and counts an entity's scheduled messages, whichever bridge leads the entity.

    Args:
        waiting_here: returns what this process knows.
    """

    def __init__(
        self,
        questions: CountQuestions,
        bridges: Bridges,
        management: Management,
        connections: ConsumerConnections,
        waiting_here: WaitingHere,
    ) -> None:
        self._questions = questions
        self._bridges = bridges
        self._management = management
        self._connections = connections
        self._waiting_here = waiting_here

    async def waiting(self, path: str, start: int, count: int) -> list[int]:
        """Return the lowest numbers of an entity's scheduled messages, from `start` on.

        The entity's leader knows them; if this process is not the leader, all bridges are asked.
        While nobody leads an entity that has such messages this waits for the next leader.

        Raises:
            ServerBusy: nobody has led it for `LED_WITHIN_S`, or a bridge gives no answer.
        """
        known = self._waiting_here(path, start, count)
        if known is not None:
            return known
        return await retry(
            partial(self.waiting_now, path, start, count),
            wait_s=ASK_AGAIN_S,
            retryable=_Unled,
            total_s=LED_WITHIN_S,
        )

    async def waiting_now(self, path: str, start: int, count: int) -> list[int]:
        """Do as `waiting`, without a wait for a leader.

        Raises:
            ServerBusy: nobody leads the entity, which has scheduled messages; or a bridge gives no
                answer.
        """
        known = self._waiting_here(path, start, count)
        if known is not None:
            return known
        asks = (
            self._questions.waiting(each, path, start, count)
            for each in await self._bridges.others()
        )
        answers = [each for each in await asyncio.gather(*asks) if each != [NOT_LED]]
        if not answers and (await self.count_unled([path])).get(path) != 0:
            raise _Unled(texts.unled(path))
        return sorted({number for answer in answers for number in answer})[:count]

    async def count_unled(self, paths: Sequence[str]) -> dict[str, int]:
        """Return how many scheduled messages entities have that no bridge leads.

        Without those of which RabbitMQ does not tell it now, those whose count of 0 may be an old
        one, and those whose buckets are consumed: what a leader holds is in no count, one that is
        about to lead or one that was killed just now.
        """
        prefixes = tuple(map(names.bucket_prefix, paths))
        if len(prefixes) == 1:
            buckets = await self._management.queues_below(prefixes[0])
        else:
            every = await self._management.queue_names()
            buckets = [each for each in every if each.startswith(prefixes)]
        ready = ReadyCounts(self._connections)
        await ready.ask(buckets)
        found = {}
        for path, prefix in zip(paths, prefixes, strict=True):
            own = [each for each in buckets if each.startswith(prefix)]
            if ready.known.keys() >= set(own) and ready.consumed.isdisjoint(own):
                count = sum(map(ready.of, own))
                if count or not own or not ready.may_be_old:
                    found[path] = count
        return found
