"""Encoding of a sender's messages as the envelopes that a sequencer takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from bridge.machine.inbox.arrival import PROPERTIES_BYTES_MAX
from bridge.model import entity as model
from bridge.model.session_id import fold
from bridge.wire import envelope, headers, relay_source
from bridge.wire.basic import Properties, Table, bytes_in, integer_in, with_fields
from bridge.wire.digest import of_message
from bridge.wire.envelope import Item, Operation
from bridge.wire.imported import Imported
from bridge.wire.record import Record

_NONE: Table = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message on its way in, as a bridge or a client made it.

    Attributes:
        record: properties and body as they will stand in RabbitMQ, without number and times.
        size_bytes: the message's size as the client sent it, for the size limit.
        scheduled_ms: when to enqueue the message (UTC ms), or `None` for now.
        session_id: the message's session, or `None`.
        said: what a relay says of its copy (`wire.relay_source`); b"" of all other messages.
        target: the short id of the only subscription that gets a relay's copy; b"" for all.
        imported: what a migration says of a message that it imports.
        own: headers that only the service writes, of such a message.
    """

    said: ClassVar[bytes] = b""
    target: ClassVar[bytes] = b""
    imported: ClassVar[Imported | None] = None
    own: ClassVar[Table] = {}

    record: Record
    size_bytes: int
    scheduled_ms: int | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedCopy(Outgoing):
    """A relay's copy of a message on its way in."""

    said: bytes  # type: ignore[misc]
    target: bytes = b""  # type: ignore[misc]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage(Outgoing):
    """A message on its way in that keeps its number."""

    imported: Imported  # type: ignore[misc]
    own: Table = field(default_factory=dict)  # type: ignore[misc]


def encode(
    operation: Operation, entity: model.SendEntity, batch: Sequence[Outgoing], identity: bytes
) -> bytes:
    """Return the body of an envelope with the batch.

    Args:
        identity: 16 bytes that no other envelope has.

    Raises:
        ValueError: a message's headers do not fit into RabbitMQ's header frame.
    """
    items = [item_of(entity, outgoing) for outgoing in batch]
    return envelope.encode(operation, identity, items)


def encode_forwarded(
    entity: model.SendEntity, outgoing: Outgoing, identity: bytes, source: bytes, own: Table
) -> bytes:
    """Return the body of an envelope that forwards a message.

    Args:
        identity: the same whenever the message is forwarded again (`wire.forwarded`).
        source: the entity that forwards the message.
        own: headers that only a forwarder may write.

    Raises:
        ValueError: the message's headers do not fit into RabbitMQ's header frame.
    """
    item = item_of(entity, outgoing, own)
    item.source = source
    return envelope.encode(Operation.SEND, identity, [item])


def item_of(entity: model.SendEntity, outgoing: Outgoing, own: Table = _NONE) -> Item:
    """Return a message as an item of an envelope.

    Args:
        own: headers that only a forwarder may write.

    Raises:
        ValueError: the message's headers do not fit into RabbitMQ's header frame.
    """
    given = outgoing.record.properties
    table = given.headers or {}
    kept = {name: field for name, field in table.items() if not headers.is_reserved(name)}
    canonical = Properties(
        content_type=given.content_type,
        content_encoding=given.content_encoding,
        headers=kept | own | outgoing.own,
        delivery_mode=2,
        correlation_id=given.correlation_id,
        reply_to=given.reply_to,
        message_id=given.message_id,
        timestamp=given.timestamp,
        type=given.type,
        app_id=given.app_id,
    ).encode()
    if outgoing.target:
        canonical = with_fields(canonical, relay_source.target_field(outgoing.target))
    if outgoing.said:
        canonical = with_fields(canonical, relay_source.field(outgoing.said))
    if len(canonical) > PROPERTIES_BYTES_MAX:
        raise ValueError(
            f"{len(canonical)} bytes of properties; RabbitMQ takes {PROPERTIES_BYTES_MAX} at most"
        )
    return Item(
        canonical,
        outgoing.record.body,
        integer_in(table, headers.TIME_TO_LIVE),
        outgoing.scheduled_ms,
        _partition_key(entity, outgoing, table),
        None,
        of_message(given) if entity.requires_duplicate_detection else None,
        imported=outgoing.imported,
    )


def _partition_key(entity: model.SendEntity, outgoing: Outgoing, table: Table) -> bytes | None:
    """Return session id, else partition key, else the message id where duplicates are detected."""
    if not entity.enable_partitioning:
        return None
    session_id = outgoing.session_id
    if session_id is not None:
        spelt: str = fold(session_id) if entity.folds_session_ids else session_id
        return spelt.encode()[: envelope.KEY_BYTES_MAX]
    key = bytes_in(table, headers.PARTITION_KEY)
    if key is not None:
        return key[: envelope.KEY_BYTES_MAX]
    message_id = outgoing.record.properties.message_id
    if entity.requires_duplicate_detection and message_id is not None:
        return message_id.encode("utf-8", "surrogateescape")
    return None
