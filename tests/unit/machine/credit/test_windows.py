"""Receiving from RabbitMQ 4.3: windows, and how long room may stand that nobody wants."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.credit.effects import Close, Deliver, Get, Look, Open, Return, Withdrawn
from bridge.machine.credit.read_ahead import AHEAD, AHEAD_MAX, FAST_ROUNDS, LINGER_S, PROMPT_ROUNDS
from bridge.machine.credit.window_bounds import LOOKS_MAX, PASSED_ON_MAX, SILENT_S
from bridge.machine.credit.windows import Windows
from tests.fixtures.examples import examples
from tests.unit.machine.credit.rabbitmq import Fetched, QueueModel

FIRST = PROMPT_ROUNDS + 2
"""The first fetch after `Receiver.ask_promptly`; the last one before is a full window of one."""


LOOK = FIRST + 1
"""The fetch after that: the question whether the queue is empty."""


class Receiver:
    """One receiver of a queue that always has messages, by hand."""

    def __init__(self) -> None:
        self.windows: Windows[Fetched] = Windows()
        self.now_s = 1.0
        self.number = 0

    def ask_promptly(self) -> None:
        """Take some one by one, until it reads ahead."""
        for fetch in range(1, FIRST):
            self.ask(1)
            self.take(fetch)
            if fetch < FIRST - 1:
                self.settle(fetch)

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
    assert receiver.windows.balance.under_way == 0


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
    receiver.ask_promptly()
    assert receiver.ask(10) == [Open(FIRST, 10)]
    receiver.take(FIRST, 10)
    for _ in range(100):
        assert receiver.settle(FIRST) is None
        receiver.now_s += 0.005
        assert receiver.ask(1) == []
        assert receiver.take(FIRST) == [1]
        receiver.now_s += 1.0
        assert receiver.plan() == []


def test_one_that_asks_when_all_its_credit_is_used_keeps_its_window_too() -> None:
    """While a receiver waits, however long, no message comes that nobody waits for."""
    receiver = Receiver()
    receiver.ask_promptly()
    assert receiver.ask(50) == [Open(FIRST, 50)]
    for _ in range(5):
        for _ in range(50):
            assert receiver.take(FIRST) == [1]
            assert receiver.settle(FIRST) is None
            receiver.now_s += 0.005
            assert receiver.plan() == []
        assert receiver.ask(50) == []


def test_room_that_nobody_wants_is_closed_after_a_while() -> None:
    """The receiver has settled and does not ask again."""
    receiver = Receiver()
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert receiver.settle(FIRST) is None
    assert receiver.windows.due_s == receiver.now_s + LINGER_S
    receiver.now_s += LINGER_S / 2
    assert receiver.plan() == []
    receiver.now_s += LINGER_S
    assert receiver.plan() == [Look(LOOK), Close(FIRST - 1)]
    receiver.windows.looked(LOOK, 0, 1)
    assert receiver.plan() == [Close(FIRST)]
    assert receiver.windows.due_s is None


@pytest.mark.parametrize(("count", "is_asked"), [(PASSED_ON_MAX, False), (100, True)])
def test_less_credit_asks_for_what_may_be_on_its_way_to_a_new_window(
    count: int, is_asked: bool
) -> None:
    """RabbitMQ would return it behind what the next window gets, but for the first 32 messages."""
    receiver = Receiver()
    assert receiver.ask(count) == [Open(1, count)]
    receiver.take(1, 3)
    receiver.windows.withdraw(1)
    if is_asked:
        assert receiver.plan() == [Look(2)]
        receiver.windows.looked(2, 7, 1)
        assert receiver.plan() == []
        receiver.take(1, 7)
        receiver.now_s += LINGER_S
        assert receiver.plan() == [Look(3)]
        receiver.windows.looked(3, 0, 1)
    assert receiver.plan() == [Close(1)]


def test_settlements_that_a_queue_may_not_have_taken_count_among_those_messages() -> None:
    """RabbitMQ's channel passes on no more of both."""
    receiver = Receiver()
    assert receiver.ask(PASSED_ON_MAX - 1) == [Open(1, PASSED_ON_MAX - 1)]
    receiver.take(1, PASSED_ON_MAX - 1)
    assert receiver.plan() == [Close(1)]
    assert receiver.ask(3) == [Open(2, 3)]
    receiver.windows.closed(1)
    receiver.settle(1)
    receiver.windows.withdraw(1)
    assert receiver.plan() == [Look(3)]


