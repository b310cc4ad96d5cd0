"""Envelopes of many messages: read in parts, and only when the whole can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox.arrival import SendCommand, read
from bridge.machine.inbox.large_envelope import PART_MESSAGES, LargeEnvelope, large_envelope
from bridge.wire import envelope
from bridge.wire.basic import Properties, text
from bridge.wire.envelope import Item, MalformedEnvelope, Operation

IDENTITY = bytes(range(16))
COUNTS = st.integers(PART_MESSAGES + 1, 4 * PART_MESSAGES)


def body_of(count: int, unreadable: frozenset[int] = frozenset()) -> bytes:
    """Return an envelope; the properties of some messages cannot be read."""
    items = [
        Item(
            b"?"
            if number in unreadable
            else Properties(delivery_mode=2, headers={"n": text(str(number))}).encode(),
            b"%d" % number,
        )
        for number in range(count)
    ]
    return envelope.encode(Operation.SEND, IDENTITY, items)


def parts_of(found: LargeEnvelope) -> list[SendCommand]:
    """Return all parts, after the check."""
    while not found.is_checked:
        found.check()
    parts = []
    while not found.is_over:
        parts.append(found.part())
    return parts


@given(COUNTS, st.frozensets(st.integers(0, 4 * PART_MESSAGES), max_size=5))
def test_the_parts_are_the_whole(count: int, unreadable: frozenset[int]) -> None:
    """In order, each message with its place in the envelope, and those refused that would be."""
    body = body_of(count, unreadable)
    found = large_envelope(envelope.SILENT_PROPERTIES, body, folds_keys=False)
    assert found is not None
    whole = read(envelope.SILENT_PROPERTIES, body)
    assert isinstance(whole, SendCommand)

    parts = parts_of(found)

    assert [item for part in parts for item in part.items] == list(whole.items)
    assert tuple(each for part in parts for each in part.refused) == whole.refused
    assert {part.identity for part in parts} == {whole.identity}
    first = 0
    for part in parts:
        assert part.first == first
        assert 0 < len(part.items) <= PART_MESSAGES
        first += len(part.items)


@given(COUNTS, st.data())
def test_of_an_envelope_that_is_not_whole_there_is_no_part(count: int, data: st.DataObject) -> None:
    """Its first messages could be read, but then it would be numbered in part."""
    body = body_of(count)
    cut = data.draw(st.integers(len(body) // 2, len(body) - 1))
    for wrong in (body[:cut], body + b"\0"):
        found = large_envelope(envelope.SILENT_PROPERTIES, wrong, folds_keys=False)
        assert found is not None
        with pytest.raises(MalformedEnvelope):
            parts_of(found)
        assert not found.is_checked


def test_an_envelope_that_comes_again_is_read_in_parts_too() -> None:
    """RabbitMQ has added how often it was delivered."""
    counted = envelope.HEADERS | {"x-delivery-count": ("l", 1), "x-acquired-count": ("l", 1)}
    again = Properties(headers=counted, delivery_mode=2).encode()
    found = large_envelope(again, body_of(500), folds_keys=False)
    assert found is not None
    assert sum(len(part.items) for part in parts_of(found)) == 500


def test_what_is_no_large_envelope() -> None:
    """Few messages, a sender that waits for all numbers, a cancel, anything else."""
    small, silent = body_of(PART_MESSAGES), envelope.SILENT_PROPERTIES
    asks = Properties(headers=envelope.HEADERS, delivery_mode=2, reply_to="q").encode()
    cancel = envelope.encode_cancel(IDENTITY, range(1_000))
    other = Properties(headers={"a": text("b")}, delivery_mode=2).encode()
    others = [(silent, small), (asks, body_of(500)), (silent, cancel), (silent, b"")]
    others += [(other, body_of(500)), (b"?", body_of(500)), (silent, body_of(500)[:100])]
    for properties, body in others:
        assert large_envelope(properties, body, folds_keys=False) is None
