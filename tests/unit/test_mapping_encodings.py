"""One type in all its encodings, and what no receiver could read: checks see through the first."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from bridge.wire import headers
from bridge.wire.amqp10.message import batch_messages
from bridge.wire.amqp10.primitives import (
    encode_binary,
    encode_list,
    encode_map,
    encode_string,
    encode_symbol,
    encode_timestamp,
)
from bridge.wire.basic import Properties
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.fields import (
    MappingError,
    map_items,
    textual,
)
from bridge.wire.mapping.inward import record_from_message
from bridge.wire.mapping.names import SERVICE_ANNOTATIONS
from bridge.wire.mapping.outward import merge_properties, message_from_record
from bridge.wire.record import Record
from tests.unit.wire.amqp10 import hostile

NULL = b"\x40"
FORGED = encode_string(b"forged")


def short(code: int) -> Callable[[bytes], bytes]:
    """Return the encoder whose length is one octet."""
    return lambda text: bytes((code, len(text))) + text


def long(code: int) -> Callable[[bytes], bytes]:
    """Return the encoder whose length is four octets, legal for any length."""
    return lambda text: bytes((code,)) + len(text).to_bytes(4, "big") + text


KEYS = {
    "sym8": short(0xA3),
    "sym32": long(0xB3),
    "str8": short(0xA1),
    "str32": long(0xB1),
    "vbin8": short(0xA0),
    "vbin32": long(0xB0),
}

DESCRIPTORS: dict[str, Callable[[int], bytes]] = {
    "smallulong": lambda code: bytes((0x00, 0x53, code)),
    "ulong": lambda code: b"\x00\x80" + code.to_bytes(8, "big"),
    "sym8": lambda code: b"\x00" + short(0xA3)(SYMBOLS[code]),
    "sym32": lambda code: b"\x00" + long(0xB3)(SYMBOLS[code]),
}

SYMBOLS: dict[int, bytes] = {
    part.MESSAGE_ANNOTATIONS: b"amqp:message-annotations:map",
    part.PROPERTIES: b"amqp:properties:list",
    part.APPLICATION_PROPERTIES: b"amqp:application-properties:map",
    part.DATA: b"amqp:data:binary",
    part.AMQP_VALUE: b"amqp:amqp-value:*",
}

BODY = b"\x00\x53\x75" + encode_binary(b"body")


def section(code: int, value: bytes) -> bytes:
    """Return a section with its short descriptor."""
    return part.descriptor(code) + value


def stored(raw: bytes) -> Record:
    """Return what stands in RabbitMQ."""
    record = record_from_message(raw, new_message_id="m").record
    return Record(Properties.decode(record.properties.encode()), record.body)


def delivered(raw: bytes) -> part.Sections:
    """Return what a client gets."""
    return part.split_sections(
        message_from_record(stored(raw), sequence_number=7, enqueued_ms=1_000)
    )


def annotations(found: part.Sections, code: int = part.MESSAGE_ANNOTATIONS) -> list[bytes]:
    """Return the names of the annotations that a client sees."""
    if code not in found.at:
        return []
    return [textual(found.raw, *key) or b"" for key, _ in map_items(found.raw, found.at[code][1])]


@pytest.mark.parametrize("encoding", KEYS)
@pytest.mark.parametrize("code", [part.MESSAGE_ANNOTATIONS, part.DELIVERY_ANNOTATIONS])
def test_what_only_the_service_says(encoding: str, code: int) -> None:
    """A sender forges no number, lock or source, however long its key says that it is."""
    pairs = [(KEYS[encoding](name), FORGED) for name in sorted(SERVICE_ANNOTATIONS)]
    pairs.append((encode_symbol(b"mine"), FORGED))
    found = delivered(section(code, encode_map(pairs)) + BODY)

    assert found.raw.count(FORGED) == 1
    names = annotations(found, code)
    assert b"mine" in names
    assert len(names) == len(set(names))


@pytest.mark.parametrize("encoding", KEYS)
def test_scheduled_time(encoding: str) -> None:
    """A scheduled message is scheduled, however its key is encoded, and says so once."""
    pair = (KEYS[encoding](b"x-opt-scheduled-enqueue-time"), encode_timestamp(9_000))
    other = (encode_symbol(b"mine"), FORGED)
    raw = section(part.MESSAGE_ANNOTATIONS, encode_map([pair, other])) + BODY

    assert record_from_message(raw, new_message_id="m").scheduled_ms == 9_000
    assert annotations(delivered(raw)).count(b"x-opt-scheduled-enqueue-time") == 1


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        (NULL, None),
        (b"\x81" + (9_000).to_bytes(8, "big"), 9_000),
        (b"\x80" + (9_000).to_bytes(8, "big"), 9_000),
        (b"\x55\x09", 9),
    ],
)
def test_scheduled_time_as_a_number(value: bytes, expected_ms: int | None) -> None:
    """A time that came as a number is that time: SDKs write back so what they have read."""
    pair = (encode_symbol(b"x-opt-scheduled-enqueue-time"), value)
    raw = section(part.MESSAGE_ANNOTATIONS, encode_map([pair])) + BODY

    assert record_from_message(raw, new_message_id="m").scheduled_ms == expected_ms


@pytest.mark.parametrize("value", [encode_string(b"soon"), b"\x41", b"\x00\x43\x83" + bytes(8)])
def test_scheduled_time_that_is_none(value: bytes) -> None:
    """A message that is to be delivered later, one cannot say when, is not delivered at once."""
    pair = (encode_symbol(b"x-opt-scheduled-enqueue-time"), value)

    with pytest.raises(MappingError, match="is no time"):
        stored(section(part.MESSAGE_ANNOTATIONS, encode_map([pair])) + BODY)


@pytest.mark.parametrize("encoding", KEYS)
def test_partition_key(encoding: str) -> None:
    """A partition key is one in every encoding of its name."""
    pair = (KEYS[encoding](b"x-opt-partition-key"), encode_string(b"k"))
    record = stored(section(part.MESSAGE_ANNOTATIONS, encode_map([pair])) + BODY)

    assert (record.properties.headers or {})[headers.PARTITION_KEY] == ("S", b"k")


@pytest.mark.parametrize(
    "key",
    [
        b"\x00\x43" + encode_symbol(b"x-opt-sequence-number"),
        encode_list([]),
        encode_list([NULL]),
        NULL,
        b"\x71\x00\x00\x00\x05",
    ],
)
@pytest.mark.parametrize("code", [part.MESSAGE_ANNOTATIONS, part.DELIVERY_ANNOTATIONS, part.FOOTER])
def test_keys_of_annotations(code: int, key: bytes) -> None:
    """A key that is no symbol, and no ulong, is refused: the Python SDK reads past a descriptor."""
    annotated = section(code, encode_map([(key, FORGED)]))
    raw = BODY + annotated if code == part.FOOTER else annotated + BODY

    with pytest.raises(MappingError, match="key"):
        stored(raw)


@pytest.mark.parametrize("encoding", DESCRIPTORS)
def test_descriptors(encoding: str) -> None:
    """A section is known by every descriptor, and arrives with the one that every SDK reads."""
    describe = DESCRIPTORS[encoding]
    found = delivered(
        describe(part.MESSAGE_ANNOTATIONS)
        + encode_map([(encode_symbol(b"mine"), FORGED)])
        + describe(part.PROPERTIES)
        + encode_list([b"\x98" + bytes(16)])
        + describe(part.APPLICATION_PROPERTIES)
        + encode_map([(encode_string(b"a"), b"\x74" + bytes(4))])
        + describe(part.AMQP_VALUE)
        + encode_string(b"value")
    )

    assert b"mine" in annotations(found)
    for code in (part.PROPERTIES, part.APPLICATION_PROPERTIES):
        assert found.raw[found.at[code][0] :].startswith(part.descriptor(code))
    assert found.raw.endswith(section(part.AMQP_VALUE, encode_string(b"value")))


@pytest.mark.parametrize("encoding", DESCRIPTORS)
def test_descriptors_in_a_batch(encoding: str) -> None:
    """No message of a batch is dropped for the length of its descriptor."""
    raw = b"".join(
        DESCRIPTORS[encoding](part.DATA) + encode_binary(message) for message in (b"a", b"b")
    )

    assert list(batch_messages(raw)) == [b"a", b"b"]


def test_names_of_application_properties() -> None:
    """A settlement replaces a property that was sent under a longer form of its name."""
    pairs = [(long(0xB1)(b"a"), b"\x74" + bytes(4)), (encode_string(b"b"), NULL)]
    record = stored(section(part.APPLICATION_PROPERTIES, encode_map(pairs)) + BODY)
    merged = merge_properties(record, {"a": ("S", b"new")})
    found = part.split_sections(message_from_record(merged, sequence_number=7, enqueued_ms=1_000))

    assert sorted(annotations(found, part.APPLICATION_PROPERTIES)) == [b"a", b"b"]


def test_reason_of_a_dead_letter() -> None:
    """Why RabbitMQ has dead-lettered a message is said once, and by it."""
    pairs = [(long(0xB1)(b"DeadLetterReason"), FORGED), (encode_string(b"b"), b"\x74" + bytes(4))]
    record = stored(section(part.APPLICATION_PROPERTIES, encode_map(pairs)) + BODY)
    raw = message_from_record(
        record, sequence_number=7, enqueued_ms=1_000, dead_letter=("expired", "late")
    )
    names = annotations(part.split_sections(raw), part.APPLICATION_PROPERTIES)

    assert names.count(b"DeadLetterReason") == 1
    assert FORGED not in raw


UNREADABLE = {
    name: make(400)
    for name, make in hostile.SHAPES.items()
    if "beyond" in name or "claims" in name or "billion" in name
} | {
    "a key without a value": b"\xc1\x02\x01\x40",
    "a list as a key": b"\xc1\x05\x02\xc0\x01\x00\x40",
    "more bytes than elements": b"\xc0\x03\x01\x40\x40",
    "a boolean of 2": b"\x56\x02",
    "a surrogate": b"\x73\x00\x00\xd8\x00",
    "text that is no UTF-8": b"\xa1\x01\xff",
    "a symbol that is no ASCII": b"\xa3\x01\xff",
    "no constructor": b"\x01",
    "65 levels": hostile.nested_lists(65),
    "nothing": b"",
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda bad: section(part.AMQP_VALUE, bad), id="amqp-value"),
        pytest.param(
            lambda bad: section(part.AMQP_VALUE, encode_list([bad])), id="a list in amqp-value"
        ),
        pytest.param(
            lambda bad: section(part.AMQP_SEQUENCE, encode_list([NULL, bad])), id="amqp-sequence"
        ),
        pytest.param(
            lambda bad: (
                section(part.MESSAGE_ANNOTATIONS, encode_map([(encode_symbol(b"mine"), bad)]))
                + BODY
            ),
            id="annotation",
        ),
        pytest.param(
            lambda bad: (
                section(part.APPLICATION_PROPERTIES, encode_map([(encode_string(b"mine"), bad)]))
                + BODY
            ),
            id="application property",
        ),
        pytest.param(
            lambda bad: section(part.PROPERTIES, encode_list([bad])) + BODY, id="message id"
        ),
        pytest.param(
            lambda bad: BODY + section(part.FOOTER, encode_map([(encode_symbol(b"mine"), bad)])),
            id="footer",
        ),
    ],
)
def test_what_cannot_be_read_is_not_stored(name: str, wrap: Callable[[bytes], bytes]) -> None:
    """Stored, it would stop every receiver that comes to it, for ever."""
    with pytest.raises(MappingError):
        stored(wrap(UNREADABLE[name]))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(section(part.AMQP_SEQUENCE, encode_string(b"a")), id="a sequence of text"),
        pytest.param(section(part.DATA, encode_string(b"a")), id="data that is text"),
        pytest.param(section(part.PROPERTIES, encode_map([])) + BODY, id="properties in a map"),
        pytest.param(section(part.PROPERTIES, encode_list([NULL] * 14)) + BODY, id="14 properties"),
        pytest.param(
            section(part.PROPERTIES, encode_list([NULL, NULL, NULL, b"\x43"])) + BODY,
            id="a number as subject",
        ),
        pytest.param(
            section(part.HEADER, encode_list([NULL, encode_string(b"high")])) + BODY,
            id="a priority in words",
        ),
    ],
)
def test_section_of_another_form(raw: bytes) -> None:
    """A section, or a field of one, that is of another type than AMQP 1.0 says is refused."""
    with pytest.raises(MappingError):
        stored(raw)


@pytest.mark.parametrize("name", hostile.SHAPES)
def test_cost_of_a_message(name: str) -> None:
    """A message of 200 kB, of any structure, is stored or refused in no time to speak of."""
    value = hostile.SHAPES[name](200_000)
    pair = encode_map([(encode_symbol(b"mine"), value)])
    started_s = time.process_time()
    for raw in (
        section(part.AMQP_VALUE, value),
        section(part.AMQP_SEQUENCE, value),
        section(part.APPLICATION_PROPERTIES, value) + BODY,
        section(part.MESSAGE_ANNOTATIONS, pair) + BODY,
    ):
        try:
            record = stored(raw)
        except MappingError:
            continue
        message_from_record(record, sequence_number=7, enqueued_ms=1_000)

    assert time.process_time() - started_s < 4.0


@pytest.mark.parametrize("name", ["uuids of one hash", "numbers of one place"])
def test_cost_of_larger_messages(name: str) -> None:
    """A message eight times as large costs about eight times as much, whatever its keys are."""

    def cost_s(size: int) -> float:
        value = hostile.SHAPES[name](size)
        raw = section(part.MESSAGE_ANNOTATIONS, encode_map([(encode_symbol(b"mine"), value)]))
        started_s = time.thread_time()
        message_from_record(stored(raw + BODY), sequence_number=7, enqueued_ms=1_000)
        return time.thread_time() - started_s

    assert cost_s(1_600_000) < 24 * min(cost_s(200_000) for _ in range(3)) + 0.05


def test_lists_of_numbers_are_stored() -> None:
    """A body of a hundred thousand small numbers, or of short words, is a body like any other."""
    for value in (
        hostile.compound(0xD0, 100_000, b"\x55\x07" * 100_000),
        hostile.compound(0xD0, 50_000, b"\xa1\x02de" * 50_000),
        hostile.compound(0xD0, 60_000, b"\x55\x07\x81\x00\x00\x00\x00\x00\x00\x01\x00" * 30_000),
    ):
        assert delivered(section(part.AMQP_VALUE, value)).raw.endswith(value)


def test_a_native_content_type_is_ascii_to_clients() -> None:
    """A symbol is nothing else, and strict clients refuse the message."""
    properties = Properties(content_type="text/plain; title=\u00fcber", content_encoding="\udcff")
    message = message_from_record(Record(properties, b""), sequence_number=1, enqueued_ms=1)
    start, _, end = part.split_sections(message).at[part.PROPERTIES]
    assert b"text/plain; title=?ber" in message[start:end]
