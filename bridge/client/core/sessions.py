"""The sessions that a client holds: a bridge accepts them and sends their messages.

The client need not know where an entity's sessions are kept: any bridge that it asks finds them
(`bridge.engine.client_sessions` lists the questions and answers). The lock is lost when the asked
bridge is gone, or when the client's reply-to channel ends.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.answers import CallbackAnswer, ignore
from bridge.client.core.directory import KnownDefinitions, content_of, guarded
from bridge.client.core.held_session import LOCK_LOST, HeldSession
from bridge.client.core.publisher import TIMEOUT_S, Publisher
from bridge.client.core.pull import Begun
from bridge.client.core.remote import Remote, details_of
from bridge.client.core.wire import CallerFuture, Unroutable, Wire, fail, succeed
from bridge.client.exceptions import (
    MessageLockLostError,
    OutcomeUnknownError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)
from bridge.message.received import Received
from bridge.message.shown import decode
from bridge.model.name import EntityPath
from bridge.wire.basic import Table, array, decode_table, encode_table, long, text
from bridge.wire.reply import Done
from bridge.wire.sessions import BY_TOKEN, WHEN_TAKEN, decode_state

ACCEPT_S = 65.0
"""How long an accept of a next session waits by default, as with Service Bus."""

ACCEPT_MAX_S = 30 * 86_400.0
"""The longest wait of an accept, 30 days: RabbitMQ limits the expiration of a request."""

PING_S = 2.0
"""Interval in which the client asks the bridges of its sessions whether they still answer."""

Then = Callable[[Done], None]


class SessionOperations:
    """Accepts sessions, and does the operations of accepted sessions."""

    def __init__(
        self, wire: Wire, publisher: Publisher, directory: KnownDefinitions, remote: Remote
    ) -> None:
        self._wire = wire
        self._publisher = publisher
        self._directory = directory
        self._remote = remote
        self._numbers = itertools.count(1)
        self._held: dict[int, HeldSession] = {}
        self._is_pinging = False

    def accept(
        self,
        path: str,
        session_id: str | None,
        wait_s: float | None,
        mode: ServiceBusReceiveMode,
        answer: Any,
    ) -> None:
        """Lock a session, or (`None`) the next with messages; answer with `HeldSession`."""
        number = next(self._numbers)
        wait_s = min(wait_s or ACCEPT_S, ACCEPT_MAX_S)
        deletes = mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE
        question = _question("accept", number)
        question |= {
            "path": text(path),
            "deletes": long(WHEN_TAKEN if deletes else BY_TOKEN),
            "wait": long(int(wait_s * 1000)),
        }
        if session_id is not None:
            question["session"] = text(session_id)

        def replied(bridge: str, reply: bytes | Exception) -> None:
            guarded(answer, self._accepted, number, path, answer, bridge, reply)

        # Any bridge can accept a session of every entity.
        self._directory.ask_any(question, replied, wait_s=wait_s + TIMEOUT_S)

    def list(
        self, path: str, updated_after_ms: int | None, skip: int, top: int, answer: CallerFuture
    ) -> None:
        """Answer with a page of the ids of an entity's sessions."""
        question: Table = {
            "do": text("client-sessions"),
            "path": text(path),
            "skip": long(skip),
            "top": long(top),
        }
        if updated_after_ms is not None:
            question["after"] = long(updated_after_ms)

        def answered(found: bytes | Exception) -> None:
            if isinstance(found, Exception):
                fail(answer, found)
            else:
                succeed(answer, [str(each) for each in json.loads(found)])

        self._directory.ask(question, answered)

    def pull(
        self,
        held: HeldSession,
        count: int,
        wait_s: float | None,
        answer: CallerFuture,
        begun: Callable[[Begun], None],
    ) -> None:
        """Receive up to `count` messages; see `HeldSession.pull`."""
        self._publisher.check()
        held.pull(count, wait_s, answer, begun)

    def settle(
        self,
        held: HeldSession,
        token: UUID,
        how: str,
        reason: str | None,
        description: str | None,
        answer: CallerFuture,
    ) -> None:
        """End a message's lock; see `Namespace.settle`."""
        held.check()

        def failed(error: BaseException) -> None:
            is_lost = isinstance(error, MessageLockLostError)
            fail(answer, SessionLockLostError(LOCK_LOST) if is_lost else error)

        told = CallbackAnswer(partial(succeed, answer), failed)
        details = details_of(reason, description)
        self._remote.settle(EntityPath(held.path), token, how, details, told)

    def renew(self, held: HeldSession, answer: CallerFuture) -> None:
        """Give the session's lock its full duration from now; answer with its end (UTC ms)."""

        def then(reply: Done) -> None:
            held.until_ms = reply.numbers[0]
            succeed(answer, held.until_ms)

        self._ask(held, "renew", {}, answer, then)

    def state(self, held: HeldSession, answer: CallerFuture) -> None:
        """Answer with the session's state, or `None`."""

        def then(reply: Done) -> None:
            succeed(answer, decode_state(reply.content))

        self._ask(held, "state", {}, answer, then)

    def store(self, held: HeldSession, state: bytes | None, answer: CallerFuture) -> None:
        """Store the session's state, or clear the state."""
        fields: Table = {"state": ("x", state)} if state else {}
        self._ask(held, "store", fields, answer, lambda reply: succeed(answer))

    def peek(self, held: HeldSession, start: int, count: int, answer: CallerFuture) -> None:
        """Answer with the session's messages from a number on, `count` at most."""
        fields: Table = {"start": long(start), "count": long(count)}
        self._ask(held, "peek", fields, answer, partial(_show, answer))

    def receive_deferred(
        self, held: HeldSession, numbers: Sequence[int], answer: CallerFuture
    ) -> None:
        """Answer with the session's deferred messages of these numbers, locked.

        A caller that has given up leaves them deferred.
        """

        def then(reply: Done) -> None:
            if answer.done():
                self._end_locks(held, decode(reply.content), "release")
            else:
                _show(answer, reply)

        fields: Table = {"numbers": array([long(number) for number in numbers])}
        self._ask(held, "deferred", fields | {"lock": ("t", True)}, answer, then)

    def end_locks(
        self, held: HeldSession, found: Sequence[Received], how: str, answer: CallerFuture
    ) -> None:
        """Complete or release deferred messages; the answer does not wait for the bridges."""
        self._end_locks(held, found, how)
        succeed(answer)

    def close(self, held: HeldSession, answer: CallerFuture) -> None:
        """End the session's lock; answer when the session is free."""
        self._forget(held)
        if held.lost is not None:
            succeed(answer)
            return
        held.lose(LOCK_LOST)
        held.when_locks_ended(lambda: guarded(answer, self._close, held, answer))

    def close_all(self) -> None:
        """End all locks, without waiting for answers."""
        for held in list(self._held.values()):
            try:
                self.close(held, CallbackAnswer())
            except ServiceBusError:
                continue  # no connection: the locks end with the reply-to address

    def _close(self, held: HeldSession, answer: CallerFuture) -> None:
        def closed(reply: bytes | Exception) -> None:
            succeed(answer)  # without an answer the lock ends by itself

        self._publisher.ask("", held.bridge, {}, encode_table(_of_held("close", held)), closed)

    def _end_locks(self, held: HeldSession, found: Sequence[Received], how: str) -> None:
        """End the locks of deferred messages; the session's end waits for that."""
        held.locks_end()
        self._remote.end_locks(EntityPath(held.path), found, how, held.locks_ended)

    # Requests of a held session.

    def credit(self, held: HeldSession, count: int) -> None:
        """Ask for `count` more messages for a session's receiver."""
        self._ask_surely(held, "credit", {"count": long(count)}, ignore)

    def drain(self, held: HeldSession, done: Callable[[], None]) -> None:
        """Take back the session's credit; all messages sent before the answer have come then."""

        def then(reply: Done) -> None:
            self._compare(held, reply.numbers[0])
            done()

        self._ask_surely(held, "drain", {}, then)

    def taken(self, held: HeldSession) -> None:
        """Tell the bridge how many messages the application has received and deleted so far.

        Later requests say it again: it does not matter when one is lost.
        """
        question = encode_table(_of_held("taken", held))
        with contextlib.suppress(ServiceBusError):  # no connection: the lock ends
            self._publisher.ask("", held.bridge, {}, question, _ignore)

    # Answers and events of bridges.

    def _accepted(
        self,
        number: int,
        path: str,
        answer: Any,
        bridge: str,
        reply: bytes | Exception,
    ) -> None:
        found = content_of(reply)
        if isinstance(found, OutcomeUnknownError):  # a granted session ended with the channel
            found = ServiceBusConnectionError(str(found))
        if isinstance(found, Exception):
            fail(answer, found)
            return
        table = decode_table(found.content)[0]
        session_id, until_ms = table["session"][1], table["until"][1]
        assert isinstance(session_id, bytes)
        assert isinstance(until_ms, int)
        held = HeldSession(
            number, bridge, path, session_id.decode(), until_ms,
            deletes="taken" in table, wire=self._wire, asked=self,
        )  # fmt: skip
        self._held[number] = held
        self._publisher.listen(f"session-{number}", partial(self._hear, held))
        self._ping_later()
        succeed(answer, held)
        if answer.cancelled():  # the caller has given up
            self.close(held, CallbackAnswer())

    def _hear(self, held: HeldSession, said: bytes | Exception) -> None:
        found = content_of(said)
        if isinstance(found, Exception):
            self._lose(held, str(found))
            return
        for each in decode(found.content):
            held.on_message(each)

    def _ask_surely(self, held: HeldSession, what: str, fields: Table, then: Then) -> None:
        """Ask a question that the session's messages depend on: no answer loses the session."""
        told = CallbackAnswer(error=lambda error: held.lose(str(error)))
        guarded(told, self._ask, held, what, fields, told, then)

    def _ask(
        self, held: HeldSession, what: str, fields: Table, answer: CallerFuture, then: Then
    ) -> None:
        held.check()

        def answered(reply: bytes | Exception) -> None:
            if isinstance(reply, Unroutable):
                self._lose(held, "The bridge that held the session is gone.")
            found = content_of(reply)
            if isinstance(found, SessionLockLostError):
                self._lose(held, str(found))
            if held.lost is not None:
                fail(answer, SessionLockLostError(held.lost))
            elif isinstance(found, Exception):
                fail(answer, found)
            else:
                guarded(answer, then, found)

        question = encode_table(_of_held(what, held) | fields)
        self._publisher.ask("", held.bridge, {}, question, answered)

    def _compare(self, held: HeldSession, told: int) -> None:
        """Compare the bridge's count of sent messages with those arrived, which come in order."""
        if told < 0:
            self._lose(held, LOCK_LOST)
        elif told > held.arrived:
            error = "Messages were lost on their way from the bridge that held the session."
            self.close(held, CallbackAnswer())
            held.lost = error

    def _lose(self, held: HeldSession, why: str) -> None:
        self._forget(held)
        held.lose(why)

    def _forget(self, held: HeldSession) -> None:
        self._held.pop(held.number, None)
        self._publisher.ignore(f"session-{held.number}")

    def _ping_later(self) -> None:
        if not self._is_pinging and self._held:
            self._is_pinging = True
            self._wire.later(PING_S, self._ping)

    def _ping(self) -> None:
        """Check that the bridges answer and still hold the sessions."""
        self._is_pinging = False
        for bridge in {each.bridge for each in self._held.values()}:
            ours = [each for each in self._held.values() if each.bridge == bridge]
            numbers = array([long(each.number) for each in ours])
            question: Table = {"do": text("client-session-ping"), "receivers": numbers}
            ponged = partial(self._on_pong, ours)
            try:
                self._publisher.ask("", bridge, {}, encode_table(question), ponged)
            except ServiceBusError:
                continue  # no connection
        self._ping_later()

    def _on_pong(self, asked: Sequence[HeldSession], reply: bytes | Exception) -> None:
        if isinstance(reply, Unroutable):
            for held in asked:
                self._lose(held, "The bridge that held the session is gone.")
            return
        found = content_of(reply)
        if isinstance(found, Exception):
            return
        for held, told in zip(asked, found.numbers, strict=True):
            if held.lost is None:
                self._compare(held, told)


def _question(what: str, number: int) -> Table:
    return {"do": text(f"client-session-{what}"), "receiver": long(number)}


def _of_held(what: str, held: HeldSession) -> Table:
    taken: Table = {"taken": long(held.taken)} if held.taken else {}
    return _question(what, held.number) | taken


def _ignore(reply: bytes | Exception) -> None:
    pass


def _show(answer: CallerFuture, reply: Done) -> None:
    succeed(answer, decode(reply.content))
