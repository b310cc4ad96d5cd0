"""The deferred messages of one entity: RabbitMQ's queue of them, and who owns it.

One bridge at a time owns the queue (`ownership`) and holds all of it, unacked, with an index by
number. Nobody owns it for longer than somebody asks: what nobody asks for waits in RabbitMQ, and no
consumer timeout ends it.
"""

from __future__ import annotations

import asyncio
import logging
import os

from bridge.broker.connection.address import is_there
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.pool import SETTLE_S
from bridge.broker.declaration_fence import fence_declarations
from bridge.broker.errors import BrokerError
from bridge.broker.failpoint import reach
from bridge.broker.retry import retry
from bridge.engine.deferral.messages import DeferredMessages
from bridge.engine.deferral.replies import Replies
from bridge.engine.ownership import asking
from bridge.engine.ownership.ownership import Ask, Ownership
from bridge.engine.ownership.services import Services
from bridge.engine.settlement.held_message import HeldMessage, read, unreadable
from bridge.machine.arrival import MALFORMED_MESSAGE, MISPLACED_MESSAGE
from bridge.machine.memory_budget import MemoryBudget
from bridge.model import entity as model
from bridge.model.name import SubQueue
from bridge.topology import names, parts
from bridge.wire import headers
from bridge.wire.basic import FieldValue, Table, python_value, text
from bridge.wire.deferred import ASK, Lock, decode_locks, encode_ask

IDLE_S = 60.0
"""How long after the last ask, without a lock, the messages are held."""

HELD_S = 600.0
"""How long they are held at most when there is an instant without a lock: a third of the time after
which RabbitMQ 3.10 closes a channel."""

REOPEN_S = 0.5

