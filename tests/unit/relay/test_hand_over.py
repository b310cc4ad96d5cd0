"""The hand-over's machine: what is sent, what is completed, and what is given back."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.relay.machine.allowance import Allowance
from bridge.relay.machine.attempts import WAIT_MS
from bridge.relay.machine.effects import (
    Accepted,
    Arrival,
    Complete,
    DeadLetter,
    Ended,
    Ending,
    Failed,
    Refused,
    Release,
    Renew,
    Send,
)
from bridge.relay.machine.expired import KEPT_MS
from bridge.relay.machine.hand_over import HandOver
from bridge.relay.machine.hand_over_rules import HandOverRules

AWAY = Failed("the target is away")
SIZE = Refused("amqp:link:message-size-exceeded", "too large")


def arrivals(*keys: int, **options: Any) -> list[Arrival]:
    """Messages with their keys as numbers."""
    return [Arrival(each, each, **options) for each in keys]


def hand_over(**rules: Any) -> HandOver:
    """Return a machine at the time 0."""
    return HandOver(HandOverRules(**rules), 0)


def test_a_message_is_completed_when_the_target_has_confirmed_it() -> None:
    """Not before."""
    machine = hand_over()
    machine.arrive(arrivals(1, 2), 0)
    assert machine.take_effects() == [Send(1, (1, 2))]
    assert machine.unconfirmed.total() == 2
    machine.sent(1, Accepted(), 1)
    assert machine.take_effects() == [Complete((1, 2))]
    machine.settled((1, 2), 2)
    assert (machine.unconfirmed.total(), machine.relayed[""], machine.room) == (0, 2, 500)


def test_credit_is_what_may_be_in_hand() -> None:
    """Messages that are not completed yet count."""
    machine = hand_over(credit=3)
    machine.arrive(arrivals(1, 2), 0)
    machine.sent(1, Accepted(), 0)
    assert machine.room == 1
    machine.settled((1, 2), 0)
    assert machine.room == 3


def test_batches_are_under_way_together() -> None:
    """What comes while all are under way shares the next one."""
    machine = hand_over(batches_max=2)
    for each in (1, 2, 3, 4):
        machine.arrive(arrivals(each), 0)
    assert machine.take_effects() == [Send(1, (1,)), Send(2, (2,))]
    machine.sent(2, Accepted(), 0)
    assert machine.take_effects() == [Complete((2,)), Send(3, (3, 4))]


def test_a_batch_has_one_group_and_no_more_than_the_target_takes() -> None:
    """Bytes, messages and group each end one."""
    machine = hand_over(batches_max=9, messages_max=2, bytes_max=10)
    mixed = [Arrival(1, 1, group="A"), Arrival(2, 2, group="B")]
    machine.arrive(mixed, 0)
    machine.arrive(arrivals(3, 4, size_bytes=6), 0)
    machine.arrive(arrivals(5, 6, 7), 0)
    batches = [each.keys for each in machine.take_effects() if isinstance(each, Send)]
    assert batches == [(1,), (2,), (3,), (4,), (5, 6), (7,)]


def test_in_an_order_nothing_later_is_sent_before_what_has_failed() -> None:
    """One batch is under way; it goes again first, after a wait that grows."""
    machine = hand_over(is_ordered=True)
    machine.arrive(arrivals(1), 0)
    machine.arrive(arrivals(2, 3), 0)
    assert machine.take_effects() == [Send(1, (1,))]
    machine.sent(1, AWAY, 10)
    machine.tick(10 + WAIT_MS - 1)
    assert machine.take_effects() == []
    assert machine.due_ms(11) == 10 + WAIT_MS
    machine.tick(10 + WAIT_MS)
    (again,) = machine.take_effects()
    assert again == Send(2, (1, 2, 3))


def test_a_busy_target_has_the_pause_that_it_asks_for() -> None:
    """And its own wait if that is longer."""
    machine = hand_over()
    machine.arrive(arrivals(1), 0)
    machine.sent(1, Failed("busy", 4_000), 0)
    machine.take_effects()
    machine.tick(3_999)
    assert machine.take_effects() == []
    machine.tick(4_000)
    assert machine.take_effects() == [Send(2, (1,))]


def test_a_busy_targets_pause_is_kept_when_it_answers_another_batch() -> None:
    """The other one was under way before."""
    machine = hand_over(batches_max=2)
    machine.arrive(arrivals(1), 0)
    machine.arrive(arrivals(2), 0)
    machine.sent(1, Failed("busy", 4_000), 0)
    machine.sent(2, Accepted(), 10)
    machine.arrive(arrivals(3), 20)
    assert machine.take_effects()[2:] == [Complete((2,))]
    assert machine.due_ms(20) == 4_000
    machine.tick(4_000)
    assert machine.take_effects() == [Send(3, (1, 3))]


def test_what_is_expired_by_this_clock_is_given_back_after_a_while() -> None:
    """A source whose clock is behind would give it again at once, and so without an end."""
    machine = hand_over()
    machine.arrive(arrivals(1, fate="expired", lock_ms=30_000), 0)
    machine.arrive(arrivals(2, 3, lock_ms=30_000), 0)
    assert machine.take_effects() == [Send(1, (2, 3))]
    machine.withdraw(1, (3,), 0)
    assert machine.take_effects() == []
    assert machine.due_ms(1) == KEPT_MS
    machine.tick(KEPT_MS)
    assert machine.take_effects() == [Release((1, 3))]


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("is_ordered", [False, True])
def test_what_is_not_renewed_in_time_is_given_back(*, is_ordered: bool, is_answered: bool) -> None:
    """Before its lock ends: it would be sent, and come again. Nor does it when nobody answers."""
    machine = hand_over(is_ordered=is_ordered, batches_max=1, messages_max=1)
    machine.arrive(arrivals(1, 2, lock_ms=30_000), 0)
    machine.arrive(arrivals(3), 0)
    assert machine.take_effects() == [Send(1, (1,))]
    assert machine.due_ms(0) == 15_000
    for now_ms in range(15_000, 28_000, 500):
        machine.tick(now_ms)
        for effect in machine.take_effects():
            assert effect == Renew((1, 2))
            if is_answered:
                machine.renewal_failed(effect.keys, now_ms)
    assert machine.due_ms(27_900) == (27_750 if is_answered else 28_000)
    machine.tick(28_000)
    machine.sent(1, AWAY, 28_100)
    given_back = [(2, 3), (1,)] if is_ordered else [(2,), (1,)]
    assert machine.take_effects() == [Release(each) for each in given_back]
    assert machine.is_ending == is_ordered


@pytest.mark.parametrize("is_ordered", [False, True])
def test_what_comes_again_while_it_is_sent_is_completed_by_its_new_lock(
    *, is_ordered: bool
) -> None:
    """The earlier one has ended; sent again it would be at the target twice."""
    machine = hand_over(is_ordered=is_ordered)
    machine.arrive(arrivals(1, 2, lock_ms=30_000), 0)
    assert machine.take_effects() == [Send(1, (1, 2))]
    machine.arrive([Arrival(9, 2, lock_ms=30_000)], 1)
    assert machine.take_effects() == [Release((2,))]
    machine.sent(1, Accepted(), 2)
    assert machine.take_effects() == [Complete((1, 9))]
    machine.arrive([Arrival(10, 2, lock_ms=30_000)], 3)
    assert machine.take_effects() == [Complete((10,))]
    machine.settled((2, 9), 4, is_sure=False)
    machine.settled((1, 10), 4)
    assert (machine.relayed[""], machine.room) == (2, 500)


def test_what_is_early_waits_with_its_lock_until_it_is_admitted() -> None:
    """Nothing of it is sent before; one whose lock ends comes again, and ends nothing."""
    machine = hand_over(is_ordered=True, credit=3)
    machine.arrive(arrivals(2, 3, lock_ms=30_000), 0, is_early=True)
    assert (machine.take_effects(), machine.room, machine.unconfirmed.total()) == ([], 1, 2)
    machine.tick(15_000)
    assert machine.take_effects() == [Renew((2, 3))]
    machine.renewed((2, 3), 30_000, 15_000)
    machine.lock_lost((3,), 15_001)
    machine.arrive(arrivals(1), 15_002)
    machine.admit((2, 3), 15_003)
    assert machine.take_effects() == [Send(1, (1,))]
    machine.sent(1, Accepted(), 15_004)
    assert machine.take_effects() == [Complete((1,)), Send(2, (2,))]
    assert not machine.is_ending


def test_what_is_early_makes_room_from_behind_and_goes_back_at_the_end() -> None:
    """What it waits for may need the room."""
    machine = hand_over(is_ordered=True, credit=3)
    machine.arrive(arrivals(3, 5, 4), 0, is_early=True)
    assert machine.room == 0
    machine.give_room(1)
    assert machine.take_effects() == [Release((5,))]
    machine.settled((5,), 2)
    assert machine.room == 1
    machine.stop(3)
    assert machine.take_effects() == [Release((3, 4))]


def test_what_is_early_and_comes_again_is_held_by_its_new_lock() -> None:
    """Once, in its place."""
    machine = hand_over(is_ordered=True)
    machine.arrive(arrivals(2, lock_ms=30_000), 0, is_early=True)
    machine.arrive([Arrival(9, 2, lock_ms=30_000)], 1, is_early=True)
    assert machine.take_effects() == [Release((2,))]
    machine.admit((2, 9), 2)
    assert machine.take_effects() == [Send(1, (9,))]


def test_what_was_confirmed_and_comes_again_is_only_completed() -> None:
    """Its completion was lost. Of another time it is another message: its source was made anew."""
    machine = hand_over()
    machine.arrive(arrivals(1, enqueued_ms=5), 0)
    machine.sent(1, Accepted(), 1)
    machine.settled((1,), 2, is_sure=False)
    machine.take_effects()
    machine.arrive([Arrival(2, 1, enqueued_ms=5), Arrival(3, 1, enqueued_ms=6)], 3)
    assert machine.take_effects() == [Complete((2,)), Send(2, (3,))]


@pytest.mark.parametrize("is_ordered", [False, True])
def test_what_was_on_its_way_is_not_sent_again_without_its_lock(*, is_ordered: bool) -> None:
    """It comes again by itself, and would be at the target twice; an order is begun again."""
    machine = hand_over(is_ordered=is_ordered)
    machine.arrive(arrivals(1, lock_ms=30_000), 0)
    assert machine.take_effects() == [Send(1, (1,))]
    machine.lock_lost((1,), 10)
    machine.sent(1, AWAY, 20)
    assert machine.take_effects() == [Release((1,))]
    machine.settled((1,), 30)
    assert bool(machine.take_effects()) == is_ordered
    machine.tick(20 + WAIT_MS)
    assert machine.take_effects() == []


def test_a_short_lock_has_its_renewal_made_again_before_it_is_given_up() -> None:
    """One renewal that fails gives no message back."""
    machine = hand_over(batches_max=1)
    machine.arrive(arrivals(1), 0)
    machine.arrive(arrivals(2, lock_ms=5_000), 0)
    machine.tick(2_500)
    assert machine.take_effects() == [Send(1, (1,)), Renew((2,))]
    machine.renewal_failed((2,), 3_000)
    due_ms = machine.due_ms(3_000)
    assert due_ms is not None
    machine.tick(due_ms)
    assert machine.take_effects() == [Renew((2,))]
    machine.renewed((2,), 5_000, due_ms)
    machine.tick(4_000)
    assert machine.take_effects() == []


def test_what_is_renewed_late_is_sent_again_after_all() -> None:
    """Its lock was given up, and the source says that it lasts."""
    machine = hand_over()
    machine.arrive(arrivals(1, lock_ms=5_000), 0)
    machine.tick(4_000)
    machine.renewed((1,), 5_000, 4_100)
    machine.sent(1, AWAY, 4_200)
    machine.take_effects()
    machine.tick(4_200 + WAIT_MS)
    assert machine.take_effects() == [Send(2, (1,))]


def test_what_is_expired_stays_locked_until_it_is_given_back() -> None:
    """A lock that ends counts a delivery, and a short one ends before that."""
    machine = hand_over()
    machine.arrive(arrivals(1, fate="expired", lock_ms=5_000), 0)
    assert machine.due_ms(0) == 2_500
    machine.tick(2_500)
    assert machine.take_effects() == [Renew((1,))]
    machine.renewed((1,), 5_000, 2_500)
    machine.tick(KEPT_MS)
    assert machine.take_effects() == [Release((1,))]


def test_what_is_expired_is_given_back_at_once_when_the_hand_over_ends() -> None:
    """Nothing is in hand after the end; a lost source has nothing to be given back."""
    stopped, lost = hand_over(), hand_over()
    for machine in (stopped, lost):
        machine.arrive(arrivals(1, fate="expired"), 0)
    stopped.stop(1)
    assert stopped.take_effects() == [Release((1,))]
    lost.source_lost("the session is lost", 1)
    assert lost.take_effects() == [Ended(Ending.AGAIN, "the session is lost")]


def test_what_a_target_refuses_is_found_by_halves() -> None:
    """The others are sent; with `dead-letter` the one leaves with the target's words."""
    machine = hand_over(dead_letters_refused=True)
    machine.arrive(arrivals(1, 2, 3, 4), 0)
    completed, dead = set(), []
    effects = machine.take_effects()
    for _ in range(20):
        for each in effects:
            if isinstance(each, Send):
                machine.sent(each.batch, SIZE if 3 in each.keys else Accepted(), 0)
            elif isinstance(each, Complete):
                completed |= set(each.keys)
            elif isinstance(each, DeadLetter):
                dead.append(each)
        effects = machine.take_effects()
    assert completed == {1, 2, 4}
    assert dead == [DeadLetter((3,), SIZE.condition, SIZE.description)]
    assert machine.refused[""] == 1


