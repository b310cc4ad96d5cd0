"""Questions of the library's clients (`bridge.client`), which are on RabbitMQ, and the answers.

describe  answer an entity's definition; this counts as use of the entity
peek      answer messages, without locking any
deferred  answer deferred messages by number, locked by this process or received and deleted
aside     make the queue for deferred messages
sessions  answer the ids of an entity's sessions
session-  operations of a session's receiver (`client_sessions`)

With its questions a client may report how many messages it holds (`client_holds`).
"""

from __future__ import annotations

import json
from typing import Protocol

from bridge.background.supervisor import Supervisor
from bridge.engine.api import NamespaceVerbs, ReceiveMode
from bridge.engine.client_holds import ClientHolds
from bridge.engine.client_page import COUNT_MAX, integers, page, whole
from bridge.engine.client_sessions import SESSION, ClientSessions, IsThere, Tell
from bridge.engine.peers import Peers, Question
from bridge.model.name import EntityPath, parse_path
from bridge.wire.basic import Table
from bridge.wire.reply import encode_done, encode_found
from bridge.wire.sessions import integer, string

CLIENT = "client-"
"""The prefix of `do` in clients' questions."""


class Verbs(NamespaceVerbs, Protocol):
    """The verbs of a namespace for the library's clients."""

    def describe(self, path: EntityPath) -> bytes:
        """Return an entity's encoded description for a client (`topology.description`)."""

    async def prepare_deferral(self, path: EntityPath) -> None:
        """Make the queue for an entity's deferred messages, if it is missing."""


class Clients:
    """Answers the library's clients.

    Args:
        peers: hands over what the clients ask.
        holds: is told how many messages the clients hold.
        tell, is_there, supervisor: see `ClientSessions`.
    """

    def __init__(
        self,
        verbs: Verbs,
        peers: Peers,
        holds: ClientHolds,
        tell: Tell,
        is_there: IsThere,
        supervisor: Supervisor,
    ) -> None:
        self._verbs = verbs
        self._holds = holds
        self._sessions = ClientSessions(verbs, tell, is_there, supervisor)
        peers.answer(CLIENT, self._carry_out)

    async def _carry_out(self, asked: Question) -> bytes:
        """Carry out a client's question; return the answer."""
        what, question, address = asked.what.removeprefix(CLIENT), asked.table, asked.address
        if what.startswith(SESSION):
            return await self._sessions.carry_out(what.removeprefix(SESSION), question, address)
        path = parse_path(string(question, "path"))
        if "held" in question:
            self._holds.note(path.entity, address, integers(question, "held"))
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
        """Stop the checks of clients, and cancel waiting accepts."""
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
