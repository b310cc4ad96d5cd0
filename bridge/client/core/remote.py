"""Operations that a bridge does for a client: peeks, deferred messages, administration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from bridge.client.core.answers import CallbackAnswer
from bridge.client.core.directory import KnownDefinitions, content_of, guarded
from bridge.client.core.publisher import Publisher
from bridge.client.core.wire import CallerFuture, Unroutable, Wire, fail, succeed
from bridge.client.exceptions import (
    MessageLockLostError,
    OutcomeUnknownError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
)
from bridge.message.port import when_all
from bridge.message.received import Received
from bridge.message.shown import decode
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.wire.administration import Request, decode_response, encode_request
from bridge.wire.basic import Table, array, encode_table, long, text
from bridge.wire.reply import Done

INSTANCE_BYTES = 6
"""The part of a lock's token that names the bridge which holds it."""

AGAIN_S = 1.0
"""The time after which a bridge is told again of a lock's end that it may not have heard of."""

_NOTHING: Table = {}


def _nothing() -> None:
    """Nobody waits."""


class Remote:
    """Asks any bridge, or the bridge that holds a lock."""

    def __init__(self, wire: Wire, publisher: Publisher, directory: KnownDefinitions) -> None:
        self._wire = wire
        self._publisher = publisher
        self._directory = directory
        self._is_closed = False

    def close(self) -> None:
        """Repeat nothing any more."""
        self._is_closed = True

    def peek(self, path: EntityPath, start: int, count: int, answer: CallerFuture) -> None:
        """Answer with messages from a sequence number on, `count` at most.

        A peek of 0 messages only makes bridges and clients begin to record the numbers that leave.
        """
        question = _question("client-peek", path)
        question |= {"start": long(start), "count": long(count)} | self._directory.held(path.entity)
        self._directory.ask(question, partial(self._on_shown, answer))

    def receive_deferred(
        self, path: EntityPath, numbers: Sequence[int], answer: CallerFuture
    ) -> None:
        """Answer with the deferred messages of these numbers, locked.

        A caller that has given up leaves them deferred.
        """

        def answered(reply: bytes | Exception) -> None:
            if answer.done() and not isinstance(reply, Exception):
                guarded(
                    CallbackAnswer(),
                    lambda raw: self.end_locks(path, decode(raw), "release"),
                    reply,
                )
            else:
                self._on_shown(answer, reply)

        question = _question("client-deferred", path)
        question["numbers"] = array([long(number) for number in numbers])
        question["lock"] = ("t", True)
        self._directory.ask(question, answered)

    def end_locks(
        self,
        path: EntityPath,
        found: Sequence[Received],
        how: str,
        told: Callable[[], None] = _nothing,
    ) -> None:
        """Complete or release deferred messages, without waiting for the answers.

        Args:
            told: called when each bridge has answered once, or not in time.
        """
        locked = [each for each in found if each.lock_token is not None]
        one_told = when_all(len(locked), told)
        for each in locked:
            self._end_lock(path, each, how, one_told)

    def _end_lock(
        self, path: EntityPath, locked: Received, how: str, told: Callable[[], None]
    ) -> None:
        """End a lock; repeat that until the bridge has heard it, or the lock has ended by itself.

        What is repeated has no effect if it was heard: the token is unknown then.
        """
        token, until_ms = locked.lock_token, locked.locked_until_ms or 0
        assert token is not None

        def failed(error: BaseException) -> None:
            is_over = self._is_closed or self._wire.now_ms() >= until_ms
            if not is_over and not isinstance(error, MessageLockLostError):
                again = partial(self._end_lock, path, locked, how, _nothing)
                self._wire.later(AGAIN_S, again)
            told()

        answer = CallbackAnswer(lambda result: told(), failed)
        guarded(answer, self.settle, path, token, how, {}, answer)

    def administer(self, request: Request, answer: CallerFuture) -> None:
        """Answer with the `Response` to a request to the administration API."""

        def answered(reply: bytes | Exception) -> None:
            if isinstance(reply, OutcomeUnknownError) and request.method == "GET":
                fail(answer, ServiceBusConnectionError(reply.message))  # a GET may be repeated
            elif isinstance(reply, Exception):
                fail(answer, _permission(reply))
            else:
                guarded(answer, lambda raw: succeed(answer, decode_response(raw)), reply)

        self._directory.ask(encode_request(request), answered, names.ADMINISTRATION)

    def prepare(self, path: EntityPath, answer: CallerFuture, then: Callable[[], None]) -> None:
        """Have a bridge make the entity's queue of deferred messages, then go on."""

        def answered(reply: bytes | Exception) -> None:
            if isinstance(reply, Exception):
                fail(answer, reply)
            else:
                guarded(answer, then)

        self._directory.ask(_question("client-aside", path), answered)

    def settle(
        self, path: EntityPath, token: UUID, how: str, details: Table, answer: CallerFuture
    ) -> None:
        """End a lock: complete, release, abandon, dead-letter or defer."""

        question = details | {"plain": ("F", _NOTHING), "encoded": ("F", _NOTHING)}
        self._ask_holder(path, token, how, question, answer, lambda reply: succeed(answer))

    def renew(self, path: EntityPath, token: UUID, answer: CallerFuture) -> None:
        """Give a lock its full duration from now; answer with its end (UTC ms)."""

        def done(reply: Done) -> None:
            succeed(answer, reply.numbers[0])

        self._ask_holder(path, token, "renew", {}, answer, done)

    def _ask_holder(
        self,
        path: EntityPath,
        token: UUID,
        what: str,
        details: Table,
        answer: CallerFuture,
        done: Callable[[Done], None],
    ) -> None:
        def answered(reply: bytes | Exception) -> None:
            if isinstance(reply, Unroutable):
                fail(answer, MessageLockLostError("The bridge that held the lock is gone."))
                return
            found = content_of(reply)
            if isinstance(found, Exception):
                fail(answer, found)
            else:
                done(found)

        question = _question(what, path) | details | {"token": ("x", token.bytes)}
        queue = names.bridge_queue(token.bytes[:INSTANCE_BYTES])
        self._publisher.ask("", queue, {}, encode_table(question), answered)

    def _on_shown(self, answer: CallerFuture, reply: bytes | Exception) -> None:
        if isinstance(reply, Exception):
            fail(answer, reply)
        else:
            guarded(answer, lambda raw: succeed(answer, decode(raw)), reply)


def _question(what: str, path: EntityPath) -> Table:
    return {"do": text(what), "path": text(str(path))}


def details_of(reason: str | None, description: str | None) -> Table:
    """Return a settlement's reason and description."""
    given = {"reason": reason, "description": description}
    return {name: text(value) for name, value in given.items() if value is not None}


def _permission(error: Exception) -> Exception:
    """Return an error that names the missing permission, if RabbitMQ refused the exchange."""
    if "ACCESS_REFUSED" in str(error) and names.ADMINISTRATION in str(error):
        return ServiceBusAuthorizationError(
            "RabbitMQ's user may not administer: it needs the permission to write to the exchange "
            f"{names.ADMINISTRATION} of this virtual host.",
            error=error,
        )
    return error
