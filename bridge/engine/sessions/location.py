"""Where the owner of a shard's sessions is: in this process, or in another that is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine.peers import Peers
from bridge.engine.sessions.answers import answer
from bridge.engine.sessions.owner import SessionOwner
from bridge.model.errors import ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire import sessions as wire
from bridge.wire.basic import Table, long, text
from bridge.wire.reply import Done
from bridge.wire.sessions import Key


class Location(Protocol):
    """What can be asked of the owner of a shard's sessions."""

    def accept(self, key: Key, session_id: str | None, *, deletes: bool) -> None:
        """A receiver wants a session; it is told."""

    def add_credit(self, key: Key, count: int) -> None:
        """A receiver wants messages."""

    async def drain(self, key: Key) -> int:
        """A receiver wants no more; returns how many it was told of."""

    def close(self, key: Key, *, unused: bool) -> Awaitable[None]:
        """A receiver gives up; the owner hears of it in the order of the calls.

        Args:
            unused: no client has had the session.
        """

    async def ask(self, what: str, fields: Table) -> Done:
        """Ask what `answers.answer` carries out.

        Raises:
            Unroutable: the owner is gone.
            ServiceBusError: the answer.
        """


class Local:
    """It is this process."""

    def __init__(self, owner: SessionOwner) -> None:
        self._owner = owner

    def __repr__(self) -> str:
        return "Local()"

    def accept(self, key: Key, session_id: str | None, *, deletes: bool) -> None:
        """Accept a session."""
        self._owner.messages.accept(key, session_id, deletes=deletes)

    def add_credit(self, key: Key, count: int) -> None:
        """Add credit."""
        self._owner.messages.add_credit(key, count)

    async def drain(self, key: Key) -> int:
        """Take back credit; nothing is on its way."""
        self._owner.messages.drain(key)
        return 0

    def close(self, key: Key, *, unused: bool) -> Awaitable[None]:
        """End a lock."""
        self._owner.messages.close(key, unused=unused)
        return done()

    async def ask(self, what: str, fields: Table) -> Done:
        """Carry it out."""
        return await answer(self._owner, what, fields)


class Remote:
    """It is another process.

    Args:
        on_gone: called when it turns out that the process is gone.

    Attributes:
        bridge: that process, by name.
    """

    def __init__(
        self,
        bridge: bytes,
        path: EntityPath,
        shard: int,
        peers: Peers,
        on_gone: Callable[[bytes], None],
    ) -> None:
        self.bridge = bridge
        self._path = path
        self._shard = shard
        self._peers = peers
        self._on_gone = on_gone

    def __repr__(self) -> str:
        return f"Remote({self.bridge.hex()})"

    def accept(self, key: Key, session_id: str | None, *, deletes: bool) -> None:
        """Ask for a session."""
        fields: Table = {"deletes": long(int(deletes))}
        if session_id is not None:
            fields["session"] = text(session_id)
        self._post(wire.ACCEPT, key, fields)

    def add_credit(self, key: Key, count: int) -> None:
        """Add credit."""
        self._post(wire.CREDIT, key, {"count": long(count)})

    async def drain(self, key: Key) -> int:
        """Take back credit; what is on its way is counted."""
        return (await self.ask(wire.DRAIN, wire.of_receiver(key))).numbers[0]

    def close(self, key: Key, *, unused: bool) -> Awaitable[None]:
        """End a lock."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_posted(error: BrokerError | None) -> None:
            if not heard.done():
                heard.set_result(None)

        self._post(wire.CLOSE, key, {"unused": long(int(unused))}, on_posted)
        return heard

    async def ask(self, what: str, fields: Table) -> Done:
        """Ask it."""
        question = wire.question(what, str(self._path), self._shard, fields)
        try:
            return await self._peers.ask(self.bridge, question)
        except Unroutable:
            self._on_gone(self.bridge)
            raise

    def _post(
        self,
        what: str,
        key: Key,
        fields: Table,
        told: Callable[[BrokerError | None], None] = lambda error: None,
    ) -> None:
        question = wire.question(
            what, str(self._path), self._shard, {**wire.of_receiver(key), **fields}
        )
        posted = partial(self._posted, told)
        try:
            self._peers.post(self.bridge, question, posted)
        except (BrokerError, ServiceBusError):
            posted(BrokerError(text="not posted"))

    def _posted(
        self, told: Callable[[BrokerError | None], None], error: BrokerError | None
    ) -> None:
        told(error)
        if error is not None:
            # What was not said would be missed: the receivers there begin anew.
            asyncio.get_running_loop().call_soon(self._on_gone, self.bridge)


def done() -> asyncio.Future[None]:
    """Return what is done already; nobody has to await it."""
    found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    found.set_result(None)
    return found
