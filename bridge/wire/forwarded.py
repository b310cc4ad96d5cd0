"""Forwarded messages: the source that a message came from, and its number of hops.

    source     short id of the entity, 6 bytes | u8: 1 for its dead letters, 2 for what its
               transactions send to other entities, else 0
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

_TRANSFERS = 2
_NATIVE = struct.Struct(">qq")
_PLACE = struct.Struct(">I")


def source_of(short: bytes, *, is_dead_letter: bool) -> bytes:
    """Return the bytes that name a source.

    Args:
        short: the short id of the entity's incarnation.
    """
    return short + bytes((is_dead_letter,))


def transfers_of(short: bytes) -> bytes:
    """Return the bytes that name an entity as the source of its transactions' messages for others.

    Args:
        short: the short id of the entity's incarnation.
    """
    return short + bytes((_TRANSFERS,))


def is_transfers(source: bytes) -> bool:
    """Whether a source is that of an entity's transactions."""
    return source[SOURCE_BYTES - 1] == _TRANSFERS


def transferred_identity(transaction: bytes, place: int) -> bytes:
    """Return the identity of the envelope of a transaction's message for another entity.

    Args:
        transaction: the transaction's id.
        place: the message's number among those for other entities.
    """
    return hashlib.sha256(transaction + _PLACE.pack(place)).digest()[:IDENTITY_BYTES]


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
