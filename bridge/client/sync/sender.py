"""The synchronous `ServiceBusSender`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bridge.client.batch import ServiceBusMessageBatch
from bridge.client.core.options import SenderOptions
from bridge.client.core.sending import ClientSending
from bridge.client.messages import Sendable

if TYPE_CHECKING:
    from bridge.client.sync.client import ServiceBusClient


class ServiceBusSender:
    """A sender to a queue or topic; made by a client."""

    def __init__(
        self, client: ServiceBusClient, entity_name: str, kind: str, options: SenderOptions
    ) -> None:
        self._client = client
        self._sending = ClientSending(entity_name, options)
        self.entity_name = entity_name
        self.client_identifier = self._sending.identifier
        self.__dict__[kind] = entity_name

    def __enter__(self) -> ServiceBusSender:
        self._client._run(self._sending.limit())
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    def send_messages(
        self,
        /,
        message: Sendable | ServiceBusMessageBatch | Iterable[Sendable],
        *,
        timeout: float | None = None,
    ) -> None:
        """Send messages; return after RabbitMQ's confirm. A list is stored whole or not at all.

        Raises:
            MessageSizeExceededError: a message, or all messages together, are too large.
            OutcomeUnknownError: the connection was lost before the confirm.
            ServiceBusError: see `bridge.client.exceptions`.
        """
        return self._client._run(self._sending.send(message, timeout))

    def schedule_messages(
        self,
        /,
        messages: Sendable | Iterable[Sendable],
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
    ) -> list[int]:
        """Send messages for later; return their sequence numbers."""
        return self._client._run(self._sending.schedule(messages, schedule_time_utc, timeout))

    def cancel_scheduled_messages(
        self,
        /,
        sequence_numbers: int | Iterable[int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Cancel scheduled messages, all of them or none.

        Raises:
            MessageNotFoundError: a message is not scheduled any more.
        """
        return self._client._run(self._sending.cancel(sequence_numbers, timeout))

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return an empty batch.

        Raises:
            ValueError: the size is above the entity's maximum message size.
        """
        return self._client._run(self._sending.batch(max_size_in_bytes))

    def close(self) -> None:
        """Close the sender."""
        self._sending.is_closed = True
