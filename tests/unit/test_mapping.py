"""AMQP 1.0 message <-> record in RabbitMQ."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus._pyamqp._decode import decode_payload
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.decimals import made
from bridge.model.duration import MAX_MS, TIME_MAX_MS, TIME_MIN_MS
from bridge.model.errors import ArgumentOutOfRange, NotAllowed
from bridge.wire import headers
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.message import decode_message
from bridge.wire.amqp10.primitives import (
    encode_binary,
    encode_list,
    encode_long,
    encode_map,
    encode_string,
    encode_symbol,
    encode_timestamp,
    encode_uint,
)
from bridge.wire.basic import FieldValue, Properties, Table
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import (
    AMQP_ENCODED,
    FROM_AMQP,
    MappingError,
    compound_items,
    skip_value,
)
from bridge.wire.mapping.inward import properties_from_map, record_from_message
from bridge.wire.mapping.outward import (
    MESSAGE_STATE_DEFERRED,
    merge_properties,
    message_from_record,
    without_body,
)
from bridge.wire.native import clean
from bridge.wire.record import Record

NULL = b"\x40"


def section(code: int, value: bytes) -> bytes:
    """An encoded section."""
    return bytes((0, 0x53, code)) + value


def data(body: bytes) -> bytes:
    """An encoded Data section."""
    return section(part.DATA, encode_binary(body))


def long_symbol(text: bytes) -> bytes:
    """A symbol with a length of four bytes, which any symbol may have."""
    return b"\xb3" + len(text).to_bytes(4, "big") + text


fixed = {
    1: st.binary(min_size=1, max_size=1),
    2: st.binary(min_size=2, max_size=2),
    4: st.binary(min_size=4, max_size=4),
    8: st.binary(min_size=8, max_size=8),
    16: st.binary(min_size=16, max_size=16),
}


def of_width(code: int, width: int) -> st.SearchStrategy[bytes]:
    """Values of a fixed-width constructor."""
    return fixed[width].map(lambda raw: bytes((code,)) + raw)


texts = st.text(max_size=300).map(lambda text: encode_string(text.encode()))
keys = st.text(max_size=128).map(lambda text: encode_string(text.encode()))
binaries = st.binary(max_size=300).map(encode_binary)
simple_values = st.one_of(
    st.sampled_from([b"\x40", b"\x41", b"\x42", b"\x43", b"\x44", b"\x45"]),
    st.sampled_from([b"\x56\x00", b"\x56\x01"]),
    *(of_width(code, 1) for code in (0x50, 0x51, 0x52, 0x53, 0x54, 0x55)),
    *(of_width(code, 2) for code in (0x60, 0x61)),
    *(of_width(code, 4) for code in (0x70, 0x71)),
    st.integers(32, 126).map(lambda point: b"\x73" + struct.pack(">I", point)),
    st.floats(width=32, allow_nan=False).map(lambda value: b"\x72" + struct.pack(">f", value)),
    st.floats(allow_nan=False).map(lambda value: b"\x82" + struct.pack(">d", value)),
    *(of_width(code, 8) for code in (0x80, 0x81)),
    st.integers(-(2**40), 2**43).map(encode_timestamp),
    of_width(0x98, 16),
    st.builds(made, st.integers(0, 1), st.integers(0, 2**96 - 1), st.integers(-28, 0)).map(
        encode_decimal
    ),
    binaries,
    texts,
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60).map(
        lambda text: encode_symbol(text.encode())
    ),
)
values = st.one_of(
    simple_values,
    st.lists(simple_values, max_size=3).map(encode_list),
    simple_values.map(lambda raw: b"\x00" + encode_symbol(b"com.microsoft:timespan") + raw),
)
names = st.one_of(
    st.text(min_size=1, max_size=20),
    st.sampled_from(
        ["x-death", "CC", "x-opt-sequence-number", "x-busbridge-id", "x-opt-mine", "n" * 300]
    ),
)


def through_rabbitmq(record: Record) -> Record:
    """The record as it is after a stay in RabbitMQ."""
    return Record(Properties.decode(record.properties.encode()), record.body)


def out(record: Record, **extra: object) -> part.Sections:
    """The sections that a client gets."""
    arguments = {"sequence_number": 7, "enqueued_ms": 1_000} | extra
    return part.split_sections(message_from_record(record, **arguments))  # type: ignore[arg-type]


def round_trip(raw: bytes, **extra: object) -> part.Sections:
    """The sections that a client gets for what a client sent."""
    record = record_from_message(raw, new_message_id="new-id").record
    return out(through_rabbitmq(record), **extra)


def items_of(found: part.Sections, code: int) -> list[bytes]:
    """The encoded items of a section's list or map."""
    return [found.raw[a:b] for a, b in compound_items(found.raw, found.at[code][1])]


