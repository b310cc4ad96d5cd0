"""Receiving before RabbitMQ 4.3: windows that fill, and what is kept for the next receiver."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.credit.effects import Close, Deliver, Get, Open, Return
from bridge.machine.credit.gets import (
    KEEP_S,
    QUIET_S,
    Gets,
)
from bridge.machine.credit.read_ahead import AHEAD_MAX
from tests.fixtures.examples import examples
from tests.unit.machine.credit.rabbitmq import Fetched, QueueModel


def asking(count: int) -> Gets[Fetched]:
    """A receiver that has asked for so many at 1.0 s."""
    gets: Gets[Fetched] = Gets()
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
    """This holds however many messages are asked for."""
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
    assert gets.plan(3.0) == []
    assert gets.due_s == 1.0 + KEEP_S
    (back,) = gets.plan(1.0 + KEEP_S)
    assert isinstance(back, Return)
    assert back.message.number == 1
    assert gets.due_s == 3.0 + KEEP_S


def test_room_that_nobody_wants_is_closed_when_nothing_arrives() -> None:
    """Not while a message may be on its way: it would be counted."""
    gets = asking(1)
    gets.plan(1.0)
    gets.empty(1)
    assert gets.plan(1.0) == [Open(2, 1)]
    gets.withdraw(1)
    gets.plan(1.0)
    due_s = gets.due_s
    assert due_s is not None
    assert due_s <= 1.0 + QUIET_S
    assert gets.plan(1.0 + QUIET_S) == [Close(2)]


def fast(max_delivery_count: int = 10) -> tuple[Gets[Fetched], list[object]]:
    """A receiver that has taken `AHEAD_MAX` messages one by one, and what its next request does."""
    gets: Gets[Fetched] = Gets()
    gets.limit(max_delivery_count)
    effects: list[object] = []
    for fetch in range(1, AHEAD_MAX + 2):
        gets.ask(1, 1, 1.0)
        effects = list(gets.plan(1.0))
        if effects != [Get(fetch)]:
            break
        assert gets.arrived(fetch, Fetched(fetch, fetch), 1.0) == 1
        gets.counted(100)
        assert gets.plan(1.0) == []
        gets.settling(fetch, 1.0)
    return gets, effects


def test_a_fast_receiver_has_messages_before_it_asks() -> None:
    """A window stands, and acks refill it; what came ahead is kept when the receiver ends."""
    gets, effects = fast()
    window = AHEAD_MAX + 1
    assert effects == [Open(window, AHEAD_MAX)]
    first = [gets.arrived(window, Fetched(number, window), 1.0) for number in range(100, 132)]
    assert first == [1] + [None] * 31
    assert gets.settling(window, 1.0) is None
    assert gets.plan(1.0) == []
    gets.ask(1, 1, 1.001)
    (deliver,) = gets.plan(1.001)
    assert isinstance(deliver, Deliver)
    assert deliver.message.number == 101
    gets.arrived(window, Fetched(132, window), 1.001)
    assert gets.plan(1.002) == []
    assert gets.plan(1.1) == [Close(window)]
    late_s = 1.1 + KEEP_S
    returned = [each for each in gets.plan(late_s) if isinstance(each, Return)]
    assert [each.message.number for each in returned] == list(range(102, 133))


def test_nothing_comes_ahead_that_one_return_would_dead_letter() -> None:
    """MaxDeliveryCount 1."""
    _, effects = fast(max_delivery_count=1)
    assert effects == [Get(AHEAD_MAX + 1)]


class GetsModel(QueueModel):
    """One node: each window and get has a channel of its own, so another's may come first."""

    is_apart = True
    counts_returns = True

    def strategy(self) -> Gets[Fetched]:
        gets: Gets[Fetched] = Gets(ahead_max=4)
        gets.limit(10)
        return gets

    @precondition(lambda self: self.replies)
    @rule(choice=st.data())
    def another_is_faster(self, choice: st.DataObject) -> None:
        fetch = choice.draw(st.sampled_from(sorted({fetch for _, fetch, _ in self.replies})))
        mine = [reply for reply in self.replies if reply[1] == fetch]
        others = [reply for reply in self.replies if reply[1] != fetch]
        self.replies = deque([*mine, *others])

    @invariant()
    def one_is_got_at_a_time(self) -> None:
        assert [what for what, _, _ in self.commands].count("get") <= 1

    @invariant()
    def nothing_is_kept_for_long(self) -> None:
        due_s = self.credit.due_s
        assert due_s is None or self.now_s <= due_s + KEEP_S


TestGetsAgainstRabbitMQ = GetsModel.TestCase
TestGetsAgainstRabbitMQ.settings = settings(
    max_examples=examples(100), stateful_step_count=60, deadline=None
)
