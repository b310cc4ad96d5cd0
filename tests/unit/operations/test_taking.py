"""The machine that takes messages, case by case."""

from __future__ import annotations

from bridge.operations.taking import Taking
from bridge.operations.taking_effects import Received, TakingEnd, TakingEnded, Write
from bridge.operations.taking_rules import TakingRules
from bridge.relay.machine.effects import Accepted, Complete, Failed, Release, Send

LOCK_MS = 30_000


def received(key: int, *, is_wanted: bool = True, session: str = "") -> Received:
    """Return a message whose number is its key."""
    return Received(
        key, key, 5, is_wanted, group=session, is_ordered=bool(session), lock_ms=LOCK_MS
    )


def test_a_message_is_written_then_sent_then_completed() -> None:
    """Each only when the one before is confirmed."""
    taking = Taking(TakingRules(is_moving=True, is_written=True), 0)
    taking.receive([received(1)], 0)
    assert taking.take_effects() == [Write(1, (1,))]
    taking.written(1, 0)
    assert taking.take_effects() == [Send(1, (1,))]
    taking.sent(1, Accepted(), 0)
    assert taking.take_effects() == [Complete((1,))]
    taking.settled((1,), 0)
    taking.ran_dry(0)
    assert taking.take_effects() == [TakingEnded(TakingEnd.DONE, "")]
    assert (taking.account.taken, taking.account.completed) == (1, 1)


def test_what_is_not_wanted_is_held_and_given_back_at_the_end() -> None:
    """Given back at once it would come again at once."""
    taking = Taking(TakingRules(is_moving=False), 0)
    taking.receive([received(1, is_wanted=False), received(2), received(3, is_wanted=False)], 0)
    assert taking.take_effects() == [Complete((2,))]
    taking.settled((2,), 0)
    assert taking.take_effects() == []
    taking.ran_dry(0)
    assert taking.take_effects() == [Release((1, 3))]


def test_more_than_may_be_held_end_it() -> None:
    """The messages behind the limit are not received."""
    taking = Taking(TakingRules(is_moving=False, hold=1), 0)
    assert taking.room == 2
    taking.receive([received(1, is_wanted=False), received(2, is_wanted=False)], 0)
    assert taking.take_effects() == [Release((1, 2))]
    taking.settled((1, 2), 0)
    assert taking.take_effects() == [TakingEnded(TakingEnd.HELD, "")]


def test_no_more_than_the_limit_are_received() -> None:
    """Those in hand count."""
    taking = Taking(TakingRules(is_moving=True, limit=3), 0)
    taking.receive([received(1), received(2, is_wanted=False), received(3)], 0)
    assert taking.room == 1
    taking.receive([received(4)], 0)
    assert taking.room == 0


def test_a_stop_finishes_what_is_sent_and_gives_back_the_rest() -> None:
    """Messages that are written but not sent are given back."""
    rules = TakingRules(is_moving=True, is_written=True, messages_max=1)
    taking = Taking(rules, 0)
    taking.receive([received(each) for each in range(1, 7)], 0)
    taking.written(1, 0)
    assert taking.take_effects() == [
        *(Write(each, (each,)) for each in (1, 2, 3, 4)),
        Send(1, (1,)),
    ]
    taking.stop(0)
    assert taking.take_effects() == [Release((5, 6))]
    taking.written(2, 0)
    assert taking.take_effects() == [Release((2,))]
    taking.sent(1, Accepted(), 0)
    assert taking.take_effects() == [Complete((1,))]


def test_a_message_of_a_session_waits_for_the_one_before() -> None:
    """Otherwise one that fails would be overtaken."""
    taking = Taking(TakingRules(is_moving=True, messages_max=1), 0)
    taking.receive([received(1, session="a"), received(2, session="a")], 0)
    assert taking.take_effects() == [Send(1, (1,))]
    taking.sent(1, Accepted(), 0)
    assert taking.take_effects() == [Complete((1,)), Send(2, (2,))]


def test_what_was_confirmed_and_comes_again_is_not_sent_again() -> None:
    """Its completion was lost: it is completed alone, also when the command is ending."""
    taking = Taking(TakingRules(is_moving=True), 0)
    taking.receive([received(1), received(2)], 0)
    taking.sent(1, Accepted(), 0)
    taking.take_effects()
    taking.settled((1,), 0)
    taking.settled((2,), 0, is_sure=False)
    assert taking.account.not_completed == 1
    again = Received(9, 2, 5, lock_ms=LOCK_MS)
    taking.receive([again], 0)
    assert taking.take_effects() == [Complete((9,))]
    taking.settled((9,), 0)
    assert (taking.account.completed, taking.account.not_completed) == (2, 0)


