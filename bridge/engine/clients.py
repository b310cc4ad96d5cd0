"""Questions of clients that are on RabbitMQ themselves (`bridge.client`), and their answers.

describe  an entity's definition; who asks uses it
peek      messages, without locking any
deferred  deferred messages by their numbers, locked here or received for good
aside     the queue for deferred messages is to be there
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from bridge.engine.api import Received, ReceiveMode
from bridge.model.errors import ArgumentOutOfRange
from bridge.model.name import EntityPath, parse_path
from bridge.wire.basic import Table
from bridge.wire.mapping.outward import (
    MESSAGE_STATE_ACTIVE,
    MESSAGE_STATE_DEFERRED,
    MESSAGE_STATE_SCHEDULED,
)
from bridge.wire.reply import encode_done, encode_found
from bridge.wire.shown import Shown, encode

CLIENT = "client-"
"""What `do` begins with in what clients ask."""

COUNT_MAX = 1_000
BYTES_MAX = 8 << 20
"""So much is shown at most; who wants more asks again, from the next number on."""


class Verbs(Protocol):
    """What a namespace does for clients."""

    def describe(self, path: EntityPath) -> bytes:
        """Return what a client is told of an entity (`topology.description`)."""

    async def prepare_deferral(self, path: EntityPath) -> None:
        """Have the queue for an entity's deferred messages."""

    async def peek(
        self, path: EntityPath, start: int, count: int, session_id: str | None = None
    ) -> list[Received]:
        """Return messages from a number on."""

    async def receive_deferred(
        self,
        path: EntityPath,
        numbers: Sequence[int],
        mode: ReceiveMode,
        session_id: str | None = None,
    ) -> list[Received]:
        """Return the deferred messages with these numbers."""


class Clients:
    """Answers clients."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    async def carry_out(self, what: str, question: Table) -> bytes:
        """Return the answer.

        Raises:
            ServiceBusError: it is refused.
            LookupError, ValueError, TypeError: it cannot be read.
        """
        path = parse_path(cast(bytes, question["path"][1]).decode())
        match what.removeprefix(CLIENT):
            case "describe":
                return encode_found(self._verbs.describe(path))
            case "aside":
                await self._verbs.prepare_deferral(path)
                return encode_done(())
            case "peek":
                start, count = (cast(int, question[name][1]) for name in ("start", "count"))
                found = await self._verbs.peek(path, start, min(count, COUNT_MAX))
                return encode_found(encode(_bounded(found)))
            case "deferred":
                return await self._deferred(path, question)
        raise LookupError(what)

    async def _deferred(self, path: EntityPath, question: Table) -> bytes:
        fields = cast("list[tuple[str, object]]", question["numbers"][1])
        numbers = [cast(int, value) for _, value in fields]
        if len(numbers) > COUNT_MAX:
            raise ArgumentOutOfRange(f"{COUNT_MAX} deferred messages at most are received at once.")
        is_locking = bool(question["lock"][1])
        mode = ReceiveMode.PEEK_LOCK if is_locking else ReceiveMode.RECEIVE_AND_DELETE
        found = await self._verbs.receive_deferred(path, numbers, mode)
        return encode_found(encode(_shown(each) for each in found))


def _bounded(found: Sequence[Received]) -> list[Shown]:
    """Return the first messages, one at least."""
    shown: list[Shown] = []
    size_bytes = 0
    for each in found:
        message = _shown(each)
        size_bytes += len(message.properties) + len(message.body)
        if shown and size_bytes > BYTES_MAX:
            break
        shown.append(message)
    return shown


def _shown(received: Received) -> Shown:
    state = MESSAGE_STATE_ACTIVE
    if received.is_deferred:
        state = MESSAGE_STATE_DEFERRED
    elif received.is_scheduled:
        state = MESSAGE_STATE_SCHEDULED
    token = received.lock_token
    return Shown(
        received.sequence_number,
        received.enqueued_ms,
        received.delivery_count,
        state,
        received.record.properties.encode(),
        received.record.body,
        received.time_to_live_ms,
        None if token is None else token.bytes,
        received.locked_until_ms,
        received.dead_letter,
    )
