"""Receivers of sessions for tests: what a door would do with the engine's."""

from __future__ import annotations

import asyncio

from bridge.engine.api import (
    Disposition,
    Received,
    ReceiveMode,
    SessionReceiver,
)
from bridge.engine.clock import now_ms
from bridge.message.envelopes import Outgoing
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire import headers
from bridge.wire.basic import Properties, text
from bridge.wire.record import Record
from tests.integration.door import WAIT_S, Door

PATH = EntityPath("orders")


def of_session(session_id: str | None, body: str, *, ttl_ms: int | None = None) -> Outgoing:
    """A message of a session."""
    table = {} if session_id is None else {headers.SESSION_ID: text(session_id)}
    if ttl_ms is not None:
        table[headers.TIME_TO_LIVE] = ("l", ttl_ms)
    record = Record(Properties(message_id=body, headers=table, delivery_mode=2), body.encode())
    return Outgoing(record=record, size_bytes=len(body), session_id=session_id)


class SessionClient:
    """A client that has accepted a session, and keeps what it is given."""

    def __init__(self, door: Door, path: EntityPath = PATH) -> None:
        self.door = door
        self.path = path
        self.received: list[Received] = []
        self.lost: list[ServiceBusError] = []
        self._arrived = asyncio.Event()
        self.receiver: SessionReceiver

    async def accept(
        self,
        session_id: str | None = None,
        *,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        timeout_s: float = WAIT_S,
    ) -> SessionClient:
        """Accept a session, or the next one."""
        self.receiver = await self.door.namespace.accept_session(
            self.path,
            session_id,
            mode=mode,
            deliver=self._deliver,
            on_lost=self._on_lost,
            timeout_s=timeout_s,
        )
        return self

    def _deliver(self, received: Received) -> None:
        assert received.locked_until_ms is None or received.locked_until_ms > now_ms()
        self.received.append(received)
        if received.lock_token is None:
            self.receiver.taken()
        self._arrived.set()

    def _on_lost(self, error: ServiceBusError) -> None:
        self.lost.append(error)
        self._arrived.set()

    async def receive(self, count: int = 1) -> list[Received]:
        """Ask for messages, and return them when they are all there."""
        self.receiver.add_credit(count)
        return await self.wait(count)

    async def wait(self, count: int = 1) -> list[Received]:
        """Take this many messages off the list."""
        async with asyncio.timeout(WAIT_S):
            while len(self.received) < count:
                self._arrived.clear()
                await self._arrived.wait()
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    async def wait_for_loss(self) -> ServiceBusError:
        """Return why the lock has ended, once it has."""
        async with asyncio.timeout(WAIT_S):
            while not self.lost:
                self._arrived.clear()
                await self._arrived.wait()
        return self.lost[0]

    async def settle(self, received: Received, disposition: Disposition) -> None:
        """End a message's lock."""
        assert received.lock_token is not None
        await self.door.namespace.settle(self.path, received.lock_token, disposition)

    async def close(self) -> None:
        """Give the session up."""
        await self.receiver.close()


async def send(door: Door, session_id: str, *bodies: str, ttl_ms: int | None = None) -> None:
    """Send messages of a session, in order."""
    batch = [of_session(session_id, body, ttl_ms=ttl_ms) for body in bodies]
    await door.namespace.send(PATH, batch)


def bodies(received: list[Received]) -> list[str]:
    """What the messages say."""
    return [each.record.body.decode() for each in received]
