"""Values that some SDKs cannot read, in a form that they can.

A value that an SDK cannot read stops its receiver, for good:

    Python   char, decimal32, decimal64, an empty array, an array of chars or decimals
    Go       char, all decimals, arrays of lists, arrays or described values; it ends
             its process at a dead letter's reason or description that is no text
    others   an empty array as the Python SDK writes it, without the constructor of its elements
    Java     an array of constants, whose elements have no bytes (true, 0, an empty list)

A char becomes a string, a decimal what the client reads, an array a list. What is stored stays as
it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from bridge.model.decimals import text_of
from bridge.wire import headers
from bridge.wire.amqp10.decimals import CODES, encode_decimal, encode_for_python
from bridge.wire.amqp10.primitives import encode_compound, encode_list, encode_map, encode_string
from bridge.wire.amqp10.whole import is_run
from bridge.wire.basic import Table, bytes_in, shown_text
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.decimals import WriteDecimal, shown_value
from bridge.wire.mapping.fields import MappingError, field_of, skip_value, textual, utf8

BODY_BYTES_MAX: Final = 32_768
"""A body above this is passed on as it came: it would keep other clients waiting too long."""

SENT_BODY_BYTES_MAX: Final = 262_144
"""The same for a message that is sent, which is taken apart once."""

COUNT_MAX: Final = 65_536
"""The most elements of a list, map or array that the SDKs of Python and Go read."""

_CONSTANTS: Final = {
    0x41: (b"\x56", b"\x01"),
    0x42: (b"\x56", b"\x00"),
    0x43: (b"\x52", b"\x00"),
    0x44: (b"\x53", b"\x00"),
    0x45: (b"\xc0", b"\x01\x00"),
}
"""Constructor of a constant -> constructor and bytes of the same value."""

YEAR_10000_MS: Final = 253_402_300_800_000
"""The end of the year 9999: Python's clock ends before it."""

EMPTY_ARRAY: Final = b"\xe0\x02\x00\xa1"
"""An empty array of strings, which all SDKs but Python's read."""

_CHAR: Final = 0x73
_DECIMALS: Final = CODES
_BODY: Final = (part.AMQP_SEQUENCE, part.AMQP_VALUE)
_LISTS_AND_MAPS: Final = b"\xc0\xc1\xd0\xd1"
_ARRAYS: Final = b"\xe0\xf0"
_CHANGING: Final = bytes((_CHAR,)) + _DECIMALS + _ARRAYS
_LIST_CODE, _MAP_CODE = 0xC0, 0xC1
_ELEMENTS: Final = (
    b"\x50\x51\x52\x53\x54\x55\x56\x60\x61\x70\x71\x72\x80\x81\x82\x83\x98\xa0\xa1\xa3\xb0\xb1\xb3"
)
"""Constructors of elements that each SDK reads in an array."""

_TEXTS: Final = frozenset(
    name.encode() for name in (headers.DEAD_LETTER_REASON, headers.DEAD_LETTER_ERROR_DESCRIPTION)
)
_TEXTUAL: Final = b"\xa1\xa3\xb1\xb3"

_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}

Change = Callable[[bytes, int, int], bytes | None]
"""Returns what stands for the scalar or array `raw[start:end]`; `None`: it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What a client can read.

    Attributes:
        write_decimal: writes a decimal for the client.
        reads_all: it reads every value of AMQP 1.0.
        takes_any_reason: it reads a dead letter's reason that is no text.
        latest_ms: the latest time that it reads: .NET's 9999-12-31T23:59:59.9999999, as .NET writes
            and reads it, or the millisecond before.
    """

    write_decimal: WriteDecimal = encode_decimal
    reads_all: bool = True
    takes_any_reason: bool = True
    latest_ms: int = YEAR_10000_MS

    def of(self, raw: bytes, table: Table) -> bytes:
        """Return a message as the client can read it.

        Args:
            raw: the encoded message, whose decimals are the client's but for those in the body.
            table: the headers with which it is stored.
        """
        if not self.reads_all and (
            headers.BODY in table or (headers.SECTIONS in table and not _is_plain(table))
        ):
            raw = readable(raw, self.write_decimal)
        if not self.takes_any_reason and (
            headers.SECTIONS in table
            or headers.DEAD_LETTER_REASON in table
            or headers.DEAD_LETTER_ERROR_DESCRIPTION in table
        ):
            raw = with_texts(raw)
        return raw


def _is_plain(table: Table) -> bool:
    """Return whether a message has nothing beside its body that any SDK cannot read."""
    exact = bytes_in(table, headers.SECTIONS)
    if exact is None:
        return True
    try:
        found = part.split_sections(exact)
    except MappingError:
        return True  # what a RabbitMQ user has written there is not delivered
    return all(found.is_plain(code) for code in found.at)


def _decimal_text(value: Decimal) -> bytes:
    return encode_string(text_of(value).encode())


ALL: Final = Form()
PYTHON: Final = Form(write_decimal=encode_for_python, reads_all=False, latest_ms=YEAR_10000_MS - 1)
GO: Final = Form(write_decimal=_decimal_text, reads_all=False, takes_any_reason=False)


def readable(raw: bytes, write_decimal: WriteDecimal) -> bytes:
    """Return a message that the SDKs of Python and Go can read.

    Args:
        raw: the encoded message; decimals outside its body and outside arrays stay as they are.
        write_decimal: writes a decimal for the client.
    """

    def in_body(raw: bytes, start: int, end: int) -> bytes | None:
        if raw[start] in _DECIMALS:
            return shown_value(raw, start, end, write_decimal)
        return elsewhere(raw, start, end)

    def elsewhere(raw: bytes, start: int, end: int) -> bytes | None:
        code = raw[start]
        if code == _CHAR:
            return encode_string(raw[start + 1 : end].decode("utf-32-be").encode())
        return _listed(raw, start, end, in_body) if code in _ARRAYS else None

    return _changed(part.split_sections(raw), in_body, elsewhere, BODY_BYTES_MAX)


