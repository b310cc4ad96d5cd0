"""The order of application properties, which is the sender's.

RabbitMQ 4 sorts the headers of every message by their names. So a header says in which order the
sender had given those properties that are headers: the CRC-32 of each name, four bytes. Names that
it does not have stand last. A native publisher's headers RabbitMQ has sorted before a bridge sees
them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from bridge.wire import headers
from bridge.wire.basic import FieldValue, Table, bytes_in

_BYTES: Final = 4


def set_order(table: Table, names: Sequence[str]) -> None:
    """Note in a message's headers the order of its application properties.

    Nothing is noted where it is the order that RabbitMQ may give them.
    """
    if len(names) > 1 and list(names) != sorted(names):
        table[headers.ORDER] = ("x", b"".join(map(_mark, names)))
    else:
        table.pop(headers.ORDER, None)


def in_order(table: Table, fields: Table) -> list[tuple[str, FieldValue]]:
    """Return application properties in the sender's order.

    Args:
        table: the message's headers.
        fields: those of them that are application properties.
    """
    pairs = list(fields.items())
    raw = bytes_in(table, headers.ORDER)
    if raw is None:
        return pairs
    places = {raw[at : at + _BYTES]: at for at in range(0, len(raw), _BYTES)}
    return sorted(pairs, key=lambda pair: places.get(_mark(pair[0]), len(raw)))


def _mark(name: str) -> bytes:
    return zlib.crc32(name.encode("utf-8", "surrogateescape")).to_bytes(_BYTES, "big")
