"""The operations at an entity's `$management` of a remote namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from bridge.model.entity import Rule
from bridge.remote.connection import RemoteConnection
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import RemoteRefused, answer_of
from bridge.remote.locked_by_number import LockedByNumber as LockedByNumber
from bridge.remote.message import RemoteMessage
from bridge.remote.outcomes import Abandon, Complete, DeadLetter, Defer, Release, RemoteOutcome
from bridge.remote.receiver import ReceiveMode
from bridge.remote.requests import RequestLinks
from bridge.remote.rules import add_rule_body, shown_rule
from bridge.wire import own_operations
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import AmqpMessage
from bridge.wire.amqp10.scalars import Int, Long, Timestamp, Uint
from bridge.wire.amqp10.types import Array

if TYPE_CHECKING:
    from bridge.remote.namespace import RemoteNamespace

SUFFIX = "/$management"
_PREFIX = "com.microsoft:"

REPLY_S = 60.0

_NO_CONTENT = 204

ALL_MS = 253_402_300_800_000
"""`last-updated-time` of all sessions with messages or a state: .NET's DateTime.MaxValue."""

Body = dict[str, Any]


class RemoteManagement:
    """Operations of one entity; each raises RemoteError with the server's condition.

    What only reads is asked again when the connection is lost; the rest is in doubt then.

    Attributes:
        entity: the entity's path.
    """

    def __init__(self, namespace: RemoteNamespace, entity: str) -> None:
        self.entity = entity
        self._namespace = namespace
        self._links: RequestLinks | None = None
        self._attaching = asyncio.Lock()

    async def attach(self) -> None:
        """Attach the links, if they are not; raises RemoteError."""
        await self._namespace.patience.repeat(self._attached)

    async def _attached(self) -> RequestLinks:
        async with self._attaching:
            if self._links is None or not self._links.is_open:
                self._links = await self._namespace.attached(self.entity, self._open)
            return self._links

    async def _open(self, connection: RemoteConnection) -> RequestLinks:
        links = RequestLinks(connection, self.entity + SUFFIX)
        await links.open()
        return links

    async def peek(
        self, from_number: int, count: int, session_id: str | None = None
    ) -> list[RemoteMessage]:
        """Return messages from a sequence number on, in order, without locking them (Listen).

        Args:
            count: how many at most; Azure gives 250 a page. An empty list: there are no more.
        """
        body: Body = {"from-sequence-number": Long(from_number), "message-count": Int(count)}
        if session_id is not None:
            body["session-id"] = session_id
        found = await self._ask("peek-message", body, is_read=True)
        return [_message(each) for each in found.get("messages", ())]

    async def schedule(self, messages: Sequence[RemoteMessage]) -> list[int]:
        """Schedule messages, and return their sequence numbers in order (Send).

        Each has the annotation `x-opt-scheduled-enqueue-time`.
        """
        found = await self._ask(
            "schedule-message", {"messages": [_entry(each) for each in messages]}
        )
        return [int(each) for each in _items(found.get("sequence-numbers"))]

    async def cancel(self, numbers: Sequence[int]) -> None:
        """Cancel scheduled messages (Send); RemoteNotFound: one was enqueued meanwhile."""
        await self._ask("cancel-scheduled-message", {"sequence-numbers": _longs(numbers)})

    async def move_scheduled(
        self, numbers: Sequence[int], messages: Sequence[RemoteMessage]
    ) -> list[int]:
        """Have messages take the places of scheduled ones, all or none (a busbridge; Send).

        Each has the annotation `x-opt-scheduled-enqueue-time`. Asked twice it is done once: the
        second time the numbers are not found.

        Args:
            numbers: of the scheduled messages, 100 at most; none: ask whether the server can do it
                at this entity.

        Returns:
            The sequence numbers of the messages, in order.

        Raises:
            RemoteNotFound: one was enqueued meanwhile, or is not there; nothing has changed.
            RemoteRefused: it cannot be done here.
        """
        entries = [
            _entry(message) | {"sequence-number": Long(number)}
            for number, message in zip(numbers, messages, strict=True)
        ]
        body: Body = {"messages": entries}
        is_question = not entries
        found = await self._ask(own_operations.MOVE_SCHEDULED_MESSAGES, body, is_read=is_question)
        return list(_integers(found, "sequence-numbers"))

    async def receive_deferred(
        self,
        numbers: Sequence[int],
        mode: ReceiveMode = "peek-lock",
        session_id: str | None = None,
    ) -> list[RemoteDelivery]:
        """Return deferred messages by their numbers (Listen); RemoteNotFound: one is not there."""
        body: Body = {
            "sequence-numbers": _longs(numbers),
            "receiver-settle-mode": Uint(1 if mode == "peek-lock" else 0),
        }
        if session_id is not None:
            body["session-id"] = session_id
        found = await self._ask("receive-by-sequence-number", body)
        is_locked = mode == "peek-lock"
        return [_delivery(each, is_locked) for each in found.get("messages", ())]

    async def settle_deferred(
        self,
        lock_tokens: Sequence[UUID],
        outcome: RemoteOutcome,
        session_id: str | None = None,
    ) -> None:
        """Settle messages that were received by number (Listen).

        Raises:
            ValueError: the outcome is `Release`, which `$management` does not have.
            RemoteLockLost: a lock has ended.
        """
        body: Body = {"lock-tokens": Array("uuid", tuple(lock_tokens)), **_disposition(outcome)}
        if session_id is not None:
            body["session-id"] = session_id
        await self._ask("update-disposition", body)

    async def lock_messages(self, numbers: Sequence[int]) -> LockedByNumber:
        """Lock active messages, or dead letters, by their numbers (a busbridge; Listen).

        Args:
            numbers: 250 at most; none: ask whether the server can do it at this entity.

        Raises:
            RemoteRefused: it cannot.
        """
        body: Body = {"sequence-numbers": _longs(numbers)}
        found = await self._ask(own_operations.LOCK_MESSAGES, body, is_read=True)
        return LockedByNumber(
            deliveries=[_delivery(each, True) for each in _items(found.get("messages"))],
            unavailable=_integers(found, "unavailable"),
            unreached=_integers(found, "not-reached"),
            missing=_integers(found, "not-found"),
        )

    async def release_messages(self, lock_tokens: Sequence[UUID]) -> None:
        """Give messages back uncounted, near the front (a busbridge; Listen).

        Raises:
            RemoteLockLost: a lock has ended; the others are given back.
        """
        body: Body = {"lock-tokens": Array("uuid", tuple(lock_tokens))}
        await self._ask(own_operations.RELEASE_MESSAGES, body)

    async def renew_lock(self, lock_tokens: Sequence[UUID]) -> list[int]:
        """Renew the locks of messages, and return their ends in milliseconds since 1970."""
        body = {"lock-tokens": Array("uuid", tuple(lock_tokens))}
        found = await self._ask("renew-lock", body, is_read=True)
        return [int(each) for each in _items(found.get("expirations"))]

    async def renew_session_lock(self, session_id: str) -> int:
        """Renew the lock of a session that this connection holds; return its end."""
        found = await self._ask("renew-session-lock", {"session-id": session_id}, is_read=True)
        return int(found["expiration"])

    async def session_state(self, session_id: str) -> bytes | None:
        """Return the state of a session that this connection holds."""
        found = await self._ask("get-session-state", {"session-id": session_id}, is_read=True)
        state = found.get("session-state")
        return state if isinstance(state, bytes) else None

    async def set_session_state(self, session_id: str, state: bytes | None) -> None:
        """Set the state of a session that this connection holds; `None` removes it."""
        body = {"session-id": session_id, "session-state": state}
        await self._ask("set-session-state", body, is_read=True)

    async def message_sessions(
        self, skip: int = 0, top: int = 100, updated_after_ms: int | None = None
    ) -> list[str]:
        """Return a page of session ids: those with messages or a state (Listen).

        Args:
            updated_after_ms: those alone whose state was set since then.
        """
        since_ms = ALL_MS if updated_after_ms is None else updated_after_ms
        body = {"last-updated-time": Timestamp(since_ms), "skip": Int(skip), "top": Int(top)}
        found = await self._ask("get-message-sessions", body, is_read=True)
        return [str(each) for each in _items(found.get("sessions-ids"))]

    async def rules(self, skip: int = 0, top: int = 100) -> list[Rule]:
        """Return a page of a subscription's rules (Listen)."""
        body = {"skip": Int(skip), "top": Int(top)}
        found = await self._ask("enumerate-rules", body, is_read=True)
        return [shown_rule(each) for each in found.get("rules", ())]

    async def add_rule(self, rule: Rule) -> None:
        """Add a rule to a subscription (Listen).

        Raises:
            ValueError: it has parameters, which administration alone can add.
        """
        await self._ask("add-rule", add_rule_body(rule))

    async def remove_rule(self, name: str) -> None:
        """Remove a rule of a subscription (Listen)."""
        await self._ask("remove-rule", {"rule-name": name})

    async def batch_delete(self, count: int, before_ms: int, session_id: str | None = None) -> int:
        """Delete messages that were enqueued before a time; return how many (Listen).

        Args:
            count: how many at most, 1 to 4,000.
        """
        body: Body = {"message-count": Int(count), "enqueued-time-utc": Timestamp(before_ms)}
        if session_id is not None:
            body["session-id"] = session_id
        found = await self._ask("batch-delete-messages", body)
        return int(found.get("message-count", 0))

    async def hold(self, run: str) -> None:
        """Hold the entity for a migration's run, at a bridge alone (Manage).

        Asked twice, it is held once. Refused when another run holds it.
        """
        await self._ask(own_operations.HOLD, {"run": run}, is_read=True)

    async def release(self, run: str) -> None:
        """End a run's hold of the entity, likewise; nothing changes when nobody holds it."""
        await self._ask(own_operations.RELEASE, {"run": run}, is_read=True)

    async def last_numbers(self, run: str) -> list[tuple[int, bool]]:
        """Return how far the numbers are of an entity that a run holds, by partition (Manage).

        Each with whether an import is known to have it; behind all that was imported before.
        """
        found = await self._ask(own_operations.LAST_NUMBERS, {"run": run}, is_read=True)
        numbers, imported = _items(found.get("last-numbers")), _items(found.get("imported"))
        return [(int(each), bool(known)) for each, known in zip(numbers, imported, strict=True)]

    async def import_session_state(self, run: str, session_id: str, state: bytes | None) -> None:
        """Store a session's state, or clear it, while a run holds the entity (Manage)."""
        body = {"run": run, "session-id": session_id, "session-state": state}
        await self._ask(own_operations.IMPORT_SESSION_STATE, body, is_read=True)

    async def session_state_digests(
        self, run: str, skip: int = 0, top: int = 1000
    ) -> dict[str, bytes]:
        """Return a page of the sessions that have a state, each with its SHA-256; likewise."""
        body = {"run": run, "skip": Int(skip), "top": Int(top)}
        found = await self._ask(own_operations.SESSION_STATE_DIGESTS, body, is_read=True)
        ids, digests = _items(found.get("sessions-ids")), _items(found.get("digests"))
        return {str(each): bytes(digest) for each, digest in zip(ids, digests, strict=True)}

    async def close(self) -> None:
        """Detach the links to `$management`; the next operation attaches them again."""
        links, self._links = self._links, None
        if links is not None:
            await links.close()

    async def _ask(self, operation: str, body: Body, *, is_read: bool = False) -> Body:
        """Return the body of the reply to a request.

        Args:
            is_read: it may be done twice: it is made again even if it was in doubt.
        """

        async def once() -> Body:
            links = await self._attached()
            fields = {
                "operation": operation if ":" in operation else _PREFIX + operation,
                f"{_PREFIX}server-timeout": Uint(int(REPLY_S * 1000)),
                "type": "entity-mgmt",
            }
            message = AmqpMessage(application_properties=fields, value=body)
            return _body(operation, await links.ask(message, within_s=REPLY_S))

        return await self._namespace.patience.repeat(once, is_repeatable=is_read)


