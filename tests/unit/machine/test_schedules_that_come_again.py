"""Scheduled messages whose arrivals come again after a takeover, due by then or not.

The model is that of `test_sequencer_under_kills`; here every message is scheduled, buckets take
their time, and kills are frequent.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.examples import examples
from tests.unit.machine.test_sequencer_under_kills import SequencerUnderKills, TopicUnderKills

KILLS = ["kill_bridge", "close_connection", "kill_broker"]
KILL = st.tuples(st.sampled_from(KILLS), st.tuples(st.integers(0, 3), st.integers(0, 2)))
SEND = st.tuples(st.just("send"), st.tuples(st.integers(1, 2), st.sampled_from([40, 4_000])))
PASS = st.tuples(st.just("pass_time"), st.tuples(st.sampled_from([30, 3_000])))
ARRIVE, CONFIRM = st.just(("arrive", ())), st.just(("confirm", (2,)))
OTHERS = [("take_acks", (2,)), ("make_buckets", ()), ("snapshot", ()), ("forget", ()), ("stop", ())]
OTHER = st.sampled_from(OTHERS)

STEPS = st.one_of(SEND, ARRIVE, ARRIVE, CONFIRM, CONFIRM, PASS, PASS, KILL, KILL, OTHER, OTHER)


def is_possible(state: SequencerUnderKills, step: str) -> bool:
    """Whether a step's precondition holds."""
    return {
        "arrive": state.next < len(state.rabbit.inbox),
        "confirm": bool(state.flights),
        "take_acks": bool(state.rabbit.acking),
        "make_buckets": bool(state.unplaced),
        "forget": state.next >= state.inbox_end and state.due_at_begin <= state.fired,
    }.get(step, True)


def run(state: SequencerUnderKills, steps: list[tuple[str, tuple[int, ...]]]) -> None:
    """Take the steps that are possible; everything must be there in the end."""
    state.choose(can_repeat=True)
    try:
        for step, values in steps:
            if is_possible(state, step):
                getattr(state, step)(*values)
                state.numbers_and_messages_belong_together()
    finally:
        state.teardown()


@given(st.lists(STEPS, min_size=8, max_size=40))
@settings(max_examples=examples(600), deadline=None)
def test_a_schedule_that_comes_again_is_stored_or_active_once(
    steps: list[tuple[str, tuple[int, ...]]],
) -> None:
    """It keeps its number; what is due goes into no bucket, and a copy in an old one is dropped."""
    run(SequencerUnderKills(), steps)


@given(st.lists(STEPS, min_size=8, max_size=40))
@settings(max_examples=examples(300), deadline=None)
def test_a_topics_schedule_that_comes_again_is_stored_or_active_once(
    steps: list[tuple[str, tuple[int, ...]]],
) -> None:
    """The same for each of its subscriptions."""
    run(TopicUnderKills(), steps)


def test_what_became_active_out_of_the_inbox_is_known_though_a_snapshot_forgot_it() -> None:
    """Its arrival is not acked yet when the term ends that activated it, and comes once more."""
    state = SequencerUnderKills()
    state.choose(can_repeat=True)
    state.send(count=1, delay=40)
    state.arrive()
    state.confirm(1)
    state.kill_bridge(in_journal=0, less=0)
    state.pass_time(3_000)
    state.arrive()
    state.forget()
    state.snapshot()
    state.kill_bridge(in_journal=100, less=0)
    state.arrive()
    state.numbers_and_messages_belong_together()
    state.teardown()
