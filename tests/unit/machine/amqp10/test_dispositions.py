"""Outcomes of many messages at once, told by a peer that tells them time and again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.amqp10.events import OutcomeArrived
from bridge.machine.amqp10.limits import DELIVERY_ID_FIRST
from bridge.wire.amqp10.performatives import Accepted, Disposition
from tests.unit.machine.amqp10.peer import Peer


def receiver(count: int) -> Peer:
    """Return a client to which so many messages are on their way, unsettled."""
    peer = Peer().open().begin(incoming_window=count + 1)
    link = peer.attach_receiver()
    peer.credit(count, incoming_window=count + 1)
    for number in range(count):
        link.send(number.to_bytes(4, "big"), b"m", is_settled=False)
    return peer


def told(peer: Peer, first: int, last: int, *, settled: bool = False) -> list[int]:
    """Tell the outcome of a range; returns the messages that it was news of, counted from 0."""
    begin, end = DELIVERY_ID_FIRST + first, DELIVERY_ID_FIRST + last
    events = peer.send(Disposition(True, begin, end, settled, Accepted()))
    return [
        delivery.id - DELIVERY_ID_FIRST
        for event in events
        if isinstance(event, OutcomeArrived)
        for delivery in event.deliveries
    ]


def test_an_outcome_is_told_once() -> None:
    """A repeated wide range makes no work: its deliveries are not reported again."""
    peer = receiver(5_000)

    assert told(peer, 0, 4_999) == list(range(5_000))
    assert [told(peer, 0, 4_999) for _ in range(1_000)] == [[]] * 1_000


@given(
    ranges=st.lists(st.tuples(st.integers(-5, 45), st.integers(-5, 45), st.booleans()), max_size=12)
)
def test_ranges(ranges: list[tuple[int, int, bool]]) -> None:
    """Each range tells of what is in it and was not told of before, in the order of sending."""
    count = 40
    peer = receiver(count)
    left = set(range(count))
    for first, last, settled in ranges:
        expected = sorted(each for each in left if first <= each <= last)
        left.difference_update(expected)
        assert told(peer, first, last, settled=settled) == expected
