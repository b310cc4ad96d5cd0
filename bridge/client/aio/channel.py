"""An aio-pika channel for the core: `core.wire.Channel`.

One task carries out the requests in order; each publish waits for its confirm in another task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import AMQPError, DeliveryError, PublishError
from pamqp import commands

from bridge.client.aio.raw import RawProperties, raw_of, with_id
from bridge.client.core.confirms import UNCONFIRMED, lost
from bridge.client.core.wire import Confirmed, Delivery, RefusedPublish, Unroutable, Unsettled
from bridge.client.exceptions import ServiceBusConnectionError, ServiceBusError

_Call = Callable[[], Awaitable[None]]

_GONE = (AMQPError, ConnectionError, RuntimeError, ValueError, asyncio.CancelledError)
"""aio-pika's exceptions on a channel that has ended."""


class AioChannel(Unsettled):
    """One channel; requests wait until RabbitMQ has opened the channel.

    Args:
        on_closed: called when the channel ends without `close`.
    """

    def __init__(
        self,
        connection: AbstractConnection,
        on_closed: Callable[[ServiceBusError], None],
        *,
        has_confirms: bool,
    ) -> None:
        self._on_closed = on_closed
        self._calls: asyncio.Queue[_Call] = asyncio.Queue()
        self._unwritten: deque[Callable[[], None]] = deque()
        self._ends: dict[str, Callable[[], None]] = {}
        self._publishing: set[asyncio.Task[None]] = set()
        self._flying: dict[str, asyncio.Event] = {}
        self._outer: AbstractChannel = connection.channel(
            publisher_confirms=has_confirms, on_return_raises=has_confirms
        )
        self._inner: Any = None
        self.is_closed = False
        self._task = asyncio.get_running_loop().create_task(self._work())

    def publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> None:
        """Publish a message, mandatory."""
        if self.is_closed:
            raise ServiceBusConnectionError("The channel is closed.")

        async def begin() -> None:
            task = asyncio.get_running_loop().create_task(
                self._publish(exchange, key, properties, body, confirmed)
            )
            self._publishing.add(task)
            task.add_done_callback(self._publishing.discard)

        self._calls.put_nowait(begin)

    def consume(
        self,
        queue: str,
        tag: str,
        prefetch: int,
        on_delivery: Callable[[Delivery], None],
        on_ended: Callable[[], None],
        *,
        no_ack: bool = False,
    ) -> None:
        """Begin to consume."""
        self.window = tag

        async def on_message(message: Any) -> None:
            self.outstanding += not no_ack
            on_delivery(_delivery(message))

        async def begin() -> None:
            self._ends[tag] = on_ended
            if prefetch:
                await self._inner.basic_qos(prefetch_count=prefetch)
            await self._inner.basic_consume(queue, on_message, no_ack=no_ack, consumer_tag=tag)

        self._calls.put_nowait(begin)

    def cancel(self, tag: str) -> None:
        """Cancel a consumer."""

        async def end() -> None:
            if tag in self._ends:
                await self._inner.basic_cancel(tag)
                # Messages that came before the answer are in tasks that have not begun.
                asyncio.get_running_loop().call_soon(self._end, tag)

        self._calls.put_nowait(end)

    def get(
        self,
        queue: str,
        on_got: Callable[[Delivery | None], None],
        on_silent: Callable[[], None],
    ) -> None:
        """Get one message, or none; the wait has no end."""

        async def get() -> None:
            message = await self._inner.basic_get(queue)
            is_empty = isinstance(message.delivery, commands.Basic.GetEmpty)
            self.outstanding += not is_empty
            on_got(None if is_empty else _delivery(message))

        self._calls.put_nowait(get)

    def look(
        self, queue: str, on_seen: Callable[[int, int], None], on_silent: Callable[[], None]
    ) -> None:
        """Ask for the queue's numbers of ready messages and of consumers."""

        async def look() -> None:
            state = await self._inner.queue_declare(queue, passive=True)
            on_seen(state.message_count or 0, state.consumer_count or 0)

        self._calls.put_nowait(look)

    def ack(self, tag: int) -> None:
        """Ack a message."""
        self.settled()
        self._calls.put_nowait(lambda: self._inner.basic_ack(tag, wait=False))

    def written(self, call: Callable[[], None]) -> None:
        """Call `call` when all writes of this channel are with the kernel, or lost."""
        self._unwritten.append(call)
        if self.is_closed:
            self._tell_written()
        else:
            self._calls.put_nowait(self._on_written)

    def reject(self, tag: int) -> None:
        """Return a message, counted."""
        self.settled()
        self._calls.put_nowait(lambda: self._inner.basic_reject(tag, requeue=True, wait=False))

    def nack(self, tag: int) -> None:
        """Return a message, counted before 4.3 only."""
        self.settled()
        self._calls.put_nowait(lambda: self._inner.basic_nack(tag, requeue=True, wait=False))

    def barrier(self, on_passed: Callable[[], None]) -> None:
        """Call `on_passed` when RabbitMQ has carried out all earlier requests of this channel."""

        async def pass_on() -> None:
            await self._inner.basic_qos()
            on_passed()

        self._calls.put_nowait(pass_on)

    def close(self) -> None:
        """Close the channel after the earlier requests."""
        if not self.is_closed:
            self.is_closed = True
            self._calls.put_nowait(self._outer.close)

    def ended(self, call: Callable[[AioChannel], object]) -> None:
        """Call `call` when the channel's number is free."""
        self._task.add_done_callback(lambda task: call(self))

    async def closed(self) -> None:
        """Wait until the channel is closed."""
        await asyncio.wait((self._task,), timeout=1.0)
        self._task.cancel()

    def lose(self, error: ServiceBusError) -> None:
        """End the channel: the channel or its connection is lost."""
        for task in list(self._publishing):
            task.cancel(str(error))
        self._tell_written()
        if not self.is_closed:
            self.is_closed = True
            self._task.cancel()
            self._on_closed(error)

    async def _on_written(self) -> None:
        self._unwritten.popleft()()

    def _tell_written(self) -> None:
        while self._unwritten:
            self._unwritten.popleft()()

    async def _work(self) -> None:
        try:
            await self._outer.initialize()
            self._inner = await self._outer.get_underlay_channel()
            self._inner.on_consumer_cancel_callbacks.add(self._on_cancelled)
            self._outer.close_callbacks.add(self._on_close)
            while not (self.is_closed and self._calls.empty()):
                await (await self._calls.get())()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.lose(ServiceBusConnectionError(f"The channel was lost: {error!r}"))

    async def _publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> None:
        raw, message_id = with_id(properties, uuid4().hex)
        # aiormq finds a returned message by the message id alone.
        while (before := self._flying.get(message_id)) is not None:
            await before.wait()
        ended = self._flying[message_id] = asyncio.Event()
        try:
            confirmed(await self._outcome(exchange, key, RawProperties(raw, message_id), body))
        finally:
            del self._flying[message_id]
            ended.set()

    async def _outcome(
        self, exchange: str, key: str, properties: RawProperties, body: bytes
    ) -> Exception | None:
        try:
            await self._inner.basic_publish(
                body, exchange=exchange, routing_key=key, properties=properties, mandatory=True
            )
        except PublishError:
            return Unroutable("no queue took the message")
        except DeliveryError:
            return RefusedPublish("a queue is full, or has no leader")
        except _GONE as error:
            return lost(exchange, UNCONFIRMED, str(error) or repr(error))
        return None

    def _end(self, tag: str) -> None:
        on_ended = self._ends.pop(tag, None)
        if on_ended is not None and not self.is_closed:
            on_ended()

    def _on_cancelled(self, frame: Any) -> None:
        self._end(frame.consumer_tag)

    def _on_close(self, sender: Any, error: BaseException | None = None) -> None:
        self.lose(ServiceBusConnectionError(f"RabbitMQ has closed the channel: {error}"))


def _delivery(message: aiormq.abc.DeliveredMessage) -> Delivery:
    method: Any = message.delivery
    return Delivery(
        method.delivery_tag,
        method.redelivered,
        method.exchange,
        raw_of(message.header),
        message.body,
        getattr(method, "message_count", 0) or 0,
    )