def test_what_comes_again_while_it_is_sent_is_completed_by_its_new_lock() -> None:
    """The earlier one has ended; sent again it would be at the target twice."""
    taking = Taking(TakingRules(is_moving=True), 0)
    taking.receive([received(1), received(2)], 0)
    assert taking.take_effects() == [Send(1, (1, 2))]
    taking.receive([Received(9, 2, 5, lock_ms=LOCK_MS)], 0)
    assert taking.take_effects() == []
    taking.sent(1, Accepted(), 0)
    assert taking.take_effects() == [Complete((1, 9))]
    taking.receive([Received(10, 2, 5, lock_ms=LOCK_MS)], 0)
    assert taking.take_effects() == [Complete((10,))]
    taking.settled((9,), 0, is_sure=False)
    taking.settled((1, 10), 0)
    taking.ran_dry(0)
    assert taking.take_effects() == [TakingEnded(TakingEnd.DONE, "")]
    account = taking.account
    assert (account.looked_at, account.taken, account.completed) == (2, 2, 2)
    assert account.not_completed == 0


def test_what_was_sent_without_an_answer_and_is_given_back_is_in_doubt() -> None:
    """A copy may be at the target."""
    taking = Taking(TakingRules(is_moving=True), 0)
    taking.receive([received(1)], 0)
    taking.sent(1, Failed("the link has ended"), 0)
    taking.stop(0)
    taking.settled((1,), 0)
    assert (taking.account.given_back, taking.account.in_doubt) == (1, 1)


def test_a_rate_bounds_what_is_removed_too() -> None:
    """One second's worth at once, then one after the other."""
    taking = Taking(TakingRules(is_moving=False, rate_per_s=2), 0)
    taking.receive([received(each) for each in range(1, 6)], 0)
    taking.take_effects()
    assert taking.account.taken == 2
    assert taking.due_ms(0) == 500
    taking.tick(500)
    assert taking.account.taken == 3


def test_what_was_not_renewed_in_time_is_given_back_and_not_sent() -> None:
    """Sent after its lock has ended, it would come again, and be there twice."""
    taking = Taking(TakingRules(is_moving=True, rate_per_s=1, messages_max=1), 0)
    taking.receive([received(1), received(2), received(3, is_wanted=False)], 0)
    assert taking.take_effects() == [Send(1, (1,))]
    for now_ms in (500, LOCK_MS // 2):
        taking.renewal_failed((1, 2, 3), now_ms)
    taking.sent(1, Failed("not reached", is_in_doubt=False), LOCK_MS // 2)
    taking.tick(LOCK_MS - 2_000)
    found = [each for each in taking.take_effects() if isinstance(each, Release | Send)]
    assert Release((3, 1, 2)) in found
    assert not any(isinstance(each, Send) for each in found)


def test_a_session_goes_on_with_the_counts_and_the_rate_of_the_one_before() -> None:
    """What is said at the end is of all of them, and none begins with a second's worth anew."""
    first = Taking(TakingRules(is_moving=False, rate_per_s=2, limit=1), 0)
    first.receive([received(1)], 0)
    first.settled((1,), 0)
    assert first.take_effects()[-1] == TakingEnded(TakingEnd.DONE, "")
    second = Taking(TakingRules(is_moving=False, rate_per_s=2, limit=4), 0, first)
    assert second.room == 3
    second.receive([received(each) for each in (2, 3)], 0)
    assert (second.account.taken, second.account.completed, second.due_ms(0)) == (2, 1, 500)


def test_a_lock_that_ends_when_no_more_came_has_the_source_asked_again() -> None:
    """The message is meant, and was not taken: the command is not done."""
    taking = Taking(TakingRules(is_moving=False, rate_per_s=1), 0)
    taking.receive([received(1), received(2)], 0)
    assert taking.take_effects() == [Complete((1,))]
    taking.settled((1,), 0)
    taking.ran_dry(0)
    taking.lock_lost((2,), 0)
    assert taking.take_effects() == []
    assert taking.room
    taking.receive([Received(9, 2, 5, lock_ms=LOCK_MS)], 1_000)
    assert taking.take_effects() == [Complete((9,))]


def test_what_is_given_back_when_no_more_came_is_asked_for_again() -> None:
    """Its lock was not renewed in time: the command is not done."""
    taking = Taking(TakingRules(is_moving=True), 0)
    taking.receive([received(1)], 0)
    assert taking.take_effects() == [Send(1, (1,))]
    taking.ran_dry(0)
    taking.renewal_failed((1,), LOCK_MS // 2)
    taking.sent(1, Failed("not reached", is_in_doubt=False), LOCK_MS - 3_000)
    taking.tick(LOCK_MS - 2_000)
    assert Release((1,)) in taking.take_effects()
    taking.settled((1,), LOCK_MS - 2_000)
    assert taking.take_effects() == []
    assert taking.room


def test_what_is_not_surely_completed_when_no_more_came_is_asked_for_again() -> None:
    """Left there it would be sent a second time by the next command."""
    taking = Taking(TakingRules(is_moving=True), 0)
    taking.receive([received(1)], 0)
    taking.sent(1, Accepted(), 0)
    taking.ran_dry(0)
    taking.take_effects()
    taking.settled((1,), 0, is_sure=False)
    assert taking.take_effects() == []
    taking.receive([Received(9, 1, 5, lock_ms=LOCK_MS)], 0)
    assert taking.take_effects() == [Complete((9,))]
    taking.settled((9,), 0)
    taking.ran_dry(0)
    assert taking.take_effects() == [TakingEnded(TakingEnd.DONE, "")]
    assert (taking.account.taken, taking.account.not_completed) == (1, 0)
