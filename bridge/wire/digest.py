"""Digests of message ids, by which duplicates are detected: 16 bytes of the id and its type.

Service Bus keeps the AMQP type of a message id, and "7" and 7 are two ids. 0-9-1 has text only: an
id of another type is in the AMQP properties section that travels with the message.

    digest   BLAKE2b, 16 bytes, of: type u8 (s text, u uuid, n ulong, b binary) | value
"""

from __future__ import annotations

from hashlib import blake2b

from bridge.wire import headers
from bridge.wire.basic import Properties, bytes_in
from bridge.wire.envelope import DIGEST_BYTES
from bridge.wire.mapping.fields import textual
from bridge.wire.mapping.sections import PROPERTIES, split_sections

_BINARIES = (0xA0, 0xB0)
_ULONGS = (0x80, 0x53, 0x44)
_UUID = 0x98


def of_message(properties: Properties) -> bytes | None:
    """Return the digest of a stored message's id, or `None` when the message has no id."""
    sections = bytes_in(properties.headers or {}, headers.SECTIONS)
    typed = None if sections is None else _typed(sections)
    if typed is not None:
        return _digest(typed)
    return None if properties.message_id is None else of_text(properties.message_id)


def of_text(message_id: str) -> bytes:
    """Return the digest of a message id that is text."""
    return _digest(b"s" + message_id.encode("utf-8", "surrogateescape"))


def with_key(digest: bytes, key: bytes | None) -> bytes:
    """Return the digest of an id's digest and a partition key, for a partitioned entity."""
    return digest if key is None else _digest(b"k" + digest + key)


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=DIGEST_BYTES).digest()


def _typed(sections: bytes) -> bytes | None:
    """Return type and value of the message id in a properties section, or `None` without one."""
    found = split_sections(sections)
    items = found.items(PROPERTIES) if PROPERTIES in found.at else []
    if not items:
        return None
    start, end = items[0]
    code, value = found.raw[start], found.raw[start + 1 : end]
    said = textual(found.raw, start, end)
    if said is not None:
        return (b"b" if code in _BINARIES else b"s") + said
    if code in _ULONGS:
        return b"n" + int.from_bytes(value, "big").to_bytes(8, "big")
    return b"u" + value if code == _UUID else None
