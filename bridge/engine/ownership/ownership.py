"""The consumer of a single active consumer queue: it stands by, or is the owner.

RabbitMQ makes one of the queue's consumers the active one, and another one when that is gone. It
does not tell them: a consumer knows that it is the owner by its first delivery. An ask goes through
the same queue, so the owner gets it, behind all messages published before. An *ownership token* is
a message that the owner keeps unacked: its successor gets it at once, even without an ask.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from bridge.background.tasks import Tasks
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.pool import ChannelRoute
from bridge.broker.errors import BrokerError
from bridge.broker.failpoint import reach
from bridge.engine.sending.sender import Sender
from bridge.model.errors import ServiceBusError
from bridge.wire import headers
from bridge.wire.basic import FieldValue, Properties, Table, python_value
from bridge.wire.sessions import TOKEN, token_properties

PREFETCH_MAX = 65_535
"""The largest prefetch of basic.qos; without it a quorum queue delivers 2,000 (4.0, 4.3)."""

LOOK_S = 0.05

_NO_HEADERS: Table = {}
_ABSENT: FieldValue = ("V", None)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Ask:
    """A question to the owner, delivered through the queue.

    Attributes:
        is_last: all messages that the queue had when the ask came first have come before it.
        is_returning: it is about to go back to the queue, to come again as the last.
    """

    delivery: Delivery
    reply_to: str
    correlation_id: str
    is_last: bool = False
    is_returning: bool = False

    @property
    def body(self) -> bytes:
        """The encoded question."""
        return self.delivery.body


class Owned(Protocol):
    """The handler of an ownership's events."""

    def became_owner(self) -> None:
        """Handle the first delivery: this process is the owner."""

    def lost(self, channel: Channel, error: BrokerError) -> None:
        """Handle the channel's end: RabbitMQ has taken all messages back; nothing consumes now."""

    def arrived(self, delivery: Delivery, kind: object, table: Table) -> None:
        """Handle a message that is no ask and no ownership token.

        Raises:
            ValueError: the message cannot be read; `refuse` is called then.
        """

    def reply_to(self, ask: Ask) -> bytes | None:
        """Return the answer to an ask, or `None` for now: `serve` calls this again.

        Raises:
            ValueError: the ask cannot be read; `refuse` is called then.
        """

    def refuse(self, delivery: Delivery, error: str) -> None:
        """Settle an unreadable message."""


