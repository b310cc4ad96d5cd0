"""Conversion of an AMQP 1.0 message into a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from bridge.model.duration import MAX_MS, TIME_MAX_MS, TIME_MIN_MS
from bridge.model.errors import ArgumentOutOfRange, NotAllowed
from bridge.wire import headers
from bridge.wire.amqp10.primitives import encode_list, encode_map, encode_string
from bridge.wire.basic import FieldValue, Properties, Table, shown_text, text_in
from bridge.wire.headers import is_application_key
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.common_values import with_common_arrays
from bridge.wire.mapping.decimals import stored_value
from bridge.wire.mapping.fields import (
    AMQP_ENCODED,
    MappingError,
    Span,
    field_of,
    map_items,
    textual,
)
from bridge.wire.mapping.names import (
    BASIC_PROPERTIES,
    HEADER_CODES,
    HEADER_PROPERTIES,
    PROPERTY_CODES,
    PROPERTY_NAMES,
    SENDER_ANNOTATIONS,
    SERVICE_ANNOTATIONS,
)
from bridge.wire.mapping.order import set_order
from bridge.wire.mapping.relayed import check_allowed
from bridge.wire.record import Record

UINT_MAX = 2**32 - 1
SHORT_STRING_BYTES_MAX = 255
"""RabbitMQ's limit for a property and for a header's name."""

READABLE_BYTES_MAX = 32_000
"""Maximum size of application properties in readable form; larger ones are in the exact form only:
RabbitMQ closes the connection over a header frame above 131,064 bytes (measured: 4.0, 4.3)."""

KEY_CHARACTERS_MAX = 128
"""Service Bus's limit for message id, session ids and partition keys."""

_DIRECT_REPLY_TO = headers.DIRECT_REPLY_TO.encode()
"""RabbitMQ replaces this reply-to by an address, or closes the channel."""

_STRING_CODES = (0xA1, 0xB1)
_SYMBOL_CODES = (0xA3, 0xB3)
_ULONGS = b"\x80\x53\x44"
_KEYS = frozenset({"message-id", "group-id", "reply-to-group-id"})


@dataclass(slots=True)
class Inward:
    """A client's message, ready for RabbitMQ.

    Attributes:
        scheduled_ms: x-opt-scheduled-enqueue-time, UTC ms.
        session_id: group-id.
    """

    record: Record
    scheduled_ms: int | None
    session_id: str | None


def record_from_message(raw: bytes, *, new_message_id: str) -> Inward:
    """Return the record of one encoded AMQP 1.0 message.

    Args:
        raw: the message's sections.
        new_message_id: the id of a message without one (the JavaScript SDK cannot settle such a
            message).

    Raises:
        MappingError: the bytes are no AMQP 1.0 message.
        ArgumentOutOfRange: an id or a key is too long, or the scheduled time before the year 1.
        ArgumentError: a property or an annotation is a decimal that .NET cannot hold.
        NotAllowed: the message has a session id and a different partition key.
        InvalidField: it has the annotations of a relay's copy.
    """
    found = part.split_sections(raw)
    if found.has_rare_arrays:
        found = part.split_sections(with_common_arrays(found))
    properties = Properties(delivery_mode=2, headers={})
    assert properties.headers is not None
    exact: dict[int, bytes] = {}
    times = _read_properties(found, properties, exact)
    if properties.message_id is None and "message-id" not in times:
        properties.message_id = new_message_id
        if part.PROPERTIES in exact:
            exact[part.PROPERTIES] = _with_message_id(found, new_message_id)
    _read_header(found, properties.headers, times)
    scheduled_ms = _read_annotations(found, properties.headers, exact)
    _read_application_properties(found, properties.headers, exact)
    for code in (part.DELIVERY_ANNOTATIONS, part.FOOTER):
        if code in found.at:
            for key, _ in found.pairs(code):
                _annotation_key(found.raw, *key)
            if senders := _senders(found, code):
                exact[code] = senders
    if exact:
        properties.headers[headers.SECTIONS] = (
            "x",
            b"".join(exact[code] for code in sorted(exact)),
        )
    session_id = _session_id(properties.headers)
    body = _read_body(found, properties.headers)
    return Inward(Record(properties, body), scheduled_ms, session_id)


