"""A message becomes a line of JSON, and the line the same message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.operations.changes import scheduled
from bridge.operations.lines.message_lines import (
    SERVICE_FIELDS,
    fields_of,
    line_of,
    message_of,
)
from bridge.operations.lines.scalar_values import ValueRefused
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10 import scalars
from bridge.wire.amqp10.primitives import NULL, encode_binary, encode_list, encode_map
from bridge.wire.amqp10.writing import encode
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.names import SERVICE_ANNOTATIONS
from bridge.wire.mapping.sections import descriptor, split_sections
from tests.fixtures.examples import examples
from tests.unit.operations.amqp_values import ENCODED_SCALARS, SCALARS, SYMBOLS, TEXTS

NOW_MS = 1_795_737_600_000

NAMED = st.sampled_from(
    [
        *(name.decode() for name in SERVICE_ANNOTATIONS),
        "x-opt-scheduled-enqueue-time",
        "x-opt-partition-key",
        "x-opt-via-partition-key",
    ]
).map(scalars.Symbol)


def trimmed(code: int, items: list[bytes]) -> bytes:
    """Return a section of a list; empty without fields."""
    while items and items[-1] == NULL:
        items.pop()
    return descriptor(code) + encode_list(items) if items else b""


def map_section(code: int, keys: st.SearchStrategy) -> st.SearchStrategy:
    """Return sections of a map."""
    pairs = st.lists(
        st.tuples(keys.map(encode), ENCODED_SCALARS), max_size=3, unique_by=lambda pair: pair[0]
    )
    return pairs.map(lambda each: descriptor(code) + encode_map(each) if each else b"")


TEXT, SYMBOL, TIME = "string", "symbol", "timestamp"
HEADER_TYPES = ("boolean", "ubyte", "uint", "boolean", "uint")
PROPERTY_TYPES = (
    *(TEXT, "binary", TEXT, TEXT, TEXT, TEXT, SYMBOL, SYMBOL, TIME, TIME, TEXT, "uint", TEXT),
)
DATA = st.binary(max_size=9) | TEXTS.map(str.encode)
SEQUENCES = st.lists(ENCODED_SCALARS, max_size=3).map(encode_list)
BODIES = (
    st.just(b"")
    | st.lists(DATA, min_size=1, max_size=3).map(
        lambda parts: b"".join(descriptor(part.DATA) + encode_binary(each) for each in parts)
    )
    | ENCODED_SCALARS.map(lambda raw: descriptor(part.AMQP_VALUE) + raw)
    | st.lists(SEQUENCES, min_size=1, max_size=3).map(
        lambda parts: b"".join(descriptor(part.AMQP_SEQUENCE) + each for each in parts)
    )
)
FIELDS_OF = {
    code: [st.just(NULL) | SCALARS[kind].map(encode) | ENCODED_SCALARS for kind in kinds]
    for code, kinds in ((part.HEADER, HEADER_TYPES), (part.PROPERTIES, PROPERTY_TYPES))
}
MAPS = {
    part.DELIVERY_ANNOTATIONS: map_section(part.DELIVERY_ANNOTATIONS, SYMBOLS),
    part.MESSAGE_ANNOTATIONS: map_section(
        part.MESSAGE_ANNOTATIONS, NAMED | SYMBOLS | SCALARS["ulong"]
    ),
    part.APPLICATION_PROPERTIES: map_section(part.APPLICATION_PROPERTIES, TEXTS),
    part.FOOTER: map_section(part.FOOTER, SYMBOLS),
}


@st.composite
def messages(draw: st.DrawFn) -> RemoteMessage:
    """Return messages of every kind; a field has its own type, or another, or is null."""

    def listed(code: int) -> bytes:
        count = draw(st.integers(0, len(FIELDS_OF[code])))
        return trimmed(code, [draw(each) for each in FIELDS_OF[code][:count]])

    return RemoteMessage(
        header=listed(part.HEADER),
        delivery_annotations=draw(MAPS[part.DELIVERY_ANNOTATIONS]),
        annotations=draw(MAPS[part.MESSAGE_ANNOTATIONS]),
        properties=listed(part.PROPERTIES),
        application_properties=draw(MAPS[part.APPLICATION_PROPERTIES]),
        body=draw(BODIES),
        footer=draw(MAPS[part.FOOTER]),
    )


def without_order(message: RemoteMessage) -> tuple[object, ...]:
    """Return the sections, the annotations as a set of pairs."""
    raw = message.annotations
    pairs = split_sections(raw).pairs(part.MESSAGE_ANNOTATIONS) if raw else []
    annotations = {(raw[slice(*key)], raw[slice(*value)]) for key, value in pairs}
    return (
        message.header,
        message.delivery_annotations,
        frozenset(annotations),
        message.properties,
        message.application_properties,
        message.body,
        message.footer,
    )


@settings(max_examples=examples(200), deadline=None)
@given(message=messages())
def test_every_message_is_the_same_behind_its_line(message: RemoteMessage) -> None:
    """Each section, with the types of all values; only the order of annotations is not kept."""
    found = message_of(line_of(message), now_ms=NOW_MS, is_sent=False)
    assert without_order(found) == without_order(message)


@settings(max_examples=examples(60), deadline=None)
@given(message=messages())
def test_what_the_service_sets_is_not_sent_again(message: RemoteMessage) -> None:
    """A received message's line can be sent: without its number, times, lock and counts."""
    found = message_of(line_of(message), now_ms=NOW_MS)
    assert not SERVICE_FIELDS & fields_of(found).keys()
    assert found.application_properties == message.application_properties
    assert found.body == message.body
    assert found.properties == message.properties


