"""The deferred messages of one entity: RabbitMQ's queue of them, and who holds it.

One bridge at a time consumes the queue (single active consumer) and holds all of it, unacked, with
an index by number. An ask for messages goes through the same queue: so it comes to whoever
holds it, and behind everything that was deferred before it was asked. Nobody holds the queue for
longer than somebody asks: what nobody asks for waits in RabbitMQ, and no consumer timeout ends it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial

from bridge.broker import failpoint
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError, NotFound
from bridge.broker.retry import retry
from bridge.broker.seal import seal
from bridge.engine.browse.settlements import Settlements
from bridge.engine.deferral.asks import Asks
from bridge.engine.deferral.messages import DeferredMessages, reach
from bridge.engine.receiving.intake import SETTLE_S, Intake
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.departure import Departure
from bridge.engine.settlement.holding import Holding, read, unreadable
from bridge.engine.settlement.locktable import LockTable
from bridge.machine.arrival import MALFORMED_MESSAGE, MISPLACED_MESSAGE
from bridge.machine.memory_budget import MemoryBudget
from bridge.model import entity as model
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names, parts
from bridge.wire import headers
from bridge.wire.basic import FieldValue, Properties, Table, python_value
from bridge.wire.deferred import ASK

IDLE_S = 60.0
"""How long after the last ask, without a lock, the messages are held."""

HELD_S = 600.0
"""How long they are held at most when there is an instant without a lock: a third of the time after
which RabbitMQ 3.10 closes a channel."""

REOPEN_S = 0.5

LOST_SETTLE_S = 3.0
"""So long after a lost channel is replaced, and consumes, what is missing may still come. That was
not over after `SETTLE_S` once, with a RabbitMQ that started on a busy machine (3.10.8)."""

PREFETCH_MAX = 65_535
"""What basic.qos can say; without it a quorum queue delivers 2,000 (3.10, 4.0, 4.3)."""

log = logging.getLogger(__name__)

_NO_HEADERS: Table = {}
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
        on_lost: called when the channel, and all that was locked on it, is lost.
        settlements: hears of what has left.

    Attributes:
        queue: the entity's definition.
        resource: the RabbitMQ queue's name.
    """

    def __init__(
        self,
        queue: model.ReceiveEntity,
        *,
        budget: MemoryBudget,
        intake: Intake,
        sender: Sender,
        departure: Departure,
        locks: LockTable,
        on_lost: Callable[[Channel], None],
        settlements: Settlements,
    ) -> None:
        self.queue = queue
        self.resource = names.deferred_queue(queue.path)
        self.departure = departure
        self._intake = intake
        self._on_lost = on_lost
        self._messages = {
            sub_queue: DeferredMessages(
                EntityPath(queue.path, sub_queue), self, budget, settlements
            )
            for sub_queue in (SubQueue.NONE, SubQueue.DEAD_LETTER)
        }
        self._asks = Asks(self.resource, self._messages, sender, locks)
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._reopening: asyncio.Task[None] | None = None
        self._letting_go: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._opened_s = 0.0
        self._settle_s = SETTLE_S
        self._declaring = asyncio.Lock()
        self._looking: Channel | None = None
        self._is_sealed = False
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

    def is_current(self, channel: Channel) -> bool:
        """Whether this is the channel that messages are held on."""
        return channel is self._channel

    async def declare(self) -> None:
        """Have the queue: whoever needs it first makes it.

        It is looked for each time: what is set aside goes to the stream of moved messages, too, so
        RabbitMQ returns nothing that this queue is not there for.
        """
        async with self._declaring:
            if self._is_sealed and await self._is_there():
                return
            channel = await self._intake.channel()
            await channel.declarations.declare_queue(parts.deferred_queue(self.queue.path))
            await seal(channel, os.urandom(8))
            await channel.close()
            failpoint.reach("engine.deferred.declared")
            self._is_sealed = True

    async def _is_there(self) -> bool:
        if self._looking is None or self._looking.close_reason is not None:
            self._looking = await self._intake.channel()
        try:
            await self._looking.declarations.declare_queue(self.resource, passive=True)
        except NotFound:
            return False
        return True

    async def attend(self) -> None:
        """Hold the queue, or stand ready to: when this returns somebody answers asks."""
        loop = asyncio.get_running_loop()
        self._asks.asked_s = loop.time()
        async with self._opening:
            if self._channel is not None or self._is_closing:
                return
            await self.declare()
            channel = await self._intake.route(self.resource).channel()
            channel.on_closed = partial(self._on_closed, channel)
            self._channel = channel
            self._note_opened()
            await channel.consumers.qos(PREFETCH_MAX)
            await channel.consumers.consume(
                self.resource, self._on_delivery, on_cancel=partial(self._on_cancel, channel)
            )
            self._note_opened()
        if self._timer is None:
            self._timer = loop.call_later(IDLE_S, self._look)

    def _note_opened(self) -> None:
        self._opened_s = asyncio.get_running_loop().time()
        self._asks.complete_s = self._opened_s + self._settle_s

    async def close(self) -> None:
        """Let go of everything."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self._reopening is not None:
            self._reopening.cancel()
        if self._channel is not None:
            await self._channel.close()

    def drop(self, tag: int) -> None:
        """Ack a second copy."""
        assert self._channel is not None
        self.departure.note_second_copy()
        self._channel.consumers.ack(tag)
        reach("engine.drop.acked", self._channel)

    def _on_delivery(self, delivery: Delivery) -> None:
        try:
            properties = Properties.decode(delivery.properties)
            table = properties.headers or _NO_HEADERS
            if table.get(headers.KIND, _ABSENT)[1] == ASK.encode():
                self._asks.take(delivery, properties)
            else:
                self._on_message(delivery, table)
        except ValueError as error:
            self._refuse(unreadable(delivery, 0), MALFORMED_MESSAGE, str(error))
        if self._asks:
            self._asks.serve()

    def _refuse(self, holding: Holding, reason: str, description: str) -> None:
        """Have a message made a dead letter that nobody can ask for."""
        self.departure.poison.note("deferred", self.resource, description)
        self.departure.refuse(self._messages[SubQueue.NONE], holding, reason, description)

    def _on_message(self, delivery: Delivery, table: Table) -> None:
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

    def _on_cancel(self, channel: Channel, tag: str) -> None:
        """RabbitMQ has ended the consumer: the queue was deleted, or 4.3's consumer timeout."""
        channel.abandon()

    def _on_closed(self, channel: Channel, error: BrokerError) -> None:
        """RabbitMQ has taken everything back: asks too, for whoever holds the queue next."""
        self._channel = None
        self._settle_s = LOST_SETTLE_S
        self._asks.clear()
        self._clear()
        self._on_lost(channel)
        if not self._is_closing:
            log.info("deferred.lost queue=%s error=%s", self.resource, error)
            loop = asyncio.get_running_loop()
            self._reopening = loop.create_task(self._reopen())

    async def _reopen(self) -> None:
        """Stand ready again: an ask of this bridge's may still be on its way."""
        await asyncio.sleep(REOPEN_S)
        await retry(self._open_unless_open, wait_s=REOPEN_S, retryable=_is_broker_error)

    async def _open_unless_open(self) -> None:
        if self._channel is None and not self._is_closing:
            await self.attend()

    def _look(self) -> None:
        """Let go when nobody has asked for a while."""
        loop = asyncio.get_running_loop()
        self._timer = None
        channel = self._channel
        if channel is None:
            return
        now_s = loop.time()
        is_idle = (
            now_s - self._asks.asked_s >= IDLE_S or now_s - self._opened_s >= HELD_S or self.is_full
        )
        is_out = any(messages.out for messages in self._messages.values())
        if is_idle and not is_out and not self._asks:
            channel.on_closed = None
            self._channel = None
            self._settle_s = SETTLE_S
            self._clear()
            self._letting_go = loop.create_task(self._close_quietly(channel))
        else:
            self._timer = loop.call_later(1 if is_idle else IDLE_S, self._look)

    def _clear(self) -> None:
        for messages in self._messages.values():
            messages.clear()

    async def _close_quietly(self, channel: Channel) -> None:
        try:
            await channel.close()
        except BrokerError as error:
            log.info("deferred.unclosed queue=%s error=%s", self.resource, error)


def _is_broker_error(error: BaseException) -> bool:
    return isinstance(error, BrokerError)
