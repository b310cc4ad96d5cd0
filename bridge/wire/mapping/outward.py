"""Conversion of a record into an AMQP 1.0 message, with the service's annotations."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from bridge.model.duration import readable_time_ms
from bridge.wire import headers
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.primitives import (
    NULL,
    encode_binary,
    encode_int,
    encode_list,
    encode_long,
    encode_map,
    encode_string,
    encode_symbol,
    encode_uint,
)
from bridge.wire.basic import FieldValue, Properties, Table, bytes_in, integer_in
from bridge.wire.headers import application_fields, is_application_key
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.decimals import WriteDecimal, shown_value
from bridge.wire.mapping.fields import (
    AMQP_ENCODED,
    MappingError,
    compound_items,
    encode_field,
    field_of,
    map_items,
    textual,
    timestamp_of,
    utf8,
)
from bridge.wire.mapping.inward import UINT_MAX
from bridge.wire.mapping.names import SENDER_ANNOTATIONS, SERVICE_ANNOTATIONS
from bridge.wire.mapping.order import in_order, set_order
from bridge.wire.mapping.properties import properties_section, text_or_null
from bridge.wire.record import Record

_SEQUENCE_NUMBER = encode_symbol(headers.SEQUENCE_NUMBER.encode()) + b"\x81"
_ENQUEUED_NUMBER = encode_symbol(headers.ENQUEUED_SEQUENCE_NUMBER.encode()) + b"\x81"
_ENQUEUED_TIME = encode_symbol(headers.ENQUEUED_TIME.encode()) + b"\x83"
_LOCKED_UNTIL = encode_symbol(b"x-opt-locked-until") + b"\x83"
_LOCK_TOKEN = encode_symbol(b"x-opt-lock-token")
_MESSAGE_STATE = encode_symbol(b"x-opt-message-state")
_SCHEDULED = encode_symbol(headers.SCHEDULED_ENQUEUE_TIME.encode())
_OMITTED = b"omitted-message-body-size"

_COUNT_MAX = 2**31 - 2
"""The most failed deliveries that are told: .NET shows one more, as an int."""

_pack_long = struct.Struct(">q").pack

_STRING_ANNOTATIONS = (
    (headers.PARTITION_KEY, encode_symbol(headers.PARTITION_KEY.encode())),
    (headers.VIA_PARTITION_KEY, encode_symbol(headers.VIA_PARTITION_KEY.encode())),
    (headers.DEAD_LETTER_SOURCE, encode_symbol(headers.DEAD_LETTER_SOURCE.encode())),
)

_OURS = SERVICE_ANNOTATIONS.union(SENDER_ANNOTATIONS)
"""Annotations that are written from headers, or by the service alone."""

MESSAGE_STATE_ACTIVE, MESSAGE_STATE_DEFERRED, MESSAGE_STATE_SCHEDULED = 0, 1, 2
"""Values of the annotation x-opt-message-state; Azure omits the annotation of an active message."""

APP_ID_PROPERTY = "x-basic-app-id"
"""Application property with a native publisher's app_id: AMQP 1.0 has no field for app_id."""


def message_from_record(
    record: Record,
    *,
    sequence_number: int,
    enqueued_ms: int,
    delivery_count: int = 0,
    locked_until_ms: int | None = None,
    time_to_live_ms: int | None = None,
    state: int = MESSAGE_STATE_ACTIVE,
    dead_letter: tuple[str, str] | None = None,
    lock_token: UUID | None = None,
    write_decimal: WriteDecimal = encode_decimal,
) -> bytes:
    """Return the encoded AMQP 1.0 message for a client.

    Args:
        record: the message as stored in RabbitMQ.
        state: active, deferred or scheduled.
        dead_letter: reason and description of a message that RabbitMQ itself dead-lettered.
        lock_token: the token of a locked message.
        write_decimal: how the client reads decimals among properties and annotations.
    """
    properties = record.properties
    table = properties.headers if properties.headers is not None else {}
    exact = exact_sections(table) if headers.SECTIONS in table else None
    return b"".join(
        (
            _header(table, time_to_live_ms, delivery_count),
            _NOTHING
            if exact is None and lock_token is None
            else _delivery_annotations(exact, lock_token, write_decimal),
            _annotations(
                table,
                exact,
                sequence_number,
                enqueued_ms,
                locked_until_ms,
                state,
                write_decimal,
            ),
            properties_section(record, exact, sequence_number, enqueued_ms, time_to_live_ms),
            _application_properties(properties, table, exact, dead_letter, write_decimal),
            _body(record, table),
            _footer(exact, write_decimal) if exact else b"",
        )
    )


