"""A quorum queue worked by plain pika, for whoever compares the bridge with it.

The bridge itself uses none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPError, ChannelClosedByClient

from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerSilent, ConnectionLost, PublishRefused

SILENT_S: Final = 60.0
"""How long RabbitMQ may take to answer or confirm."""

UNUSED_MS: Final = 86_400_000
"""RabbitMQ removes the queue when nobody has used it for so long: what a kill leaves behind."""

CONNECT_S: Final = 10.0

PERSISTENT: Final = 2


class PlainPika:
    """A connection of pika's with a quorum queue of its own, which is deleted at the end.

    Messages go through the default exchange, persistent and with publisher confirms.

    Args:
        endpoint: where RabbitMQ is; the first host that answers is taken.
        queue: the queue's name.

    Raises:
        ConnectionLost, BrokerSilent: of any call; texts name no password.
    """

    def __init__(self, endpoint: Endpoint, queue: str) -> None:
        self.queue = queue
        self._endpoint = endpoint
        self._connection: Any = None
        self._channel: Any = None
        self._changed = asyncio.Event()
        self._error: ConnectionLost | PublishRefused | None = None
        self._unconfirmed: dict[int, str] = {}
        self._tag = 0
        self._confirmed: Callable[[str], None] = lambda _: None
        self._is_made = self._is_closing = False

    async def open(self) -> None:
        """Connect, and make the queue; `close` belongs to it, also when it fails."""
        refused: list[ConnectionLost | BrokerSilent] = []
        for host, port in self._endpoint.hosts:
            self._error = None
            try:
                await self._connect(host, port)
                break
            except (ConnectionLost, BrokerSilent) as error:
                refused.append(error)
        else:
            raise refused[-1]
        await self._make()

    async def publish(
        self,
        next_id: Callable[[], str | None],
        confirmed: Callable[[str], None],
        body: bytes,
        window: int,
        *,
        in_groups: bool = False,
    ) -> None:
        """Publish messages with these ids and one body; return when all are confirmed.

        Args:
            next_id: gives the id of the next one; `None`: there are no more.
            confirmed: is told of each that RabbitMQ has confirmed.
            window: how many may be unconfirmed at a time.
            in_groups: the next ones are published when all before them are confirmed.

        Raises:
            PublishRefused: RabbitMQ does not take one.
        """
        self._confirmed = confirmed
        left = 0 if in_groups else window - 1
        while (message_id := next_id()) is not None:
            self._tag += 1
            self._unconfirmed[self._tag] = message_id
            properties = pika.BasicProperties(delivery_mode=PERSISTENT, message_id=message_id)
            try:
                self._channel.basic_publish("", self.queue, body, properties)
            except AMQPError as error:
                raise self._error or self._lost(error) from error
            if len(self._unconfirmed) >= window:
                await self._until(lambda: len(self._unconfirmed) <= left)
        await self._until(lambda: not self._unconfirmed)

    async def consume(
        self,
        came: Callable[[Any], bool],
        is_over: Callable[[], bool],
        prefetch: int,
        *,
        silent_s: float = SILENT_S,
    ) -> bool:
        """Receive messages and ack each; return when RabbitMQ has the acks.

        Args:
            came: is told the id of each; whether it is acked. What is not goes back at the end.
            is_over: whether this is the end; asked behind each message.
            prefetch: how many RabbitMQ sends ahead.
            silent_s: how long nothing may come; then this returns `False`.
        """
        channel = await self._open_channel()
        count = 0

        def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
            nonlocal count
            count += 1
            if came(properties.message_id):
                channel.basic_ack(method.delivery_tag)
            self._changed.set()

        def has_come() -> bool:
            return count > known or is_over()

        await self._asked(
            lambda answer: channel.basic_qos(prefetch_count=prefetch, callback=answer)
        )
        channel.basic_consume(self.queue, on_message)
        while not is_over():
            known = count
            try:
                await self._until(has_come, silent_s)
            except BrokerSilent:
                break
        channel.close()  # RabbitMQ answers it behind all acks
        await self._until(lambda: channel.is_closed)
        return is_over()

    async def close(self) -> None:
        """Delete the queue, and close the connection.

        Raises:
            ConnectionLost, BrokerSilent: the queue may be there still, until `UNUSED_MS` are over.
        """
        connection = self._connection
        if connection is None:
            return
        try:
            if isinstance(self._error, PublishRefused):
                self._error = None
            if self._is_made:
                await self._asked(
                    lambda answer: self._channel.queue_delete(self.queue, callback=answer)
                )
        finally:
            self._is_closing, self._error = True, None
            if not (connection.is_closed or connection.is_closing):
                connection.close()
            await self._until(lambda: connection.is_closed)

    async def _connect(self, host: str, port: int) -> None:
        endpoint = self._endpoint
        login = (
            ExternalCredentials()
            if endpoint.is_external
            else pika.PlainCredentials(endpoint.user, endpoint.password)
        )
        parameters = pika.ConnectionParameters(
            host=host,
            port=port,
            virtual_host=endpoint.vhost,
            credentials=login,
            ssl_options=None if endpoint.tls is None else pika.SSLOptions(endpoint.tls, host),
            client_properties={"connection_name": "busbridge bench"},
            socket_timeout=CONNECT_S,
            stack_timeout=CONNECT_S,
        )
        self._connection = AsyncioConnection(
            parameters,
            on_open_callback=lambda _: self._changed.set(),
            on_open_error_callback=self._on_lost,
            on_close_callback=self._on_lost,
            custom_ioloop=asyncio.get_running_loop(),
        )
        await self._until(lambda: self._connection.is_open)

    async def _make(self) -> None:
        """Make the queue, and have publishes confirmed."""
        self._channel = await self._open_channel()
        arguments = {"x-queue-type": "quorum", "x-expires": UNUSED_MS}
        self._is_made = True
        await self._asked(
            lambda answer: self._channel.queue_declare(
                self.queue, durable=True, arguments=arguments, callback=answer
            )
        )
        await self._asked(
            lambda answer: self._channel.confirm_delivery(self._on_confirm, callback=answer)
        )

    async def _open_channel(self) -> Any:
        (channel,) = await self._asked(
            lambda answer: self._connection.channel(on_open_callback=answer)
        )
        channel.add_on_close_callback(self._on_channel_closed)
        return channel

    async def _asked(self, ask: Callable[[Callable[..., None]], object]) -> tuple[Any, ...]:
        """Return what RabbitMQ answers to a call with a callback."""
        answers: list[tuple[Any, ...]] = []

        def on_answer(*answer: Any) -> None:
            answers.append(answer)
            self._changed.set()

        self._check()
        try:
            ask(on_answer)
        except AMQPError as error:
            raise self._lost(error) from error
        await self._until(lambda: bool(answers))
        return answers[0]

    async def _until(self, holds: Callable[[], bool], within_s: float = SILENT_S) -> None:
        """Wait until something holds.

        Raises:
            BrokerSilent: nothing has changed for so long.
        """
        while not holds():
            self._check()
            self._changed.clear()
            try:
                async with asyncio.timeout(within_s):
                    await self._changed.wait()
            except TimeoutError:
                text = f"{self._endpoint} has not answered for {within_s:g} s."
                raise BrokerSilent(text=text) from None

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        if method.multiple:
            tags = [each for each in self._unconfirmed if each <= method.delivery_tag]
        else:
            tags = [method.delivery_tag]
        for tag in tags:
            message_id = self._unconfirmed.pop(tag)
            if isinstance(method, pika.spec.Basic.Nack):
                text = f"{self._endpoint} does not take a message into {self.queue!r}."
                self._error = PublishRefused(text=text)
            else:
                self._confirmed(message_id)
        self._changed.set()

    def _on_channel_closed(self, channel: Any, reason: BaseException) -> None:
        if not isinstance(reason, ChannelClosedByClient):
            self._on_lost(channel, reason)
        self._changed.set()

    def _on_lost(self, _: Any, reason: BaseException | str) -> None:
        if not self._is_closing:
            self._error = self._error or self._lost(reason)
        self._changed.set()

    def _lost(self, reason: BaseException | str) -> ConnectionLost:
        """Return the error, in RabbitMQ's words where it has said something."""
        said = getattr(reason, "reply_text", "") or type(reason).__name__
        return ConnectionLost(text=f"{self._endpoint}: {said}")