def _session_id(table: Table) -> str | None:
    """Return the session id; unless it is empty, a partition key must equal it, as at Azure."""
    session_id = text_in(table, headers.SESSION_ID)
    key = text_in(table, headers.PARTITION_KEY)
    if session_id and key is not None and key != session_id:
        raise NotAllowed(
            f"PartitionKey:{key} cannot be set to a different value than SessionId:{session_id}."
        )
    return session_id


def _read_properties(
    found: part.Sections, properties: Properties, exact: dict[int, bytes]
) -> dict[str, int]:
    """Fill in the properties that 0-9-1 can hold; return times (ms), and "message-id" if set."""
    assert properties.headers is not None
    seen: dict[str, int] = {}
    where = found.at.get(part.PROPERTIES)
    if where is None:
        return seen
    raw = found.raw
    is_exact = True
    items = found.items(part.PROPERTIES)
    _check_fields(raw, items, PROPERTY_CODES)
    for name, (start, end) in zip(PROPERTY_NAMES, items, strict=False):
        code = raw[start]
        if code == 0x40:
            continue
        field, field_is_exact = field_of(raw, start, end)
        if end - start > KEY_CHARACTERS_MAX and name in _KEYS:
            _check_length(name, field)
        if name in BASIC_PROPERTIES:
            if name == "message-id":
                seen[name] = 1
            # content type and encoding are symbols in AMQP 1.0, and are written back as symbols
            if name.startswith("content-"):
                field_is_exact = code in _SYMBOL_CODES
            else:
                field_is_exact = code in _STRING_CODES
            value = field[1] if field else None
            if isinstance(value, int):
                value = str(value).encode()
            is_storable = value != _DIRECT_REPLY_TO or name != "reply-to"
            if isinstance(value, bytes) and len(value) <= SHORT_STRING_BYTES_MAX and is_storable:
                try:
                    setattr(properties, BASIC_PROPERTIES[name], value.decode())
                except UnicodeDecodeError:
                    field_is_exact = False
            else:
                field_is_exact = False
        elif name in ("absolute-expiry-time", "creation-time") and code == 0x83:
            time_ms = int.from_bytes(raw[start + 1 : end], "big", signed=True)
            seen[name] = time_ms
            properties.headers[HEADER_PROPERTIES[name]] = ("l", time_ms)
            field_is_exact = True
            if name == "creation-time" and time_ms >= 0:
                properties.timestamp = time_ms // 1000
        elif field is not None:
            properties.headers[HEADER_PROPERTIES[name]] = field
        is_exact = is_exact and field_is_exact
    if not is_exact:
        exact[part.PROPERTIES] = found.section(part.PROPERTIES)
    return seen


def _check_fields(raw: bytes, items: list[tuple[int, int]], allowed: tuple[bytes, ...]) -> None:
    """Check the types of a section's fields: an SDK may stop reading at a field of another type."""
    if len(items) > len(allowed):
        raise MappingError(f"{len(items)} fields where {len(allowed)} are the most")
    for (start, _), codes in zip(items, allowed, strict=False):
        code = raw[start]
        if code != 0x40 and code not in codes:
            raise MappingError(f"0x{code:02x} at byte {start} is not of the field's type")


def _check_length(name: str, field: FieldValue | None) -> None:
    if field is None or field[0] != "S":
        return
    length = len(shown_text(cast(bytes, field[1])))
    if length > KEY_CHARACTERS_MAX:
        raise ArgumentOutOfRange(
            f"'{name}' has {length} characters; Service Bus takes {KEY_CHARACTERS_MAX} at most."
        )


def _with_message_id(found: part.Sections, message_id: str) -> bytes:
    """Return the properties section with a new first field and the other fields unchanged."""
    items = [found.raw[start:end] for start, end in found.items(part.PROPERTIES)]
    return part.descriptor(part.PROPERTIES) + encode_list(
        [encode_string(message_id.encode()), *items[1:]]
    )


