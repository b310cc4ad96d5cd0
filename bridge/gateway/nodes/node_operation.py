"""An operation of `$management`, and how it reads its request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Disposition,
    NamespaceVerbs,
    Received,
    Release,
)
from bridge.gateway.client.client import Client
from bridge.gateway.links.outcomes import changes
from bridge.gateway.links.sending import outgoing
from bridge.message.envelopes import Outgoing
from bridge.model.entity import Right
from bridge.model.errors import ArgumentError, ArgumentOutOfRange, ServiceBusError
from bridge.model.name import EntityPath
from bridge.wire.amqp10.types import Array
from bridge.wire.mapping.fields import MappingError

ITEMS_MAX = 5_000
"""Messages of one request, however they are named: more than any SDK asks for at a time."""

RECEIVE_AND_DELETE, PEEK_LOCK = 0, 1
"""receiver-settle-mode of a request for deferred messages: a ubyte or a uint."""

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


def items_of(body: Body, name: str) -> Sequence[Any]:
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


def is_deletion(body: Any) -> bool:
    """Whether the body of a request for deferred messages asks for receive-and-delete."""
    return isinstance(body, dict) and body.get("receiver-settle-mode") == RECEIVE_AND_DELETE


def tokens_of(body: Body) -> Sequence[UUID]:
    """Return the lock tokens of a request."""
    items = items_of(body, "lock-tokens")
    if not all(isinstance(item, UUID) for item in items):
        raise ArgumentError("'lock-tokens' must be an array of uuid.")
    return items


def numbers_of(body: Body) -> Sequence[int]:
    """Return the sequence numbers of a request."""
    items = items_of(body, "sequence-numbers")
    if not all(map(is_long, items)):
        raise ArgumentError("'sequence-numbers' must be an array of long.")
    return [int(item) for item in items]


def numbers_in(entries: Sequence[Any], name: str) -> list[int]:
    """Return the sequence number of each entry, a map; `name` is its key. None may come twice."""
    numbers = [each.get(name) if isinstance(each, dict) else None for each in entries]
    found = [int(each) for each in numbers if each is not None and is_long(each)]
    if len(found) < len(numbers):
        raise ArgumentError(f"'{name}' must be a long.")
    if len(set(found)) < len(found):
        raise ArgumentError(f"The request names a '{name}' twice.")
    return found


def scheduled_in(entries: Sequence[Any]) -> Iterator[Outgoing]:
    """Yield the scheduled message of each entry, a map with an encoded `message`."""
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


def is_long(value: Any) -> bool:
    """Return whether a value is a whole number of 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def text_of(body: Body, name: str) -> str | None:
    """Return a text of a request, `None` without one; `name` is its key."""
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ArgumentError(f"'{name}' must be a string.")
    return value


def release_all(namespace: NamespaceVerbs, path: EntityPath, received: Sequence[Received]) -> None:
    """Release messages that a reply will not bring; nobody waits for it."""
    for each in received:
        if each.lock_token is not None:
            namespace.begin_settling(path, each.lock_token, Release(), lambda error: None)


def body_disposition(body: Body) -> Disposition:
    """Return what a request wants to become of locked messages."""
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
                reason=text_of(body, "deadletter-reason"),
                description=text_of(body, "deadletter-description"),
                properties=changes(modified),
            )
        case other:
            raise ArgumentError(f"'disposition-status' is {other!r}.")
