"""Messages (part 3, section 3.2): batches taken apart, requests read and replies written.

A message on its way to a queue is not decoded here: `bridge.wire.mapping` converts it. This module
serves the nodes of requests and replies (`$cbs`, `$management`) and Azure's batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.wire.amqp10 import types, writing
from bridge.wire.amqp10.composite import encode_composite, read_any
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.whole import check, plain_items, to_read, to_store

BATCH_FORMAT: Final = 0x80013700
"""The message-format of Azure's batch: each Data section holds one encoded message."""

_DATA = b"\x00\x53\x75"


@dataclass(slots=True)
class AmqpMessage:
    """A message whose body is one value."""

    properties: MessageProperties = field(default_factory=MessageProperties)
    application_properties: dict[Any, Any] = field(default_factory=dict)
    value: Any = None


_VALUE: Final = 0x77
_APPLICATION_PROPERTIES: Final = 0x74


def decode_message(raw: bytes) -> AmqpMessage:
    """Return a message with an amqp-value body (or none); other sections are checked and skipped.

    Raises:
        DecodeError: the bytes are no such message.
    """
    message = AmqpMessage()
    at, size = 0, len(raw)
    allowance = to_read(size)
    while at < size:
        if raw[at] != 0x00:
            raise DecodeError(f"0x{raw[at]:02x} at byte {at} begins no section")
        descriptor: Any
        if _is_plain(raw, at):  # most sections are: nothing else need be checked of them
            descriptor, value_at = raw[at + 2], at + 3
            end = value_at + 2 + raw[value_at + 1]
        else:
            end = check(raw, at, size, allowance)
            descriptor, value_at = types.read_value(raw, at + 1)
        if descriptor == 0x73 or descriptor == "amqp:properties:list":
            properties, _ = read_any(raw, at)
            if not isinstance(properties, MessageProperties):
                raise DecodeError("the properties are described by no ulong and no symbol")
            message.properties = properties
        elif descriptor in (_APPLICATION_PROPERTIES, "amqp:application-properties:map"):
            value, _ = types.read_value(raw, value_at)
            if not isinstance(value, dict):
                raise DecodeError("the application properties are no map")
            message.application_properties = value
        elif descriptor in (_VALUE, "amqp:amqp-value:*"):
            message.value, _ = types.read_value(raw, value_at)
        at = end
    return message


def encode_message(message: AmqpMessage) -> bytes:
    """Return the bytes of a message: properties, application properties, one amqp-value."""
    return (
        encode_composite(message.properties)
        + b"\x00\x53\x74"
        + writing.write_map(message.application_properties)
        + b"\x00\x53\x77"
        + writing.encode(message.value)
    )


def _is_plain(raw: bytes, at: int) -> bool:
    """Whether a section begins at `at` that has a short list or map, and is plainly valid."""
    return (
        raw[at + 1 : at + 2] == b"\x53"
        and raw[at + 3 : at + 4] in (b"\xc0", b"\xc1")
        and plain_items(raw, at + 3) is not None
    )


_BODIES: Final = (0x76, 0x77, "amqp:amqp-sequence:list", "amqp:amqp-value:*")


def batch_messages(raw: bytes) -> Iterator[bytes]:
    """Yield the encoded messages of a batch; the batch's other sections are skipped.

    Raises:
        DecodeError: the bytes are no batch.
    """
    at, size = 0, len(raw)
    try:
        while at < size:
            if raw[at : at + 3] != _DATA:
                value_at, at = _section(raw, at, size)
                if not value_at:
                    continue
            else:
                value_at = at + 3
            code = raw[value_at]
            if code == 0xA0:
                start = value_at + 2
                end = start + raw[value_at + 1]
            elif code == 0xB0:
                start = value_at + 5
                end = start + int.from_bytes(raw[value_at + 1 : start], "big")
            else:
                raise DecodeError(f"the Data section at byte {at} holds no binary")
            if end > size or start > size:
                raise DecodeError(f"the Data section at byte {at} is cut short")
            yield raw[start:end]
            at = end
    except IndexError:
        raise DecodeError(f"the batch is cut short at byte {at}") from None


def _section(raw: bytes, at: int, size: int) -> tuple[int, int]:
    """Return the start of a Data section's value (0 for another section) and the section's end."""
    if raw[at] != 0x00:
        raise DecodeError(f"0x{raw[at]:02x} at byte {at} begins no section")
    end = check(raw, at, size, to_store(size))
    descriptor, value_at = types.read_value(raw, at + 1)
    if descriptor in (0x75, "amqp:data:binary"):
        return value_at, end
    if descriptor in _BODIES:
        raise DecodeError(f"the body at byte {at} is no Data section, as those of a batch are")
    return 0, end
