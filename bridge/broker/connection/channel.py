"""A channel: it carries all work on RabbitMQ (declare, consume, publish).

Its parts are its calls, declarations, consumers and publisher. This module dispatches frames to
these parts, assembles messages from their frames, and closes the channel. When a channel closes,
for whatever reason, every future of the channel fails with that reason, and `on_closed` is called.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

from bridge.broker.connection.calls import RPC_TIMEOUT_S, Calls, PendingCall
from bridge.broker.connection.consumers import ChannelConsumers
from bridge.broker.connection.declarations import Declarations
from bridge.broker.connection.delivery import Delivery
from bridge.broker.connection.publisher import CONFIRM_TIMEOUT_S, ChannelPublisher
from bridge.broker.connection.transport import Transport
from bridge.broker.errors import (
    BrokerError,
    BrokerSilent,
    ChannelClosed,
    ConnectionLost,
    channel_closed,
)
from bridge.wire import amqp091 as wire

_METHOD_ID = struct.Struct(">I")
_CONTENT_SIZE = struct.Struct(">Q")
_CONFIRM = struct.Struct(">QB")

_CLOSED_BY_US = 200

CLOSE_TIMEOUT_S = 10.0
"""How long RabbitMQ may take to close a channel. In one of 16 runs of leader kills a
channel was not closed within 30 s."""

OnWritten = Callable[[BrokerError | None], None]

BODY_BYTES_MAX = 512 << 20
"""The largest body that any RabbitMQ can be configured to take (max_message_size, 512 MiB)."""


class Channel:
    """A channel of a connection; `Connection.channel` makes one.

    For a short exchange a channel serves as a context manager. At its end the channel is closed, by
    `abandon`; in order, it goes to its keeper when it has one.

    Attributes:
        number: the channel's number on the connection.
        owner: the queue or entity that the channel serves; "" when it serves none in particular.
        declarations: declares, binds and deletes.
        consumers: takes messages out of queues, and settles them.
        publisher: publishes.
        closed: set when the channel is closed.
        ack, reject, nack: those of `consumers`.
        close_reason: why the channel is closed; None while it is open.
        is_closed: whether it is closed; RabbitMQ has taken back its unsettled messages.
        on_closed: called once with the reason.
        keeper: takes the channel at the end of a short exchange, for the next one.
        is_closed_by_rabbitmq: RabbitMQ has closed it, and may still send frames of it
            (docs/rabbitmq-faults.md: frames-of-closed).
    """

    def __init__(
        self,
        transport: Transport,
        number: int,
        *,
        on_free: Callable[[Channel], None],
        timeout_s: float = RPC_TIMEOUT_S,
        confirm_timeout_s: float = CONFIRM_TIMEOUT_S,
    ) -> None:
        self.number = number
        self.owner = ""
        self._transport = transport
        self._calls = Calls(transport, number, self._give_up, timeout_s)
        self.declarations = Declarations(self._calls)
        self.consumers = ChannelConsumers(self, self._calls)
        self.ack = self.consumers.ack
        self.reject = self.consumers.reject
        self.nack = self.consumers.nack
        self.publisher = ChannelPublisher(self._calls, confirm_timeout_s)
        self.close_reason: BrokerError | None = None
        self.is_closed = False
        self.closed = asyncio.Event()
        self.on_closed: Callable[[BrokerError], None] | None = None
        self.keeper: Callable[[Channel], None] | None = None
        self.is_closed_by_rabbitmq = False
        self._is_live = False
        self._on_free = on_free
        self._close_timeout_s = min(timeout_s, CLOSE_TIMEOUT_S)
        self._content: tuple[int, object, PendingCall | None] | None = None
        self._properties = b""
        self._size = 0
        self._chunks: list[bytes] = []
        self._missing = 0
        self._closing: asyncio.Future[None] | None = None
        self._barrier: asyncio.Future[None] | None = None
        self._required: set[str] = set()

    def __repr__(self) -> str:
        state = "open" if self.close_reason is None else f"closed: {self.close_reason}"
        return (
            f"<Channel {self.number} [{state}, {self.publisher.unconfirmed} unconfirmed, "
            f"{self.consumers.outstanding} outstanding]>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and self.keeper is not None and self.close_reason is None:
            self.keeper(self)
        else:
            self.abandon()

    @property
    def is_blocked(self) -> bool:
        """Whether RabbitMQ has an alarm and reads nothing of the connection."""
        return self._transport.is_blocked

    @property
    def connected_s(self) -> float:
        """When the channel's connection was opened, by the loop's clock."""
        return self._transport.opened_s

    @property
    def awaits_queue(self) -> bool:
        """Whether a queue was asked something (consume, get) and has not answered yet."""
        return self._calls.awaits_queue

    def open(self) -> asyncio.Future[Any]:
        """Send channel.open; only `Connection.channel` and `channel_soon` call this."""
        return self._calls.ask(wire.CHANNEL_OPEN, "")

    def barrier(self, queues: Iterable[str] = ()) -> asyncio.Future[None]:
        """Return a future: RabbitMQ has handled all frames written until the end of this turn.

        The barrier is a channel.flow in the same packet as the turn's publishes and acks. All
        callers in one turn share one future.

        Args:
            queues: queues that must exist then; otherwise RabbitMQ closes the channel with
                NotFound. RabbitMQ looks them up in a table and asks no queue's process.
        """
        self._required.update(queues)
        if self._barrier is None:
            if self.close_reason is not None:
                raise self.close_reason.again()
            self._barrier = self._transport.loop.create_future()
            self._transport.due.append(self._write_barrier)
            self._transport.flush_soon()
        return self._barrier

    def _write_barrier(self) -> None:
        barrier, self._barrier = self._barrier, None
        required, self._required = self._required, set()
        if barrier is None:
            return
        if self.close_reason is not None:
            barrier.set_exception(self.close_reason.again())
            barrier.exception()
        else:
            for queue in required:
                self.declarations.require_queue(queue)
            self._calls.ask(wire.CHANNEL_FLOW, True, future=barrier)

    def when_written(self, told: OnWritten) -> None:
        """Call `told` once the kernel has taken all bytes that are written so far.

        That is at the end of this turn of the loop, or later when the socket would block. `told`
        gets None, or the channel's close reason when the channel has ended before.
        """
        if self.close_reason is not None:
            raise self.close_reason.again()
        self._transport.written.append(partial(self._on_written, told))
        self._transport.flush_soon()

    def _on_written(self, told: OnWritten) -> None:
        self._calls.notify(told, self.close_reason)

    def notify(self, callback: Callable[..., None], *arguments: object) -> None:
        """Call a callback; an exception in it closes the channel."""
        self._calls.notify(callback, *arguments)

    def flush(self) -> None:
        """Write the collected frames without waiting for the end of the turn."""
        self._transport.flush()

    def close(self) -> Awaitable[None]:
        """Close the channel; its unacked messages go back to their queues, in their old order.

        Waits a moment after a recent settlement, lest RabbitMQ forget it. Returns when RabbitMQ
        has answered, so that this channel has no later effect on RabbitMQ.

        Raises:
            BrokerSilent: RabbitMQ has not answered in time, and the connection has been ended. A
                channel that hangs would keep its unacked messages, and its place among the
                inbox's consumers, until RabbitMQ ends it with its connection.
        """
        return self._closed(self.consumers.linger())

    async def _closed(self, lingering: Awaitable[None]) -> None:
        await lingering
        self.abandon()
        if self._closing is None or self._closing.done():
            return
        try:
            async with asyncio.timeout(self._close_timeout_s):
                await asyncio.shield(self._closing)
        except TimeoutError:
            text = f"no answer to channel.close within {self._close_timeout_s:g} s"
            self._transport.lose(ConnectionLost(text=text))
            raise BrokerSilent(text=text) from None

    def abandon(self) -> None:
        """Close the channel without waiting for RabbitMQ's answer."""
        self._give_up(ChannelClosed(_CLOSED_BY_US, "closed by the bridge"))

    def on_method(self, raw: bytes, start: int, end: int) -> None:
        """Take a method frame."""
        method: int = _METHOD_ID.unpack_from(raw, start)[0]
        if not self._is_live:
            if self.close_reason is not None:
                self._on_method_while_closing(method)
                return
            if method not in (wire.CHANNEL_OPEN_OK, wire.CHANNEL_CLOSE):
                return  # of an earlier channel of this number
            self._is_live = True
        if self._content is not None and method != wire.CHANNEL_CLOSE:
            raise ValueError("a method where a message's content was due")
        if method == wire.BASIC_DELIVER:
            self._content = method, self.consumers.read_deliver(raw, start, end), None
        elif method in (wire.BASIC_ACK, wire.BASIC_NACK):
            number, bits = _CONFIRM.unpack_from(raw, start + 4)
            self.publisher.on_confirmed(number, bits & 1 == 1, method == wire.BASIC_ACK)
        elif method in (wire.BASIC_RETURN, wire.BASIC_GET_OK):
            question = self._calls.take(method) if method == wire.BASIC_GET_OK else None
            self._content = method, wire.read_method(raw, start, end).arguments, question
        else:
            self._on_rare_method(wire.read_method(raw, start, end))

    def _on_rare_method(self, method: wire.Method) -> None:
        arguments = method.arguments
        match method.number:
            case wire.CHANNEL_CLOSE:
                code, text = cast("tuple[int, str]", arguments[:2])
                self._answer_close()
                self.finish(channel_closed(code, text))
                self._free()
            case wire.BASIC_CANCEL:
                self.consumers.on_cancel(cast(str, arguments[0]))
            case wire.BASIC_CANCEL_OK:
                self.consumers.on_cancel_ok(cast(str, arguments[0]))
                self._calls.take(method.number).resolve(method)
            case wire.BASIC_GET_EMPTY:
                self._calls.take(method.number).resolve(None)
            case wire.CHANNEL_FLOW:
                frame = wire.method_frame(self.number, wire.CHANNEL_FLOW_OK, arguments[0])
                self._transport.write(frame)
            case _:
                self._calls.take(method.number).resolve(method)

    def _on_method_while_closing(self, method: int) -> None:
        """Ignore every method after channel.close, but channel.close and channel.close-ok."""
        if method == wire.CHANNEL_CLOSE:
            self._answer_close()
        elif method == wire.CHANNEL_CLOSE_OK:
            self._free()

    def _answer_close(self) -> None:
        self.is_closed_by_rabbitmq = True
        self._transport.write(wire.method_frame(self.number, wire.CHANNEL_CLOSE_OK))

    def on_header(self, raw: bytes, start: int, end: int) -> None:
        """Take a content header frame."""
        if not self._is_live:
            return
        if self._content is None or self._missing:
            raise ValueError("a content header that nothing announced")
        size: int = _CONTENT_SIZE.unpack_from(raw, start + 4)[0]
        if size > BODY_BYTES_MAX:
            raise ValueError(f"a message of {size} bytes")
        self._properties = raw[start + 12 : end]
        self._size = self._missing = size
        if size == 0:
            self._complete(b"")

    def on_body(self, raw: bytes, start: int, end: int) -> None:
        """Take a body frame."""
        if not self._is_live:
            return
        length = end - start
        missing = self._missing - length
        if missing < 0 or length == 0:
            raise ValueError("a body frame that is longer than the message")
        self._missing = missing
        if missing == 0 and length == self._size:
            self._complete(raw[start:end])
            return
        self._chunks.append(raw[start:end])
        if missing == 0:
            body = b"".join(self._chunks)
            self._chunks.clear()
            self._complete(body)

    def _complete(self, body: bytes) -> None:
        assert self._content is not None
        method, subject, question = self._content
        self._content = None
        if method == wire.BASIC_DELIVER:
            delivery = cast(Delivery, subject)
            delivery.properties = self._properties
            delivery.body = body
            try:
                self.consumers.receiver(delivery)
            except Exception as error:
                self._calls.blame(error)
        elif question is not None:
            tag, redelivered, exchange, key, ready = cast(
                "tuple[int, bool, str, str, int]", subject
            )
            message = (exchange, key, self._properties, body)
            self.consumers.answer_get(
                question, Delivery(tag, redelivered, *message, "", self, ready)
            )
        else:
            code, text, exchange, key = cast("tuple[int, str, str, str]", subject)
            self.publisher.on_return(code, text, exchange, key, self._properties, body)

    def _give_up(self, error: BrokerError) -> None:
        """Send channel.close and finish the channel, without waiting for RabbitMQ's answer."""
        if self.close_reason is not None:
            return
        self._calls.before_write()
        code = error.code or _CLOSED_BY_US
        frame = wire.method_frame(self.number, wire.CHANNEL_CLOSE, code, error.text[:80], 0, 0)
        self._transport.write(frame)
        self._closing = self._transport.loop.create_future()
        self.finish(error)

    def _free(self) -> None:
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)
        self._on_free(self)

    def finish(self, error: BrokerError) -> None:
        """Mark the channel as closed and fail its open questions, publishes and barrier.

        The connection calls this for its channels when it ends.
        """
        if self.close_reason is not None:
            if self._closing is not None and not self._closing.done():
                self._closing.set_result(None)
            return
        self.close_reason = error
        self.is_closed = True
        self._is_live = False
        self._calls.close(error)
        self._content = None
        self._chunks.clear()
        self.consumers.drop()
        if self._barrier is not None:
            self._write_barrier()
        self._calls.fail(error.again)
        self.publisher.fail(error.again)
        self.closed.set()
        if self.on_closed is not None:
            self._calls.notify(self.on_closed, error)
