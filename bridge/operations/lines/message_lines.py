"""Messages as lines of JSON, and lines as messages. docs/message-lines.md describes the lines.

A line has the fields of the message's properties and header, the annotations that Service Bus gives
a meaning, `application_properties`, `body`, and under `annotations`, `delivery_annotations` and
`footer` whatever else there is. A field has a type of its own, so its value stands bare; a value of
another type is written with its type's name (`typed_values`). So each value comes
back with its type. A field that is null, and a section without entries, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.model.duration import (
    MAX_MS,
    TIME_MAX_MS,
    format_duration,
    instant_text,
    parse_duration_ms,
)
from bridge.operations.lines.line_text import parsed
from bridge.operations.lines.message_bodies import body_bytes, body_of
from bridge.operations.lines.scalar_values import (
    UINT_MAX,
    Json,
    ValueRefused,
    base64_of,
    binary_of,
    shown,
)
from bridge.operations.lines.section_items import items_of
from bridge.operations.lines.typed_values import (
    bytes_of,
    json_of,
    pairs_bytes,
    payload_of,
    scalar_bytes,
)
from bridge.remote.message import STATES, RemoteMessage
from bridge.wire import headers
from bridge.wire.amqp10.primitives import (
    NULL,
    encode_list,
    encode_map,
    encode_symbol,
)
from bridge.wire.amqp10.types import CONSTRUCTORS, read_value
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import MappingError, Span, pairs_of, textual
from bridge.wire.mapping.names import PROPERTY_NAMES, SERVICE_ANNOTATIONS
from bridge.wire.mapping.sections import descriptor, split_sections


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a line.

    Attributes:
        type: the type whose values stand bare.
        to_json, from_json: of a payload that is written in a way of its own.
    """

    type: str
    to_json: Callable[[Json], Json] = lambda payload: payload
    from_json: Callable[[Json], Json] = lambda payload: payload


def _duration_text(payload: Json) -> Json:
    return format_duration(int(payload))


def _duration_ms(payload: Json) -> Json:
    """Return milliseconds of a duration such as PT5M, or of a number of milliseconds."""
    if isinstance(payload, str) and payload[:1] in "Pp":
        try:
            return parse_duration_ms(payload)
        except ValueError as error:
            raise ValueRefused(str(error)) from None
    return payload


def _lock_text(payload: Json) -> Json:
    """Return a lock's end; that of a session's message lies behind what ISO 8601 can write."""
    is_beyond = isinstance(payload, str) and payload.isdigit() and int(payload) > TIME_MAX_MS
    return instant_text(TIME_MAX_MS) if is_beyond else payload


def _state_name(payload: Json) -> Json:
    return STATES[payload] if payload in (0, 1, 2) else payload


def _state_number(payload: Json) -> Json:
    return STATES.index(payload) if payload in STATES else payload


HEADER_FIELDS: Final = {
    "durable": _Field("boolean"),
    "priority": _Field("ubyte"),
    "time_to_live": _Field("uint", _duration_text, _duration_ms),
    "first_acquirer": _Field("boolean"),
    "delivery_count": _Field("uint"),
}

PROPERTY_FIELDS: Final = {
    "message_id": _Field("string"),
    "user_id": _Field("binary"),
    "to": _Field("string"),
    "subject": _Field("string"),
    "reply_to": _Field("string"),
    "correlation_id": _Field("string"),
    "content_type": _Field("symbol"),
    "content_encoding": _Field("symbol"),
    "absolute_expiry_time": _Field("timestamp"),
    "creation_time": _Field("timestamp"),
    "session_id": _Field("string"),
    "group_sequence": _Field("uint"),
    "reply_to_session_id": _Field("string"),
}
"""Azure's names: `session_id` is AMQP's group-id, `reply_to_session_id` its reply-to-group-id."""

assert len(PROPERTY_FIELDS) == len(PROPERTY_NAMES)

ANNOTATION_FIELDS: Final = {
    "sequence_number": (headers.SEQUENCE_NUMBER, _Field("long")),
    "enqueued_time": (headers.ENQUEUED_TIME, _Field("timestamp")),
    "enqueued_sequence_number": (headers.ENQUEUED_SEQUENCE_NUMBER, _Field("long")),
    "state": ("x-opt-message-state", _Field("int", _state_name, _state_number)),
    "locked_until": ("x-opt-locked-until", _Field("timestamp", _lock_text)),
    "scheduled_enqueue_time": (headers.SCHEDULED_ENQUEUE_TIME, _Field("timestamp")),
    "partition_key": (headers.PARTITION_KEY, _Field("string")),
    "via_partition_key": (headers.VIA_PARTITION_KEY, _Field("string")),
    "dead_letter_source": (headers.DEAD_LETTER_SOURCE, _Field("string")),
}
"""Field -> the annotation's name, a symbol, and its type."""

_FIELD_OF = {name.encode(): field for field, (name, _) in ANNOTATION_FIELDS.items()}

