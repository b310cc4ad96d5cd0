"""The deferred messages that this process holds, and how one of them is settled."""

from __future__ import annotations

from bridge.broker.failpoint import reach
from bridge.engine.ownership.ownership import Ownership
from bridge.engine.services import Services
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.queue.deferred_index import DeferredIndex
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.machine.queue.second_copies import Left
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names


class DeferredMessages:
    """The deferred messages of an entity or of its dead-letter sub-queue; see `owner.Owner`.

    Args:
        ownership: the consumer that holds them.

    Attributes:
        path: the entity's path, or that of its dead-letter sub-queue.
        queue: the entity's definition.
        resource: the name of the RabbitMQ queue.
        index: the messages that can be asked for.
        out: the messages that are locked or leaving.
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
        self._record = services.settlements.of(names.received(queue.path, sub_queue))
        self._departure = services.departure
        self.index: DeferredIndex[HeldMessage] = DeferredIndex(budget)
        self.out: set[HeldMessage] = set()
        self._ownership = ownership

    def __repr__(self) -> str:
        return f"DeferredMessages({self.path}, {self.index!r})"

    def __len__(self) -> int:
        return len(self.index) + len(self.out)

    def numbers(self) -> set[int]:
        """Return the numbers of all messages, locked ones included."""
        return {*self.index.numbers(), *(holding.number for holding in self.out)}

    def clear(self) -> None:
        """Forget all messages: this process holds them no more."""
        self.out.clear()
        self.index.clear()

    def arrived(self, holding: HeldMessage) -> None:
        """Hold a delivered message, new or fetched again; ack a second copy."""
        second = self.index.arrived(
            holding.identity, holding.number, holding.tag, holding, _size_bytes(holding)
        )
        self._drop(second)

    def holds(self, holding: HeldMessage) -> bool:
        """Return whether a message is still unacked on the channel of this process."""
        return holding.channel is self._ownership.channel

    def ack(self, holding: HeldMessage, point: str) -> None:
        """Ack a message; `point` is the failpoint behind the ack."""
        holding.channel.ack(holding.tag)
        reach(point, holding.channel)

    def give_back(self, holding: HeldMessage, point: str) -> None:
        """Defer a message again, its delivery count raised by 1: this needs a new publish."""
        self._departure.expire_lock(self, holding)

    def release(self, holding: HeldMessage) -> None:
        """Make a message available to the next ask, unchanged and without a publish."""
        self.out.discard(holding)
        second = self.index.put_back(
            holding.identity, holding.number, holding.tag, holding, _size_bytes(holding)
        )
        self._drop(second)

    def departing(self, holding: HeldMessage) -> None:
        """Do nothing before a hand-over."""

    def stayed(self, holding: HeldMessage) -> None:
        """Do nothing after a failed hand-over."""

    def putting_back(self, holding: HeldMessage, generation: int) -> None:
        """Do nothing before a message is published into the queue again."""

    def left(self, holding: HeldMessage, how: Left) -> None:
        """Note that a message has left the queue, or was replaced by a later copy."""
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
            channel.ack(tag)
            reach("engine.drop.acked", channel)


def _size_bytes(holding: HeldMessage) -> int:
    return len(holding.record.body) + 1_000
