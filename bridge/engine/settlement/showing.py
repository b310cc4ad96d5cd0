"""A message that one bridge shows another, which has a receiver for it."""

from __future__ import annotations

from uuid import UUID

from bridge.engine.api import Received
from bridge.wire.basic import Properties
from bridge.wire.deferred import decode_content, encode_content
from bridge.wire.record import Record


def show(received: Received) -> bytes:
    """Return a message, without its lock (`wire.deferred`)."""
    numbers = {
        "number": received.sequence_number,
        "enqueued": received.enqueued_ms,
        "failures": received.delivery_count,
        "ttl": received.time_to_live_ms,
    }
    record = received.record
    return encode_content(numbers, record.properties.encode(), record.body)


def read_shown(
    raw: bytes, token: UUID | None, until_ms: int | None, *, is_deferred: bool
) -> Received:
    """Return what another bridge has shown, with its lock."""
    numbers, properties, body = decode_content(raw)
    return Received(
        record=Record(Properties.decode(properties), body),
        sequence_number=numbers["number"],
        enqueued_ms=numbers["enqueued"],
        delivery_count=numbers["failures"],
        lock_token=token,
        locked_until_ms=until_ms,
        time_to_live_ms=numbers.get("ttl"),
        is_deferred=is_deferred,
    )