def same_value(left: bytes, right: bytes) -> bool:
    """Whether two encodings have the same type and value; widths may differ (smalluint, uint)."""
    if left == right:
        return True
    if left[0] not in FROM_AMQP or right[0] not in FROM_AMQP:
        return False
    (left_type, *_, left_read), (right_type, *_, right_read) = (
        FROM_AMQP[left[0]],
        FROM_AMQP[right[0]],
    )
    widths = {0xA0: 2, 0xA1: 2, 0xA3: 2, 0xB0: 5, 0xB1: 5, 0xB3: 5}
    return left_type == right_type and left_read(left[widths.get(left[0], 1) :]) == right_read(
        right[widths.get(right[0], 1) :]
    )


@given(st.dictionaries(names, values, max_size=8))
def test_every_type_of_application_property_comes_back_unchanged(wanted: dict[str, bytes]) -> None:
    """Each property that AMQP 1.0 can express is the same on the way out."""
    pairs = [(encode_string(name.encode()), value) for name, value in wanted.items()]
    found = round_trip(section(part.APPLICATION_PROPERTIES, encode_map(pairs)) + data(b"x"))

    items = items_of(found, part.APPLICATION_PROPERTIES) if pairs else []
    got = dict(zip(items[::2], items[1::2], strict=True))

    assert got.keys() == {name for name, _ in pairs}
    for name, value in pairs:
        assert same_value(got[name], value), name


@given(st.one_of(of_width(0x80, 8), of_width(0x98, 16), binaries, keys))
def test_a_message_id_of_any_type_comes_back_unchanged(message_id: bytes) -> None:
    """AMQP 1.0 allows ulong, uuid, binary and string as message-id."""
    found = round_trip(section(part.PROPERTIES, encode_list([message_id])) + data(b"x"))

    assert same_value(items_of(found, part.PROPERTIES)[0], message_id)


@pytest.mark.parametrize("at", [0, 10, 12], ids=["message-id", "group-id", "reply-to-group-id"])
def test_an_id_takes_128_characters_at_most(at: int) -> None:
    """Service Bus counts characters, not bytes, and refuses what has more."""
    fields = [NULL] * 13

    def of(value: str) -> bytes:
        fields[at] = encode_string(value.encode())
        return section(part.PROPERTIES, encode_list(fields)) + data(b"x")

    longest = "ä" * 128
    assert items_of(round_trip(of(longest)), part.PROPERTIES)[at] == encode_string(longest.encode())
    with pytest.raises(ArgumentOutOfRange, match="has 129 characters; Service Bus takes 128"):
        record_from_message(of("x" * 129), new_message_id="m")


def test_a_partition_key_takes_128_characters_at_most() -> None:
    """It is a message annotation, and has the same limit."""

    def of(value: str) -> bytes:
        pair = encode_symbol(b"x-opt-partition-key"), encode_string(value.encode())
        return section(part.MESSAGE_ANNOTATIONS, encode_map([pair])) + data(b"x")

    assert b"k" * 128 in out(record_from_message(of("k" * 128), new_message_id="m").record).raw
    with pytest.raises(ArgumentOutOfRange, match="'x-opt-partition-key' has 129"):
        record_from_message(of("k" * 129), new_message_id="m")


def test_a_partition_key_beside_an_empty_session_id_is_accepted() -> None:
    """An empty session id is none (Azure's JavaScript live tests send both)."""
    pair = encode_symbol(b"x-opt-partition-key"), encode_string(b"k")
    raw = section(part.MESSAGE_ANNOTATIONS, encode_map([pair]))
    raw += section(part.PROPERTIES, encode_list([NULL] * 10 + [encode_string(b"")])) + data(b"x")
    assert b"k" in out(record_from_message(raw, new_message_id="m").record).raw


