"""Sessions of the library's clients, which are on RabbitMQ: this process accepts them for a client.

A client's receiver has a session receiver in this process, as a gateway's has; the session's owner
may be another bridge. A client is identified by its address (direct reply-to), and its receiver by
a number that the client chooses.

accept    ask for a session, or the next one; the answer comes with the session
credit    ask for more messages
taken     nothing more
drain     take back the credit; the answer is the count of messages sent so far
renew, state, store, peek, deferred   operations on the receiver's session
close     end the session's lock, or the wait for a session
ping      answer the count of messages sent to each receiver; -1: the receiver is not here

A client that receives and deletes says with each question how many messages its application has
(`taken`, in all): these are settled. What it has not said is available again when its lock ends. It
asks for deferred messages locked (`lock`), and completes them when its application has them. A
client of an earlier version says nothing: its messages are settled when they are sent.

A receiver's messages go to its client's address, in order with the answers, encoded as peeked ones
are (`message.shown`). When its lock ends, a refusal with the reason follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from bridge.background.supervisor import Supervisor
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.api import NamespaceVerbs, Received, ReceiveMode, SessionReceiver
from bridge.engine.client_page import COUNT_MAX, integers, page, whole
from bridge.model.errors import ServiceBusError, SessionLockLost
from bridge.model.name import EntityPath, parse_path
from bridge.wire.basic import Table, encode_table, long, text
from bridge.wire.reply import encode_done, encode_found, encode_refused
from bridge.wire.sessions import (
    BY_TOKEN,
    WHEN_TAKEN,
    content,
    encode_state,
    integer,
    string,
)

SESSION = "session-"
"""The prefix of an operation's name, behind `clients.CLIENT`."""

LOOK_S = 2.0
"""The time between two checks of clients: the receivers of a dead one are closed."""

Key = tuple[str, int]
"""A client's address, and the number of its receiver."""

Tell = Callable[[str, str, bytes], bool]
"""Sends a body to an address, with a correlation id; returns whether RabbitMQ takes it now, or
raises `BrokerError` or `ServiceBusError`."""


IsThere = Callable[[str], Awaitable[bool]]


@dataclass(slots=True)
class _Held:
    path: EntityPath
    receiver: SessionReceiver
    mode: ReceiveMode
    says_taken: bool
    told: int = 0
    taken: int = 0


