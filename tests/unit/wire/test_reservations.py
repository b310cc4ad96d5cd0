"""The bytes by which numbers are reserved, and messages scheduled under them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire import commits, envelope
from bridge.wire.basic import Properties
from bridge.wire.commits import CommitContent
from bridge.wire.envelope import Item, MalformedEnvelope, Operation
from bridge.wire.reservations import (
    ReservedSchedules,
    decode_keys,
    decode_schedules,
    encode_keys,
)

BARE = Properties(delivery_mode=2).encode()
IDENTITY = bytes(range(16))


@given(st.lists(st.none() | st.binary(max_size=300), min_size=1, max_size=5))
def test_keys_are_read_as_they_were_written(keys: list[bytes | None]) -> None:
    """One for each message that is to have a number."""
    read = envelope.decode(encode_keys(IDENTITY, keys))
    assert (read.operation, read.identity) == (Operation.RESERVE, IDENTITY)
    assert decode_keys(read.sections) == keys


@given(st.binary(max_size=40))
def test_bytes_that_are_no_keys_are_refused(raw: bytes) -> None:
    """Whatever somebody publishes into an inbox is read, or refused by one error."""
    try:
        keys = decode_keys(raw)
    except MalformedEnvelope:
        return
    assert not keys or envelope.decode(encode_keys(IDENTITY, keys)).sections == raw


def test_a_commit_has_its_schedules_with_their_numbers() -> None:
    """Beside all else."""
    items = [Item(BARE, b"a", None, 5), Item(BARE, b"b", 7, 6)]
    content = CommitContent(cancels=(9,), schedules=ReservedSchedules(items, (3, 4)))
    read = commits.decode(envelope.decode(commits.encode(IDENTITY, content)).sections)
    assert read.cancels == (9,)
    assert tuple(read.schedules.numbers) == (3, 4)
    assert [(each.body, each.ttl_ms, each.scheduled_ms) for each in read.schedules.items] == [
        (b"a", None, 5),
        (b"b", 7, 6),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense",
        envelope.encode_move(IDENTITY, [1], [Item(BARE, b"no time")]),
        envelope.encode(Operation.SEND, IDENTITY, [Item(BARE, b"no number", None, 5)]),
    ],
)
def test_schedules_without_a_time_or_a_number_are_refused(raw: bytes) -> None:
    """A leader carries out all of a commit, or nothing."""
    with pytest.raises(MalformedEnvelope):
        decode_schedules(raw)
