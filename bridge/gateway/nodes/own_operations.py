"""The operations of `$management` that Azure does not have, for migrations and for commands."""

from __future__ import annotations

from functools import partial
from typing import Final

from bridge.background.slices import in_slices
from bridge.engine import texts as engine_texts
from bridge.engine.api import NamespaceVerbs, Release
from bridge.gateway.links.messages import received_entry
from bridge.gateway.nodes import session_operations
from bridge.gateway.nodes.node_operation import (
    Body,
    NodeOperation,
    items_of,
    numbers_in,
    numbers_of,
    release_all,
    scheduled_in,
    tokens_of,
)
from bridge.machine.inbox.scheduled_moves import MOVED_MAX
from bridge.model.availability import check_run
from bridge.model.entity import Right
from bridge.model.errors import ArgumentOutOfRange, NotAllowed, ServiceBusError
from bridge.model.name import EntityPath, SubQueue, parse_path
from bridge.wire import own_operations
from bridge.wire.amqp10.types import Array
from bridge.wire.mapping.common_values import Form

LOCKED_MAX = 250
"""Messages that one request locks by their numbers at most."""


async def _lock_messages(
    namespace: NamespaceVerbs, path: EntityPath, body: Body, form: Form
) -> Body:
    numbers = numbers_of(body)
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
        release_all(namespace, path, locked.received)
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
    for token in tokens_of(body):
        try:
            await namespace.settle(path, token, Release())
        except ServiceBusError as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return {}


async def _move_scheduled_messages(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    """Have messages take the places of scheduled ones, all or none."""
    entries = items_of(body, "messages")
    if len(entries) > MOVED_MAX:
        raise ArgumentOutOfRange(
            f"'messages' holds {len(entries)} elements; one request moves {MOVED_MAX} messages at "
            "most."
        )
    numbers = numbers_in(entries, "sequence-number")
    batch = await in_slices(scheduled_in(entries))
    moved = await namespace.schedule(path, batch, numbers)
    return {"sequence-numbers": Array("long", tuple(moved))}


async def _hold(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    whole, run = _whole(path), check_run(body.get("run"))
    namespace.check_known(own_operations.HOLD)
    await namespace.administration.hold(whole, run)
    return {}


async def _release(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    await namespace.administration.release(_whole(path), check_run(body.get("run")))
    return {}


async def _last_numbers(namespace: NamespaceVerbs, path: EntityPath, body: Body) -> Body:
    run = check_run(body.get("run"))
    found = await namespace.importing.last_numbers(parse_path(_whole(path)), run)
    return {
        "last-numbers": Array("long", tuple(each.last for each in found)),
        "imported": Array("boolean", tuple(each.is_imported for each in found)),
    }


def _whole(path: EntityPath) -> str:
    """Return the path of a queue, topic or subscription."""
    if path.sub_queue is not SubQueue.NONE:
        raise NotAllowed(f"A queue, topic or subscription is held as a whole, and '{path}' is not.")
    return path.entity


OWN_OPERATIONS: Final[dict[str, NodeOperation]] = {
    own_operations.HOLD: NodeOperation(Right.MANAGE, _hold),
    own_operations.RELEASE: NodeOperation(Right.MANAGE, _release),
    own_operations.LAST_NUMBERS: NodeOperation(Right.MANAGE, _last_numbers),
    own_operations.LOCK_MESSAGES: NodeOperation(Right.LISTEN, _lock_messages, shows_messages=True),
    own_operations.RELEASE_MESSAGES: NodeOperation(Right.LISTEN, _release_messages),
    own_operations.MOVE_SCHEDULED_MESSAGES: NodeOperation(Right.SEND, _move_scheduled_messages),
    own_operations.IMPORT_SESSION_STATE: NodeOperation(
        Right.MANAGE, session_operations.import_session_state
    ),
    own_operations.SESSION_STATE_DIGESTS: NodeOperation(
        Right.MANAGE, session_operations.session_state_digests
    ),
}
"""Operation -> right and function."""
