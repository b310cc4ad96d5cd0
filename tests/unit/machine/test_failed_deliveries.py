"""Counts of failed deliveries that a process has still to write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.browse.failed_deliveries import COUNTS_MAX, FailedDeliveries


@given(
    st.lists(st.tuples(st.sampled_from(["fail", "leave", "begin", "confirm"]), st.integers(1, 4)))
)
def test_the_last_count_of_each_message_is_written_or_waits(
    happened: list[tuple[str, int]],
) -> None:
    """This holds with any number of writes under way while messages fail and leave."""
    failed = FailedDeliveries()
    last: dict[int, int] = {}
    under_way: list[dict[int, int]] = []
    stream: dict[int, int] = {}
    for what, number in happened:
        if what == "fail":
            last[number] = last.get(number, 0) + 1
            failed.note(number, last[number])
        elif what == "leave":
            last.pop(number, None)
            stream.pop(number, None)
            failed.left(number)
            for each in under_way:
                each.pop(number, None)
        elif what == "begin":
            under_way.append(dict(failed.counts))
        elif under_way:
            each = under_way.pop(number % len(under_way))
            for key, count in each.items():
                stream[key] = max(count, stream.get(key, 0))
            failed.written(each)
        for key, count in last.items():
            assert max(stream.get(key, 0), failed.counts.get(key, 0)) == count
        assert not failed.counts.keys() - last.keys()


def test_the_latest_counts_are_kept() -> None:
    """Before the first peek nobody writes them."""
    failed = FailedDeliveries()
    for number in range(COUNTS_MAX + 2):
        failed.note(number, 1)
        failed.note(0, number + 1)
    assert len(failed.counts) == COUNTS_MAX
    assert failed.counts[0] == COUNTS_MAX + 2
    assert 1 not in failed.counts
    failed.note(-1, 1)
    assert -1 not in failed.counts