def test_a_refusal_stops_the_route_where_it_says_so() -> None:
    """The refused message is given back with the rest, and the cause is the target's."""
    machine = hand_over(is_ordered=True)
    machine.arrive(arrivals(1), 0)
    machine.arrive(arrivals(2), 0)
    machine.sent(1, SIZE, 0)
    assert machine.take_effects()[1:] == [Release((1, 2))]
    machine.settled((1, 2), 0)
    assert machine.take_effects() == [
        Ended(Ending.REFUSED, "too large (amqp:link:message-size-exceeded)")
    ]


def test_what_cannot_be_sent_at_all_is_refused_like_it() -> None:
    """It never goes to the target."""
    machine = hand_over(dead_letters_refused=True)
    machine.arrive(arrivals(1, fate="refused", reason="r", description="d"), 0)
    assert machine.take_effects() == [DeadLetter((1,), "r", "d")]


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_target_that_is_away_for_too_long_gives_everything_back(is_ordered: bool) -> None:
    """By `released`; until then locks are renewed."""
    machine = hand_over(outage_ms=60_000, is_ordered=is_ordered)
    machine.arrive(arrivals(1, 2, lock_ms=30_000), 0)
    renewed = now_ms = 0
    released: tuple[int, ...] = ()
    while not released:
        for each in machine.take_effects():
            if isinstance(each, Send):
                machine.sent(each.batch, AWAY, now_ms)
            elif isinstance(each, Renew):
                renewed += 1
                machine.renewed(each.keys, 30_000, now_ms)
            elif isinstance(each, Release):
                released = each.keys
        if not released:
            now_ms = machine.due_ms(now_ms) or pytest.fail("nothing is due")
            machine.tick(now_ms)
    assert (released, renewed, now_ms) == ((1, 2), 3, 60_000)
    machine.settled(released, now_ms)
    assert machine.take_effects() == [Ended(Ending.OUTAGE, AWAY.cause)]


