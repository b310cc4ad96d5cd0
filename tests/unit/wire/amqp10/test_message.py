"""Messages of the request nodes, and batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message import (
    AmqpMessage,
    batch_messages,
    decode_message,
    encode_message,
)
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.types import Described, Long, Symbol, Ulong
from tests.unit.wire.amqp10.values import SCALARS, VALUES


@given(st.none() | st.uuids() | SCALARS["string"], VALUES)
def test_request_round_trip(message_id: Any, value: Any) -> None:
    """A request comes back with its id, of the same type, and its body."""
    message = AmqpMessage(MessageProperties(message_id=message_id), {"operation": "x"}, value)

    assert decode_message(encode_message(message)) == message


def test_sections_around_a_request() -> None:
    """Headers, annotations and a footer are read past; descriptors may be symbols."""
    raw = b"".join(
        writing.encode(Described(descriptor, value))
        for descriptor, value in [
            (Ulong(0x70), [True]),
            (Symbol("amqp:message-annotations:map"), {Symbol("x"): 1}),
            (Symbol("amqp:properties:list"), ["id"]),
            (Symbol("amqp:application-properties:map"), {"operation": "put-token"}),
            (Symbol("amqp:amqp-value:*"), "token"),
            (Ulong(0x78), {}),
        ]
    )

    found = decode_message(raw)

    assert (found.properties.message_id, found.value) == ("id", "token")
    assert found.application_properties == {"operation": "put-token"}


def test_descriptor_of_another_type() -> None:
    """A long that is as large as a section's code describes no section of that kind."""
    with pytest.raises(DecodeError, match="described by no ulong"):
        decode_message(writing.encode(Described(Long(0x73), [])))


@given(st.lists(st.binary(max_size=400), max_size=6))
def test_batch(messages: list[bytes]) -> None:
    """A batch gives out what its Data sections hold; the envelope's properties are read past."""
    envelope = writing.encode(Described(Ulong(0x73), ["id"]))
    data = b"".join(writing.encode(Described(Ulong(0x75), each)) for each in messages)
    spelled = b"".join(
        writing.encode(Described(Symbol("amqp:data:binary"), each)) for each in messages
    )

    assert list(batch_messages(envelope + data)) == messages
    assert list(batch_messages(envelope + spelled)) == messages


@given(st.binary(max_size=40))
def test_any_bytes(raw: bytes) -> None:
    """Any bytes are a message, a batch, or a decode error."""
    for read in (decode_message, lambda raw: list(batch_messages(raw))):
        try:
            read(raw)
        except DecodeError:
            continue


@pytest.mark.parametrize("raw", [b"\x00\x53\x75\xa0\x05ab", b"\x00\x53\x75\x40", b"\x00\x53\x75"])
def test_broken_batches(raw: bytes) -> None:
    """A Data section that is cut short, or holds no binary, is refused."""
    with pytest.raises(DecodeError):
        list(batch_messages(raw))
