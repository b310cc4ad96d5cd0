"""The asynchronous `ServiceBusReceiver`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.client.aio.awaited import awaited
from bridge.client.aio.session import ServiceBusSession
from bridge.client.core.call import Call, numbers_of
from bridge.client.core.receiving import ClientReceiving
from bridge.client.exceptions import ServiceBusError
from bridge.client.received_message import ServiceBusReceivedMessage
from bridge.client.sync.receiver import ServiceBusReceiver as Synchronous

if TYPE_CHECKING:
    from bridge.client.aio.client import ServiceBusClient

Result = TypeVar("Result")


class ServiceBusReceiver:
    """A receiver of a queue or subscription; made by a client. Iteration yields messages."""

    def __init__(
        self, client: ServiceBusClient, entity_path: str, receiving: ClientReceiving
    ) -> None:
        self._client = client
        self._receiving = receiving
        self.entity_path = entity_path
        self.client_identifier = receiving.identifier
        source = receiving.session
        self._session = None if source is None else ServiceBusSession(source, self)

    async def __aenter__(self) -> ServiceBusReceiver:
        await self._open()
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[ServiceBusReceivedMessage]:
        return self

    async def __anext__(self) -> ServiceBusReceivedMessage:
        found = await self._pull(self._receiving.next)
        if not found:
            raise StopAsyncIteration
        return found[0]

    def __str__(self) -> str:
        return f"Receiver client id: {self.client_identifier}, entity: {self.entity_path}"

    @property
    def session(self) -> Any:
        """The session; `None` for a receiver without sessions."""
        return self._session

    receive_messages = awaited(Synchronous.receive_messages)
    peek_messages = awaited(Synchronous.peek_messages)

    async def receive_deferred_messages(
        self,
        sequence_numbers: int | Iterable[int],
        *,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Receive deferred messages by their sequence numbers: all of them or none.

        Raises:
            MessageNotFoundError: a message does not exist, or is locked.
        """
        given = numbers_of(sequence_numbers)
        found = await self._run(lambda: self._receiving.deferred(given, timeout)) if given else []
        return self._receiving.received(self, found)

    complete_message = awaited(Synchronous.complete_message)
    abandon_message = awaited(Synchronous.abandon_message)
    dead_letter_message = awaited(Synchronous.dead_letter_message)
    defer_message = awaited(Synchronous.defer_message)
    renew_message_lock = awaited(Synchronous.renew_message_lock)
    close = awaited(Synchronous.close)

    async def _open(self, wait_s: float | None = None) -> None:
        self._receiving.check()
        if not self._receiving.is_open:
            found = await self._client._run(self._receiving.open(wait_s))
            await self._end(self._receiving.opened(self, found))

    async def _end(self, asked: Call[Any] | None) -> None:
        if asked is not None:
            with contextlib.suppress(ServiceBusError, ValueError):  # the lock ends with the client
                await self._client._run(asked)

    async def _run(self, asking: Callable[[], Call[Result]]) -> Result:
        """Do an operation, after the source is open."""
        await self._open()
        return await self._client._run(asking())

    async def _pull(
        self, asking: Callable[[], Call[Any]], wait_s: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        await self._open(wait_s)
        asked = asking()
        return self._receiving.received(self, await self._client._pull(asked))