def test_a_line_of_a_received_message_is_as_the_page_shows_it() -> None:
    """Fields with types of their own stand bare."""
    message = RemoteMessage(
        header=descriptor(part.HEADER)
        + encode_list([encode(True), NULL, encode(scalars.Uint(3_600_000)), NULL, b"\x43"]),
        annotations=descriptor(part.MESSAGE_ANNOTATIONS)
        + encode(
            {
                scalars.Symbol("x-opt-sequence-number"): 7,
                scalars.Symbol("x-opt-enqueued-time"): scalars.Timestamp(NOW_MS),
                scalars.Symbol("x-opt-message-state"): scalars.Int(1),
                scalars.Symbol("tenant"): "a",
            }
        ),
        properties=descriptor(part.PROPERTIES)
        + encode(["m1", None, None, "order", None, None, scalars.Symbol("application/json")]),
        application_properties=descriptor(part.APPLICATION_PROPERTIES)
        + encode({"color": "red", "count": scalars.Int(3), "total": 2**40, "ok": True}),
        body=descriptor(part.DATA) + encode(b'{"a": 1}'),
    )
    assert fields_of(message) == {
        "sequence_number": 7,
        "enqueued_time": "2026-11-27T00:00:00.000Z",
        "state": "deferred",
        "message_id": "m1",
        "subject": "order",
        "content_type": "application/json",
        "durable": True,
        "time_to_live": "PT1H",
        "delivery_count": 0,
        "application_properties": {
            "color": "red",
            "count": 3,
            "total": {"long": 2**40},
            "ok": True,
        },
        "body": '{"a": 1}',
        "annotations": {"tenant": "a"},
    }


def test_a_line_needs_no_more_than_a_body() -> None:
    """Or nothing at all."""
    assert fields_of(message_of('{"body": "hello"}', now_ms=NOW_MS)) == {"body": "hello"}
    assert message_of("{}", now_ms=NOW_MS) == RemoteMessage()


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"json": {"a": [1, 2.5]}}, '{"a":[1,2.5]}'),
        ({"data": "/w=="}, {"data": "/w=="}),
        ({"data": "aGk="}, "hi"),
        ({"data": ["aGk=", "/w=="]}, {"data": ["aGk=", "/w=="]}),
        ({"value": {"map": {"a": {"long": 1}}}}, {"value": {"map": {"a": {"long": 1}}}}),
        ({"sequence": [[1, 2], []]}, {"sequence": [[1, 2], []]}),
    ],
)
def test_a_body_has_every_form_of_amqp(body: object, shown: object) -> None:
    """Data, value and sequences; JSON is data."""
    line = json.dumps({"body": body})
    assert fields_of(message_of(line, now_ms=NOW_MS)) == {"body": shown}


def test_bytes_that_are_no_message_are_in_the_line_as_they_came() -> None:
    """Who completes such a message has them; they are not sent on as an empty message."""
    spoilt = RemoteMessage(unread=b"\xff\x00")
    assert fields_of(spoilt) == {"unread": "/wA="}
    assert message_of(line_of(spoilt), now_ms=NOW_MS, is_sent=False) == spoilt
    with pytest.raises(ValueRefused, match="unread: these bytes are no message"):
        message_of(line_of(spoilt), now_ms=NOW_MS)


def test_annotations_are_shown_however_many_there_are() -> None:
    """More than are taken apart, too: one such message does not end a listing."""
    many = {f"k{at}": None for at in range(1_500)}
    sent = RemoteMessage.of(annotations=many | {"x-opt-sequence-number": 7})
    found = fields_of(RemoteMessage.read(sent.encode()))
    assert found["sequence_number"] == 7
    assert len(found["annotations"]) == 1_500


