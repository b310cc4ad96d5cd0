"""Messages that a transaction sends to other entities than its own: what is stored of them.

The target drops a message that comes again by its source and identity (`machine.inbox.forwarded`).
Its number in the transfer dead-letter queue is made of its identity: the same whenever it is
published there again.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple

from bridge.machine.inbox.arrival import MALFORMED_MESSAGE
from bridge.machine.inbox.publication import Publication
from bridge.message.envelopes import Outgoing, encode_forwarded
from bridge.model import entity as model
from bridge.topology import names
from bridge.wire import envelope, forwarded, headers
from bridge.wire.basic import Properties, long, text
from bridge.wire.commits import TransferredEnvelope
from bridge.wire.envelope import Envelope, Item, MalformedEnvelope, Operation, item_identity
from bridge.wire.sessions import session_id_in

_NUMBER_BITS = 53


def transfer_of(
    target: model.SendEntity, outgoing: Outgoing, transaction: bytes, place: int, pinned: bytes
) -> TransferredEnvelope:
    """Return a message of a transaction for another entity.

    Args:
        target: the other entity.
        transaction: the transaction's id.
        place: the message's number among the transaction's messages for other entities.
        pinned: the short id of the pinned entity's incarnation.

    Raises:
        ValueError: the message's headers do not fit into RabbitMQ's header frame.
    """
    source = forwarded.transfers_of(pinned)
    own = {headers.FORWARDED: forwarded.field(source, 0)}
    identity = forwarded.transferred_identity(transaction, place)
    body = encode_forwarded(target, outgoing, identity, source, own)
    return TransferredEnvelope(target.path, body)


def dead_transfers(
    path: str, body: bytes, reason: str, description: str, now_ms: int
) -> list[Publication]:
    """Return the publications of the messages of an envelope that its target does not take.

    Args:
        path: the pinned entity's path.
        body: the envelope; what is none becomes a dead letter as it is, and a message whose
            properties cannot be read one without them.
    """
    queue = names.transfer_dead_letter_queue(path)
    try:
        read = _decoded(body)
        items, identity = read.items, read.identity
    except Exception as error:  # otherwise it would come again and again
        reason, description = MALFORMED_MESSAGE, f"This is no envelope of messages: {error}"
        items = [Item(Properties(delivery_mode=2).encode(), body)]
        identity = hashlib.sha256(body).digest()[: envelope.IDENTITY_BYTES]
    return [
        Publication(
            "",
            queue,
            _dead(each, item_identity(identity, at), reason, description, now_ms).encode(),
            each.body,
        )
        for at, each in enumerate(items)
    ]


class TransferredItem(NamedTuple):
    """What a target's refusal depends on: the size of a message's body, and its session."""

    size_bytes: int
    session_id: str | None


def transferred_items(body: bytes) -> list[TransferredItem]:
    """Return what must be known of the messages in an envelope for a target.

    Raises:
        Exception: the envelope, or a message's properties, cannot be read.
    """
    return [
        TransferredItem(
            len(each.body), session_id_in(Properties.decode(each.properties).headers or {})
        )
        for each in _decoded(body).items
    ]


def _decoded(body: bytes) -> Envelope:
    read = envelope.decode(body)
    if read.operation is not Operation.SEND:
        raise MalformedEnvelope(f"it is no send, but {read.operation.name}")
    return read


def _dead(item: Item, identity: bytes, reason: str, description: str, now_ms: int) -> Properties:
    try:
        found = Properties.decode(item.properties)
    except ValueError as error:
        found = Properties()
        reason, description = MALFORMED_MESSAGE, f"The properties cannot be read: {error}"
    table = {
        headers.SEQUENCE_NUMBER: long(number_of(identity)),
        headers.ENQUEUED_TIME: long(now_ms),
        headers.NUMBERED: ("t", True),
        headers.IDENTITY: ("x", identity),
        headers.DEAD_LETTERED: long(0),
        headers.DEAD_LETTER_REASON: text(reason),
        headers.DEAD_LETTER_ERROR_DESCRIPTION: text(description[:1_000]),
    }
    if item.ttl_ms is not None:
        table[headers.TIME_TO_LIVE] = long(item.ttl_ms)
    return replace(found, headers=(found.headers or {}) | table, delivery_mode=2)


def number_of(identity: bytes) -> int:
    """Return the number of a message in the transfer dead-letter queue, from 1 on."""
    raw = hashlib.sha256(b"number" + identity).digest()[:8]
    return (int.from_bytes(raw, "big") >> (64 - _NUMBER_BITS)) or 1
