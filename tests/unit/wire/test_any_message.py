"""Whatever RabbitMQ takes from a native publisher is numbered, and shown to an SDK.

A message that the sequencer or a door cannot read would come again and again, and stop its entity.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from azure.servicebus._pyamqp._decode import decode_payload
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.machine.inbox import arrival
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Queue, Tier
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.amqp10.primitives import (
    encode_binary,
    encode_map,
    encode_string,
)
from bridge.wire.basic import FieldValue, Properties
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.inward import properties_from_map, record_from_message
from bridge.wire.mapping.outward import merge_properties, message_from_record
from bridge.wire.record import Record

NOW_MS = 1_800_000_000_000

LATIN_1 = "Bestellung f\udcfcr M\udcfcller"
"""What the bytes of a name in Latin-1 are read as."""

NAN = b"\x82" + struct.pack(">d", math.nan)

WIDTHS = {"b": 8, "B": 8, "s": 16, "u": 16, "I": 32, "i": 32, "l": 64, "L": 64, "T": 64}


def integers(letter: str) -> st.SearchStrategy[FieldValue]:
    """Values of an integer field."""
    bits = WIDTHS[letter]
    low = 0 if letter in "BuiT" else -(1 << (bits - 1))
    return st.tuples(st.just(letter), st.integers(low, low + (1 << bits) - 1))


raw_text = st.binary(max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
leaves: st.SearchStrategy[FieldValue] = st.one_of(
    *(integers(letter) for letter in WIDTHS),
    st.tuples(st.just("t"), st.booleans()),
    st.tuples(st.just("V"), st.none()),
    st.tuples(st.sampled_from("Sx"), st.binary(max_size=12)),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))),
    st.tuples(st.just("d"), st.floats(allow_nan=False, allow_infinity=False)),
)
fields = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("A"), st.lists(inner, max_size=2)),
        st.tuples(st.just("F"), st.dictionaries(raw_text, inner, max_size=2)),
    ),
    max_leaves=4,
)
our_names = st.sampled_from(
    [value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)]
    + ["x-opt-creation-time", "x-opt-absolute-expiry-time", "x-opt-user-id"]
)
tables = st.dictionaries(st.one_of(our_names, raw_text), fields, max_size=4)
optional_text = st.one_of(st.none(), raw_text)
any_properties = st.builds(
    Properties,
    content_type=optional_text,
    content_encoding=optional_text,
    headers=st.one_of(st.none(), tables),
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.one_of(st.none(), st.integers(0, 255)),
    correlation_id=optional_text,
    reply_to=optional_text,
    expiration=st.one_of(st.none(), st.integers(0, 315_360_000_000).map(str)),
    message_id=optional_text,
    timestamp=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    type=optional_text,
    user_id=optional_text,
    app_id=optional_text,
)


def numbered(properties: Properties, *, is_partitioned: bool = False) -> Publication:
    """What a sequencer publishes for a native message."""
    queue = Queue(
        name="orders", enable_partitioning=is_partitioned, requires_duplicate_detection=True
    )
    sequencer = Sequencer(queue, Tier.STANDARD, blank(is_partitioned=is_partitioned))
    command = arrival.read(properties.encode(), b"body", detects_duplicates=True)
    if (place := sequencer.missing_bucket(command, NOW_MS)) is not None:
        sequencer.memory.wheel.add(place)
    (publication,) = sequencer.apply(command, NOW_MS).publications
    sequencer.snapshot(bytes(16), "boot", 0)
    return publication


def encoded_properties(values: dict[str, bytes]) -> bytes:
    """A client's message with these application properties."""
    pairs = [(encode_string(name.encode()), value) for name, value in values.items()]
    properties = bytes((0, 0x53, part.APPLICATION_PROPERTIES)) + encode_map(pairs)
    return properties + bytes((0, 0x53, part.DATA)) + encode_binary(b"body")


def shown(record: Record) -> Any:
    """What the Python SDK makes of a message that RabbitMQ holds."""
    raw = message_from_record(record, sequence_number=1, enqueued_ms=NOW_MS, locked_until_ms=NOW_MS)
    return decode_payload(memoryview(raw))


def test_odd_properties_stop_nobody() -> None:
    """Texts that are no UTF-8, times in nanoseconds: they arrive, as well as they can be said."""
    odd = Properties(
        message_id=LATIN_1,
        type=LATIN_1,
        user_id=LATIN_1,
        content_type=LATIN_1,
        timestamp=1_800_000_000_000_000_000,
        headers={LATIN_1: ("S", b"f\xfcr"), "at": ("T", 1_800_000_000_000_000_000)},
    )
    publication = numbered(odd)

    message = shown(Record(Properties.decode(publication.properties), b"body"))

    assert publication.exchange == names.active_exchange("orders")
    assert message.properties.message_id.decode() == "Bestellung f�r M�ller"
    assert message.properties.creation_time == 2**63 - 1


