"""A queue in memory that requires sessions: each session is a queue of its own with one lock."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections import deque
from collections.abc import Callable
from uuid import UUID

from bridge.engine.api import Disposition, Received, ReceiveMode
from bridge.model import entity as model
from bridge.model.errors import (
    MessageLockLost,
    MessageSizeExceeded,
    OperationTimeout,
    ServiceBusError,
    SessionCannotBeLocked,
    SessionLockLost,
)
from bridge.topology.shards import session_key
from bridge.wire import headers
from bridge.wire.record import Record
from tests.bench.memory_queue import LOCK_LOST, MemoryQueue, MemoryReceiver, Stored

STATE_BYTES_MAX = 262_144
_FAR_S = 1e6


class MemorySession(MemoryQueue):
    """The messages of one session; they are locked as long as the session is."""

    def _timer(self, token: UUID) -> asyncio.TimerHandle:
        return self._loop.call_later(_FAR_S, self._on_lock_end, token)

    def unlock(self, *, counts: bool) -> None:
        """Give back what is locked."""
        for token in list(self.locked):
            stored, timer = self.locked.pop(token)
            timer.cancel()
            self._return(stored, counts=counts)


class MemorySessionReceiver(MemoryReceiver):
    """A receiver that holds a session."""

    def __init__(
        self,
        sessions: MemorySessions,
        session_id: str,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
        on_lost: Callable[[ServiceBusError], None],
    ) -> None:
        super().__init__(sessions.of(session_id), mode, deliver)
        self.session_id = session_id
        self.session_key = session_key(sessions.definition, session_id)
        self.locked_until_ms = 0
        self._sessions = sessions
        self._on_lost = on_lost
        self._timer: asyncio.TimerHandle | None = None
        self.renew()

    def renew(self) -> int:
        """Lock the session for its full duration from now."""
        self.stop()
        duration_ms = self._sessions.definition.lock_duration_ms
        self.locked_until_ms = int(time.time() * 1000) + duration_ms
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(duration_ms / 1000, self._on_lock_end)
        return self.locked_until_ms

    def stop(self) -> None:
        """End the lock's time."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_lock_end(self) -> None:
        self._sessions.release(self, counts=True)
        self._on_lost(SessionLockLost("The session lock has expired."))

    async def close(self) -> None:
        """End the lock."""
        await super().close()
        self._sessions.release(self, counts=False)


class MemorySessions(MemoryQueue):
    """A queue that requires sessions."""

    def __init__(self, definition: model.Queue, dead_letters: MemoryQueue | None) -> None:
        super().__init__(definition, dead_letters)
        self._sessions: dict[str, MemorySession] = {}
        self._held: dict[str, MemorySessionReceiver] = {}
        self._states: dict[str, tuple[bytes, int]] = {}
        self._ready: dict[str, None] = {}
        self._waiting: deque[asyncio.Future[str]] = deque()

    def of(self, session_id: str) -> MemorySession:
        """Return a session."""
        session = self._sessions.get(session_id)
        if session is None:
            session = MemorySession(self.definition, self.dead_letters)
            self._sessions[session_id] = session
        return session

    def enqueue(self, record: Record) -> None:
        """Number a message and offer it to its session's holder, or to who waits for one."""
        self.last_number += 1
        table = record.properties.headers or {}
        ttl = table.get(headers.TIME_TO_LIVE)
        ttl_ms = ttl[1] if ttl is not None and isinstance(ttl[1], int) else None
        raw = table[headers.SESSION_ID][1]
        assert isinstance(raw, bytes)
        session_id = raw.decode()
        session = self.of(session_id)
        stored = Stored(self.last_number, record, int(time.time() * 1000), ttl_ms)
        heapq.heappush(session.active, stored)
        session.pump_soon()
        self._offer(session_id)

    def _offer(self, session_id: str) -> None:
        if session_id in self._held or not self.of(session_id).active:
            return
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(session_id)
                self._ready.pop(session_id, None)
                return
        self._ready[session_id] = None

    async def accept(
        self,
        session_id: str | None,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
        on_lost: Callable[[ServiceBusError], None],
        timeout_s: float,
    ) -> MemorySessionReceiver:
        """Lock a session."""
        wanted = session_id
        while wanted is None or (session_id is None and wanted in self._held):
            wanted = await self._next(timeout_s)
        if wanted in self._held:
            raise SessionCannotBeLocked(
                f"The requested session '{wanted}' cannot be accepted. "
                "It may be locked by another receiver."
            )
        self._ready.pop(wanted, None)
        receiver = MemorySessionReceiver(self, wanted, mode, deliver, on_lost)
        self._held[wanted] = receiver
        return receiver

    async def _next(self, timeout_s: float) -> str:
        if self._ready:
            return next(iter(self._ready))
        waiting: asyncio.Future[str] = self._loop.create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except (TimeoutError, asyncio.CancelledError) as error:
            with contextlib.suppress(ValueError):
                self._waiting.remove(waiting)
            if not waiting.cancelled() and waiting.done():
                self._offer(waiting.result())
            if isinstance(error, TimeoutError):
                raise OperationTimeout("No session was there in time.") from None
            raise

    def release(self, receiver: MemorySessionReceiver, *, counts: bool) -> None:
        """End a session's lock."""
        if self._held.get(receiver.session_id) is not receiver:
            return
        receiver.stop()
        del self._held[receiver.session_id]
        session = self.of(receiver.session_id)
        session.waiting.clear()
        session.unlock(counts=counts)
        self._offer(receiver.session_id)

    def holder(self, session_id: str) -> MemorySessionReceiver:
        """Return who holds a session."""
        holder = self._held.get(session_id)
        if holder is None:
            raise SessionLockLost("Nobody holds the session.")
        return holder

    def state(self, session_id: str) -> bytes | None:
        """Return what is stored with a session."""
        self.holder(session_id)
        found = self._states.get(session_id)
        return None if found is None else found[0]

    def set_state(self, session_id: str, state: bytes | None) -> None:
        """Store something with a session."""
        self.holder(session_id)
        if state is None:
            self._states.pop(session_id, None)
            return
        if len(state) > STATE_BYTES_MAX:
            raise MessageSizeExceeded("The state is too large.")
        self._states[session_id] = state, int(time.time() * 1000)

    def listed(self, updated_after_ms: int | None) -> list[str]:
        """Return the ids of sessions."""
        if updated_after_ms is not None:
            return sorted(each for each, (_, at) in self._states.items() if at > updated_after_ms)
        there = {each for each, session in self._sessions.items() if session.active}
        return sorted(there | self._states.keys())

    def settle(self, token: UUID, disposition: Disposition) -> None:
        """End a message's lock."""
        for receiver in self._held.values():
            if token in receiver.queue.locked:
                receiver.queue.settle(token, disposition)
                return
        raise MessageLockLost(LOCK_LOST)

    def forget(self) -> None:
        """Drop all messages."""
        super().forget()
        for session in self._sessions.values():
            session.forget()
