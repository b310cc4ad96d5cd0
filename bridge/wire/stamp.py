"""Stamps: the header fields that the sequencer adds to the encoded properties of a message.

Nothing is decoded: the stamp is put in front of the message's own headers.

    active    x-opt-sequence-number l | x-opt-enqueued-time l | x-busbridge-numbered t
              | x-busbridge-id x(20) | [x-opt-time-to-live l] | [x-busbridge-scheduled l]
    of a topic  ... | x-busbridge-copies x | BCC A(keys of the copies)
    where duplicates are detected  ... | x-busbridge-accepted x(24): digest, time
    waiting   x-busbridge-waiting x(44): number, due time, own TTL, identity | BCC A(journal)

The message must not have any of these headers already: see `wire.native`. RabbitMQ 4 sorts the
headers of a message that had a BCC, so `unwait` searches for a waiting stamp and cuts it out; and a
stream of RabbitMQ 4 returns `x` fields as `S`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

from bridge.wire import headers
from bridge.wire.basic import Properties, bytes_in, encode_fields, with_fields
from bridge.wire.envelope import DIGEST_BYTES, ITEM_IDENTITY_BYTES

_OF_WAITING = headers.OF_FORWARDED | {headers.TARGET}
"""Headers that a waiting message has of its own."""

EXPIRATION_MAX_MS = 315_360_000_000
"""RabbitMQ refuses a longer `expiration` (ten years of 365 days; measured on 4.0 and 4.3)."""

_LONG = struct.Struct(">q")


def _key(name: str, letter: str) -> bytes:
    return bytes((len(name),)) + name.encode() + letter.encode()


_NUMBER = _key(headers.SEQUENCE_NUMBER, "l")
_ENQUEUED = _key(headers.ENQUEUED_TIME, "l")
_IDENTITY = _key(headers.IDENTITY, "x") + struct.pack(">I", ITEM_IDENTITY_BYTES)
_TTL = _key(headers.TIME_TO_LIVE, "l")
_COPIES = _key(headers.COPIES, "x")
_ACCEPTED = _key(headers.ACCEPTED, "x") + struct.pack(">I", DIGEST_BYTES + 8)
_SIZE = struct.Struct(">I")
OWN_TTL = _key(headers.OWN_TIME_TO_LIVE, "t") + b"\x01"
"""The header field of a message that has a TTL of its sender's."""

IMPORTED = _key(headers.IMPORTED, "t") + b"\x01"
"""The header field of an imported message."""

RESERVED = _key(headers.RESERVED, "t") + b"\x01"
"""The header field of a waiting message whose number was reserved before."""

_SCHEDULED_NUMBER = _key(headers.SCHEDULED_NUMBER, "l")

_NUMBERED_IDENTITY = _key(headers.NUMBERED, "t") + b"\x01" + _IDENTITY
_ACTIVE = struct.Struct(f">{len(_NUMBER)}sq{len(_ENQUEUED)}sq{len(_NUMBERED_IDENTITY)}s20s")
_WAITING_KEY = bytes((len(headers.WAITING),)) + headers.WAITING.encode()
_WAITING = struct.Struct(">qqq20s")
_WAITING_FIELD = _WAITING_KEY + b"x" + struct.pack(">I", _WAITING.size)
_WAITING_BYTES = len(_WAITING_FIELD) + _WAITING.size

ACCEPTED_BYTES = DIGEST_BYTES + 8

FOREVER = -1
"""Value of a TTL field that means no TTL."""

NO_IDENTITY = bytes(ITEM_IDENTITY_BYTES)
"""The identity of a message without one (a native publisher's)."""


def active(number: int, enqueued_ms: int, identity: bytes, ttl_ms: int | None) -> bytes:
    """Return the header fields of a message that becomes active now."""
    fields = _ACTIVE.pack(_NUMBER, number, _ENQUEUED, enqueued_ms, _NUMBERED_IDENTITY, identity)
    if ttl_ms is not None:
        fields += _TTL + _LONG.pack(ttl_ms)
    return fields


def activated(
    number: int, enqueued_ms: int, identity: bytes, ttl_ms: int | None, waited_as: int
) -> bytes:
    """Return the header fields of a message that waited under the number `waited_as`."""
    stamp = active(number, enqueued_ms, identity, ttl_ms)
    return stamp + _SCHEDULED_NUMBER + _LONG.pack(waited_as)


def waiting(number: int, identity: bytes, due_ms: int, ttl_ms: int | None) -> bytes:
    """Return the header fields of a message that waits until `due_ms`, with the message's TTL."""
    ttl_ms = FOREVER if ttl_ms is None else ttl_ms
    return _WAITING_FIELD + _WAITING.pack(number, due_ms, ttl_ms, identity)


def copy_to(*keys: str) -> bytes:
    """Return the header field that adds routing keys to a publish.

    BCC is RabbitMQ's own header (sender-selected distribution), and RabbitMQ removes it: one
    publish, one confirm.
    """
    return encode_fields({"BCC": ("A", [("S", key.encode()) for key in keys])})


def copies(raw: bytes) -> bytes:
    """Return the header field with the copies of a topic's message (`wire.copies`)."""
    return _COPIES + _SIZE.pack(len(raw)) + raw


