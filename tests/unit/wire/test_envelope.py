"""Envelopes: the size of an item is known before the envelope is encoded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.envelope import IDENTITY_BYTES, Item, Operation, encode, item_bytes

TIMES = st.none() | st.integers(0, 2**63 - 1)
ITEMS = st.builds(
    Item,
    properties=st.binary(max_size=20),
    body=st.binary(max_size=20),
    ttl_ms=TIMES,
    scheduled_ms=TIMES,
    key=st.none() | st.binary(max_size=9),
    digest=st.none() | st.binary(min_size=16, max_size=16),
    source=st.none() | st.binary(min_size=7, max_size=7),
)


@given(st.lists(ITEMS, max_size=4))
def test_the_size_of_an_item_is_what_an_envelope_grows_by(items: list[Item]) -> None:
    """This holds for all fields."""
    empty = encode(Operation.SEND, bytes(IDENTITY_BYTES), [])
    whole = encode(Operation.SEND, bytes(IDENTITY_BYTES), items)
    assert len(whole) - len(empty) == sum(item_bytes(each) for each in items)