@pytest.mark.parametrize(("key", "is_taken"), [("one", True), (None, True), ("other", False)])
def test_a_partition_key_beside_a_session_id_equals_it(key: str | None, is_taken: bool) -> None:
    """Another one is refused: the session id is what chooses the partition."""
    raw = b""
    if key is not None:
        pair = encode_symbol(b"x-opt-partition-key"), encode_string(key.encode())
        raw = section(part.MESSAGE_ANNOTATIONS, encode_map([pair]))
    raw += section(part.PROPERTIES, encode_list([b"\x40"] * 10 + [encode_string(b"one")]))

    if is_taken:
        assert record_from_message(raw + data(b"x"), new_message_id="m").session_id == "one"
        return
    with pytest.raises(NotAllowed, match=r"PartitionKey:other .* SessionId:one"):
        record_from_message(raw + data(b"x"), new_message_id="m")


def test_all_properties_come_back_unchanged() -> None:
    """Each field of the properties section has a place in RabbitMQ."""
    fields = [
        encode_string(b"id"),
        encode_binary(b"\x00\xff"),
        encode_string(b"to"),
        encode_string(b"subject"),
        encode_string(b"reply"),
        encode_string(b"correlation"),
        encode_symbol(b"text/plain"),
        encode_symbol(b"gzip"),
        encode_timestamp(1_700_000_000_123),
        encode_timestamp(1_600_000_000_456),
        encode_string(b"session"),
        encode_uint(7),
        encode_string(b"reply-session"),
    ]
    found = round_trip(section(part.PROPERTIES, encode_list(fields)) + data(b"x"))

    assert items_of(found, part.PROPERTIES) == fields
    assert headers.SECTIONS.encode() not in found.raw


@pytest.mark.parametrize(
    "body",
    [
        b"",
        data(b""),
        data(b"a" * 1000),
        data(b"one") + data(b"two"),
        section(part.AMQP_VALUE, encode_string(b"text")),
        section(part.AMQP_VALUE, b"\x98" + bytes(range(16))),
        section(part.AMQP_VALUE, NULL),
        section(part.AMQP_SEQUENCE, encode_list([NULL, encode_uint(1)]))
        + section(part.AMQP_SEQUENCE, b"\x45"),
    ],
)
def test_every_kind_of_body_comes_back_unchanged(body: bytes) -> None:
    """Data, several Data, value and sequence bodies survive to the byte."""
    assert round_trip(body).body_sections() == body


def test_a_single_data_section_is_the_native_body() -> None:
    """A native consumer reads the bytes that the SDK's user gave."""
    record = record_from_message(data(b"hello"), new_message_id="m").record

    assert record.body == b"hello"
    assert headers.BODY not in (record.properties.headers or {})


def test_a_message_without_id_gets_one() -> None:
    """The JavaScript SDK sends none and cannot settle without."""
    plain = record_from_message(data(b"x"), new_message_id="given").record
    odd = section(part.PROPERTIES, encode_list([NULL, NULL, NULL, NULL, NULL, b"\x98" + bytes(16)]))

    assert plain.properties.message_id == "given"
    assert items_of(round_trip(odd + data(b"x")), part.PROPERTIES)[0] == encode_string(b"new-id")


def test_names_that_mean_something_to_rabbitmq_never_become_headers() -> None:
    """A client cannot forge a number, a death or a routing key; its property survives."""
    pairs = [(encode_string(name), encode_string(b"v")) for name in (b"CC", b"x-death", b"x-opt-a")]
    record = record_from_message(
        section(part.APPLICATION_PROPERTIES, encode_map(pairs)), new_message_id="m"
    ).record

    assert set(record.properties.headers or {}) == {headers.SECTIONS, headers.BODY}


def test_a_ttl_beyond_a_uint_is_read_from_the_two_times_and_written_to_them() -> None:
    """Header.ttl ends at 49.7 days; longer ones are the difference of expiry and creation time."""
    year_ms = 365 * 86_400_000
    header = section(part.HEADER, encode_list([NULL, NULL, encode_uint(2**32 - 1)]))
    times = [NULL] * 8 + [encode_timestamp(5_000 + year_ms), encode_timestamp(5_000)]
    raw = header + section(part.PROPERTIES, encode_list(times)) + data(b"x")
    record = record_from_message(raw, new_message_id="m").record
    found = out(record, enqueued_ms=9_000, time_to_live_ms=year_ms)

    assert (record.properties.headers or {})[headers.TIME_TO_LIVE] == ("l", year_ms)
    assert items_of(found, part.HEADER)[2] == encode_uint(2**32 - 1)
    assert items_of(found, part.PROPERTIES)[8:10] == [
        encode_timestamp(9_000 + year_ms),
        encode_timestamp(9_000),
    ]


