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
    numbers_of,
    release_all,
    tokens_of,
)
from bridge.model.availability import check_run
from bridge.model.entity import Right
from bridge.model.errors import ArgumentOutOfRange, NotAllowed, ServiceBusError
from bridge.model.name import EntityPath, SubQueue
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


OWN_OPERATIONS: Final[dict[str, NodeOperation]] = {
    "com.busbridge:hold": NodeOperation(Right.MANAGE, _hold),
    "com.busbridge:release": NodeOperation(Right.MANAGE, _release),
    "com.busbridge:lock-messages": NodeOperation(Right.LISTEN, _lock_messages, shows_messages=True),
    "com.busbridge:release-messages": NodeOperation(Right.LISTEN, _release_messages),
}
"""Operation -> right and function."""
