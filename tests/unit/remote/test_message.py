"""Messages of remote namespaces: sections as bytes, views with AMQP's types."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.errors import DecodeError
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Byte, Char, Int, Long, Symbol, Timestamp, Ulong

ODD: dict[str, Any] = {
    "long": Long(2**40),
    "int": Int(5),
    "byte": Byte(-5),
    "when": Timestamp(1_709_502_629_433),
    "symbol": Symbol("s"),
    "binary": b"\x00\xff",
    "char": Char("x"),
    "uuid": UUID(int=7),
    "decimal": Decimal("1.10"),
    "null": None,
    "true": True,
    "double": 0.1,
}


def test_a_message_that_is_read_and_written_is_the_same_bytes() -> None:
    """With types that azure-servicebus loses or refuses."""
    raw = RemoteMessage.of(
        value={"a": [Ulong(1), ODD["when"]]},
        properties=MessageProperties(message_id=UUID(int=1), group_id="s", user_id=b"u"),
        application_properties=ODD,
        annotations={"x-opt-scheduled-enqueue-time": 1_900_000_000_000, "x-own": Int(1)},
        ttl_ms=60_000,
        priority=7,
        durable=True,
    ).encode()

    found = RemoteMessage.read(raw)

    assert found.encode() == raw
    assert found.application_property_values["long"] == 2**40
    for name in ("long", "int", "byte", "when", "symbol", "char", "uuid", "true", "double"):
        assert type(found.application_property_values[name]) is type(ODD[name]), name
    assert found.message_id == UUID(int=1)
    assert found.session_id == "s"
    assert found.ttl_ms == 60_000
    assert found.header_fields == (True, 7, 60_000, None, None)
    assert found.scheduled_enqueue_time_ms == 1_900_000_000_000
    assert type(found.annotation_values["x-opt-scheduled-enqueue-time"]) is Timestamp
    assert found.body_kind == "value"
    assert found.body_values == [{"a": [1, ODD["when"]]}]


def test_what_the_service_says_of_a_message() -> None:
    """Its annotations, and its dead-letter properties."""
    found = RemoteMessage.read(
        RemoteMessage.of(
            data=[b"a", b"b"],
            application_properties={
                "DeadLetterReason": "r",
                "DeadLetterErrorDescription": "d",
            },
            annotations={
                "x-opt-sequence-number": Long(2**50),
                "x-opt-enqueue-sequence-number": Long(3),
                "x-opt-enqueued-time": Timestamp(4),
                "x-opt-locked-until": Timestamp(5),
                "x-opt-message-state": Int(2),
                "x-opt-partition-key": "k",
                "x-opt-deadletter-source": "orders",
            },
        ).encode()
    )

    assert found.sequence_number == 2**50
    assert found.enqueued_sequence_number == 3
    assert found.enqueued_time_ms == 4
    assert found.locked_until_ms == 5
    assert found.state == "scheduled"
    assert found.partition_key == "k"
    assert found.dead_letter_source == "orders"
    assert (found.dead_letter_reason, found.dead_letter_error_description) == ("r", "d")
    assert found.data == b"ab"
    assert found.body_kind == "data"


def test_an_empty_message_has_a_body_and_nothing_else() -> None:
    """One Data section, as the SDKs send; the views are empty."""
    found = RemoteMessage.of()

    assert found.encode() == b"\x00\x53\x75\xa0\x00"
    assert found.application_property_values == found.annotation_values == {}
    assert found.delivery_annotation_values == found.footer_values == {}
    assert found.property_fields == MessageProperties()
    assert found.sequence_number is found.message_id is found.ttl_ms is None
    assert found.delivery_count == 0
    assert found.state == "active"
    assert RemoteMessage().body_kind == "none"


def test_a_null_value_is_a_body() -> None:
    """It is not the same as none."""
    found = RemoteMessage.read(RemoteMessage.of(value=None).encode())

    assert (found.body_kind, found.body_values) == ("value", [None])


def test_a_message_has_one_kind_of_body() -> None:
    """Two are refused."""
    with pytest.raises(ValueError, match="one kind of body"):
        RemoteMessage.of(data=b"", value=1)


@given(
    data=st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    application=st.dictionaries(
        st.text(max_size=8),
        st.one_of(
            st.integers(-(2**63), 2**63 - 1),
            st.text(max_size=300),
            st.binary(max_size=300),
            st.booleans(),
            st.floats(allow_nan=False),
        ),
        max_size=5,
    ),
    subject=st.none() | st.text(max_size=300),
    ttl_ms=st.none() | st.integers(0, 2**32 - 1),
)
def test_any_message_survives(
    data: list[bytes], application: dict[str, Any], subject: str | None, ttl_ms: int | None
) -> None:
    """A message is decoded to equal sections and encoded to the same bytes."""
    made = RemoteMessage.of(
        data=data,
        application_properties=application,
        properties=MessageProperties(subject=subject),
        ttl_ms=ttl_ms,
    )

    found = RemoteMessage.read(made.encode())

    assert found == made
    assert found.body_values == data
    assert found.application_property_values == application
    assert found.property_fields.subject == subject
    assert found.ttl_ms == ttl_ms


@given(st.binary(max_size=60))
def test_bytes_that_are_no_message_are_refused_by_name(raw: bytes) -> None:
    """With a DecodeError, or read and written as whole sections."""
    try:
        found = RemoteMessage.read(raw)
    except DecodeError:
        return
    assert RemoteMessage.read(found.encode()) == found
