"""A queue of RabbitMQ, and its entity."""

from __future__ import annotations

from bridge.message.fate import rules_of
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.name import SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.topology.description import Described


class QueuePlace:
    """See `message.fate.Place`.

    Attributes:
        path: the entity's.
        queue: its definition.
        resource: the RabbitMQ queue's name.
        is_dead_letter: whether `resource` is a dead-letter queue.
        active_exchange: where a sequencer publishes numbered messages.
        reader: reads the subscriptions in a topic's message.
        rules: what ends its messages.
    """

    def __init__(self, described: Described, sub_queue: SubQueue) -> None:
        assert not isinstance(described.entity, model.Topic)
        self.queue: model.ReceiveEntity = described.entity
        self.is_dead_letter = sub_queue is SubQueue.DEAD_LETTER
        name_of = names.dead_letter_queue if self.is_dead_letter else names.active_queue
        self.path = self.queue.path
        self.resource = name_of(self.queue.path)
        self.active_exchange = names.active_exchange(self.queue.front)
        self._follow()

    def update(self, described: Described) -> bool:
        """Take over a changed definition; return whether the entity was created anew."""
        assert not isinstance(described.entity, model.Topic)
        is_new = incarnation_of(described.entity) != incarnation_of(self.queue)
        self.queue = described.entity
        self._follow()
        return is_new

    def _follow(self) -> None:
        self.reader = reader_of(self.queue)
        self.rules = rules_of(self.queue, is_dead_letter=self.is_dead_letter)
