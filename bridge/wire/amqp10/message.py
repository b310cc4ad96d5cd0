"""Messages (part 3, section 3.2): batches taken apart, requests read and replies written.

What passes through to a queue is never decoded here: `bridge.wire.mapping` re-heads it. This file
serves the nodes that talk in messages (`$cbs`, `$management`) and Azure's batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from bridge.wire.amqp10 import types
from bridge.wire.amqp10.composite import decode_any, encode_composite
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.types import UNREADABLE

BATCH_FORMAT: Final = 0x80013700
"""The message-format of Azure's batch: each Data section holds one encoded message."""

_DATA = b"\x00\x53\x75"


@dataclass(slots=True)
class Message:
    """A message whose body is one value."""

    properties: MessageProperties = field(default_factory=MessageProperties)
    application_properties: dict[Any, Any] = field(default_factory=dict)
    value: Any = None


_VALUE: Final = 0x77
_APPLICATION_PROPERTIES: Final = 0x74


def decode_message(raw: bytes) -> Message:
    """Return a message with an amqp-value body (or none); other sections are read past.

    Raises:
        DecodeError: the bytes are no such message.
    """
    message = Message()
    at = 0
    try:
        while at < len(raw):
            if raw[at] != 0x00:
                raise DecodeError(f"0x{raw[at]:02x} at byte {at} begins no section")
            descriptor, value_at = types.decode(raw, at + 1)
            if descriptor == 0x73 or descriptor == "amqp:properties:list":
                properties, at = decode_any(raw, at)
                if not isinstance(properties, MessageProperties):
                    raise DecodeError("the properties are described by no ulong and no symbol")
                message.properties = properties
                continue
            value, at = types.decode(raw, value_at)
            if descriptor in (_APPLICATION_PROPERTIES, "amqp:application-properties:map"):
                if not isinstance(value, dict):
                    raise DecodeError("the application properties are no map")
                message.application_properties = value
            elif descriptor in (_VALUE, "amqp:amqp-value:*"):
                message.value = value
    except UNREADABLE as error:
        raise DecodeError(f"the message cannot be read at byte {at}: {error}") from None
    return message


def encode_message(message: Message) -> bytes:
    """Return the bytes of a message: properties, application properties, one amqp-value."""
    return (
        encode_composite(message.properties)
        + b"\x00\x53\x74"
        + types.write_map(message.application_properties)
        + b"\x00\x53\x77"
        + types.encode(message.value)
    )


def batch_messages(raw: bytes) -> list[bytes]:
    """Return the encoded messages of a batch; the envelope's other sections are read past.

    Raises:
        DecodeError: the bytes are no batch.
    """
    messages = []
    at, size = 0, len(raw)
    try:
        while at < size:
            if raw[at : at + 3] != _DATA:
                descriptor, at = types.decode(raw, at + 1) if raw[at] == 0 else (None, at)
                if descriptor is None:
                    raise DecodeError(f"0x{raw[at]:02x} at byte {at} begins no section")
                value, at = types.decode(raw, at)
                if descriptor == "amqp:data:binary":
                    messages.append(_binary(value))
                continue
            code = raw[at + 3]
            if code == 0xA0:
                start = at + 5
                end = start + raw[at + 4]
            elif code == 0xB0:
                start = at + 8
                end = start + int.from_bytes(raw[at + 4 : start], "big")
            else:
                raise DecodeError(f"the Data section at byte {at} holds no binary")
            if end > size or start > size:
                raise DecodeError(f"the Data section at byte {at} is cut short")
            messages.append(raw[start:end])
            at = end
    except UNREADABLE as error:
        raise DecodeError(f"the batch cannot be read at byte {at}: {error}") from None
    return messages


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise DecodeError("a Data section holds no binary")
    return value
