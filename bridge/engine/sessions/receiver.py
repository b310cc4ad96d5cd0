"""One client's receiver of one session; the session's owner may be in another bridge."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from uuid import UUID

from bridge.engine import texts
from bridge.engine.api import Deliver, ReceiveMode, Undeliverable
from bridge.engine.receiving.receiver import note_failed
from bridge.engine.sessions.events import Event, SessionGiven, SessionLost, SessionMessage
from bridge.engine.sessions.location import Location, done
from bridge.model.errors import ServerBusy, ServiceBusError, SessionLockLost
from bridge.model.name import EntityPath
from bridge.model.session_id import fold
from bridge.topology.shards import SessionKey
from bridge.wire.sessions import Key

ARRIVE_S = 5.0
"""The longest wait for messages that another bridge has sent."""


class SessionReceiver:
    """See `api.SessionReceiver`.

    Args:
        key: the receiver's name for the shard's owner: its bridge, and a number.
        path: the entity's path.
        shard: the shard that has the session, or is asked for one.
        on_closed: called when the receiver has ended.
        on_undeliverable: called with the lock token of a message that no client can have.

    Attributes:
        mode: whether messages are locked, or settled when the client has them.
        at: the location of the shard's owner, once it has been asked.
        session_id: the session that the owner has given; empty before.
        locked_until_ms: the end of the session's lock (UTC ms), as this process knows it.
        is_accepted: the client has this receiver and its session.
        lock_has_expired: the session's lock has ended at its instant.
    """

    def __init__(
        self,
        key: Key,
        path: EntityPath,
        shard: int,
        mode: ReceiveMode,
        deliver: Deliver,
        on_lost: Callable[[ServiceBusError], None],
        *,
        on_closed: Callable[[SessionReceiver], None],
        on_undeliverable: Callable[[EntityPath, UUID, Undeliverable], None],
    ) -> None:
        self.key = key
        self.path = path
        self.shard = shard
        self.mode = mode
        self.at: Location | None = None
        self.session_id = ""
        self.locked_until_ms = 0
        self.is_accepted = False
        self.lock_has_expired = False
        self._deliver = deliver
        self._on_lost = on_lost
        self._on_closed = on_closed
        self._on_undeliverable = on_undeliverable
        self._told = 0
        self._untaken: deque[int] = deque()
        self._arrived = asyncio.Event()
        self._answer: asyncio.Future[Event] | None = None
        self._is_given = False
        self._is_over = False

    def __repr__(self) -> str:
        return f"SessionReceiver({self.path}, {self.session_id!r}, {self.at!r})"

    @property
    def session_key(self) -> SessionKey:
        """Return the key of the given session among the entity's sessions."""
        return SessionKey(self.shard, fold(self.session_id))

    @property
    def has_session(self) -> bool:
        """Return whether the owner has given a session, which has not been lost since."""
        return self._is_given

    @property
    def is_asked(self) -> bool:
        """Whether the owner has been asked for a session, and the answer was not taken yet."""
        return self._answer is not None

    def ask(self, at: Location, session_id: str | None) -> None:
        """Ask the owner at a location for a session; `None` means the next one."""
        self.at = at
        self._told, self._is_given = 0, False
        self._untaken.clear()
        self._answer = asyncio.get_running_loop().create_future()
        at.accept(self.key, session_id, deletes=self.mode is ReceiveMode.RECEIVE_AND_DELETE)

    async def answer(self) -> Event:
        """Wait for the owner's answer, and return it."""
        assert self._answer is not None
        try:
            return await self._answer
        finally:
            self._answer = None

    def accepted(self) -> bool:
        """Return whether the given session is still held; if so, its loss is reported from now."""
        self.is_accepted = self._is_given
        return self.is_accepted

    def on_event(self, event: Event) -> None:
        """Handle an event from the owner."""
        if self._is_over:
            return
        if isinstance(event, SessionMessage):
            self._on_message(event)
            return
        if isinstance(event, SessionGiven):
            self.session_id, self.locked_until_ms = event.session_id, event.until_ms
            self._is_given = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(event)
        elif isinstance(event, SessionLost) and not self.is_accepted:
            self._is_given = False
        elif isinstance(event, SessionLost):
            self.lock_has_expired = not event.has_moved
            self._end()
            self._tell_lost()

    def add_credit(self, count: int) -> None:
        """Ask for `count` more messages."""
        if count > 0 and not self._is_over and self.at is not None:
            self.at.add_credit(self.key, count)

    async def drain(self) -> None:
        """Take back the credit that the session's messages have not used up."""
        await self.withdraw()

    async def withdraw(self) -> None:
        """Take back all credit; return after the last message on its way, or `ARRIVE_S`."""
        if self._is_over or self.at is None:
            return
        with contextlib.suppress(ServiceBusError, TimeoutError):
            told = await self.at.drain(self.key)
            async with asyncio.timeout(ARRIVE_S):
                while self._told < told and not self._is_over:
                    self._arrived.clear()
                    await self._arrived.wait()

    def taken(self) -> None:
        """Settle the received-and-deleted message that was delivered first."""
        if self._untaken and self.at is not None:
            self.at.taken(self.key, self._untaken.popleft())

    def close(self) -> Awaitable[None]:
        """End the session's lock; nothing is delivered from the call on."""
        return self._close(unused=False)

    def give_up(self) -> None:
        """Stop waiting; give a session that no client has had back as unused."""
        self._close(unused=True)

    def _close(self, *, unused: bool) -> Awaitable[None]:
        at = self.at
        if self._is_over or at is None:
            self._end()
            return done()
        self._end()
        return at.close(self.key, unused=unused)

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._arrived.set()
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(ServerBusy(texts.SERVER_BUSY))
                self._answer.exception()
            self._on_closed(self)

    def _on_message(self, event: SessionMessage) -> None:
        """Give the client a message; a receiver that fails ends, and the message goes back."""
        received = event.received
        self._told += 1
        self._arrived.set()
        if event.number:
            self._untaken.append(event.number)
        try:
            self._deliver(received)
        except Undeliverable as error:
            if event.number and self.at is not None:
                self.at.taken(self.key, self._untaken.pop(), str(error))
            elif received.lock_token is not None:
                self._on_undeliverable(self.path, received.lock_token, error)
        except Exception as error:
            note_failed(self.path, error)
            if not self._is_over:
                self.close()
                self._tell_lost()

    def _tell_lost(self) -> None:
        try:
            self._on_lost(SessionLockLost(texts.SESSION_LOCK_LOST))
        except Exception as error:
            note_failed(self.path, error)
