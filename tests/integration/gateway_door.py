"""A gateway on a bridge's engine, with a RabbitMQ behind it, and raw AMQP 1.0 clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bridge.access.access import Access
from bridge.gateway.client.settings import GatewaySettings
from bridge.gateway.server import Gateway
from bridge.model.access_rules import AccessRuleSet
from bridge.wire.amqp10.message import AmqpMessage, decode_message, encode_message
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Source,
    Transfer,
)
from bridge.wire.amqp10.types import Described, Symbol, read_value
from tests.conformance.client import Client, sas
from tests.conformance.door import ROOT_RULE
from tests.fixtures.listening import free_listener
from tests.integration.door import Door

PATIENCE_S = 120.0

FILTER = Symbol("com.microsoft:session-filter")
HEADER = 0x70
SETTLED = 1
"""snd-settle-mode of a receive-and-delete link."""


@dataclass
class Served:
    """A gateway, and its port."""

    door: Door
    gateway: Gateway
    port: int


@asynccontextmanager
async def serve(door: Door, access: Access | None = None, **settings: Any) -> AsyncIterator[Served]:
    """Serve a bridge's entities over AMQP 1.0, by default to whoever has the well-known key."""
    access = access or Access(AccessRuleSet(namespace=(ROOT_RULE,)))
    gateway = Gateway(door.namespace, access, GatewaySettings(**settings))
    port = await gateway.listen(free_listener())
    try:
        yield Served(door, gateway, port)
    finally:
        await gateway.stop()


class Peer(Client):
    """A client that has put a token; it waits patiently.

    Attributes:
        locked: a transfer whose message the test holds locked.
    """

    locked: Transfer

    async def until(self, holds: Any, *, within_s: float = PATIENCE_S) -> Any:
        """Wait until something holds, and return it."""
        return await super().until(holds, within_s=within_s)

    def receive_from(
        self, handle: int, address: str, *session: str | None, deletes: bool = False
    ) -> None:
        """Ask for a receiver: of a plain entity, of a named session, or (`None`) of the next."""
        source = Source(address, filter=dict.fromkeys([FILTER], *session) if session else None)
        mode = SETTLED if deletes else 0
        self.attach(handle, address, role=True, source=source, snd_settle_mode=mode)

    async def drained(self, handle: int) -> Any:
        """Wait for a flow that gives all credit back."""
        return await self.next(Flow, handle=handle, drain=True, link_credit=0)

    async def bodies(self, handle: int, count: int) -> list[str]:
        """Wait for so many messages and settle them; return what they say, in their order."""
        return [(await self.message(handle))[0] for _ in range(count)]

    async def message(self, handle: int) -> tuple[str, int]:
        """Wait for a message and complete it, unless it is settled; return text and count."""
        transfer, payload = await self.next(Transfer, handle=handle)
        more = transfer.more
        while more:
            part, rest = await self.next(Transfer, handle=handle)
            payload, more = payload + rest, part.more
        if not transfer.settled:
            await self.complete(transfer.delivery_id)
        header, _ = read_value(payload, 0)
        counts = isinstance(header, Described) and header.descriptor == HEADER
        return str(decode_message(payload).value), (header.value[4] or 0) if counts else 0

    def came(self, handle: int) -> int:
        """Return the count of transfers that came on a link and were not asked for."""
        return sum(isinstance(each, Transfer) and each.handle == handle for each, _ in self.frames)

    async def send_texts(
        self, address: str, texts: list[str], session_id: str | None = None, *, handle: int = 90
    ) -> None:
        """Send messages in this order, and wait until all are stored."""
        self.attach(handle, address, role=False)
        await self.next(Attach, handle=handle)
        numbers = []
        for text in texts:
            properties = MessageProperties(message_id=text, group_id=session_id)
            numbers.append(
                self.transfer(handle, encode_message(AmqpMessage(properties, value=text)))
            )
        for number in numbers:
            await self.outcome(number)
        await self.detach(handle)

    async def detach(self, handle: int) -> None:
        """Give a link up, and wait until its handle is free."""
        self.send_detach(handle)
        await self.next(Detach, handle=handle)

    async def complete(self, number: int) -> None:
        """Complete a message by its delivery id."""
        self.send(Disposition(True, number, None, False, Accepted()))
        assert await self.outcome(number) == Accepted()


@asynccontextmanager
async def peer(served: Served) -> AsyncIterator[Peer]:
    """Connect, and put a token for everything."""
    connected = await Peer.connect(served.port)
    assert isinstance(connected, Peer)
    await connected.open()
    try:
        assert await connected.put_token(sas()) == 202
        yield connected
    finally:
        await connected.close()
