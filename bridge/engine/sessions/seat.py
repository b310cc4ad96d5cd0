"""The queue of an entity's session states: who consumes it holds all of the entity's sessions.

RabbitMQ names one bridge (single active consumer), and another when that one is gone. A bridge asks
for the holder through the same queue: so the ask comes to whoever holds it, behind all states.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from bridge.broker import failpoint
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.engine.clock import now_ms
from bridge.engine.receiving.intake import Intake
from bridge.engine.sending.sender import Sender
from bridge.machine.sessions.states import States
from bridge.model.errors import ServiceBusError
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Properties, Table, long, python_value, text
from bridge.wire.reply import encode_found

PREFETCH_MAX = 65_535

WHERE = "where"
STATE = "session-state"
TOKEN = "session-holder"
"""`headers.KIND` of an ask for the holder, of a state, and of what comes to each next holder at
once: RabbitMQ tells nobody that he is the active consumer."""

ASK_HEADERS: Table = {headers.KIND: text(WHERE)}

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Ask:
    channel: Channel
    tag: int
    reply_to: str
    correlation_id: str


class Seat:
    """This process as a consumer of the queue: standing by, or the active one.

    Args:
        path: the entity's.
        instance: returns the name under which this process is asked.
        on_active: called once when something has come: this process is to hold the entity.
        on_lost: called once when that, or the hope for it, has ended.
        on_stray: called with what is no state and no ask; it is to be settled there.

    Attributes:
        resource: the queue's name.
        states: what is stored with sessions.
    """

    def __init__(
        self,
        path: str,
        *,
        intake: Intake,
        sender: Sender,
        instance: Callable[[], bytes],
        on_active: Callable[[], None],
        on_lost: Callable[[BrokerError], None],
        on_stray: Callable[[Delivery], None],
    ) -> None:
        self.resource = names.sessions_queue(path)
        self.states = States()
        self._path = path
        self._intake = intake
        self._sender = sender
        self._instance = instance
        self._on_active = on_active
        self._on_lost = on_lost
        self._on_stray = on_stray
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._asks: list[_Ask] = []
        self._token: int | None = None
        self._telling: asyncio.Task[None] | None = None
        self._is_active = False
        self._is_ready = False

    def __repr__(self) -> str:
        return f"Seat({self.resource!r}, is_active={self._is_active}, {self.states!r})"

    async def take(self) -> None:
        """Stand by, unless that is so.

        Raises:
            BrokerError: RabbitMQ does not let it.
        """
        async with self._opening:
            if self._channel is not None:
                return
            channel = await self._intake.route(names.active_queue(self._path)).channel()
            await channel.consumers.qos(PREFETCH_MAX)
            self._channel = channel
            try:
                await channel.consumers.consume(
                    self.resource, self._on_delivery, on_cancel=lambda tag: channel.abandon()
                )
            except BrokerError:
                self._channel = None
                self._forget()
                raise
            channel.on_closed = self._on_closed
            if channel.close_reason is not None:
                self._on_closed(channel.close_reason)

    def leave(self) -> None:
        """Stand by no more."""
        channel, self._channel = self._channel, None
        self._forget()
        if channel is not None and channel.close_reason is None:
            channel.on_closed = None
            channel.abandon()

    def ready(self) -> None:
        """This process holds the entity: whoever asks is told so."""
        self._is_ready = True
        if self._token is None:
            self._telling = asyncio.get_running_loop().create_task(self._put_token())
        asks, self._asks = self._asks, []
        for ask in asks:
            self._answer(ask)

    async def store(self, session_id: str, state: bytes | None) -> None:
        """Store a state, or clear it; returns when a crash can no longer undo it.

        Raises:
            ServerBusy, BrokerError: nothing has changed, for all that is known.
        """
        if state is None:
            await self._drop(self.states.clear(session_id))
            return
        updated_ms = self.states.next_ms(session_id, now_ms())
        properties = Properties(
            headers={
                headers.KIND: text(STATE),
                headers.SESSION_ID: text(session_id),
                headers.ENQUEUED_TIME: long(updated_ms),
            },
            delivery_mode=2,
        )
        await self._sender.publish("", self.resource, properties.encode(), state)
        await self._drop(self.states.stored(session_id, updated_ms, state))

    async def _put_token(self) -> None:
        properties = Properties(headers={headers.KIND: text(TOKEN)}, delivery_mode=2)
        try:
            await self._sender.publish("", self.resource, properties.encode(), b"")
        except (BrokerError, ServiceBusError) as error:  # the next holder hears of it when asked
            log.info("session.untold queue=%s error=%s", self.resource, error)

    async def _drop(self, tag: int | None) -> None:
        channel = self._channel
        if tag is None or channel is None:
            return
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_written(error: BrokerError | None) -> None:
            if written.done():
                return
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        self._ack(channel, tag)
        channel.when_written(on_written)
        await written

    def _on_delivery(self, delivery: Delivery) -> None:
        try:
            properties = Properties.decode(delivery.properties)
        except ValueError:
            properties = Properties()
        table = properties.headers or {}
        kind = python_value(table.get(headers.KIND, ("V", None)))
        if kind == WHERE:
            reply_to, number = properties.reply_to or "", properties.correlation_id or ""
            self._on_ask(_Ask(delivery.channel, delivery.tag, reply_to, number))
        elif kind == TOKEN:
            earlier, self._token = self._token, delivery.tag
            if earlier is not None:
                self._ack(delivery.channel, earlier)
        elif kind == STATE:
            self._on_state(delivery, table)
        else:
            self._on_stray(delivery)
        if not self._is_active:
            self._is_active = True
            self._on_active()

    def _on_state(self, delivery: Delivery, table: Table) -> None:
        session_id = python_value(table.get(headers.SESSION_ID, ("V", None)))
        updated_ms = python_value(table.get(headers.ENQUEUED_TIME, ("V", None)))
        earlier: int | None = delivery.tag
        if isinstance(session_id, str) and isinstance(updated_ms, int):
            earlier = self.states.arrived(session_id, updated_ms, delivery.body, delivery.tag)
        if earlier is not None:
            self._ack(delivery.channel, earlier)

    def _on_ask(self, ask: _Ask) -> None:
        if self._is_ready:
            self._answer(ask)
        else:
            self._asks.append(ask)

    def _answer(self, ask: _Ask) -> None:
        try:
            reply = encode_found(self._instance())
            self._sender.answer(ask.reply_to, ask.correlation_id, reply)
        except Exception as error:  # whoever asks asks again
            log.warning("session.unanswered queue=%s error=%s", self.resource, error)
        self._ack(ask.channel, ask.tag)

    def _ack(self, channel: Channel, tag: int) -> None:
        channel.consumers.ack(tag)
        if failpoint.IS_ARMED:
            channel.flush()
            failpoint.reach("engine.session.acked")

    def _on_closed(self, error: BrokerError) -> None:
        self._channel = None
        self._forget()
        self._on_lost(error)

    def _forget(self) -> None:
        self._is_active = self._is_ready = False
        self._token = None
        self._asks.clear()
        self.states.lose()