@pytest.mark.parametrize("message_id", [encode_string(b"m"), b"\x98" + bytes(16)])
def test_with_a_ttl_the_times_are_the_service_s(message_id: bytes) -> None:
    """.NET and JavaScript reckon TimeToLive and ExpiresAt from them.

    The sender said ten days, the entity allows a minute; also of what is stored as sections.
    """
    ten_days_ms = 10 * 86_400_000
    times = [encode_timestamp(5_000 + ten_days_ms), encode_timestamp(5_000)]
    header = section(part.HEADER, encode_list([NULL, NULL, encode_uint(ten_days_ms)]))
    said = section(part.PROPERTIES, encode_list([message_id] + [NULL] * 7 + times)) + data(b"x")
    found = round_trip(header + said, enqueued_ms=9_000, time_to_live_ms=60_000)

    assert items_of(found, part.HEADER)[2] == encode_uint(60_000)
    assert items_of(found, part.PROPERTIES) == [
        message_id,
        *[NULL] * 7,
        encode_timestamp(69_000),
        encode_timestamp(9_000),
    ]
    untimed = round_trip(said, enqueued_ms=9_000)
    assert items_of(untimed, part.PROPERTIES)[9] == times[1]


def test_stored_properties_without_times_have_them_with_a_ttl() -> None:
    """The entity's TTL alone shows too; without one nothing is added."""
    said = section(part.PROPERTIES, encode_list([b"\x98" + bytes(16)])) + data(b"x")
    found = round_trip(said, enqueued_ms=9_000, time_to_live_ms=60_000)
    assert items_of(found, part.PROPERTIES)[8:] == [
        encode_timestamp(69_000),
        encode_timestamp(9_000),
    ]
    assert items_of(round_trip(said), part.PROPERTIES) == [b"\x98" + bytes(16)]


def test_the_timestamp_of_a_native_message_without_ttl_is_its_creation_time() -> None:
    """With a TTL it is the enqueued time, as a client's is."""
    record = Record(Properties(message_id="m", timestamp=7), b"x")
    assert items_of(out(record), part.PROPERTIES)[8:] == [NULL, encode_timestamp(7_000)]
    timed = out(record, time_to_live_ms=5)
    assert items_of(timed, part.PROPERTIES)[8:] == [
        encode_timestamp(1_005),
        encode_timestamp(1_000),
    ]


def test_the_scheduled_time_is_read_and_comes_back() -> None:
    """`x-opt-scheduled-enqueue-time` says when, and stays on the delivered message."""
    key = encode_symbol(b"x-opt-scheduled-enqueue-time")
    raw = section(part.MESSAGE_ANNOTATIONS, encode_map([(key, encode_timestamp(1_234_567))]))
    inward = record_from_message(raw + data(b"x"), new_message_id="m")

    assert inward.scheduled_ms == 1_234_567
    assert key + encode_timestamp(1_234_567) in out(inward.record).raw


def test_a_received_message_says_no_more_than_azure_does() -> None:
    """Azure's own tests count: no state while it is active, delivery annotations even if empty."""
    record = Record(Properties(headers={}), b"body")
    active = decode_payload(
        memoryview(message_from_record(record, sequence_number=1, enqueued_ms=1))
    )
    assert set(active.message_annotations) == {b"x-opt-sequence-number", b"x-opt-enqueued-time"}
    assert active.delivery_annotations == {}
    raw = message_from_record(
        record, sequence_number=1, enqueued_ms=1, state=MESSAGE_STATE_DEFERRED
    )
    assert decode_payload(memoryview(raw)).message_annotations[b"x-opt-message-state"] == 1


def test_the_sdk_reads_what_is_written() -> None:
    """The Python SDK's own decoder finds number, times, counts and properties where it looks."""
    record = Record(
        Properties(message_id="m", type="label", headers={"color": ("S", b"red")}), b"body"
    )
    raw = message_from_record(
        record,
        sequence_number=42,
        enqueued_ms=1_000,
        delivery_count=3,
        locked_until_ms=2_000,
        time_to_live_ms=60_000,
        dead_letter=("why", "how"),
    )
    message = decode_payload(memoryview(raw))

    assert message.message_annotations[b"x-opt-sequence-number"] == 42
    assert message.message_annotations[b"x-opt-locked-until"] == 2_000
    assert (message.header.ttl, message.header.delivery_count) == (60_000, 3)
    assert message.properties.message_id == b"m"
    assert message.properties.subject == b"label"
    assert message.application_properties == {
        b"color": b"red",
        b"DeadLetterReason": b"why",
        b"DeadLetterErrorDescription": b"how",
    }
    assert b"".join(message.data) == b"body"