def test_room_that_acks_have_made_stays_open_while_messages_are_on_their_way() -> None:
    """RabbitMQ would return them behind whatever was returned before; it is asked again."""
    receiver = Receiver()
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert receiver.settle(FIRST) is None
    receiver.now_s += 2 * LINGER_S
    assert receiver.plan() == [Look(LOOK), Close(FIRST - 1)]
    assert receiver.plan() == []
    receiver.windows.looked(LOOK, 7, 1)
    assert receiver.plan() == []
    receiver.now_s += 2 * LINGER_S
    assert receiver.plan() == [Look(LOOK + 1)]
    receiver.windows.closed(LOOK + 1)  # RabbitMQ does not say
    assert receiver.plan() == [Close(FIRST)]


def test_room_that_never_fills_is_closed_in_the_end() -> None:
    """RabbitMQ says that messages are ready, and brings none."""
    receiver = Receiver()
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert receiver.settle(FIRST) is None
    looks = 0
    while Close(FIRST) not in (effects := receiver.plan()):
        for each in effects:
            if isinstance(each, Look):
                looks += 1
                receiver.windows.looked(each.fetch, 7, 1)
        receiver.now_s += LINGER_S
    assert looks == LOOKS_MAX


def test_a_window_stays_open_while_messages_still_come() -> None:
    """However long: RabbitMQ would return those on their way, and they come back by many gets."""
    receiver, count = Receiver(), 3 * LOOKS_MAX
    assert receiver.ask(10 * count) == [Open(1, 10 * count)]
    receiver.windows.withdraw(1)
    for _ in range(count):
        (look,) = receiver.plan()
        assert isinstance(look, Look)
        receiver.windows.looked(look.fetch, 7, 1)
        receiver.take(1)
        receiver.now_s += LINGER_S
    (look,) = receiver.plan()
    assert isinstance(look, Look)
    receiver.windows.looked(look.fetch, 0, 1)
    assert receiver.plan() == [Close(1)]


def test_rabbitmq_has_time_to_say_that_nothing_is_on_its_way() -> None:
    """It may be busy; its answer to a cancel would come behind this one."""
    receiver = Receiver()
    receiver.ask(100)
    receiver.take(1, 3)
    receiver.windows.withdraw(1)
    assert receiver.plan() == [Look(2)]
    receiver.now_s += 3.0
    assert receiver.plan() == []
    receiver.now_s += SILENT_S
    assert receiver.plan() == [Close(1)]


def withdrawn_beside_another() -> Receiver:
    """One receiver takes its credit back while another waits; acks have made room."""
    receiver = Receiver()
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert [receiver.settle(FIRST) for _ in range(3)] == [None] * 3
    receiver.ask(1)
    receiver.windows.ask(2, 1, receiver.now_s)
    receiver.windows.withdraw(1)
    assert receiver.plan() == [Look(LOOK), Close(FIRST - 1)]
    return receiver


def test_rabbitmq_is_asked_again_though_another_receiver_waits() -> None:
    """The messages that it counted went to another client: nothing happens here by itself."""
    receiver = withdrawn_beside_another()
    receiver.windows.looked(LOOK, 7, 2)
    assert receiver.plan() == []
    assert receiver.windows.due_s == receiver.now_s + LINGER_S
    receiver.now_s += 2 * LINGER_S
    assert receiver.plan() == [Look(LOOK + 1)]
    receiver.windows.looked(LOOK + 1, 0, 2)
    assert receiver.plan() == [Close(FIRST)]
    receiver.windows.closed(FIRST)
    assert receiver.plan()[0] == Withdrawn(1)


def test_a_receiver_does_not_wait_for_a_rabbitmq_that_says_nothing() -> None:
    """Though another one waits."""
    receiver = withdrawn_beside_another()
    assert receiver.windows.due_s == receiver.now_s + SILENT_S
    receiver.now_s += SILENT_S
    assert receiver.plan() == [Close(FIRST)]
    assert receiver.windows.due_s is None


def test_a_message_goes_back_though_rabbitmq_says_nothing() -> None:
    """A released one, which another receiver waits for."""
    receiver = Receiver()
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert [receiver.settle(FIRST) for _ in range(2)] == [None] * 2
    receiver.windows.released(Fetched(receiver.number, FIRST), receiver.now_s)
    assert receiver.ask(1) == [Close(FIRST - 1), Look(LOOK)]
    receiver.now_s += SILENT_S
    assert receiver.plan() == [Close(FIRST)]
    receiver.windows.closed(FIRST)
    receiver.plan()
    receiver.windows.empty(LOOK + 1)
    (returned, *_) = receiver.plan()
    assert isinstance(returned, Return)


def test_an_answer_of_a_queue_that_did_not_tell_is_not_believed() -> None:
    """RabbitMQ says 0 messages and 0 consumers then: the window itself is a consumer."""
    receiver = withdrawn_beside_another()
    receiver.windows.looked(LOOK, 0, 0)
    assert receiver.plan() == []
    receiver.now_s += 2 * LINGER_S
    assert receiver.plan() == [Look(LOOK + 1)]
    receiver.windows.looked(LOOK + 1, 0, 1)
    assert receiver.plan() == [Close(FIRST)]


