"""What the engine publishes, on a connection of its own.

RabbitMQ stops reading from a connection that publishes while it has an alarm, so acks and rejects
never go this way: settling goes on when sending is refused. Questions to other processes (the owner
of an inbox, the holder of a lock) are answered by direct reply-to.
"""

from __future__ import annotations

import asyncio
import itertools
import logging

from bridge.broker import failpoint
from bridge.broker.channel import Channel
from bridge.broker.connection import Connection
from bridge.broker.delivery import Delivery
from bridge.broker.endpoint import Endpoint
from bridge.broker.errors import BrokerError, ConnectionLost, Unroutable
from bridge.broker.handover import HandOver
from bridge.broker.reconnect import keep_connected
from bridge.engine import texts
from bridge.model.errors import OperationTimeout, ServerBusy
from bridge.wire.basic import Properties, Table
from bridge.wire.headers import DIRECT_REPLY_TO

REPLY_TIMEOUT_S = 30.0
"""How long another process may take; a sequencer that takes over an inbox needs a few seconds."""

BLOCKED_GRACE_S = 2.0
"""What RabbitMQ had read before it raised its alarm is confirmed within this time."""

_CONFIRM_TIMEOUT_S = 20.0

log = logging.getLogger(__name__)


class Sender:
    """The publishing connection.

    Attributes:
        blocked: RabbitMQ's words while it has an alarm, else `None`.
        lost: why there is no connection, else `None`.
    """

    def __init__(self, endpoint: Endpoint, *, name: str) -> None:
        self._endpoint = endpoint
        self._name = name
        self._channel: Channel | None = None
        self._handover: HandOver | None = None
        self._unconfirmed: set[asyncio.Future[None]] = set()
        self._questions: dict[str, asyncio.Future[Delivery]] = {}
        self._question_numbers = itertools.count(1)
        self.blocked: str | None = None
        self.lost: BrokerError | None = ConnectionLost(text="not connected yet")
        self.ready = asyncio.Event()

    def __repr__(self) -> str:
        return f"Sender(blocked={self.blocked!r}, lost={self.lost!r})"

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        await keep_connected(self._endpoint, self._work, name=self._name, on_state=self._on_state)

    @property
    def handover(self) -> HandOver:
        """What moves messages.

        Raises:
            ServerBusy: RabbitMQ takes nothing now.
        """
        self._check()
        assert self._handover is not None
        return self._handover

    async def publish(self, exchange: str, key: str, properties: bytes, body: bytes) -> None:
        """Publish and wait for the confirm.

        Raises:
            ServerBusy: RabbitMQ takes nothing now; after a loss of the connection the message may
                have arrived all the same.
            Unroutable: no queue took it.
        """
        self._check()
        assert self._channel is not None
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: BrokerError | None) -> None:
            if confirmed.done():
                return
            if error is None:
                confirmed.set_result(None)
            else:
                confirmed.set_exception(error)

        try:
            self._channel.publish(exchange, key, properties, body, settled=settled)
            self._pass("engine.send.published")
            self._unconfirmed.add(confirmed)
            async with asyncio.timeout(_CONFIRM_TIMEOUT_S):
                await confirmed
        except Unroutable:
            raise
        except TimeoutError as timeout:
            text = "RabbitMQ has not confirmed the message in time."
            raise OperationTimeout(text) from timeout
        except BrokerError as error:
            raise _busy(str(error)) from error
        finally:
            self._unconfirmed.discard(confirmed)
        failpoint.reach("engine.send.confirmed")

    async def ask(
        self,
        exchange: str,
        key: str,
        headers: Table,
        body: bytes,
        *,
        persistent: bool,
        can_expire: bool = False,
    ) -> bytes:
        """Publish a question and return the body of its answer.

        Args:
            can_expire: a question that nobody has read when nobody waits any more is dropped.

        Raises:
            ServerBusy, OperationTimeout, Unroutable: there is no answer.
        """
        number = str(next(self._question_numbers))
        answer: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        properties = Properties(
            headers=headers,
            delivery_mode=2 if persistent else 1,
            reply_to=DIRECT_REPLY_TO,
            correlation_id=number,
            expiration=str(int(REPLY_TIMEOUT_S * 1000)) if can_expire else None,
        )
        try:
            await self.publish(exchange, key, properties.encode(), body)
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                return (await answer).body
        except TimeoutError as error:
            text = "The operation did not complete within the allocated time."
            raise OperationTimeout(text) from error
        finally:
            del self._questions[number]

    def tell(self, exchange: str, properties: bytes, body: bytes) -> None:
        """Publish something that may be lost.

        Raises:
            ServerBusy: RabbitMQ takes nothing now.
        """
        self._check()
        assert self._channel is not None
        self._channel.publish(exchange, "", properties, body, mandatory=False)
        self._pass("engine.tell.published")

    def answer(self, reply_to: str, correlation_id: str, body: bytes) -> None:
        """Answer another process; it asks again when this is lost."""
        if self._channel is not None and self.blocked is None:
            properties = Properties(correlation_id=correlation_id).encode()
            self._channel.publish("", reply_to, properties, body, mandatory=False)
            self._pass("engine.tell.published")

    async def with_channel(self, connection: Connection) -> None:
        """Serve on one channel until it closes."""
        channel = await connection.channel()
        await channel.confirm_select()
        await channel.consume(DIRECT_REPLY_TO, self._on_reply, no_ack=True)
        self._channel, self._handover = channel, HandOver(channel)
        self.lost = None
        self.ready.set()
        try:
            await channel.closed.wait()
        finally:
            self._channel = self._handover = None
            self.lost = channel.close_reason or ConnectionLost(text="closing")
            self.ready.clear()
            for question in self._questions.values():
                if not question.done():
                    question.set_exception(_busy("the channel was lost"))
                    question.exception()

    async def _work(self, connection: Connection) -> None:
        connection.on_blocked = self._on_blocked
        while connection.close_reason is None:
            await self.with_channel(connection)
        raise connection.close_reason.again()

    def _pass(self, point: str) -> None:
        if failpoint.IS_ARMED and self._channel is not None:
            self._channel.flush()
            failpoint.reach(point)

    def _check(self) -> None:
        if self.blocked is not None:
            raise _busy(f"RabbitMQ has an alarm: {self.blocked}")
        if self._channel is None:
            raise _busy(f"no connection to RabbitMQ: {self.lost}")

    def _on_state(self, connection: Connection | None, error: BrokerError | None) -> None:
        if connection is None:
            self.lost = error
            self.blocked = None

    def _on_blocked(self, is_blocked: bool, reason: str) -> None:
        self.blocked = (reason or "no reason given") if is_blocked else None
        if is_blocked:
            waiting = list(self._unconfirmed)
            asyncio.get_running_loop().call_later(BLOCKED_GRACE_S, self._give_up, waiting)

    def _give_up(self, waiting: list[asyncio.Future[None]]) -> None:
        if self.blocked is not None:
            for confirmed in waiting:
                if not confirmed.done():
                    confirmed.set_exception(_busy(f"RabbitMQ has an alarm: {self.blocked}"))

    def _on_reply(self, delivery: Delivery) -> None:
        try:
            number = Properties.decode(delivery.properties).correlation_id or ""
        except ValueError as error:
            log.error("reply.malformed error=%r", error)
            return
        question = self._questions.get(number)
        if question is not None and not question.done():
            question.set_result(delivery)


def _busy(reason: str) -> ServerBusy:
    return ServerBusy(f"{texts.SERVER_BUSY} ({reason})")
