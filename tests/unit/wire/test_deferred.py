"""What bridges say to each other about deferred messages."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.deferred import (
    MalformedAsk,
    decode_ask,
    decode_locks,
    encode_ask,
    encode_locks,
)
from bridge.wire.reply import Done, decode_reply, encode_done

LONGS = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(LONGS), st.booleans())
def test_an_ask_is_read_as_it_was_written(numbers: list[int], of_dead_letters: bool) -> None:
    """Numbers in their order, and whose they are."""
    body = encode_ask(numbers, of_dead_letters=of_dead_letters)
    assert decode_ask(body) == (numbers, of_dead_letters)


@pytest.mark.parametrize("body", [b"", b"\x02", b"\x00\x01", b"\x00" + bytes(7)])
def test_what_is_no_ask_is_refused(body: bytes) -> None:
    """This holds for all publishers."""
    with pytest.raises(MalformedAsk):
        decode_ask(body)


@given(st.lists(st.tuples(st.uuids(), st.integers(0, 2**62))))
def test_locks_travel_in_a_reply(locks: list[tuple[UUID, int]]) -> None:
    """Tokens and ends come back as they were."""
    reply = decode_reply(encode_done(encode_locks(locks)))
    assert isinstance(reply, Done)
    assert decode_locks(reply.numbers) == locks
