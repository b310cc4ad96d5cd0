"""The list of a message's copies, and what a subscription's reader makes of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.model.duration import MAX_MS
from bridge.wire import copies, headers
from bridge.wire.basic import FieldValue, Table

OWN, OTHER, THIRD = b"own...", b"other.", b"third."

lists = st.dictionaries(st.binary(min_size=6, max_size=6), st.integers(0, 2**63 - 1), max_size=9)


@given(lists, st.integers(0, 2**16 - 1))
def test_a_list_is_read_as_it_was_written(numbers: dict[bytes, int], total: int) -> None:
    """Every copy is found by its short id, and no other."""
    listed = tuple(numbers.items())
    raw = copies.encode(listed, total)

    assert copies.decode(raw) == (listed, total)
    assert {short: copies.number_in(raw, short) for short in numbers} == numbers
    assert copies.number_in(raw, b"nobody") == numbers.get(b"nobody")


def test_parts_of_a_list_are_put_together() -> None:
    """A part that comes twice counts once."""
    first = copies.encode(((OWN, 1), (OTHER, 7)), 3)
    last = copies.encode(((OTHER, 7), (THIRD, 2)), 3)

    whole = ((OWN, 1), (OTHER, 7), (THIRD, 2))
    assert copies.decode(copies.joined(first, last)) == (whole, 3)


def stamped(raw: bytes, ttl_ms: int | None = None) -> Table:
    """Return the headers of a topic's message, the 40th there."""
    table: Table = {headers.SEQUENCE_NUMBER: ("l", 40), headers.COPIES: ("x", raw)}
    if ttl_ms is not None:
        table[headers.TIME_TO_LIVE] = ("l", ttl_ms)
    return table


def test_a_subscription_sees_its_own_number_and_the_topics_beside_it() -> None:
    """The list is gone, so what is published again from there stands for itself."""
    table = stamped(copies.encode(((OTHER, 7), (OWN, 3)), 2))

    found = copies.Reader(OWN, MAX_MS).own(table)

    assert found == {
        headers.SEQUENCE_NUMBER: ("l", 3),
        headers.ENQUEUED_SEQUENCE_NUMBER: ("l", 40),
    }
    assert copies.Reader(OWN, MAX_MS).own(found) == found


def test_a_message_that_lists_no_copy_for_a_subscription_has_no_number_there() -> None:
    """Nor one whose list is damaged."""
    for raw in (copies.encode(((OTHER, 7),), 1), b"", b"\0\1short"):
        assert headers.SEQUENCE_NUMBER not in copies.Reader(OWN, MAX_MS).own(stamped(raw))


def test_the_shorter_time_to_live_counts() -> None:
    """The message's (with its topic's), or the subscription's; for ever is none."""
    raw = copies.encode(((OWN, 3),), 1)
    table: dict[tuple[int | None, int], FieldValue | None] = {
        (None, MAX_MS): None,
        (500, MAX_MS): ("l", 500),
        (None, 300): ("l", 300),
        (500, 300): ("l", 300),
        (200, 300): ("l", 200),
    }
    for (ttl_ms, own_ms), expected in table.items():
        found = copies.Reader(OWN, own_ms).own(stamped(raw, ttl_ms))
        assert found.get(headers.TIME_TO_LIVE) == expected, (ttl_ms, own_ms)