LOST_SETTLE_S = 3.0
"""So long after a lost channel is replaced, and consumes, what is missing may still come. That was
not over after `SETTLE_S` once, with a RabbitMQ that started on a busy machine (3.10.8)."""

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
    """What this process has to do with the deferred messages of one entity.

    Args:
        queue: the entity's definition.
        budget: where the bodies that are here are counted.

    Attributes:
        queue: the entity's definition.
        resource: the RabbitMQ queue's name.
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
        self._replies = Replies(self._messages, services.locks, self._ownership.serve)
        self._reopening: asyncio.Task[None] | None = None
        self._letting_go: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._used_s = 0.0
        self._opened_s = 0.0
        self._settle_s = SETTLE_S
        self._declaring = asyncio.Lock()
        self._is_declared = False
        self._is_closing = False

    def __repr__(self) -> str:
        return f"DeferredQueue({self.resource!r}, {list(self._messages.values())})"

    @property
    def is_full(self) -> bool:
        """Whether as many messages are held here as may be deferred."""
        return self.held >= parts.DEFERRED_MAX

    @property
    def held(self) -> int:
        """How many messages are here, locked ones included."""
        return sum(map(len, self._messages.values()))

    def update(self, queue: model.ReceiveEntity) -> None:
        """Take over a changed definition."""
        self.queue = queue
        for messages in self._messages.values():
            messages.queue = queue

    async def declare(self) -> None:
        """Have the queue: whoever needs it first makes it.

        It is looked for each time: where somebody has deleted it, RabbitMQ would return what is set
        aside, and the defer would fail.
        """
        async with self._declaring:
            if self._is_declared and await is_there(self._services.connections, self.resource):
                return
            with await self._services.connections.channel() as channel:
                await channel.declarations.declare_queue(parts.deferred_queue(self.queue.path))
                await fence_declarations(channel, os.urandom(8))
            reach("engine.deferred.declared")
            self._is_declared = True

    async def lock(self, sub_queue: SubQueue, numbers: list[int]) -> list[Lock]:
        """Lock all of these messages, whoever owns them, or none.

        Raises:
            MessageNotFound: one of them is not there, or is locked.
            ServerBusy, OperationTimeout: RabbitMQ, or the owner, gives no answer.
        """
        self._used_s = asyncio.get_running_loop().time()
        await asking.in_time(self._stand_by, what=WHAT)
        body = encode_ask(numbers, of_dead_letters=sub_queue is SubQueue.DEAD_LETTER)
        sender = self._services.sender
        reply = await asking.ask(sender, self.resource, _ASK_HEADERS, body, what=WHAT)
        return decode_locks(reply.numbers)

    async def _stand_by(self) -> None:
        """Own the queue, or stand ready to: when this returns somebody answers asks."""
        if self._is_closing:
            return
        if self._ownership.channel is None:
            self._note_opened()
            await self._ownership.stand_by()
            self._note_opened()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._look)

    def _note_opened(self) -> None:
        self._opened_s = asyncio.get_running_loop().time()
        self._replies.complete_s = self._opened_s + self._settle_s

    async def close(self) -> None:
        """Let go of everything."""
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

    # What the ownership says (`ownership.Owned`).

    def became_owner(self) -> None:
        """Whoever asks is answered when what is asked for is here."""

    def reply_to(self, ask: Ask) -> bytes | None:
        """Return the answer to an ask, or `None` while there is none."""
        return self._replies.reply_to(ask)

    def refuse(self, delivery: Delivery, error: str) -> None:
        """Have what cannot be read made a dead letter."""
        self._refuse(unreadable(delivery, 0), MALFORMED_MESSAGE, error)

    def _refuse(self, holding: HeldMessage, reason: str, description: str) -> None:
        """Have a message made a dead letter that nobody can ask for."""
        self._services.departure.poison.note("deferred", self.resource, description)
        self._services.departure.refuse(self._messages[SubQueue.NONE], holding, reason, description)

    def arrived(self, delivery: Delivery, kind: object, table: Table) -> None:
        """Hold a message that was set aside."""
        holding = read(delivery, 0, can_expire=False)
        holding.failures = holding.generation
        belongs_to = python_value(table.get(headers.DEFERRED, _ABSENT))
        if not isinstance(belongs_to, str):
            belongs_to = None
        sub_queue = _SUB_QUEUES.get(belongs_to)
        if sub_queue is None or not holding.is_numbered:
            self._refuse(holding, MISPLACED_MESSAGE, MISPLACED_DESCRIPTION)
            return
        self._messages[sub_queue].arrived(holding)

    def lost(self, channel: Channel, error: BrokerError) -> None:
        """RabbitMQ has taken everything back: asks too, for whoever owns the queue next."""
        self._settle_s = LOST_SETTLE_S
        self._clear()
        self._services.locks.lose_channel(channel)
        if not self._is_closing:
            log.info("deferred.lost queue=%s error=%s", self.resource, error)
            loop = asyncio.get_running_loop()
            self._reopening = loop.create_task(self._reopen())

    async def _reopen(self) -> None:
        """Stand ready again: an ask of this bridge's may still be on its way."""
        await asyncio.sleep(REOPEN_S)
        await retry(self._stand_by, wait_s=REOPEN_S, retryable=BrokerError)

    def _look(self) -> None:
        """Let go when nobody has asked for a while."""
        loop = asyncio.get_running_loop()
        self._timer = None
        if self._ownership.channel is None:
            return
        now_s = loop.time()
        used_s = max(self._used_s, self._ownership.asked_s)
        is_idle = now_s - used_s >= IDLE_S or now_s - self._opened_s >= HELD_S or self.is_full
        is_out = any(messages.out for messages in self._messages.values())
        if is_idle and not is_out and not self._ownership.waiting:
            self._settle_s = SETTLE_S
            closing = self._ownership.close()
            self._clear()
            self._letting_go = loop.create_task(closing)
        else:
            self._timer = loop.call_later(1 if is_idle else IDLE_S, self._look)

    def _clear(self) -> None:
        for messages in self._messages.values():
            messages.clear()
