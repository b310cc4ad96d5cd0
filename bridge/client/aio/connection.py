"""An aio-pika connection that reconnects by itself: `core.wire.Wire`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import aio_pika
from aio_pika.abc import AbstractConnection
from aiormq.exceptions import AMQPError, AuthenticationError, ConnectionClosed

from bridge.client.address import Address
from bridge.client.aio.channel import AioChannel
from bridge.client.aio.raw import tell_blocked
from bridge.client.core.call import ENDED
from bridge.client.core.retrying import Backoff
from bridge.client.exceptions import (
    OutcomeUnknownError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    UnsupportedRabbitMQError,
)

CONNECT_S = 15.0

CHANNELS_MAX = 65_535
"""The highest channel number, for a RabbitMQ without a limit."""

log = logging.getLogger("azure.servicebus.bridge")


class AioWire:
    """A connection of one event loop.

    Args:
        purpose: part of the connection's name.

    Attributes:
        is_up: the connection is open.
        blocked: why RabbitMQ reads nothing (an alarm); else `None`.
    """

    def __init__(self, address: Address, purpose: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._purpose = purpose
        self._next_host = 0
        self._connection: AbstractConnection | None = None
        self._channels: set[AioChannel] = set()
        self._channels_max = 0
        self._backoff = Backoff()
        self._changed = asyncio.Event()
        self._refused: ServiceBusError | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_up = False
        self.blocked: str | None = None
        self.last_error: ServiceBusError = ServiceBusConnectionError("not connected yet")

    async def ready(self, timeout_s: float) -> None:
        """Wait until the connection is open.

        Raises:
            ServiceBusConnectionError: no connection in time.
            ServiceBusAuthenticationError: RabbitMQ refuses the login.
            UnsupportedRabbitMQError: RabbitMQ is older than 4.0.
            OutcomeUnknownError: the connection is closed for good.
        """
        if self._task is None and self._refused is None:
            self._task = self._loop.create_task(self._keep())
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_up:
                    if self._refused is not None:
                        raise self._refused
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ServiceBusConnectionError(
                f"No connection within {timeout_s:.0f} s: {self.last_error}"
            ) from None

    @property
    def is_crowded(self) -> bool:
        """Whether a quarter of the connection's allowed channels are in use."""
        return 4 * len(self._channels) >= self._channels_max

    def open(
        self, on_closed: Callable[[ServiceBusError], None], *, has_confirms: bool = False
    ) -> AioChannel:
        """Return a channel."""
        if self._connection is None:
            raise ServiceBusConnectionError(f"There is no connection: {self.last_error}")
        if len(self._channels) >= self._channels_max:
            raise ServiceBusConnectionError(f"All {self._channels_max} channels are in use.")
        channel = AioChannel(self._connection, on_closed, has_confirms=has_confirms)
        self._channels.add(channel)
        channel.ended(self._channels.discard)
        return channel

    def now_ms(self) -> int:
        """Return UTC, ms."""
        return time.time_ns() // 1_000_000

    def now_s(self) -> float:
        """Return the time of a monotonic clock."""
        return time.monotonic()

    def later(self, wait_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `call` after `wait_s`."""
        return self._loop.call_later(wait_s, call)

    def soon(self, call: Callable[[], None]) -> None:
        """Call `call` at the end of this turn."""
        self._loop.call_soon(call)

    async def close(self) -> None:
        """Close the connection for good, after all earlier requests of its channels."""
        self.is_up = False
        channels = list(self._channels)
        for channel in channels:
            channel.close()
        await asyncio.gather(*(channel.closed() for channel in channels))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        self._refused = OutcomeUnknownError(ENDED)
        self._changed.set()

    async def _keep(self) -> None:
        """Connect, and reconnect after each loss."""
        while True:
            lost: asyncio.Future[BaseException | None] = self._loop.create_future()
            try:
                connection = await self._connect(lost)
            except (AMQPError, OSError, TimeoutError, UnsupportedRabbitMQError) as error:
                self._fail(error)
            else:
                self._backoff.succeeded()
                self._connection, self._refused, self.is_up = connection, None, True
                self._changed.set()
                self._lose(await lost)
            await asyncio.sleep(self._backoff.wait_s())

    async def _connect(self, lost: asyncio.Future[BaseException | None]) -> AbstractConnection:
        host, port = self._address.hosts[self._next_host % len(self._address.hosts)]
        self._next_host += 1
        connection = await aio_pika.connect(
            host=host,
            port=port,
            login=self._address.user,
            password=self._address.password,
            virtualhost=self._address.vhost,
            ssl=self._address.tls is not None,
            ssl_context=self._address.tls,
            client_properties={"connection_name": f"bridge.client.aio {self._purpose}"},
            timeout=CONNECT_S,
        )

        def on_close(sender: Any, error: BaseException | None = None) -> None:
            if not lost.done():
                lost.set_result(error)

        connection.close_callbacks.add(on_close)
        assert connection.transport is not None
        inner = connection.transport.connection
        too_old = UnsupportedRabbitMQError.of(inner.server_properties.get("version"))
        if too_old is not None:
            await connection.close()
            raise too_old
        tell_blocked(inner, self._on_blocked)
        self._channels_max = inner.connection_tune.channel_max or CHANNELS_MAX
        return connection

    def _on_blocked(self, why: str | None) -> None:
        self.blocked = why

    def _fail(self, error: BaseException) -> None:
        self.last_error = ServiceBusConnectionError(f"RabbitMQ at {self._address}: {error!r}")
        is_refused = isinstance(error, AuthenticationError) or (
            isinstance(error, ConnectionClosed) and error.args and error.args[0] in (403, 530)
        )
        if is_refused:
            self._refused = self.last_error = ServiceBusAuthenticationError(
                f"RabbitMQ at {self._address} refuses the login: {error!r}"
            )
        if isinstance(error, UnsupportedRabbitMQError):
            self._refused = self.last_error = error
        log.warning("No connection to RabbitMQ (%s): %s", self._purpose, self.last_error)
        self._changed.set()

    def _lose(self, error: BaseException | None) -> None:
        self._connection, self.is_up, self.blocked = None, False, None
        self.last_error = ServiceBusConnectionError(f"RabbitMQ at {self._address}: {error!r}")
        log.warning("The connection to RabbitMQ was lost (%s): %r", self._purpose, error)
        for channel in list(self._channels):
            channel.lose(self.last_error)
