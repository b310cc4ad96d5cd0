"""What one SDK writes and another cannot read is delivered in a form that it can read.

The Python SDK's own decoder is the witness; those of Go and JavaScript are tried by scenarios.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus._pyamqp._decode import decode_payload
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.amqp10.decimals import encode_decimal
from bridge.wire.amqp10.primitives import (
    encode_list,
    encode_long,
    encode_map,
    encode_string,
    encode_symbol,
)
from bridge.wire.amqp10.types import Array, Char, decode
from bridge.wire.amqp10.writing import encode
from bridge.wire.mapping import sections as part
from bridge.wire.mapping.common_values import BODY_BYTES_MAX, readable, with_texts
from bridge.wire.mapping.decimals import WriteDecimal
from bridge.wire.mapping.fields import MappingError
from bridge.wire.mapping.inward import record_from_message
from bridge.wire.mapping.outward import message_from_record
from tests.unit.wire.amqp10.values import VALUES

ANNOTATION = encode_symbol(b"x-mine")


def a_decimal(value: Decimal) -> bytes:
    """What stands for a decimal in these tests."""
    return encode_string(str(value).encode())


def messages(value: bytes) -> dict[str, bytes]:
    """Messages with a value in each place that may have any."""
    pair = [(encode_string(b"p"), value), (encode_string(b"q"), b"\x41")]
    data = part.descriptor(part.DATA) + b"\xa0\x01x"
    footer = part.descriptor(part.FOOTER) + encode_map([(ANNOTATION, value)])
    return {
        "value": part.descriptor(part.AMQP_VALUE) + value,
        "sequence": part.descriptor(part.AMQP_SEQUENCE) + encode_list([value, b"\x41"]),
        "property": part.descriptor(part.APPLICATION_PROPERTIES) + encode_map(pair) + data,
        "annotation": part.descriptor(part.MESSAGE_ANNOTATIONS)
        + encode_map([(ANNOTATION, value)])
        + data,
        "footer": data + footer,
    }


def delivered(raw: bytes, write_decimal: WriteDecimal = encode_decimal) -> bytes:
    """A message as it is delivered to the SDKs that read all, but for decimals."""
    return message_from_record(
        record_from_message(raw, new_message_id="id").record,
        sequence_number=1,
        enqueued_ms=1_800_000_000_000,
        write_decimal=write_decimal,
    )


UNREADABLE: dict[str, tuple[bytes, Any]] = {
    "char": (encode(Char("é")), "é".encode()),
    "char in a map": (encode_map([(encode_string(b"k"), encode(Char("x")))]), {b"k": b"x"}),
    "char as a key": (encode_map([(encode(Char("k")), b"\x41")]), {b"k": True}),
    "described char": (b"\x00" + encode_symbol(b"my:char") + encode(Char("x")), b"x"),
    "array of chars": (encode(Array("char", (Char("a"), Char("b")))), [b"a", b"b"]),
    "empty array": (b"\xe0\x02\x00\x81", []),
    "empty array, long": (b"\xf0\x00\x00\x00\x05\x00\x00\x00\x00\x81", []),
    "empty array as Python writes it": (b"\xe0\x01\x00", []),
    "array of empty arrays": (b"\xe0\x08\x02\xe0\x02\x00\x81\x02\x00\x81", [[], []]),
    "decimal": (b"\x74\x32\x00\x00\x07", b"0.7"),
    "array of decimals": (b"\xe0\x06\x01\x74\x32\x00\x00\x07", [b"0.7"]),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_value_that_stops_the_python_sdk_is_readable_by_it(name: str) -> None:
    """In body, property, annotation and footer; what stands behind it is read, too."""
    value, expected = UNREADABLE[name]
    for where, raw in messages(value).items():
        try:
            before = decode_payload(memoryview(delivered(raw)))
        except Exception:
            before = None
        found = decode_payload(memoryview(readable(delivered(raw, a_decimal), a_decimal)))
        assert before != found, "it cannot read it as it is delivered to others"
        if where == "value":
            assert found.value == expected
        elif where == "sequence":
            assert found.sequence == [[expected, True]]
        elif where == "property":
            assert found.application_properties == {b"p": expected, b"q": True}
        elif where == "annotation":
            assert found.message_annotations[b"x-mine"] == expected
        else:
            assert found.footer == {b"x-mine": expected}


REASONS = {
    "number": (encode_long(7), b"7"),
    "null": (b"\x40", None),
    "list": (encode_list([b"\x41"]), None),
    "binary": (b"\xa0\x03why", b"why"),
    "text": (encode_string(b"why"), b"why"),
    "symbol": (encode_symbol(b"why"), b"why"),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_reason_is_text_or_not_there(name: str) -> None:
    """The Go SDK's process ends at a reason of another type; other properties stay."""
    value, expected = REASONS[name]
    pairs = [(encode_string(b"DeadLetterReason"), value), (encode_string(b"q"), b"\x41")]
    raw = delivered(part.descriptor(part.APPLICATION_PROPERTIES) + encode_map(pairs))
    found = decode_payload(memoryview(with_texts(raw))).application_properties
    assert found == ({b"q": True} | ({} if expected is None else {b"DeadLetterReason": expected}))


