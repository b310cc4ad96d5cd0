"""A native publisher's text that is no UTF-8 is one text, whoever reads it."""

from __future__ import annotations

import pytest
from azure.servicebus._pyamqp._decode import decode_payload

from bridge.engine.forwarding.forwarded_copy import ForwardingSource, envelope_of
from bridge.message.message import Message, facts
from bridge.model.entity import Queue, Tier
from bridge.model.errors import ArgumentOutOfRange
from bridge.wire import envelope, headers, sessions
from bridge.wire.basic import Properties, Table
from bridge.wire.envelope import KEY_BYTES_MAX, Item
from bridge.wire.mapping.inward import KEY_CHARACTERS_MAX, record_from_message
from bridge.wire.mapping.outward import message_from_record
from bridge.wire.message_view import MessageView
from bridge.wire.record import Record

SOURCE = ForwardingSource(Queue(name="from", incarnation="0123456789ab"), is_dead_letter=False)
PARTITIONED = Queue(name="to", enable_partitioning=True)
BY_MESSAGE_ID = Queue(name="to", enable_partitioning=True, requires_duplicate_detection=True)

TEXTS = {
    "empty": (b"", ""),
    "Latin-1": (b"Z\xfcrich", "Z\ufffdrich"),
    "a character cut short": (b"a\xf0\x9f\x90", "a\ufffd"),
    "a surrogate": (b"\xed\xa0\x80", 3 * "\ufffd"),
    "a pair of surrogates": (b"\xed\xa0\xbd\xed\xb0\xb0", 6 * "\ufffd"),
    "UTF-16": (b"\xff\xfea\x00", "\ufffd\ufffda\x00"),
    "too long a form": (b"\xc0\x80", "\ufffd\ufffd"),
    "beyond Unicode": (b"\xf7\xbf\xbf\xbf", 4 * "\ufffd"),
    "as much as a header holds": (b"\xfc" * 100_000, "\ufffd" * 100_000),
}


def sent(properties: Properties) -> bytes:
    """Return what a client is sent."""
    return message_from_record(Record(properties, b""), sequence_number=1, enqueued_ms=0)


def seen(properties: Properties) -> MessageView:
    """Return what filters see."""
    item = Item(properties.encode(), b"")
    return MessageView(item, number=1, enqueued_ms=0, ttl_ms=None)


def forwarded_key(properties: Properties, target: Queue) -> bytes | None:
    """Return what chooses the partition of a forwarded message."""
    message = Message(*facts(properties.encode(), b"", "from/$active", can_expire=True))
    (item,) = envelope.decode(envelope_of(message, SOURCE, target, Tier.STANDARD)).items
    return item.key


@pytest.mark.parametrize("letter", ["S", "x"])
@pytest.mark.parametrize(("raw", "text"), TEXTS.values(), ids=TEXTS.keys())
def test_a_session_id_is_one_text(letter: str, raw: bytes, text: str) -> None:
    """For the client, the owner of the session, a filter, a forwarder; and when it is sent back."""
    table: Table = {headers.SESSION_ID: (letter, raw)}
    properties = Properties(headers=table, delivery_mode=2)

    message = sent(properties)

    assert decode_payload(memoryview(message)).properties.group_id == text.encode()
    assert sessions.session_id_in(table) == text
    assert sessions.session_id_of(properties.encode()) == text
    assert seen(properties).system("sessionid") == text
    assert forwarded_key(properties, PARTITIONED) == text.encode()[:KEY_BYTES_MAX]
    if len(text) <= KEY_CHARACTERS_MAX:
        assert record_from_message(message, new_message_id="1").session_id == text
    else:
        with pytest.raises(ArgumentOutOfRange):
            record_from_message(message, new_message_id="1")


@pytest.mark.parametrize("field", [("l", 5), ("t", True), ("V", None), ("F", {})])
def test_a_session_id_that_is_no_text_is_none(field: tuple[str, object]) -> None:
    """For everybody."""
    table: Table = {headers.SESSION_ID: field}
    properties = Properties(headers=table, delivery_mode=2)

    assert decode_payload(memoryview(sent(properties))).properties.group_id is None
    assert sessions.session_id_in(table) is None
    assert seen(properties).system("sessionid") is None
    assert forwarded_key(properties, PARTITIONED) is None


def test_a_property_that_is_no_utf_8_is_one_text() -> None:
    """For the client and for a filter; a forwarder takes its bytes."""
    latin_1 = "Z\udcfcrich"
    properties = Properties(message_id=latin_1, type=latin_1, app_id=latin_1, delivery_mode=2)

    message = decode_payload(memoryview(sent(properties)))
    view = seen(properties)

    assert message.properties.message_id.decode() == view.system("messageid") == "Z\ufffdrich"
    assert message.properties.subject.decode() == view.system("label") == "Z\ufffdrich"
    assert message.application_properties[b"x-basic-app-id"].decode() == "Z\ufffdrich"
    assert view.user["x-basic-app-id"] == "Z\ufffdrich"
    assert forwarded_key(properties, BY_MESSAGE_ID) == b"Z\xfcrich"
