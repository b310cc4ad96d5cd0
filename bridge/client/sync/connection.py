"""A pika connection that reconnects by itself: `core.wire.Wire`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from pika import ConnectionParameters, PlainCredentials, SSLOptions
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from bridge.client.address import Address
from bridge.client.core.retrying import Backoff
from bridge.client.core.wire import CallerFuture, fail, succeed
from bridge.client.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    UnsupportedRabbitMQError,
)
from bridge.client.sync.channel import PikaChannel
from bridge.client.sync.loop import Timer
from bridge.client.sync.raw import RawConnection
from bridge.client.sync.thread import IoThread

log = logging.getLogger("azure.servicebus.bridge")


class PikaWire:
    """One connection; used only in turns of the I/O thread.

    Args:
        purpose: part of the connection's name.

    Attributes:
        is_up: the connection is open.
        blocked: why RabbitMQ reads nothing (an alarm); else `None`.
    """

    def __init__(self, thread: IoThread, address: Address, purpose: str) -> None:
        self._thread = thread
        thread.on_torn.append(self._give_up_connection)
        self._address = address
        self._purpose = purpose
        self._next_host = 0
        self._connection: RawConnection | None = None
        self._channels: WeakSet[PikaChannel] = WeakSet()
        self._backoff = Backoff()
        self._waiting: list[CallerFuture] = []
        self._refused: ServiceBusError | None = None
        self._is_started = self._is_closed = False
        self._ending: RawConnection | None = None
        self.is_up = False
        self.blocked: str | None = None
        self.last_error: ServiceBusError = ServiceBusConnectionError("not connected yet")

    @property
    def is_closing(self) -> bool:
        """Whether RabbitMQ has not yet answered the close."""
        return self._ending is not None and not self._ending.is_closed

    def start_once(self) -> None:
        """Begin to connect, unless begun before."""
        if not self._is_started:
            self._is_started = True
            self.start()

    def start(self) -> None:
        """Begin to connect."""
        if self._is_closed:
            return
        host, port = self._address.hosts[self._next_host % len(self._address.hosts)]
        self._next_host += 1
        tls = self._address.tls
        parameters = ConnectionParameters(
            host=host,
            port=port,
            virtual_host=self._address.vhost,
            credentials=PlainCredentials(self._address.user, self._address.password),
            ssl_options=None if tls is None else SSLOptions(tls, host),
            client_properties={"connection_name": f"bridge.client {self._purpose}"},
            socket_timeout=10,
            stack_timeout=15,
        )
        RawConnection(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=self._on_failed,
            on_close_callback=self._on_lost,
            custom_ioloop=self._thread.loop,
        )

    def ready(self, answer: CallerFuture) -> None:
        """Answer when the connection is open, refused by RabbitMQ, or RabbitMQ is too old."""
        if self.is_up:
            succeed(answer)
        elif self._refused is not None:
            answer.set_exception(self._refused)
        else:
            self._waiting.append(answer)

    @property
    def is_crowded(self) -> bool:
        """Whether a quarter of the connection's allowed channels are in use."""
        return self._connection is not None and self._connection.is_crowded

    def open(
        self, on_closed: Callable[[ServiceBusError], None], *, has_confirms: bool = False
    ) -> PikaChannel:
        """Return a channel."""
        if self._connection is None:
            raise ServiceBusConnectionError(f"There is no connection: {self.last_error}")

        def closed(error: ServiceBusError) -> None:
            self._channels.discard(channel)
            on_closed(error)

        try:
            channel = PikaChannel(self._connection, closed, has_confirms=has_confirms)
        except AMQPError as error:
            raise ServiceBusConnectionError(f"There is no channel: {error!r}") from None
        self._channels.add(channel)
        return channel

    def now_ms(self) -> int:
        """Return UTC, ms."""
        return time.time_ns() // 1_000_000

    def now_s(self) -> float:
        """Return the time of a monotonic clock."""
        return time.monotonic()

    def later(self, wait_s: float, call: Callable[[], None]) -> Timer:
        """Call `call` after `wait_s`."""
        return self._thread.loop.call_later(wait_s, call)

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` at the end of this turn."""
        self._thread.soon(call)

    def close(self) -> None:
        """Close the connection for good."""
        self._is_closed = True
        connection, self._connection = self._connection, None
        self.is_up = False
        if connection is not None and connection.is_open:
            self._ending = connection
            connection.close()

    def _on_open(self, connection: RawConnection) -> None:
        if self._is_closed:
            connection.close()
            return
        too_old = UnsupportedRabbitMQError.of(connection.server_properties.get("version"))
        if too_old is not None:
            log.warning("No connection to RabbitMQ (%s): %s", self._purpose, too_old)
            self._refuse(too_old)
            connection.close()
            return
        connection.add_on_connection_blocked_callback(self._on_blocked)
        connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self._connection = connection
        self._refused = self.blocked = None
        self._backoff.succeeded()
        self.is_up = True
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            succeed(answer)

    def _on_failed(self, connection: RawConnection, error: BaseException) -> None:
        self.last_error = _reason(error, self._address)
        log.warning("No connection to RabbitMQ (%s): %s", self._purpose, self.last_error)
        if isinstance(self.last_error, ServiceBusAuthenticationError):
            self._refuse(self.last_error)
        self._again()

    def _refuse(self, error: ServiceBusError) -> None:
        """Fail all that waits for a connection, and what will ask for one until there is one."""
        self._refused = error
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            fail(answer, error)

    def _on_lost(self, connection: RawConnection, error: BaseException) -> None:
        self._connection = None
        self.is_up = False
        self.last_error = _reason(error, self._address)
        channels, self._channels = list(self._channels), WeakSet()
        for channel in channels:
            channel.lose(self.last_error)
        if not self._is_closed:
            log.warning("The connection to RabbitMQ was lost (%s): %s", self._purpose, error)
            self._again()

    def _give_up_connection(self) -> None:
        """Abort the connection: its state, or a write, may be half done."""
        if self._connection is not None and self._connection.is_open:
            self._connection.abort()

    def _again(self) -> None:
        if not self._is_closed:
            self.later(self._backoff.wait_s(), self.start)

    def _on_blocked(self, connection: RawConnection, frame: Any) -> None:
        self.blocked = frame.method.reason or "no reason given"

    def _on_unblocked(self, connection: RawConnection, frame: Any) -> None:
        self.blocked = None


def _reason(error: BaseException, address: Address) -> ServiceBusError:
    """Return the SDK's error for an error of pika's, which nests the cause."""
    cause: Any = error
    while isinstance(cause, AMQPConnectionError) and cause.args:
        inner = cause.args[0]
        if not isinstance(inner, BaseException):
            break
        cause = inner
    inner = getattr(error, "exceptions", None)
    if inner:
        return _reason(inner[-1], address)
    exception = getattr(cause, "exception", None)
    if isinstance(exception, BaseException):
        return _reason(exception, address)
    refusals = ProbableAuthenticationError, ProbableAccessDeniedError
    is_refused = isinstance(cause, refusals) or (
        isinstance(cause, ConnectionClosedByBroker) and cause.reply_code in (403, 530)
    )
    if is_refused:
        return ServiceBusAuthenticationError(f"RabbitMQ at {address} refuses the login: {cause!r}")
    return ServiceBusConnectionError(f"RabbitMQ at {address}: {cause!r}")