@pytest.mark.parametrize(("count", "told"), [(2**31 - 2, 2**31 - 2), (2**31 - 1, 2**31 - 2)])
def test_a_delivery_count_leaves_room_for_one_more(count: int, told: int) -> None:
    """.NET shows it as an int, one higher.

    A dead letter that RabbitMQ has made shows the MaxDeliveryCount of today, which may be the
    largest int.
    """
    record = Record(Properties(), b"body")
    raw = message_from_record(record, sequence_number=1, enqueued_ms=1, delivery_count=count)

    assert decode_payload(memoryview(raw)).header.delivery_count == told


def test_a_native_message_may_say_anything_in_the_bridge_s_own_headers() -> None:
    """Past the front door nobody takes them off: each can be shown to a client, at its ends too."""
    fields: list[FieldValue] = [
        *(("l", number) for number in (-(2**63), 2**63 - 1)),
        *(("T", 2**64 - 1), ("t", True), ("V", None), ("d", -1e308), ("D", (255, 2**32 - 1))),
        *(("S", b"\xff"), ("x", b"\xff"), ("A", []), ("F", {"": ("A", [])})),
    ]
    for name in (value for key, value in vars(headers).items() if key.isupper()):
        for field in fields:
            if isinstance(name, str):
                assert out(Record(Properties(headers={name: field}), b"x")).raw


def test_a_header_table_or_array_is_text() -> None:
    """Application properties are of simple types: .NET throws for a map or a list among them."""
    inner: FieldValue = ("F", {"k\udcff": ("S", b"\xc3\xa4\xff"), "d": ("D", (2, 250))})
    fields: Table = {"a": ("A", [("l", 1), ("V", None), inner]), "f": ("F", {"t": ("t", True)})}
    found = out(Record(Properties(headers=fields), b"x"))
    message = decode_message(found.raw)

    texts = {str(name): json.loads(text) for name, text in message.application_properties.items()}
    assert texts == {"a": [1, None, {"k\ufffd": "\u00e4\ufffd", "d": 2.5}], "f": {"t": True}}


def test_what_a_native_message_says_where_a_type_is_due_has_that_type_or_is_left_out() -> None:
    """Strict clients, as .NET's, read nothing of a message with a group-sequence that is a long."""
    said: list[tuple[str, FieldValue, object]] = [
        (headers.GROUP_SEQUENCE, ("l", 5), 5),
        (headers.GROUP_SEQUENCE, ("S", b"5"), None),
        (headers.GROUP_SEQUENCE, ("l", -1), None),
        (headers.SESSION_ID, ("S", b"a\xff"), "a\ufffd"),
        (headers.SESSION_ID, ("l", 5), None),
        (headers.TO, ("F", {}), None),
    ]
    for name, field, shown in said:
        properties = decode_message(out(Record(Properties(headers={name: field}), b"x")).raw)
        found = properties.properties
        of_name = {headers.GROUP_SEQUENCE: found.group_sequence, headers.TO: found.to}
        assert of_name.get(name, found.group_id) == shown, (name, field)


def test_a_native_message_without_id_gets_its_number_as_id() -> None:
    """The same message shows the same id at every delivery."""
    found = out(Record(Properties(), b"x"), sequence_number=255)

    assert items_of(found, part.PROPERTIES)[0] == encode_string(b"0" * 30 + b"ff")


@given(st.dictionaries(names, values, max_size=4), st.dictionaries(names, values, max_size=4))
def test_merged_properties_replace_and_add(
    first: dict[str, bytes], second: dict[str, bytes]
) -> None:
    """Abandon and dead-letter merge properties of any type into the message; the rest stays."""
    pairs = [(encode_string(name.encode()), value) for name, value in first.items()]
    raw = section(part.APPLICATION_PROPERTIES, encode_map(pairs)) + data(b"x")
    record = record_from_message(raw, new_message_id="m").record
    changes = {name: (AMQP_ENCODED, value) for name, value in second.items()}
    found = out(through_rabbitmq(merge_properties(record, changes)))
    wanted = {encode_string(name.encode()): value for name, value in (first | second).items()}

    items = items_of(found, part.APPLICATION_PROPERTIES) if wanted else []
    got = dict(zip(items[::2], items[1::2], strict=True))

    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        assert same_value(got[name], value), name