_MAPS: Final = {
    "annotations": part.MESSAGE_ANNOTATIONS,
    "delivery_annotations": part.DELIVERY_ANNOTATIONS,
    "footer": part.FOOTER,
}
"""Field -> the section whose keys are symbols."""

FIELDS: Final = (
    *ANNOTATION_FIELDS,
    *PROPERTY_FIELDS,
    *HEADER_FIELDS,
    "application_properties",
    "body",
    *_MAPS,
    "unread",
)
"""The fields of a line; `unread` alone in that of bytes that are no message."""

SERVICE_FIELDS: Final = frozenset(
    {
        field
        for field, (name, _) in ANNOTATION_FIELDS.items()
        if name.encode() in SERVICE_ANNOTATIONS
    }
    | {"delivery_count", "delivery_annotations"}
)
"""Fields that the service sets: they are left out of a message that is sent."""


DEATH: Final = (headers.DEAD_LETTER_REASON, headers.DEAD_LETTER_ERROR_DESCRIPTION)
"""Application properties that the service sets on a dead letter. They are left out when the line of
a received message is sent: it is not dead there."""


def line_of(message: RemoteMessage) -> str:
    """Return a message as a line, without a line end."""
    return json.dumps(fields_of(message), ensure_ascii=False, allow_nan=False)


def fields_of(message: RemoteMessage) -> dict[str, Json]:
    """Return the fields of a message's line."""
    if message.unread:
        return {"unread": base64_of(message.unread)}
    found: dict[str, Json] = {}
    others = _read_annotations(message.annotations, found)
    _read_list(message.properties, part.PROPERTIES, PROPERTY_FIELDS, found)
    _read_list(message.header, part.HEADER, HEADER_FIELDS, found)
    if properties := _map_of(message.application_properties, part.APPLICATION_PROPERTIES):
        found["application_properties"] = properties
    if message.body:
        found["body"] = body_of(message.body)
    if others:
        found["annotations"] = others
    for name in ("delivery_annotations", "footer"):
        if pairs := _map_of(getattr(message, name), _MAPS[name]):
            found[name] = pairs
    return found


def _field_json(raw: bytes, start: int, field: _Field) -> Json:
    kind = CONSTRUCTORS[raw[start]].type if raw[start] else ""
    if kind != field.type:
        found = json_of(raw, start)
        return found if isinstance(found, dict) else {kind: found}
    return field.to_json(payload_of(kind, read_value(raw, start)[0])[1])


def _read_list(raw: bytes, code: int, fields: Mapping[str, _Field], found: dict[str, Json]) -> None:
    items = items_of(raw, code) if raw else []
    for (name, field), (start, _) in zip(fields.items(), items, strict=False):
        if raw[start] != NULL[0]:
            found[name] = _field_json(raw, start, field)


def _read_annotations(raw: bytes, found: dict[str, Json]) -> Json:
    """Note the annotations with a field of their own; return the others."""
    if not raw:
        return None
    others = []
    for key, value in pairs_of(items_of(raw, part.MESSAGE_ANNOTATIONS)):
        name = _FIELD_OF.get(textual(raw, *key) or b"") if raw[key[0]] in b"\xa3\xb3" else None
        if name is None or name in found or raw[value[0]] == NULL[0]:
            others.append((key, value))
        else:
            found[name] = _field_json(raw, value[0], ANNOTATION_FIELDS[name][1])
    return _pairs_json(raw, others, b"\xa3\xb3")


def _map_of(raw: bytes, code: int) -> Json:
    """Return the map of a section: an object if its keys are what they are as a rule."""
    if not raw:
        return None
    keys = b"\xa1\xb1" if code == part.APPLICATION_PROPERTIES else b"\xa3\xb3"
    return _pairs_json(raw, pairs_of(items_of(raw, code)), keys)


def _pairs_json(raw: bytes, pairs: list[tuple[Span, Span]], keys: bytes) -> Json:
    """Return pairs as an object if all keys have one of these constructors, else as an array."""
    named = {
        (textual(raw, *key) or b"").decode(): json_of(raw, value[0])
        for key, value in pairs
        if raw[key[0]] in keys
    }
    if len(named) == len(pairs):
        return named
    return [[json_of(raw, key[0]), json_of(raw, value[0])] for key, value in pairs]


def message_of(line: str, *, now_ms: int, is_sent: bool = True) -> RemoteMessage:
    """Return the message of a line.

    Args:
        line: a JSON object; see `FIELDS`.
        now_ms: the time, UTC ms: a time to live above 49 days is sent as two times, as SDKs do.
        is_sent: leave out what the service sets (`SERVICE_FIELDS`).

    Raises:
        ValueRefused: the line stands for no message; the text names the field.
    """
    return message_of_fields(parsed(line), now_ms=now_ms, is_sent=is_sent)


