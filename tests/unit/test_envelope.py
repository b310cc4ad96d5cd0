"""Envelopes and replies: what is written is read, and nothing else is."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import envelope
from bridge.wire.envelope import Item, MalformedEnvelope, Operation
from bridge.wire.reply import (
    Done,
    MalformedReply,
    Refusal,
    decode_reply,
    encode_done,
    encode_refused,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
ITEMS = st.builds(
    Item,
    properties=st.binary(max_size=60),
    body=st.binary(max_size=60),
    ttl_ms=st.none() | INT64,
    scheduled_ms=st.none() | INT64,
    key=st.none() | st.binary(max_size=40),
)
IDENTITY = bytes(range(16))


@given(
    st.lists(ITEMS, min_size=1, max_size=6), st.sampled_from([Operation.SEND, Operation.SCHEDULE])
)
def test_items_survive_the_round_trip(items: list[Item], operation: Operation) -> None:
    """An envelope's items come out as they were put in, in order."""
    decoded = envelope.decode(envelope.encode(operation, IDENTITY, items))
    assert (operation, IDENTITY, items) == (decoded.operation, decoded.identity, decoded.items)


@given(st.lists(INT64, min_size=1, max_size=6))
def test_cancelled_numbers_survive_the_round_trip(numbers: list[int]) -> None:
    """A cancel carries signed 64-bit numbers."""
    decoded = envelope.decode(envelope.encode_cancel(IDENTITY, numbers))
    assert (Operation.CANCEL, tuple(numbers)) == (decoded.operation, tuple(decoded.numbers))


@given(st.lists(ITEMS, min_size=1, max_size=3), st.data())
def test_a_cut_envelope_is_refused(items: list[Item], data: st.DataObject) -> None:
    """No proper beginning of an envelope is an envelope, and nothing may follow it."""
    whole = envelope.encode(Operation.SEND, IDENTITY, items)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for wrong in (whole[:cut], whole + b"\0"):
        with pytest.raises(MalformedEnvelope):
            envelope.decode(wrong)


@given(st.binary(max_size=200))
def test_garbage_is_malformed_and_never_another_error(raw: bytes) -> None:
    """Any bytes either decode or are refused as a malformed envelope."""
    for candidate in (raw, b"\x01\x01" + raw, b"\x01\x03" + raw):
        with contextlib.suppress(MalformedEnvelope):
            envelope.decode(candidate)


def test_replies_survive_the_round_trip() -> None:
    """A reply carries either numbers or Azure's condition with a description."""
    assert Done((1, -47, 2**63 - 1)) == decode_reply(encode_done([1, -47, 2**63 - 1]))
    assert Refusal("c:d", "tëxt") == decode_reply(encode_refused("c:d", "tëxt"))
    for wrong in (b"", b"\x03", b"\x01\x00", b"\x01\x00\x01\xff"):
        with pytest.raises(MalformedReply):
            decode_reply(wrong)
