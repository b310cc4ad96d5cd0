"""The synchronous `ServiceBusReceiver`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.client.core.call import Call, numbers_of
from bridge.client.core.receiving import ClientReceiving
from bridge.client.exceptions import ServiceBusError
from bridge.client.received_message import ServiceBusReceivedMessage
from bridge.client.sync.session import ServiceBusSession

if TYPE_CHECKING:
    from bridge.client.sync.client import ServiceBusClient

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

    def __enter__(self) -> ServiceBusReceiver:
        self._open()
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        found = self._pull(self._receiving.next)
        if not found:
            raise StopIteration
        return found[0]

    def next(self) -> ServiceBusReceivedMessage:
        """Return the next message, as iteration does."""
        return next(self)

    def __str__(self) -> str:
        return f"Receiver client id: {self.client_identifier}, entity: {self.entity_path}"

    @property
    def session(self) -> Any:
        """The session; `None` for a receiver without sessions."""
        return self._session

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive up to `max_message_count` messages.

        Args:
            max_wait_time: seconds to wait for the first message; by default the receiver's, else
                60.
        """
        return self._pull(
            lambda: self._receiving.pull(max_message_count, max_wait_time), max_wait_time
        )

    def peek_messages(
        self,
        /,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
    ) -> list[ServiceBusReceivedMessage]:
        """Return messages without locks: from a number on, or behind the last peeked message."""
        return self._run(lambda: self._receiving.peek(max_message_count, sequence_number, timeout))

    def receive_deferred_messages(
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
        found = self._run(lambda: self._receiving.deferred(given, timeout)) if given else []
        return self._receiving.received(self, found)

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Complete a message: remove the message for good.

        Raises:
            MessageLockLostError: the lock has ended; the message comes again.
        """
        return self._client._run(self._receiving.settle(message, "complete"))

    def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Return a message; its delivery count grows."""
        return self._client._run(self._receiving.settle(message, "abandon"))

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
    ) -> None:
        """Move a message to the dead-letter sub-queue."""
        return self._client._run(
            self._receiving.settle(message, "dead-letter", reason, error_description)
        )

    def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """Defer a message: it can then be received by its sequence number only."""
        return self._client._run(self._receiving.settle(message, "defer"))

    def renew_message_lock(
        self, /, message: ServiceBusReceivedMessage, *, timeout: float | None = None
    ) -> datetime:
        """Give a message's lock its full duration from now; return its end."""
        return self._run(lambda: self._receiving.renew(message, timeout))

    def close(self) -> None:
        """Close the receiver; locks stay until they end or the client is closed.

        A session's lock and those of its messages end.
        """
        return self._end(self._receiving.close())

    def _open(self, wait_s: float | None = None) -> None:
        self._receiving.check()
        if not self._receiving.is_open:
            found = self._client._run(self._receiving.open(wait_s))
            self._end(self._receiving.opened(self, found))

    def _end(self, asked: Call[Any] | None) -> None:
        if asked is not None:
            with contextlib.suppress(ServiceBusError, ValueError):  # the lock ends with the client
                self._client._run(asked)

    def _run(self, asking: Callable[[], Call[Result]]) -> Result:
        """Do an operation, after the source is open."""
        self._open()
        return self._client._run(asking())

    def _pull(
        self, asking: Callable[[], Call[Any]], wait_s: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        self._open(wait_s)
        asked = asking()
        return self._receiving.received(self, self._client._pull(asked))
