"""The asynchronous `ServiceBusSender`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.client.aio.awaited import awaited
from bridge.client.core.options import SenderOptions
from bridge.client.core.sending import ClientSending
from bridge.client.sync.sender import ServiceBusSender as Synchronous

if TYPE_CHECKING:
    from bridge.client.aio.client import ServiceBusClient


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

    async def __aenter__(self) -> ServiceBusSender:
        await self._client._run(self._sending.limit())
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self.close()

    def __str__(self) -> str:
        return f"Sender client id: {self.client_identifier}, entity: {self.entity_name}"

    send_messages = awaited(Synchronous.send_messages)
    schedule_messages = awaited(Synchronous.schedule_messages)
    cancel_scheduled_messages = awaited(Synchronous.cancel_scheduled_messages)
    create_message_batch = awaited(Synchronous.create_message_batch)

    async def close(self) -> None:
        """Close the sender."""
        self._sending.is_closed = True
