"""Bodies of messages in lines of JSON: a text, or an object that says which body it is."""

from __future__ import annotations

import json

from bridge.operations.lines.scalar_values import Json, ValueRefused, base64_of, binary_of, shown
from bridge.operations.lines.typed_values import bytes_of, json_of
from bridge.wire.amqp10.primitives import encode_binary
from bridge.wire.amqp10.types import read_value
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.sections import descriptor, split_sections


def body_of(raw: bytes) -> Json:
    """Return the body of a line: one Data section of UTF-8 is a string."""
    sections = split_sections(raw)
    kind = sections.body[0][0]
    starts = [value_at for _, _, value_at, _ in sections.body]
    if kind == part.AMQP_VALUE:
        return {"value": json_of(raw, starts[0])}
    if kind == part.AMQP_SEQUENCE:
        return {"sequence": [json_of(raw, start) for start in starts]}
    parts = [read_value(raw, start)[0] for start in starts]
    if len(parts) == 1:
        try:
            return str(parts[0].decode())
        except UnicodeDecodeError:
            return {"data": base64_of(parts[0])}
    return {"data": [base64_of(each) for each in parts]}


def body_bytes(value: Json) -> bytes:
    """Return the body sections of a line's body.

    Raises:
        ValueRefused: it is none.
    """
    if isinstance(value, str):
        return _data(_utf8(value))
    match value:
        case {"data": list() as parts} if len(value) == 1 and parts:
            return b"".join(_data(binary_of(each)) for each in parts)
        case {"data": single} if len(value) == 1:
            return _data(binary_of(single))
        case {"json": inner} if len(value) == 1:
            return _data(_utf8(json.dumps(inner, ensure_ascii=False, separators=(",", ":"))))
        case {"value": inner} if len(value) == 1:
            return descriptor(part.AMQP_VALUE) + bytes_of(inner)
        case {"sequence": list() as parts} if len(value) == 1 and parts:
            return b"".join(_sequence(each) for each in parts)
    raise ValueRefused(
        f"{shown(value)} is no body: it is a text, or an object with one of data (Base64), json, "
        "value, and sequence (an array of arrays)"
    )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueRefused(f"{shown(text)} has half a character (a lone surrogate)") from None


def _data(raw: bytes) -> bytes:
    return descriptor(part.DATA) + encode_binary(raw)


def _sequence(value: Json) -> bytes:
    if not isinstance(value, list):
        raise ValueRefused(f"{shown(value)} is no array", "sequence")
    return descriptor(part.AMQP_SEQUENCE) + bytes_of(value)