def _body(operation: str, reply: AmqpMessage) -> Body:
    properties = reply.application_properties
    status = properties.get("statusCode")
    if status == _NO_CONTENT:
        return {}
    if not isinstance(status, int) or not 200 <= status < 300:
        condition = properties.get("errorCondition") or "amqp:internal-error"
        raise answer_of(str(condition), properties.get("statusDescription"))
    if not isinstance(reply.value, dict):
        text = f"The reply to {operation} has no map as its body."
        raise RemoteRefused("amqp:decode-error", text)
    return reply.value


def _items(value: Any) -> Sequence[Any]:
    return value.items if isinstance(value, Array) else value or ()


def _integers(found: Body, name: str) -> Sequence[int]:
    return [int(each) for each in _items(found.get(name))]


def _longs(numbers: Sequence[int]) -> Array:
    return Array("long", tuple(numbers))


def _message(entry: Any) -> RemoteMessage:
    raw = entry.get("message") if isinstance(entry, dict) else None
    if not isinstance(raw, bytes):
        raise RemoteRefused("amqp:decode-error", "The reply names a message that is not there.")
    try:
        return RemoteMessage.read(raw)
    except DecodeError as error:
        text = f"A message in the reply cannot be read: {error}"
        raise RemoteRefused("amqp:decode-error", text) from None


