"""Positions of the sections of an AMQP 1.0 message (AMQP 1.0, 3.2), without decoding.

Each section is checked for completeness first, with all nested values: a message that one client
could store and no client could read would stop a queue's receivers for good.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.primitives import encode_map
from bridge.wire.amqp10.whole import MemoryAllowance, check, plain_items, to_store
from bridge.wire.mapping.fields import (
    MappingError,
    Span,
    compound_items,
    map_items,
    pairs_of,
    skip_value,
    textual,
)

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
AMQP_SEQUENCE: Final = 0x76
AMQP_VALUE: Final = 0x77
FOOTER: Final = 0x78

_BODY = (DATA, AMQP_SEQUENCE, AMQP_VALUE)
_ANYWHERE = (DELIVERY_ANNOTATIONS, FOOTER)
"""Sections that clients write out of order: the Python SDK the first one last, the JavaScript SDK
the footer before the body. Azure takes both."""

_IN_HEADER = (
    DELIVERY_ANNOTATIONS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    APPLICATION_PROPERTIES,
    FOOTER,
)

_LISTS, _MAPS = b"\x45\xc0\xd0", b"\xc1\xd1"
_FORMS = {
    HEADER: _LISTS,
    DELIVERY_ANNOTATIONS: _MAPS,
    MESSAGE_ANNOTATIONS: _MAPS,
    PROPERTIES: _LISTS,
    APPLICATION_PROPERTIES: _MAPS,
    AMQP_SEQUENCE: _LISTS,
    FOOTER: _MAPS,
}
"""Section -> the constructors that its value may have; an amqp-value may have any."""

_SHORT_LISTS = {HEADER: 5, PROPERTIES: 13}
"""Section -> its maximum of fields; most values of these sections, and of the maps below, are
checked in one pass."""

_SHORT_MAPS = (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER)

_NAMES = {_LISTS: "list", _MAPS: "map"}

_SYMBOLS = {
    b"amqp:header:list": HEADER,
    b"amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    b"amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    b"amqp:properties:list": PROPERTIES,
    b"amqp:application-properties:map": APPLICATION_PROPERTIES,
    b"amqp:data:binary": DATA,
    b"amqp:amqp-sequence:list": AMQP_SEQUENCE,
    b"amqp:amqp-value:*": AMQP_VALUE,
    b"amqp:footer:map": FOOTER,
}


@dataclass(slots=True)
class Sections:
    """Positions in `raw`.

    Attributes:
        at: section code -> (start of the section, start of its value, end); not for body sections.
        body: (code, start of the section, start of its value, end) of each body section.
        has_rare_arrays: there are empty arrays without the constructor that AMQP 1.0 demands, or
            arrays of constants.
    """

    raw: bytes
    at: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    body: list[tuple[int, int, int, int]] = field(default_factory=list)
    has_rare_arrays: bool = False
    _items: dict[int, list[Span]] = field(default_factory=dict)

    def is_plain(self, code: int) -> bool:
        """Return whether a section is known to hold only short texts, binaries and numbers."""
        return code in self._items

    def items(self, code: int) -> list[Span]:
        """Return start and end of each item of a section's list, which may lack nulls at its end.

        Raises:
            MappingError: the list has too many items.
        """
        found = self._items.get(code)
        return compound_items(self.raw, self.at[code][1]) if found is None else found

    def pairs(self, code: int) -> list[tuple[Span, Span]]:
        """Return start and end of each key, and of its value, of a section's map.

        Raises:
            MappingError: the map has too many items.
        """
        found = self._items.get(code)
        return map_items(self.raw, self.at[code][1]) if found is None else pairs_of(found)

    def section(self, code: int) -> bytes:
        """Return a section with its value unchanged; empty if the section is absent.

        The descriptor has the short form: the Python SDK reads no other.
        """
        found = self.at.get(code)
        return descriptor(code) + self.raw[found[1] : found[2]] if found else b""

    def with_section(self, code: int, value: bytes) -> bytes:
        """Return the sections for a header, with one section's value added or replaced."""
        return b"".join(
            [
                descriptor(code) + value if each == code else self.section(each)
                for each in _IN_HEADER
            ]
        )

    def body_sections(self) -> bytes:
        """Return all body sections, each with its short descriptor."""
        return b"".join(
            [descriptor(code) + self.raw[value_at:end] for code, _, value_at, end in self.body]
        )


def descriptor(code: int) -> bytes:
    """Return the descriptor in front of a section's value."""
    return bytes((0x00, 0x53, code))


