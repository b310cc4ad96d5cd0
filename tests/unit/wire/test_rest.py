"""Messages of the REST API: what is sent is received with the same types, whatever is in it."""

from __future__ import annotations

import json
import string
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.errors import ArgumentError, ArgumentOutOfRange
from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.message import decode_message
from bridge.wire.amqp10.scalars import Decimal128, Float, Timestamp, Ubyte, Ulong
from bridge.wire.mapping.inward import record_from_message
from bridge.wire.mapping.outward import message_from_record
from bridge.wire.rest.broker_properties import SenderProperties, read_broker_properties, seconds_of
from bridge.wire.rest.header_fields import (
    NOT_PROPERTIES,
    read_fields,
    written_name,
    written_value,
)
from bridge.wire.rest.inward import batch_of, encode, encode_each
from bridge.wire.rest.outward import Shown, show

TOKENS = st.text(string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~", min_size=1, max_size=30)
NAMES = TOKENS.filter(lambda name: written_name(name) == name)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128)


def there_and_back(raw: bytes) -> Shown:
    """Return a message as it is received that was sent as an SDK's."""
    record = record_from_message(raw, new_message_id="new").record
    numbers = {"sequence_number": 1, "enqueued_ms": 1_000, "delivery_count": 0}
    return show(
        record,
        message_from_record(record, **numbers),
        **numbers,
        time_to_live_ms=None,
        state=0,
        lock_token=None,
        locked_until_ms=None,
    )


@given(st.dictionaries(NAMES, SCALARS, max_size=6), st.binary(max_size=300))
def test_custom_properties_and_body_come_back(custom: dict[str, Any], body: bytes) -> None:
    """As fields of ASCII without line ends, which read again are the same values."""
    unlike = {name.lower(): (name, value) for name, value in custom.items()}
    fields = [(name, written_value(value)) for name, value in unlike.values()]
    shown = there_and_back(encode(body, SenderProperties(), read_fields(fields), None, 0))

    assert shown.body == body
    assert all(text.isascii() and text.isprintable() for _, text in shown.custom)
    assert {name: json.loads(text) for name, text in shown.custom} == dict(unlike.values())
    again = read_fields(shown.custom)
    assert {name: (type(v), v) for name, v in again.items()} == {
        name: (type(v), v) for name, v in read_fields(fields).items()
    }


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            (
                "CorrelationId",
                "Label",
                "MessageId",
                "ReplyTo",
                "ReplyToSessionId",
                "SessionId",
                "To",
            ),
            KEYS,
        ),
    )
)
def test_broker_properties_come_back(said: dict[str, str]) -> None:
    """Every text, as it was."""
    shown = there_and_back(encode(b"", read_broker_properties(said), {}, None, 0))

    assert shown.broker_properties.isascii()
    found = json.loads(shown.broker_properties)
    assert found.items() >= said.items()


@given(st.text(min_size=1))
def test_any_name_is_a_field_s_name(name: str) -> None:
    """No name is HTTP's own, ends its line, or changes the answer's form."""
    written = written_name(name.encode("utf-8", "replace").decode())

    assert written.isascii()
    assert not set(written) & set('()<>@,;:\\"/[]?={} \t\r\n')
    assert written.lower() not in NOT_PROPERTIES


@pytest.mark.parametrize("name", sorted(NOT_PROPERTIES))
def test_what_is_http_s_own_is_no_property(name: str) -> None:
    """Neither of a request, nor under its own name in an answer."""
    assert read_fields([(name.title(), "1")]) == {}
    assert written_name(name).startswith("%")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Timestamp(784_111_777_000), '"Sun, 06 Nov 1994 08:49:37 GMT"'),
        (b"\x00\xff", '"AP8="'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (float("nan"), '"NaN"'),
        (Float("-inf"), '"-Infinity"'),
        (Ubyte(7), "7"),
        (Decimal128(encode_decimal(Decimal("-79.90"))[1:]), "-79.90"),
        ([Decimal128(encode_decimal(Decimal("79.90"))[1:])], '["79.90"]'),
        ({b"a": 1}, json.dumps("{b'a': 1}")),
        ("a\r\nSet-Cookie: b", '"a\\r\\nSet-Cookie: b"'),
    ],
)
def test_types_that_json_does_not_have(value: Any, text: str) -> None:
    """They are text."""
    assert written_value(value) == text


