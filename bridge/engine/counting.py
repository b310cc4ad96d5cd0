"""The message counts of entities, by state, counted at each request.

    ready       RabbitMQ's answers to passive declarations of the queues
    held        messages that bridges hold, and those that the library's clients report as held;
                other bridges are asked
    scheduled   the index of the entity's sequencer, in whichever bridge leads the entity; if none
                does, the ready messages of the buckets
    sizes       RabbitMQ's figures, some seconds old

All entities of all requests that wait are counted together: the number of questions that follow one
another does not depend on how many entities are counted. Counts are kept only to be told, as old
ones, while RabbitMQ or a bridge gives no answer; a crash makes none wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bridge.background.shared import Shared
from bridge.broker.errors import BrokerError, BrokerSilent, PublishRefused
from bridge.broker.management.api import SINGLE_MAX, Figures, Management
from bridge.broker.ready_counts import ReadyCounts
from bridge.engine import texts
from bridge.engine.bridges import Bridges
from bridge.engine.count_questions import (
    HELD,
    NOT_LED,
    CountQuestions,
    CountsAnswer,
    WaitingHere,
)
from bridge.engine.deferral.entities import Deferral
from bridge.engine.entity_counts import Answers, queues_of, transfer_queues
from bridge.engine.peers import Peers
from bridge.engine.receiving.receivers import Receiving
from bridge.engine.scheduled_numbers import ScheduledNumbers
from bridge.engine.services import Services
from bridge.engine.sessions.accepting import Accepting
from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.model.errors import ServerBusy, ServiceBusError
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names

COUNT_S = 5.0
"""The longest wait for RabbitMQ and the other bridges. Then, or when one of them does not answer,
the last counts of an entity are told as old ones; before the first, RabbitMQ's own figures."""

FIRST_S = 20.0
"""The longest wait for an entity of which nothing is known yet; clients wait for 60 s."""

NOTED_S = 0.5
"""How much longer a request waits than what it waits for: what came in time is noted by then."""

FIGURES_S = 5.0
"""How long a list of all queues' figures is used: RabbitMQ itself has new ones every 5 s. A list of
5,000 queues costs it 0.7 s of processor time."""

FIGURES_WAIT_S = 0.5
"""How long a new list is waited for. Without it sizes are older, or not told if there is none."""

REMEMBERED = 10_000
"""Entities whose last counts are kept."""

_ON_USE = (
    names.DEFERRED_SUFFIX,
    names.TRANSFER_SUFFIX,
    names.TRANSFER_SUFFIX + names.DEAD_LETTER_SUFFIX,
)
"""The ends of the names of queues that are made when they are used."""

log = logging.getLogger(__name__)


