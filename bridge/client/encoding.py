"""AMQP 1.0 sections: written as an SDK sends them, read as an SDK receives them.

The mapping to RabbitMQ is `bridge.wire.mapping`, as in the gateway, so all clients see the same
message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.decimals import decode_decimal
from bridge.wire.amqp10.errors import DecodeError, EncodeError
from bridge.wire.amqp10.types import Decimal128, Int, Symbol, Timestamp, Uint, read_value
from bridge.wire.mapping import sections as part

if TYPE_CHECKING:
    from bridge.client.messages import ServiceBusMessage

INT_MAX = 2**31 - 1
UINT_MAX = 2**32 - 1
ABSOLUTE_EXPIRY_MAX_MS = 253_402_243_199_000
"""9999-12-31T07:59:59Z, the latest absolute-expiry-time that the SDKs write."""

PARTITION_KEY = "x-opt-partition-key"
SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"


def encode(message: ServiceBusMessage) -> bytes:
    """Return the message's AMQP 1.0 sections.

    Raises:
        TypeError: an application property has a type without a form in AMQP 1.0, or is a decimal
            that .NET's cannot hold.
    """
    try:
        return b"".join(
            (
                _header(message),
                _annotations(message),
                _properties(message),
                _application_properties(message.application_properties),
                part.descriptor(part.DATA) + writing.encode(message._bytes),
            )
        )
    except EncodeError as error:
        raise TypeError(f"A message cannot be encoded: {error}") from None


def milliseconds(time_utc: datetime) -> int:
    """Return UTC milliseconds; a time without a zone is UTC."""
    aware = time_utc if time_utc.tzinfo is not None else time_utc.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def typed(value: object) -> Any:
    """Return a value as the SDK writes it: an `int` that fits 32 bits is an AMQP int."""
    if isinstance(value, bool) or not isinstance(value, int):
        if isinstance(value, datetime):
            return Timestamp(milliseconds(value))
        if isinstance(value, bytes | bytearray):
            return value.decode()  # as the SDK does
        return value
    if type(value) is int and -INT_MAX - 1 <= value <= INT_MAX:
        return Int(value)
    return value


def _header(message: ServiceBusMessage) -> bytes:
    if message._ttl_ms is None:
        return b""
    ttl = Uint(min(message._ttl_ms, UINT_MAX))
    return part.descriptor(part.HEADER) + writing.encode([None, None, ttl])


def _annotations(message: ServiceBusMessage) -> bytes:
    found: dict[Any, Any] = {}
    if message.partition_key is not None:
        found[Symbol(PARTITION_KEY)] = message.partition_key
    if message.scheduled_enqueue_time_utc is not None:
        due_ms = milliseconds(message.scheduled_enqueue_time_utc)
        found[Symbol(SCHEDULED_TIME)] = Timestamp(due_ms)
    return part.descriptor(part.MESSAGE_ANNOTATIONS) + writing.encode(found) if found else b""


def _properties(message: ServiceBusMessage) -> bytes:
    expiry = creation = None
    if message._ttl_ms is not None and message._creation_ms is not None:
        creation = Timestamp(message._creation_ms)
        expiry = Timestamp(min(message._creation_ms + message._ttl_ms, ABSOLUTE_EXPIRY_MAX_MS))
    items: list[Any] = [
        message.message_id,
        None,
        message.to,
        message.subject,
        message.reply_to,
        message.correlation_id,
        None if message.content_type is None else Symbol(message.content_type),
        None,
        expiry,
        creation,
        message.session_id,
        None,
        message.reply_to_session_id,
    ]
    while items and items[-1] is None:
        items.pop()
    return part.descriptor(part.PROPERTIES) + writing.encode(items) if items else b""


def _application_properties(values: Mapping[str | bytes, Any] | None) -> bytes:
    if not values:
        return b""
    found = {_text(name): typed(value) for name, value in values.items()}
    return part.descriptor(part.APPLICATION_PROPERTIES) + writing.encode(found)


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


@dataclass(slots=True)
class Decoded:
    """The decoded sections of a received message.

    Attributes:
        annotations: by name.
        properties: the section's list.
        application_properties: with names and texts as bytes, as the SDK has them.
        bodies: the values of the body's sections.
    """

    annotations: dict[str, Any] = field(default_factory=dict)
    properties: list[Any] = field(default_factory=list)
    application_properties: dict[bytes, Any] | None = None
    body_code: int = part.DATA
    bodies: list[Any] = field(default_factory=list)


def decode(raw: bytes) -> Decoded:
    """Read a message.

    Raises:
        ValueError: the bytes are no AMQP 1.0 message.
    """
    sections = part.split_sections(raw)
    found = Decoded()
    try:
        for code, (_, value_at, _) in sections.at.items():
            value = read_value(raw, value_at)[0]
            if code == part.PROPERTIES:
                found.properties = value
            elif code == part.MESSAGE_ANNOTATIONS:
                found.annotations = {str(name): each for name, each in value.items()}
            elif code == part.APPLICATION_PROPERTIES:
                found.application_properties = {
                    str(name).encode(): _received(each) for name, each in value.items()
                }
        for code, _, value_at, _ in sections.body:
            found.body_code = code
            found.bodies.append(read_value(raw, value_at)[0])
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return found


def _received(value: Any) -> Any:
    """Return a received value as the SDK shows it: texts are bytes, times are milliseconds."""
    if isinstance(value, Decimal128):
        return decode_decimal(writing.encode(value))
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return float(value) if isinstance(value, float) else int(value)
