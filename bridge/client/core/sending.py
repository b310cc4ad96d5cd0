"""What is sent, as the envelopes that a sequencer takes; checked as every door checks it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from bridge.client.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    ServiceBusError,
)
from bridge.machine.arrival import PROPERTIES_BYTES_MAX
from bridge.model import entity as model
from bridge.topology.description import Described
from bridge.wire import envelope, headers
from bridge.wire.basic import FieldValue, Properties, Table
from bridge.wire.digest import of_message
from bridge.wire.envelope import Item, Operation
from bridge.wire.mapping.inward import Inward, record_from_message
from bridge.wire.stamp import is_reserved

_ABSENT: FieldValue = ("V", None)


def new_identity() -> bytes:
    """Return an identity for an envelope."""
    return uuid.uuid4().bytes


def send_entity(described: Described) -> model.SendEntity:
    """Return the definition of what takes messages.

    Raises:
        ServiceBusError: it is a subscription.
        MessagingEntityDisabledError: its status forbids sends.
    """
    entity = described.entity
    if isinstance(entity, model.Subscription):
        raise ServiceBusError(f"Messages are sent to a topic, not to '{entity.path}'.")
    if not entity.status.allows_sends:
        raise MessagingEntityDisabledError(
            f"Messaging entity '{entity.path}' is currently disabled for Send operations."
        )
    return entity


def batch_body(
    operation: Operation,
    described: Described,
    batch: Sequence[bytes],
    scheduled_ms: int | None = None,
) -> bytes:
    """Return the envelope that holds a batch.

    Args:
        batch: AMQP 1.0 sections of each message.
        scheduled_ms: when to enqueue all of them (UTC ms); `None`: as each says.

    Raises:
        MessageSizeExceededError, ServiceBusError: a message may not enter.
    """
    entity = send_entity(described)
    limit_bytes = described.message_bytes_max
    requires_session = isinstance(entity, model.Queue) and entity.requires_session
    items = []
    for raw in batch:
        if len(raw) > limit_bytes:
            raise MessageSizeExceededError(_too_large(entity.path, len(raw), limit_bytes))
        inward = record_from_message(raw, new_message_id=uuid.uuid4().hex)
        if requires_session and inward.session_id is None:
            raise ServiceBusError(
                f"The SessionId was not set on a message, and '{entity.path}' requires sessions."
            )
        item = _item(entity, inward)
        if scheduled_ms is not None:
            item.scheduled_ms = scheduled_ms
        items.append(item)
    body = envelope.encode(operation, new_identity(), items)
    most = described.capabilities.message_bytes_max
    if len(body) > most:
        raise MessageSizeExceededError(_too_large(entity.path, len(body), most))
    return body


def _too_large(path: str, size_bytes: int, limit_bytes: int) -> str:
    return (
        f"The message (size:{size_bytes} bytes) exceeds the limit ({limit_bytes} bytes) currently "
        f"allowed on '{path}'."
    )


def _item(entity: model.SendEntity, inward: Inward) -> Item:
    given = inward.record.properties
    table = given.headers or {}
    ttl_ms = table.get(headers.TIME_TO_LIVE, _ABSENT)[1]
    given.headers = {name: field for name, field in table.items() if not is_reserved(name)}
    properties = given.encode()
    if len(properties) > PROPERTIES_BYTES_MAX:
        raise MessageSizeExceededError(
            f"{len(properties)} bytes of properties; RabbitMQ takes {PROPERTIES_BYTES_MAX} at most."
        )
    return Item(
        properties,
        inward.record.body,
        ttl_ms if isinstance(ttl_ms, int) else None,
        inward.scheduled_ms,
        _partition_key(entity, given, table),
        None,
        of_message(given) if entity.requires_duplicate_detection else None,
    )


def _partition_key(entity: model.SendEntity, given: Properties, table: Table) -> bytes | None:
    """Session id, else partition key, else message id where duplicates are detected."""
    if not entity.enable_partitioning:
        return None
    for name in (headers.SESSION_ID, headers.PARTITION_KEY):
        value = table.get(name, _ABSENT)[1]
        if isinstance(value, bytes):
            return value
    if entity.requires_duplicate_detection and given.message_id is not None:
        return given.message_id.encode()
    return None
