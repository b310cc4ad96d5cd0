"""Lines of JSON from which a message comes back byte for byte: those of exports and of undo files.

A value has several encodings, and a line says which value, with its type, not which encoding. So a
section that would come back otherwise stands in the line again, as its bytes, under `sections`. The
bytes count as long as they say what the line's fields say: who changes a field gets the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from bridge.operations.lines.line_text import parsed
from bridge.operations.lines.message_lines import (
    ANNOTATION_FIELDS,
    DEATH,
    HEADER_FIELDS,
    PROPERTY_FIELDS,
    fields_of,
)
from bridge.operations.lines.message_lines import message_of_fields as message_of_plain_fields
from bridge.operations.lines.scalar_values import Json, ValueRefused, base64_of, binary_of, shown
from bridge.operations.lines.section_items import items_of
from bridge.relay.plan.encoded_map import EncodedMap
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.primitives import encode_list, encode_string, encode_symbol
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.names import SERVICE_ANNOTATIONS
from bridge.wire.mapping.sections import descriptor

SECTIONS: Final = "sections"
"""The field of a line with sections as bytes, in Base64, by the names below."""

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "header": tuple(HEADER_FIELDS),
    "delivery_annotations": ("delivery_annotations",),
    "annotations": (*ANNOTATION_FIELDS, "annotations"),
    "properties": tuple(PROPERTY_FIELDS),
    "application_properties": ("application_properties",),
    "body": ("body",),
    "footer": ("footer",),
}
"""Section -> the fields of a line that are in it."""

_COUNT_AT: Final = list(HEADER_FIELDS).index("delivery_count")


def exact_line_of(message: RemoteMessage) -> str:
    """Return a message as a line from which it comes back byte for byte."""
    return json.dumps(exact_fields_of(message), ensure_ascii=False, allow_nan=False)


def exact_fields_of(message: RemoteMessage) -> dict[str, Json]:
    """Return the fields of a message's line, with the sections that need their bytes."""
    fields = fields_of(message)
    if message.unread:
        return fields
    try:
        plain = message_of_plain_fields(fields, now_ms=0, is_sent=False)
    except ValueRefused:  # a peer has sent what cannot be written here
        plain = RemoteMessage()
    apart = {
        name: base64_of(getattr(message, name))
        for name in _FIELDS
        if getattr(message, name) != getattr(plain, name)
    }
    return fields | {SECTIONS: apart} if apart else fields


def message_of(line: str, *, now_ms: int, is_sent: bool = True) -> RemoteMessage:
    """Return the message of a line; see `message_lines.message_of`.

    Args:
        is_sent: leave out what the service sets; otherwise the message comes back as it was.

    Raises:
        ValueRefused: the line stands for no message; the text names the field.
    """
    return message_of_fields(parsed(line), now_ms=now_ms, is_sent=is_sent)


def message_of_fields(
    fields: Mapping[str, Json], *, now_ms: int, is_sent: bool = True
) -> RemoteMessage:
    """Return the message of a line's fields; see `message_of`."""
    apart = fields.get(SECTIONS)
    plain = {name: value for name, value in fields.items() if name != SECTIONS}
    if apart is None:
        return message_of_plain_fields(plain, now_ms=now_ms, is_sent=is_sent)
    kept = _kept(plain, apart)
    others = {
        name: value
        for name, value in plain.items()
        if not any(name in _FIELDS[section] for section in kept) or name == "sequence_number"
    }
    made = message_of_plain_fields(others, now_ms=now_ms, is_sent=is_sent)
    if is_sent:
        is_received = fields.get("sequence_number") is not None
        kept = {name: _sent(name, raw, is_received=is_received) for name, raw in kept.items()}
    sections = {name: getattr(made, name) for name in _FIELDS} | kept
    return RemoteMessage(**sections)


def _kept(fields: Mapping[str, Json], apart: Json) -> dict[str, bytes]:
    """Return the sections whose bytes say what the fields say."""
    if not isinstance(apart, dict):
        raise ValueRefused(f"{shown(apart)} is no object", SECTIONS)
    found: dict[str, bytes] = {}
    for name, value in apart.items():
        if name not in _FIELDS:
            raise ValueRefused(f"there is no section {name!r}", SECTIONS)
        try:
            raw = binary_of(value)
            said = fields_of(RemoteMessage.read(raw))
        except ValueRefused as error:
            raise error.within(name).within(SECTIONS) from None
        except DecodeError as error:
            raise ValueRefused(f"{name}: {error}", SECTIONS) from None
        same = {field: value for field in _FIELDS[name] if (value := fields.get(field)) is not None}
        if json.loads(json.dumps(said)) == same:
            found[name] = raw
    return found


def _sent(name: str, raw: bytes, *, is_received: bool) -> bytes:
    """Return a section of a received message without what the service has set."""
    try:
        match name:
            case "delivery_annotations":
                return b""
            case "header":
                items = [raw[start:end] for start, end in items_of(raw, part.HEADER)]
                if len(items) <= _COUNT_AT:
                    return raw
                return descriptor(part.HEADER) + encode_list(items[:_COUNT_AT])
            case "annotations":
                pairs = EncodedMap(raw, part.MESSAGE_ANNOTATIONS)
                return pairs.changed(drop=SERVICE_ANNOTATIONS, as_key=encode_symbol)
            case "application_properties" if is_received:
                pairs = EncodedMap(raw, part.APPLICATION_PROPERTIES)
                return pairs.changed(drop={each.encode() for each in DEATH}, as_key=encode_string)
    except MappingError as error:
        raise ValueRefused(str(error), name) from None
    return raw
