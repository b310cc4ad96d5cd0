"""A message that is sent again is the same but for what is changed, and what was the copy's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from bridge.operations.changes import MessageChanges, scheduled, sent_again
from bridge.operations.lines.message_lines import fields_of
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.remote.message import RemoteMessage
from bridge.wire import headers
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.primitives import NULL, encode_list, encode_uint
from bridge.wire.amqp10.scalars import Long, Symbol, Timestamp
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.sections import descriptor
from tests.fixtures.examples import examples
from tests.unit.operations.test_exact_lines import LONG_BODY
from tests.unit.operations.test_message_lines import messages

NO_SUBJECT = descriptor(part.PROPERTIES) + encode_list([NULL, NULL, NULL, encode_uint(5)])
"""Properties whose subject is a number."""

NOW_MS = 1_795_737_600_000
DAY_MS = 86_400_000

DEAD = replace(
    RemoteMessage.of(
        data=b'{"total": 5}',
        properties=MessageProperties(message_id="m1", subject="order", group_id="s1"),
        application_properties={
            "color": "red",
            "n": Long(2**40),
            "at": Timestamp(5),
            "DeadLetterReason": "bad",
            "DeadLetterErrorDescription": "ValueError: no total",
        },
        annotations={
            "x-opt-sequence-number": Long(7),
            "x-opt-enqueued-time": Timestamp(NOW_MS - DAY_MS),
            "x-opt-scheduled-enqueue-time": NOW_MS - DAY_MS,
            "x-opt-deadletter-source": "orders",
            "x-opt-partition-key": "s1",
            "x-opt-own": Symbol("kept"),
        },
    ),
    header=descriptor(part.HEADER)
    + encode_list([b"\x41", b"\x50\x04", encode_uint(60_000), NULL, encode_uint(10)]),
)


def test_it_has_neither_its_death_nor_what_its_copy_was() -> None:
    """Number, times, lock, count and source are of the copy that died."""
    sent = sent_again(DEAD, NOW_MS)
    assert fields_of(sent) == {
        "durable": True,
        "priority": 4,
        "time_to_live": "PT1M",
        "message_id": "m1",
        "subject": "order",
        "session_id": "s1",
        "partition_key": "s1",
        "application_properties": {
            "color": "red",
            "n": {"long": 2**40},
            "at": {"timestamp": "1970-01-01T00:00:00.005Z"},
        },
        "body": '{"total": 5}',
        "annotations": {"x-opt-own": {"symbol": "kept"}},
    }
    assert sent.properties == DEAD.properties
    assert sent.body == DEAD.body


def test_what_cannot_be_read_is_refused_until_it_is_changed() -> None:
    """Its subject is no string: it stays dead, and those behind it are sent."""
    broken = replace(DEAD, properties=NO_SUBJECT)
    with pytest.raises(ValueRefused, match="subject is no string"):
        sent_again(broken, NOW_MS)
    sent = sent_again(broken, NOW_MS, MessageChanges({"subject": "order"}))
    assert sent.property_fields.subject == "order"


def test_its_death_stays_if_asked() -> None:
    """Someone may want to know at the other end."""
    sent = sent_again(DEAD, NOW_MS, MessageChanges(keeps_death=True))
    assert sent.application_properties == DEAD.application_properties


def test_fields_and_properties_are_set_and_removed() -> None:
    """Those alone: all other values keep their types."""
    changes = MessageChanges(
        {"subject": "corrected", "session_id": None, "body": {"json": {"total": 6}}},
        {"color": None, "tries": {"short": 2}},
    )
    sent = fields_of(sent_again(DEAD, NOW_MS, changes))
    assert sent["subject"] == "corrected"
    assert "session_id" not in sent
    assert sent["body"] == '{"total":6}'
    assert sent["application_properties"] == {
        "n": {"long": 2**40},
        "at": {"timestamp": "1970-01-01T00:00:00.005Z"},
        "tries": {"short": 2},
    }
    assert sent["message_id"] == "m1"


@settings(max_examples=examples(150), deadline=None)
@given(messages())
def test_a_property_that_is_set_leaves_every_other_byte(message: RemoteMessage) -> None:
    """Of a message of any kind, in whatever encodings."""
    message = replace(message, body=LONG_BODY)
    try:
        plain = sent_again(message, NOW_MS)
        sent = sent_again(message, NOW_MS, MessageChanges(properties={"new": 5}))
    except ValueRefused:
        return
    assert sent.application_property_values["new"] == 5
    assert replace(sent, application_properties=b"") == replace(plain, application_properties=b"")
    assert plain.body == message.body
    assert plain.footer == message.footer
    assert plain.sequence_number is None


@pytest.mark.parametrize("days", [1, 60])
def test_a_time_to_live_begins_anew(days: int) -> None:
    """In the header, and in the two times that stand for it where 32 bits are too few."""
    created_ms = NOW_MS - 300 * DAY_MS
    properties = MessageProperties(
        absolute_expiry_time=Timestamp(created_ms + days * DAY_MS),
        creation_time=Timestamp(created_ms),
    )
    message = RemoteMessage.of(
        data=b"", properties=properties, ttl_ms=min(days * DAY_MS, 2**32 - 1)
    )
    sent = sent_again(message, NOW_MS)
    assert sent.header == message.header
    assert sent.property_fields.creation_time == NOW_MS
    assert sent.property_fields.absolute_expiry_time == NOW_MS + days * DAY_MS


def test_a_time_to_live_that_is_set_counts_and_no_earlier_times() -> None:
    """Who reckons it of the two times would find the old one."""
    properties = MessageProperties(
        absolute_expiry_time=Timestamp(NOW_MS + 60 * DAY_MS), creation_time=Timestamp(NOW_MS)
    )
    message = RemoteMessage.of(data=b"", properties=properties, ttl_ms=2**32 - 1)
    sent = sent_again(message, NOW_MS, MessageChanges({"time_to_live": "PT5M"}))
    assert sent.ttl_ms == 300_000
    assert sent.property_fields.absolute_expiry_time is None
    assert sent.property_fields.creation_time is None
    endless = sent_again(message, NOW_MS, MessageChanges({"time_to_live": None}))
    assert endless.ttl_ms is None


@pytest.mark.parametrize("name", ["sequence_number", "colour", "application_properties", "unread"])
def test_a_field_that_cannot_be_set_is_refused_before_anything_is_done(name: str) -> None:
    """The text lists those that can."""
    with pytest.raises(ValueRefused, match=f"'{name}' is no field that can be set.*subject"):
        MessageChanges({name: "x"})


def test_a_value_of_another_type_is_refused_before_anything_is_done() -> None:
    """As a line with it is."""
    with pytest.raises(ValueRefused, match="priority"):
        MessageChanges({"priority": 256})


def test_bytes_that_are_no_message_are_not_sent() -> None:
    """They stay where they are."""
    with pytest.raises(ValueRefused, match="no message"):
        sent_again(RemoteMessage(unread=b"\x00"), NOW_MS)


def test_a_scheduled_message_has_one_time() -> None:
    """An earlier one is replaced."""
    message = scheduled(scheduled(DEAD, 5), 6)
    assert message.annotation_values[headers.SCHEDULED_ENQUEUE_TIME] == 6
    assert message.annotations.count(headers.SCHEDULED_ENQUEUE_TIME.encode()) == 1