def message_of_fields(
    fields: Mapping[str, Json], *, now_ms: int, is_sent: bool = True
) -> RemoteMessage:
    """Return the message of a line's fields; see `message_of`."""
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise ValueRefused(_unknown(unknown[0]))
    given = {
        name: value
        for name, value in fields.items()
        if value is not None and not (is_sent and name in SERVICE_FIELDS)
    }
    if is_sent and fields.get("sequence_number") is not None:
        given["application_properties"] = _without_death(given.get("application_properties"))
    if "unread" in given:
        if is_sent:
            raise ValueRefused("these bytes are no message, and are not sent", "unread")
        return RemoteMessage(unread=_within("unread", binary_of, given["unread"]))
    given = _with_times(given, now_ms)
    return RemoteMessage(
        header=_list_section(part.HEADER, HEADER_FIELDS, given),
        delivery_annotations=_map_section("delivery_annotations", given),
        annotations=_annotations_section(given, is_sent=is_sent),
        properties=_list_section(part.PROPERTIES, PROPERTY_FIELDS, given),
        application_properties=_map_section("application_properties", given),
        body=_within("body", body_bytes, given["body"]) if "body" in given else b"",
        footer=_map_section("footer", given),
    )


def _without_death(properties: Json) -> Json:
    """Return the properties of a received message without why it was dead-lettered."""
    if isinstance(properties, dict):
        return {name: value for name, value in properties.items() if name not in DEATH}
    if isinstance(properties, list):
        named = [[name] for name in DEATH]
        return [each for each in properties if not isinstance(each, list) or each[:1] not in named]
    return properties


def _unknown(name: str) -> str:
    import difflib

    similar = difflib.get_close_matches(name, FIELDS, 1)
    meant = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(FIELDS)}."
    return f"there is no field {name!r}; {meant} Your own go into application_properties"


def _within(name: str, read: Callable[[Json], bytes], value: Json) -> bytes:
    try:
        return read(value)
    except ValueRefused as error:
        raise error.within(name) from None


def _with_times(given: dict[str, Json], now_ms: int) -> dict[str, Json]:
    """Return the fields with a long time to live as the two times that stand for it."""
    ttl = given.get("time_to_live")
    try:
        ttl_ms = _duration_ms(ttl)
    except ValueRefused as error:
        raise error.within("time_to_live") from None
    if type(ttl_ms) is not int or not UINT_MAX < ttl_ms <= MAX_MS:
        return given
    if "absolute_expiry_time" in given or "creation_time" in given:
        raise ValueRefused(
            "above 49 days it is sent as absolute_expiry_time and creation_time: give these two, "
            "or it alone",
            "time_to_live",
        )
    times = {"creation_time": now_ms, "absolute_expiry_time": now_ms + ttl_ms}
    return given | times | {"time_to_live": UINT_MAX}


def _field_bytes(name: str, field: _Field, value: Json) -> bytes:
    try:
        if isinstance(value, dict):
            return bytes_of(value)
        return scalar_bytes(field.type, field.from_json(value))
    except ValueRefused as error:
        raise error.within(name) from None


def _list_section(code: int, fields: Mapping[str, _Field], given: Mapping[str, Json]) -> bytes:
    items = [
        _field_bytes(name, field, given[name]) if name in given else NULL
        for name, field in fields.items()
    ]
    while items and items[-1] == NULL:
        items.pop()
    return descriptor(code) + encode_list(items) if items else b""


def _annotations_section(given: Mapping[str, Json], *, is_sent: bool) -> bytes:
    pairs = [
        (encode_symbol(name.encode()), _field_bytes(field, of, given[field]))
        for field, (name, of) in ANNOTATION_FIELDS.items()
        if field in given
    ]
    others = _symbol_pairs("annotations", given.get("annotations"))
    kept = [
        (key, value)
        for key, value in others
        if not is_sent or textual(key, 0, len(key)) not in SERVICE_ANNOTATIONS
    ]
    pairs += kept
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueRefused("an annotation stands there twice", "annotations")
    return descriptor(part.MESSAGE_ANNOTATIONS) + encode_map(pairs) if pairs else b""


def _symbol_pairs(name: str, value: Json) -> list[tuple[bytes, bytes]]:
    """Return the encoded pairs of an object, whose names are symbols, or of an array of pairs."""
    if value is None:
        return []
    if isinstance(value, dict):
        value = [[{"symbol": key}, item] for key, item in value.items()]
    raw = descriptor(part.FOOTER) + _within(name, pairs_bytes, value)
    try:
        pairs = split_sections(raw).pairs(part.FOOTER)
    except MappingError as error:
        raise ValueRefused(str(error), name) from None
    return [(raw[slice(*key)], raw[slice(*item)]) for key, item in pairs]


def _map_section(name: str, given: Mapping[str, Json]) -> bytes:
    value = given.get(name)
    if not value:
        return b""
    if name != "application_properties":
        return descriptor(_MAPS[name]) + encode_map(_symbol_pairs(name, value))
    if not isinstance(value, dict | list):
        raise ValueRefused(f"{shown(value)} is no object", name)
    return descriptor(part.APPLICATION_PROPERTIES) + _within(name, pairs_bytes, value)
