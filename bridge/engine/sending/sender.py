"""The publishing connection of the engine, with a channel for each exchange or queue.

While RabbitMQ has an alarm, it reads nothing from a connection that publishes. So acks and rejects
use other connections: settling goes on when sending is refused. Questions to other processes (the
owner of an inbox, the holder of a lock) are answered by direct reply-to.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import zlib
from collections.abc import Callable, Sequence
from functools import partial

from bridge.background.supervisor import Standing, Supervisor
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import (
    BrokerError,
    BrokerSilent,
    ConnectionLost,
    PublishRefused,
)
from bridge.broker.failpoint import reach
from bridge.broker.handover import Acks, Publish
from bridge.broker.outcome import Done as Outcome
from bridge.broker.outcome import resolve
from bridge.broker.reconnect import is_permanent, keep_connected
from bridge.engine.sending.answers import busy, error_of, refusal, unknown
from bridge.engine.sending.awaited_publish import AwaitedPublish, Told
from bridge.engine.sending.publisher import TargetPublisher
from bridge.engine.sending.silences import Silences
from bridge.wire.basic import Properties, Table
from bridge.wire.headers import DIRECT_REPLY_TO
from bridge.wire.reply import Done, Refusal, decode_reply

REPLY_TIMEOUT_S = 30.0
"""The longest wait for another process; a sequencer's takeover of an inbox needs a few seconds."""

CONFIRM_WAIT_S = 20.0
"""The longest wait for a confirm, also while RabbitMQ has an alarm; then the outcome is unknown. A
client waits 60 s for an answer, and a lock lasts 30 s or longer: a client whose sends wait may have
to be read from before."""

TARGETS_MAX = 900
SHARED_MAX = 64
"""The most channels of single targets, and those that others share; a connection has 2,047."""

IDLE_S = 60.0
"""The time after which an unused channel is closed, and a silent target without publishes is
forgotten."""

_ANSWERS = "answers"

_TRANSIENT = Properties(delivery_mode=1).encode()

log = logging.getLogger(__name__)


def _nothing() -> None:
    pass