class ClientSessions:
    """The session receivers of the library's clients.

    Args:
        tell: sends a message to a client's address.
        is_there: returns whether a client with an address still exists; may raise `BrokerError`.
        supervisor: keeps the look for lost clients going.
    """

    def __init__(
        self, verbs: NamespaceVerbs, tell: Tell, is_there: IsThere, supervisor: Supervisor
    ) -> None:
        self._verbs = verbs
        self._tell = tell
        self._is_there = is_there
        self._supervisor = supervisor
        self._held: dict[Key, _Held] = {}
        self._accepting: dict[Key, asyncio.Task[bytes]] = {}
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"ClientSessions({len(self._held)} held, {len(self._accepting)} waited for)"

    async def carry_out(self, what: str, question: Table, address: str) -> bytes:
        """Carry out a client's operation; return the answer.

        Args:
            what: the operation, without the prefixes `clients.CLIENT` and `SESSION`.

        Raises:
            ServiceBusError: the operation is refused.
            LookupError, ValueError, TypeError: the question cannot be read.
        """
        if what == "ping":
            return encode_done(
                [self._told((address, each)) for each in integers(question, "receivers")]
            )
        key = address, integer(question, "receiver")
        if what == "accept":
            return await self._accept(key, question)
        self._note_taken(key, question)
        if what == "close":
            await self._close(key)
            return encode_done(())
        held = self._held.get(key)
        if held is None:
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        return await self._of_held(what, held, question)

    def close(self) -> None:
        """Stop the checks of clients, and cancel waiting accepts; held sessions are not closed."""
        if self._watching is not None:
            self._watching.cancel()
        for accepting in self._accepting.values():
            accepting.cancel()

    async def _of_held(self, what: str, held: _Held, question: Table) -> bytes:
        verbs, path, session_id = self._verbs, held.path, held.receiver.session_id
        match what:
            case "credit":
                held.receiver.add_credit(integer(question, "count"))
            case "taken":
                pass
            case "drain":
                await held.receiver.drain()
                return encode_done((held.told,))
            case "renew":
                return encode_done((await verbs.renew_session_lock(path, session_id),))
            case "state":
                return encode_found(encode_state(await verbs.session_state(path, session_id)))
            case "store":
                state = content(question, "state") if "state" in question else None
                await verbs.set_session_state(path, session_id, state)
            case "peek":
                start, count = integer(question, "start"), integer(question, "count")
                return page(await verbs.peek(path, start, min(count, COUNT_MAX), session_id))
            case "deferred":
                mode = ReceiveMode.PEEK_LOCK if "lock" in question else held.mode
                numbers = integers(question, "numbers")
                return whole(await verbs.receive_deferred(path, numbers, mode, session_id))
            case _:
                raise LookupError(what)
        return encode_done(())

    async def _accept(self, key: Key, question: Table) -> bytes:
        path = parse_path(string(question, "path"))
        wanted = string(question, "session") if "session" in question else None
        deletes = integer(question, "deletes")
        mode = ReceiveMode.PEEK_LOCK if deletes == BY_TOKEN else ReceiveMode.RECEIVE_AND_DELETE
        task = asyncio.current_task()
        assert task is not None
        self._accepting[key] = task
        self._watch()
        try:
            receiver = await self._verbs.accept_session(
                path,
                wanted,
                mode=mode,
                deliver=partial(self._deliver, key),
                on_lost=partial(self._on_lost, key),
                timeout_s=integer(question, "wait") / 1000,
            )
        finally:
            del self._accepting[key]
        says_taken = deletes == WHEN_TAKEN
        self._held[key] = _Held(path, receiver, mode, says_taken)
        given: Table = {
            "session": text(receiver.session_id),
            "until": long(receiver.locked_until_ms),
        }
        if says_taken:
            given["taken"] = long(0)
        return encode_found(encode_table(given))

    def _deliver(self, key: Key, received: Received) -> None:
        held = self._held[key]  # no message comes before the client has given credit
        held.told += 1
        if not self._say(key, whole([received])):
            self._give_up(key)
        elif held.mode is ReceiveMode.RECEIVE_AND_DELETE and not held.says_taken:
            held.receiver.taken()

    def _note_taken(self, key: Key, question: Table) -> None:
        held = self._held.get(key)
        if held is None or not held.says_taken or "taken" not in question:
            return
        taken = min(integer(question, "taken"), held.told)
        for _ in range(held.taken, taken):
            held.receiver.taken()
        held.taken = max(held.taken, taken)

    def _on_lost(self, key: Key, error: ServiceBusError) -> None:
        self._held.pop(key, None)
        self._say(key, encode_refused(error.condition, str(error)))

    def _say(self, key: Key, body: bytes) -> bool:
        try:
            return self._tell(key[0], name_of(key[1]), body)
        except (BrokerError, ServiceBusError):
            return False

    async def _close(self, key: Key) -> None:
        accepting = self._accepting.get(key)
        if accepting is not None:
            accepting.cancel()
        held = self._held.pop(key, None)
        if held is not None:
            await held.receiver.close()

    def _give_up(self, key: Key) -> None:
        """Close a receiver whose client cannot be reached."""
        held = self._held.pop(key, None)
        if held is not None:
            held.receiver.close()

    def _told(self, key: Key) -> int:
        held = self._held.get(key)
        return -1 if held is None else held.told

    # Lost clients.

    def _watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = self._supervisor.repeat("clients of sessions", self._look).task

    async def _look(self) -> None:
        while addresses := {address for address, _ in (*self._held, *self._accepting)}:
            await asyncio.sleep(LOOK_S)
            for address in addresses:
                try:
                    if not await self._is_there(address):
                        self._forget(address)
                except BrokerError:  # RabbitMQ does not tell: ask again later
                    continue

    def _forget(self, address: str) -> None:
        for key in [key for key in self._accepting if key[0] == address]:
            self._accepting[key].cancel()
        for key in [key for key in self._held if key[0] == address]:
            self._give_up(key)


def name_of(receiver: int) -> str:
    """Return the name (correlation id) of messages to a client's receiver."""
    return f"{SESSION}{receiver}"
