"""Receiving from RabbitMQ 4.3: windows, and how long room may stand that nobody wants."""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.credit.buffer import Fetched
from bridge.machine.credit.effects import Close, Deliver, Get, Open, Return, Withdrawn
from bridge.machine.credit.read_ahead import AHEAD_MAX, FAST_ROUNDS, LINGER_S, PROMPT_ROUNDS
from bridge.machine.credit.windows import Windows
from tests.unit.machine.credit.rabbitmq import QueueModel


class Receiver:
    """One receiver of a queue that always has messages, by hand."""

    def __init__(self) -> None:
        self.windows: Windows[Fetched] = Windows()
        self.now_s = 1.0
        self.number = 0

    def ask(self, count: int) -> list[object]:
        self.windows.ask(1, count, self.now_s)
        return self.plan()

    def plan(self) -> list[object]:
        return list(self.windows.plan(self.now_s))

    def take(self, fetch: int, count: int = 1) -> list[int | None]:
        found = []
        for _ in range(count):
            self.number += 1
            message = Fetched(self.number, fetch)
            found.append(self.windows.arrived(fetch, message, self.now_s))
        return found

    def settle(self, fetch: int) -> Close | None:
        return self.windows.settling(fetch, self.now_s)


def test_a_window_is_as_large_as_what_is_asked_for() -> None:
    """Nothing is fetched that nobody asked for."""
    receiver = Receiver()
    assert receiver.ask(5) == [Open(1, 5)]
    assert receiver.take(1, 5) == [1] * 5
    assert receiver.windows.under_way == 0


def test_a_small_demand_is_got_until_the_queue_is_found_empty() -> None:
    """An empty get turns to a window, which waits in RabbitMQ."""
    receiver = Receiver()
    assert receiver.ask(1) == [Get(1)]
    receiver.windows.empty(1)
    assert receiver.plan() == [Open(2, 1)]


def test_receivers_are_served_in_the_order_in_which_they_asked() -> None:
    """Five that ask for five each: the first has its five before the second has one."""
    windows: Windows[Fetched] = Windows()
    for number in range(1, 6):
        windows.ask(number, 5, 1.0)
    assert windows.plan(1.0) == [Open(1, 25)]
    served = [windows.arrived(1, Fetched(number, 1), 1.0) for number in range(7)]
    assert served == [1, 1, 1, 1, 1, 2, 2]


def test_a_receiver_that_asks_again_as_it_settles_keeps_its_window() -> None:
    """A processor of any credit: no window is opened or closed, however long it goes on."""
    receiver = Receiver()
    assert receiver.ask(10) == [Open(1, 10)]
    receiver.take(1, 10)
    for _ in range(100):
        assert receiver.settle(1) is None
        receiver.now_s += 0.005
        assert receiver.ask(1) == []
        assert receiver.take(1) == [1]
        receiver.now_s += 1.0
        assert receiver.plan() == []


def test_room_that_nobody_wants_is_closed_after_a_while() -> None:
    """The receiver has settled and does not ask again."""
    receiver = Receiver()
    receiver.ask(3)
    receiver.take(1, 3)
    assert receiver.settle(1) is None
    assert receiver.windows.due_s() == receiver.now_s + LINGER_S
    receiver.now_s += LINGER_S / 2
    assert receiver.plan() == []
    receiver.now_s += LINGER_S
    assert receiver.plan() == [Close(1)]
    assert receiver.windows.due_s() is None


def test_what_came_for_nobody_goes_back_after_a_while() -> None:
    """And all that is on its way, for it stood behind."""
    receiver = Receiver()
    receiver.ask(3)
    receiver.take(1, 3)
    assert [receiver.settle(1) for _ in range(3)] == [None] * 3
    assert receiver.take(1, 2) == [None, None]
    receiver.now_s += 2 * LINGER_S
    first, second = Fetched(4, 1), Fetched(5, 1)
    close, *returns = receiver.plan()
    assert close == Close(1)
    assert [each.message.number for each in returns] == [first.number, second.number]
    assert receiver.take(1) == [None]
    (late,) = receiver.plan()
    assert isinstance(late, Return)
    assert late.message.number == 6


def test_what_came_for_nobody_goes_to_the_next_that_asks() -> None:
    """Within that while."""
    receiver = Receiver()
    receiver.ask(3)
    receiver.take(1, 3)
    assert receiver.settle(1) is None
    assert receiver.take(1) == [None]
    (deliver,) = receiver.ask(1)
    assert isinstance(deliver, Deliver)
    assert (deliver.receiver, deliver.message.number) == (1, 4)