_NULL_CODE = 0x40
_HEADER_FLAGS = ((0, headers.DURABLE), (3, headers.FIRST_ACQUIRER))
"""Places of the header section's flags, and the header of each."""


def _read_header(found: part.Sections, table: Table, times: dict[str, int]) -> None:
    """Read flags, priority and TTL; a TTL beyond a uint is the difference of the two times."""
    where = found.at.get(part.HEADER)
    ttl_ms: int | None = None
    if where is not None:
        items = found.items(part.HEADER)
        _check_fields(found.raw, items, HEADER_CODES)
        if len(items) > 1:
            priority = field_of(found.raw, *items[1])[0]
            if priority is not None and priority[1] is not None:
                table[headers.PRIORITY] = ("B", priority[1])
        for at, name in _HEADER_FLAGS:
            if len(items) > at and found.raw[items[at][0]] != _NULL_CODE:
                table[name] = cast(FieldValue, field_of(found.raw, *items[at])[0])
        if len(items) > 2 and (ttl := field_of(found.raw, *items[2])[0]) is not None:
            ttl_ms = ttl[1] if isinstance(ttl[1], int) else None
    if "creation-time" in times and "absolute-expiry-time" in times:
        span_ms = times["absolute-expiry-time"] - times["creation-time"]
        if span_ms > UINT_MAX:
            ttl_ms = span_ms
    if ttl_ms is not None and ttl_ms >= 0:  # RabbitMQ closes the channel over a negative TTL
        table[headers.TIME_TO_LIVE] = ("l", min(ttl_ms, MAX_MS))


def _read_annotations(found: part.Sections, table: Table, exact: dict[int, bytes]) -> int | None:
    where = found.at.get(part.MESSAGE_ANNOTATIONS)
    if where is None:
        return None
    raw = found.raw
    scheduled_ms = None
    is_exact = True
    for (key_start, key_end), (start, end) in found.pairs(part.MESSAGE_ANNOTATIONS):
        key = _annotation_key(raw, key_start, key_end)
        name = SENDER_ANNOTATIONS.get(key)
        if name == headers.SCHEDULED_ENQUEUE_TIME:
            scheduled_ms = _time_ms(raw, start, end)
            if scheduled_ms is not None:
                if scheduled_ms < TIME_MIN_MS:
                    raise ArgumentOutOfRange(
                        f"'{name}' is {scheduled_ms} ms, before the year 1: no client can read it."
                    )
                scheduled_ms = min(scheduled_ms, TIME_MAX_MS)
                table[name] = ("l", scheduled_ms)
        elif name is not None:
            field, field_is_exact = field_of(raw, start, end)
            if end - start > KEY_CHARACTERS_MAX:
                _check_length(name, field)
            if field is not None and _is_text(field):
                table[name] = ("S", field[1])
            is_exact = is_exact and field_is_exact
        elif key not in SERVICE_ANNOTATIONS:
            check_allowed(key)
            is_exact = False
    if not is_exact:
        # never empty: something that is not the service's needs the exact form
        exact[part.MESSAGE_ANNOTATIONS] = _senders(found, part.MESSAGE_ANNOTATIONS)
    return scheduled_ms


def _senders(found: part.Sections, code: int) -> bytes:
    """Return a section without the service's annotations; empty if it has no others.

    A client that sends a received message again sends them along: they are another broker's.
    """
    raw, pairs = found.raw, found.pairs(code)
    kept = []
    is_changed = False
    for key, (start, end) in pairs:
        name = textual(raw, *key)
        if name in SERVICE_ANNOTATIONS:
            is_changed = True
            continue
        value = stored_value(raw, start, end, name or b"")
        is_changed = is_changed or value != raw[start:end]
        kept.append((raw[key[0] : key[1]], value))
    if not is_changed:
        return found.section(code)
    return part.descriptor(code) + encode_map(kept) if kept else b""


