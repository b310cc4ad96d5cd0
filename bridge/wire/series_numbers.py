"""How far the numbers of a held entity are: the answer to a transfer of imports without messages.

    short id of a subscription, 6 bytes, or zeros for the entity's own numbers
    | partition u16 | last number i64 | u8: 1 if an import that is known has that number, repeated

A run that gives new numbers has to know them. The answer comes behind all earlier transfers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from bridge.model.name import SHORT_ID_BYTES

_FORM = struct.Struct(f">{SHORT_ID_BYTES}sHqB")


class SeriesNumbers(NamedTuple):
    """How far a series of numbers is, in one partition.

    Attributes:
        short: the short id of the subscription whose numbers they are, or `gaps.OWN`.
        partition: 0 where there are no partitions.
        last: the last number that was given.
        is_imported: a message that was imported under it is known still.
    """

    short: bytes
    partition: int
    last: int
    is_imported: bool


def encode(found: Iterable[SeriesNumbers]) -> bytes:
    """Return them as bytes."""
    return b"".join(
        [
            _FORM.pack(each.short, each.partition, each.last, 1 if each.is_imported else 0)
            for each in found
        ]
    )


def decode(raw: bytes) -> list[SeriesNumbers]:
    """Read the bytes of `encode`.

    Raises:
        ValueError: they are none.
    """
    if len(raw) % _FORM.size:
        raise ValueError(f"{len(raw)} bytes of numbers")
    return [
        SeriesNumbers(short, partition, last, bool(flag))
        for short, partition, last, flag in _FORM.iter_unpack(raw)
    ]
