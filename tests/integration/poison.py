"""What RabbitMQ takes from whoever may publish, and no bridge has written."""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Iterator
from typing import Any

from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.errors import BrokerError
from bridge.wire import envelope, headers
from bridge.wire.basic import FieldValue, Properties, Table
from bridge.wire.envelope import Item, Operation

Poison = tuple[bytes, bytes]
"""Properties and body."""

DEEP_LEVELS = 100

BATCH = 100
"""So many are published at once; where one is refused, they are published one by one."""


def nested(letter: str) -> FieldValue:
    """A table or an array far deeper than anybody's."""
    field: FieldValue = ("V", None)
    for _ in range(DEEP_LEVELS):
        field = (letter, {"a": field} if letter == "F" else [field])
    return field


def raw_table(fields: bytes) -> bytes:
    """Properties with a header table of these bytes."""
    return b"\x30\x00" + struct.pack(">I", len(fields)) + fields + b"\x02"


def raw_field(name: bytes, field: FieldValue) -> bytes:
    """A field as the codec writes it, but for its depth."""
    return bytes((len(name),)) + name + raw_value(field)


def raw_value(field: FieldValue) -> bytes:
    """A value, however deep."""
    letter, value = field
    if letter in "FA":
        assert isinstance(value, dict | list)
        parts = (
            [raw_field(name.encode(), each) for name, each in value.items()]
            if isinstance(value, dict)
            else [raw_value(each) for each in value]
        )
        inner = b"".join(parts)
        return letter.encode() + struct.pack(">I", len(inner)) + inner
    return Properties(headers={"": field}).encode()[7:]


FIELDS: tuple[FieldValue, ...] = (
    *((letter, number) for letter in "bsIl" for number in (-1, 0, 1)),
    *(("b", number) for number in (-128, 127)),
    *((letter, (1 << bits) - 1) for letter, bits in (("B", 8), ("u", 16), ("i", 32), ("T", 64))),
    *((letter, sign * 2**63 - (sign > 0)) for letter in "lL" for sign in (-1, 1)),
    ("T", 0),
    ("T", 2**63),
    ("t", True),
    ("V", None),
    ("f", 1.5),
    ("d", -1e308),
    ("D", (255, 2**32 - 1)),
    ("D", (0, 5)),
    ("S", b""),
    ("S", b"\xff\xfe"),
    ("S", b"text"),
    ("S", b"x" * 60_000),
    ("x", bytes(20)),
    ("x", bytes(44)),
    ("x", b"\xff" * 16),
    ("x", b"\x00\x53\x74\xd1\xff\xff\xff\xff"),
    ("A", []),
    ("A", [("D", (1, 1)), ("A", [("V", None)]), ("F", {})]),
    ("F", {}),
    ("F", {"D": ("D", (3, 1)), "": ("A", [])}),
    nested("F"),
    nested("A"),
)
"""Every type of field, at its ends."""

OURS = tuple(
    value
    for name, value in vars(headers).items()
    if name.isupper()
    and isinstance(value, str)
    and value not in (headers.DIRECT_REPLY_TO, headers.OWN_PREFIX)
)
OTHERS = (
    *("x-opt-creation-time", "x-opt-absolute-expiry-time", "x-opt-user-id"),
    *("x-opt-group-sequence", "x-stream-offset", "x-stream-filter-value", "x-death"),
    *("x-first-death-queue", "x-first-death-reason", "x-delivery-count", "x-acquired-count"),
    *("x-any", ""),
)

SECTIONS = (
    *(b"", b"\x00", b"\x00\x53", b"\x00\x53\x74", b"\x00\x53\x74\xc1\x01\x01", b"\xff" * 9),
    b"\x00\x53\x74\xd1\x00\x00\x00\x04\xff\xff\xff\xff",
    b"\x00\x53\x72\xc1\x01\x00\x00\x53\x72\xc1\x01\x00",
    b"\x00\x53\x73\xc0\x02\x01\xff",
    b"\x00\x53\x71\xc1\x05\x02\xa3\x01a\x40",
)


def headers_of_every_type() -> Iterator[Poison]:
    """Each header of the bridge's and some of RabbitMQ's, with a value of each type."""
    serial = itertools.count()
    for name in (*OURS, *OTHERS):
        for field in FIELDS:
            yield raw_table(raw_field(name.encode(), field)), b"header %d" % next(serial)
    yield raw_table(raw_field(b"\xff\xfe", ("S", b"a"))), b"key"
    yield raw_table(b"".join(raw_field(b"%d" % n, ("V", None)) for n in range(10_000))), b"many"
    for raw in SECTIONS:
        for name in (headers.SECTIONS, headers.BODY):
            yield raw_table(raw_field(name.encode(), ("x", raw))), raw or b"empty"


