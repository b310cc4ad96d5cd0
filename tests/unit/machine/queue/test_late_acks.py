"""Receiving and deleting from RabbitMQ 4.3, which returns late what a cancelled window would get.

A channel keeps acks and returns back while the queue has not carried out 32 of them; a cancel and
the next consume go ahead of these (returns-late in docs/rabbitmq-faults.md).
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.credit.effects import Close, Look, Open
from bridge.machine.credit.read_ahead import LINGER_S
from bridge.machine.credit.strategy import Strategy
from bridge.machine.credit.window_bounds import SILENT_S
from bridge.machine.credit.windows import Windows
from bridge.machine.queue.effects import Ack
from bridge.machine.queue.fate import Rules
from bridge.machine.queue.late_acks import HELD_S
from bridge.machine.queue.queue import QueueMachine
from bridge.machine.queue.settled import SettledMemory
from tests.fixtures.examples import examples
from tests.unit.machine.queue.test_queue import DELIVERIES, Copy, Message, Model, copy_of


class Deleting:
    """A receiver that has deleted five of the ten messages that it has asked for, by hand."""

    def __init__(self) -> None:
        self.machine: QueueMachine[Message, Copy] = QueueMachine(
            Windows(), SettledMemory().numbers(), Rules(DELIVERIES), copy_of
        )
        self.now_s = 1.0
        self.machine.ask(1, 10, self.now_s)
        assert self.act() == [Open(1, 10)]
        for number in range(1, 6):
            message = Message(number, 1, number, 0, 0, None)
            assert self.machine.arrived(message, self.now_s, 0) == 1
            self.machine.delete(message, self.now_s)
        assert self.act() == []

    def act(self, passed_s: float = 0.0) -> list[object]:
        """Let time pass; return the effects that are due then."""
        self.now_s += passed_s
        self.machine.plan(self.now_s, 0)
        return list(self.machine.take())

    def look(self) -> int:
        """No message has come for a while: RabbitMQ is asked whether one may be on its way."""
        (look,) = self.act(LINGER_S)
        assert isinstance(look, Look)
        return look.fetch


def acked(effects: list[object]) -> list[int]:
    """Return the numbers of the acked messages."""
    return [effect.held.number for effect in effects if isinstance(effect, Ack)]


def test_a_window_stays_open_while_messages_may_be_on_their_way_to_it() -> None:
    """RabbitMQ may be slow: a while without a message does not say that none is on its way."""
    deleting = Deleting()
    for _ in range(5):
        look = deleting.look()
        assert deleting.act(1.0) == [], "nothing before the answer"
        deleting.machine.looked(look, 3, 1)
        assert deleting.act() == []


@pytest.mark.parametrize("is_silent", [False, True])
def test_zeros_and_silence_are_no_answer(is_silent: bool) -> None:
    """RabbitMQ says zeros when the queue does not tell; the window itself is a consumer."""
    deleting = Deleting()
    look = deleting.look()
    if is_silent:
        deleting.machine.closed(look)
    else:
        deleting.machine.looked(look, 0, 0)
    assert deleting.act() == []
    deleting.look()


def test_acks_leave_when_their_window_has_ended() -> None:
    """Behind what RabbitMQ returns of it; what is still asked for is fetched behind them."""
    deleting = Deleting()
    deleting.machine.looked(deleting.look(), 0, 1)
    assert deleting.act() == [Close(1)]
    assert deleting.act(LINGER_S) == []
    deleting.machine.closed(1)
    *acks, last = deleting.act()
    assert (acked(acks), last) == ([1, 2, 3, 4, 5], Open(3, 5))


def test_an_ack_behind_the_question_makes_its_answer_old() -> None:
    """It fetches a message, which may be on its way."""
    deleting = Deleting()
    look = deleting.look()
    deleting.machine.ask(1, 1, deleting.now_s)
    assert acked(deleting.act()) == [1]
    deleting.machine.looked(look, 0, 1)
    assert deleting.act() == []
    deleting.look()


def test_whatever_rabbitmq_says_an_ack_does_not_wait_for_ever() -> None:
    """A kill before it repeats the message."""
    deleting = Deleting()
    deleting.look()
    assert deleting.act(HELD_S) == [Close(1)]


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_deleted_while_rabbitmq_is_asked_about_others_is_acked_too(is_closed: bool) -> None:
    """Though the others are acked by then; also when the queue is closed before anything comes."""
    deleting = Deleting()
    machine = deleting.machine
    look = deleting.look()
    for number in range(6, 11):
        assert machine.arrived(Message(number, 1, number, 0, 0, None), deleting.now_s, 0) == 1
        machine.delete(Message(number, 1, number, 0, 0, None), deleting.now_s)
    assert acked(deleting.act()) == list(range(1, 11))
    machine.closed(1)
    machine.ask(1, 5, deleting.now_s)
    (window,) = deleting.act()
    assert isinstance(window, Open)
    last = Message(11, window.fetch, 11, 0, 0, None)
    assert machine.arrived(last, deleting.now_s, 0) == 1
    machine.delete(last, deleting.now_s)
    assert deleting.act() == []
    if is_closed:
        machine.plan(deleting.now_s, 0, is_last=True)
        assert acked(list(machine.take())) == [11]
    else:
        machine.looked(look, 0, 1)
        assert deleting.act() == [], "the answer is older than the window"
        assert machine.due_s() is not None
        machine.looked(deleting.look(), 0, 1)
        assert deleting.act() == [Close(window.fetch)]


class DeletingModel(Model):
    """Receivers that delete what they get; a channel keeps acks and returns back for a while.

    Attributes:
        crossing: how many messages that a window is sent are still in front of its channel.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept_back: list[tuple[str, int, int]] = []
        self.late_returns: list[int] = []
        self.had: list[int] = []
        self.crossing = 0
        self.is_seen = False
        self.silent_s = 0.0

    def strategy(self) -> Strategy[Any]:
        return Windows(windows_max=3, passed_on_max=0)

    # Not of receivers that delete.
    settle = move = move_ends = work_fast = channel_is_lost = None  # type: ignore[assignment]
    publish_what_expires = publish_past_the_front_exchange = None  # type: ignore[assignment]
    a_second_copy_is_stored = None  # type: ignore[assignment]
    # Among several clients there is no order, and RabbitMQ may count messages again and again.
    another_client_receives = None  # type: ignore[assignment]

    @rule(receiver=st.integers(1, 3), count=st.just(1) | st.integers(1, 20))
    def ask(self, receiver: int, count: int) -> None:
        """Nothing comes that no receiver has asked for: no pattern of requests is seen."""
        super().ask(receiver, count)
        cast(Any, self.credit)._read_ahead.end()

    def give(self, receiver: int, message: Any) -> None:
        assert message.number == len(self.had) + 1, f"{message.number} after {self.had[-1:]}"
        self.had.append(message.number)
        self.given_back.add(message.entry)
        self.got_one(receiver)
        self.out.append(message)

    @rule(count=st.integers(1, 30))
    def publish(self, count: int) -> None:
        """To a queue that was empty it comes behind the acks that the channel has."""
        if not self.ready:
            self.the_queue_takes_all()
        for _ in range(count):
            super().publish(1)

    @precondition(lambda self: self.commands)
    @rule()
    def rabbitmq_works(self) -> None:
        """The channel takes a command; what is in front of it for a cancelled window goes back."""
        what, fetch, _ = self.commands[0]
        if what == "ack":
            self.kept_back.append(self.commands.popleft())
            return
        before = set(self.replies)
        if what == "close":
            self.acks_are_taken()
            sent = [each for each in self.replies if each[:2] == ("message", fetch)]
            fetched = [each for each in sent if each not in before]
            # What is published behind the answer to a look: too few to be kept back.
            if not self.is_seen:
                fetched = max(fetched, sent[max(len(sent) - self.crossing, 0) :], key=len)
            for each in fetched:
                self.replies.remove(each)
                self.late_returns.append(each[2])
                self.returned.add(each[2])
        if what == "open":
            self.is_seen = False
        elif what == "look" and not self.ready:
            self.is_seen = True
        super().rabbitmq_works()

    @rule(count=st.sampled_from([0, 1, 3, 20]))
    def is_slow(self, count: int) -> None:
        """Set how much is in front of the channel when it takes a cancel."""
        self.crossing = count

    @rule(receiver=st.integers(1, 3))
    def withdraw(self, receiver: int) -> None:
        """A client lowers its credit."""
        super().withdraw(receiver)

    @rule(asked=st.integers(1, 20), crossing=st.integers(0, 20), again=st.integers(1, 20))
    def credit_is_lowered(self, asked: int, crossing: int, again: int) -> None:
        """While messages are on their way to the window that it has opened, and then raised."""
        self.hear_all()
        self.crossing = crossing
        self.publish(asked)
        self.ask(1, asked)
        super().hear_all()
        self.ask(1, asked)
        self.publish(asked)
        while self.commands:
            self.rabbitmq_works()
        self.withdraw(1)
        super().hear_all()
        self.ask(1, again)
        super().hear_all()
        self.time_passes(LINGER_S)

    @rule(passed_s=st.sampled_from([0.001, 0.01, 0.03, 0.3]))
    def time_passes(self, passed_s: float) -> None:
        """RabbitMQ does not let a client wait for a second."""
        self.silent_s += passed_s
        if self.silent_s > SILENT_S / 2:
            self.hear_all()
            self.silent_s = passed_s
        super().time_passes(passed_s)

    def acks_are_taken(self) -> None:
        """The queue takes the acks that the channel has kept back."""
        while self.kept_back:
            self.commands.appendleft(self.kept_back.pop(0))
            super().rabbitmq_works()

    @precondition(lambda self: self.kept_back or self.late_returns)
    @rule()
    def the_queue_takes_all(self) -> None:
        """The queue takes the acks and the returns that the channel has kept back."""
        self.acks_are_taken()
        self.returns.extend(self.late_returns)
        self.late_returns.clear()
        self.fill()

    @rule()
    def hear_all(self) -> None:
        while self.commands or self.replies or self.kept_back or self.late_returns:
            super().hear_all()
            self.the_queue_takes_all()

    @rule(asked=st.integers(1, 20), more=st.integers(1, 20), again=st.integers(1, 20))
    def the_queue_is_slow(self, asked: int, more: int, again: int) -> None:
        """A receiver that asks again has what is ready, but for what its acks fetch."""
        for count in (asked, more, again):
            self.ask(1, count)
            self.publish(more)
            super().hear_all()
            if self.out:
                self.delete_all()
            super().hear_all()
        self.time_passes(LINGER_S)

    @precondition(lambda self: self.out)
    @rule()
    def delete_all(self) -> None:
        """Each receiver says that it has what it was given."""
        while self.out:
            deleted = self.out.pop(0)
            self.done.add(deleted.number)
            self.deleted.add(deleted.entry)
            self.machine.delete(deleted, self.now_s)
            self.carry_out()
        self.act()

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        places = [*self.queue, *self.returns, *self.gone, *self.in_the_machine()]
        places += [entry for what, _, entry in self.replies if what == "message"]
        places += [entry for what, _, entry in self.commands if what in ("ack", "nack")]
        places += [entry for _, _, entry in self.kept_back] + self.late_returns
        places += [each.entry for each in self.out]
        assert sorted(places) == list(range(1, self.published + 1))

    def teardown(self) -> None:
        """In the end receivers have all, in order, and RabbitMQ has all acks."""
        for _ in range(40):
            if not any(self.asks.values()):
                self.ask(1, 20)
            self.hear_all()
            if self.out:
                self.delete_all()
            self.time_passes(0.3)
        assert self.had == list(range(1, self.published + 1))
        assert len(self.gone) == self.published


TestDeleting = DeletingModel.TestCase
TestDeleting.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
