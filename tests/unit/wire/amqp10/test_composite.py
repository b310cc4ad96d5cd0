"""Performatives: every field in its place, whatever is left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.amqp10 import types, writing
from bridge.wire.amqp10.composite import BY_CLASS, Layout, decode_composite, encode_composite
from bridge.wire.amqp10.errors import DecodeError, EncodeError
from bridge.wire.amqp10.frame import encode_disposition, encode_frame, encode_transfer
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    Error,
    Flow,
    Open,
    Released,
    Source,
    Transfer,
)
from bridge.wire.amqp10.types import Described, Symbol, Ulong
from tests.unit.wire.amqp10.values import SCALARS, VALUES

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **{name: SCALARS[name].map(int) for name in ("ubyte", "ushort", "uint", "ulong", "timestamp")},
    "boolean": st.booleans(),
    "string": SCALARS["string"],
    "symbol": SCALARS["symbol"],
    "symbols": st.lists(SCALARS["symbol"], max_size=3).map(tuple),
    "binary": SCALARS["binary"],
    "map": st.dictionaries(SCALARS["symbol"], VALUES, max_size=3),
    "*": VALUES.filter(lambda value: not isinstance(value, Described))
    | st.builds(Error, SCALARS["symbol"])
    | st.builds(Source, SCALARS["string"]),
}


@st.composite
def composites(draw: st.DrawFn) -> Any:
    """Draw a composite of any declared kind, each optional field there or not."""
    layout: Layout = draw(st.sampled_from(tuple(BY_CLASS.values())))
    values = []
    for row in layout.fields:
        strategy = FIELDS[row.type]
        values.append(draw(strategy if row.is_mandatory else st.just(row.default) | strategy))
    return layout.cls(*values)


@given(composites())
def test_round_trip(value: Any) -> None:
    """A composite comes back as it was."""
    raw = encode_composite(value)

    assert decode_composite(raw) == (value, len(raw))


@given(composites())
def test_every_field_is_written(value: Any) -> None:
    """No field is left out at the end: clients up to 7.14 count on their positions."""
    described, _ = types.decode(encode_composite(value))
    layout = BY_CLASS[type(value)]

    assert len(described.value) == len(layout.fields)


@pytest.mark.parametrize(
    ("cls", "count"),
    [
        (Open, 10),
        (Begin, 8),
        (Attach, 14),
        (Flow, 11),
        (Transfer, 11),
        (Disposition, 6),
        (Detach, 3),
        (Close, 1),
        (Error, 3),
    ],
)
def test_numbers_of_fields(cls: type, count: int) -> None:
    """The performatives have as many fields as the specification gives them."""
    layout = BY_CLASS[cls]

    assert len(layout.fields) == count


@given(composites(), st.data())
def test_left_out_at_the_end(value: Any, data: st.DataObject) -> None:
    """A peer may leave out trailing nulls: they mean the defaults."""
    layout = BY_CLASS[type(value)]
    described, _ = types.decode(encode_composite(value))
    keep = data.draw(st.integers(0, len(layout.fields)))
    shorter = writing.encode(Described(Ulong(layout.code), described.value[:keep]))

    if any(row.is_mandatory for row in layout.fields[keep:]):
        with pytest.raises(DecodeError, match="mandatory"):
            decode_composite(shorter)
    else:
        found, _ = decode_composite(shorter)
        for row in layout.fields[keep:]:
            assert getattr(found, row.name) == row.default


def test_symbolic_descriptor() -> None:
    """A descriptor may be the symbol instead of the number."""
    raw = writing.encode(Described(Symbol("amqp:accepted:list"), []))

    assert decode_composite(raw) == (Accepted(), len(raw))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(writing.encode(Described(Ulong(0x99), [])), id="an unknown composite"),
        pytest.param(writing.encode(Described(Ulong(0x14), {})), id="a map of fields"),
        pytest.param(writing.encode(Described(Ulong(0x14), ["x"])), id="a string as a handle"),
        pytest.param(writing.encode(Described(Ulong(0x14), [None])), id="no handle"),
        pytest.param(writing.encode(Described(Ulong(0x24), [1])), id="too many fields"),
        pytest.param(writing.encode([1]), id="no composite"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_refused(raw: bytes) -> None:
    """A value that does not fit the table is a decode error."""
    with pytest.raises(DecodeError):
        decode_composite(raw)


def test_unwritable_field() -> None:
    """A field of a wrong type is not written."""
    with pytest.raises(EncodeError, match="handle"):
        encode_composite(Detach("three"))  # type: ignore[arg-type]


uints = st.integers(0, 2**32 - 1)


@given(
    st.booleans(),
    uints,
    st.none() | uints,
    st.booleans(),
    st.none() | st.sampled_from([Accepted(), Released()]),
)
def test_short_way_of_dispositions(
    role: bool, first: int, last: int | None, settled: bool, state: Any
) -> None:
    """The hand-made disposition frame is the one that the table makes."""
    disposition = Disposition(role, first, last, settled, state)

    assert encode_disposition(3, disposition) == encode_frame(3, disposition)


@given(uints, st.none() | uints, st.none() | st.binary(max_size=32), st.booleans(), st.booleans())
def test_short_way_of_transfers(
    handle: int, delivery_id: int | None, tag: bytes | None, is_settled: bool, is_more: bool
) -> None:
    """The hand-made transfer frame is the one that the table makes, and its payload."""
    head, payload = encode_transfer(
        7,
        handle,
        delivery_id,
        tag,
        0x80013700,
        is_settled=is_settled,
        is_more=is_more,
        payload=b"payload",
    )
    performative = Transfer(handle, delivery_id, tag, 0x80013700, is_settled, is_more)

    whole = head + payload
    assert int.from_bytes(whole[:4], "big") == len(whole)
    assert decode_composite(whole, 8) == (performative, len(whole) - 7)
    assert head[8:] == encode_composite(performative)
