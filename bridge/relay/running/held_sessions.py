"""Sessions whose states the target refuses for good: each is held, so that the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bridge.background.tasks import Tasks
from bridge.relay.running.errors import StateRefused
from bridge.relay.running.session_lock import SessionLock
from bridge.relay.running.status import RouteStatus
from bridge.remote.errors import RemoteError
from bridge.remote.session_receiver import RemoteSessionReceiver

AGAIN_S = 30.0
"""How often the target is asked again to take a state."""

HELD_MAX = 100
"""Sessions that are held beside those that go on; each has a link."""

Move = Callable[[RemoteSessionReceiver, SessionLock], Awaitable[bool]]


class HeldSessions:
    """Holds sessions that must not go on: given back, the source would give them again at once.

    Args:
        move: moves the state of a session; returns whether its messages may follow.
    """

    def __init__(self, status: RouteStatus, move: Move) -> None:
        self._status = status
        self._move = move
        self._held: set[SessionLock] = set()
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"<HeldSessions {len(self._held)}>"

    async def hold(
        self, session: RemoteSessionReceiver, lock: SessionLock, error: StateRefused
    ) -> None:
        """Hold a session from now on, until its state has moved or its lock is lost.

        It returns at once where fewer than `HELD_MAX` are held, and otherwise at the end.
        """
        held = self._tasks.start(self._hold(session, lock, error), name="held session")
        if len(self._held) >= HELD_MAX:
            await asyncio.wait((held,))

    async def _hold(
        self, session: RemoteSessionReceiver, lock: SessionLock, error: StateRefused
    ) -> None:
        self._held.add(lock)
        try:
            while True:
                self._status.hold_up(session.session_id, str(error))
                with suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await lock.lost()
                        return
                try:
                    if await self._move(session, lock):
                        return
                except StateRefused as refused:
                    error = refused
                except RemoteError as failed:
                    self._status.failed(failed)
        finally:
            self._held.discard(lock)
            self._status.let_on(session.session_id)
            await lock.release()

    async def close(self) -> None:
        """Give all back."""
        held = list(self._tasks)
        self._tasks.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        self._status.let_on()