class Sender:
    """The publishing connection.

    Args:
        supervisor: keeps the connection.

    Attributes:
        blocked: RabbitMQ's reason while it has an alarm, else `None`.
        on_blocked: called when `blocked` has changed.
        lost: the reason why there is no connection, else `None`.
    """

    def __init__(
        self, endpoint: Endpoint, *, name: str, supervisor: Supervisor | None = None
    ) -> None:
        self._endpoint = endpoint
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._publishers: dict[str, TargetPublisher] = {}
        self._silent = Silences(IDLE_S)
        self._questions: dict[str, tuple[asyncio.Future[Delivery], Channel]] = {}
        self._question_numbers = itertools.count(1)
        self.blocked: str | None = None
        self.on_blocked: Callable[[], None] = _nothing
        self._supervisor = supervisor or Supervisor()
        self._standing: Standing | None = None
        self._has_been_up = False
        self.lost: BaseException | None = ConnectionLost(text="not connected yet")
        self.ready = asyncio.Event()

    def __repr__(self) -> str:
        return f"Sender(blocked={self.blocked!r}, lost={self.lost!r})"

    def start(self) -> None:
        """Open the connection, and keep it until `close`.

        The process ends when RabbitMQ refuses the first one for good.
        """
        self._standing = keep_connected(
            self._supervisor,
            self._endpoint,
            self._work,
            kind="publishing",
            name=self._name,
            on_lost=self._on_lost,
            is_final=lambda error: not self._has_been_up and is_permanent(error),
        )

    async def close(self) -> None:
        """Close the connection."""
        if self._standing is not None:
            self._standing.task.cancel()
            await asyncio.gather(self._standing.task, return_exceptions=True)

    async def publish(self, exchange: str, key: str, properties: bytes, body: bytes) -> None:
        """Publish and wait for the confirm.

        Raises:
            ServerBusy: RabbitMQ takes no messages now; this one is not stored.
            OperationTimeout: no confirm has come, or none will: the message may be stored.
            MessageSizeExceeded: no frame holds its properties.
            Unroutable: no queue took it.
        """
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        self.begin_publish(exchange, key, properties, body, partial(resolve, confirmed))
        await confirmed

    def begin_publish(
        self,
        exchange: str,
        key: str,
        properties: bytes,
        body: bytes,
        told: Told,
        since_s: float | None = None,
    ) -> None:
        """Publish; `told` is called once, later, with `None` or with what `publish` raises.

        Args:
            since_s: when the wait for the outcome has begun (the loop's clock); by default now.

        Raises:
            ServerBusy, MessageSizeExceeded: nothing was published, and nobody is told.
        """
        target = exchange or key
        try:
            publisher = self._publisher(target)
            awaited = AwaitedPublish(publisher, told, partial(self._note_outcome, exchange, target))
            publisher.publish(exchange, key, properties, body, awaited.settled)
        except BrokerError as error:  # nothing was written
            raise refusal(error) from error
        awaited.timer = self._loop.call_at(
            (publisher.used_s if since_s is None else since_s) + CONFIRM_WAIT_S,
            lambda: awaited.give_up(self._unconfirmed),
        )
        reach("engine.send.published", publisher.channel)

    def _note_outcome(self, exchange: str, target: str, error: BrokerError | None) -> None:
        """Note what an outcome says of an exchange, or of a queue behind the default exchange."""
        # Queues behind an exchange have no limit: one that refuses is dead.
        if target in self._silent or (exchange and isinstance(error, PublishRefused)):
            self._silent.note_outcome(target, error)

    @property
    def _unconfirmed(self) -> str:
        """Why a publish is not confirmed in time."""
        if self.blocked is not None:
            return f"RabbitMQ has an alarm: {self.blocked}"
        return "RabbitMQ has not confirmed in time"

    def hand_over(
        self, publishes: Sequence[Publish], *, acks: Acks, done: Outcome, failpoint: str
    ) -> None:
        """Publish, ack after all confirms, then call `done`; see `HandOver.submit`.

        All publishes use the channel of the first one's target.

        Raises:
            ServerBusy: RabbitMQ takes no messages now.
            BrokerError: nothing was published.
        """
        target = publishes[0].exchange or publishes[0].routing_key

        def settled(error: BrokerError | None) -> None:
            if target in self._silent:
                self._silent.note_outcome(target, error)
            done(error)

        self._publisher(target).hand_over(publishes, acks, settled, failpoint)

    async def move(self, publishes: Sequence[Publish], *, acks: Acks, failpoint: str) -> None:
        """Hand a message over and wait until it is done; raises the errors of `hand_over`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.hand_over(publishes, acks=acks, done=partial(resolve, future), failpoint=failpoint)
        await future

    async def ask(
        self,
        exchange: str,
        key: str,
        headers: Table,
        body: bytes,
        *,
        persistent: bool,
        can_expire: bool = False,
    ) -> Done:
        """Publish a question and return its answer.

        Args:
            can_expire: RabbitMQ drops an unread question after `REPLY_TIMEOUT_S`.

        Raises:
            ServerBusy, Unroutable: the question was not asked.
            OperationTimeout: there is no answer; what was asked may be done, or be done yet.
            ServiceBusError: the answer is this error.
        """
        try:
            publisher = self._publisher(exchange or key)
            publisher.hear_replies()
        except BrokerError as error:
            raise busy(str(error)) from error
        number = str(next(self._question_numbers))
        answer: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer, publisher.channel
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
                reply = decode_reply((await answer).body)
        except TimeoutError as error:
            raise unknown("no answer has come in time") from error
        finally:
            del self._questions[number]
        if isinstance(reply, Refusal):
            raise error_of(reply)
        return reply

    def flush(self) -> None:
        """Write to RabbitMQ now what was published in this turn of the loop."""
        if self._connection is not None:
            self._connection.flush()

    def post(self, queue: str, body: bytes, done: Outcome) -> None:
        """Publish to a queue of another process; `done` is called with the outcome.

        Raises:
            ServerBusy: RabbitMQ takes no messages now.
            BrokerError: nothing was published.
        """
        publisher = self._publisher(queue)
        publisher.publish("", queue, _TRANSIENT, body, done)
        reach("engine.tell.published", publisher.channel)

    def tell(self, exchange: str, properties: bytes, body: bytes) -> None:
        """Publish a message that may be lost, without waiting for its confirm.

        Raises:
            ServerBusy: RabbitMQ takes no messages now.
        """
        publisher = self._publisher(exchange)
        publisher.publish(exchange, "", properties, body, mandatory=False)
        reach("engine.tell.published", publisher.channel)

    def answer(self, reply_to: str, correlation_id: str, body: bytes) -> bool:
        """Answer another process, which asks again when the answer is lost.

        Answers arrive in the order of the calls. Returns whether RabbitMQ takes messages now.

        Raises:
            BrokerError: no answer was published.
        """
        if self._connection is None or self.blocked is not None:
            return False
        properties = Properties(correlation_id=correlation_id).encode()
        publisher = self._publisher(_ANSWERS)
        publisher.publish("", reply_to, properties, body, mandatory=False)
        reach("engine.tell.published", publisher.channel)
        return True

    @property
    def silent(self) -> dict[str, int]:
        """By exchange or queue without confirms: the time since when (UTC ms)."""
        for target, publisher in self._publishers.items():
            if publisher.silent_s:
                self._silent.note(target, publisher.silent_s)
        return self._silent.since_ms

    def check(self) -> Connection:
        """Return the connection, while RabbitMQ takes messages.

        Raises:
            ServerBusy: RabbitMQ takes no messages now.
        """
        if self.blocked is not None:
            raise busy(f"RabbitMQ has an alarm: {self.blocked}")
        if self._connection is None:
            raise busy(f"no connection to RabbitMQ: {self.lost}")
        return self._connection

    def _publisher(self, target: str) -> TargetPublisher:
        """Return a target's publisher; above `TARGETS_MAX` targets, some share one."""
        connection = self.check()
        publisher = self._publishers.get(target)
        if publisher is not None and publisher.channel.close_reason is None:
            return publisher
        if len(self._publishers) >= TARGETS_MAX:
            self._retire()
            if len(self._publishers) >= TARGETS_MAX + SHARED_MAX:
                raise busy("every channel for publishing is in use")
            if len(self._publishers) >= TARGETS_MAX:
                shared = f"{_ANSWERS}{zlib.crc32(target.encode()) % SHARED_MAX}"
                if target != shared:
                    return self._publisher(shared)
        publisher = TargetPublisher(
            connection, target, on_reply=self._on_reply, clock=self._loop.time
        )
        publisher.channel.on_closed = partial(self._on_channel_closed, target, publisher)
        self._publishers[target] = publisher
        return publisher

    def _retire(self) -> None:
        """Close the channels that were not used for `IDLE_S`."""
        before_s = self._loop.time() - IDLE_S
        asking = {channel for _, channel in self._questions.values()}
        for target, publisher in list(self._publishers.items()):
            is_over = publisher.is_idle and publisher.used_s < before_s
            if is_over and publisher.channel not in asking:
                del self._publishers[target]
                publisher.channel.on_closed = None
                publisher.channel.abandon()

    def _on_channel_closed(
        self, target: str, publisher: TargetPublisher, error: BrokerError
    ) -> None:
        if self._publishers.get(target) is publisher:
            del self._publishers[target]
        if isinstance(error, BrokerSilent):
            self._silent.note(target, publisher.silent_s)
            log.warning("queue.silent name=%s error=%s", target, error)
        publisher.lose(error)
        for question, channel in self._questions.values():
            if channel is publisher.channel and not question.done():
                question.set_exception(unknown(error))
                question.exception()

    async def _work(self, connection: Connection) -> None:
        connection.on_blocked = self._on_blocked
        self._connection = connection
        self._has_been_up = True
        self.lost = None
        self.ready.set()
        try:
            while True:
                await asyncio.sleep(IDLE_S)
                self._retire()
        finally:
            self._connection = None
            self.ready.clear()

    def _on_lost(self, error: BaseException) -> None:
        self.lost = error
        if self.blocked is not None:
            self.blocked = None
            self.on_blocked()

    def _on_blocked(self, is_blocked: bool, reason: str) -> None:
        self.blocked = (reason or "no reason given") if is_blocked else None
        if not is_blocked:
            for publisher in self._publishers.values():
                publisher.unblocked()
        self.on_blocked()

    def _on_reply(self, delivery: Delivery) -> None:
        try:
            number = Properties.decode(delivery.properties).correlation_id or ""
        except ValueError as error:
            log.error("reply.malformed error=%r", error)
            return
        question, _ = self._questions.get(number, (None, None))
        if question is not None and not question.done():
            question.set_result(delivery)