class Ownership:
    """This process's consumer of the queue.

    Args:
        resource: the queue's name.
        owned: the handler of events.
        route: the connection that the queue is consumed on.
        asks: the header `headers.KIND` of an ask.
        point: the failpoint behind the ack of an ask.
        prepare: awaited before the queue is consumed.

    Attributes:
        channel: the consuming channel, or `None`.
        asked_s: the time of the last ask (the loop's clock).
    """

    def __init__(
        self,
        resource: str,
        owned: Owned,
        *,
        route: ChannelRoute,
        sender: Sender,
        asks: str,
        point: str,
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.resource = resource
        self.channel: Channel | None = None
        self.asked_s = 0.0
        self._owned = owned
        self._route = route
        self._sender = sender
        self._kind = asks
        self._point = point
        self._prepare = prepare
        self._opening: asyncio.Task[None] | None = None
        self._asks: list[Ask] = []
        self._coming: set[tuple[str, str]] = set()
        self._last = Tasks()
        self._token: int | None = None
        self._putting = Tasks()
        self._is_owner = False

    def __repr__(self) -> str:
        return f"Ownership({self.resource!r}, is_owner={self._is_owner})"

    @property
    def waiting(self) -> int:
        """The count of asks that are not answered yet."""
        return len(self._asks) + len(self._coming)

    @property
    def linger_s(self) -> float:
        """How long RabbitMQ may yet need to apply what was settled."""
        return 0.0 if self.channel is None else self.channel.consumers.linger_s

    async def stand_by(self) -> None:
        """Consume the queue, unless it is consumed already.

        Raises:
            BrokerError: RabbitMQ refuses the channel or the consumer.
        """
        if self._opening is None and self.channel is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)
        if self._opening is not None:
            await asyncio.shield(self._opening)  # other callers may wait for it, too

    def _opened(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # all callers may have been cancelled

    async def _open(self) -> None:
        if self._prepare is not None:
            await self._prepare()
        channel = await self._route.channel()
        await channel.consumers.qos(PREFETCH_MAX)
        self.channel = channel
        try:
            await channel.consumers.consume(
                self.resource, self._on_delivery, on_cancel=lambda tag: channel.abandon()
            )
        except BrokerError:
            if self.channel is channel:
                self._release()
            raise
        if self.channel is not channel:  # `leave` or `close` was called meanwhile
            channel.abandon()
            return
        channel.on_closed = partial(self._on_closed, channel)
        if channel.close_reason is not None:
            self._on_closed(channel, channel.close_reason)

    def leave(self) -> None:
        """Stop consuming at once; the next owner gets all unacked messages."""
        channel = self._release()
        if channel is not None:
            channel.abandon()

    def close(self) -> Coroutine[None, None, None]:
        """Stop consuming from the call on; the coroutine waits until RabbitMQ has applied acks."""
        return self._closed(self._release())

    async def _closed(self, channel: Channel | None) -> None:
        if channel is not None:
            try:
                await channel.close()
            except BrokerError as error:
                log.info("ownership.unclosed queue=%s error=%s", self.resource, error)

    async def catch_up(self) -> None:
        """Wait until all messages of the queue have come to this process, its owner.

        A channel answers behind its deliveries.

        Raises:
            BrokerError: RabbitMQ does not answer.
        """
        channel = self.channel
        if channel is not None and await self._has_none_ready(channel):
            await channel.consumers.qos(PREFETCH_MAX)

    async def _has_none_ready(self, channel: Channel) -> bool:
        """Wait until RabbitMQ has delivered all messages; `False`: the channel is not ours now.

        RabbitMQ reports a queue that does not answer in time as empty and without consumers
        (docs/rabbitmq-faults.md: empty-when-dead).
        """
        while channel is self.channel:
            state = await channel.declarations.declare_queue(self.resource, passive=True)
            if state.consumers and not state.messages:
                return True
            await asyncio.sleep(LOOK_S)
        return False

    def put_last(self, ask: Ask) -> None:
        """Bring an ask again, with `is_last`, behind all messages that the queue has now.

        Usually they have come before the ask. After a kill RabbitMQ may return what the predecessor
        held in another order (docs/rabbitmq-faults.md: returns-order), and the ask with it. So when
        RabbitMQ has no ready message, the ask is returned: it comes behind all that is on its way,
        which in a cluster another node than the queue's leader sends.
        """
        if not ask.is_last and not ask.is_returning:
            ask.is_returning = True
            self._last.start(self._put_last(ask), f"last ask of {self.resource}")

    async def _put_last(self, ask: Ask) -> None:
        channel = ask.delivery.channel
        try:
            is_empty = await self._has_none_ready(channel)
        except BrokerError as error:  # the channel has ended: the ask comes again
            log.info("ownership.uncounted queue=%s error=%s", self.resource, error)
            return
        if is_empty and ask in self._asks:
            self._asks.remove(ask)
            self._coming.add((ask.reply_to, ask.correlation_id))
            channel.nack(ask.delivery.tag)
            reach("engine.deferred.put_last", channel)

    def keep_token(self) -> None:
        """Put an ownership token into the queue, unless this process holds one."""
        if self._token is None:
            self._putting.start(self._put_token(), "ownership token")

    def serve(self) -> None:
        """Answer the waiting asks that can be answered, in order."""
        for ask in list(self._asks):
            try:
                reply = self._owned.reply_to(ask)
            except ValueError as error:
                self._asks.remove(ask)
                self._owned.refuse(ask.delivery, str(error))
                continue
            if reply is not None:
                self._asks.remove(ask)
                self._answer(ask, reply)

    def _on_delivery(self, delivery: Delivery) -> None:
        if delivery.channel is not self.channel:
            return  # this process has left: RabbitMQ takes the message back
        try:
            properties = Properties.decode(delivery.properties)
            table = properties.headers or _NO_HEADERS
            kind = python_value(table.get(headers.KIND, _ABSENT))
            if kind == self._kind:
                reply_to, number = properties.reply_to or "", properties.correlation_id or ""
                self.asked_s = asyncio.get_running_loop().time()
                is_last = (reply_to, number) in self._coming
                self._coming.discard((reply_to, number))
                self._asks.append(Ask(delivery, reply_to, number, is_last))
            elif kind == TOKEN:
                earlier, self._token = self._token, delivery.tag
                if earlier is not None:
                    ack(delivery.channel, earlier, self._point)
            else:
                self._owned.arrived(delivery, kind, table)
        except ValueError as error:
            self._owned.refuse(delivery, str(error))
        if self._asks:
            self.serve()
        if not self._is_owner:
            self._is_owner = True
            self._owned.became_owner()

    def _answer(self, ask: Ask, reply: bytes) -> None:
        try:
            self._sender.answer(ask.reply_to, ask.correlation_id, reply)
        except (BrokerError, ServiceBusError) as error:  # the asker tries again
            log.warning("ownership.unanswered queue=%s error=%s", self.resource, error)
        ack(ask.delivery.channel, ask.delivery.tag, self._point)

    async def _put_token(self) -> None:
        try:
            await self._sender.publish("", self.resource, token_properties(), b"")
        except (BrokerError, ServiceBusError) as error:  # the next owner's first ask tells it
            log.info("ownership.no_token queue=%s error=%s", self.resource, error)

    def _on_closed(self, channel: Channel, error: BrokerError) -> None:
        if channel is self.channel:
            self._release()
            self._owned.lost(channel, error)

    def _release(self) -> Channel | None:
        channel, self.channel = self.channel, None
        self._is_owner = False
        self._token = None
        self._asks.clear()
        self._coming.clear()
        if channel is not None:
            channel.on_closed = None
        return channel


def ack(channel: Channel, tag: int, point: str) -> None:
    """Ack a message of an ownership queue; `point` is the failpoint behind the ack."""
    channel.ack(tag)
    reach(point, channel)