def test_a_reply_to_that_is_no_utf_8_is_said_in_utf_8() -> None:
    """A stream of RabbitMQ 4.3 takes no other; the other properties keep their bytes."""
    publication = numbered(Properties(reply_to=LATIN_1, correlation_id=LATIN_1))
    properties = Properties.decode(publication.properties)

    assert properties.reply_to == "Bestellung f�r M�ller"
    assert properties.correlation_id == LATIN_1


@pytest.mark.parametrize("ttl_ms", [-1, -(2**63)])
def test_a_negative_ttl_is_none(ttl_ms: int) -> None:
    """RabbitMQ would close the channel over it, each time it comes again."""
    publication = numbered(Properties(headers={headers.TIME_TO_LIVE: ("l", ttl_ms)}))

    assert Properties.decode(publication.properties).expiration is None


def test_a_schedule_beyond_all_time_waits() -> None:
    """Seconds that are no 64-bit milliseconds stand for the last of them."""
    later = {headers.SCHEDULED_ENQUEUE_TIME: ("T", 2**64 - 1)}

    assert numbered(Properties(headers=dict(later))).routing_key.startswith("orders/$scheduled/5-")


@pytest.mark.parametrize(
    "forged",
    [
        {headers.PRIORITY: ("S", b"high")},
        {headers.PRIORITY: ("l", -1)},
        {"x-opt-creation-time": ("S", b"yesterday")},
        {"x-opt-absolute-expiry-time": ("F", {})},
        {headers.SECTIONS: ("x", b"garbage")},
        {headers.SECTIONS: ("x", b"\x00\x53\x74\x45")},
        {headers.SECTIONS: ("x", b"\x00\x53\x74\xc0\x03\x01\x54\x01")},
        {headers.SECTIONS: ("x", b"\x00\x53\x73\xc1\x01\x00")},
        {headers.BODY: ("S", b"sections")},
    ],
)
def test_what_only_the_bridge_may_say_is_not_believed(forged: dict[str, FieldValue]) -> None:
    """A header of the bridge's that holds anything else is left out."""
    publication = numbered(Properties(headers={"mine": ("I", 5), **forged}))

    message = shown(Record(Properties.decode(publication.properties), publication.body))

    assert message.application_properties == {b"mine": 5}
    assert list(message.data) == [b"body"]


@given(any_properties, st.booleans())
@example(Properties(message_id=LATIN_1), True)
def test_whatever_a_native_publisher_writes_is_numbered(
    properties: Properties, is_partitioned: bool
) -> None:
    """One publication, that RabbitMQ takes."""
    publication = numbered(properties, is_partitioned=is_partitioned)

    expiration = Properties.decode(publication.properties).expiration
    assert expiration is None or 0 <= int(expiration) <= 315_360_000_000


@given(any_properties)
def test_whatever_rabbitmq_holds_is_shown(properties: Properties) -> None:
    """Also what never passed a sequencer, such as a message put into a dead-letter queue."""
    record = Record(Properties.decode(properties.encode()), b"body")

    shown(record)
    shown(merge_properties(record, {"added": ("S", b"x")}))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("code", "form"), [(b"\x82", ">d"), (b"\x72", ">f")])
def test_numbers_that_erlang_has_not_stay_in_their_section(
    number: float, code: bytes, form: str
) -> None:
    """RabbitMQ closes the whole connection over a NaN or an infinity (541): none becomes a header.

    The SDK that receives the message gets it all the same.
    """
    raw = encoded_properties({"ratio": code + struct.pack(form, number), "mine": b"\x54\x05"})
    record = record_from_message(raw, new_message_id="m").record

    assert (record.properties.headers or {}).keys() >= {"mine", headers.SECTIONS}
    assert "ratio" not in (record.properties.headers or {})
    got = shown(record).application_properties[b"ratio"]
    assert struct.pack(form, got) == struct.pack(form, number)


def test_a_changed_property_that_erlang_has_not_stays_in_its_section() -> None:
    """So with the properties of a settlement."""
    changes = properties_from_map(encode_map([(encode_string(b"ratio"), NAN)]))
    changed = merge_properties(Record(Properties(), b"body"), changes)

    assert "ratio" not in (changed.properties.headers or {})
    assert math.isnan(shown(changed).application_properties[b"ratio"])


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"\xa1\x03key", b"key"),
        (b"\xa0\x03key", b"key"),
        (b"\xa0\x01\xff", None),
        (b"\x40", None),
    ],
)
def test_a_partition_key_is_kept_whether_it_is_text_or_bytes(
    value: bytes, found: bytes | None
) -> None:
    """The Python SDK sends a key as bytes when it sends on what it has received."""
    name = b"x-opt-partition-key"
    pairs = b"\xa3" + bytes((len(name),)) + name + value
    annotations = b"\x00\x53\x72\xc1" + bytes((len(pairs) + 1, 2)) + pairs
    inward = record_from_message(annotations + b"\x00\x53\x75\xa0\x01x", new_message_id="id")

    kept = (inward.record.properties.headers or {}).get(headers.PARTITION_KEY)
    assert kept == (None if found is None else ("S", found))
