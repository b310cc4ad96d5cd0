"""A bridge in a process of its own, whose clients receive sessions, so that tests can kill it.

    python -m tests.crash.session_worker URL MANAGEMENT_URL

Prints an event a line (JSON) before it goes on: `given`, `got`, `settling`, `settled`, `stored`,
`closing`, `lost`. Each has the session and the time; the reader of a line knows what had happened.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import dataclass, field

from bridge.broker.connection.endpoint import parse_url
from bridge.engine.api import (
    Abandon,
    Complete,
    Disposition,
    Received,
    ReceiveMode,
    Release,
    SessionReceiver,
)
from bridge.engine.clock import now_ms
from bridge.model.errors import OperationTimeout, ServiceBusError
from bridge.model.name import EntityPath
from tests.crash.test_sessions import QUEUE
from tests.integration.door import Door, open_door

PATH = EntityPath("orders")
CLIENTS = 6


def say(what: str, session_id: str, **fields: object) -> None:
    """Print an event."""
    print(json.dumps({"what": what, "session": session_id, "at": now_ms(), **fields}), flush=True)


@dataclass
class Client:
    """One receiver of one session."""

    door: Door
    chance: random.Random
    received: asyncio.Queue[Received] = field(default_factory=asyncio.Queue)
    is_lost: bool = False
    highest: int = 0
    receiver: SessionReceiver = field(init=False)

    async def work(self) -> None:
        """Accept a session, receive some of it, give it up."""
        namespace = self.door.namespace
        self.receiver = await namespace.accept_session(
            PATH,
            None,
            mode=ReceiveMode.PEEK_LOCK,
            deliver=self.deliver,
            on_lost=self.on_lost,
            timeout_s=2,
        )
        session_id = self.receiver.session_id
        say("given", session_id, receiver=id(self))
        state = await namespace.session_state(PATH, session_id)
        self.highest = int(state or b"0")
        say("state", session_id, value=self.highest)
        self.receiver.add_credit(self.chance.randint(1, 8))
        for _ in range(self.chance.randint(1, 8)):
            async with asyncio.timeout(0.3):
                await self.settle(session_id, await self.received.get())

    def deliver(self, received: Received) -> None:
        """A message comes."""
        say(
            "got",
            self.receiver.session_id,
            receiver=id(self),
            number=received.sequence_number,
            body=received.record.body.decode(),
            count=received.delivery_count,
        )
        self.received.put_nowait(received)

    def on_lost(self, error: ServiceBusError) -> None:
        """The lock has ended."""
        self.is_lost = True
        say("lost", self.receiver.session_id, receiver=id(self))

    async def settle(self, session_id: str, received: Received) -> None:
        """Complete a message mostly; the session's state is the highest number so far, at times."""
        how: Disposition = self.chance.choice((Complete(),) * 7 + (Abandon(), Release()))
        name, number = type(how).__name__, received.sequence_number
        say("settling", session_id, number=number, how=name)
        assert received.lock_token is not None
        await self.door.namespace.settle(PATH, received.lock_token, how)
        say("settled", session_id, number=number, how=name)
        if name == "Complete" and self.chance.random() < 0.3:
            self.highest = max(self.highest, number)
            state = str(self.highest).encode()
            await self.door.namespace.set_session_state(PATH, session_id, state)
            say("stored", session_id, value=self.highest)

    async def close(self) -> None:
        """Give the session up."""
        if hasattr(self, "receiver") and not self.is_lost:
            say("closing", self.receiver.session_id, receiver=id(self))
            await self.receiver.close()


async def clients(door: Door, chance: random.Random) -> None:
    """Receive one session after the other."""
    while True:
        client = Client(door, chance)
        try:
            await client.work()
        except (TimeoutError, OperationTimeout):
            pass
        except ServiceBusError as error:
            print(json.dumps({"what": "error", "text": str(error)}), flush=True)
            await asyncio.sleep(0.1)
        finally:
            await client.close()


async def main(url: str, management_url: str) -> None:
    """Work until killed."""
    async with open_door(parse_url(url), management_url, QUEUE) as door:
        print(json.dumps({"what": "ready"}), flush=True)
        await asyncio.gather(*(clients(door, random.Random(n)) for n in range(CLIENTS)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
