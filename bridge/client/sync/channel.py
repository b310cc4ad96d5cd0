"""A pika channel for the core: `core.wire.Channel`."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from pika import spec
from pika.exceptions import AMQPError

from bridge.client.core.confirms import Confirms
from bridge.client.core.wire import Confirmed, Delivery, Unsettled
from bridge.client.exceptions import ServiceBusConnectionError, ServiceBusError
from bridge.client.sync.raw import RawConnection, RawProperties, text_of

_Got = Callable[[Delivery | None], None]


class PikaChannel(Unsettled):
    """One channel; requests wait until RabbitMQ has opened the channel.

    Args:
        on_closed: called when the channel ends without `close`.
    """

    def __init__(
        self,
        connection: RawConnection,
        on_closed: Callable[[ServiceBusError], None],
        *,
        has_confirms: bool,
    ) -> None:
        self._on_closed = on_closed
        self._confirms = Confirms()
        self._has_confirms = has_confirms
        self._is_open = False
        self._waiting: list[Callable[[], None]] = []
        self._gets: deque[tuple[str, _Got]] = deque()
        self._ends: dict[str, Callable[[], None]] = {}
        self.is_closed = False
        self._connection = connection
        self._channel = connection.channel(on_open_callback=self._on_open)
        self._channel.add_on_close_callback(self._on_close)

    def publish(
        self, exchange: str, key: str, properties: bytes, body: bytes, confirmed: Confirmed
    ) -> None:
        """Publish a message, mandatory."""
        if self.is_closed:
            raise ServiceBusConnectionError("The channel is closed.")
        self._confirms.add(exchange, key, properties, body, confirmed)
        raw = RawProperties(properties)
        self._do(partial(self._publish, exchange, key, body, raw))

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

        def on_message(
            delivery_tag: int, redelivered: bool, exchange: str, properties: bytes, body: bytes
        ) -> None:
            self.outstanding += not no_ack
            on_delivery(Delivery(delivery_tag, redelivered, exchange, properties, body))

        def begin() -> None:
            self._ends[tag] = on_ended
            if prefetch:
                self._channel.basic_qos(prefetch_count=prefetch, callback=lambda frame: None)
            # pika holds later methods back until the consume-ok, a cancel too: an earlier
            # cancel would end the connection (docs/rabbitmq-faults.md: early-cancel).
            self._channel.basic_consume(
                queue,
                on_message,
                auto_ack=no_ack,
                consumer_tag=tag,
                callback=lambda frame: None,
            )

        self._do(begin)

    def cancel(self, tag: str) -> None:
        """Cancel a consumer."""
        self._do(lambda: self._channel.basic_cancel(tag, callback=lambda frame: self._end(tag)))

    def get(self, queue: str, on_got: _Got, on_silent: Callable[[], None]) -> None:
        """Get one message, or none; pika allows one get at a time. The wait has no end."""
        self._gets.append((queue, on_got))
        if len(self._gets) == 1:
            self._do(self._get)

    def look(
        self, queue: str, on_seen: Callable[[int, int], None], on_silent: Callable[[], None]
    ) -> None:
        """Ask for the queue's numbers of ready messages and of consumers."""

        def seen(frame: Any) -> None:
            on_seen(frame.method.message_count, frame.method.consumer_count)

        self._do(lambda: self._channel.queue_declare(queue, passive=True, callback=seen))

    def ack(self, tag: int) -> None:
        """Ack a message."""
        self.settled()
        if self._channel.is_open:
            self._connection.ack(self._channel.channel_number, tag)
        elif not self.is_closed:
            self.lose(ServiceBusConnectionError("The channel was lost."))

    def written(self, call: Callable[[], None]) -> None:
        """Call `call` when all writes of this channel are with the kernel, or lost."""
        self._connection.written(call)

    def reject(self, tag: int) -> None:
        """Return a message, counted."""
        self.settled()
        self._do(lambda: self._channel.basic_reject(tag, requeue=True))

    def nack(self, tag: int) -> None:
        """Return a message, counted before 4.3 only."""
        self.settled()
        self._do(lambda: self._channel.basic_nack(tag, requeue=True))

    def barrier(self, on_passed: Callable[[], None]) -> None:
        """Call `on_passed` when RabbitMQ has carried out all earlier requests of this channel."""
        self._do(lambda: self._channel.basic_qos(callback=lambda frame: on_passed()))

    def close(self) -> None:
        """Close the channel."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._channel.is_open:
            with contextlib.suppress(AMQPError):  # the connection may be gone
                self._channel.close()

    def lose(self, error: ServiceBusError) -> None:
        """End the channel: the channel or its connection is lost."""
        was_closed, self.is_closed = self.is_closed, True
        self._waiting.clear()
        self._gets.clear()
        self._confirms.lose(str(error))
        if not was_closed:
            self._on_closed(error)

    def _do(self, call: Callable[[], None]) -> None:
        if self.is_closed:
            return
        if not self._is_open:
            self._waiting.append(call)
            return
        try:
            call()
        except AMQPError as error:
            self.lose(ServiceBusConnectionError(f"The channel was lost: {error!r}"))

    def _publish(self, exchange: str, key: str, body: bytes, raw: RawProperties) -> None:
        self._channel.basic_publish(exchange, key, body, raw, mandatory=True)

    def _get(self) -> None:
        queue, _ = self._gets[0]

        def found(channel: Any, method: Any, properties: RawProperties, body: bytes) -> None:
            tag, exchange = method.delivery_tag, text_of(method.exchange)
            ready: int = method.message_count
            self._got(Delivery(tag, method.redelivered, exchange, properties.raw, body, ready))

        self._channel.basic_get(queue, found)

    def _got(self, delivery: Delivery | None) -> None:
        _, on_got = self._gets.popleft()
        self.outstanding += delivery is not None
        on_got(delivery)
        if self._gets and not self.is_closed:
            self._do(self._get)

    def _end(self, tag: str) -> None:
        on_ended = self._ends.pop(tag, None)
        if on_ended is not None:
            on_ended()

    def _on_open(self, channel: Any) -> None:
        if not self._has_confirms:
            self._begin()
            return
        # pika holds `confirm.select` back behind other methods, but no publish.
        self._channel.add_on_return_callback(self._on_return)
        self._channel.confirm_delivery(self._on_confirm, callback=lambda frame: self._begin())

    def _begin(self) -> None:
        self._is_open = True
        self._channel.add_on_cancel_callback(lambda frame: self._end(frame.method.consumer_tag))
        on_empty = partial(self._got, None)
        self._channel.add_callback(lambda frame: on_empty(), [spec.Basic.GetEmpty], one_shot=False)
        waiting, self._waiting = self._waiting, []
        if self.is_closed:
            self._channel.close()
        for call in waiting:
            self._do(call)

    def _on_close(self, channel: Any, reason: Exception) -> None:
        self.lose(ServiceBusConnectionError(f"RabbitMQ has closed the channel: {reason}"))

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        is_taken = isinstance(method, spec.Basic.Ack)
        self._confirms.on_confirm(
            method.delivery_tag, is_multiple=method.multiple, is_taken=is_taken
        )

    def _on_return(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        exchange, key = text_of(method.exchange), text_of(method.routing_key)
        self._confirms.on_return(exchange, key, properties.raw, body)
