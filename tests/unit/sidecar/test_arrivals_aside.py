"""Arrivals that are set aside while a migration holds an entity: they keep their order."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.sidecar.leader.arrival_buffer import PREFETCH_MAX, ArrivalBuffer


def arrival(number: int) -> Delivery:
    """A delivery with this tag."""
    return Delivery(number, False, "", "", b"", b"body", "", cast("Channel", None), 0)


@given(st.lists(st.sampled_from(["come", "aside", "done", "back"]), max_size=40))
def test_what_was_set_aside_comes_first_and_in_its_order(happened: list[str]) -> None:
    """Nothing is forgotten, and the buffer knows while others have passed an arrival."""
    buffer, tags = ArrivalBuffer(PREFETCH_MAX), iter(range(1_000))
    waiting, aside, passed = list[int](), list[int](), set[int]()
    for what in [*happened, "back"]:
        if what == "come":
            tag = next(tags)
            buffer.add(arrival(tag))
            waiting.append(tag)
        elif what == "back":
            buffer.bring_back()
            waiting, aside = aside + waiting, []
        elif waiting:
            assert buffer.next().tag == waiting[0]
            tag = waiting.pop(0)
            if what == "aside":
                buffer.set_aside()
                aside.append(tag)
                passed.add(tag)
            else:
                buffer.done()
                passed.discard(tag)
        assert len(buffer) == len(waiting) + len(aside)
        assert buffer.has_next == bool(waiting)
        assert buffer.was_passed_over == bool(passed)
    while waiting:
        assert buffer.next().tag == waiting.pop(0)
        buffer.done()
    assert not buffer.was_passed_over
