"""Locks of deferred messages that were received under a session's: they last as long as that."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from bridge.engine.api import Abandon, Disposition, Release
from bridge.engine.sessions.receiver import SessionReceiver
from bridge.engine.tasks import Tasks
from bridge.model.errors import MessageLockLost, ServiceBusError
from bridge.model.name import EntityPath

Settle = Callable[[EntityPath, UUID, Disposition], Awaitable[None]]
Renew = Callable[[EntityPath, Sequence[UUID]], Awaitable[list[int]]]


class DeferredLocks:
    """What each receiver has taken of its session's deferred messages.

    Args:
        settle: ends a message's lock, wherever it is held.
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
        """A receiver has deferred messages under its session's lock."""
        self._tokens.setdefault(receiver, {}).update(dict.fromkeys(tokens))

    async def renew(self, receiver: SessionReceiver) -> None:
        """A session's lock has its full duration again: so have these; settled ones are dropped."""
        for token in list(self._tokens.get(receiver, ())):
            try:
                await self._renew(receiver.path, [token])
            except MessageLockLost:
                self._tokens.get(receiver, {}).pop(token, None)
            except ServiceBusError:  # nobody answers: it ends by itself
                continue

    def ended(self, receiver: SessionReceiver) -> None:
        """A session's lock has ended: so do these; one more on their counts if it has expired."""
        tokens = self._tokens.pop(receiver, None)
        if tokens:
            disposition = Abandon() if receiver.lock_has_expired else Release()
            self._tasks.start(self._end(receiver.path, list(tokens), disposition))

    async def _end(self, path: EntityPath, tokens: list[UUID], disposition: Disposition) -> None:
        for token in tokens:
            with contextlib.suppress(ServiceBusError):  # it is settled, or ends by itself
                await self._settle(path, token, disposition)
