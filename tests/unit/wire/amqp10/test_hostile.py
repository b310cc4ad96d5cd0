"""Values of hostile structure cost the codec little: time, memory, stack."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.amqp10.composite import decode_composite, encode_composite
from bridge.wire.amqp10.errors import DecodeError, EncodeError
from bridge.wire.amqp10.message import batch_messages, decode_message
from bridge.wire.amqp10.performatives import Open
from bridge.wire.amqp10.types import Array, Described, Ulong, decode
from bridge.wire.amqp10.whole import DEPTH_MAX, check, plain_items, to_read, to_store
from bridge.wire.amqp10.writing import encode
from bridge.wire.mapping.fields import compound_items
from tests.unit.wire.amqp10 import hostile
from tests.unit.wire.amqp10.values import VALUES

SECONDS_MAX = 2.0
"""A hundred thousand bytes take a few hundredths; what is quadratic took ten."""

MIB = 1_048_576


def open_with(properties: bytes) -> bytes:
    """Return an `open` whose properties are these bytes."""
    fields = encode(["client"])[3:] + b"\x40" * 8 + properties
    return b"\x00\x53\x10" + hostile.compound(0xD0, 10, fields)


def taken(raw: bytes, act: Any) -> tuple[float, int]:
    """Return the time and the memory that it takes; a decode error is as good as an answer."""
    tracemalloc.start()
    started_s = time.process_time()
    try:
        act(raw)
    except DecodeError:
        pass
    finally:
        spent_s = time.process_time() - started_s
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return spent_s, peak


@pytest.mark.parametrize("name", hostile.SHAPES)
@pytest.mark.parametrize("size", [100, 5_000, 180_000])
def test_cost_of_a_value(name: str, size: int) -> None:
    """In an open, in a request and by itself: ten times its size, and no time to speak of."""
    value = hostile.SHAPES[name](size)
    for act, raw in (
        (decode, value),
        (decode_composite, open_with(hostile.compound(0xD1, 2, b"\xa3\x01k" + value))),
        (decode_message, b"\x00\x53\x77" + value),
        (lambda raw: list(batch_messages(raw)), b"\x00\x53\x72" + value),
    ):
        spent_s, peak = taken(raw, act)
        assert spent_s < SECONDS_MAX
        assert peak < 10 * len(raw) + MIB // 8


@pytest.mark.parametrize(
    "nested",
    [
        hostile.nested_lists,
        hostile.nested_maps,
        hostile.nested_arrays,
        hostile.nested_descriptors,
        hostile.described_in_described,
    ],
)
def test_depth(nested: Any) -> None:
    """20,000 levels are a decode error; as many as are allowed are read and written again."""
    with pytest.raises(DecodeError, match="nests deeper"):
        decode(nested(20_000))
    with pytest.raises(DecodeError, match="nests deeper"):
        decode_composite(open_with(nested(20_000)))

    value, _ = decode(nested(DEPTH_MAX - 2))
    assert decode(encode(value))[0] == value


def test_depth_of_what_is_written() -> None:
    """A value of our own that nests without end is an encode error."""
    endless: list[Any] = []
    endless.append(endless)
    deep: Any = 1
    for _ in range(20_000):
        deep = Array("list", ((deep,),))
    for value in (endless, deep, Described(Ulong(1), endless)):
        with pytest.raises(EncodeError, match="nests deeper"):
            encode(value)
    with pytest.raises(EncodeError, match="nests deeper"):
        encode_composite(Open("x", properties={"k": endless}))


@pytest.mark.parametrize("make", [hostile.equal_uuids, hostile.equal_longs])
def test_keys_of_one_hash(make: Any) -> None:
    """14,000 keys of one hash are read as fast as any others, and all of them."""
    started_s = time.process_time()
    found, _ = decode(make(14_000, encode(bytes(32))))

    assert len(found) == 14_000
    assert time.process_time() - started_s < SECONDS_MAX


def test_uuid_keys_come_back() -> None:
    """A map with a uuid as key is written as it was read."""
    raw = hostile.equal_uuids(3)
    value, _ = decode(raw)

    assert decode(encode(value))[0] == value
    assert len({hash(key) for key in value}) == 3


@given(VALUES, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3))
def test_what_is_whole_can_be_read(value: Any, changes: list[tuple[int, int]]) -> None:
    """Values that the walk accepts are read, up to the same byte; others raise nothing else."""
    raw = bytearray(encode(value))
    for at, octet in changes:
        raw[at % len(raw)] = octet
    data = bytes(raw)
    try:
        end = check(data, 0, len(data), to_read(len(data) + 100_000))
    except DecodeError:
        return

    assert decode(data + bytes(100_000))[1] == end


def test_typical_values_are_far_below_the_allowance() -> None:
    """The requests of clients to `$management` are read: many tokens, numbers, and properties."""
    numbers = Array("long", tuple(range(4_000)))
    body = {"sequence-numbers": numbers, "properties": {f"name-{n}": n for n in range(100)}}

    assert decode(encode(body))[0] == body


_PLAIN = st.one_of(
    st.none(), st.booleans(), st.text(max_size=9), st.binary(max_size=9), st.integers(-300, 300)
)


@given(
    st.one_of(
        st.lists(st.one_of(_PLAIN, VALUES), max_size=9),
        st.lists(_PLAIN, max_size=9).map(lambda items: [*items, None, None]),
        st.dictionaries(st.text(max_size=5), _PLAIN, max_size=5),
    ),
    st.lists(st.tuples(st.integers(0, 63), st.integers(0, 255)), max_size=2),
    st.integers(0, 3),
)
def test_what_is_plainly_right_is_whole(
    value: Any, changes: list[tuple[int, int]], cut: int
) -> None:
    """The short walk takes nothing that the thorough one refuses, and finds the same items."""
    raw = bytearray(encode(value))
    for at, octet in changes:
        raw[at % len(raw)] = octet
    given = bytes(raw[: len(raw) - cut])
    if given[:1] not in (b"\xc0", b"\xc1") or (items := plain_items(given, 0)) is None:
        return
    end = check(given, 0, len(given), to_store(len(given)))
    exact = compound_items(given, 0)
    assert items == exact[: len(items)]
    assert all(given[begin:stop] == b"\x40" for begin, stop in exact[len(items) :])
    assert end == 2 + given[1]


def test_a_map_of_many_uuids() -> None:
    """Python's are slow to make: a megabyte of them is refused, some hundred are read."""
    few, many = (
        {UUID(int=number): UUID(int=0) for number in range(size)} for size in (300, 30_000)
    )
    assert len(decode(encode(few))[0]) == len(few)
    with pytest.raises(DecodeError, match="more elements"):
        decode(encode(many))