def accepted(digest: bytes, at_ms: int) -> bytes:
    """Return the header field with a message id's digest and the time of its acceptance."""
    return _ACCEPTED + digest + _LONG.pack(at_ms)


def derived(identity: bytes, *parts: bytes) -> bytes:
    """Return the identity of a copy that is a message of its own; `NO_IDENTITY` is kept."""
    if identity == NO_IDENTITY:
        return NO_IDENTITY
    return hashlib.sha256(b"\0".join((identity, *parts))).digest()[:ITEM_IDENTITY_BYTES]


def put(properties: bytes, fields: bytes, ttl_ms: int | None = None) -> bytes:
    """Return properties with `fields` in front of their headers, and an `expiration`.

    Args:
        properties: canonical (see `wire.envelope`).
        fields: results of the functions above.
        ttl_ms: the effective time to live; a value too long for RabbitMQ is in its header only.
    """
    stamped = with_fields(properties, fields)
    if ttl_ms is None or ttl_ms > EXPIRATION_MAX_MS:
        return stamped
    return _with_expiration(stamped, str(ttl_ms))


def _with_expiration(properties: bytes, expiration: str) -> bytes:
    """Insert `expiration` at its place in the specification's order: behind `reply_to`."""
    flags = properties[0] << 8 | properties[1]
    at = 2
    for flag, skip in _BEFORE_EXPIRATION:
        if flags & flag:
            at = skip(properties, at)
    raw = expiration.encode()
    flags |= 0x0100
    return b"".join(
        (flags.to_bytes(2, "big"), properties[2:at], bytes((len(raw),)), raw, properties[at:])
    )


def _skip_short(raw: bytes, at: int) -> int:
    return at + 1 + raw[at]


def _skip_table(raw: bytes, at: int) -> int:
    return at + 4 + int.from_bytes(raw[at : at + 4], "big")


def _skip_octet(raw: bytes, at: int) -> int:
    return at + 1


_BEFORE_EXPIRATION: tuple[tuple[int, Callable[[bytes, int], int]], ...] = (
    (0x8000, _skip_short),
    (0x4000, _skip_short),
    (0x2000, _skip_table),
    (0x1000, _skip_octet),
    (0x0800, _skip_octet),
    (0x0400, _skip_short),
    (0x0200, _skip_short),
)


class Waiting:
    """A waiting message's stamp, read from its properties.

    Attributes:
        number: the waiting message's number.
        identity: the message's identity, 20 bytes.
        due_ms: when the message is due (UTC ms).
        ttl_ms: the message's own time to live, or `None`.
        properties: the message's properties without the stamp, canonical again.
    """

    __slots__ = ("due_ms", "identity", "number", "properties", "ttl_ms")

    def __init__(
        self, number: int, identity: bytes, due_ms: int, ttl_ms: int | None, properties: bytes
    ) -> None:
        self.number = number
        self.identity = identity
        self.due_ms = due_ms
        self.ttl_ms = ttl_ms
        self.properties = properties


def unwait(properties: bytes) -> Waiting:
    """Return a waiting message's stamp, and the properties without the stamp.

    Raises:
        ValueError: the message has no waiting stamp.
    """
    start = properties.find(_WAITING_FIELD)
    end = start + _WAITING_BYTES
    if start < 0 or _needs_decoding(properties, end):
        return _unwait_decoded(Properties.decode(properties))
    number, due_ms, ttl_ms, identity = _WAITING.unpack_from(properties, end - _WAITING.size)
    at = 2
    for flag in (0x80, 0x40):
        if properties[0] & flag:
            at += 1 + properties[at]
    size = int.from_bytes(properties[at : at + 4], "big") - _WAITING_BYTES
    bare = b"".join(
        (properties[:at], size.to_bytes(4, "big"), properties[at + 4 : start], properties[end:])
    )
    return Waiting(number, identity, due_ms, None if ttl_ms == FOREVER else ttl_ms, bare)


def _needs_decoding(raw: bytes, end: int) -> bool:
    """Whether RabbitMQ may have added headers of its own, or the stamp may be found twice."""
    return (
        raw.find(b"-count") >= 0
        or raw.find(b"\x03BCC") >= 0
        or raw.find(b"x-death") >= 0
        or raw.find(_WAITING_KEY, end) >= 0
        or not raw[0] & 0x20
        or end > len(raw)
    )


def _unwait_decoded(properties: Properties) -> Waiting:
    number, due_ms, ttl_ms, identity = read_waiting(properties)
    table = properties.headers or {}
    properties.headers = {
        key: value
        for key, value in table.items()
        if key in _OF_WAITING or not headers.is_reserved(key)
    }
    return Waiting(number, identity, due_ms, ttl_ms, properties.encode())


def read_waiting(properties: Properties) -> tuple[int, int, int | None, bytes]:
    """Return number, due time, TTL and identity of a waiting message.

    Raises:
        ValueError: the message has no waiting stamp.
    """
    raw = bytes_in(properties.headers or {}, headers.WAITING)
    if raw is None or len(raw) != _WAITING.size:
        raise ValueError("not a scheduled message of the bridge's")
    number, due_ms, ttl_ms, identity = _WAITING.unpack(raw)
    return number, due_ms, None if ttl_ms == FOREVER else ttl_ms, identity
