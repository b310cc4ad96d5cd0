"""Copies of a topic's message: its subscriptions, and the message's number in each of them.

One publish reaches all subscriptions, so one header, `x-busbridge-copies`, holds all numbers:

    total u16 | copy ...              copy = short id of the subscription, 6 bytes | number i64

`total` is the number of the message's copies. A message with too many copies for one publish lists
a part of them in each. Integers are big-endian. A subscription's short id tells it from earlier and
later subscriptions of the same name; as text (`topology.names.copy_key`) the short id is the
binding key of the subscription's queue.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from bridge.model.duration import MAX_MS
from bridge.model.name import SHORT_ID_BYTES
from bridge.wire import headers
from bridge.wire.basic import Table, bytes_in, integer_in

PART_MAX = 200
"""So many copies go into one publish; a message with more is published in parts."""

_TOTAL = struct.Struct(">H")
_COPY = struct.Struct(f">{SHORT_ID_BYTES}sq")

Copies = tuple[tuple[bytes, int], ...]
"""Short id and number of each copy, in the order in which the numbers were given."""


def encode(copies: Sequence[tuple[bytes, int]], total: int) -> bytes:
    """Return the header's value for some copies of a message with `total` copies."""
    return _TOTAL.pack(total) + b"".join([_COPY.pack(short, number) for short, number in copies])


def decode(raw: bytes) -> tuple[Copies, int]:
    """Return the listed copies, and the total number of the message's copies.

    Raises:
        ValueError: the bytes are no list of copies.
    """
    try:
        (total,) = _TOTAL.unpack_from(raw)
        return tuple(_COPY.iter_unpack(raw[_TOTAL.size :])), total
    except struct.error as error:
        raise ValueError(f"{len(raw)} bytes of copies") from error


def joined(one: bytes, other: bytes) -> bytes:
    """Return the union of two lists of copies of one message."""
    copies, total = decode(one)
    more, _ = decode(other)
    return encode(tuple(dict((*copies, *more)).items()), total)


def number_in(raw: bytes, short: bytes) -> int | None:
    """Return the number of a subscription's copy, or `None` when the list lacks the copy."""
    copies: Iterable[tuple[bytes, int]] = _COPY.iter_unpack(raw[_TOTAL.size :])
    return next((number for each, number in copies if each == short), None)


class Reader:
    """Reads the headers of messages in the queues of one subscription.

    Args:
        short: the subscription's short id.
        ttl_max_ms: the subscription's limit of a message's TTL.

    Attributes:
        short: the subscription's short id.
    """

    def __init__(self, short: bytes, ttl_max_ms: int) -> None:
        self.short = short
        self._ttl_max_ms = ttl_max_ms

    def number(self, table: Table) -> int:
        """Return a message's number in the subscription, -1 for none."""
        raw = bytes_in(table, headers.COPIES)
        if raw is not None:
            try:
                found = number_in(raw, self.short)
            except struct.error:
                return -1
            return -1 if found is None else found
        number = integer_in(table, headers.SEQUENCE_NUMBER)
        return -1 if number is None else number

    def ttl_ms(self, table: Table) -> int | None:
        """Return a message's TTL in the subscription, `None` for ever."""
        ttl_ms = integer_in(table, headers.TIME_TO_LIVE)
        own_ms = self._ttl_max_ms if ttl_ms is None else min(ttl_ms, self._ttl_max_ms)
        return own_ms if own_ms < MAX_MS else None

    def own(self, table: Table) -> Table:
        """Return a message's headers as if the message were stored for this subscription alone.

        The sequence number is the subscription's. The topic's becomes EnqueuedSequenceNumber,
        unless the message has one. A message without a copy for the subscription has no number.
        Headers without a list of copies are returned unchanged: an engine that put the message
        back, or dead-lettered it, has stored the result of this method.
        """
        raw = bytes_in(table, headers.COPIES)
        if raw is None:
            return table
        found = {key: field for key, field in table.items() if key != headers.COPIES}
        topics = found.pop(headers.SEQUENCE_NUMBER, None)
        try:
            number = number_in(raw, self.short)
        except struct.error:
            number = None
        if number is not None:
            found[headers.SEQUENCE_NUMBER] = ("l", number)
            if topics is not None:
                # A message that was forwarded to the topic keeps the first number that it got.
                found.setdefault(headers.ENQUEUED_SEQUENCE_NUMBER, topics)
        ttl_ms = integer_in(found, headers.TIME_TO_LIVE)
        if ttl_ms is None or ttl_ms >= self._ttl_max_ms:
            found.pop(headers.TIME_TO_LIVE, None)
            if self._ttl_max_ms < MAX_MS:
                found[headers.TIME_TO_LIVE] = ("l", self._ttl_max_ms)
        return found
