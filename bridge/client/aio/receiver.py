"""The asynchronous `ServiceBusReceiver`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bridge.client.aio.session import ServiceBusSession
from bridge.client.core.call import Call, numbers_of
from bridge.client.core.receiving import Receiving, renewed
from bridge.client.exceptions import ServiceBusError
from bridge.client.received_message import ServiceBusReceivedMessage

if TYPE_CHECKING:
    from bridge.client.aio.client import ServiceBusClient


class ServiceBusReceiver:
    """Receives from a queue or subscription; made by a client. Iterating gives each message."""

    def __init__(self, client: ServiceBusClient, entity_path: str, receiving: Receiving) -> None:
        self._client = client
        self._receiving = receiving
        self.entity_path = entity_path
        self.client_identifier = receiving.identifier
        source = receiving.session
        self._session = None if source is None else ServiceBusSession(source, self._run)

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
        """The session; `None` where there is none."""
        return self._session

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive up to so many messages.

        Args:
            max_wait_time: seconds to wait for the first; by default the receiver's, else 60.
        """
        return await self._pull(
            lambda: self._receiving.pull(max_message_count, max_wait_time), max_wait_time
        )

    async def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> list[ServiceBusReceivedMessage]:
        """Return messages without locking any: from a number on, or behind those peeked last."""
        return self._receiving.peeked(
            await self._run(
                lambda: self._receiving.peek(max_message_count, sequence_number, timeout)
            )
        )

    async def receive_deferred_messages(
        self,
        sequence_numbers: int | Iterable[int],
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> list[ServiceBusReceivedMessage]:
        """Receive messages that were deferred, by their sequence numbers: all of them or none.

        Raises:
            MessageNotFoundError: one of them is not there, or is locked.
        """
        given = numbers_of(sequence_numbers)
        found = await self._run(lambda: self._receiving.deferred(given, timeout)) if given else []
        return self._receiving.received(self, found)

    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Settle a message for good.

        Raises:
            MessageLockLostError: its lock has ended; it will come again.
        """
        await self._settle("complete", message)

    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Give a message back, one more on its count."""
        await self._settle("abandon", message)

    async def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
    ) -> None:
        """Move a message to the dead-letter sub-queue."""
        await self._settle("dead-letter", message, reason, error_description)

    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """Set a message aside; it is received by its sequence number only."""
        await self._settle("defer", message)

    async def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **options: Any
    ) -> datetime:
        """Give a message's lock its full duration from now; return its end."""
        return renewed(message, await self._run(lambda: self._receiving.renew(message, timeout)))

    async def close(self) -> None:
        """Receive nothing more; locks stay until they end or the client is closed.

        A session's lock ends, and those of its messages.
        """
        await self._end(self._receiving.close())

    async def _open(self, wait_s: float | None = None) -> None:
        self._receiving.check()
        if not self._receiving.is_open:
            found = await self._client._run(self._receiving.open(wait_s))
            await self._end(self._receiving.opened(self, found))

    async def _end(self, asked: Call | None) -> None:
        if asked is not None:
            with contextlib.suppress(ServiceBusError, ValueError):  # it ends with the client
                await self._client._run(asked)

    async def _run(self, asking: Callable[[], Call]) -> Any:
        """Have something carried out, when there is something to receive from."""
        await self._open()
        return await self._client._run(asking())

    async def _pull(
        self, asking: Callable[[], Call], wait_s: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        await self._open(wait_s)
        asked = asking()
        return self._receiving.received(
            self, await self._client._pull(asked, self._receiving.put_back)
        )

    async def _settle(
        self,
        how: str,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        await self._client._run(self._receiving.settle(message, how, reason, description))
        message._is_settled = True
