"""What a message keeps on its way through a relay, from a real RabbitMQ to a real RabbitMQ."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from bridge.relay.plan.file import read_file
from bridge.relay.running.relay import Relay
from bridge.remote.address import RemoteAddress
from bridge.remote.credentials import credential_in
from bridge.remote.message import RemoteMessage
from bridge.remote.namespace import RemoteNamespace
from bridge.remote.outcomes import Complete
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import (
    Byte,
    Char,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from bridge.wire.mapping.fields import compound_items, map_items, textual
from tests.fixtures.bridge import Bridge

FOR_EVER = {"DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S"}
ENTITIES: dict[str, dict[str, Any]] = {
    "source": {"LockDuration": "PT60S", **FOR_EVER},
    "target": FOR_EVER,
    "dying": {"DeadLetteringOnMessageExpiration": True},
    "died": FOR_EVER,
}

OWN = {"repl-sequence", "repl-enqueue-time", "x-busbridge-relay"}

WAIT_S = 120.0

EVERY_TYPE: dict[str, Any] = {
    "null": None, "true": True, "ubyte": Ubyte(255), "ushort": Ushort(65_535),
    "uint": Uint(2**32 - 1), "ulong": Ulong(2**64 - 1), "byte": Byte(-128), "short": Short(-1),
    "int": Int(5), "long": Long(2**40), "small long": Long(5), "float": Float(0.5), "double": 0.1,
    "decimal": Decimal("1.10"), "char": Char("é"),
    "time": Timestamp(1_709_502_629_433), "uuid": UUID(int=7), "binary": b"\x00\xff",
    "text": "x" * 300, "symbol": Symbol("s"), "traceparent": "00-0af7651916cd43dd8448eb211c80319c",
    "Diagnostic-Id": "00-0af7651916cd43dd8448eb211c80319c",
}  # fmt: skip


class Secrets:
    """The bridge's connection string, for both sides."""

    def __init__(self, text: str) -> None:
        self._text = text

    def variable(self, name: str) -> str:
        return self._text

    file = path = variable


def relay_of(bridge: Bridge, source: str, target: str, *lines: str) -> Relay:
    """Return a relay with one route, from the bridge to itself, as if it were two."""
    text = "\n".join(
        (
            '[sides.azure]\nenv = "A"\nid = "azure"\n[sides.local]\nenv = "A"\nid = "local"',
            f'[[routes]]\nfrom = "azure/{source}"\nto = "local/{target}"',
            *lines,
        )
    )
    return Relay(read_file(text, Secrets(bridge.connection_string), uuid4).whole())


def namespace_of(bridge: Bridge) -> RemoteNamespace:
    """Return the bridge's namespace."""
    text = bridge.connection_string
    credential = credential_in(text)
    assert credential is not None
    return RemoteNamespace(RemoteAddress.of(text), credential)


async def taken(namespace: RemoteNamespace, path: str) -> RemoteMessage:
    """Return a queue's next message, and complete it."""
    receiver = await namespace.receiver(path)
    (found,) = await receiver.receive(1, WAIT_S)
    await receiver.settle(found, Complete())
    await receiver.close()
    return found.message


async def relayed(
    bridge: Bridge, message: RemoteMessage, *lines: str
) -> tuple[RemoteMessage, RemoteMessage]:
    """Return a message as it is received at the source, and as it arrives at the target."""
    async with namespace_of(bridge) as namespace:
        sender = await namespace.sender("source")
        await sender.send([message])
        (before,) = await (await namespace.management("source")).peek(0, 1)
        relay = relay_of(bridge, "source", "target", *lines)
        relay.start()
        try:
            return before, await taken(namespace, "target")
        finally:
            await relay.stop()


def pairs(section: bytes) -> dict[str, tuple[bytes, bytes]]:
    """Return the encoded pairs of a section that is a map, by the texts of their keys."""
    return {
        (textual(section, a, b) or b"").decode(): (section[a:b], section[c:d])
        for (a, b), (c, d) in (map_items(section, 3) if section else ())
    }


def items(section: bytes) -> list[bytes]:
    """Return the encoded items of a section that is a list."""
    return [section[start:end] for start, end in compound_items(section, 3)]


BODIES = (
    {"data": [b"one", b"two"]},
    {"value": {"a": [Ulong(1), Timestamp(5)], Symbol("b"): None}},
    {"sequence": [[1, Int(2)], ["x"]]},
)


@pytest.mark.parametrize("body", BODIES)
async def test_body_and_properties_keep_their_bytes(bridge: Bridge, body: dict[str, Any]) -> None:
    """Each type there is; what is added are our own three properties."""
    message = RemoteMessage.of(
        **body,
        properties=MessageProperties(
            message_id=UUID(int=1), user_id=b"u", to="t", subject="s", reply_to="replies",
            correlation_id=Ulong(9), content_type="text/plain", content_encoding="gzip",
            reply_to_group_id="g",
        ),
        application_properties=EVERY_TYPE,
        annotations={"x-opt-partition-key": "key"},
        durable=True,
        priority=7,
    )  # fmt: skip

    before, after = await relayed(bridge, message)

    assert after.body == before.body == message.body
    assert after.properties == before.properties
    assert {
        name: pair for name, pair in pairs(after.application_properties).items() if name not in OWN
    } == pairs(message.application_properties)
    added = {name: after.application_property_values[name] for name in OWN}
    assert added["repl-sequence"] == str(before.sequence_number)
    assert added["x-busbridge-relay"] == "azure/source"
    assert after.partition_key == "key"
    assert after.header_fields[:2] == (True, 7)


async def test_a_reply_address_and_a_time_to_live_are_the_only_properties_that_change(
    bridge: Bridge,
) -> None:
    """The message expires when it would have at the source, but for the moment of its way."""
    message = RemoteMessage.of(
        data=b"x",
        properties=MessageProperties(message_id="m", reply_to="replies", subject="s"),
        ttl_ms=3_600_000,
    )

    before, after = await relayed(bridge, message, 'reply-to = { "replies" = "answers" }')

    assert after.property_fields.reply_to == "answers"
    assert items(after.properties)[:4] == items(before.properties)[:4]
    assert after.ttl_ms is not None
    assert after.ttl_ms < 3_600_000
    assert before.enqueued_time_ms is not None
    assert after.enqueued_time_ms is not None
    late_ms = after.enqueued_time_ms + after.ttl_ms - (before.enqueued_time_ms + 3_600_000)
    assert 0 <= late_ms < WAIT_S * 1000


async def test_a_dead_letter_arrives_with_its_reason_and_without_its_end(bridge: Bridge) -> None:
    """Its time was over when it died; at the target it would be over at once."""
    async with namespace_of(bridge) as namespace:
        sender = await namespace.sender("dying")
        await sender.send([RemoteMessage.of(data=b"x", ttl_ms=1_000)])
        relay = relay_of(bridge, "dying/$DeadLetterQueue", "died")
        relay.start()
        try:
            after = await taken(namespace, "died")
        finally:
            await relay.stop()

    values = after.application_property_values
    assert values["DeadLetterReason"] == "TTLExpiredException"
    assert values["repl-delivery-count"] == "0"
    assert after.property_fields.absolute_expiry_time is None