def without_body(raw: bytes, body_bytes: int) -> bytes:
    """Return an encoded message without its body, which has `body_bytes`.

    Azure's JavaScript live test omitMessageBody finds the size in the delivery annotation.
    """
    found = part.split_sections(raw)
    pairs = [
        (raw[key[0] : key[1]], raw[value[0] : value[1]])
        for key, value in found.pairs(part.DELIVERY_ANNOTATIONS)
        if textual(raw, *key) != _OMITTED
    ]
    pairs.append((encode_symbol(_OMITTED), encode_long(body_bytes)))
    annotated = found.with_section(part.DELIVERY_ANNOTATIONS, encode_map(pairs))
    return found.section(part.HEADER) + annotated


def exact_sections(table: Table) -> part.Sections | None:
    """Return the exact sections of a message; `None` if absent, or malformed by a RabbitMQ user."""
    raw = bytes_in(table, headers.SECTIONS)
    if raw is None:
        return None
    try:
        found = part.split_sections(raw)
        for code, (_, value_at, _) in found.at.items():
            (compound_items if code == part.PROPERTIES else map_items)(found.raw, value_at)
    except MappingError:
        return None
    return found


_HEADER = part.descriptor(part.HEADER)
_DELIVERY_ANNOTATIONS = part.descriptor(part.DELIVERY_ANNOTATIONS)
_ANNOTATIONS = part.descriptor(part.MESSAGE_ANNOTATIONS)
_APPLICATION_PROPERTIES = part.descriptor(part.APPLICATION_PROPERTIES)
_DATA = part.descriptor(part.DATA)

_TOKEN_ALONE = (_DELIVERY_ANNOTATIONS + encode_map([(_LOCK_TOKEN, b"\x98" + bytes(16))]))[:-16]
"""Delivery annotations with only a lock's token, up to the token."""

_NOTHING = _DELIVERY_ANNOTATIONS + encode_map([])


def _header(table: Table, time_to_live_ms: int | None, delivery_count: int) -> bytes:
    ttl = NULL if time_to_live_ms is None else encode_uint(min(time_to_live_ms, UINT_MAX))
    items = [NULL, NULL, ttl, NULL, encode_uint(min(max(delivery_count, 0), _COUNT_MAX))]
    if headers.DURABLE in table:
        items[0] = _flag(table, headers.DURABLE)
    if headers.PRIORITY in table:
        priority = integer_in(table, headers.PRIORITY)
        if priority is not None and 0 <= priority < 256:
            items[1] = bytes((0x50, priority))
    if headers.FIRST_ACQUIRER in table:
        items[3] = _flag(table, headers.FIRST_ACQUIRER)
    return _HEADER + encode_list(items)


def _flag(table: Table, name: str) -> bytes:
    """Return what the sender said of itself; Azure adds nothing where it said nothing."""
    letter, value = table[name]
    if letter != "t":
        return NULL
    return b"\x41" if value else b"\x42"


def _delivery_annotations(
    exact: part.Sections | None, lock_token: UUID | None, write_decimal: WriteDecimal
) -> bytes:
    """Return the lock's token and the sender's annotations; Azure also sends the section empty."""
    if exact is None or part.DELIVERY_ANNOTATIONS not in exact.at:
        return _NOTHING if lock_token is None else _TOKEN_ALONE + lock_token.bytes
    pairs = [] if lock_token is None else [(_LOCK_TOKEN, b"\x98" + lock_token.bytes)]
    for key, span in exact.pairs(part.DELIVERY_ANNOTATIONS):
        name = textual(exact.raw, *key)
        if name is not None and name not in SERVICE_ANNOTATIONS:
            value = shown_value(exact.raw, span[0], span[1], write_decimal)
            pairs.append((exact.raw[key[0] : key[1]], value))
    return _DELIVERY_ANNOTATIONS + encode_map(pairs)


def _annotations(
    table: Table,
    exact: part.Sections | None,
    sequence_number: int,
    enqueued_ms: int,
    locked_until_ms: int | None,
    state: int,
    write_decimal: WriteDecimal,
) -> bytes:
    pairs = [
        (_SEQUENCE_NUMBER, _pack_long(sequence_number)),
        (_ENQUEUED_TIME, _pack_long(enqueued_ms)),
    ]
    if state != MESSAGE_STATE_ACTIVE:
        pairs.append((_MESSAGE_STATE, encode_int(state)))
    if locked_until_ms is not None:
        pairs.append((_LOCKED_UNTIL, _pack_long(locked_until_ms)))
    if headers.ENQUEUED_SEQUENCE_NUMBER in table:
        first = integer_in(table, headers.ENQUEUED_SEQUENCE_NUMBER)
        if first is not None and first < 2**63:
            pairs.append((_ENQUEUED_NUMBER, _pack_long(first)))
    scheduled = table.get(headers.SCHEDULED_ENQUEUE_TIME)
    if scheduled is not None and isinstance(scheduled[1], int):
        scheduled_ms = scheduled[1] * 1000 if scheduled[0] == "T" else scheduled[1]
        pairs.append((_SCHEDULED, timestamp_of(readable_time_ms(scheduled_ms))))
    for name, key in _STRING_ANNOTATIONS:
        if name in table and (value := text_or_null(table, name)) is not NULL:
            pairs.append((key, value))
    if exact is not None and part.MESSAGE_ANNOTATIONS in exact.at:
        for key_span, span in exact.pairs(part.MESSAGE_ANNOTATIONS):
            said = textual(exact.raw, *key_span)
            if said is not None and said not in _OURS:
                key = exact.raw[key_span[0] : key_span[1]]
                pairs.append((key, shown_value(exact.raw, span[0], span[1], write_decimal)))
    return _ANNOTATIONS + encode_map(pairs)


