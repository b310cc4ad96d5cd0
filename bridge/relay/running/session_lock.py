"""The lock of a session that this process has accepted: a source's, a target's, or an order's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.background.tasks import Tasks
from bridge.relay.machine.lease import Lease
from bridge.remote.errors import RemoteError, RemoteLinkEnded, RemoteLockLost, RemoteNotFound
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.session_receiver import RemoteSessionReceiver

CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"

TRY_AGAIN_S = 5.0
"""How often a session is asked for that another has locked."""


class SessionLock:
    """Renews the lock of a session from now on, until it is lost or released.

    Args:
        on_failed: told of each renewal that has failed, and is made again.

    Attributes:
        lease: how long the lock may be believed in.
    """

    def __init__(
        self,
        session: RemoteSessionReceiver,
        now_ms: Callable[[], int],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self.lease = Lease(session.locked_until_ms, now_ms())
        self._session = session
        self._now_ms = now_ms
        self._on_failed = on_failed
        self._tasks = Tasks()
        self._lost: asyncio.Task[str] = self._tasks.start(
            self._renew(), name=f"lock of {session.session_id}"
        )

    def __repr__(self) -> str:
        return f"<SessionLock {self._session.session_id!r} {self.lease!r}>"

    async def lost(self) -> str:
        """Return why the lock is lost, when it is: before another can have the session."""
        await asyncio.wait((self._lost,))
        return self._lost.result()

    async def release(self) -> None:
        """Give the session back."""
        self._tasks.cancel()
        await self._session.close()

    async def _renew(self) -> str:
        session, lease, cause = self._session, self.lease, "it was not renewed in time"
        while True:
            wait_ms = lease.due_ms - self._now_ms()
            if (ended := await session.ended(max(wait_ms, 0) / 1000)) is not None:
                break
            asked_ms = self._now_ms()
            if not lease.is_held(asked_ms):
                return cause
            try:
                async with asyncio.timeout((lease.ends_ms - asked_ms) / 1000):
                    until_ms = await session.renew()
            except (RemoteLockLost, RemoteLinkEnded, RemoteNotFound) as error:
                ended = error
                break
            except (RemoteError, TimeoutError) as error:
                cause = str(error) or cause
                self._on_failed(error)
                lease.failed(self._now_ms())
            else:
                lease.renewed(until_ms, asked_ms)
        lease.lose()
        return str(ended)


async def accepted(
    namespace: RemoteNamespace, entity: str, session_id: str, on_locked: Callable[[], None]
) -> RemoteSessionReceiver:
    """Accept a session as soon as nobody else has it.

    Args:
        on_locked: called each time that another has it.

    Raises:
        RemoteError: the entity refuses it for another reason, or is not reached.
    """
    while True:
        try:
            return await namespace.session_receiver(entity, session_id)
        except RemoteError as error:
            if error.condition != CANNOT_BE_LOCKED:
                raise
        on_locked()
        await asyncio.sleep(TRY_AGAIN_S)
