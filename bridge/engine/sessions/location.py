"""Where the owner of a shard's sessions is: in this process, or in another that is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import texts
from bridge.engine.peers import Peers
from bridge.engine.sessions.deletion import delete
from bridge.engine.sessions.owner import SessionOwner
from bridge.model.errors import ServerBusy, ServiceBusError, SessionLockLost
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

    async def renew(self, session_id: str) -> int:
        """Renew a lock; raises SessionLockLost."""

    async def check(self, session_id: str) -> None:
        """Raise SessionLockLost unless a session is held."""

    async def state(self, session_id: str) -> bytes | None:
        """Return a state; raises SessionLockLost."""

    async def store(self, session_id: str, state: bytes | None) -> None:
        """Store a state; raises SessionLockLost."""

    async def delete(self, session_id: str, count: int, before_ms: int) -> int:
        """Delete what waits in a session; raises SessionLockLost."""

    async def sessions(self, updated_after_ms: int | None) -> list[str]:
        """Return the ids of sessions, in order."""


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

    async def renew(self, session_id: str) -> int:
        """Renew a lock."""
        return self._owner.messages.renew(session_id)

    async def check(self, session_id: str) -> None:
        """Check a lock."""
        self._owner.messages.check(session_id)

    async def state(self, session_id: str) -> bytes | None:
        """Return a state."""
        self._owner.messages.check(session_id)
        return self._owner.stored.states.get(session_id)

    async def store(self, session_id: str, state: bytes | None) -> None:
        """Store a state."""
        self._owner.messages.check(session_id)
        try:
            await self._owner.stored.store(session_id, state)
        except BrokerError as error:
            raise ServerBusy(texts.busy(error)) from error

    async def delete(self, session_id: str, count: int, before_ms: int) -> int:
        """Delete what waits in a session."""
        await self._catch_up()
        return await delete(self._owner.messages, session_id, count, before_ms)

    async def sessions(self, updated_after_ms: int | None) -> list[str]:
        """Return the ids of sessions, in order."""
        await self._catch_up()
        states = self._owner.stored.states
        if updated_after_ms is None:
            return sorted({*self._owner.messages.machine.ids, *states.ids()})
        return sorted(states.ids(updated_after_ms))

    async def _catch_up(self) -> None:
        try:
            await self._owner.catch_up()
        except BrokerError as error:
            raise ServerBusy(texts.busy(error)) from error


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
        return (await self._ask(wire.DRAIN, wire.of_receiver(key))).numbers[0]

    def close(self, key: Key, *, unused: bool) -> Awaitable[None]:
        """End a lock."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_posted(error: BrokerError | None) -> None:
            if not heard.done():
                heard.set_result(None)

        self._post(wire.CLOSE, key, {"unused": long(int(unused))}, on_posted)
        return heard

    async def renew(self, session_id: str) -> int:
        """Renew a lock."""
        return (await self._of_session(wire.RENEW, session_id)).numbers[0]

    async def check(self, session_id: str) -> None:
        """Check a lock."""
        await self._of_session(wire.CHECK, session_id)

    async def state(self, session_id: str) -> bytes | None:
        """Return a state."""
        return wire.decode_state((await self._of_session(wire.GET_STATE, session_id)).content)

    async def store(self, session_id: str, state: bytes | None) -> None:
        """Store a state."""
        fields: Table = {} if state is None else {"state": ("x", state)}
        await self._of_session(wire.STORE, session_id, fields)

    async def delete(self, session_id: str, count: int, before_ms: int) -> int:
        """Delete what waits in a session."""
        fields: Table = {"count": long(count), "before": long(before_ms)}
        return (await self._of_session(wire.DELETE, session_id, fields)).numbers[0]

    async def sessions(self, updated_after_ms: int | None) -> list[str]:
        """Return the ids of sessions, in order."""
        after_ms = -1 if updated_after_ms is None else updated_after_ms
        found = (await self._ask(wire.LIST, {"after": long(after_ms)})).content
        return [str(each) for each in json.loads(found)]

    async def _of_session(self, what: str, session_id: str, fields: Table | None = None) -> Done:
        try:
            return await self._ask(what, {"session": text(session_id), **(fields or {})})
        except Unroutable as error:
            raise SessionLockLost(texts.SESSION_LOCK_LOST) from error

    async def _ask(self, what: str, fields: Table) -> Done:
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
