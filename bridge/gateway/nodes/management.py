"""`$management`: one table of an entity's operations, in requests and replies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from bridge.background.slices import in_slices
from bridge.engine import texts as engine_texts
from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Disposition,
    NamespaceVerbs,
    Received,
    ReceiveMode,
    Release,
)
from bridge.engine.clock import now_ms
from bridge.gateway.client import texts
from bridge.gateway.client.client import Client
from bridge.gateway.links.messages import peeked_entry, received_entry
from bridge.gateway.links.outcomes import changes
from bridge.gateway.links.sending import outgoing
from bridge.gateway.nodes import rules, session_operations
from bridge.message.envelopes import Outgoing
from bridge.model.availability import check_run
from bridge.model.duration import instant_text
from bridge.model.entity import Right, Subscription, Topic
from bridge.model.errors import (
    ArgumentError,
    ArgumentOutOfRange,
    InternalError,
    NotAllowed,
    NotImplementedHere,
    ServiceBusError,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.wire.amqp10.types import Array, Int, Symbol
from bridge.wire.mapping.common_values import Form
from bridge.wire.mapping.fields import MappingError

if TYPE_CHECKING:
    from bridge.gateway.nodes.request_links import LinkRequest, RequestLink

SUFFIX = "/$management"
_PREFIX = "com.microsoft:"

_FIRST, _SECOND = 0, 1
"""rcv-settle-mode: receive-and-delete, peek-lock. Clients send a ubyte or a uint."""

ITEMS_MAX = 5_000
"""Messages of one request, however they are named: more than any SDK asks for at a time."""

LOCKED_MAX = 250
"""Messages that one request locks by their numbers at most."""

DELETED_MAX = 4_000
"""Messages that one request deletes at most (Azure, batch delete)."""

SETTLED_AT_ONCE = 100
"""Messages that are settled before other tasks get their turn of the event loop."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Deleting:
    """A reply with messages that are received and deleted: they are settled when it is sent."""

    body: Body
    path: EntityPath
    tokens: Sequence[UUID]

    def on_sent(self, client: Client, is_sent: bool) -> None:
        """Complete the messages; if the client will not have the reply, release them."""

        def settled(error: ServiceBusError | None) -> None:
            if error is not None:
                log.info("deletion.failed", entity=str(self.path), reason=str(error))

        namespace, log = client.namespace, client.log
        for token in self.tokens:
            disposition = Complete() if is_sent else Release()
            namespace.begin_settling(self.path, token, disposition, settled)


@dataclass(frozen=True, slots=True)
class NodeOperation:
    """An operation: the required right and the function; no body means 'no content'.

    Attributes:
        in_session: a request that names a session must come from the connection that holds the
            session.
        shows_messages: the function takes the client's form, too.
    """

    right: Right
    run: Callable[..., Awaitable[Body | Deleting | None]]
    in_session: bool = False
    shows_messages: bool = False


def _items(body: Body, name: str) -> Sequence[Any]:
    """Return the elements of a list or an array, at most `ITEMS_MAX`; `name` is its key."""
    value = body.get(name)
    items = value.items if isinstance(value, Array) else value
    if not isinstance(items, list | tuple):
        raise ArgumentError(f"'{name}' must be a list or an array.")
    if len(items) > ITEMS_MAX:
        raise ArgumentOutOfRange(
            f"'{name}' holds {len(items)} elements; a request may have {ITEMS_MAX} at most."
        )
    return items


def _tokens(body: Body) -> Sequence[UUID]:
    items = _items(body, "lock-tokens")
    if not all(isinstance(item, UUID) for item in items):
        raise ArgumentError("'lock-tokens' must be an array of uuid.")
    return items


def _numbers(body: Body) -> Sequence[int]:
    items = _items(body, "sequence-numbers")
    if not all(map(_is_long, items)):
        raise ArgumentError("'sequence-numbers' must be an array of long.")
    return [int(item) for item in items]


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