def _delivery(entry: Any, is_locked: bool) -> RemoteDelivery:
    message = _message(entry)
    token = entry.get("lock-token") if is_locked else None
    if is_locked and not isinstance(token, UUID):
        raise RemoteRefused("amqp:decode-error", "The reply has a message without its lock token.")
    return RemoteDelivery(message, token, b"" if token is None else token.bytes_le)


def _entry(message: RemoteMessage) -> Body:
    entry: Body = {"message-id": str(message.message_id or uuid4()), "message": message.encode()}
    if message.session_id is not None:
        entry["session-id"] = message.session_id
    if message.partition_key is not None:
        entry["partition-key"] = message.partition_key
    return entry


def _disposition(outcome: RemoteOutcome) -> Body:
    match outcome:
        case Complete():
            return {"disposition-status": "completed"}
        case Abandon(properties):
            return _with("abandoned", properties)
        case Defer(properties):
            return _with("defered", properties)  # sic: the service's own spelling
        case DeadLetter(reason, description, properties):
            found = _with("suspended", properties)
            if reason is not None:
                found["deadletter-reason"] = reason
            if description is not None:
                found["deadletter-description"] = description
            return found
        case Release():
            raise ValueError("A message that was received by its number is abandoned instead.")


def _with(status: str, properties: Any) -> Body:
    found: Body = {"disposition-status": status}
    if properties:
        found["properties-to-modify"] = dict(properties)
    return found
