"""The deferred messages that this process holds: what settling one of them means."""

from __future__ import annotations

from bridge.broker.failpoint import reach
from bridge.engine.ownership.ownership import Ownership
from bridge.engine.ownership.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.deduplicator import Left
from bridge.machine.deferred_index import DeferredIndex
from bridge.machine.memory_budget import MemoryBudget
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names


class DeferredMessages:
    """The deferred messages of an entity, or of its dead-letter sub-queue; see `owner.Owner`.

    Args:
        ownership: the channel that they are held on.

    Attributes:
        path: the entity's, or that of its dead-letter sub-queue.
        queue: the entity's definition.
        resource: the RabbitMQ queue's name.
        index: those that can be asked for.
        out: those that are locked or leaving.
    """

    is_deferred = True

    def __init__(
        self,
        queue: model.ReceiveEntity,
        sub_queue: SubQueue,
        ownership: Ownership,
        budget: MemoryBudget,
        services: Services,
    ) -> None:
        self.queue = queue
        self.path = EntityPath(queue.path, sub_queue)
        self.resource = ownership.resource
        self.is_dead_letter = sub_queue is SubQueue.DEAD_LETTER
        name_of = names.dead_letter_queue if self.is_dead_letter else names.active_queue
        self._record = services.settlements.of(name_of(queue.path))
        self._departure = services.departure
        self.index: DeferredIndex[HeldMessage] = DeferredIndex(budget)
        self.out: set[HeldMessage] = set()
        self._ownership = ownership

    def __repr__(self) -> str:
        return f"DeferredMessages({self.path}, {self.index!r})"

    def __len__(self) -> int:
        return len(self.index) + len(self.out)

    def clear(self) -> None:
        """Forget all: they are held here no more."""
        self.out.clear()
        self.index.clear()

    def arrived(self, holding: HeldMessage) -> None:
        """Hold a message that has come, or come again."""
        second = self.index.arrived(
            holding.identity, holding.number, holding.tag, holding, _size_bytes(holding)
        )
        self._drop(second)

    def holds(self, holding: HeldMessage) -> bool:
        """Whether RabbitMQ still counts on this process to settle a message."""
        return holding.channel is self._ownership.channel

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Settle a message for good."""
        holding.channel.consumers.ack(holding.tag)
        reach(point, holding.channel)

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """Defer it again, one more on its count: a message of a new count is a new publish."""
        self._departure.expire_lock(self, holding)

    def release(self, holding: HeldMessage) -> None:
        """Defer it again as it was."""
        self.out.discard(holding)
        second = self.index.put_back(
            holding.identity, holding.number, holding.tag, holding, _size_bytes(holding)
        )
        self._drop(second)

    def departing(self, holding: HeldMessage) -> None:
        """A message is about to be handed over, and acked then."""

    def stayed(self, holding: HeldMessage) -> None:
        """A message that was about to be handed over was not."""

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """A message is about to be published into the queue again."""

    def left(self, holding: HeldMessage, how: Left) -> None:
        """A message is in the queue no more, or as a later copy."""
        self.out.discard(holding)
        if how is not Left.REPLACED:
            self._record.left_deferred(holding.number)
        if how is Left.REPLACED or not self.holds(holding):
            return
        second = self.index.gone(holding.identity)
        self._drop(second)

    def _drop(self, tag: int | None) -> None:
        """Ack a second copy, if there is one."""
        channel = self._ownership.channel
        if tag is not None and channel is not None:
            self._departure.note_second_copy()
            channel.consumers.ack(tag)
            reach("engine.drop.acked", channel)


def _size_bytes(holding: HeldMessage) -> int:
    return len(holding.record.body) + 1_000
