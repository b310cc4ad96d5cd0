"""Locks of deferred messages that a session receiver has: they end with the session's lock."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from bridge.background.tasks import Tasks
from bridge.engine.api import Abandon, Disposition, Release
from bridge.engine.sessions.receiver import SessionReceiver
from bridge.model.errors import MessageLockLost, ServiceBusError
from bridge.model.name import EntityPath

Settle = Callable[[EntityPath, UUID, Disposition], Awaitable[None]]
Renew = Callable[[EntityPath, Sequence[UUID]], Awaitable[list[int]]]


class DeferredLocks:
    """The lock tokens of the deferred messages that each session receiver has received.

    Args:
        settle: settles a message by its lock token, in any bridge.
        renew: renews messages' locks.
    """

    def __init__(self, settle: Settle, renew: Renew) -> None:
        self._settle = settle
        self._renew = renew
        self._tokens: dict[SessionReceiver, dict[UUID, None]] = {}
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"DeferredLocks({sum(map(len, self._tokens.values()))})"

    def took(self, receiver: SessionReceiver, tokens: Sequence[UUID]) -> None:
        """Note lock tokens of deferred messages that a receiver has received."""
        self._tokens.setdefault(receiver, {}).update(dict.fromkeys(tokens))

    async def renew(self, receiver: SessionReceiver) -> None:
        """Renew the deferred messages' locks with their session's; forget lost locks."""
        for token in list(self._tokens.get(receiver, ())):
            try:
                await self._renew(receiver.path, [token])
            except MessageLockLost:
                self._tokens.get(receiver, {}).pop(token, None)
            except ServiceBusError:  # no answer: the lock ends by itself
                continue

    def ended(self, receiver: SessionReceiver) -> None:
        """End the deferred messages' locks with their session's.

        Their delivery counts are raised by 1 if the session's lock has expired.
        """
        tokens = self._tokens.pop(receiver, None)
        if tokens:
            disposition = Abandon() if receiver.lock_has_expired else Release()
            self._tasks.start(self._end(receiver.path, list(tokens), disposition))

    async def _end(self, path: EntityPath, tokens: list[UUID], disposition: Disposition) -> None:
        for token in tokens:
            with contextlib.suppress(ServiceBusError):  # settled, or its lock ends by itself
                await self._settle(path, token, disposition)