def test_a_dispositions_properties_are_read_from_symbol_and_string_keys() -> None:
    """Python sends symbols, JavaScript strings."""
    raw = encode_map([(encode_symbol(b"a"), encode_uint(1)), (encode_string(b"b"), NULL)])

    assert properties_from_map(raw) == {
        "a": (AMQP_ENCODED, encode_uint(1)),
        "b": (AMQP_ENCODED, NULL),
    }


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else_happens(raw: bytes) -> None:
    """Any bytes are a message or a MappingError, never another exception."""
    try:
        found = record_from_message(raw, new_message_id="m")
    except MappingError:
        return
    through_rabbitmq(found.record)


@given(st.data())
def test_a_mutated_message_is_refused_or_read(choice: st.DataObject) -> None:
    """One changed byte in a real message is read or a MappingError, nothing else."""
    pairs = [(encode_string(b"n"), encode_uint(9)), (encode_string(b"u"), b"\x98" + bytes(16))]
    raw = bytearray(
        section(part.PROPERTIES, encode_list([encode_string(b"id"), NULL, encode_string(b"to")]))
        + section(part.APPLICATION_PROPERTIES, encode_map(pairs))
        + data(b"body")
    )
    raw[choice.draw(st.integers(0, len(raw) - 1))] = choice.draw(st.integers(0, 255))
    try:
        record = record_from_message(bytes(raw), new_message_id="m").record
    except MappingError:
        return
    out(through_rabbitmq(record))


@pytest.mark.parametrize("code", [part.DELIVERY_ANNOTATIONS, part.FOOTER])
def test_footer_and_delivery_annotations_may_stand_anywhere(code: int) -> None:
    """The Python SDK writes delivery annotations last, the JavaScript SDK the footer first.

    Azure takes both (its JavaScript live test amqpAnnotatedMessage sends a footer).
    """
    moved = section(code, encode_map([(encode_symbol(b"a"), encode_uint(1))]))
    rest = [
        section(part.HEADER, encode_list([b"\x41"])),
        section(part.PROPERTIES, encode_list([encode_string(b"id")])),
        data(b"x"),
        data(b"y"),
    ]
    for place in range(len(rest) + 1):
        found = round_trip(b"".join([*rest[:place], moved, *rest[place:]]))
        assert found.body_sections() == data(b"x") + data(b"y")
        assert found.section(code) == moved
    with pytest.raises(MappingError, match="twice"):
        round_trip(moved + data(b"x") + moved)
    with pytest.raises(MappingError, match="wrong place"):
        round_trip(rest[2] + moved + rest[1])


@pytest.mark.parametrize("durable", [b"\x41", b"\x42", NULL])
@pytest.mark.parametrize("first_acquirer", [b"\x41", b"\x42", NULL])
@pytest.mark.parametrize("priority", [b"\x50\x04", b"\x50\x14", NULL])
def test_the_header_comes_back_as_sent(
    durable: bytes, first_acquirer: bytes, priority: bytes
) -> None:
    """Service Bus adds nothing where the sender said nothing.

    `durable: false` and `first-acquirer: false` are in Azure's JavaScript live test
    amqpAnnotatedMessage; that an absent durable stays absent, its Python test
    message_backcompat_peek_lock_databody counts.
    """
    sent = encode_list([durable, priority, NULL, first_acquirer])
    items = items_of(round_trip(section(part.HEADER, sent) + data(b"x")), part.HEADER)
    assert items[:4] == [durable, priority, NULL, first_acquirer]
    assert items_of(round_trip(data(b"x")), part.HEADER)[:4] == [NULL] * 4


