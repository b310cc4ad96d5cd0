"""What waits for buckets goes on once: when its bucket is made, or at its own time."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from bridge.background.waits import Waits
from bridge.machine.inbox.wheel import BucketKey
from bridge.sidecar.leader.awaiting_buckets import BYTES_MAX, AwaitingBuckets

PLACES = [BucketKey(0, slot) for slot in range(3)]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(PLACES), st.integers(0, 50)),
        st.tuples(st.just("made"), st.sampled_from(PLACES), st.just(0)),
        st.tuples(st.just("look"), st.just(PLACES[0]), st.integers(0, 20)),
        st.tuples(st.just("go on"), st.just(PLACES[0]), st.integers(1, 3)),
    ),
    max_size=300,
)


@given(STEPS)
def test_everything_goes_on_once_and_not_before_its_bucket_or_its_time(
    steps: list[tuple[str, BucketKey, int]],
) -> None:
    """Buckets are wanted, named in health, and hold memory as long as something waits for them."""
    now_s = 0.0
    waits = Waits(clock=lambda: now_s)
    asked: list[int] = []
    awaiting = AwaitingBuckets("orders", waits, lambda: asked.append(1))
    waiting: dict[int, tuple[BucketKey, int]] = {}
    ready: list[int] = []
    done: list[int] = []
    now_ms = added = 0
    for step, where, value in steps:
        if step == "add":
            was_wanted = where in awaiting.wanted
            asked.clear()
            awaiting.add(where, now_ms + value, partial(done.append, added), 10)
            assert bool(asked) != was_wanted, "asked for once"
            waiting[added] = where, now_ms + value
            added += 1
        elif step == "made":
            awaiting.made(where)
            ready += [each for each, (place, _) in waiting.items() if place == where]
        elif step == "look":
            now_ms += value
            awaiting.look(now_ms)
            over = [(until, each) for each, (_, until) in waiting.items() if until <= now_ms]
            ready += [each for _, each in sorted(over)]
        else:
            for _ in range(min(value, len(awaiting.ready))):
                awaiting.ready.popleft()()
        waiting = {each: waits_for for each, waits_for in waiting.items() if each not in ready}
        assert [*done, *range(len(awaiting.ready))] == [*done, *range(len(ready) - len(done))]
        assert done == ready[: len(done)], "in their order"
        assert set(awaiting.wanted) == {place for place, _ in waiting.values()}
        now_s += 1.0
        wanted = len({place for place, _ in waiting.values()})
        assert len(waits.sentences()) <= wanted
        assert (waits.longest_s > 0) == bool(wanted)
        if waiting:
            next_ms = awaiting.next_ms
            assert next_ms is not None
            assert next_ms <= min(until for _, until in waiting.values())
        else:
            assert awaiting.next_ms is None


def test_waiting_messages_are_bounded_in_bytes() -> None:
    """There is room again when they have gone on."""
    awaiting = AwaitingBuckets("orders", Waits(), lambda: None)
    done: list[int] = []
    awaiting.add(PLACES[0], 100, partial(done.append, 1), BYTES_MAX)
    assert not awaiting.has_room
    awaiting.made(PLACES[0])
    assert awaiting.has_room


def test_nothing_is_left_at_the_end_of_a_term() -> None:
    """Health names nothing of it any more."""
    waits = Waits()
    awaiting = AwaitingBuckets("orders", waits, lambda: None)
    awaiting.add(PLACES[0], 100, lambda: None, 1)
    awaiting.close()
    awaiting.look(1_000)
    assert (awaiting.wanted, len(awaiting.ready), waits.longest_s) == ([], 0, 0)
