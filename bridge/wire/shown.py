"""Messages that a bridge shows another, or a client on RabbitMQ: a field table each.

Several come behind each other, each behind its length (u32).

number, enqueued, failures, state l | [ttl, until l] | [token x] | [reason, description S]
| properties, body x
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from bridge.wire.basic import FieldValue, Table, decode_table, encode_table, long, text

_SIZE = struct.Struct(">I")
_ABSENT: FieldValue = ("V", None)


@dataclass(slots=True)
class Shown:
    """A message, and what is known about it.

    Attributes:
        properties: encoded.
        failures: failed deliveries before this one.
        state: 0 active, 1 deferred, 2 scheduled.
        ttl_ms: effective TTL, `None` for ever.
        token: of its lock, or `None`; the lock ends at `until_ms`.
        death: reason and description, when RabbitMQ itself dead-lettered it.
    """

    number: int
    enqueued_ms: int
    failures: int
    state: int
    properties: bytes
    body: bytes
    ttl_ms: int | None = None
    token: bytes | None = None
    until_ms: int | None = None
    death: tuple[str, str] | None = None


def encode(messages: Iterable[Shown]) -> bytes:
    """Return messages in one piece."""
    parts: list[bytes] = []
    for each in messages:
        raw = encode_one(each)
        parts += (_SIZE.pack(len(raw)), raw)
    return b"".join(parts)


def encode_one(message: Shown) -> bytes:
    """Return one message."""
    return encode_table(_table(message))


def decode_one(raw: bytes) -> Shown:
    """Return one message.

    Raises:
        ValueError: these bytes hold none.
    """
    return _shown(decode_table(raw)[0])


def decode(raw: bytes) -> list[Shown]:
    """Return the messages.

    Raises:
        ValueError: these bytes hold none.
    """
    found: list[Shown] = []
    at = 0
    while at < len(raw):
        end = at + _SIZE.size + int.from_bytes(raw[at : at + _SIZE.size], "big")
        table, behind = decode_table(raw, at + _SIZE.size)
        if behind != end:
            raise ValueError(f"a message ends at byte {behind}, not {end}")
        found.append(_shown(table))
        at = end
    return found


def _table(shown: Shown) -> Table:
    table: Table = {
        "number": long(shown.number),
        "enqueued": long(shown.enqueued_ms),
        "failures": long(shown.failures),
        "state": long(shown.state),
        "properties": ("x", shown.properties),
        "body": ("x", shown.body),
    }
    if shown.ttl_ms is not None:
        table["ttl"] = long(shown.ttl_ms)
    if shown.token is not None and shown.until_ms is not None:
        table["token"] = ("x", shown.token)
        table["until"] = long(shown.until_ms)
    if shown.death is not None:
        table["reason"], table["description"] = text(shown.death[0]), text(shown.death[1])
    return table


def _shown(table: Table) -> Shown:
    reason, description = _bytes(table, "reason"), _bytes(table, "description")
    death = None
    if reason is not None and description is not None:
        death = reason.decode(), description.decode()
    return Shown(
        _number(table, "number") or 0,
        _number(table, "enqueued") or 0,
        _number(table, "failures") or 0,
        _number(table, "state") or 0,
        _bytes(table, "properties") or b"",
        _bytes(table, "body") or b"",
        _number(table, "ttl"),
        _bytes(table, "token"),
        _number(table, "until"),
        death,
    )


def _number(table: Table, name: str) -> int | None:
    value = table.get(name, _ABSENT)[1]
    return value if isinstance(value, int) else None


def _bytes(table: Table, name: str) -> bytes | None:
    value = table.get(name, _ABSENT)[1]
    return value if isinstance(value, bytes) else None
