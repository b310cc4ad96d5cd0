"""Questions of clients that are on RabbitMQ themselves (`bridge.client`), and their answers.

describe  an entity's definition; who asks uses it
peek      messages, without locking any
deferred  deferred messages by their numbers, locked here or received for good
aside     the queue for deferred messages is to be there
sessions  the ids of an entity's sessions
session-  what one session's receiver asks (`client_sessions`)

Who describes or peeks says how many messages it holds (`client_holds`).
"""

from __future__ import annotations

import json
from typing import Protocol

from bridge.engine.api import Namespace, ReceiveMode
from bridge.engine.client_holds import ClientHolds
from bridge.engine.client_page import COUNT_MAX, integers, page, whole
from bridge.engine.client_sessions import SESSION, ClientSessions, IsThere, Tell
from bridge.model.name import EntityPath, parse_path
from bridge.wire.basic import Table
from bridge.wire.reply import encode_done, encode_found
from bridge.wire.sessions import integer, string

CLIENT = "client-"
"""What `do` begins with in what clients ask."""


class Verbs(Namespace, Protocol):
    """What a namespace does for clients."""

    def describe(self, path: EntityPath) -> bytes:
        """Return what a client is told of an entity (`topology.description`)."""

    async def prepare_deferral(self, path: EntityPath) -> None:
        """Have the queue for an entity's deferred messages."""


class Clients:
    """Answers clients.

    Args:
        tell, is_there: see `ClientSessions`.

    Attributes:
        holds: how many messages they hold.
    """

    def __init__(self, verbs: Verbs, tell: Tell, is_there: IsThere) -> None:
        self._verbs = verbs
        self.holds = ClientHolds()
        self._sessions = ClientSessions(verbs, tell, is_there)

    async def carry_out(self, what: str, question: Table, address: str) -> bytes:
        """Return the answer.

        Args:
            address: where it goes.

        Raises:
            ServiceBusError: it is refused.
            LookupError, ValueError, TypeError: it cannot be read.
        """
        what = what.removeprefix(CLIENT)
        if what.startswith(SESSION):
            return await self._sessions.carry_out(what.removeprefix(SESSION), question, address)
        path = parse_path(string(question, "path"))
        if "held" in question:
            self.holds.note(path.entity, address, integers(question, "held"))
        match what:
            case "describe":
                return encode_found(self._verbs.describe(path))
            case "aside":
                await self._verbs.prepare_deferral(path)
                return encode_done(())
            case "peek":
                start, count = integer(question, "start"), integer(question, "count")
                return page(await self._verbs.peek(path, start, min(count, COUNT_MAX)))
            case "deferred":
                return await self._deferred(path, question)
            case "sessions":
                return await self._list(path, question)
        raise LookupError(what)

    def close(self) -> None:
        """Look after no client any more."""
        self._sessions.close()

    async def _deferred(self, path: EntityPath, question: Table) -> bytes:
        is_locking = bool(question["lock"][1])
        mode = ReceiveMode.PEEK_LOCK if is_locking else ReceiveMode.RECEIVE_AND_DELETE
        numbers = integers(question, "numbers")
        return whole(await self._verbs.receive_deferred(path, numbers, mode))

    async def _list(self, path: EntityPath, question: Table) -> bytes:
        after_ms = integer(question, "after") if "after" in question else None
        skip, top = integer(question, "skip"), integer(question, "top")
        found = await self._verbs.list_sessions(path, updated_after_ms=after_ms, skip=skip, top=top)
        return encode_found(json.dumps(found).encode())
