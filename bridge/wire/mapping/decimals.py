"""Decimals among properties and annotations: one form is stored, and each client's is delivered.

A body is never touched.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from bridge.model.decimals import fit
from bridge.model.errors import ArgumentError
from bridge.wire.amqp10.decimals import CODES, decode_any, decode_decimal, encode_decimal
from bridge.wire.amqp10.primitives import encode_compound, encode_string
from bridge.wire.basic import shown_text
from bridge.wire.mapping.fields import MappingError, compound_items, skip_value

WriteDecimal = Callable[[Decimal], bytes]
"""The encoding of a decimal for a client, as `amqp10.decimals.encode_decimal`."""

_MAY_HOLD: Final = CODES + b"\xc0\xd0\xc1\xd1\x00"
"""Constructors of decimals, and of what may have decimals in it."""


def stored_value(raw: bytes, start: int, end: int, name: bytes) -> bytes:
    """Return the value `raw[start:end]` with its decimals as IEEE's decimal128.

    Raises:
        ArgumentError: .NET cannot hold a decimal, and would stop receiving at it.
    """
    if raw[start] not in _MAY_HOLD:
        return raw[start:end]

    def write(said: bytes) -> bytes:
        value = decode_decimal(said)
        if value is None:
            raise ArgumentError(
                f"'{shown_text(name)}' is a decimal that .NET cannot hold: of more than 96 bits, "
                "with a scale outside 0 to 28, or no number."
            )
        return encode_decimal(value)

    return _with_decimals(raw, start, end, write)


def shown_value(raw: bytes, start: int, end: int, write_decimal: WriteDecimal) -> bytes:
    """Return the value `raw[start:end]` with its decimals in a client's form.

    A decimal that .NET cannot hold, stored by an older version, becomes text: it would stop the
    client's receiver.
    """
    if raw[start] not in _MAY_HOLD:
        return raw[start:end]

    def write(said: bytes) -> bytes:
        value = decode_any(said)
        fitting = fit(value)
        return encode_string(str(value).encode()) if fitting is None else write_decimal(fitting)

    return _with_decimals(raw, start, end, write)


def _with_decimals(raw: bytes, start: int, end: int, write: Callable[[bytes], bytes]) -> bytes:
    """Return a value with what `write` makes of each decimal in it.

    In lists, in maps and under descriptors too, at any depth; arrays stay as they are.
    """
    code = raw[start]
    if code not in _MAY_HOLD:
        return raw[start:end]
    if code in CODES:
        return write(raw[start:end])
    if code == 0x00:
        at = skip_value(raw, start + 1)
        return raw[start:at] + _with_decimals(raw, at, end, write)
    try:
        spans = compound_items(raw, start)
    except MappingError:
        return raw[start:end]  # more items than are taken apart
    parts = [_with_decimals(raw, item_start, item_end, write) for item_start, item_end in spans]
    body = b"".join(parts)
    if body == raw[end - len(body) : end]:
        return raw[start:end]
    return encode_compound(0xC0 | code & 1, len(parts), body)