@pytest.mark.parametrize(
    ("said", "ttl_ms"),
    [
        ({"TimeToLive": 10}, 10_000),
        ({"TimeToLive": 0.0015}, 1),
        ({"TimeToLive": "00:01:00"}, 60_000),
        ({"TimeToLiveTimeSpan": "0.00:00:40"}, 40_000),
        ({"TimeToLiveTimeSpan": "10675199.02:48:05.4775807"}, None),
        ({"TimeToLive": 922337203685.47754}, None),
        ({"TimeToLive": None}, None),
    ],
)
def test_times_to_live(said: dict[str, Any], ttl_ms: int | None) -> None:
    """Seconds, or .NET's text; the longest is none of the message's own."""
    assert read_broker_properties(said).time_to_live_ms == ttl_ms


@pytest.mark.parametrize("value", [True, "x", [], "1e999", "1:2:3:4"])
def test_times_to_live_that_are_none(value: Any) -> None:
    """They are refused, not taken for another."""
    with pytest.raises(ArgumentError):
        read_broker_properties({"TimeToLive": value})
    with pytest.raises(ArgumentOutOfRange):
        read_broker_properties({"TimeToLive": 0})


@pytest.mark.parametrize(
    ("ttl_ms", "seconds"), [(10_000, 10), (1_500, 1.5), (None, 922337203685.47754)]
)
def test_seconds(ttl_ms: int | None, seconds: float) -> None:
    """Whole seconds without a fraction."""
    assert repr(seconds_of(ttl_ms)) == repr(seconds)


def test_a_ttl_beyond_49_days_keeps_its_length() -> None:
    """As the SDKs write it: the difference of two times."""
    year_ms = 365 * 86_400_000
    raw = encode(b"", SenderProperties(time_to_live_ms=year_ms), {}, None, 1_700_000_000_000)
    properties = decode_message(raw).properties

    assert properties.absolute_expiry_time - properties.creation_time == year_ms


def test_a_field_that_stands_twice_is_one_property() -> None:
    """Under its first name."""
    assert read_fields([("A", "1"), ("b", "x"), ("a", "2")]) == {"A": "1, 2", "b": "x"}


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), Ulong(2**63)),
        (str(2**64 - 1), Ulong(2**64 - 1)),
        (str(2**64), str(2**64)),
        (str(-(2**63) - 1), str(-(2**63) - 1)),
        ("9" * 400, "9" * 400),
    ],
)
def test_a_whole_number_loses_no_digit(said: str, value: Any) -> None:
    """In a field and in a batch: a double would round an order's number of 20 digits."""
    batch = batch_of(f'[{{"UserProperties": {{"Number": {said}}}}}]'.encode())
    raw = [
        encode(b"", SenderProperties(), read_fields([("Number", said)]), None, 0),
        *encode_each(batch, 0),
    ]

    for each in raw:
        found = decode_message(each).application_properties["Number"]
        assert found == value
        assert isinstance(found, str) == isinstance(value, str)
        ((_, text),) = there_and_back(each).custom
        assert json.loads(text) == value


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_time_to_live_without_end(sign: str) -> None:
    """Whole numbers beyond a double are numbers: for ever, or refused as not positive."""
    said = json.loads(f'{{"TimeToLive": {sign}{"9" * 400}}}')
    if sign:
        with pytest.raises(ArgumentOutOfRange):
            read_broker_properties(said)
    else:
        assert read_broker_properties(said).time_to_live_ms is None
