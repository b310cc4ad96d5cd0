"""How long a session's lock is believed in, whatever its server's clock says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.relay.machine.effects import Accepted, Arrival, Ended, Ending, Release, Send
from bridge.relay.machine.hand_over import HandOver
from bridge.relay.machine.hand_over_rules import HandOverRules
from bridge.relay.machine.lease import Lease
from bridge.relay.machine.renewals import MARGIN_MS

LOCKS_MS = st.sampled_from((5_000, 30_000, 60_000, 300_000))


def test_a_lease_is_renewed_at_half_its_time_and_given_up_before_its_end() -> None:
    """Its margin is smaller for a short lock."""
    long, short = Lease(60_000, 0), Lease(5_000, 0)
    assert (long.due_ms, long.ends_ms) == (30_000, 58_000)
    assert (short.due_ms, short.ends_ms) == (2_500, 4_000)
    assert short.is_held(3_999)
    assert not short.is_held(4_000)


def test_a_renewed_lease_ends_later_and_a_lost_one_is_over() -> None:
    """From when it was asked for, not from the answer."""
    lease = Lease(30_000, 0)
    lease.renewed(45_000, 15_000)
    assert lease.ends_ms == 43_000
    lease.lose()
    assert not lease.is_held(15_000)


@given(LOCKS_MS, st.integers(0, 3_600_000))
def test_a_server_whose_clock_is_behind_has_its_locks_renewed(lock_ms: int, skew_ms: int) -> None:
    """Never believed longer than it lasts, and believed for long enough to be renewed."""
    lease = Lease(lock_ms - skew_ms, 0)
    assert 0 < lease.due_ms < lease.ends_ms <= lock_ms - min(MARGIN_MS, lock_ms // 5)


@given(LOCKS_MS, st.lists(st.integers(0, 400), min_size=1, max_size=40))
def test_a_failed_renewal_is_made_again_until_the_lease_is_over(
    lock_ms: int, answers_ms: list[int]
) -> None:
    """Several times, each later than the last, and never behind its end."""
    lease = Lease(lock_ms, 0)
    tries = [lease.due_ms]
    for answer_ms in answers_ms:
        now_ms = tries[-1] + answer_ms
        if now_ms >= lease.ends_ms:
            break
        lease.failed(now_ms)
        assert now_ms < lease.due_ms <= lease.ends_ms
        tries.append(lease.due_ms)
    else:
        return
    assert len(tries) >= 3


@pytest.mark.parametrize("lost_by", ["time", "word"])
def test_nothing_is_sent_without_each_lease(lost_by: str) -> None:
    """What waits is given back, and the hand-over is begun again."""
    session, order = Lease(300_000, 0), Lease(5_000, 0)
    machine = HandOver(HandOverRules(is_ordered=True), 0, None, (session, order))
    machine.arrive([Arrival(1, 1)], 0)
    assert machine.take_effects() == [Send(1, (1,))]
    now_ms = 4_000 if lost_by == "time" else 1
    if lost_by == "word":
        order.lose()
    machine.arrive([Arrival(2, 2)], now_ms)
    assert machine.take_effects() == [Release((2,))]
    machine.settled((2,), now_ms)
    assert machine.take_effects() == []
    machine.sent(1, Accepted(), now_ms)
    machine.settled((1,), now_ms)
    (*_, ended) = machine.take_effects()
    assert isinstance(ended, Ended)
    assert ended.ending is Ending.AGAIN
