"""AMQP values become JSON, and the same values again, with their types."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings

from bridge.operations.lines.scalar_values import ValueRefused
from bridge.operations.lines.typed_values import bytes_of, json_of
from bridge.wire.amqp10 import scalars
from bridge.wire.amqp10.primitives import encode_map
from bridge.wire.amqp10.types import Array
from bridge.wire.amqp10.writing import encode
from tests.fixtures.examples import examples
from tests.unit.operations.amqp_values import encoded


@settings(max_examples=examples(200))
@given(raw=encoded())
def test_every_value_is_the_same_behind_the_way_to_json_and_back(raw: bytes) -> None:
    """The text that goes into a file is read as it was written, type by type."""
    text = json.dumps(json_of(raw), allow_nan=False)
    assert bytes_of(json.loads(text)) == raw


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, None),
        ("green", "green"),
        (True, True),
        (scalars.Int(5), 5),
        (scalars.Long(5), {"long": 5}),
        (2**40, {"long": 2**40}),
        (2**60, {"long": str(2**60)}),
        (0.5, 0.5),
        (5.0, {"double": 5.0}),
        (float("inf"), {"double": "Infinity"}),
        (scalars.Timestamp(0), {"timestamp": "1970-01-01T00:00:00.000Z"}),
        (scalars.Symbol("a"), {"symbol": "a"}),
        (b"\xff", {"binary": "/w=="}),
        ([1, "a"], [{"long": 1}, "a"]),
        ({"a": scalars.Int(1)}, {"map": {"a": 1}}),
        ({scalars.Symbol("a"): scalars.Int(1)}, {"map": [[{"symbol": "a"}, 1]]}),
        (Array("int", (1, 2)), {"array": {"type": "int", "items": [1, 2]}}),
    ],
)
def test_a_value_is_written_by_its_type(value: object, written: object) -> None:
    """JSON's own types for those of the SDKs' frequent ones, a name of the type for others."""
    assert json_of(encode(value)) == written


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (2**40, 2**40),
        ({"int": 5}, scalars.Int(5)),
        ({"double": 5}, 5.0),
        ({"long": "5"}, 5),
        ({"timestamp": 1}, scalars.Timestamp(1)),
        ({"timestamp": "2026-11-27T01:00:00+01:00"}, scalars.Timestamp(1795737600000)),
        ({"decimal": "12.50"}, Decimal("12.50")),
        ({"list": [{"string": "a"}]}, ["a"]),
        ({"boolean": True}, True),
    ],
)
def test_a_value_is_read_in_other_forms_too(written: object, value: object) -> None:
    """As people and other programs write them."""
    assert bytes_of(written) == encode(value)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"long": 5.5}, "5.5 is no long, a whole number from -9223372036854775808"),
        ({"long": True}, "true is no long"),
        ({"ubyte": 256}, "256 is no ubyte, a whole number from 0 to 255"),
        (2**63, "is no long"),
        ({"a": 1, "b": 2}, 'a map is {"map": {"a": 1, "b": 2}}'),
        ({}, "an object has one key here"),
        ({"number": 5}, "there is no type 'number'; there are null, boolean"),
        ({"symbol": "é"}, "has characters that a symbol does not take"),
        ("\ud800", "has characters that a string does not take"),
        ({"char": "ab"}, "one character"),
        ({"uuid": "x"}, "is no uuid"),
        ({"binary": "*"}, "is no Base64"),
        ({"timestamp": "2026-11-27T09:00:00"}, "has no zone"),
        ({"timestamp": "soon"}, "is no timestamp"),
        ({"decimal": "1e40"}, "is no decimal"),
        ({"decimal32": "00"}, "4 bytes in hexadecimal"),
        ({"float": 1e300}, "is beyond a float"),
        ([1, {"map": {"a": {"byte": 200}}}], "[1].a: 200 is no byte"),
        ({"map": [["a", 1], ["a", 2]]}, "stands there twice"),
        ({"map": [["a"]]}, "an array of pairs"),
        ({"array": {"type": "list", "items": []}}, 'an array of "list" cannot be written'),
        ({"array": {"type": "int", "items": [1, "x"]}}, '[1]: "x" is no int'),
        ({"described": [1]}, "an array of descriptor and value"),
        ({"amqp": "/w=="}, "are no AMQP 1.0 value"),
    ],
)
def test_what_is_no_value_is_refused_with_its_place(written: object, why: str) -> None:
    """And with what the type takes."""
    with pytest.raises(ValueRefused) as refused:
        bytes_of(written)
    assert why in str(refused.value)


def test_keys_that_python_takes_for_equal_stay_apart() -> None:
    """An int 1, a long 1 and true are three keys on the wire, and one in a dict of Python."""
    keys = [encode(scalars.Int(1)), encode(1), encode(True)]
    raw = encode_map([(key, encode("x")) for key in keys])
    assert json_of(raw) == {"map": [[1, "x"], [{"long": 1}, "x"], [True, "x"]]}
    assert bytes_of(json_of(raw)) == raw


def test_bytes_that_are_no_value_are_shown_as_they_are() -> None:
    """A peer that sends what cannot be read does not stop a listing."""
    assert json_of(b"\xa1\x05ab") == {"amqp": "oQVhYg=="}


def test_a_list_of_more_elements_than_are_taken_apart_is_kept_as_it_is() -> None:
    """Its bytes come back the same."""
    raw = encode([scalars.Int(1)] * 5_000)
    assert bytes_of(json_of(raw)) == raw