@pytest.mark.parametrize(
    "body", [data(b"xyz"), data(b"") + data(b"a"), section(part.AMQP_VALUE, encode_string(b"v"))]
)
def test_a_peek_without_bodies_tells_their_size(body: bytes) -> None:
    """All else is there (Azure's JavaScript live test omitMessageBody)."""
    sent = (
        section(part.DELIVERY_ANNOTATIONS, encode_map([(encode_symbol(b"mine"), NULL)]))
        + section(part.PROPERTIES, encode_list([encode_string(b"id")]))
        + section(part.APPLICATION_PROPERTIES, encode_map([(encode_string(b"a"), NULL)]))
        + body
        + section(part.FOOTER, encode_map([(encode_symbol(b"f"), NULL)]))
    )
    record = record_from_message(sent, new_message_id="m").record
    whole = message_from_record(record, sequence_number=1, enqueued_ms=2)
    bare = part.split_sections(without_body(whole, len(record.body)))
    assert not bare.body
    before = part.split_sections(whole)
    assert bare.at.keys() == before.at.keys()
    for code in before.at.keys() - {part.DELIVERY_ANNOTATIONS}:
        assert bare.section(code) == before.section(code)
    assert items_of(bare, part.DELIVERY_ANNOTATIONS) == [
        encode_symbol(b"mine"),
        NULL,
        encode_symbol(b"omitted-message-body-size"),
        encode_long(len(record.body)),
    ]


def test_a_message_sent_again_as_received_leaves_nothing_of_its_source() -> None:
    """Of the source's annotations natives read none, neither in headers nor in exact sections.

    A client that forwards sends the raw message, service's annotations and lock token included.
    """
    token = UUID(int=5)
    mine = (encode_symbol(b"mine"), encode_list([NULL]))
    first = record_from_message(
        section(part.DELIVERY_ANNOTATIONS, encode_map([mine]))
        + section(part.MESSAGE_ANNOTATIONS, encode_map([mine]))
        + data(b"x"),
        new_message_id="m",
    ).record
    (first.properties.headers or {})[headers.DEAD_LETTER_SOURCE] = ("S", b"source")
    (first.properties.headers or {})[headers.ENQUEUED_SEQUENCE_NUMBER] = ("l", 3)
    received = message_from_record(
        through_rabbitmq(first),
        sequence_number=7,
        enqueued_ms=1,
        locked_until_ms=2,
        state=MESSAGE_STATE_DEFERRED,
        lock_token=token,
    )
    again = record_from_message(received, new_message_id="n").record
    table = again.properties.headers or {}
    assert set(table) == {headers.SECTIONS}
    (_, exact) = table[headers.SECTIONS]
    assert exact == section(part.DELIVERY_ANNOTATIONS, encode_map([mine])) + section(
        part.MESSAGE_ANNOTATIONS, encode_map([mine])
    )

    plain = message_from_record(
        Record(Properties(), b"x"), sequence_number=7, enqueued_ms=1, lock_token=token
    )
    assert record_from_message(plain, new_message_id="n").record.properties.headers == {}


@pytest.mark.parametrize("encode", [encode_symbol, encode_string, long_symbol])
def test_delivery_annotations_arrive_as_sent_behind_the_lock_token(encode: Any) -> None:
    """Of any type; but the token is the service's to say, however its name is written."""
    kept = [(encode(b"mine"), encode_uint(7)), (encode_symbol(b"list"), encode_list([NULL]))]
    forged = (encode(b"x-opt-lock-token"), b"\x98" + bytes(16))
    sent = section(part.DELIVERY_ANNOTATIONS, encode_map([*kept, forged]))
    record = record_from_message(sent + data(b"x"), new_message_id="m").record
    for changed in (record, merge_properties(record, {"a": ("S", b"b")})):
        stored = through_rabbitmq(changed)
        token = UUID(int=5)
        for lock_token, pairs in (
            (None, kept),
            (token, [(encode_symbol(b"x-opt-lock-token"), b"\x98" + token.bytes), *kept]),
        ):
            raw = message_from_record(
                stored, sequence_number=1, enqueued_ms=1, lock_token=lock_token
            )
            expected = section(part.DELIVERY_ANNOTATIONS, encode_map(pairs))
            assert part.split_sections(raw).section(part.DELIVERY_ANNOTATIONS) == expected
            assert decode_payload(memoryview(raw)).delivery_annotations is not None


def test_a_negative_time_to_live_is_none() -> None:
    """It is a uint; a client that writes a negative int does not stop the entity."""
    header = section(part.HEADER, encode_list([NULL, NULL, b"\x54\xff"]))
    record = record_from_message(header + data(b"x"), new_message_id="m").record

    assert headers.TIME_TO_LIVE not in (record.properties.headers or {})