class Counting:
    """Counts the messages of entities.

    Args:
        bridges: lists the running bridges.
        of_clients: returns the counts of an entity's messages that the library's clients hold:
            active messages, and dead letters.
        scheduled: returns the count of an entity's scheduled messages, or `None` when this process
            does not lead the entity.
        accessed: returns when entities were used last (`Usage.accessed_ms`).
        waiting_here: returns their numbers, or `None` likewise.

    Attributes:
        scheduled_numbers: names scheduled messages, and counts those that no bridge leads.
    """

    def __init__(
        self,
        services: Services,
        *,
        management: Management,
        bridges: Bridges,
        receiving: Receiving,
        deferral: Deferral,
        sessions: Accepting,
        peers: Peers,
        of_clients: Callable[[str], list[int]],
        scheduled: Callable[[str], int | None],
        accessed: Callable[[Sequence[str]], list[int]],
        waiting_here: WaitingHere,
    ) -> None:
        self._connections = services.connections
        self._management = management
        self._bridges = bridges
        self._receiving = receiving
        self._deferral = deferral
        self._sessions = sessions
        self._of_clients = of_clients
        self._scheduled = scheduled
        self._accessed = accessed
        self._questions = CountQuestions(peers, self.held, self.scheduled, accessed, waiting_here)
        self.scheduled_numbers = ScheduledNumbers(
            self._questions, bridges, management, services.connections, waiting_here
        )
        self._last: dict[str, _Known] = {}
        self._counting: Shared[model.Entity, None] = Shared(self._count_all)
        self._figures: Shared[None, Mapping[str, Figures]] = Shared(self._list_figures)
        self._listed: Mapping[str, Figures] | None = None
        self._listed_s = float("-inf")

    async def counts(self, entities: Sequence[model.Entity]) -> list[Counts]:
        """Return the counts of each entity; those that are not known now are the last, and old.

        Raises:
            ServerBusy: nothing is known of an entity, as RabbitMQ or a bridge gives no answer.
            BrokerError: RabbitMQ refuses to answer.
        """
        if not entities:
            return []
        asked_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._longest_s(entities) + NOTED_S):
                await self._counting.of(entities)
        except TimeoutError:
            log.warning("counts.late entities=%d", len(entities))
        found = [self._told(each, asked_s) for each in entities]
        if old := [each.path for each, told in zip(entities, found, strict=True) if told.is_old]:
            log.warning("counts.old entities=%d first=%s", len(old), old[0])
        return found

    def _told(self, entity: model.Entity, asked_s: float) -> Counts:
        known = self._known(entity)
        if known is None:
            raise ServerBusy(texts.uncounted(entity.path))
        if known.asked_s is not None and known.asked_s >= asked_s:
            return known.counts
        return replace(known.counts, is_old=True)

    def held(self, paths: Sequence[str]) -> list[int]:
        """Return three counts an entity: held active messages, dead letters and deferred messages.

        They are of this process, and of the library's clients that report to it.
        """
        return [count for path in paths for count in self._held(path)]

    def scheduled(self, paths: Sequence[str]) -> list[int]:
        """Return the number of scheduled messages of each entity; `NOT_LED` if not led here."""
        found = map(self._scheduled, paths)
        return [NOT_LED if each is None else each for each in found]

    def _held(self, path: str) -> tuple[int, int, int]:
        active, dead = self._of_clients(path)
        return (
            active + self._receiving.held(EntityPath(path)) + self._sessions.held(path),
            dead + self._receiving.held(EntityPath(path, SubQueue.DEAD_LETTER)),
            self._deferral.held(path),
        )

    async def _count_all(self, asked: Sequence[model.Entity]) -> None:
        """Count entities, and keep what is known of them in time."""
        asked_s = asyncio.get_running_loop().time()
        entities = list({_key(each): each for each in asked}.values())
        answers = Answers(ReadyCounts(self._connections))
        try:
            async with asyncio.timeout(self._longest_s(entities)):
                await self._ask_all(answers, entities)
        except TimeoutError:
            log.warning("counts.unanswered entities=%d error=no answer in time", len(entities))
        for entity in entities:
            self._note(entity, answers, asked_s)

    async def _ask_all(self, answers: Answers, entities: Sequence[model.Entity]) -> None:
        """Ask RabbitMQ and all other bridges; each question is for all entities."""
        queues = _queues(entities)
        counted = _queues(each for each in entities if not isinstance(each, model.Topic))
        topics = [each for each in entities if isinstance(each, model.Topic)]
        counted += [queue for each in topics for queue in transfer_queues(each)]
        asked: list[Awaitable[None]] = [self._ask_bridges(answers, entities)]
        if len(queues) <= SINGLE_MAX:
            asked.append(self._ask_singly(answers, queues, counted))
        else:
            asked += self._ask_figures(answers, queues), self._ask_by_list(answers, counted)
        await asyncio.gather(*asked)

    async def _ask_singly(
        self, answers: Answers, queues: Sequence[str], counted: Sequence[str]
    ) -> None:
        """Ask for the figures of each queue, which say too whether it exists, then for counts."""
        answers.figures = await self._management.queue_figures(queues)
        await self._ask_ready(answers, counted, answers.figures)

    async def _ask_by_list(self, answers: Answers, counted: Sequence[str]) -> None:
        existing = set(await self._management.queues_ending(names.DEFERRED_SUFFIX))
        if any(each.endswith(names.TRANSFER_SUFFIX) for each in counted):
            existing.update(await self._management.queues_ending(names.TRANSFER_SUFFIX))
            refused = names.TRANSFER_SUFFIX + names.DEAD_LETTER_SUFFIX
            existing.update(await self._management.queues_ending(refused))
        await self._ask_ready(answers, counted, existing)

    async def _ask_ready(
        self, answers: Answers, counted: Sequence[str], existing: Collection[str]
    ) -> None:
        """Ask for counts; most entities have no queue for deferred messages, or for transfers."""
        answers.missing = {
            each for each in counted if each.endswith(_ON_USE) and each not in existing
        }
        await answers.ready.ask(each for each in counted if each not in answers.missing)

    async def _ask_figures(self, answers: Answers, queues: Sequence[str]) -> None:
        answers.figures = self._listed
        try:
            async with asyncio.timeout(FIGURES_WAIT_S * (4 if self._listed is None else 1)):
                answers.figures = await self._figures.of()
        except TimeoutError:
            log.info("counts.sizes_old queues=%d", len(queues))

    async def _list_figures(self, asked: list[None]) -> Mapping[str, Figures]:
        """Return the figures of all queues; they are read again after `FIGURES_S`."""
        loop = asyncio.get_running_loop()
        if self._listed is None or loop.time() - self._listed_s > FIGURES_S:
            begin_s = loop.time()
            self._listed = await self._management.queue_figures()
            self._listed_s = begin_s
        return self._listed

    async def _ask_bridges(self, answers: Answers, entities: Sequence[model.Entity]) -> None:
        paths = [each.path for each in entities]
        others = await self._bridges.others()
        try:
            told = await asyncio.gather(*(self._ask(each, paths) for each in others))
        except ServiceBusError as error:
            log.warning("counts.unanswered entities=%d error=%s", len(paths), error)
            return
        told.append(CountsAnswer(self.held(paths), self.scheduled(paths), self._accessed(paths)))
        sums = _sums([each.held for each in told], len(paths) * HELD)
        for at, path in enumerate(paths):
            answers.held[path] = sums[HELD * at : HELD * at + HELD]
            led = [count for each in told for count in each.scheduled[at : at + 1] if count >= 0]
            if led:
                answers.scheduled[path] = max(led)
            times = [ms for each in told for ms in each.accessed[2 * at : 2 * at + 2]]
            if any(led_ms >= 0 for led_ms in times[1::2]):
                answers.accessed_ms[path] = max(times)
        fronts = [each.path for each in entities if not isinstance(each, model.Subscription)]
        if unled := [path for path in fronts if path not in answers.scheduled]:
            answers.scheduled.update(await self.scheduled_numbers.count_unled(unled))

    def _note(self, entity: model.Entity, answers: Answers, asked_s: float) -> None:
        """Keep an entity's counts; if they are not known, and never were, RabbitMQ's figures."""
        last = self._known(entity)
        try:
            counts = answers.counts(entity)
        except BrokerSilent as error:
            log.info("counts.unknown entity=%s error=%s", entity.path, error)
            if last is not None and last.asked_s is not None:
                return
            try:
                known = _Known(entity.incarnation, answers.by_figures(entity), None)
            except BrokerSilent:
                return
        else:
            known = _Known(entity.incarnation, counts, asked_s)
        self._last.pop(_key(entity), None)
        self._last[_key(entity)] = known
        if len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]

    def _longest_s(self, entities: Sequence[model.Entity]) -> float:
        return COUNT_S if all(map(self._known, entities)) else FIRST_S

    def _known(self, entity: model.Entity) -> _Known | None:
        last = self._last.get(_key(entity))
        return last if last is not None and last.incarnation == entity.incarnation else None

    async def held_anywhere(self, paths: Sequence[str]) -> list[int]:
        """Return the sums of all bridges' `held`.

        Raises:
            ServiceBusError: a running bridge gives no answer.
        """
        return await self._held_by(await self._bridges.others(), paths)

    async def held_by_known(self, paths: Sequence[str]) -> list[int]:
        """Do so without the bridges that this one has not heard of yet: there may be more."""
        return await self._held_by(await self._bridges.known(), paths)

    async def _held_by(self, others: Collection[bytes], paths: Sequence[str]) -> list[int]:
        told = await asyncio.gather(*(self._ask(each, paths) for each in others))
        return _sums([*(each.held for each in told), self.held(paths)], len(paths) * HELD)

    async def dead_held(self, path: str) -> tuple[int, int]:
        """Return how many dead letters are held: by all bridges, and by others than this process.

        Raises likewise. What this process's clients report counts as others': their numbers are not
        known.
        """
        _, held, _ = await self.held_anywhere([path])
        return held, held - self._receiving.held(EntityPath(path, SubQueue.DEAD_LETTER))

    async def _ask(self, bridge: bytes, paths: Sequence[str]) -> CountsAnswer:
        """Return what a bridge tells of entities; nothing if it is gone."""
        try:
            return await self._questions.counts(bridge, paths)
        except ServerBusy as error:
            if isinstance(error.__cause__, PublishRefused):
                # Its queue is dead with its node, and its messages are returned.
                return CountsAnswer()
            raise
        except BrokerError as error:
            raise ServerBusy(texts.busy(error)) from error


@dataclass(frozen=True, slots=True)
class _Known:
    """The last counts of an entity.

    Attributes:
        asked_s: when they were asked for; `None`: they are RabbitMQ's own figures, and are old.
    """

    incarnation: str
    counts: Counts
    asked_s: float | None


def _key(entity: model.Entity) -> str:
    return entity.path.lower()


def _queues(entities: Iterable[model.Entity]) -> list[str]:
    return [name for each in entities for name in queues_of(each)]


def _sums(told: Iterable[Sequence[int]], count: int) -> list[int]:
    """Return the sums of equally long answers; those of gone bridges are empty."""
    whole = [each for each in told if len(each) == count]
    return [sum(counts) for counts in zip(*whole, strict=True)]
