"""`$management`: one table of an entity's operations, in requests and replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bridge.background.slices import in_slices
from bridge.engine import texts as engine_texts
from bridge.engine.api import NamespaceVerbs, ReceiveMode
from bridge.engine.clock import now_ms
from bridge.gateway.client import texts
from bridge.gateway.links.messages import peeked_entry, received_entry
from bridge.gateway.nodes import rules, session_operations
from bridge.gateway.nodes.node_operation import (
    ITEMS_MAX,
    PEEK_LOCK,
    RECEIVE_AND_DELETE,
    Body,
    Deleting,
    NodeOperation,
    body_disposition,
    is_long,
    items_of,
    numbers_of,
    release_all,
    scheduled_in,
    tokens_of,
)
from bridge.gateway.nodes.own_operations import OWN_OPERATIONS
from bridge.gateway.nodes.requests import body_of, describe, refuse, succeeded
from bridge.gateway.nodes.transacted_requests import (
    TransactedRequest,
    is_read,
    of_transaction,
    refusal_of_read,
)
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
from bridge.wire.amqp10.types import Array, Int
from bridge.wire.mapping.common_values import Form

if TYPE_CHECKING:
    from bridge.gateway.nodes.request_links import LinkRequest, RequestLink

SUFFIX = "/$management"
_PREFIX = "com.microsoft:"

DELETED_MAX = 4_000
"""Messages that one request deletes at most (Azure, batch delete)."""

SETTLED_AT_ONCE = 100
"""Messages that are settled before other tasks get their turn of the event loop."""


async def _renew_lock(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    if session_operations.requires_session(namespace, path):
        raise NotAllowed(texts.MESSAGE_LOCK_OF_SESSION)
    ends_ms = await namespace.renew_locks(path, tokens_of(body))
    return {"expirations": Array("timestamp", tuple(ends_ms))}


async def _schedule_message(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    batch = await in_slices(scheduled_in(items_of(body, "messages")))
    numbers = await namespace.schedule(path, batch)
    return {"sequence-numbers": Array("long", tuple(numbers))}


async def _cancel_scheduled_message(
    namespace: NamespaceVerbs, path: EntityPath, body: Body
) -> Body:
    await namespace.cancel_scheduled(path, numbers_of(body))
    return {}


async def _peek_message(
    namespace: NamespaceVerbs, path: EntityPath, body: Body, form: Form
) -> Body | None:
    start, count = body.get("from-sequence-number", 0), body.get("message-count", 1)
    if not is_long(start) or not is_long(count) or count < 1:
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
    if not is_long(count) or not is_long(before_ms):
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
    settle_mode = body.get("receiver-settle-mode", PEEK_LOCK)
    if settle_mode not in (RECEIVE_AND_DELETE, PEEK_LOCK):
        raise ArgumentError(f"'receiver-settle-mode' is {settle_mode!r}.")
    session_id = _session_of(namespace, path, body)
    numbers = numbers_of(body)
    received = await namespace.receive_deferred(path, numbers, ReceiveMode.PEEK_LOCK, session_id)
    locked = received
    if settle_mode == RECEIVE_AND_DELETE:
        received = [replace(each, lock_token=None, locked_until_ms=None) for each in received]
    try:
        entry = partial(received_entry, form=form, in_session=session_id is not None)
        answer: Body = {"messages": await in_slices(map(entry, received))}
    except BaseException:
        release_all(namespace, path, locked)
        raise
    if settle_mode == PEEK_LOCK:
        return answer
    tokens = [each.lock_token for each in locked if each.lock_token is not None]
    return Deleting(answer, path, tokens)


def _has_sessions(namespace: NamespaceVerbs, path: EntityPath) -> bool:
    """Whether messages that are peeked, of a queue, subscription or topic, are of sessions."""
    if isinstance(namespace.entity(path), Topic):
        return False
    return session_operations.requires_session(namespace, path)


async def _update_disposition(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    disposition = body_disposition(body)
    for count, token in enumerate(tokens_of(body), 1):
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
    if not is_long(skip) or not is_long(top) or skip < 0 or top < 0:
        raise ArgumentError("'skip' and 'top' must be whole numbers, not below 0.")
    found = rules.shown(_subscription(namespace, path), skip, min(top, ITEMS_MAX))
    return {"rules": found} if found else None


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


def handler(path: EntityPath) -> Callable[[RequestLink, LinkRequest], None]:
    """Return the handler for requests to an entity's node."""

    def on_request(link: RequestLink, request: LinkRequest) -> None:
        if request.txn_id is None:
            link.client.links.spawn(link.link, _answer(link, path, request))
        else:
            _answer_in_transaction(link, path, request)

    return on_request


def _answer_in_transaction(link: RequestLink, path: EntityPath, request: LinkRequest) -> None:
    text = str(request.message.application_properties.get("operation"))
    name = text.removeprefix(_PREFIX)
    if not is_read(name, request):
        operation = OPERATIONS.get(name)
        TransactedRequest(link, path, request, text, operation).begin()
        return
    refused = refusal_of_read(link, request)
    if refused is not None:
        refuse(link, path, request, refused)
        return
    operation = OPERATIONS[name]
    if name == "get-session-state":
        operation = of_transaction(link, request, operation)
    link.client.links.spawn(link.link, _answer(link, path, request, operation))


async def _answer(
    link: RequestLink,
    path: EntityPath,
    request: LinkRequest,
    operation: NodeOperation | None = None,
) -> None:
    client = link.client
    properties = succeeded(request)
    value: Body | Deleting | None = None
    try:
        operation = operation or _operation(request.message.application_properties.get("operation"))
        body = body_of(link, path, request, operation)
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