def test_after_room_stood_in_vain_windows_are_closed_before_their_messages_are_settled() -> None:
    """Until the receivers ask promptly again, a few times."""
    receiver = Receiver()
    receiver.ask(3)
    receiver.take(1, 3)
    receiver.settle(1)
    receiver.now_s += 2 * LINGER_S
    assert receiver.plan() == [Close(1)]
    receiver.windows.closed(1)
    assert receiver.ask(3) == [Open(2, 3)]
    receiver.take(2, 2)
    assert receiver.settle(2) == Close(2)
    receiver.windows.closed(2)
    for _ in range(PROMPT_ROUNDS):
        receiver.settle(2)
        receiver.now_s += LINGER_S / 2
        receiver.ask(1)
    assert "is_on=True" in repr(receiver.windows)


def test_a_fast_receiver_has_messages_before_it_asks() -> None:
    """Ask, take, settle, ask: after a few rounds a window stands that is larger than a request."""
    receiver = Receiver()
    for fetch in range(1, FAST_ROUNDS + 1):
        assert receiver.ask(1) == [Get(fetch)]
        assert receiver.take(fetch) == [1]
        assert receiver.settle(fetch) is None
        receiver.now_s += 0.001
    assert receiver.ask(1) == [Open(FAST_ROUNDS + 1, 1 + AHEAD_MAX)]


def test_a_withdrawal_ends_when_the_window_is_closed() -> None:
    """What comes in between still goes to the one who asked; then nothing does."""
    receiver = Receiver()
    receiver.ask(5)
    ticket = receiver.windows.withdraw(1)
    assert receiver.plan() == [Close(1)]
    assert receiver.take(1) == [1]
    assert receiver.plan() == []
    receiver.windows.closed(1)
    assert receiver.plan() == [Withdrawn(ticket)]


def test_a_withdrawal_that_nothing_is_fetched_for_ends_at_once() -> None:
    """A receiver without credit, or whose credit another one now uses, need not wait."""
    receiver = Receiver()
    ticket = receiver.windows.withdraw(1)
    assert receiver.plan() == [Withdrawn(ticket)]


def test_a_settlement_that_did_not_happen_refills_nothing() -> None:
    """A hand-over that failed: its window has not one more."""
    receiver = Receiver()
    receiver.ask(3)
    receiver.take(1, 3)
    assert receiver.settle(1) is None
    assert receiver.windows.under_way == 1
    receiver.windows.stayed(1)
    assert receiver.windows.under_way == 0


class WindowsModel(QueueModel):
    """The same, with how much may be fetched that nobody asked for, and for how long."""

    def strategy(self) -> Windows[Fetched]:
        return Windows(is_apart=self.is_apart, windows_max=3)

    @invariant()
    def little_is_fetched_that_nobody_asked_for(self) -> None:
        asked = sum(self.asks.values())
        assert self.credit.under_way + len(self.here) <= asked + AHEAD_MAX + len(self.returned)

    @invariant()
    def nothing_stands_for_long_that_nobody_wants(self) -> None:
        due_s = self.credit.due_s()
        assert due_s is None or self.now_s <= due_s + LINGER_S

    @property
    def must_wait(self) -> bool:
        return len(self.consumers) >= 3


class ApartModel(WindowsModel):
    """The same where each window has a channel of its own: what comes on another may be first."""

    is_apart = True

    @precondition(lambda self: self.replies)
    @rule(choice=st.data())
    def another_is_faster(self, choice: st.DataObject) -> None:
        fetch = choice.draw(st.sampled_from(sorted({fetch for _, fetch, _ in self.replies})))
        mine = [reply for reply in self.replies if reply[1] == fetch]
        others = [reply for reply in self.replies if reply[1] != fetch]
        self.replies = deque([*mine, *others])

    @invariant()
    def nothing_is_got(self) -> None:
        assert "get" not in [what for what, _, _ in self.commands]


SETTINGS = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestWindowsAgainstRabbitMQ = WindowsModel.TestCase
TestWindowsAgainstRabbitMQ.settings = SETTINGS
TestApartAgainstRabbitMQ = ApartModel.TestCase
TestApartAgainstRabbitMQ.settings = SETTINGS
