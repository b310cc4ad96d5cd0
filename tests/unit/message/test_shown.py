"""Messages that one process shows another."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.message import shown
from bridge.message.received import Received
from bridge.wire.basic import Properties
from bridge.wire.record import Record
from bridge.wire.reply import Done, decode_reply, encode_found

LONGS = st.integers(-(2**63), 2**63 - 1)

records = st.builds(
    Record,
    st.builds(Properties, message_id=st.none() | st.text(max_size=9)),
    st.binary(max_size=40),
)
messages = st.builds(
    Received,
    record=records,
    sequence_number=LONGS,
    enqueued_ms=st.integers(0, 2**62),
    delivery_count=st.integers(0, 2**31),
    time_to_live_ms=st.none() | st.integers(0, 2**62),
    dead_letter=st.none() | st.tuples(st.text(max_size=9), st.text(max_size=9)),
    is_deferred=st.booleans(),
)
ONE = Received(
    record=Record(Properties(message_id="m-1"), b"b"),
    sequence_number=1,
    enqueued_ms=2,
    delivery_count=3,
)


@given(st.lists(messages, max_size=4))
def test_what_is_shown_is_read(found: list[Received]) -> None:
    """Any message, in any number."""
    assert shown.decode(shown.encode(found)) == found


@given(messages)
def test_a_message_travels_in_a_reply(message: Received) -> None:
    """With its properties' bytes."""
    reply = decode_reply(encode_found(shown.encode_one(message)))
    assert isinstance(reply, Done)
    assert shown.decode_one(reply.content) == message


@pytest.mark.parametrize("state", ["is_deferred", "is_scheduled"])
def test_a_lock_and_a_state_are_shown(state: str) -> None:
    """The lock's token and its end; that a message is set aside, or waits."""
    message = Received(
        record=ONE.record,
        sequence_number=1,
        enqueued_ms=2,
        delivery_count=3,
        lock_token=UUID(int=7),
        locked_until_ms=9,
        **{state: True},
    )
    assert shown.decode(shown.encode([message])) == [message]


@pytest.mark.parametrize("cut", [1, 4, 5, 40])
def test_what_is_no_message_is_refused(cut: int) -> None:
    """This holds for all publishers."""
    raw = shown.encode([ONE])
    with pytest.raises(ValueError):  # noqa: PT011
        shown.decode(raw[:-cut])
    with pytest.raises(ValueError):  # noqa: PT011
        shown.decode_one(raw[4:-cut])