def plain(value: Any) -> Any:
    """What a client sees of a decoded value."""
    if isinstance(value, Array):
        return [plain(each) for each in value.items]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


@given(VALUES)
def test_any_value_is_readable_by_the_python_sdk(value: Any) -> None:
    """And what it can read already is passed on as it came, to the byte."""
    raw = part.descriptor(part.AMQP_VALUE) + encode(value)
    found = readable(raw, a_decimal)
    decode_payload(memoryview(found))
    try:
        decode_payload(memoryview(raw))
    except Exception:
        assert found != raw
    assert readable(found, a_decimal) == found, "once is enough"


def test_numbers_and_texts_stay_as_they_are() -> None:
    """An array of numbers is one still, beside a char that is none."""
    numbers = encode(Array("int", (1, 2)))
    body = encode_list([numbers, encode_long(7), encode(Char("x"))])
    found = readable(part.descriptor(part.AMQP_VALUE) + body, a_decimal)
    assert found[3:] == encode_list([numbers, encode_long(7), encode_string(b"x")])


def test_a_large_body_is_passed_on_as_it_came() -> None:
    """To take it apart would keep other clients waiting."""
    body = encode_list([encode(Char("x")), encode_string(bytes(BODY_BYTES_MAX))])
    raw = part.descriptor(part.AMQP_VALUE) + body
    assert readable(raw, a_decimal) == raw


def test_an_empty_array_of_the_python_sdk_has_a_constructor_for_the_others() -> None:
    """JavaScript's, .NET's and Java's decoders read the constructor of its elements."""
    for raw in messages(encode_list([b"\xe0\x01\x00", b"\x41"])).values():
        assert encode_list([b"\xe0\x02\x00\xa1", b"\x41"]) in delivered(raw)


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (b"\xe0\x02\x03\x41", b"\xe0\x05\x03\x56\x01\x01\x01"),
        (b"\xe0\x02\x02\x42", b"\xe0\x04\x02\x56\x00\x00"),
        (b"\xf0\x00\x00\x00\x05\x00\x00\x00\x02\x43", b"\xe0\x04\x02\x52\x00\x00"),
        (b"\xe0\x02\x01\x44", b"\xe0\x03\x01\x53\x00"),
        (b"\xe0\x02\x01\x45", b"\xe0\x04\x01\xc0\x01\x00"),
        (b"\xe0\x02\x00\x41", b"\xe0\x02\x00\x41"),
    ],
    ids=["true", "false", "uint", "ulong", "list", "none"],
)
def test_an_array_of_constants_has_bytes_for_its_elements(sent: bytes, stored: bytes) -> None:
    """Java's decoder takes more elements than bytes for a lie; the values are the same."""
    assert decode(sent)[0] == decode(stored)[0]
    for raw in messages(encode_list([sent, b"\x41"])).values():
        assert encode_list([stored, b"\x41"]) in delivered(raw)


@pytest.mark.parametrize(
    "value",
    [
        b"\x00" + encode_list([b"\x41"]) + b"\x41",
        b"\x00" + encode_map([]) + b"\x41",
        b"\x00" + encode(Char("x")) + b"\x41",
        b"\x00\x00\xa3\x01a\xa3\x01b\x41",
        b"\xe0\x03\x01\xe0\x01\x00"[:-1] + b"\x00",
        b"\xe0\x06\x02\xe0\x01\x00\x01\x00",
    ],
    ids=["list", "map", "char", "described", "cut short", "empty arrays in an array"],
)
def test_what_no_form_could_help_is_refused(value: bytes) -> None:
    """A descriptor that is no symbol or number, and an array that AMQP 1.0 does not allow."""
    for raw in messages(value).values():
        with pytest.raises(MappingError):
            record_from_message(raw, new_message_id="id")


@given(st.lists(st.integers(0, 2**32 - 1), max_size=5))
def test_what_is_read_by_all_comes_back(numbers: list[int]) -> None:
    """The rewriting of a list leaves its numbers."""
    items = [struct.pack(">BI", 0x70, each) for each in numbers]
    raw = part.descriptor(part.AMQP_VALUE) + encode_list([*items, encode(Char("x"))])
    found = decode_payload(memoryview(readable(raw, a_decimal)))
    assert plain(found.value) == [*numbers, b"x"]
    assert decode(readable(raw, a_decimal)[3:])[0] == [*numbers, "x"]
