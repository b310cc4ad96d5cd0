"""Where the sections of an AMQP 1.0 message begin and end (AMQP 1.0, 3.2), nothing decoded."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.wire.mapping.fields import MappingError, skip_value

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, AMQP_SEQUENCE, AMQP_VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

_BODY = (DATA, AMQP_SEQUENCE, AMQP_VALUE)


@dataclass(slots=True)
class Sections:
    """Positions in `raw`.

    Attributes:
        at: section code -> (begin of the section, begin of its value, end); not for body sections.
        body: (code, begin of the section, begin of its value, end) of each body section.
    """

    raw: bytes
    at: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    body: list[tuple[int, int, int, int]] = field(default_factory=list)

    def section(self, code: int) -> bytes:
        """Return a section as it came, its descriptor included; empty if it is not there."""
        found = self.at.get(code)
        return self.raw[found[0] : found[2]] if found else b""

    def body_sections(self) -> bytes:
        """Return all body sections as they came."""
        return self.raw[self.body[0][1] : self.body[-1][3]] if self.body else b""


def split_sections(raw: bytes) -> Sections:
    """Find the sections of an encoded message.

    Raises:
        MappingError: the bytes are not whole sections in an order that AMQP 1.0 allows.
    """
    found = Sections(raw)
    at, last = 0, HEADER
    while at < len(raw):
        value_at, code = _descriptor(raw, at)
        end = skip_value(raw, value_at)
        if code == DELIVERY_ANNOTATIONS and end == len(raw):
            last = code  # the Python SDK writes them last
        if code < last or (code in _BODY and found.body and found.body[-1][0] != code):
            raise MappingError(f"section 0x{code:02x} at byte {at} stands in the wrong place")
        if code in _BODY:
            if code == AMQP_VALUE and found.body:
                raise MappingError("a message has one amqp-value section at the most")
            found.body.append((code, at, value_at, end))
        elif code in found.at:
            raise MappingError(f"section 0x{code:02x} stands twice")
        else:
            found.at[code] = (at, value_at, end)
        at, last = end, code
    return found


def _descriptor(raw: bytes, at: int) -> tuple[int, int]:
    """Return where the section's value begins, and the section's code."""
    if raw[at : at + 2] == b"\x00\x53" and at + 2 < len(raw):
        value_at, code = at + 3, raw[at + 2]
    elif raw[at : at + 2] == b"\x00\x80" and at + 10 <= len(raw):
        value_at, code = at + 10, int.from_bytes(raw[at + 2 : at + 10], "big")
    else:
        raise MappingError(f"no section begins at byte {at}")
    if not HEADER <= code <= FOOTER:
        raise MappingError(f"0x{code:02x} at byte {at} is no section of a message")
    return value_at, code
