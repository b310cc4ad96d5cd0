"""Receiving before RabbitMQ 4.3: windows that fill, and what is kept for the next receiver."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.credit.buffer import Fetched
from bridge.machine.credit.effects import Close, Deliver, Get, Look, Open, Return
from bridge.machine.credit.gets import (
    CONSUMERS_MAX,
    CROWDED_S,
    HELD_MIN,
    KEEP_S,
    QUIET_S,
    Gets,
)
from tests.unit.machine.credit.rabbitmq import QueueModel


def asking(count: int, *, is_clustered: bool = False) -> Gets[Fetched]:
    """A receiver that has asked for so many at 1.0 s."""
    gets: Gets[Fetched] = Gets(is_clustered=is_clustered)
    gets.ask(1, count, 1.0)
    return gets


def test_a_window_is_as_large_as_what_is_ready() -> None:
    """So it fills, and can be closed without a message on its way."""
    gets = asking(10)
    assert gets.plan(1.0) == [Get(1)]
    assert gets.arrived(1, Fetched(1, 1), 1.0) == 1
    gets.counted(4)
    assert gets.plan(1.0) == [Open(2, 4)]
    assert [gets.arrived(2, Fetched(number, 2), 1.0) for number in range(2, 6)] == [1] * 4
    assert gets.plan(1.0) == [Close(2), Get(3)]


def test_on_an_empty_queue_a_window_of_one_message_waits() -> None:
    """However many are asked for."""
    gets = asking(10)
    gets.plan(1.0)
    gets.empty(1)
    assert gets.plan(1.0) == [Open(2, 1)]


def test_what_was_released_goes_to_the_next_receiver_by_number() -> None:
    """It would be counted as a failed delivery if it went back."""
    gets: Gets[Fetched] = Gets()
    for number in (7, 3, 5):
        gets.released(Fetched(number, 0), 1.0)
    gets.ask(1, 4, 1.5)
    *delivered, get = gets.plan(1.5)
    assert [(each.receiver, each.message.number) for each in delivered] == [(1, 3), (1, 5), (1, 7)]
    assert all(isinstance(each, Deliver) for each in delivered)
    assert get == Get(1)


def test_what_nobody_asks_for_goes_back_after_five_seconds() -> None:
    """Others may wait for it."""
    gets: Gets[Fetched] = Gets()
    gets.released(Fetched(1, 0), 1.0)
    gets.released(Fetched(2, 0), 3.0)
    assert gets.due_s() == 1.0 + KEEP_S
    assert gets.plan(3.0) == []
    (back,) = gets.plan(1.0 + KEEP_S)
    assert isinstance(back, Return)
    assert back.message.number == 1
    assert gets.due_s() == 3.0 + KEEP_S


def test_room_that_nobody_wants_is_closed_when_nothing_arrives() -> None:
    """Not while a message may be on its way: it would be counted."""
    gets = asking(1)
    gets.plan(1.0)
    gets.empty(1)
    assert gets.plan(1.0) == [Open(2, 1)]
    gets.withdraw(1)
    gets.plan(1.0)
    due_s = gets.due_s()
    assert due_s is not None
    assert due_s <= 1.0 + QUIET_S
    assert gets.plan(1.0 + QUIET_S) == [Close(2)]


def test_in_a_cluster_messages_are_got_one_by_one() -> None:
    """As many as there may be consumers."""
    gets = asking(20, is_clustered=True)
    assert gets.plan(1.0) == [Look(1)]
    gets.looked(1, 100, 1)
    effects = gets.plan(1.0)
    assert effects == [Get(fetch) for fetch in range(2, 2 + (CONSUMERS_MAX - 1 + 1) // 2)]


def test_in_a_cluster_a_few_are_got_although_others_have_all_the_consumers() -> None:
    """Else a bridge beside greedy natives would have nothing."""
    gets = asking(20, is_clustered=True)
    gets.plan(1.0)
    gets.looked(1, 100, 40)
    assert gets.plan(1.0) == [Get(fetch) for fetch in range(2, 2 + HELD_MIN)]


def test_in_a_crowd_rabbitmq_is_asked_again_after_a_while() -> None:
    """Or when a message is settled here."""
    gets = asking(20, is_clustered=True)
    gets.plan(1.0)
    gets.looked(1, 100, 40)
    gets.plan(1.0)
    for fetch in range(2, 2 + HELD_MIN):
        gets.arrived(fetch, Fetched(fetch, fetch), 1.0)
    look = 2 + HELD_MIN
    assert gets.plan(1.0) == [Look(look)]
    gets.looked(look, 100, 40)
    assert gets.plan(1.0) == []
    assert gets.due_s() == 1.0 + CROWDED_S
    assert gets.plan(1.0 + CROWDED_S) == [Look(look + 1)]


class GetsModel(QueueModel):
    """One node: each window and get has a channel of its own, so another's may come first."""

    is_apart = True
    counts_returns = True
    is_clustered = False

    def strategy(self) -> Gets[Fetched]:
        return Gets(is_clustered=self.is_clustered)

    @precondition(lambda self: self.replies and not self.is_clustered)
    @rule(choice=st.data())
    def another_is_faster(self, choice: st.DataObject) -> None:
        fetch = choice.draw(st.sampled_from(sorted({fetch for _, fetch, _ in self.replies})))
        mine = [reply for reply in self.replies if reply[1] == fetch]
        others = [reply for reply in self.replies if reply[1] != fetch]
        self.replies = deque([*mine, *others])

    @invariant()
    def one_is_got_at_a_time(self) -> None:
        if not self.is_clustered:
            assert [what for what, _, _ in self.commands].count("get") <= 1

    @invariant()
    def nothing_is_kept_for_long(self) -> None:
        due_s = self.credit.due_s()
        assert due_s is None or self.now_s <= due_s + KEEP_S


class ClusteredGetsModel(GetsModel):
    """A cluster: what a cancelled consumer holds dies with its node."""

    is_clustered = True

    def act(self) -> None:
        """Nothing arrives in the instant of a cancel, for nothing has for a while."""
        super().act()
        while any(what == "close" for what, _, _ in self.commands):
            self.rabbitmq_works()

    @rule(passed_s=st.sampled_from([0.3, 6.0]))
    def time_passes(self, passed_s: float) -> None:
        self.hear_all()
        super().time_passes(passed_s)

    @invariant()
    def no_cancelled_consumer_holds_a_message(self) -> None:
        held = [*self.held, *self.here.values()]
        assert not self.cancelled.intersection(message.fetch for message in held)

    @invariant()
    def there_are_few_consumers(self) -> None:
        assert len(self.consumers) + len(self.got) <= CONSUMERS_MAX + 1

    @property
    def must_wait(self) -> bool:
        return True


SETTINGS = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestGetsAgainstRabbitMQ = GetsModel.TestCase
TestGetsAgainstRabbitMQ.settings = SETTINGS
TestClusteredGetsAgainstRabbitMQ = ClusteredGetsModel.TestCase
TestClusteredGetsAgainstRabbitMQ.settings = SETTINGS
