"""The properties section of a message for a client: its ids, its texts and its times."""

from __future__ import annotations

from bridge.wire import headers
from bridge.wire.amqp10.primitives import (
    NULL,
    encode_binary,
    encode_list,
    encode_string,
    encode_symbol,
    encode_uint,
)
from bridge.wire.basic import Properties, Table, bytes_in, integer_in, text_in
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import timestamp_of, utf8
from bridge.wire.mapping.inward import UINT_MAX
from bridge.wire.record import Record

ABSOLUTE_EXPIRY_MAX_MS = 253_402_243_199_000
"""9999-12-31T07:59:59Z, the latest absolute-expiry-time that the SDKs write."""

_PROPERTIES = part.descriptor(part.PROPERTIES)

_TIMES_AT, _TIMES_END = 8, 10
"""Where absolute expiry and creation time stand in the properties section."""


def _service_times(enqueued_ms: int, time_to_live_ms: int) -> tuple[int, int]:
    return min(enqueued_ms + time_to_live_ms, ABSOLUTE_EXPIRY_MAX_MS), enqueued_ms


def _times(
    properties: Properties, table: Table, enqueued_ms: int, time_to_live_ms: int | None
) -> tuple[int | None, int | None]:
    """Return absolute expiry and creation time.

    .NET and JavaScript take their difference for the TTL: with a TTL they are the service's, not
    the sender's, who knows neither the entity's TTL nor the time of a scheduled message.
    """
    if time_to_live_ms is not None:
        return _service_times(enqueued_ms, time_to_live_ms)
    creation_ms: int | None = None
    if headers.CREATION_TIME in table:
        creation_ms = integer_in(table, headers.CREATION_TIME)
    elif properties.timestamp is not None:
        creation_ms = properties.timestamp * 1000
    if headers.ABSOLUTE_EXPIRY_TIME not in table:
        return None, creation_ms
    return integer_in(table, headers.ABSOLUTE_EXPIRY_TIME), creation_ms


def _exact_section(exact: part.Sections, enqueued_ms: int, time_to_live_ms: int | None) -> bytes:
    """Return the stored section; with a TTL, it has the service's times."""
    if time_to_live_ms is None:
        return exact.section(part.PROPERTIES)
    items = [exact.raw[start:end] for start, end in exact.items(part.PROPERTIES)]
    items += [NULL] * (_TIMES_END - len(items))
    items[_TIMES_AT:_TIMES_END] = map(timestamp_of, _service_times(enqueued_ms, time_to_live_ms))
    return _PROPERTIES + encode_list(items)


_TEXT_FIELDS = (
    (2, headers.TO),
    (10, headers.SESSION_ID),
    (12, headers.REPLY_TO_SESSION_ID),
)
"""Indexes of text fields in the properties section, and the header of each."""


def text_or_null(table: Table, name: str) -> bytes:
    """Encode a header as text or null: strict clients refuse a message with another type there."""
    said = text_in(table, name)
    return NULL if said is None else encode_string(said.encode())


def properties_section(
    record: Record,
    exact: part.Sections | None,
    sequence_number: int,
    enqueued_ms: int,
    time_to_live_ms: int | None,
) -> bytes:
    """Return the properties section for a client.

    Args:
        exact: the stored sections of the message, if it has any.
        enqueued_ms: its enqueued time, UTC ms.
        time_to_live_ms: the TTL that the client is told, `None` for none.
    """
    if exact is not None and part.PROPERTIES in exact.at:
        return _exact_section(exact, enqueued_ms, time_to_live_ms)
    properties = record.properties
    table: Table = properties.headers or {}
    # the JavaScript SDK cannot settle a message without an id; native messages may have none
    given_id = properties.message_id
    message_id = f"{sequence_number:032x}" if given_id is None else given_id
    items = [encode_string(utf8(message_id))] + [NULL] * 12
    user_id = bytes_in(table, headers.USER_ID) if headers.USER_ID in table else None
    if user_id is not None:
        items[1] = encode_binary(user_id)
    for at, text in (
        (3, properties.type),
        (4, properties.reply_to),
        (5, properties.correlation_id),
    ):
        if text is not None:
            items[at] = encode_string(utf8(text))
    for at, text in ((6, properties.content_type), (7, properties.content_encoding)):
        if text is not None:
            # A symbol is ASCII, and strict clients refuse anything else.
            items[at] = encode_symbol(text.encode("ascii", "replace"))
    times = _times(properties, table, enqueued_ms, time_to_live_ms)
    for at, time_ms in enumerate(times, _TIMES_AT):
        if time_ms is not None:
            items[at] = timestamp_of(time_ms)
    for at, name in _TEXT_FIELDS:
        if name in table:
            items[at] = text_or_null(table, name)
    if headers.GROUP_SEQUENCE in table:
        sequence = integer_in(table, headers.GROUP_SEQUENCE)
        if sequence is not None and 0 <= sequence <= UINT_MAX:
            items[11] = encode_uint(sequence)
    while items[-1] is NULL:
        items.pop()
    return _PROPERTIES + encode_list(items)