def test_what_came_for_nobody_goes_back_after_a_while() -> None:
    """With all that was on its way, for it stood behind: here, or returned by RabbitMQ itself."""
    receiver = Receiver()
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert [receiver.settle(FIRST) for _ in range(3)] == [None] * 3
    assert receiver.take(FIRST) == [None]
    receiver.now_s += 2 * LINGER_S
    assert receiver.plan() == [Look(LOOK), Close(FIRST - 1)]
    receiver.windows.looked(LOOK, 0, 1)
    assert receiver.plan() == [Close(FIRST)]
    assert receiver.take(FIRST) == [None]
    assert receiver.plan() == []
    receiver.windows.closed(FIRST)
    assert receiver.plan() == [Get(LOOK + 1)]
    assert receiver.take(LOOK + 1) == [None]
    returns = receiver.plan()
    assert [each.message.number for each in returns if isinstance(each, Return)] == [
        receiver.number - 2,
        receiver.number - 1,
        receiver.number,
    ]
    assert len(returns) == 3


def test_what_came_ahead_does_not_overtake_what_is_released() -> None:
    """It goes back as well, and nothing is fetched until all of it has."""
    receiver = Receiver()
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert [receiver.settle(FIRST) for _ in range(2)] == [None] * 2
    assert receiver.take(FIRST) == [None]
    ahead = receiver.number
    receiver.windows.released(Fetched(ahead - 1, FIRST), receiver.now_s)
    assert receiver.ask(1) == [Close(FIRST - 1), Look(LOOK)]
    receiver.windows.looked(LOOK, 0, 1)
    assert receiver.plan() == [Close(FIRST)]
    assert receiver.take(FIRST) == [None]
    receiver.windows.closed(FIRST)
    returns = [each for each in receiver.plan() if isinstance(each, Return)]
    assert [each.message.number for each in returns] == [ahead - 1, ahead, ahead + 1]


@pytest.mark.parametrize("is_counted", [True, False])
def test_many_that_went_back_are_got_before_a_window_opens(is_counted: bool) -> None:
    """RabbitMQ's channel keeps some of them back, and a window goes ahead of these."""
    receiver, count = Receiver(), PASSED_ON_MAX + 1
    receiver.ask(count)
    receiver.take(1, count)
    for number in range(1, count + 1):
        if is_counted:
            receiver.windows.returning(Fetched(number, 1))
            receiver.settle(1)
        else:
            receiver.windows.released(Fetched(number, 1), receiver.now_s)
    effects = receiver.ask(5)
    assert [type(each) for each in effects if isinstance(each, Open | Get)] == [Get]
    first, *_ = (each.fetch for each in effects if isinstance(each, Get))
    assert receiver.plan() == []
    assert receiver.take(first) == [1]
    (second,) = receiver.plan()
    assert isinstance(second, Get)
    assert receiver.take(second.fetch) == [1]
    assert receiver.plan() == [Open(second.fetch + 1, 3)]


@pytest.mark.parametrize("count", [PASSED_ON_MAX, PASSED_ON_MAX + 1])
def test_a_message_goes_back_in_front_of_as_many_as_a_channel_passes_on(count: int) -> None:
    """More of them would be passed on window by window, in no order: so they stay as they are."""
    receiver = Receiver()
    receiver.ask(count)
    receiver.take(1, count)
    for number in range(1, count + 1):
        receiver.windows.released(Fetched(number, 1), receiver.now_s)
    (get,) = [each for each in receiver.ask(1) if isinstance(each, Get)]
    first = Fetched(1, get.fetch, redelivered=True)
    assert receiver.windows.arrived(get.fetch, first, receiver.now_s) == 1
    receiver.windows.released(first, receiver.now_s)
    (effect,) = receiver.plan()
    assert isinstance(effect, Return if count > PASSED_ON_MAX else Get)


def test_a_few_that_went_back_are_fetched_at_once() -> None:
    """The channel passes them on before the window."""
    receiver = Receiver()
    receiver.ask(5)
    receiver.take(1, 5)
    receiver.windows.released(Fetched(1, 1), receiver.now_s)
    assert Open(2, 3) in receiver.ask(3)


def test_what_came_for_nobody_goes_to_the_next_that_asks() -> None:
    """Within that while."""
    receiver = Receiver()
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert receiver.settle(FIRST) is None
    assert receiver.take(FIRST) == [None]
    (deliver,) = receiver.ask(1)
    assert isinstance(deliver, Deliver)
    assert (deliver.receiver, deliver.message.number) == (1, receiver.number)