def properties_of_every_kind() -> Iterator[Poison]:
    """The properties that are no headers."""
    odd = "\udcff\udcfe"
    made = (
        *(Properties(**{name: odd}) for name in ("content_type", "message_id", "type", "app_id")),
        *(Properties(**{name: odd}) for name in ("reply_to", "correlation_id", "cluster_id")),
        *(Properties(**{name: "x" * 255}) for name in ("reply_to", "message_id", "cluster_id")),
        Properties(reply_to="amq.rabbitmq.reply-to.nobody"),
        Properties(priority=255, delivery_mode=1),
        Properties(timestamp=2**64 - 1),
        Properties(user_id="guest"),
    )
    for number, properties in enumerate(made):
        yield properties.encode(), b"properties %d" % number


def envelopes() -> Iterator[Poison]:
    """What pretends to be an envelope, or is one that no bridge has written."""
    kind = envelope.SILENT_PROPERTIES
    asks = Properties(
        headers=envelope.HEADERS, reply_to="nobody/\udcff", correlation_id="\udcff"
    ).encode()
    bare = Properties(delivery_mode=2).encode()
    whole = envelope.encode(Operation.SEND, bytes(16), [Item(bare, b"x")])
    for cut in range(len(whole)):
        yield kind, whole[:cut]
    yield kind, whole + b"more"
    yield asks, whole[:-1]
    yield kind, whole[:18] + b"\xff\xff\xff\xff" + whole[22:]
    for operation in (0, 4, 255):
        yield kind, bytes((1, operation)) + whole[2:]
    yield kind, whole[:22] + b"\xff" + whole[23:]
    for number in (-(2**63), 2**63 - 1):
        yield asks, envelope.encode_cancel(bytes(16), [number])
        times: Any = {"ttl_ms": number, "scheduled_ms": None}
        yield kind, envelope.encode(Operation.SEND, bytes(16), [Item(bare, b"ttl", **times)])
    for number, (properties, _) in enumerate([*headers_of_every_type(), *unfit()]):
        identity = number.to_bytes(16, "big")
        yield kind, envelope.encode(Operation.SEND, identity, [Item(properties, b"item")])


def unfit() -> Iterator[Poison]:
    """Properties that RabbitMQ itself takes of nobody."""
    for raw in (b"", b"\xff", b"\xff\xff", b"\x20\x00", b"\x20\x00\xff\xff\xff\xff", b"\x00\x01"):
        yield raw, b""
    made = (
        Properties(delivery_mode=2, expiration="no number"),
        Properties(delivery_mode=2, expiration="-1"),
        Properties(delivery_mode=2, reply_to=headers.DIRECT_REPLY_TO),
        Properties(delivery_mode=2, user_id="somebody"),
        Properties(delivery_mode=2, headers={"CC": ("S", b"orders")}),
        Properties(delivery_mode=2, headers={"BCC": ("I", 5)}),
        Properties(delivery_mode=2, headers={"a": ("d", float("nan"))}),
        Properties(delivery_mode=2, headers={"a": ("f", float("inf"))}),
    )
    for properties in made:
        yield properties.encode(), b""
    yield raw_table(b"\x01a?"), b""
    yield raw_table(b"\x01aS\xff\xff\xff\xff"), b""
    yield raw_table(b"\xffa"), b""


def batons() -> Iterator[Poison]:
    """The other kinds of the bridge's own messages, with bodies of nobody."""
    for kind in (b"baton", b"lapsed", b"refused", b"ask", b"nothing", b"\xff"):
        table: Table = {headers.KIND: ("S", kind)}
        yield Properties(headers=table, delivery_mode=2).encode(), b"kind " + kind
    table = {headers.KIND: ("S", b"refused"), headers.DEAD_LETTER_REASON: ("I", 5)}
    yield Properties(headers=table, delivery_mode=2).encode(), b"refused"


def messages() -> list[Poison]:
    """All that a publisher may do to a queue."""
    return [*headers_of_every_type(), *properties_of_every_kind(), *batons()]


class Publisher:
    """Publishes what RabbitMQ takes; over what it does not take it ends channel or connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection: Connection | None = None
        self._channel: Any = None
        self._opening = asyncio.Lock()

    async def publish(self, exchange: str, key: str, poison: list[Poison]) -> int:
        """Publish all; return how many RabbitMQ has taken."""
        taken = 0
        for start in range(0, len(poison), BATCH):
            batch = poison[start : start + BATCH]
            publishes = [self._publish(exchange, key, *each) for each in batch]
            results = await asyncio.gather(*publishes)
            if not all(results):
                results = [await self._publish(exchange, key, *each) for each in batch]
            taken += sum(results)
        return taken

    async def _publish(self, exchange: str, key: str, properties: bytes, body: bytes) -> bool:
        async with self._opening:
            if self._connection is None or self._connection.is_closed:
                self._connection = await Connection.open(self._endpoint, name="poison")
                self._channel = None
            if self._channel is None or self._channel.close_reason is not None:
                self._channel = await self._connection.channel()
                await self._channel.publisher.confirm_select()
        try:
            await self._channel.publisher.publish_confirmed(exchange, key, properties, body)
        except (BrokerError, ValueError):
            return False
        return True

    async def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            await self._connection.close()
