"""Envelopes of sent messages for the sequencer, checked as in a bridge."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from bridge.client.exceptions import (
    MessageSizeExceededError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    of_model,
)
from bridge.message.batch_keys import BatchKeys
from bridge.message.envelopes import Outgoing, encode
from bridge.model import entity as model
from bridge.model.availability import refusal_of_sends
from bridge.model.duration import readable_time_ms
from bridge.topology.description import DescribedEntity
from bridge.wire.envelope import Operation
from bridge.wire.mapping.inward import record_from_message


def new_identity() -> bytes:
    """Return an identity for an envelope."""
    return uuid.uuid4().bytes


def send_entity(described: DescribedEntity) -> model.SendEntity:
    """Return the definition of an entity that takes messages.

    Raises:
        ServiceBusError: the entity is a subscription.
        MessagingEntityDisabledError: its status forbids sends.
        ServiceBusServerBusyError: a migration holds it.
    """
    entity = described.entity
    if isinstance(entity, model.Subscription):
        raise ServiceBusError(
            f"Messages are sent to a topic; '{entity.path}' is of the type Subscriber."
        )
    if (refused := refusal_of_sends(entity)) is not None:
        raise of_model(refused)
    return entity


def batch_body(
    operation: Operation,
    described: DescribedEntity,
    batch: Sequence[bytes],
    scheduled_ms: int | None = None,
) -> bytes:
    """Return the envelope that holds a batch.

    Args:
        batch: AMQP 1.0 sections of each message.
        scheduled_ms: when to enqueue all messages (UTC ms); `None`: each at its own time.

    Raises:
        ServiceBusQuotaExceededError: the entity is full.
        MessageSizeExceededError, ServiceBusError: a message may not enter.
    """
    entity = send_entity(described)
    if described.full:
        raise ServiceBusQuotaExceededError(described.full)
    limit_bytes = described.message_bytes_max
    requires_session = isinstance(entity, model.Queue) and entity.requires_session
    keys = BatchKeys(entity)
    outgoing = []
    for raw in batch:
        if len(raw) > limit_bytes:
            raise MessageSizeExceededError(_too_large(entity.path, len(raw), limit_bytes))
        inward = record_from_message(raw, new_message_id=uuid.uuid4().hex)
        if requires_session and inward.session_id is None:
            raise ServiceBusError(
                f"The SessionId was not set on a message, and '{entity.path}' requires sessions."
            )
        message = Outgoing(
            record=inward.record,
            size_bytes=len(raw),
            scheduled_ms=(
                inward.scheduled_ms if scheduled_ms is None else readable_time_ms(scheduled_ms)
            ),
            session_id=inward.session_id,
        )
        if operation is Operation.SEND:
            keys.check(message)
        outgoing.append(message)
    try:
        body = encode(operation, entity, outgoing, new_identity())
    except ValueError as error:
        raise MessageSizeExceededError(f"A message cannot be stored: {error}.") from error
    most = described.capabilities.message_bytes_max
    if len(body) > most:
        raise MessageSizeExceededError(_too_large(entity.path, len(body), most))
    return body


def _too_large(path: str, size_bytes: int, limit_bytes: int) -> str:
    return (
        f"The message (size:{size_bytes} bytes) exceeds the limit ({limit_bytes} bytes) currently "
        f"allowed on '{path}'."
    )
