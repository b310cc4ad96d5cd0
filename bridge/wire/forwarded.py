"""Forwarded messages: the source that a message came from, and its number of hops.

    source     short id of the entity, 6 bytes | u8: 1 for its dead letters, else 0
    header     source | hops u8

After the kill of a forwarder, the messages that it had not acked are forwarded again. Such a second
copy has the same identity as the first: the identity is made of the source and of the identity that
the message had there.
"""

from __future__ import annotations

import hashlib
import struct

from bridge.wire import headers
from bridge.wire.basic import FieldValue, Table, bytes_in
from bridge.wire.envelope import IDENTITY_BYTES, SOURCE_BYTES

HOPS_MAX = 4
"""So often a message is forwarded at most (Azure, "Chaining Service Bus entities")."""

_NATIVE = struct.Struct(">qq")


def source_of(short: bytes, *, is_dead_letter: bool) -> bytes:
    """Return the bytes that name a source.

    Args:
        short: the short id of the entity's incarnation.
    """
    return short + bytes((is_dead_letter,))


def field(source: bytes, hops: int) -> FieldValue:
    """Return the header of a message that is forwarded for the `hops`th time."""
    return "x", source + bytes((hops,))


def hops_of(table: Table) -> int:
    """Return the number of times that a message was forwarded."""
    raw = _raw(table)
    return 0 if raw is None else raw[SOURCE_BYTES]


def last_source(table: Table) -> bytes | None:
    """Return the source that a message was last forwarded from; `None` if never forwarded."""
    raw = _raw(table)
    return None if raw is None else raw[:SOURCE_BYTES]


def identity_of(source: bytes, identity: bytes | tuple[int, int]) -> bytes:
    """Return the identity of the envelope by which a message is forwarded.

    Args:
        identity: the message's identity in its source; for a native message, its number and
            enqueued time.
    """
    raw = identity if isinstance(identity, bytes) else _NATIVE.pack(*identity)
    return hashlib.sha256(source + raw).digest()[:IDENTITY_BYTES]


def _raw(table: Table) -> bytes | None:
    raw = bytes_in(table, headers.FORWARDED)
    return raw if raw is not None and len(raw) == SOURCE_BYTES + 1 else None
