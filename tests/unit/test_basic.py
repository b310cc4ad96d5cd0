"""Properties and field tables: exact, bounded, and read by others as we read them."""

from __future__ import annotations

import pika
import pika.spec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.basic import (
    FieldValue,
    Properties,
    Table,
    decode_table,
    encode_fields,
    encode_table,
    long,
    python_value,
    short_string,
    table_of,
    text,
    with_fields,
)

_INTEGERS = {
    "b": (-(2**7), 2**7 - 1),
    "B": (0, 2**8 - 1),
    "s": (-(2**15), 2**15 - 1),
    "u": (0, 2**16 - 1),
    "I": (-(2**31), 2**31 - 1),
    "i": (0, 2**32 - 1),
    "l": (-(2**63), 2**63 - 1),
    "L": (-(2**63), 2**63 - 1),
    "T": (0, 2**64 - 1),
}

_short = st.text(max_size=60).filter(lambda value: len(value.encode("utf-8")) <= 255)
_scalars: st.SearchStrategy[FieldValue] = st.one_of(
    *(
        st.tuples(st.just(letter), st.integers(low, high))
        for letter, (low, high) in _INTEGERS.items()
    ),
    st.tuples(st.sampled_from("Sx"), st.binary(max_size=300)),
    st.tuples(st.just("t"), st.booleans()),
    st.tuples(st.just("V"), st.none()),
    st.tuples(st.just("d"), st.floats(allow_nan=False)),
    st.tuples(st.just("f"), st.floats(allow_nan=False, width=32)),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))),
)
_fields = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.tuples(st.just("A"), st.lists(inner, max_size=4)),
        st.tuples(st.just("F"), st.dictionaries(_short, inner, max_size=4)),
    ),
    max_leaves=12,
)
tables = st.dictionaries(_short, _fields, max_size=6)
properties = st.builds(
    Properties,
    headers=st.none() | tables,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    **{
        name: st.none() | _short
        for name in [
            "content_type",
            "content_encoding",
            "correlation_id",
            "reply_to",
            "expiration",
            "message_id",
            "type",
            "user_id",
            "app_id",
            "cluster_id",
        ]
    },
)


@given(properties)
def test_properties_survive(sent: Properties) -> None:
    """Reading written properties gives every type and the order of keys."""
    received = Properties.decode(sent.encode())

    assert sent == received
    assert list(sent.headers or ()) == list(received.headers or ())


@given(properties)
def test_what_was_read_is_written_byte_for_byte(sent: Properties) -> None:
    """Decoding and encoding again changes nothing, so that a re-publish changes nothing."""
    raw = sent.encode()

    assert raw == Properties.decode(raw).encode()


@given(st.binary(max_size=200))
def test_any_bytes_are_properties_or_a_value_error(raw: bytes) -> None:
    """Nothing but ValueError comes out of bytes that are not properties."""
    try:
        Properties.decode(raw)
    except ValueError:
        return