@pytest.mark.parametrize(
    ("dead_letters", "ending"), [(False, Ending.REFUSED), (True, Ending.OUTAGE)]
)
def test_a_target_that_refuses_the_relay_for_too_long_is_told_apart(
    dead_letters: bool, ending: Ending
) -> None:
    """Everything is given back: no message is at fault, and one may be there already."""
    machine = hand_over(outage_ms=1_000, dead_letters_refused=dead_letters)
    machine.arrive(arrivals(1, 2), 0)
    machine.sent(1, Failed("no right", is_of_rights=True), 0)
    machine.take_effects()
    machine.tick(1_000)
    released = [each for each in machine.take_effects() if isinstance(each, Release)]
    assert released == [Release((1, 2))]
    machine.settled((1, 2), 1_000)
    assert machine.take_effects() == [Ended(ending, "no right")]
    assert machine.refused.total() == 0


def test_a_stop_finishes_what_is_under_way() -> None:
    """And gives the rest back; what comes afterwards goes back at once."""
    machine = hand_over(batches_max=1)
    machine.arrive(arrivals(1), 0)
    machine.arrive(arrivals(2), 0)
    machine.stop(0)
    assert machine.take_effects() == [Send(1, (1,)), Release((2,))]
    machine.arrive(arrivals(3), 0)
    assert machine.take_effects() == [Release((3,))]
    machine.settled((2, 3), 0)
    machine.sent(1, Accepted(), 0)
    assert machine.take_effects() == [Complete((1,))]
    machine.settled((1,), 0)
    assert machine.take_effects() == [Ended(Ending.STOPPED, "it was stopped")]


