"""What a relay says of each message that it copies from another namespace's entity.

A sender link names the source of its messages (`wire.link_properties.RELAY_SOURCE`): the entity, or
its sub-queue, from which they are copied. Each message on it carries the annotations below, each
message of a batch its own. They are the copy's identity: the target numbers it once. They are taken
off before the message is stored. In an envelope, and in the journal, one header has in their place:

    source 16 bytes | number i64 | time i64 | lowest i64

It is in front of a message's headers, and none that a canonical message has (`wire.canonical`): so
a leader looks for it in no other message, and an older bridge, which does not know it, drops it.
Behind it, in an envelope alone, may stand the header of the only subscription that gets the copy
(`headers.TARGET`).
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from bridge.model.duration import TIME_MAX_MS
from bridge.model.name import SHORT_ID_BYTES
from bridge.wire import headers
from bridge.wire.amqp10.scalars import Long, Symbol, Timestamp
from bridge.wire.basic import (
    Properties,
    Table,
    bytes_in,
    encode_fields,
    with_fields,
    without_fields,
)

SOURCE_NUMBER: Final = Symbol("x-opt-busbridge-source-number")
"""Long: the message's sequence number at its source."""

SOURCE_TIME: Final = Symbol("x-opt-busbridge-source-time")
"""Timestamp: its enqueued time at its source, UTC ms."""

SOURCE_LOWEST: Final = Symbol("x-opt-busbridge-source-lowest")
"""Long: the lowest number of the message's partition (`number >> 48`) that may yet come from the
source, for the first time or again. Of a dead-letter queue that is the entity's own lowest, too: an
older message may be dead-lettered later."""

SOURCE_CHARACTERS_MAX: Final = 400
"""The longest name of a source; the shortest has one character."""

DIGEST_BYTES: Final = 16
PARTITION_BITS: Final = 48
"""A number's bits behind those of its partition."""

_SAID: Final = struct.Struct(f">{DIGEST_BYTES}sqqq")
SAID_BYTES: Final = _SAID.size


def copy_annotations(number: int, enqueued_ms: int, lowest: int) -> dict[Symbol, Long | Timestamp]:
    """Return the annotations of a copy.

    Args:
        number: its sequence number at its source.
        enqueued_ms: its enqueued time there, UTC ms.
        lowest: the lowest number of its partition that may yet come, `number` at most.
    """
    return {
        SOURCE_NUMBER: Long(number),
        SOURCE_TIME: Timestamp(enqueued_ms),
        SOURCE_LOWEST: Long(lowest),
    }


def digest_of(source: str) -> bytes:
    """Return the bytes that stand for a source's name."""
    return hashlib.sha256(source.encode()).digest()[:DIGEST_BYTES]


def say(source: bytes, number: int, enqueued_ms: int, lowest: int) -> bytes:
    """Return what a relay says of a copy, in its stored form.

    Args:
        source: the digest of its source's name.

    Raises:
        ValueError: the numbers are none of a source: negative, of two partitions, or the lowest
            above the message's own; or the time is none.
    """
    said = _SAID.pack(source, number, enqueued_ms, lowest)
    if not _is_right(said):
        raise ValueError(f"number {number}, time {enqueued_ms}, lowest {lowest}")
    return said


def read(said: bytes) -> tuple[bytes, int, int, int]:
    """Return digest of the source, number, enqueued time and lowest."""
    found: tuple[bytes, int, int, int] = _SAID.unpack(said)
    return found


def field(said: bytes) -> bytes:
    """Return the header field, to be put in front of a message's headers."""
    return encode_fields({headers.RELAYED: ("x", said)})


_FIELD: Final = field(bytes(SAID_BYTES))
_KEY: Final = _FIELD[:-SAID_BYTES]


def said_in_front(properties: bytes) -> tuple[bytes, bytes] | None:
    """Return what a relay says in front of a message's headers, and the properties without it.

    `None`: nothing, or nothing right.

    Args:
        properties: as `Properties.encode` writes them; of a native publisher, perhaps.
    """
    found = without_fields(properties, _KEY, len(_FIELD))
    if found is None:
        return None
    said = found[0][len(_KEY) :]
    return (said, found[1]) if _is_right(said) else None


def target_field(target: bytes) -> bytes:
    """Return the header field of a subscription's short id, to be put in front as well."""
    return encode_fields({headers.TARGET: ("x", target)})


_TARGET_NAME: Final = headers.TARGET.encode()
_TARGET_FIELD: Final = target_field(bytes(SHORT_ID_BYTES))
_TARGET_KEY: Final = _TARGET_FIELD[:-SHORT_ID_BYTES]


def target_in_front(properties: bytes) -> tuple[bytes, bytes] | None:
    """Return the subscription in front of a message's headers, and the properties without it.

    `None`: there is none.

    Args:
        properties: behind what a relay says (`said_in_front`).
    """
    found = without_fields(properties, _TARGET_KEY, len(_TARGET_FIELD))
    return None if found is None else (found[0][len(_TARGET_KEY) :], found[1])


def with_target(properties: bytes, target: bytes | None) -> bytes:
    """Return properties that keep a message's only subscription while the message waits."""
    return properties if target is None else with_fields(properties, target_field(target))


def take_target(properties: bytes) -> tuple[bytes | None, bytes]:
    """Return the subscription of a message that has waited, and the properties without it.

    Its header is anywhere among the others: RabbitMQ sorts them.
    """
    if _TARGET_NAME not in properties:
        return None, properties
    basic = Properties.decode(properties)
    target = bytes_in(basic.headers or {}, headers.TARGET)
    if basic.headers is None or target is None:
        return None, properties
    del basic.headers[headers.TARGET]
    return target, basic.encode()


def said_in(table: Table) -> bytes | None:
    """Return what a relay says in a journal entry's headers, `None` for nothing."""
    said = bytes_in(table, headers.RELAYED)
    return said if said is not None and _is_right(said) else None


def _is_right(said: bytes) -> bool:
    if len(said) != SAID_BYTES:
        return False
    _, number, enqueued_ms, lowest = read(said)
    return (
        0 <= lowest <= number
        and lowest >> PARTITION_BITS == number >> PARTITION_BITS
        and 0 <= enqueued_ms <= TIME_MAX_MS
    )
