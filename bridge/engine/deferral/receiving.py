"""Receiving deferred messages by sequence number, from whichever bridge holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.engine import texts
from bridge.engine.api import Complete, Disposition, Received, ReceiveMode, Release
from bridge.engine.deferral.entities import Deferral
from bridge.engine.services import Services
from bridge.engine.sessions.membership import members_of
from bridge.engine.settlement.locks_anywhere import LocksAnywhere
from bridge.engine.settlement.showing import read_shown
from bridge.model import entity as model
from bridge.model.errors import MessageNotFound
from bridge.model.name import EntityPath
from bridge.wire.deferred import Lock


class DeferredReceiving:
    """Receives deferred messages."""

    def __init__(
        self, deferral: Deferral, services: Services, locks_anywhere: LocksAnywhere
    ) -> None:
        self._deferral = deferral
        self._locks = services.locks
        self._locks_anywhere = locks_anywhere
        self._counters = services.counters

    async def receive(
        self,
        path: EntityPath,
        entity: model.ReceiveEntity,
        numbers: Sequence[int],
        mode: ReceiveMode,
        session_id: str | None,
    ) -> list[Received]:
        """Return the messages with these numbers; see `api.NamespaceVerbs.receive_deferred`."""
        if not numbers:
            return []
        locks = await self._deferral.lock(entity, path.sub_queue, list(dict.fromkeys(numbers)))
        received = [await self._received(path, lock) for lock in locks]
        if session_id is not None:
            is_member = members_of(entity, session_id)
            if not all(is_member(each.record.properties.headers or {}) for each in received):
                await self._settle_all(path, locks, Release())
                raise MessageNotFound(texts.DEFERRED_NOT_FOUND)
        self._counters.delivered += len(received)
        if mode is ReceiveMode.PEEK_LOCK:
            return received
        await self._settle_all(path, locks, Complete())
        self._counters.received_and_deleted += len(received)
        return [replace(each, lock_token=None, locked_until_ms=None) for each in received]

    async def _received(self, path: EntityPath, lock: Lock) -> Received:
        token, until_ms = lock
        if self._locks.is_own(token):
            return self._deferral.received(token, until_ms)
        shown = await self._locks_anywhere.show(path, token)
        return read_shown(shown, token, until_ms, is_deferred=True)

    async def _settle_all(
        self, path: EntityPath, locks: Sequence[Lock], disposition: Disposition
    ) -> None:
        for token, _ in locks:
            await self._locks_anywhere.settle(path, token, disposition)