def test_a_time_to_live_is_a_duration_or_milliseconds() -> None:
    """Above 49 days it is sent as two times, as the SDKs do: the header has 32 bits."""
    for ttl in ('"PT5M"', "300000"):
        line = f'{{"time_to_live": {ttl}}}'
        assert fields_of(message_of(line, now_ms=NOW_MS)) == {"time_to_live": "PT5M"}
    found = fields_of(message_of('{"time_to_live": "P60D"}', now_ms=NOW_MS))
    assert found == {
        "creation_time": "2026-11-27T00:00:00.000Z",
        "absolute_expiry_time": "2027-01-26T00:00:00.000Z",
        "time_to_live": "P49DT17H2M47.295S",
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "no JSON: Expecting property name"),
        ("[1]", "[1] is no message: it is an object"),
        ('"text"', '"text" is no message'),
        ('{"body": 5}', "body: 5 is no body: it is a text, or an object"),
        ('{"body": {"text": "a"}}', "is no body"),
        ('{"body": "a", "body": "b"}', "the name 'body' stands twice"),
        ('{"message_ID": "a"}', "no field 'message_ID'; did you mean message_id?"),
        ('{"color": "red"}', "Your own go into application_properties"),
        ('{"message_id": 5}', "message_id: 5 is no string: it is a text in quotes"),
        ('{"priority": 300}', "priority: 300 is no ubyte, a whole number from 0 to 255"),
        ('{"application_properties": {"n": NaN}}', 'write {"double": "NaN"}'),
        ('{"application_properties": {"n": 1e999}}', "is beyond a double"),
        (
            '{"application_properties": {"n": {"long": "x"}}}',
            'application_properties.n: "x" is no long',
        ),
        ('{"application_properties": 5}', "application_properties: 5 is no object"),
        ('{"scheduled_enqueue_time": "2026-11-27T09:00"}', "scheduled_enqueue_time: "),
        ('{"time_to_live": "1h"}', 'time_to_live: "1h" is no uint'),
        ('{"time_to_live": "P1Y"}', "time_to_live: 'P1Y' is not an ISO 8601 duration"),
        ('{"time_to_live": "P60D", "creation_time": 0}', "time_to_live: above 49 days"),
        ('{"annotations": {"x-opt-partition-key": "a"}, "partition_key": "b"}', "stands there twi"),
        ('{"body": "\\ud800"}', "body: "),
        ("[" * 100_000, "nests too deeply"),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_its_field(line: str, why: str) -> None:
    """So that it can be found in a file of a million lines."""
    with pytest.raises(ValueRefused) as refused:
        message_of(line, now_ms=NOW_MS)
    assert why in str(refused.value)


def test_a_scheduled_message_has_its_time_once() -> None:
    """Whatever it had before, with its other annotations."""
    message = message_of(
        '{"scheduled_enqueue_time": 5, "partition_key": "a", "annotations": {"x": 1}}',
        now_ms=NOW_MS,
    )
    assert fields_of(scheduled(message, NOW_MS)) == {
        "scheduled_enqueue_time": "2026-11-27T00:00:00.000Z",
        "partition_key": "a",
        "annotations": {"x": 1},
    }
    assert fields_of(scheduled(RemoteMessage(), 0)).keys() == {"scheduled_enqueue_time"}


def test_a_dead_letter_that_is_sent_again_is_not_dead() -> None:
    """Why it died stays out; in a line that is no received message's, a property is a property."""
    properties = {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "why", "color": "red"}
    line = json.dumps({"sequence_number": 7, "application_properties": properties})
    found = fields_of(message_of(line, now_ms=NOW_MS))
    assert found == {"application_properties": {"color": "red"}}
    pairs = json.dumps({"sequence_number": 7, "application_properties": [*properties.items()]})
    assert fields_of(message_of(pairs, now_ms=NOW_MS)) == found
    own = json.dumps({"application_properties": properties})
    assert fields_of(message_of(own, now_ms=NOW_MS)) == json.loads(own)
    kept = fields_of(message_of(line, now_ms=NOW_MS, is_sent=False))
    assert kept["application_properties"] == properties


def test_the_end_of_a_sessions_lock_can_be_read_as_a_time() -> None:
    """It is a millisecond behind what ISO 8601 can write."""
    line = '{"locked_until": 253402300800000}'
    message = message_of(line, now_ms=NOW_MS, is_sent=False)
    assert fields_of(message)["locked_until"] == "9999-12-31T23:59:59.999Z"