def test_a_receiver_that_does_not_ask_promptly_leaves_nothing_standing() -> None:
    """At first, and after room stood in vain: windows close before their messages are settled."""
    receiver = Receiver()
    assert receiver.ask(3) == [Open(1, 3)]
    receiver.take(1, 3)
    assert receiver.settle(1) == Close(1)
    receiver.windows.closed(1)
    for _ in range(PROMPT_ROUNDS + 1):
        receiver.settle(1)
        receiver.now_s += 2 * LINGER_S
        receiver.ask(1)
        receiver.windows.empty(receiver.windows.balance._last_fetch)
        receiver.take(0)
    assert "is_on=False" in repr(receiver.windows)


def test_a_fast_receiver_has_messages_before_it_asks() -> None:
    """Ask, take, settle, ask: after a few rounds a window stands that is larger than a request."""
    receiver = Receiver()
    for fetch in range(1, PROMPT_ROUNDS + 1):
        assert receiver.ask(1) == [Get(fetch)]
        assert receiver.take(fetch) == [1]
        assert receiver.settle(fetch) is None
        receiver.now_s += 0.001
    window = PROMPT_ROUNDS + 1
    assert receiver.ask(1) == [Open(window, 1)]
    for _ in range(PROMPT_ROUNDS, FAST_ROUNDS):
        receiver.take(window)
        assert receiver.settle(window) is None
        assert receiver.ask(1) == []
    receiver.take(window)
    assert receiver.settle(window) == Close(window)
    assert receiver.ask(1) == [Open(window + 1, AHEAD)]
    assert receiver.take(window + 1, AHEAD) == [1] + [None] * (AHEAD - 1)
    for _ in range(100):
        assert receiver.settle(window + 1) is None
        (deliver,) = receiver.ask(1)
        assert isinstance(deliver, Deliver)
        receiver.take(window + 1)


def test_a_withdrawal_ends_when_the_window_is_closed() -> None:
    """A message that comes in between still goes to the receiver; then none does."""
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
    receiver.ask_promptly()
    receiver.ask(3)
    receiver.take(FIRST, 3)
    assert receiver.settle(FIRST) is None
    assert receiver.windows.balance.under_way == 1
    receiver.windows.stayed(FIRST)
    assert receiver.windows.balance.under_way == 0


def test_an_ack_brings_too_much_while_a_window_fills() -> None:
    """Not when more is asked for, and not when all has come: then the window is closed first."""
    receiver = Receiver()
    receiver.ask(3)
    receiver.take(1, 2)
    assert receiver.windows.is_filling(1)
    receiver.windows.ask(1, 1, receiver.now_s)
    assert not receiver.windows.is_filling(1)
    assert receiver.settle(1) is None
    assert receiver.windows.is_filling(1)
    receiver.take(1, 2)
    assert not receiver.windows.is_filling(1)
    assert receiver.settle(1) == Close(1)


def test_a_window_that_stays_half_full_is_closed_and_another_opened() -> None:
    """For what is still asked for."""
    receiver = Receiver()
    receiver.ask(5)
    receiver.take(1, 2)
    assert receiver.windows.close(1) == Close(1)
    assert receiver.windows.close(1) is None
    assert not receiver.windows.is_filling(1)
    assert receiver.plan() == []
    receiver.windows.closed(1)
    assert receiver.plan() == [Open(2, 3)]


def test_one_window_at_a_time_has_room() -> None:
    """Further demand waits for the window with room; a full one is not refilled beside it."""
    receiver = Receiver()
    receiver.ask_promptly()
    assert receiver.ask(5) == [Open(FIRST, 5)]
    assert receiver.ask(5) == []
    assert receiver.take(FIRST, 5) == [1] * 5
    assert receiver.plan() == [Open(FIRST + 1, 5)]
    assert receiver.settle(FIRST) == Close(FIRST)
    assert receiver.settle(FIRST) is None
    assert receiver.windows.balance.under_way == 5


class WindowsModel(QueueModel):
    """The same, with how much may be fetched that nobody asked for, and for how long."""

    serves_in_turn = True

    def strategy(self) -> Windows[Fetched]:
        return Windows(is_apart=self.is_apart, windows_max=3)

    @invariant()
    def little_is_fetched_that_nobody_asked_for(self) -> None:
        asked = sum(self.asks.values())
        assert self.credit.balance.under_way + len(self.here) <= asked + AHEAD_MAX + len(
            self.returned
        )

    @invariant()
    def nothing_stands_for_long_that_nobody_wants(self) -> None:
        due_s = self.credit.due_s
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
    def nothing_is_got_for_a_receiver(self) -> None:
        """But what RabbitMQ has returned while messages wait for their return."""
        assert "get" not in [what for what, _, _ in self.commands] or self.credit.buffered


SETTINGS = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
TestWindowsAgainstRabbitMQ = WindowsModel.TestCase
TestWindowsAgainstRabbitMQ.settings = SETTINGS
TestApartAgainstRabbitMQ = ApartModel.TestCase
TestApartAgainstRabbitMQ.settings = SETTINGS