def _is_text(field: FieldValue) -> bool:
    """Whether a field is text; the Python SDK sends bytes when it forwards a received message."""
    letter, value = field
    if letter == "S":
        return True
    if letter != "x" or not isinstance(value, bytes):
        return False
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _annotation_key(raw: bytes, start: int, end: int) -> bytes:
    """Return an annotation's name, "" for a number (numbers are reserved)."""
    key = textual(raw, start, end)
    if key is not None:
        return key
    if raw[start] not in _ULONGS:
        raise MappingError(f"the key at byte {start} is neither a symbol nor a ulong")
    return b""


def _time_ms(raw: bytes, start: int, end: int) -> int | None:
    """Return the time of an annotation, `None` for null; some SDKs send a time as a number."""
    if raw[start] == 0x83:
        return int.from_bytes(raw[start + 1 : end], "big", signed=True)
    field = field_of(raw, start, end)[0]
    if field is None or not isinstance(field[1], int | None) or isinstance(field[1], bool):
        raise MappingError(f"0x{raw[start]:02x} at byte {start} is no time")
    return field[1]


def _read_application_properties(
    found: part.Sections, table: Table, exact: dict[int, bytes]
) -> None:
    where = found.at.get(part.APPLICATION_PROPERTIES)
    if where is None:
        return
    raw = found.raw
    is_exact = True
    readable: Table = {}
    stored: dict[Span, bytes] = {}
    for (key_start, key_end), (start, end) in found.pairs(part.APPLICATION_PROPERTIES):
        if raw[key_start] not in _STRING_CODES:
            raise MappingError(f"the application property at byte {key_start} has no string name")
        key = raw[key_start + (2 if raw[key_start] == 0xA1 else 5) : key_end]
        field, field_is_exact = field_of(raw, start, end)
        if not field_is_exact:
            value = stored_value(raw, start, end, key)
            if value != raw[start:end]:
                stored[start, end] = value
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise MappingError(f"the name at byte {key_start} is no UTF-8") from None
        if field is None or len(key) > SHORT_STRING_BYTES_MAX or not is_application_key(name):
            is_exact = False
            continue
        # A stream of RabbitMQ 4 returns bytes as text: a peek needs the exact form.
        is_exact = is_exact and field_is_exact and name not in readable and field[0] != "x"
        readable[name] = field
    if where[2] - where[1] <= READABLE_BYTES_MAX or is_exact:
        table.update(readable)
    if stored:
        pairs = [
            (raw[key[0] : key[1]], stored.get(value) or raw[value[0] : value[1]])
            for key, value in found.pairs(part.APPLICATION_PROPERTIES)
        ]
        section = part.descriptor(part.APPLICATION_PROPERTIES) + encode_map(pairs)
        exact[part.APPLICATION_PROPERTIES] = section
    elif not is_exact:
        exact[part.APPLICATION_PROPERTIES] = found.section(part.APPLICATION_PROPERTIES)
    elif len(readable) > 1:
        set_order(table, list(readable))


def _read_body(found: part.Sections, table: Table) -> bytes:
    """Return the body: the content of a single Data section, else the encoded body sections."""
    if len(found.body) == 1 and found.body[0][0] == part.DATA:
        _, _, start, end = found.body[0]
        return found.raw[start + (2 if found.raw[start] == 0xA0 else 5) : end]
    table[headers.BODY] = ("S", b"sections")
    return found.body_sections()


def properties_from_map(raw: bytes) -> Table:
    """Return an encoded AMQP 1.0 map (a disposition's properties) as fields, values unchanged.

    Raises:
        MappingError: the value is no map with string or symbol keys.
        ArgumentError: a value is a decimal that .NET cannot hold.
    """
    table: Table = {}
    for (key_start, key_end), (start, end) in map_items(raw, 0):
        if raw[key_start] not in _STRING_CODES + _SYMBOL_CODES:
            raise MappingError(f"the key at byte {key_start} is neither a string nor a symbol")
        key = raw[key_start + (2 if raw[key_start] in (0xA1, 0xA3) else 5) : key_end]
        table[shown_text(key)] = (AMQP_ENCODED, stored_value(raw, start, end, key))
    return table
