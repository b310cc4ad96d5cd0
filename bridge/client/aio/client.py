"""The asynchronous `ServiceBusClient`, with its connections, of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, Unpack

import tenacity

from bridge.client.aio.connection import AioWire
from bridge.client.aio.receiver import ServiceBusReceiver
from bridge.client.aio.sender import ServiceBusSender
from bridge.client.core.call import ENDED, Call
from bridge.client.core.namespace import ClientNamespace
from bridge.client.core.options import (
    ClientOptions,
    Options,
    ReceiverOptions,
    SenderOptions,
    subscription_path,
)
from bridge.client.core.pull import Begun
from bridge.client.core.receiving import receiving_from
from bridge.client.core.session_listing import SessionListing
from bridge.client.core.wire import fail, succeed
from bridge.client.exceptions import OperationTimeoutError, OutcomeUnknownError
from bridge.message.received import Received

Result = TypeVar("Result")

CONNECT_S = 20.0
"""How long an operation waits for a connection before it fails."""


class ServiceBusClient:
    """A client of a virtual host of RabbitMQ, under the SDK's name; of one event loop.

    Every method raises TypeError for an option that it does not have.

    Args:
        fully_qualified_namespace: RabbitMQ's URL, or anything with `rabbitmq_url=` beside it.
        credential: accepted and not used.
        options: the SDK's options, and `rabbitmq_url`.

    Raises:
        ValueError: the URL of RabbitMQ is missing or malformed.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: object = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._options = Options(fully_qualified_namespace, credential, options)
        self._sending: AioWire | None = None
        self._receiving: AioWire | None = None
        self._namespace: ClientNamespace | None = None
        self._awaited: set[asyncio.Future[Any]] = set()
        self._is_closed = False
        self.fully_qualified_namespace = str(self._options.address)

    async def __aenter__(self) -> ServiceBusClient:
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"ServiceBusClient({self._options.address})"

    @classmethod
    def from_connection_string(
        cls, conn_str: str, **options: Unpack[ClientOptions]
    ) -> ServiceBusClient:
        """Return a client.

        Args:
            conn_str: RabbitMQ's URL; or Azure's connection string, with `rabbitmq_url=` or
                `BUSBRIDGE_RABBITMQ_URL` beside it.
        """
        return cls(conn_str, None, **options)

    def get_queue_sender(
        self, queue_name: str, **options: Unpack[SenderOptions]
    ) -> ServiceBusSender:
        """Return a sender to a queue."""
        return ServiceBusSender(self, queue_name, "queue_name", options)

    def get_topic_sender(
        self, topic_name: str, **options: Unpack[SenderOptions]
    ) -> ServiceBusSender:
        """Return a sender to a topic."""
        return ServiceBusSender(self, topic_name, "topic_name", options)

    def get_queue_receiver(
        self, queue_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """Return a receiver of a queue, or of its dead-letter sub-queue."""
        return ServiceBusReceiver(self, queue_name, receiving_from(queue_name, options))

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """Return a receiver of a subscription, or of its dead-letter sub-queue."""
        return self.get_queue_receiver(subscription_path(topic_name, subscription_name), **options)

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str]:
        """Iterate over the ids of a queue's sessions with messages or a state.

        Args:
            state_updated_after: list the sessions whose state was set after this time instead.
            timeout: seconds for all pages together.
        """
        return self._sessions(SessionListing(queue_name, state_updated_after, timeout))

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[str]:
        """Iterate over the ids of a subscription's sessions; see `list_queue_sessions`."""
        path = subscription_path(topic_name, subscription_name)
        return self._sessions(SessionListing(path, state_updated_after, timeout))

    async def _sessions(self, listing: SessionListing) -> AsyncIterator[str]:
        while page := await self._run(listing.next_page()):
            listing.read(len(page))
            for each in page:
                yield each

    async def close(self) -> None:
        """Close the connections; locked messages go back to their queues at once."""
        self._is_closed = True
        if self._namespace is not None:
            left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._namespace.leave(partial(succeed, left))
            await left
            self._namespace.close()
        for wire in (self._sending, self._receiving):
            if wire is not None:
                await wire.close()
        for answer in self._awaited:
            fail(answer, OutcomeUnknownError(ENDED))
        self._sending = self._receiving = self._namespace = None

    async def _run(self, call: Call[Result]) -> Result:
        """Do an operation of the namespace; return its answer."""
        if not call.is_tried_again or not self._options.retry.total:
            return await self._once(call)
        attempt = partial(self._once, call)
        return await tenacity.AsyncRetrying(**self._options.retry.arguments())(attempt)

    async def _once(self, call: Call[Result]) -> Result:
        namespace = await self._connected(call.is_receiving)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call.begin(namespace, answer)
        try:
            async with asyncio.timeout(call.timeout_s or self._options.try_timeout):
                result = await self._result(answer)
        except TimeoutError as error:
            call.undo(namespace, answer)
            raise OperationTimeoutError(f"{call.name} did not end in time.", error=error) from None
        except asyncio.CancelledError:
            call.undo(namespace, answer)
            raise
        call.follow(namespace, result)
        return result if call.read is None else call.read(result)

    async def _pull(self, call: Call[Any]) -> list[Received]:
        """Wait for messages; retry a failure only before messages were asked for."""
        begun: list[Begun] = []
        attempt = partial(self._pull_once, call, begun)
        retrying = tenacity.AsyncRetrying(**self._options.retry.arguments(lambda: not begun))
        return await retrying(attempt)

    async def _pull_once(self, call: Call[Any], begun: list[Begun]) -> list[Received]:
        """Wait for messages; a cancel gives messages back to the next receiver.

        Args:
            begun: gets what the waiting call is told.
        """
        namespace = await self._connected(True)
        answer: asyncio.Future[list[Received]] = asyncio.get_running_loop().create_future()
        call.begin(namespace, answer, begun.append)
        try:
            result = await self._result(answer)
        except asyncio.CancelledError:
            for each in begun:
                each.stop()
                each.put_back()
            raise
        for each in begun:
            if each.taken is not None:
                each.taken()
        return result

    async def _result(self, answer: asyncio.Future[Result]) -> Result:
        """Wait for an answer; the end of the client fails the answer."""
        self._awaited.add(answer)
        try:
            return await answer
        finally:
            self._awaited.discard(answer)

    async def _connected(self, is_receiving: bool) -> ClientNamespace:
        """Wait until the connections are open.

        Raises:
            ServiceBusConnectionError: no connection in time.
            ServiceBusAuthenticationError: RabbitMQ refuses the login.
        """
        if self._is_closed:
            raise ValueError("The ServiceBusClient is closed.")
        if self._namespace is None:
            self._sending = AioWire(self._options.address, "publishing")
            self._receiving = AioWire(self._options.address, "consuming")
            self._namespace = ClientNamespace(self._sending, self._receiving)
        namespace = self._namespace
        for wire in (self._sending, self._receiving if is_receiving else None):
            if wire is not None and not wire.is_up:
                await wire.ready(CONNECT_S)
        return namespace