def test_a_lost_lock_is_not_sent() -> None:
    """It comes again by itself; in an order everything after it is given back."""
    loose, ordered = hand_over(batches_max=1), hand_over(is_ordered=True)
    for machine in (loose, ordered):
        machine.arrive(arrivals(1), 0)
        machine.arrive(arrivals(2, 3), 0)
        machine.take_effects()
        machine.lock_lost((2,), 0)
    assert loose.take_effects() == []
    assert ordered.take_effects() == [Release((3,))]
    loose.sent(1, Accepted(), 0)
    assert loose.take_effects() == [Complete((1,)), Send(2, (3,))]


def test_a_rate_is_kept() -> None:
    """What comes in a second at once, then one by one."""
    machine = hand_over(rate_per_s=2.0, batches_max=9)
    machine.arrive(arrivals(1, 2, 3, 4), 0)
    assert machine.take_effects() == [Send(1, (1, 2))]
    assert machine.due_ms(0) == 500
    machine.tick(500)
    assert machine.take_effects() == [Send(2, (3,))]
    machine.tick(1_000)
    assert machine.take_effects() == [Send(3, (4,))]


def test_a_message_with_another_fate_is_only_settled() -> None:
    """Completed, dead-lettered, or given back."""
    machine = hand_over()
    fates: list[Any] = ["complete", "dead-letter", "release"]
    machine.arrive([Arrival(each, each, fate) for each, fate in enumerate(fates)], 0)
    assert machine.take_effects() == [Complete((0,)), DeadLetter((1,), "", ""), Release((2,))]


def test_several_hand_overs_share_a_rate() -> None:
    """The sessions of a route send as many together as the route may."""
    rules = HandOverRules(is_ordered=True, rate_per_s=2.0)
    allowance = Allowance(2.0, 0)
    machines = [HandOver(rules, 0, allowance) for _ in range(2)]
    for machine in machines:
        machine.arrive(arrivals(1), 0)
    for machine in machines:
        machine.sent(1, Accepted(), 0)
        machine.arrive(arrivals(2), 0)
        machine.take_effects()
    assert [machine.due_ms(0) for machine in machines] == [500, 500]
    for machine in machines:
        machine.tick(500)
    assert machines[0].take_effects() == [Send(2, (2,))]
    assert machines[1].take_effects() == []
    assert machines[1].due_ms(500) == 1_000
