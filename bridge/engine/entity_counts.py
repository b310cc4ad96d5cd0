"""The counts of entities, computed from what RabbitMQ and the bridges have answered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bridge.broker.errors import BrokerSilent
from bridge.broker.management.api import Figures
from bridge.broker.ready_counts import ReadyCounts
from bridge.engine.count_questions import HELD
from bridge.model import entity as model
from bridge.model.counts import Counts
from bridge.model.forwarding import target_of
from bridge.topology import names
from bridge.topology.shards import active_queues, message_queues


@dataclass
class Answers:
    """What RabbitMQ and the bridges have said of the entities that are counted together.

    Attributes:
        ready: the counts of queues.
        missing: the queues that do not exist, of those that are made when they are used.
        figures: RabbitMQ's figures of queues; `None` if there are none yet.
        held: the counts of held messages (`Counting.held`), by path; empty if a bridge is silent.
        scheduled: the counts of scheduled messages, by path.
        accessed_ms: when entities were used last, by path; 0: never. Without an entity that nobody
            leads.
    """

    ready: ReadyCounts
    missing: Collection[str] = ()
    figures: Mapping[str, Figures] | None = None
    held: dict[str, Sequence[int]] = field(default_factory=dict)
    scheduled: dict[str, int] = field(default_factory=dict)
    accessed_ms: dict[str, int] = field(default_factory=dict)

    def counts(self, entity: model.Entity) -> Counts:
        """Return the counts of an entity.

        Raises:
            BrokerSilent: some of them are not known.
        """
        path = entity.path
        if path not in self.held:
            raise BrokerSilent(text="a bridge does not say what it holds")
        return self._counts(entity, self.ready.of, self.held[path])

    def by_figures(self, entity: model.Entity) -> Counts:
        """Return the counts of an entity by RabbitMQ's figures, which include what is held.

        Raises:
            BrokerSilent: there are no figures of a queue, or nobody says what is scheduled.
        """
        return self._counts(entity, self._messages, (0,) * HELD)

    def _counts(
        self, entity: model.Entity, of: Callable[[str], int], held: Sequence[int]
    ) -> Counts:
        path = entity.path
        if path not in self.scheduled and not isinstance(entity, model.Subscription):
            raise BrokerSilent(text="nobody says what is scheduled")

        def count(queue: str) -> int:
            return 0 if queue in self.missing else of(queue)

        size_bytes = self._size_bytes(entity)
        scheduled = self.scheduled.get(path, 0)
        accessed_ms = self.accessed_ms.get(path)
        transfers = [self._with_held(each, of) for each in transfer_queues(entity)]
        transfer, transfer_dead = transfers or (0, 0)
        if isinstance(entity, model.Topic):
            return Counts(
                scheduled=scheduled,
                transfer=transfer,
                transfer_dead_letter=transfer_dead,
                size_bytes=size_bytes,
                accessed_ms=accessed_ms,
            )
        # Without a leader one ready message is the ownership token (`sidecar.ownership_token`).
        is_queue = isinstance(entity, model.Queue)
        arrived = max(count(names.inbox(path)) - 1, 0) if is_queue else 0
        there = sum(map(count, active_queues(entity))) + held[0] + arrived
        is_source = bool(target_of(entity))
        found = Counts(
            active=0 if is_source else there,
            transfer=transfer + (there if is_source else 0),
            transfer_dead_letter=transfer_dead,
            dead_letter=count(names.dead_letter_queue(path)) + held[1],
            scheduled=scheduled if is_queue else 0,
            deferred=count(names.deferred_queue(path)) + held[2],
            size_bytes=size_bytes,
            accessed_ms=accessed_ms,
        )
        if size_bytes is None or size_bytes >= found.total:
            return found
        # RabbitMQ's figures are some seconds old: a message has a byte until they say more.
        return replace(found, size_bytes=found.total)

    def _with_held(self, queue: str, of: Callable[[str], int]) -> int:
        """Count a queue's messages, those that a bridge holds by RabbitMQ's figures."""
        if queue in self.missing:
            return 0
        found = self.figures.get(queue) if self.figures is not None else None
        return max(of(queue), (found.messages if found is not None else None) or 0)

    def _size_bytes(self, entity: model.Entity) -> int | None:
        figures = self.figures
        if figures is None:
            return None
        return sum(figures[each].bytes for each in queues_of(entity) if each in figures)

    def _messages(self, queue: str) -> int:
        found = self.figures.get(queue) if self.figures is not None else None
        if found is None or found.messages is None:
            raise BrokerSilent(text=f"there are no figures of the queue {queue!r}")
        return found.messages


def transfer_queues(entity: model.Entity) -> list[str]:
    """Return the queues of what an entity's transactions send to others, if it had any."""
    if isinstance(entity, model.Subscription) or not entity.transactional:
        return []
    return [
        names.transfer_queue(entity.path),
        names.transfer_dead_letter_queue(entity.path),
    ]


def queues_of(entity: model.Entity) -> list[str]:
    """Return the names of all queues that may have messages of an entity, without its buckets."""
    found = [*message_queues(entity), *transfer_queues(entity)]
    return [*found, names.inbox(entity.path)] if isinstance(entity, model.Queue) else found
