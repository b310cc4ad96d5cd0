"""Messages that a bridge shows another bridge, or a client on RabbitMQ: a field table each.

Several messages stand one after another, each behind its length (u32).

number, enqueued, failures, state l | [ttl, until l] | [token x] | [reason, description S]
| properties, body x
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

from bridge.message.received import Received
from bridge.wire.basic import (
    Properties,
    Table,
    bytes_in,
    decode_table,
    encode_table,
    integer_in,
    long,
    text,
)
from bridge.wire.mapping.outward import MESSAGE_STATE_DEFERRED, MESSAGE_STATE_SCHEDULED
from bridge.wire.record import Record

_SIZE = struct.Struct(">I")


def encode(messages: Iterable[Received]) -> bytes:
    """Return messages as bytes; the bytes of several calls may be joined."""
    parts: list[bytes] = []
    for each in messages:
        raw = encode_one(each)
        parts += (_SIZE.pack(len(raw)), raw)
    return b"".join(parts)


def decode(raw: bytes) -> list[Received]:
    """Return the messages.

    Raises:
        ValueError: the bytes hold no messages.
    """
    found: list[Received] = []
    at = 0
    while at < len(raw):
        end = at + _SIZE.size + int.from_bytes(raw[at : at + _SIZE.size], "big")
        table, behind = decode_table(raw, at + _SIZE.size)
        if behind != end:
            raise ValueError(f"a message ends at byte {behind}, not {end}")
        found.append(_received(table))
        at = end
    return found


def encode_one(message: Received) -> bytes:
    """Return one message as bytes."""
    table: Table = {
        "number": long(message.sequence_number),
        "enqueued": long(message.enqueued_ms),
        "failures": long(message.delivery_count),
        "state": long(message.state),
        "properties": ("x", message.record.properties.encode()),
        "body": ("x", message.record.body),
    }
    if message.time_to_live_ms is not None:
        table["ttl"] = long(message.time_to_live_ms)
    if message.lock_token is not None and message.locked_until_ms is not None:
        table["token"] = ("x", message.lock_token.bytes)
        table["until"] = long(message.locked_until_ms)
    if message.dead_letter is not None:
        reason, description = message.dead_letter
        table |= {"reason": text(reason), "description": text(description)}
    return encode_table(table)


def decode_one(raw: bytes) -> Received:
    """Return one message.

    Raises:
        ValueError: the bytes hold no message.
    """
    return _received(decode_table(raw)[0])


def _received(table: Table) -> Received:
    token = bytes_in(table, "token")
    reason, description = bytes_in(table, "reason"), bytes_in(table, "description")
    dead_letter = None
    if reason is not None and description is not None:
        dead_letter = reason.decode(), description.decode()
    state = integer_in(table, "state")
    properties = Properties.decode(bytes_in(table, "properties") or b"")
    return Received(
        record=Record(properties, bytes_in(table, "body") or b""),
        sequence_number=integer_in(table, "number") or 0,
        enqueued_ms=integer_in(table, "enqueued") or 0,
        delivery_count=integer_in(table, "failures") or 0,
        lock_token=None if token is None else UUID(bytes=token),
        locked_until_ms=integer_in(table, "until"),
        time_to_live_ms=integer_in(table, "ttl"),
        dead_letter=dead_letter,
        is_deferred=state == MESSAGE_STATE_DEFERRED,
        is_scheduled=state == MESSAGE_STATE_SCHEDULED,
    )