async def _renew_lock(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    if session_operations.requires_session(namespace, path):
        raise NotAllowed(texts.MESSAGE_LOCK_OF_SESSION)
    ends_ms = await namespace.renew_locks(path, _tokens(body))
    return {"expirations": Array("timestamp", tuple(ends_ms))}


def _scheduled(entries: Sequence[Any]) -> Iterator[Outgoing]:
    for entry in entries:
        raw = entry.get("message") if isinstance(entry, dict) else None
        if not isinstance(raw, bytes):
            raise ArgumentError("'message' must be a binary: an encoded message.")
        try:
            item = outgoing(raw)
        except MappingError as error:
            raise ArgumentError(f"'message' is no AMQP message: {error}.") from error
        if item.scheduled_ms is None:
            raise ArgumentError("The message has no annotation x-opt-scheduled-enqueue-time.")
        yield item


async def _schedule_message(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    batch = await in_slices(_scheduled(_items(body, "messages")))
    numbers = await namespace.schedule(path, batch)
    return {"sequence-numbers": Array("long", tuple(numbers))}


async def _cancel_scheduled_message(
    namespace: NamespaceVerbs, path: EntityPath, body: Body
) -> Body:
    await namespace.cancel_scheduled(path, _numbers(body))
    return {}


async def _peek_message(
    namespace: NamespaceVerbs, path: EntityPath, body: Body, form: Form
) -> Body | None:
    start, count = body.get("from-sequence-number", 0), body.get("message-count", 1)
    if not _is_long(start) or not _is_long(count) or count < 1:
        raise ArgumentError(
            "'from-sequence-number' must be a whole number, and 'message-count' one above 0."
        )
    session_id = session_operations.session_id_of(body)
    found = await namespace.peek(path, max(int(start), 0), int(count), session_id)
    has_body, in_session = body.get("omit-message-body") is not True, _has_sessions(namespace, path)
    entry = partial(peeked_entry, form=form, in_session=in_session, has_body=has_body)
    return {"messages": await in_slices(map(entry, found))} if found else None


async def _batch_delete_messages(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    count: Any = body.get("message-count")
    before_ms: Any = body.get("enqueued-time-utc")
    if not _is_long(count) or not _is_long(before_ms):
        raise ArgumentError("'message-count' must be an int, 'enqueued-time-utc' a timestamp.")
    if not 1 <= int(count) <= DELETED_MAX:
        raise ArgumentOutOfRange(
            f"'message-count' is {count}; one request deletes 1 to {DELETED_MAX} messages."
        )
    session_id = _session_of(namespace, path, body)
    deleted = await namespace.delete_messages(path, int(count), int(before_ms), session_id)
    return {"message-count": Int(deleted)}


def _session_of(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> str | None:
    """Return the session of a request for messages; `None` if the entity has no sessions."""
    if not session_operations.requires_session(namespace, path):
        return None
    session_id = session_operations.session_id_of(body)
    if session_id is None:
        raise NotAllowed(engine_texts.PLAIN_ON_SESSION_ENTITY)
    return session_id


async def _receive_by_sequence_number(
    namespace: NamespaceVerbs, path: EntityPath, body: Body, form: Form
) -> Body | Deleting:
    settle_mode = body.get("receiver-settle-mode", _SECOND)
    if settle_mode not in (_FIRST, _SECOND):
        raise ArgumentError(f"'receiver-settle-mode' is {settle_mode!r}.")
    session_id = _session_of(namespace, path, body)
    numbers = _numbers(body)
    received = await namespace.receive_deferred(path, numbers, ReceiveMode.PEEK_LOCK, session_id)
    locked = received
    if settle_mode == _FIRST:
        received = [replace(each, lock_token=None, locked_until_ms=None) for each in received]
    try:
        entry = partial(received_entry, form=form, in_session=session_id is not None)
        answer: Body = {"messages": await in_slices(map(entry, received))}
    except BaseException:
        _release_all(namespace, path, locked)
        raise
    if settle_mode == _SECOND:
        return answer
    tokens = [each.lock_token for each in locked if each.lock_token is not None]
    return Deleting(answer, path, tokens)


async def _lock_messages(
    namespace: NamespaceVerbs, path: EntityPath, body: Body, form: Form
) -> Body:
    numbers = _numbers(body)
    if len(numbers) > LOCKED_MAX:
        raise ArgumentOutOfRange(
            f"'sequence-numbers' holds {len(numbers)} elements; one request locks {LOCKED_MAX} "
            "messages at most."
        )
    locked = await namespace.lock_messages(path, numbers)
    try:
        entry = partial(received_entry, form=form, in_session=False)
        messages = await in_slices(map(entry, locked.received))
    except BaseException:
        _release_all(namespace, path, locked.received)
        raise
    return {
        "messages": messages,
        "unavailable": Array("long", tuple(locked.unavailable)),
        "not-reached": Array("long", tuple(locked.unreached)),
        "not-found": Array("long", tuple(locked.missing)),
    }


async def _release_messages(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    """Release all that can be; say behind that if a lock had ended."""
    if session_operations.requires_session(namespace, path):
        raise NotAllowed(engine_texts.NUMBERS_OF_SESSIONS.format(entity=path))
    refused: ServiceBusError | None = None
    for token in _tokens(body):
        try:
            await namespace.settle(path, token, Release())
        except ServiceBusError as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return {}


def _release_all(namespace: NamespaceVerbs, path: EntityPath, received: Sequence[Received]) -> None:
    for each in received:
        if each.lock_token is not None:
            namespace.begin_settling(path, each.lock_token, Release(), lambda error: None)


def _has_sessions(namespace: NamespaceVerbs, path: EntityPath) -> bool:
    """Whether messages that are peeked, of a queue, subscription or topic, are of sessions."""
    if isinstance(namespace.entity(path), Topic):
        return False
    return session_operations.requires_session(namespace, path)


def _disposition(body: Body) -> Disposition:
    modified = body.get("properties-to-modify")
    match body.get("disposition-status"):
        case "completed":
            return Complete()
        case "abandoned":
            return Abandon(properties=changes(modified))
        case "defered":  # sic: the service's own spelling
            return Defer(properties=changes(modified))
        case "suspended":
            return DeadLetter(
                reason=_text_of(body, "deadletter-reason"),
                description=_text_of(body, "deadletter-description"),
                properties=changes(modified),
            )
        case other:
            raise ArgumentError(f"'disposition-status' is {other!r}.")


def _text_of(body: Body, name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ArgumentError(f"'{name}' must be a string.")
    return value


async def _update_disposition(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    disposition = _disposition(body)
    for count, token in enumerate(_tokens(body), 1):
        await namespace.settle(path, token, disposition)
        if count % SETTLED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return {}


def _subscription(namespace: NamespaceVerbs, path: EntityPath) -> Subscription:
    found = namespace.entity(path)
    if not isinstance(found, Subscription) or path.sub_queue is not SubQueue.NONE:
        raise NotAllowed(f"Only a subscription has rules, and '{path}' is none.")
    return found


async def _add_rule(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    subscription = _subscription(namespace, path)
    rule = rules.read_rule(body, instant_text(now_ms()))
    await namespace.administration.create_rule(subscription.path, rule)
    return {}


async def _remove_rule(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    subscription = _subscription(namespace, path)
    await namespace.administration.delete_rule(subscription.path, rules.read_name(body))
    return {}


async def _enumerate_rules(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body | None:
    skip, top = body.get("skip", 0), body.get("top", ITEMS_MAX)
    if not _is_long(skip) or not _is_long(top) or skip < 0 or top < 0:
        raise ArgumentError("'skip' and 'top' must be whole numbers, not below 0.")
    found = rules.shown(_subscription(namespace, path), skip, min(top, ITEMS_MAX))
    return {"rules": found} if found else None


async def _hold(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    await namespace.administration.hold(_whole(path), check_run(body.get("run")))
    return {}


async def _release(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    await namespace.administration.release(_whole(path), check_run(body.get("run")))
    return {}


def _whole(path: EntityPath) -> str:
    """Return the path of a queue, topic or subscription."""
    if path.sub_queue is not SubQueue.NONE:
        raise NotAllowed(f"A queue, topic or subscription is held as a whole, and '{path}' is not.")
    return path.entity


OPERATIONS: Final[dict[str, NodeOperation]] = {
    "renew-lock": NodeOperation(Right.LISTEN, _renew_lock),
    "schedule-message": NodeOperation(Right.SEND, _schedule_message),
    "cancel-scheduled-message": NodeOperation(Right.SEND, _cancel_scheduled_message),
    "receive-by-sequence-number": NodeOperation(
        Right.LISTEN, _receive_by_sequence_number, in_session=True, shows_messages=True
    ),
    "batch-delete-messages": NodeOperation(Right.LISTEN, _batch_delete_messages, in_session=True),
    "update-disposition": NodeOperation(Right.LISTEN, _update_disposition, in_session=True),
    "renew-session-lock": NodeOperation(
        Right.LISTEN, session_operations.renew_session_lock, in_session=True
    ),
    "get-session-state": NodeOperation(
        Right.LISTEN, session_operations.get_session_state, in_session=True
    ),
    "set-session-state": NodeOperation(
        Right.LISTEN, session_operations.set_session_state, in_session=True
    ),
    "get-message-sessions": NodeOperation(Right.LISTEN, session_operations.get_message_sessions),
    "peek-message": NodeOperation(Right.LISTEN, _peek_message, shows_messages=True),
    "add-rule": NodeOperation(Right.LISTEN, _add_rule),
    "remove-rule": NodeOperation(Right.LISTEN, _remove_rule),
    "enumerate-rules": NodeOperation(Right.LISTEN, _enumerate_rules),
}
"""Operation without its prefix -> right and function. Other operations are refused by name."""

OWN_OPERATIONS: Final[dict[str, NodeOperation]] = {
    "com.busbridge:hold": NodeOperation(Right.MANAGE, _hold),
    "com.busbridge:release": NodeOperation(Right.MANAGE, _release),
    "com.busbridge:lock-messages": NodeOperation(Right.LISTEN, _lock_messages, shows_messages=True),
    "com.busbridge:release-messages": NodeOperation(Right.LISTEN, _release_messages),
}
"""The same of operations that Azure does not have, for migrations and for commands."""


def handler(path: EntityPath) -> Callable[[RequestLink, LinkRequest], None]:
    """Return the handler for requests to an entity's node."""

    def on_request(link: RequestLink, request: LinkRequest) -> None:
        link.client.links.spawn(link.link, _answer(link, path, request))

    return on_request


async def _answer(link: RequestLink, path: EntityPath, request: LinkRequest) -> None:
    client = link.client
    message = request.message
    fields = message.application_properties
    properties: dict[str, Any] = {"statusCode": Int(200), "statusDescription": "OK"}
    tracking_id = fields.get("com.microsoft:tracking-id")
    if isinstance(tracking_id, str):
        properties["com.microsoft:tracking-id"] = tracking_id
    value: Body | Deleting | None = None
    try:
        if request.in_transaction:
            raise NotImplementedHere(texts.TRANSACTIONS_NOT_HERE)
        operation = _operation(fields.get("operation"))
        client.grants.require(operation.right, path)
        if not isinstance(message.value, dict):
            raise ArgumentError("The body of the request is no map.")
        body = message.value
        if operation.in_session:
            link_name = fields.get("associated-link-name")
            body = session_operations.of_holder(client, path, body, link_name)
        more = (client.form,) if operation.shows_messages else ()
        value = await operation.run(client.namespace, path, body, *more)
        if value is None:
            properties |= {"statusCode": Int(204), "statusDescription": "No content"}
    except ServiceBusError as error:
        properties |= describe(path, link, error)
    except Exception:
        client.log.exception("management.failed", entity=str(path))
        fault = InternalError("The request failed inside the bridge.")
        properties |= describe(path, link, fault)
    if isinstance(value, Deleting):
        link.reply(request, properties, value.body, partial(value.on_sent, client))
    else:
        link.reply(request, properties, value)
    client.flush_soon()


def _operation(name: Any) -> NodeOperation:
    text = str(name)
    operation = OWN_OPERATIONS.get(text)
    if text.startswith(_PREFIX):
        operation = OPERATIONS.get(text.removeprefix(_PREFIX))
    if operation is None:
        raise NotImplementedHere(f"The operation {text!r} is not implemented.")
    return operation


def describe(path: EntityPath, link: RequestLink, error: ServiceBusError) -> dict[str, Any]:
    """Return the application properties of a reply that says what was wrong with the request."""
    condition, description = link.client.describe(error, str(path))
    link.client.log.info("management.refused", entity=str(path), reason=str(error))
    return {
        "statusCode": Int(error.status),
        "statusDescription": description,
        "errorCondition": Symbol(condition),
    }