def split_sections(raw: bytes) -> Sections:
    """Find the sections of an encoded message.

    Raises:
        MappingError: the bytes are not whole sections, or stand in an order that AMQP 1.0 does not
            allow; delivery annotations and footer may stand anywhere.
    """
    found = Sections(raw)
    at, last = 0, HEADER
    allowance: MemoryAllowance | None = None
    size = len(raw)
    while at < size:
        value_at, code = _descriptor(raw, at)
        items = _plain_items(raw, code, value_at)
        if items is not None:
            found._items[code] = items
            end = value_at + 2 + raw[value_at + 1]
        else:
            if allowance is None:
                allowance = to_store(size)
            end = _end(raw, code, value_at, allowance)
        if code not in _ANYWHERE:
            if code < last or (code in _BODY and found.body and found.body[-1][0] != code):
                raise MappingError(f"section 0x{code:02x} at byte {at} stands in the wrong place")
            last = code
        if code in _BODY:
            if code == AMQP_VALUE and found.body:
                raise MappingError("a message has one amqp-value section at the most")
            found.body.append((code, at, value_at, end))
        elif code in found.at:
            raise MappingError(f"section 0x{code:02x} stands twice")
        else:
            found.at[code] = (at, value_at, end)
        at = end
    if allowance is not None:
        found.has_rare_arrays = allowance.bare_arrays > 0 or allowance.has_constants
    return found


def annotations_at(raw: bytes) -> tuple[int, int, int] | None:
    """Return the message annotations of an encoded message, as `Sections.at` has them.

    Sections behind them are not looked at, those before them only for their ends.

    Raises:
        MappingError: no section begins there, or it is cut short.
    """
    at = 0
    while at < len(raw):
        value_at, code = _descriptor(raw, at)
        end = skip_value(raw, value_at)
        if code == MESSAGE_ANNOTATIONS:
            return at, value_at, end
        if code != HEADER and code not in _ANYWHERE:
            return None
        at = end
    return None


def with_annotations(
    raw: bytes, at: tuple[int, int, int], kept: list[tuple[bytes, bytes]]
) -> bytes:
    """Return an encoded message with other message annotations; without any, without the section.

    Args:
        at: where its own are (`annotations_at`).
        kept: encoded keys and values.
    """
    section = descriptor(MESSAGE_ANNOTATIONS) + encode_map(kept) if kept else b""
    return b"".join((raw[: at[0]], section, raw[at[2] :]))


def _plain_items(raw: bytes, code: int, at: int) -> list[Span] | None:
    """Return the items of a section if one pass can prove the section valid, else `None`."""
    if at + 2 >= len(raw):
        return None
    constructor = raw[at]
    if constructor == 0xC0:
        is_short = raw[at + 2] <= _SHORT_LISTS.get(code, -1)
    else:
        is_short = constructor == 0xC1 and code in _SHORT_MAPS
    return plain_items(raw, at) if is_short else None


def _end(raw: bytes, code: int, value_at: int, allowance: MemoryAllowance) -> int:
    """Check that a section is complete and of the right form; return the section's end."""
    if value_at >= len(raw):
        raise MappingError(f"the section at byte {value_at} has no value")
    constructor = raw[value_at]
    if code == DATA:
        if constructor not in b"\xa0\xb0":
            raise MappingError(f"the Data section at byte {value_at} holds no binary")
        return skip_value(raw, value_at)
    if code != AMQP_VALUE and constructor not in _FORMS[code]:
        raise MappingError(f"0x{constructor:02x} at byte {value_at} is no {_NAMES[_FORMS[code]]}")
    try:
        return check(raw, value_at, len(raw), allowance)
    except DecodeError as error:
        raise MappingError(str(error)) from None


def _descriptor(raw: bytes, at: int) -> tuple[int, int]:
    """Return where the section's value begins, and the section's code."""
    head = raw[at : at + 2]
    if head == b"\x00\x53" and at + 2 < len(raw):
        value_at, code = at + 3, raw[at + 2]
    elif head == b"\x00\x80" and at + 10 <= len(raw):
        value_at, code = at + 10, int.from_bytes(raw[at + 2 : at + 10], "big")
    elif head in (b"\x00\xa3", b"\x00\xb3"):
        value_at = skip_value(raw, at + 1)
        code = _SYMBOLS.get(textual(raw, at + 1, value_at) or b"", 0)
    else:
        raise MappingError(f"no section begins at byte {at}")
    if not HEADER <= code <= FOOTER:
        raise MappingError(f"0x{code:02x} at byte {at} is no section of a message")
    return value_at, code
