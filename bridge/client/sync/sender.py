"""The synchronous `ServiceBusSender`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.client.messages import (
    Sendable,
    ServiceBusMessageBatch,
    all_encoded,
    milliseconds,
)

if TYPE_CHECKING:
    from bridge.client.sync.client import ServiceBusClient


class ServiceBusSender:
    """Sends to a queue or topic; made by a client."""

    def __init__(
        self, client: ServiceBusClient, entity_name: str, kind: str, options: dict[str, Any]
    ) -> None:
        self._client = client
        self._is_closed = False
        self.entity_name = entity_name
        self.client_identifier = options.get("client_identifier") or f"SBSender-{uuid4()}"
        self.__dict__[kind] = entity_name

    def __enter__(self) -> ServiceBusSender:
        self._check()
        self._client._run("message_bytes_max", self.entity_name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    def send_messages(
        self,
        message: Sendable | ServiceBusMessageBatch | Iterable[Sendable],
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        """Send; returns when RabbitMQ has confirmed it. A list is stored as a whole or not at all.

        Raises:
            MessageSizeExceededError: a message, or all together, are too large.
            OutcomeUnknownError: the connection was lost before the confirm.
            ServiceBusError: see `bridge.client.exceptions`.
        """
        self._check(timeout)
        self._client._run("send", self.entity_name, all_encoded(message)[0], timeout_s=timeout)

    def schedule_messages(
        self,
        messages: Sendable | Iterable[Sendable],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> list[int]:
        """Send messages for later; return their sequence numbers."""
        self._check(timeout)
        batch, due_ms = all_encoded(messages)[0], milliseconds(schedule_time_utc)
        found = self._client._run("schedule", self.entity_name, batch, due_ms, timeout_s=timeout)
        return list(found)

    def cancel_scheduled_messages(
        self,
        sequence_numbers: int | Iterable[int],
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        """Remove scheduled messages, all of them or none.

        Raises:
            MessageNotFoundError: one of them is not scheduled any more.
        """
        self._check(timeout)
        given = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        self._client._run("cancel", self.entity_name, given, timeout_s=timeout)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return an empty batch.

        Raises:
            ValueError: it would be larger than the entity's largest message.
        """
        self._check()
        most = self._client._run("message_bytes_max", self.entity_name)
        if max_size_in_bytes is not None and max_size_in_bytes > most:
            raise ValueError(
                f"Max message size should be less than {most} bytes, not {max_size_in_bytes}."
            )
        return ServiceBusMessageBatch(max_size_in_bytes or most)

    def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True

    def _check(self, timeout: float | None = None) -> None:
        if self._is_closed:
            raise ValueError("The handler has already been shutdown. Make another one.")
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
