"""Locks by their tokens, whichever bridge they are of: another bridge is asked about its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from bridge.background.tasks import Tasks
from bridge.broker.errors import Unroutable
from bridge.engine import texts
from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Disposition,
    OnSettled,
    Release,
)
from bridge.engine.peers import Peers, Question
from bridge.engine.settlement.disposition_fields import disposition_in, fields_of
from bridge.engine.settlement.locktable import INSTANCE_BYTES, ProcessLocks
from bridge.engine.settlement.settling import Settling, refusal
from bridge.model.errors import MessageLockLost, ServiceBusError
from bridge.model.name import EntityPath, parse_path
from bridge.wire.basic import Table, text
from bridge.wire.reply import Done, encode_done, encode_found
from bridge.wire.sessions import content, string

SETTLEMENTS: dict[str, type[Disposition]] = {
    "complete": Complete,
    "abandon": Abandon,
    "dead-letter": DeadLetter,
    "defer": Defer,
    "release": Release,
}
"""The settlements, by the names of the questions that ask for them."""

RENEW = "renew"
SHOW = "show"


class LocksAnywhere:
    """Settles, renews and shows locks of all bridges, and answers other bridges about its own.

    Args:
        show: returns the encoded message of a lock of this process (`settlement.showing`).
        on_used: called with the entity of a lock that is settled or renewed by a client.
    """

    def __init__(
        self,
        peers: Peers,
        locks: ProcessLocks,
        settling: Settling,
        show: Callable[[UUID], bytes],
        on_used: Callable[[EntityPath], None],
    ) -> None:
        self._peers = peers
        self._locks = locks
        self._settling = settling
        self._show = show
        self._on_used = on_used
        self._tasks = Tasks()
        for what in SETTLEMENTS:
            peers.answer(what, self._on_settle)
        peers.answer(RENEW, self._on_renew)
        peers.answer(SHOW, self._on_show)

    async def settle(self, path: EntityPath, token: UUID, disposition: Disposition) -> None:
        """Settle a locked message; see `api.NamespaceVerbs.settle`."""
        self._on_used(path)
        if self._locks.is_own(token):
            await self._settling.settle(path, token, disposition)
        else:
            try:
                await self._ask(token, settle_question(path, token, disposition))
            except ServiceBusError as error:
                raise refusal(error) from error

    def begin(
        self, path: EntityPath, lock_token: UUID, disposition: Disposition, done: OnSettled
    ) -> None:
        """Settle a locked message; see `api.NamespaceVerbs.begin_settling`."""
        if self._locks.is_own(lock_token):
            self._on_used(path)
            self._settling.begin(path, lock_token, disposition, done)
        else:
            self._tasks.start(_answered(self.settle(path, lock_token, disposition), done))

    async def renew(self, path: EntityPath, tokens: Sequence[UUID]) -> list[int]:
        """Give each lock its full duration from now; see `api.NamespaceVerbs.renew_locks`."""
        self._on_used(path)
        if all(self._locks.is_own(token) for token in tokens):
            return self._settling.renew(path, tokens)
        return [
            self._settling.renew(path, [token])[0]
            if self._locks.is_own(token)
            else (await self._ask(token, _question(RENEW, path, token))).numbers[0]
            for token in tokens
        ]

    async def show(self, path: EntityPath, token: UUID) -> bytes:
        """Return the encoded message of another bridge's lock (`settlement.showing`)."""
        return (await self._ask(token, _question(SHOW, path, token))).content

    async def close(self) -> None:
        """Stop waiting for other bridges' answers."""
        self._tasks.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, token: UUID, question: Table) -> Done:
        try:
            return await self._peers.ask(token.bytes[:INSTANCE_BYTES], question)
        except Unroutable as error:
            raise MessageLockLost(texts.LOCK_LOST) from error

    async def _on_settle(self, question: Question) -> bytes:
        disposition = disposition_in(SETTLEMENTS[question.what], question.table)
        await self._settling.settle(*_lock_in(question), disposition)
        return encode_done(())

    async def _on_renew(self, question: Question) -> bytes:
        path, token = _lock_in(question)
        return encode_done(self._settling.renew(path, [token]))

    async def _on_show(self, question: Question) -> bytes:
        return encode_found(self._show(_lock_in(question)[1]))


async def _answered(settling: Awaitable[None], done: OnSettled) -> None:
    """Call `done` with the outcome of a settlement."""
    try:
        await settling
    except ServiceBusError as error:
        done(error)
    else:
        done(None)


def settle_question(path: EntityPath, token: UUID, disposition: Disposition) -> Table:
    """Return the question that asks another bridge for a settlement."""
    what = next(name for name, made in SETTLEMENTS.items() if isinstance(disposition, made))
    question = _question(what, path, token)
    return question | fields_of(disposition)


def _question(what: str, path: EntityPath, token: UUID) -> Table:
    return {"do": text(what), "path": text(str(path)), "token": ("x", token.bytes)}


def _lock_in(question: Question) -> tuple[EntityPath, UUID]:
    token = UUID(bytes=content(question.table, "token"))
    return parse_path(string(question.table, "path")), token
