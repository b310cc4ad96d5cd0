"""The asynchronous `ServiceBusClient`: its connections, of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import tenacity

from bridge.client.aio.connection import AioWire
from bridge.client.aio.receiver import ServiceBusReceiver
from bridge.client.aio.sender import ServiceBusSender
from bridge.client.constants import ServiceBusReceiveMode, ServiceBusSubQueue
from bridge.client.core.directory import guarded
from bridge.client.core.namespace import Namespace
from bridge.client.core.options import Options, sub_queue_of, subscription_path
from bridge.client.core.received import Received
from bridge.client.core.refusals import unsupported
from bridge.client.exceptions import OperationTimeoutError

CONNECT_S = 20.0
"""How long an operation waits for a connection before it fails."""


class ServiceBusClient:
    """A client of a virtual host of RabbitMQ, under the SDK's name; of one event loop.

    Args:
        fully_qualified_namespace: RabbitMQ's URL, or anything with `rabbitmq_url=` beside it.
        credential: accepted and not used.
        options: those of the SDK, and `rabbitmq_url`.

    Raises:
        ValueError: there is no URL of RabbitMQ, or it is malformed.
        TypeError: an option is unknown.
    """

    def __init__(
        self, fully_qualified_namespace: str, credential: object = None, **options: Any
    ) -> None:
        self._options = Options(fully_qualified_namespace, credential, options)
        self._sending: AioWire | None = None
        self._receiving: AioWire | None = None
        self._namespace: Namespace | None = None
        self._is_closed = False
        self.fully_qualified_namespace = str(self._options.address)

    async def __aenter__(self) -> ServiceBusClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"ServiceBusClient({self._options.address})"

    @classmethod
    def from_connection_string(cls, conn_str: str, **options: Any) -> ServiceBusClient:
        """Return a client.

        Args:
            conn_str: RabbitMQ's URL; or Azure's connection string, with `rabbitmq_url=` or
                `BUSBRIDGE_RABBITMQ_URL` beside it.
        """
        return cls(conn_str, None, **options)

    def get_queue_sender(self, queue_name: str, **options: Any) -> ServiceBusSender:
        """Return a sender to a queue."""
        return ServiceBusSender(self, queue_name, "queue_name", options)

    def get_topic_sender(self, topic_name: str, **options: Any) -> ServiceBusSender:
        """Return a sender to a topic."""
        return ServiceBusSender(self, topic_name, "topic_name", options)

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        session_id: object = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_wait_time: float | None = None,
        auto_lock_renewer: Any = None,
        prefetch_count: int = 0,
        **options: Any,
    ) -> ServiceBusReceiver:
        """Return a receiver of a queue, or of its dead-letter sub-queue."""
        if session_id is not None:
            unsupported("sessions")
        return ServiceBusReceiver(
            self,
            queue_name,
            sub_queue_of(sub_queue, queue_name),
            ServiceBusReceiveMode(receive_mode),
            max_wait_time,
            auto_lock_renewer,
            options,
        )

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> ServiceBusReceiver:
        """Return a receiver of a subscription, or of its dead-letter sub-queue."""
        return self.get_queue_receiver(subscription_path(topic_name, subscription_name), **options)

    def list_queue_sessions(self, queue_name: str, **options: Any) -> Any:
        """Not here."""
        unsupported("list_queue_sessions")

    def list_subscription_sessions(
        self, topic_name: str, subscription_name: str, **options: Any
    ) -> Any:
        """Not here."""
        unsupported("list_subscription_sessions")

    async def close(self) -> None:
        """Close the connections; what is locked goes back to its queue at once."""
        self._is_closed = True
        if self._namespace is not None:
            self._namespace.close()
        for wire in (self._sending, self._receiving):
            if wire is not None:
                await wire.close()
        self._sending = self._receiving = self._namespace = None

    async def _run(
        self,
        name: str,
        *arguments: Any,
        timeout_s: float | None = None,
        is_receiving: bool = False,
        is_tried_again: bool = True,
    ) -> Any:
        """Have the namespace do something; return what it answers."""
        attempt = partial(self._once, name, arguments, timeout_s, is_receiving)
        if not is_tried_again or not self._options.retry.total:
            return await attempt()
        return await tenacity.AsyncRetrying(**self._options.retry.arguments())(attempt)

    async def _once(
        self, name: str, arguments: tuple[Any, ...], timeout_s: float | None, is_receiving: bool
    ) -> Any:
        namespace = await self._connected(is_receiving)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        guarded(answer, getattr(namespace, name), *arguments, answer)
        try:
            async with asyncio.timeout(timeout_s or self._options.try_timeout):
                return await answer
        except TimeoutError as error:
            raise OperationTimeoutError(f"{name} did not end in time.", error=error) from None

    async def _pull(self, arguments: tuple[Any, ...]) -> Any:
        """Wait for messages; when cancelled, the next receiver has what came."""
        namespace = await self._connected(True)
        answer: asyncio.Future[list[Received]] = asyncio.get_running_loop().create_future()
        stops: list[Callable[[], None]] = []
        guarded(answer, namespace.pull, *arguments, answer, stops.append)
        try:
            return await answer
        except asyncio.CancelledError:
            for stop in stops:
                stop()
            if not answer.cancelled() and answer.exception() is None:
                path, sub_queue, *_ = arguments
                for token in (each.lock_token for each in answer.result()):
                    if token is not None:
                        released: asyncio.Future[None] = answer.get_loop().create_future()
                        settle = partial(namespace.settle, path, sub_queue, token, "release")
                        guarded(released, settle, None, None, released)
            raise

    async def _connected(self, is_receiving: bool) -> Namespace:
        """Wait until the connections are there.

        Raises:
            ServiceBusConnectionError: they are not, in time.
            ServiceBusAuthenticationError: RabbitMQ refuses the login.
        """
        if self._is_closed:
            raise ValueError("The ServiceBusClient is closed.")
        if self._namespace is None:
            self._sending = AioWire(self._options.address, "publishing")
            self._receiving = AioWire(self._options.address, "consuming")
            self._namespace = Namespace(self._sending, self._receiving)
        assert self._sending is not None
        assert self._receiving is not None
        if not self._sending.is_up:
            await self._sending.ready(CONNECT_S)
        if is_receiving and not self._receiving.is_up:
            await self._receiving.ready(CONNECT_S)
        return self._namespace