@pytest.mark.parametrize(("creation_ms", "expiry_ms"), [(-(2**63), 2**63 - 1), (0, 2**63 - 1)])
def test_no_message_lives_longer_than_azures_longest_time_span(
    creation_ms: int, expiry_ms: int
) -> None:
    """Two times may lie so far apart that no field of RabbitMQ's holds the difference."""
    times = [NULL] * 8 + [encode_timestamp(expiry_ms), encode_timestamp(creation_ms)]
    raw = section(part.PROPERTIES, encode_list(times)) + data(b"x")
    record = through_rabbitmq(record_from_message(raw, new_message_id="m").record)

    assert (record.properties.headers or {})[headers.TIME_TO_LIVE] == ("l", MAX_MS)


@pytest.mark.parametrize("late", [encode_timestamp(2**63 - 1), b"\x81\x7f" + b"\xff" * 7])
def test_nothing_is_scheduled_beyond_the_year_9999(late: bytes) -> None:
    """Each further 68 years would be a queue more, and no SDK can read such a time."""
    key = encode_symbol(b"x-opt-scheduled-enqueue-time")
    raw = section(part.MESSAGE_ANNOTATIONS, encode_map([(key, late)])) + data(b"x")
    native = Properties(headers={headers.SCHEDULED_ENQUEUE_TIME: ("l", 2**63 - 1)})

    for found in (record_from_message(raw, new_message_id="m"), clean(native)):
        assert found.scheduled_ms == TIME_MAX_MS


@pytest.mark.parametrize("early_ms", [-(2**63), TIME_MIN_MS - 1])
def test_nothing_is_scheduled_before_the_year_1(early_ms: int) -> None:
    """No SDK can read such a time: a client is refused, a native publisher's becomes the first."""
    key = encode_symbol(b"x-opt-scheduled-enqueue-time")
    for encoded in (encode_timestamp(early_ms), encode_long(early_ms)):
        raw = section(part.MESSAGE_ANNOTATIONS, encode_map([(key, encoded)])) + data(b"x")
        with pytest.raises(ArgumentOutOfRange, match="before the year 1"):
            record_from_message(raw, new_message_id="m")

    native = clean(Properties(headers={headers.SCHEDULED_ENQUEUE_TIME: ("l", early_ms)}))
    assert native.scheduled_ms == TIME_MIN_MS


@pytest.mark.parametrize("first_ms", [TIME_MIN_MS, TIME_MAX_MS])
def test_the_first_and_the_last_time_that_clients_can_read(first_ms: int) -> None:
    """They are taken as they are; the first one is in the past, and means now."""
    key = encode_symbol(b"x-opt-scheduled-enqueue-time")
    raw = section(part.MESSAGE_ANNOTATIONS, encode_map([(key, encode_timestamp(first_ms))]))
    assert record_from_message(raw + data(b"x"), new_message_id="m").scheduled_ms == first_ms
    assert datetime.fromtimestamp(first_ms / 1000, UTC).year in (1, 9999)


@pytest.mark.parametrize("stored_ms", [-(2**63), 2**63 - 1])
def test_a_stored_time_is_shown_as_one_that_clients_can_read(stored_ms: int) -> None:
    """A receiver does not fail over the time, whichever client stored it."""
    field = ("l", stored_ms)
    record = Record(Properties(headers={headers.SCHEDULED_ENQUEUE_TIME: field}), b"x")
    first_or_last = {encode_timestamp(TIME_MIN_MS), encode_timestamp(TIME_MAX_MS)}
    assert any(each in out(record).raw for each in first_or_last)


@pytest.mark.parametrize("group_id", [b"\x54\x05", encode_binary(b"\xff"), b"\xa3\x01\xff"])
def test_a_group_id_that_is_no_string_is_refused(group_id: bytes) -> None:
    """A session id is a string; anything else is refused as a message, and ends no connection."""
    raw = section(part.PROPERTIES, encode_list([NULL] * 10 + [group_id])) + data(b"x")

    with pytest.raises(MappingError):
        record_from_message(raw, new_message_id="m")


@pytest.mark.parametrize("code", [part.MESSAGE_ANNOTATIONS, part.APPLICATION_PROPERTIES])
def test_a_list_where_a_map_belongs_is_refused(code: int) -> None:
    """This holds for lists of any contents."""
    for items in ([], [NULL], [encode_string(b"a"), NULL]):
        with pytest.raises(MappingError, match="is no map"):
            record_from_message(section(code, encode_list(items)) + data(b"x"), new_message_id="m")


def test_a_value_cut_short_is_refused() -> None:
    """A length that points beyond the end is named."""
    with pytest.raises(MappingError, match="cut short"):
        skip_value(b"\xa1\x05ab", 0)
