"""One message of an envelope: the item, and its form among the others (`wire.envelope`)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from bridge.wire import imported
from bridge.wire.imported import IMPORTED_BYTES, Imported

DIGEST_BYTES = 16
SOURCE_BYTES = 7
"""Size of the source of a forwarded message (`wire.forwarded`)."""

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_HAS_TTL = 1
_HAS_SCHEDULED = 2
_HAS_KEY = 4
_HAS_DIGEST = 8
_HAS_SOURCE = 16
_IS_IMPORTED = 32
_KNOWN_FLAGS = _HAS_TTL | _HAS_SCHEDULED | _HAS_KEY | _HAS_DIGEST | _HAS_SOURCE | _IS_IMPORTED


class MalformedEnvelope(ValueError):
    """Error for bytes that are no envelope of this version."""


@dataclass(slots=True)
class Item:
    """One message of an envelope.

    Attributes:
        properties: canonical 0-9-1 properties, encoded.
        body: the message's body.
        ttl_ms: the message's own time to live, or `None`.
        scheduled_ms: time to enqueue the message (UTC ms), or `None` for now.
        key: the key that chooses the partition in a partitioned entity (session id, else partition
            key, else message id with duplicate detection), or `None`.
        target: short id of the only target subscription; `None` for all that match.
        digest: the digest of the message id where duplicates are detected (`wire.digest`), or
            `None`.
        source: the source of a forwarded message, with which the envelope has no other item; what a
            relay says of its copy (`wire.relay_source`), which its properties have, too; or `None`.
        imported: what a migration says of a message that it imports, or `None`.
    """

    properties: bytes
    body: bytes
    ttl_ms: int | None = None
    scheduled_ms: int | None = None
    key: bytes | None = None
    target: bytes | None = None
    digest: bytes | None = None
    source: bytes | None = None
    imported: Imported | None = None


def item_bytes(item: Item) -> int:
    """Return the size of an item in an envelope of messages."""
    size = 9 + len(item.properties) + len(item.body)
    if item.ttl_ms is not None:
        size += _I64.size
    if item.scheduled_ms is not None:
        size += _I64.size
    if item.key is not None:
        size += _U16.size + len(item.key)
    if item.digest is not None:
        size += DIGEST_BYTES
    if item.source is not None:
        size += SOURCE_BYTES
    if item.imported is not None:
        size += IMPORTED_BYTES
    return size


def item_parts(item: Item) -> tuple[bytes, bytes, bytes, bytes]:
    """Return an item's bytes, in parts."""
    flags = 0
    optional = b""
    if item.ttl_ms is not None:
        flags |= _HAS_TTL
        optional += _I64.pack(item.ttl_ms)
    if item.scheduled_ms is not None:
        flags |= _HAS_SCHEDULED
        optional += _I64.pack(item.scheduled_ms)
    if item.key is not None:
        flags |= _HAS_KEY
        optional += _U16.pack(len(item.key)) + item.key
    if item.digest is not None:
        flags |= _HAS_DIGEST
        optional += item.digest
    if item.source is not None:
        flags |= _HAS_SOURCE
        optional += item.source
    if item.imported is not None:
        flags |= _IS_IMPORTED
        optional += imported.encode(item.imported)
    head = bytes((flags,)) + optional + _U32.pack(len(item.properties))
    return head, item.properties, _U32.pack(len(item.body)), item.body


def read_items(body: bytes, at: int, count: int) -> tuple[list[Item], int]:
    """Return up to `count` items from a place on, and the end of the last one."""
    items: list[Item] = []
    end = len(body)
    u32 = _U32.unpack_from
    while len(items) < count and at < end:
        flags = body[at]
        at += 1
        ttl_ms = scheduled_ms = key = digest = source = said = None
        if flags:
            if flags & ~_KNOWN_FLAGS:
                raise MalformedEnvelope(f"unknown flags {flags:#x}")
            if flags & _HAS_TTL:
                (ttl_ms,) = _I64.unpack_from(body, at)
                at += 8
            if flags & _HAS_SCHEDULED:
                (scheduled_ms,) = _I64.unpack_from(body, at)
                at += 8
            if flags & _HAS_KEY:
                (size,) = _U16.unpack_from(body, at)
                key = body[at + 2 : at + 2 + size]
                at += 2 + size
            if flags & _HAS_DIGEST:
                digest = body[at : at + DIGEST_BYTES]
                at += DIGEST_BYTES
            if flags & _HAS_SOURCE:
                source = body[at : at + SOURCE_BYTES]
                at += SOURCE_BYTES
            if flags & _IS_IMPORTED:
                said = imported.decode(body, at)
                at += IMPORTED_BYTES
        (size,) = u32(body, at)
        at += 4
        properties = body[at : at + size]
        at += size
        (size,) = u32(body, at)
        at += 4
        stored = body[at : at + size]
        items.append(
            Item(properties, stored, ttl_ms, scheduled_ms, key, None, digest, source, said)
        )
        at += size
    return items, at
