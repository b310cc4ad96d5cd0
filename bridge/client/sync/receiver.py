"""The synchronous `ServiceBusReceiver`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.received import Received
from bridge.client.core.refusals import unsupported
from bridge.client.messages import (
    ServiceBusReceivedMessage,
    instant,
    received_messages,
    settleable,
)
from bridge.model.name import SubQueue

if TYPE_CHECKING:
    from bridge.client.sync.client import ServiceBusClient


class ServiceBusReceiver:
    """Receives from a queue or subscription; made by a client. Iterating gives each message."""

    def __init__(
        self,
        client: ServiceBusClient,
        entity_path: str,
        sub_queue: SubQueue,
        receive_mode: ServiceBusReceiveMode,
        max_wait_time: float | None,
        auto_lock_renewer: Any,
        options: dict[str, Any],
    ) -> None:
        if max_wait_time is not None and max_wait_time <= 0:
            raise ValueError("The max_wait_time must be greater than 0.")
        if auto_lock_renewer is not None and receive_mode is not ServiceBusReceiveMode.PEEK_LOCK:
            raise ValueError("Messages received in RECEIVE_AND_DELETE mode have no locks to renew.")
        self._client = client
        self._sub_queue = sub_queue
        self._mode = receive_mode
        self._max_wait_s = max_wait_time
        self._renewer = auto_lock_renewer
        self._is_closed = False
        self._next_peek = 1
        self.entity_path = entity_path
        self.client_identifier = options.get("client_identifier") or f"SBReceiver-{uuid4()}"

    def __enter__(self) -> ServiceBusReceiver:
        self._check()
        self._client._run("check", self.entity_path, is_receiving=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[ServiceBusReceivedMessage]:
        return self

    def __next__(self) -> ServiceBusReceivedMessage:
        found = self.receive_messages(1, self._max_wait_s)
        if not found:
            raise StopIteration
        return found[0]

    def __str__(self) -> str:
        return f"Receiver client id: {self.client_identifier}, entity: {self.entity_path}"

    @property
    def session(self) -> Any:
        """Not here."""
        unsupported("sessions")

    def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Receive up to so many messages.

        Args:
            max_wait_time: seconds to wait for the first; by default the receiver's, else no end.
        """
        self._check()
        if max_wait_time is not None and max_wait_time <= 0:
            raise ValueError("The max_wait_time must be greater than 0.")
        if max_message_count is not None and max_message_count <= 0:
            raise ValueError("The max_message_count must be greater than 0")
        wait_s = max_wait_time or self._max_wait_s
        asked = self.entity_path, self._sub_queue, max_message_count or 1, wait_s, self._mode
        return self._registered(self._client._pull(asked))

    def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> list[ServiceBusReceivedMessage]:
        """Return messages without locking any: from a number on, or behind those peeked last."""
        self._check(timeout)
        if max_message_count < 1:
            raise ValueError("max_message_count must be 1 or greater.")
        asked = self.entity_path, self._sub_queue, sequence_number or self._next_peek
        found = self._client._run("peek", *asked, max_message_count, timeout_s=timeout)
        if found:
            self._next_peek = found[-1].sequence_number + 1
        return list(received_messages(found, is_peeked=True))

    def receive_deferred_messages(
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
        self._check(timeout)
        given = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        if not given:
            return []
        asked = self.entity_path, self._sub_queue, given, self._mode
        found = self._client._run(
            "receive_deferred", *asked, timeout_s=timeout, is_tried_again=False
        )
        return self._registered(found)

    def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Settle a message for good.

        Raises:
            MessageLockLostError: its lock has ended; it will come again.
        """
        self._settle("complete", message)

    def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Give a message back, one more on its count."""
        self._settle("abandon", message)

    def dead_letter_message(
        self,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        error_description: str | None = None,
    ) -> None:
        """Move a message to the dead-letter sub-queue."""
        self._settle("dead-letter", message, reason, error_description)

    def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """Set a message aside; it is received by its sequence number only."""
        self._settle("defer", message)

    def renew_message_lock(
        self, message: ServiceBusReceivedMessage, *, timeout: float | None = None, **options: Any
    ) -> datetime:
        """Give a message's lock its full duration from now; return its end."""
        self._check(timeout)
        token = settleable(message, self._mode)
        until_ms = self._client._run(
            "renew", self.entity_path, self._sub_queue, token, timeout_s=timeout, is_receiving=True
        )
        message._until_ms = until_ms
        return instant(until_ms)

    def close(self) -> None:
        """Receive nothing more; locks stay until they end or the client is closed."""
        self._is_closed = True

    def _registered(self, found: list[Received]) -> list[ServiceBusReceivedMessage]:
        messages = list(received_messages(found))
        if self._renewer is not None:
            for message in messages:
                self._renewer.register(self, message)
        return messages

    def _settle(
        self,
        how: str,
        message: ServiceBusReceivedMessage,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        self._check()
        token = settleable(message, self._mode)
        asked = self.entity_path, self._sub_queue, token, how, reason, description
        self._client._run("settle", *asked, is_receiving=True, is_tried_again=False)
        message._is_settled = True

    def _check(self, timeout: float | None = None) -> None:
        if self._is_closed:
            raise ValueError("The handler has already been shutdown. Make another one.")
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