def _application_properties(
    properties: Properties,
    table: Table,
    exact: part.Sections | None,
    dead_letter: tuple[str, str] | None,
    write_decimal: WriteDecimal,
) -> bytes:
    pairs: list[tuple[bytes, bytes]]
    if exact is not None and part.APPLICATION_PROPERTIES in exact.at:
        raw = exact.raw
        pairs = [
            (
                raw[key[0] : key[1]],
                shown_value(raw, value[0], value[1], write_decimal),
            )
            for key, value in exact.pairs(part.APPLICATION_PROPERTIES)
        ]
    else:
        fields = application_fields(table)
        pairs = []
        if fields:
            pairs = [
                (encode_string(utf8(name)), encode_field(field))
                for name, field in in_order(table, fields)
            ]
        if properties.app_id is not None:
            app_id = encode_string(utf8(properties.app_id))
            pairs.append((encode_string(APP_ID_PROPERTY.encode()), app_id))
    if dead_letter is not None:
        names = (headers.DEAD_LETTER_REASON, headers.DEAD_LETTER_ERROR_DESCRIPTION)
        replaced = {name.encode() for name in names}
        pairs = [pair for pair in pairs if textual(pair[0], 0, len(pair[0])) not in replaced]
        for name, text in zip(names, dead_letter, strict=True):
            pairs.append((encode_string(name.encode()), encode_string(utf8(text))))
    if not pairs:
        return b""
    return _APPLICATION_PROPERTIES + encode_map(pairs)


def _footer(exact: part.Sections, write_decimal: WriteDecimal) -> bytes:
    if part.FOOTER not in exact.at:
        return b""
    raw = exact.raw
    pairs = [
        (raw[key[0] : key[1]], shown_value(raw, value[0], value[1], write_decimal))
        for key, value in exact.pairs(part.FOOTER)
    ]
    return part.descriptor(part.FOOTER) + encode_map(pairs)


def _body(record: Record, table: Table) -> bytes:
    if headers.BODY in table and _is_body(record.body):
        return record.body
    return _DATA + encode_binary(record.body)


def _is_body(raw: bytes) -> bool:
    """Whether bytes are body sections; a RabbitMQ user may set the header on any body."""
    try:
        return not part.split_sections(raw).at
    except MappingError:
        return False


def merge_properties(record: Record, changes: Table, removed: Iterable[str] = ()) -> Record:
    """Return the record with application properties added, replaced or removed.

    `changes` may hold encoded AMQP 1.0 values (`fields.AMQP_ENCODED`). A value that 0-9-1 can
    represent exactly becomes a header; otherwise the exact section is written anew.
    """
    table = dict(record.properties.headers or {})
    exact = exact_sections(table)
    if exact is not None and part.APPLICATION_PROPERTIES in exact.at:
        pairs = {
            encode_string(textual(exact.raw, *key) or b""): exact.raw[value[0] : value[1]]
            for key, value in exact.pairs(part.APPLICATION_PROPERTIES)
        }
        needs_exact = True
    else:
        pairs = {
            encode_string(utf8(name)): encode_field(field)
            for name, field in in_order(table, application_fields(table))
        }
        needs_exact = False
    for name in removed:
        pairs.pop(encode_string(utf8(name)), None)
        table.pop(name, None)
    for name, field in changes.items():
        encoded = encode_field(field)
        pairs[encode_string(name.encode())] = encoded
        readable, is_exact = _readable(field, encoded)
        if readable is not None and is_application_key(name) and len(name.encode()) <= 255:
            table[name] = readable
        else:
            table.pop(name, None)
            is_exact = False
        needs_exact = needs_exact or not is_exact
    set_order(table, [] if needs_exact else [_name_of(key) for key in pairs])
    if needs_exact:
        sections = part.Sections(b"") if exact is None else exact
        value = encode_map(list(pairs.items()))
        raw = sections.with_section(part.APPLICATION_PROPERTIES, value)
        table[headers.SECTIONS] = ("x", raw)
    return Record(replace(record.properties, headers=table), record.body)


def _name_of(key: bytes) -> str:
    return (textual(key, 0, len(key)) or b"").decode(errors="surrogateescape")


def _readable(field: FieldValue, encoded: bytes) -> tuple[FieldValue | None, bool]:
    return field_of(encoded, 0, len(encoded)) if field[0] == AMQP_ENCODED else (field, True)
