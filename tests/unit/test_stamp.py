"""Stamps: what is put into encoded properties is what a decoder reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import headers, stamp
from bridge.wire.basic import FieldValue, Properties, Table
from bridge.wire.native import clean

INT64 = st.integers(-(2**63), 2**63 - 1)
SHORT = st.none() | st.text(max_size=8)
FIELDS: st.SearchStrategy[FieldValue] = st.one_of(
    st.tuples(st.just("S"), st.binary(max_size=9)),
    st.tuples(st.just("l"), INT64),
    st.tuples(st.just("t"), st.booleans()),
)
KEYS = st.text(min_size=1, max_size=12).filter(lambda key: not headers.is_reserved(key))
CANONICAL = st.builds(
    Properties,
    content_type=SHORT,
    content_encoding=SHORT,
    headers=st.none() | st.dictionaries(KEYS, FIELDS, max_size=4),
    delivery_mode=st.just(2),
    correlation_id=SHORT,
    reply_to=SHORT,
    message_id=SHORT,
    timestamp=st.none() | st.integers(0, 2**63),
    type=SHORT,
    app_id=SHORT,
)
IDENTITY = bytes(range(20))
TTLS = st.none() | st.integers(0, 2**50)


@given(CANONICAL, INT64, INT64, TTLS)
def test_an_active_stamp_reads_as_headers_and_expiration(
    properties: Properties, number: int, enqueued_ms: int, ttl_ms: int | None
) -> None:
    """Number, time, identity and TTL are headers; a TTL that RabbitMQ can hold expires it."""
    fields = stamp.active(number, enqueued_ms, IDENTITY, ttl_ms)
    stamped = Properties.decode(stamp.put(properties.encode(), fields, ttl_ms))
    expected: Table = {
        headers.SEQUENCE_NUMBER: ("l", number),
        headers.ENQUEUED_TIME: ("l", enqueued_ms),
        headers.NUMBERED: ("t", True),
        headers.IDENTITY: ("x", IDENTITY),
    }
    if ttl_ms is not None:
        expected[headers.TIME_TO_LIVE] = ("l", ttl_ms)
    assert expected | (properties.headers or {}) == stamped.headers
    fits = ttl_ms is not None and ttl_ms <= stamp.EXPIRATION_MAX_MS
    assert (str(ttl_ms) if fits else None) == stamped.expiration
    stamped.headers, stamped.expiration = properties.headers, None
    assert properties == stamped


@given(CANONICAL, INT64, INT64, TTLS, st.booleans(), st.booleans())
def test_a_waiting_stamp_comes_off_again(
    properties: Properties,
    number: int,
    due_ms: int,
    ttl_ms: int | None,
    is_sorted: bool,
    is_counted: bool,
) -> None:
    """The stamp is found wherever RabbitMQ puts it, and what remains is the message as it was."""
    fields = stamp.waiting(number, IDENTITY, due_ms, ttl_ms)
    stored = Properties.decode(stamp.put(properties.encode(), fields))
    assert stored.headers is not None
    if is_sorted:
        stored.headers = dict(sorted(stored.headers.items()))
    if is_counted:
        stored.headers["x-delivery-count"] = ("l", 3)
    waiting = stamp.unwait(stored.encode())
    assert (number, IDENTITY, due_ms, ttl_ms) == (
        waiting.number,
        waiting.identity,
        waiting.due_ms,
        waiting.ttl_ms,
    )
    bare = Properties.decode(waiting.properties)
    assert (properties.headers or {}) == (bare.headers or {})
    bare.headers = properties.headers
    assert properties == bare


@pytest.mark.parametrize("table", [None, {}, {headers.WAITING: ("x", b"short")}])
def test_a_message_without_a_waiting_stamp_is_refused(table: Table | None) -> None:
    """A message that the bridge has not scheduled is no scheduled message."""
    with pytest.raises(ValueError, match="scheduled"):
        stamp.unwait(Properties(headers=table).encode())


def test_a_native_message_loses_what_only_a_broker_or_the_sequencer_may_say() -> None:
    """Stale deaths, counts, copies, numbers and times do not enter; its own headers do."""
    native = clean(
        Properties(
            headers={
                "mine": ("S", b"kept"),
                "x-mine": ("l", 1),
                "x-death": ("A", []),
                "x-delivery-count": ("l", 7),
                "x-stream-filter-value": ("l", 8),
                "CC": ("A", [("S", b"elsewhere")]),
                headers.SEQUENCE_NUMBER: ("l", 99),
                headers.IDENTITY: ("x", IDENTITY),
                headers.SCHEDULED_NUMBER: ("l", 4),
                headers.SCHEDULED_ENQUEUE_TIME: ("T", 5),
            },
            delivery_mode=1,
            priority=9,
            user_id="guest",
            expiration="1500",
            message_id="m",
        )
    )
    assert (native.ttl_ms, native.scheduled_ms, native.message_id) == (1500, 5000, "m")
    assert (
        native.properties
        == Properties(
            headers={
                "mine": ("S", b"kept"),
                "x-mine": ("l", 1),
                headers.SCHEDULED_ENQUEUE_TIME: ("l", 5000),
                headers.PRIORITY: ("B", 9),
                headers.BASIC_USER_ID: ("S", b"guest"),
            },
            delivery_mode=2,
            message_id="m",
        ).encode()
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ((2, 1234), 12.34),
        ((0, 2**31 - 1), 2147483647.0),
        ((2, 2**32 - 1234), -12.34),
        ((2, 2**31 + 1234), -12.34),
        ((0, 2**31 + 2**30 - 1), 1.0 - 2**30),
        ((0, 2**32 - 2**30), -float(2**30)),
        ((28, 7), 7e-28),
    ],
)
def test_a_negative_decimal_keeps_its_sign_in_both_forms(
    field: tuple[int, int], value: float
) -> None:
    """RabbitMQ's client for .NET writes a sign and 31 bits, all others two's complement."""
    native = clean(Properties(headers={"d": ("D", field)}))
    assert Properties.decode(native.properties).headers == {"d": ("d", value)}


def test_the_number_of_dotnet_s_publish_is_no_property() -> None:
    """RabbitMQ's client for .NET adds it to each message when it tracks confirms."""
    number: FieldValue = ("x", bytes(8))
    native = clean(Properties(headers={"x-dotnet-pub-seq-no": number, "color": ("S", b"red")}))
    assert Properties.decode(native.properties).headers == {"color": ("S", b"red")}


def test_a_decimal_becomes_a_double_because_a_stream_cannot_take_it() -> None:
    """Decimals are replaced at every depth."""
    native = clean(Properties(headers={"a": ("A", [("F", {"d": ("D", (2, 250))})])}))
    decoded = Properties.decode(native.properties)
    assert decoded.headers == {"a": ("A", [("F", {"d": ("d", 2.5)})])}
