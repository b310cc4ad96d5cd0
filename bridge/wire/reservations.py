"""Sequence numbers that a transaction wants before its commit, for messages that it schedules.

    an envelope to reserve    the key of each message: u16 + bytes, 0xffff for none
    the SCHEDULES of a commit an envelope of messages with a number each, as a move's

The leader passes over the numbers that it reserves: they are a gap of the journal, whatever becomes
of the transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from bridge.wire import envelope
from bridge.wire.envelope import Item, MalformedEnvelope, Operation

_U16 = struct.Struct(">H")
_NO_KEY = 0xFFFF


class ReservedSchedules(NamedTuple):
    """Messages that a transaction schedules.

    Attributes:
        items: the messages; each has its time.
        numbers: the number that was reserved for each.
    """

    items: Sequence[Item] = ()
    numbers: Sequence[int] = ()


NO_SCHEDULES = ReservedSchedules()


def encode_keys(identity: bytes, keys: Sequence[bytes | None]) -> bytes:
    """Return the body of an envelope that has numbers reserved.

    Args:
        keys: of each message the key that chooses its partition; `None`: any partition.
    """
    parts: list[bytes] = []
    for key in keys:
        parts += (_U16.pack(_NO_KEY),) if key is None else (_U16.pack(len(key)), key)
    return envelope.encode_sections(Operation.RESERVE, identity, b"".join(parts))


def decode_keys(raw: bytes) -> list[bytes | None]:
    """Return the keys in an envelope that has numbers reserved; raises `MalformedEnvelope`."""
    found: list[bytes | None] = []
    at = 0
    while at < len(raw):
        if at + _U16.size > len(raw):
            raise MalformedEnvelope("a key that ends too early")
        (size,) = _U16.unpack_from(raw, at)
        at += _U16.size
        if size == _NO_KEY:
            found.append(None)
            continue
        if at + size > len(raw):
            raise MalformedEnvelope("a key that ends too early")
        found.append(raw[at : at + size])
        at += size
    return found


def encode_schedules(identity: bytes, schedules: ReservedSchedules) -> bytes:
    """Return the section of a commit with what it schedules; b"" for nothing."""
    items, numbers = schedules
    return envelope.encode_move(identity, numbers, items) if items else b""


def decode_schedules(raw: bytes) -> ReservedSchedules:
    """Return what a commit schedules; raises `MalformedEnvelope`."""
    if not raw:
        return ReservedSchedules()
    read = envelope.decode(raw)
    if read.operation is not Operation.MOVE or any(
        each.scheduled_ms is None for each in read.items
    ):
        raise MalformedEnvelope("messages that are not scheduled")
    return ReservedSchedules(read.items, read.numbers)
