"""Copies: which subscriptions of a topic have a message, each under a number of its own.

One publish reaches them all, so all numbers stand in one header, `x-busbridge-copies`:

    total u16 | copy ...              copy = short id of the subscription, 6 bytes | number i64

`total` is the number of copies that the message has; where they are too many for one publish it is
more than are listed here. Integers are big-endian. A subscription's short id tells it from earlier
and later ones of its name; as text (`topology.names.copy_key`) it is the key of the binding of the
subscription's queue.
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
    """Return the header's value for some copies of a message that has `total`."""
    return _TOTAL.pack(total) + b"".join([_COPY.pack(short, number) for short, number in copies])


def decode(raw: bytes) -> tuple[Copies, int]:
    """Return the copies that are listed, and how many the message has.

    Raises:
        ValueError: these bytes list no copies.
    """
    try:
        (total,) = _TOTAL.unpack_from(raw)
        return tuple(_COPY.iter_unpack(raw[_TOTAL.size :])), total
    except struct.error as error:
        raise ValueError(f"{len(raw)} bytes of copies") from error


def joined(one: bytes, other: bytes) -> bytes:
    """Return the list of the copies in either of two, of one message."""
    copies, total = decode(one)
    more, _ = decode(other)
    return encode(tuple(dict((*copies, *more)).items()), total)


def number_in(raw: bytes, short: bytes) -> int | None:
    """Return the number of a subscription's copy, `None` when it is not listed."""
    copies: Iterable[tuple[bytes, int]] = _COPY.iter_unpack(raw[_TOTAL.size :])
    return next((number for each, number in copies if each == short), None)


class Reader:
    """Reads messages in the queues of one subscription.

    Args:
        short: the subscription's short id.
        ttl_max_ms: its own limit; a message lives no longer.
    """

    def __init__(self, short: bytes, ttl_max_ms: int) -> None:
        self._short = short
        self._ttl_max_ms = ttl_max_ms

    def number(self, table: Table) -> int:
        """Return a message's number in the subscription, -1 for none."""
        raw = bytes_in(table, headers.COPIES)
        if raw is not None:
            try:
                found = number_in(raw, self._short)
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
        """Return a message's headers as if it had been stored for this subscription alone.

        Its number is the subscription's, the topic's becomes EnqueuedSequenceNumber if it has none.
        A message that lists no copy for it has no number. One that was put back by an engine, or
        dead-lettered, stands as this returned it then.
        """
        raw = bytes_in(table, headers.COPIES)
        if raw is None:
            return table
        found = {key: field for key, field in table.items() if key != headers.COPIES}
        topics = found.pop(headers.SEQUENCE_NUMBER, None)
        try:
            number = number_in(raw, self._short)
        except struct.error:
            number = None
        if number is not None:
            found[headers.SEQUENCE_NUMBER] = ("l", number)
            if topics is not None:
                # One that was forwarded to the topic has the number that it got first.
                found.setdefault(headers.ENQUEUED_SEQUENCE_NUMBER, topics)
        ttl_ms = integer_in(found, headers.TIME_TO_LIVE)
        if ttl_ms is None or ttl_ms >= self._ttl_max_ms:
            found.pop(headers.TIME_TO_LIVE, None)
            if self._ttl_max_ms < MAX_MS:
                found[headers.TIME_TO_LIVE] = ("l", self._ttl_max_ms)
        return found