@given(properties, st.data())
def test_broken_properties_are_a_value_error(sent: Properties, data: st.DataObject) -> None:
    """A changed or missing byte gives other properties or ValueError."""
    raw = bytearray(sent.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    for broken in (bytes(raw), bytes(raw[:at])):
        try:
            Properties.decode(broken)
        except ValueError:
            continue


def _pika_encoded(properties: pika.BasicProperties) -> bytes:
    return b"".join(properties.encode())


def test_pika_writes_what_we_read() -> None:
    """pika's encoding of headers of each of its types is read with the values it had."""
    headers = {
        "string": "ä",
        "int": 7,
        "long": 2**40,
        "negative": -1,
        "bool": True,
        "none": None,
        "bytes": b"\0\xff",
        "list": [1, "two", {"three": 3}],
        "table": {"deep": {"er": [True]}},
    }
    sent = pika.BasicProperties(
        content_type="text/plain",
        headers=headers,
        delivery_mode=2,
        priority=9,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )

    received = Properties.decode(_pika_encoded(sent))

    expected = headers | {"bytes": b"\0\xff"}
    assert expected == {key: python_value(each) for key, each in (received.headers or {}).items()}
    assert (
        received.content_type,
        received.delivery_mode,
        received.priority,
    ) == ("text/plain", 2, 9)
    assert (
        received.expiration,
        received.timestamp,
        received.app_id,
    ) == ("60000", 1_700_000_000, "a")


def test_pika_reads_what_we_write() -> None:
    """Properties of ours have for pika the values that we gave them."""
    sent = Properties(
        message_id="m",
        delivery_mode=2,
        headers={
            "x-opt-sequence-number": long(2**40),
            "name": text("ä"),
            "death": ("A", [("F", {"count": long(1), "reason": text("expired")})]),
            "flag": ("t", False),
            "byte": ("b", -3),
            "short": ("s", -300),
            "void": ("V", None),
        },
    )

    received = pika.BasicProperties()
    received.decode(sent.encode())

    assert (received.message_id, received.delivery_mode) == ("m", 2)
    assert received.headers == {
        "x-opt-sequence-number": 2**40,
        "name": "ä",
        "death": [{"count": 1, "reason": "expired"}],
        "flag": False,
        "byte": -3,
        "short": -300,
        "void": None,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message_id", "x" * 256),
        ("priority", 256),
        ("timestamp", -1),
        ("headers", {"k" * 256: text("")}),
        ("headers", {"k": ("l", 2**63)}),
        ("headers", {"k": ("?", 1)}),
        ("headers", {"k": ("S", None)}),
    ],
)
def test_a_value_that_does_not_fit_is_a_value_error(name: str, value: object) -> None:
    """Nothing is cut to fit silently."""
    with pytest.raises(ValueError, match=r"."):
        Properties(**{name: value}).encode()  # type: ignore[arg-type]


def test_nesting_is_bounded() -> None:
    """A table that nests deeper than the limit is refused in both directions, not crashed on."""
    nested: Table = {}
    for _ in range(70):
        nested = {"k": ("F", nested)}
    with pytest.raises(ValueError, match="deeper"):
        encode_table(nested)
    raw = b"\0\0\0\0"
    for _ in range(5_000):
        inner = b"\x01kF" + raw
        raw = len(inner).to_bytes(4, "big") + inner
    with pytest.raises(ValueError, match="deeper"):
        decode_table(raw)


def test_of_two_equal_keys_the_first_counts() -> None:
    """As in RabbitMQ, which finds the first."""
    twice = encode_fields({"k": long(1)}) + encode_fields({"k": long(2)})

    table, _ = decode_table(len(twice).to_bytes(4, "big") + twice)

    assert {"k": long(1)} == table


def test_a_short_string_of_other_bytes_survives() -> None:
    """Bytes that are not UTF-8 come back as they were."""
    raw = b"\x02\x00" + b"\x03\xff\xfea"

    received = Properties.decode(b"\x00\x80" + raw[2:])

    assert received.encode() == b"\x00\x80\x03\xff\xfea"
    assert short_string(received.message_id or "") == b"\x03\xff\xfea"


@given(properties, tables)
def test_fields_are_put_in_without_decoding(sent: Properties, fields: Table) -> None:
    """The new fields win over equal keys, everything else stays."""
    patched = Properties.decode(with_fields(sent.encode(), encode_fields(fields)))

    headers = dict(fields)
    for key, value in (sent.headers or {}).items():
        headers.setdefault(key, value)
    assert headers == patched.headers
    patched.headers = sent.headers
    assert sent == patched


def test_plain_values_become_the_usual_fields() -> None:
    """Arguments are written as RabbitMQ's own tools write them."""
    assert table_of(
        {
            "a": "x",
            "b": 5,
            "c": 2**40,
            "d": True,
            "e": None,
            "f": [0.5],
            "g": {"h": b"raw"},
            "i": ("T", 7),
        }
    ) == {
        "a": ("S", b"x"),
        "b": ("I", 5),
        "c": ("l", 2**40),
        "d": ("t", True),
        "e": ("V", None),
        "f": ("A", [("d", 0.5)]),
        "g": ("F", {"h": ("x", b"raw")}),
        "i": ("T", 7),
    }
