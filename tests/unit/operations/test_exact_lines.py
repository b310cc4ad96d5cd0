"""A message comes back from its exact line byte for byte, and a changed field counts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.operations.lines.exact_lines import exact_fields_of, exact_line_of, message_of
from bridge.operations.lines.message_lines import line_of
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.primitives import encode_map, encode_symbol
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.sections import descriptor
from tests.fixtures.examples import examples
from tests.unit.operations.test_message_lines import NOW_MS, messages

LONG_BODY = descriptor(part.DATA) + b"\xb0" + (5).to_bytes(4, "big") + b"hello"
"""A binary whose size has four bytes though one is enough, as some clients write each."""

LONG_HEADER = descriptor(part.HEADER) + b"\xd0\0\0\0\x0a\0\0\0\x05\x40\x50\x04\x40\x40\x43"
LONG_PROPERTIES = (
    descriptor(part.PROPERTIES)
    + b"\xd0"
    + (16).to_bytes(4, "big")
    + (4).to_bytes(4, "big")
    + b"\xa1\x02m1\x40\x40\xb1\x00\x00\x00\x01a"
)


@settings(max_examples=examples(200), deadline=None)
@given(messages(), st.booleans())
def test_a_message_comes_back_byte_for_byte(message: RemoteMessage, is_long: bool) -> None:
    """Whatever encodings its sender chose, and in whatever order its annotations stand."""
    if is_long:
        message = replace(message, body=LONG_BODY)
    back = message_of(exact_line_of(message), now_ms=NOW_MS, is_sent=False)
    assert back.encode() == message.encode()


def test_a_section_stands_as_bytes_only_where_it_would_come_back_otherwise() -> None:
    """A line of a message in the shortest encodings is the same as that of `peek`."""
    message = message_of('{"message_id": "m1", "subject": "a", "body": "hello"}', now_ms=NOW_MS)
    assert exact_line_of(message) == line_of(message)
    fields = exact_fields_of(replace(message, body=LONG_BODY))
    assert set(fields["sections"]) == {"body"}


def test_who_changes_a_field_gets_the_field() -> None:
    """The bytes of a section count only while they say what the fields say."""
    message = RemoteMessage(properties=LONG_PROPERTIES, body=LONG_BODY)
    fields = exact_fields_of(message)
    assert (fields["message_id"], fields["subject"], fields["body"]) == ("m1", "a", "hello")
    fields["subject"] = "b"
    back = message_of(json.dumps(fields), now_ms=NOW_MS, is_sent=False)
    assert back.property_fields.subject == "b"
    assert back.property_fields.message_id == "m1"
    assert back.body == LONG_BODY


def test_what_the_service_has_set_is_not_sent_with_the_bytes() -> None:
    """Nor why the message died; the other pairs keep their bytes."""
    kept = (encode_symbol(b"x-opt-own"), b"\x55\x05")
    number = (encode_symbol(b"x-opt-sequence-number"), b"\x81" + (7).to_bytes(8, "big"))
    message = RemoteMessage.of(
        data=b"x", application_properties={"DeadLetterReason": "bad", "color": "red"}, priority=4
    )
    message = replace(
        message,
        header=LONG_HEADER,
        annotations=descriptor(part.MESSAGE_ANNOTATIONS) + encode_map([number, kept]),
    )
    sent = message_of(exact_line_of(message), now_ms=NOW_MS)
    assert sent.sequence_number is None
    assert sent.annotation_values == {"x-opt-own": 5}
    assert sent.application_property_values == {"color": "red"}
    assert sent.header_fields[:2] == (None, 4)
    assert sent.header_fields[4] is None


@pytest.mark.parametrize(
    ("sections", "text"),
    [("body", "no object"), ({"bdy": ""}, "no section 'bdy'"), ({"body": "AAA="}, "sections")],
)
def test_bytes_that_are_none_are_refused_by_name(sections: object, text: str) -> None:
    """A torn or mistyped file sends nothing else instead."""
    with pytest.raises(ValueRefused, match=text):
        message_of(json.dumps({"body": "x", "sections": sections}), now_ms=NOW_MS)