def with_texts(raw: bytes) -> bytes:
    """Return a message whose dead-letter reason and description are texts, or are left out."""
    found = part.split_sections(raw)
    if part.APPLICATION_PROPERTIES not in found.at:
        return raw
    start, _, end = found.at[part.APPLICATION_PROPERTIES]
    pairs: list[tuple[bytes, bytes]] = []
    is_changed = False
    for key, value in found.pairs(part.APPLICATION_PROPERTIES):
        encoded = raw[value[0] : value[1]]
        if textual(raw, *key) in _TEXTS and encoded[0] not in _TEXTUAL:
            is_changed = True
            text = _text_of(encoded)
            if text is None:
                continue
            encoded = encode_string(text)
        pairs.append((raw[key[0] : key[1]], encoded))
    if not is_changed:
        return raw
    section = part.descriptor(part.APPLICATION_PROPERTIES) + encode_map(pairs) if pairs else b""
    return raw[:start] + section + raw[end:]


def _text_of(encoded: bytes) -> bytes | None:
    field, _ = field_of(encoded, 0, len(encoded))
    if field is None or field[1] is None:
        return None
    value = field[1]
    return utf8(shown_text(value)) if isinstance(value, bytes) else str(value).encode()


def with_common_arrays(found: part.Sections) -> bytes:
    """Return a message whose arrays are encoded as every SDK but Python's and Go's reads them.

    Empty ones have a constructor, and constants bytes: the values are the same. Arrays in arrays
    stay as they are; `whole.check` refuses an empty one without a constructor there.
    """

    def change(raw: bytes, start: int, end: int) -> bytes | None:
        code = raw[start]
        if code not in _ARRAYS:
            return None
        at = start + (3 if code == 0xE0 else 9)
        if at == end:
            return EMPTY_ARRAY
        count = int.from_bytes(raw[start + 2 : at] if code == 0xE0 else raw[at - 4 : at], "big")
        constant = _CONSTANTS.get(raw[at])
        if constant is None or not count:
            return None
        constructor, element = constant
        return encode_compound(0xE0, count, constructor + count * element)

    return _changed(found, change, change, SENT_BODY_BYTES_MAX)


def _changed(
    found: part.Sections, in_body: Change, elsewhere: Change, body_bytes_max: int
) -> bytes:
    raw = found.raw
    spans = [(code, *span) for code, span in found.at.items()] + found.body
    is_changed = False
    pieces = []
    for code, start, value_at, end in sorted(spans, key=lambda span: span[1]):
        new = None
        if code in _BODY:
            if end - value_at <= body_bytes_max:
                new = _value(raw, value_at, end, in_body)
        elif code != part.DATA and not found.is_plain(code):
            new = _value(raw, value_at, end, elsewhere)
        head = part.descriptor(code)  # in the short form: the Python SDK reads no other
        is_changed = is_changed or new is not None or raw[start:value_at] != head
        pieces.append(head + (raw[value_at:end] if new is None else new))
    return b"".join(pieces) if is_changed else raw


def _value(raw: bytes, start: int, end: int, change: Change) -> bytes | None:
    """Return what stands for a value, `None` if nothing in it changes."""
    code = raw[start]
    if code == 0x00:
        value_at = skip_value(raw, start + 1)
        new = _value(raw, value_at, end, change)
        return None if new is None else raw[start:value_at] + new
    if code not in _LISTS_AND_MAPS:
        return change(raw, start, end) if code in _CHANGING else None
    width = 1 if code < 0xD0 else 4
    at = start + 1 + 2 * width
    count = int.from_bytes(raw[at - width : at], "big")
    if at < end and raw[at] not in _CHANGING and is_run(raw, at, end, count):
        return None
    items: list[bytes] = []
    is_changed = False
    while at < end:
        item_end = skip_value(raw, at)
        item = _value(raw, at, item_end, change)
        is_changed = is_changed or item is not None
        items.append(raw[at:item_end] if item is None else item)
        at = item_end
    if not is_changed:
        return None
    return encode_compound(_MAP_CODE if code & 1 else _LIST_CODE, len(items), b"".join(items))


def _listed(raw: bytes, start: int, end: int, change: Change) -> bytes | None:
    """Return an array as a list, `None` if every SDK reads the array."""
    width = 4 if raw[start] & 0x10 else 1
    at = start + 1 + 2 * width
    count = int.from_bytes(raw[at - width : at], "big")
    if not count:
        return encode_list([])
    if raw[at] in _ELEMENTS or count > COUNT_MAX:
        return None
    constructor_at = at
    if raw[at] == 0x00:
        at = skip_value(raw, at + 1)
    code = raw[at]
    at += 1
    constructor = raw[constructor_at:at]
    items: list[bytes] = []
    for _ in range(count):
        element_end = _element_end(raw, code, at)
        item = constructor + raw[at:element_end]
        items.append(_value(item, 0, len(item), change) or item)
        at = element_end
    return encode_list(items)


def _element_end(raw: bytes, code: int, at: int) -> int:
    """Return the end of an array's element, which has no constructor of its own."""
    category = code >> 4
    if category in _WIDTHS:
        return at + _WIDTHS[category]
    if category & 1:
        return at + 4 + int.from_bytes(raw[at : at + 4], "big")
    return at + 1 + raw[at]
