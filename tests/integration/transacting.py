"""A bridge without its AMQP 1.0 door whose client transacts; in a process of its own, to be killed.

    python -m tests.integration.transacting URL MANAGEMENT_URL [SESSION]

The process receives a message of the queue `orders`; in one transaction it completes that, and
sends another one. Of a session it also sets the state, whose owner it is, from `old` to `new`. It
leads no entity.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from bridge.broker.connection.endpoint import Endpoint, parse_url
from bridge.engine.api import Complete, Disposition, Received
from bridge.engine.transaction_verbs import (
    PinnedLock,
    PinnedSession,
    PreparedSchedule,
    TransactionWork,
)
from bridge.engine.transactions.state_pins import StatePin
from bridge.engine.transactions.transacting import Transacting
from bridge.model import entity as model
from bridge.model.name import EntityPath
from bridge.wire import commits
from tests.fixtures.waiting import until
from tests.integration.door import Door, open_door, outgoing
from tests.integration.session_door import SessionClient, of_session


@asynccontextmanager
async def member(
    endpoint: Endpoint, management_url: str, *queues: model.Queue, with_sidecar: bool = True
) -> AsyncIterator[Door]:
    """Start a bridge that tells the others what it knows."""
    async with open_door(
        endpoint, management_url, *queues, with_sidecar=with_sidecar, session_shards=1
    ) as opened:
        telling = asyncio.create_task(opened.namespace.membership.run())
        try:
            await until(lambda: opened.namespace.membership.knows(commits.FEATURE))
            yield opened
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


class TransactionClient:
    """A transaction as a gateway has it."""

    def __init__(self, door: Door, path: EntityPath | None = None) -> None:
        self.verbs: Transacting = door.namespace.transactions
        self.path = path or door.path
        self.settlements: list[tuple[PinnedLock, Disposition]] = []
        self.sends: list[str] = []
        self.cancels: list[int] = []
        self.states: list[PinnedSession] = []
        self.session_id: str | None = None
        self.schedules: list[PreparedSchedule] = []
        self.identity = os.urandom(16)

    async def settle(
        self, received: Received, disposition: Disposition, path: EntityPath | None = None
    ) -> None:
        """Pin a message's lock."""
        assert received.lock_token is not None
        pin = await self.verbs.pin(path or self.path, received.lock_token)
        self.settlements.append((pin, disposition))

    async def set_state(self, session_id: str, state: bytes | None) -> None:
        """Pin a session, to give it a state."""
        pin = await self.verbs.set_state(self.identity, self.path, session_id, state)
        self.states.append(pin)

    @property
    def pins(self) -> list[StatePin]:
        """The pins of sessions, as the engine knows them."""
        return [each for each in self.states if isinstance(each, StatePin)]

    async def schedule(self, *bodies: str, after_ms: int) -> list[int]:
        """Schedule messages; return their numbers."""
        due_ms = int(time.time() * 1000) + after_ms
        batch = [replace(outgoing(each), scheduled_ms=due_ms) for each in bodies]
        found = await self.verbs.reserve(self.path, batch)
        self.schedules.append(found)
        return list(found.numbers)

    def work(self) -> TransactionWork:
        """Return what a commit carries."""
        batch = [
            outgoing(each) if self.session_id is None else of_session(self.session_id, each)
            for each in self.sends
        ]
        sends = [self.verbs.prepare(self.path, self.path, [each]) for each in batch]
        return TransactionWork(
            identity=self.identity,
            pinned=self.path,
            sends=sends,
            settlements=self.settlements,
            cancels=self.cancels,
            states=self.states,
            schedules=self.schedules,
        )

    async def commit(self) -> None:
        """Carry out all, or nothing."""
        await self.verbs.commit(self.work())


async def main(url: str, management_url: str, session_id: str = "") -> None:
    """Commit a transaction."""
    async with member(parse_url(url), management_url, with_sidecar=False) as door:
        await until(lambda: bool(door.namespace.directory.namespace.queues))
        transaction = TransactionClient(door)
        if session_id:
            client = await SessionClient(door).accept(session_id)
            (received,) = await client.receive()
            await door.namespace.set_session_state(door.path, session_id, b"old")
            await transaction.set_state(session_id, b"new")
            transaction.session_id = session_id
        else:
            (received,) = await door.client().receive()
        await transaction.settle(received, Complete())
        transaction.sends = ["new"]
        await transaction.commit()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
