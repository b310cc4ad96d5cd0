"""Left-out subscriptions: their queues take nothing, and a topic's publishes skip them.

One publish reaches all subscriptions of a message, and is confirmed when all their queues have it:
a queue without a leader would hold up the others. So publishes no longer have that queue's key. The
subscription's messages get numbers all the same, and are in the journal. From there the
subscription later gets all messages from the number that is kept here on. The number also tells a
message that the subscription has already.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bridge.machine.inbox.publication import Publication
from bridge.topology import names
from bridge.wire import copies, headers
from bridge.wire.basic import FieldValue, Properties, Table
from bridge.wire.sections import MalformedEntry
from bridge.wire.stamp import EXPIRATION_MAX_MS

_MISSED = struct.Struct(">6sqq")
_BCC = "BCC"
_ABSENT: FieldValue = ("V", None)

_BYTES = (headers.IDENTITY, headers.COPIES, headers.ACCEPTED, headers.SECTIONS)
"""Headers that are byte arrays; a stream of RabbitMQ 4 gives them back as strings."""


@dataclass(slots=True)
class Missed:
    """The messages that one subscription has missed.

    Attributes:
        number: the lowest number that the subscription may lack; it has no higher number.
        since_ms: when the subscription was left out (UTC ms).
    """

    number: int
    since_ms: int


def encode(left_out: dict[bytes, Missed]) -> bytes:
    """Return left-out subscriptions, by short ids, as bytes."""
    return b"".join(
        [_MISSED.pack(short, each.number, each.since_ms) for short, each in left_out.items()]
    )


def decode(raw: bytes) -> dict[bytes, Missed]:
    """Read the bytes of `encode`."""
    if len(raw) % _MISSED.size:
        raise MalformedEntry(f"{len(raw)} bytes of subscriptions that are left out")
    found: dict[bytes, Missed] = {}
    for at in range(0, len(raw), _MISSED.size):
        short, number, since_ms = _MISSED.unpack_from(raw, at)
        found[short] = Missed(number, since_ms)
    return found


def first_copies(
    publications: Iterable[Publication], exchange: str
) -> dict[bytes, tuple[int, Publication]]:
    """Return each subscription's lowest number among publications, and its publication.

    Args:
        publications: publications on their way.
        exchange: the topic's exchange that routes to the subscriptions' queues.
    """
    found: dict[bytes, tuple[int, Publication]] = {}
    for each in publications:
        if each.exchange != exchange:
            continue
        table = Properties.decode(each.properties).headers or {}
        raw = table.get(headers.COPIES, _ABSENT)[1]
        keys = {_subscription(key) for key in _keys(table)}
        if not isinstance(raw, bytes):
            continue
        for short, number in copies.decode(raw)[0]:
            if names.copy_key(short) in keys and (short not in found or number < found[short][0]):
                found[short] = number, each
    return found


def for_one(publication: Publication, short: bytes) -> Publication:
    """Return a publication for one subscription alone; the journal has the message already."""
    keys, own = _keys_in(publication.properties), names.copy_key(short)
    routing_key = next((key for key in keys if _subscription(key) == own), own)
    properties = _without(publication.properties, {_subscription(key) for key in keys})
    return publication._replace(routing_key=routing_key, properties=properties)


def without(publication: Publication, left_out: Collection[bytes], exchange: str) -> Publication:
    """Return a publication that does not reach the left-out subscriptions."""
    if not left_out or publication.exchange != exchange:
        return publication
    keys = [names.copy_key(short) for short in left_out]
    return publication._replace(properties=_without(publication.properties, keys))


def as_missed(properties: Properties, left_ms: int | None) -> bytes:
    """Return the properties for publishing a message from the journal to one queue.

    Args:
        properties: the message's properties in the journal.
        left_ms: the remaining time to live, `None` for ever.
    """
    table = dict(properties.headers or {})
    for name in _BYTES:
        if name in table and table[name][0] == "S":
            table[name] = ("x", table[name][1])
    properties.headers = table
    properties.delivery_mode = 2
    is_short = left_ms is not None and left_ms <= EXPIRATION_MAX_MS
    properties.expiration = str(left_ms) if is_short else None
    return properties.encode()


def _keys(table: Table) -> list[str]:
    value = table.get(_BCC, _ABSENT)[1]
    if not isinstance(value, list):
        return []
    return [key.decode() for _, key in value if isinstance(key, bytes)]


def _subscription(key: str) -> str:
    """Return the key of a subscription from the key of any of its shards."""
    return key[: names.COPY_KEY_LENGTH]


def _keys_in(raw: bytes) -> list[str]:
    return _keys(Properties.decode(raw).headers or {})


def _without(raw: bytes, keys: Collection[str]) -> bytes:
    """Return properties without these subscriptions' keys."""
    properties = Properties.decode(raw)
    table = dict(properties.headers or {})
    kept = [key for key in _keys(table) if _subscription(key) not in keys]
    if len(kept) == len(_keys(table)):
        return raw
    table.pop(_BCC)
    if kept:
        table[_BCC] = ("A", [("S", key.encode()) for key in kept])
    properties.headers = table
    return properties.encode()
