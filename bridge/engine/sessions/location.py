"""The location of a shard's owner: in this process, or in another one, by questions."""

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
    """The requests to the owner of a shard's sessions."""

    def accept(self, key: Key, session_id: str | None, *, deletes: bool) -> None:
        """Ask for a session for a receiver; an event is the answer.

        Args:
            deletes: messages are settled when `taken` says so.
        """

    def add_credit(self, key: Key, count: int) -> None:
        """Add credit for `count` messages of a receiver."""

    async def drain(self, key: Key) -> int:
        """Take back a receiver's credit; return the count of messages sent to it so far.

        An owner in this process returns 0: its messages have arrived already.
        """

    def taken(self, key: Key, number: int, error: str = "") -> None:
        """Settle a message of a receiver, by its event's number: the client has it.

        Args:
            error: why no client can have it: it becomes a dead letter.
        """

    def close(self, key: Key, *, unused: bool) -> Awaitable[None]:
        """End a receiver's lock or wait; the owner gets all calls in their order.

        Args:
            unused: no client has had the session.
        """

    async def ask(self, what: str, fields: Table) -> Done:
        """Send a request that `answers.answer` carries out; return its result.

        Raises:
            Unroutable: the owner is gone.
            ServiceBusError: the answer is this error.
        """


class Local:
    """An owner in this process."""

    def __init__(self, owner: SessionOwner) -> None:
        self._owner = owner

    def __repr__(self) -> str:
        return "Local()"

    def accept(self, key: Key, session_id: str | None, *, deletes: bool) -> None:
        """Ask for a session; the answer may come before this returns."""
        mode = wire.WHEN_TAKEN if deletes else wire.BY_TOKEN
        self._owner.messages.accept(key, session_id, deletes=mode)

    def add_credit(self, key: Key, count: int) -> None:
        """Add credit."""
        self._owner.messages.add_credit(key, count)

    async def drain(self, key: Key) -> int:
        """Take back credit; return 0, since no message is on its way."""
        self._owner.messages.drain(key)
        return 0

    def taken(self, key: Key, number: int, error: str = "") -> None:
        """Settle a message."""
        self._owner.messages.taken(key, number, error)

    def close(self, key: Key, *, unused: bool) -> Awaitable[None]:
        """End a lock."""
        self._owner.messages.close(key, unused=unused)
        return done()

    async def ask(self, what: str, fields: Table) -> Done:
        """Carry out a request."""
        return await answer(self._owner, what, fields)


class RemoteOwner:
    """An owner in another bridge.

    Args:
        on_gone: called with the bridge's name when a request does not reach it.

    Attributes:
        bridge: the bridge's name.
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
        return f"RemoteOwner({self.bridge.hex()})"

    def accept(self, key: Key, session_id: str | None, *, deletes: bool) -> None:
        """Ask for a session."""
        fields: Table = {"deletes": long(wire.WHEN_TAKEN if deletes else wire.BY_TOKEN)}
        if session_id is not None:
            fields["session"] = text(session_id)
        self._post(wire.ACCEPT, key, fields)

    def add_credit(self, key: Key, count: int) -> None:
        """Add credit."""
        self._post(wire.CREDIT, key, {"count": long(count)})

    async def drain(self, key: Key) -> int:
        """Take back credit; return the count of messages sent to the receiver so far."""
        return (await self.ask(wire.DRAIN, wire.of_receiver(key))).numbers[0]

    def taken(self, key: Key, number: int, error: str = "") -> None:
        """Settle a message."""
        fields: Table = {"number": long(number)}
        if error:
            fields["error"] = text(error)
        self._post(wire.TAKEN, key, fields)

    def close(self, key: Key, *, unused: bool) -> Awaitable[None]:
        """End a lock."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_posted(error: BrokerError | None) -> None:
            if not heard.done():
                heard.set_result(None)

        # Behind the settlements that were asked before: each is published in a task.
        fields: Table = {"unused": long(int(unused))}
        asyncio.get_running_loop().call_soon(self._post, wire.CLOSE, key, fields, on_posted)
        return heard

    async def ask(self, what: str, fields: Table) -> Done:
        """Send a request to the bridge; return the result."""
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
            # The bridge misses a request: all receivers of its sessions here begin anew.
            asyncio.get_running_loop().call_soon(self._on_gone, self.bridge)


def done() -> asyncio.Future[None]:
    """Return a future that is done; it need not be awaited."""
    found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    found.set_result(None)
    return found
