"""The deferred messages of one entity: their queue in RabbitMQ, and its owner.

One bridge at a time owns the queue (`ownership`). It holds all messages unacked, with an index by
number. When no receiver asks for a while, the owner gives them back: they wait in RabbitMQ.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from functools import partial

from bridge.background.tasks import Tasks
from bridge.broker.connection.address import is_there
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.declaration_fence import fence_declarations
from bridge.broker.errors import BrokerError
from bridge.broker.failpoint import reach
from bridge.engine.deferral.messages import DeferredMessages
from bridge.engine.deferral.replies import Replies
from bridge.engine.ownership import asking
from bridge.engine.ownership.ownership import Ask, Ownership
from bridge.engine.services import Services
from bridge.engine.settlement.asked_messages import AskedMessages
from bridge.engine.settlement.held_message import HeldMessage, read, unreadable
from bridge.machine.inbox.arrival import MALFORMED_MESSAGE, MISPLACED_MESSAGE
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.message.subscriptions import reader_of
from bridge.model import entity as model
from bridge.model.name import SubQueue
from bridge.topology import names, parts
from bridge.wire import headers
from bridge.wire.basic import FieldValue, Table, python_value, text
from bridge.wire.deferred import (
    ASK,
    Lock,
    decode_list,
    decode_locks,
    encode_ask,
    encode_list_ask,
)
from bridge.wire.inquiries import Told

IDLE_S = 60.0
"""The time that the messages are held after the last ask, if none is locked."""

REOPEN_S = 0.5

WHAT = "deferred messages"

log = logging.getLogger(__name__)

_ASK_HEADERS: Table = {headers.KIND: text(ASK)}
_ABSENT: FieldValue = ("V", None)

_SUB_QUEUES: dict[str | None, SubQueue] = {
    each.value: each for each in (SubQueue.NONE, SubQueue.DEAD_LETTER)
}

MISPLACED_DESCRIPTION = (
    "Somebody published the message into the queue of deferred messages. Nobody can ask for it "
    "there: publish to the entity's exchange."
)


class DeferredQueue:
    """The deferred messages of one entity, as owner of their queue or by asking the owner.

    Args:
        queue: the entity's definition.
        budget: the memory budget of the messages' bodies.

    Attributes:
        queue: the entity's definition.
        resource: the name of the RabbitMQ queue.
    """

    def __init__(
        self, queue: model.ReceiveEntity, *, budget: MemoryBudget, services: Services
    ) -> None:
        self.queue = queue
        self.resource = names.deferred_queue(queue.path)
        self._services = services
        self._ownership = Ownership(
            self.resource,
            self,
            route=services.connections.route(self.resource),
            sender=services.sender,
            asks=ASK,
            point="engine.deferred.answered",
            prepare=self.declare,
        )
        self._messages = {
            sub_queue: DeferredMessages(queue, sub_queue, self._ownership, budget, services)
            for sub_queue in (SubQueue.NONE, SubQueue.DEAD_LETTER)
        }
        self._asked = AskedMessages(
            self._messages[SubQueue.NONE], services.inquirer, self._ownership.serve
        )
        self._replies = Replies(
            self._messages,
            services.locks,
            self._ownership.put_last,
            lambda: services.settlements.hear(queue.path),
        )
        self._reopening: asyncio.Task[None] | None = None
        self._letting_go = Tasks()
        self._timer: asyncio.TimerHandle | None = None
        self._used_s = 0.0
        self._declaring = asyncio.Lock()
        self._is_declared = False
        self._is_closing = False

    def __repr__(self) -> str:
        return f"DeferredQueue({self.resource!r}, {list(self._messages.values())})"

    @property
    def is_full(self) -> bool:
        """Whether this process holds as many messages as the queue may have."""
        return self.held >= parts.DEFERRED_MAX

    @property
    def held(self) -> int:
        """The count of messages that this process holds, locked ones included."""
        return sum(map(len, self._messages.values()))

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition."""
        self.queue = queue
        for messages in self._messages.values():
            messages.queue = queue

    async def declare(self) -> None:
        """Make the queue in RabbitMQ, if it is missing.

        Each call looks for the queue: if it was deleted by hand, RabbitMQ would return the deferred
        message, and the defer would fail.
        """
        async with self._declaring:
            if self._is_declared and await is_there(self._services.connections, self.resource):
                return
            async with self._services.connections.apart(self.resource) as lease:
                channel = await lease.channel()
                await channel.declarations.declare_queue(parts.deferred_queue(self.queue.path))
                await fence_declarations(channel, os.urandom(8))
            reach("engine.deferred.declared")
            self._is_declared = True

    async def lock(self, sub_queue: SubQueue, numbers: list[int]) -> list[Lock]:
        """Lock all messages with these numbers, or none; the owner may be another bridge.

        Raises:
            MessageNotFound: one of them does not exist, or is locked.
            ServerBusy, OperationTimeout: RabbitMQ, or the owner, gives no answer.
        """
        self._used_s = asyncio.get_running_loop().time()
        body = encode_ask(numbers, of_dead_letters=sub_queue is not SubQueue.NONE)
        return decode_locks(await self._ask(body))

    async def listed(self) -> tuple[Sequence[int], Sequence[int]] | None:
        """Return the numbers of all deferred messages: the entity's own, and dead letters.

        `None`: the owner is a bridge of a version that gives no list.

        Raises:
            ServerBusy, OperationTimeout: RabbitMQ, or the owner, gives no answer.
        """
        return decode_list(await self._ask(encode_list_ask()))

    async def _ask(self, body: bytes) -> Sequence[int]:
        await asking.in_time(self._stand_by, what=WHAT)
        sender = self._services.sender
        reply = await asking.ask(sender, self.resource, _ASK_HEADERS, body, what=WHAT)
        return reply.numbers

    async def _stand_by(self) -> None:
        """Consume the queue, as its owner or standing by: after that it has an owner."""
        if self._is_closing:
            return
        if self._ownership.channel is None:
            await self._ownership.stand_by()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._look)

    async def close(self) -> None:
        """Stop consuming: RabbitMQ takes back all messages, and their locks end."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._reopening is not None:
            self._reopening.cancel()
        channel = self._ownership.channel
        await self._ownership.close()
        if channel is not None:
            self._clear()
            self._services.locks.lose_channel(channel)

    # Calls of the ownership (`ownership.Owned`).

    def became_owner(self) -> None:
        """Do nothing: `reply_to` answers asks as their messages arrive."""

    def reply_to(self, ask: Ask) -> bytes | None:
        """Return the answer to an ask; `None` while its messages are still to come."""
        return None if self._asked.waits else self._replies.reply_to(ask)

    def refuse(self, delivery: Delivery, error: str) -> None:
        """Make an unreadable message a dead letter."""
        self._refuse(unreadable(delivery, 0), MALFORMED_MESSAGE, error)

    def _refuse(self, holding: HeldMessage, reason: str, description: str) -> None:
        """Make a message that no receiver could ask for a dead letter, and log it as poison."""
        self._services.poison.note("deferred", self.resource, description)
        self._services.departure.refuse(self._messages[SubQueue.NONE], holding, reason, description)

    def arrived(self, delivery: Delivery, kind: object, table: Table) -> None:
        """Hold a deferred message; a message without a number or sub-queue is refused."""
        # An imported message is stored as its topic's; what was deferred here as the entity's own.
        holding = read(delivery, 0, can_expire=False, reader=reader_of(self.queue))
        deliveries, holding.failures = holding.failures - holding.generation, holding.generation
        belongs_to = python_value(table.get(headers.DEFERRED, _ABSENT))
        if not isinstance(belongs_to, str):
            belongs_to = None
        sub_queue = _SUB_QUEUES.get(belongs_to)
        if sub_queue is None or not holding.is_numbered:
            self._refuse(holding, MISPLACED_MESSAGE, MISPLACED_DESCRIPTION)
            return
        messages, asked = self._messages[sub_queue], self._asked
        if (
            self.queue.transactional
            and (asked.waits or delivery.redelivered or deliveries)
            and not asked.goes_on(
                holding,
                is_redelivered=delivery.redelivered,
                deliveries=deliveries,
                again=partial(self.arrived, delivery, kind, table),
                decided=partial(self._decided, messages, holding),
            )
        ):
            return
        messages.arrived(holding)

    def _decided(self, messages: DeferredMessages, holding: HeldMessage, told: Told) -> None:
        """Carry out what a transaction has decided about a message that has come again."""
        if messages.holds(holding):
            messages.out.add(holding)
            self._services.inquirer.carry_out(messages, holding, told, self._asked)

    def lost(self, channel: Channel, error: BrokerError) -> None:
        """End all locks, and stand by again: RabbitMQ has taken back all messages and asks."""
        self._clear()
        self._services.locks.lose_channel(channel)
        if not self._is_closing:
            log.info("deferred.lost queue=%s error=%s", self.resource, error)
            self._reopening = self._services.supervisor.repeat(
                "deferred messages",
                self._reopen,
                subject=self.resource,
                pause_min_s=REOPEN_S,
                pause_max_s=REOPEN_S,
            ).task

    async def _reopen(self) -> None:
        """Consume the queue again: an ask of this bridge may still be in it."""
        await asyncio.sleep(REOPEN_S)
        await self._stand_by()

    def _look(self) -> None:
        """Stop consuming after `IDLE_S` without an ask, or when full.

        While a message is locked or leaving, or an ask waits, the owner keeps consuming: the next
        one would have a message again that has another place already.
        """
        loop = asyncio.get_running_loop()
        self._timer = None
        if self._ownership.channel is None:
            return
        now_s = loop.time()
        used_s = max(self._used_s, self._ownership.asked_s)
        is_idle = now_s - used_s >= IDLE_S or self.is_full
        under_way = self._services.departure.under_way
        is_out = any(each.out or under_way(each) for each in self._messages.values())
        if is_idle and not is_out and not self._ownership.waiting:
            closing = self._ownership.close()
            self._clear()
            self._letting_go.start(closing, "deferred messages' end")
        else:
            self._timer = loop.call_later(1 if is_idle else IDLE_S, self._look)

    def _clear(self) -> None:
        self._asked.lose()
        for messages in self._messages.values():
            messages.clear()
