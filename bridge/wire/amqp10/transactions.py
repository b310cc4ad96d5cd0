"""Messages to a coordinator of transactions (part 4, section 4.5): declare and discharge."""

from __future__ import annotations

from typing import Final

from bridge.wire.amqp10 import types
from bridge.wire.amqp10.composite import read_any
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.performatives import Declare, Discharge
from bridge.wire.amqp10.whole import check, to_read

_VALUES: Final = (0x77, "amqp:amqp-value:*")


def decode_request(raw: bytes) -> Declare | Discharge:
    """Return the declare or discharge that a message to a coordinator holds.

    Other sections than the body are checked and skipped.

    Raises:
        DecodeError: the bytes are no message, or its body is neither.
    """
    found: Declare | Discharge | None = None
    at, size = 0, len(raw)
    allowance = to_read(size)
    while at < size:
        if raw[at] != 0x00:
            raise DecodeError(f"0x{raw[at]:02x} at byte {at} begins no section")
        end = check(raw, at, size, allowance)
        descriptor, value_at = types.read_value(raw, at + 1)
        if descriptor in _VALUES:
            value, _ = read_any(raw, value_at)
            if isinstance(value, Declare | Discharge):
                found = value
        at = end
    if found is None:
        raise DecodeError("the body is neither a declare nor a discharge")
    return found
