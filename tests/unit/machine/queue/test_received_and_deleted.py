"""Receiving and deleting from RabbitMQ 4.3, which loses the order of what is in flight at a cancel.

A channel returns what comes for a consumer that it has cancelled, before whatever is returned later
(cancel-order in docs/rabbitmq-faults.md): what acks have fetched that the queue takes while the
channel waits for the cancel, and what was published in that instant. Receivers that delete have all
in order nevertheless, whenever they pause, and when their calls are interrupted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.credit.effects import Get, Open
from bridge.machine.credit.strategy import Strategy
from bridge.machine.credit.window_bounds import PASSED_ON_MAX
from bridge.machine.credit.windows import Windows
from tests.fixtures.examples import examples
from tests.unit.machine.queue.test_queue import Model


class DeletingModel(Model):
    """Receivers of a bridge, that delete what they get; acks are between channel and queue.

    Attributes:
        crossing: how many messages that a window is sent are still in front of its channel.
        split_to: messages up to this number went back together with more than a channel passes on
            at once, so they are in no order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.passed_on: list[tuple[str, int, int]] = []
        self.had: set[int] = set()
        self.crossing = 0
        self.split_to = 0

    # Not of receivers that delete.
    settle = move = move_ends = work_fast = received_and_deleted = None  # type: ignore[assignment]
    publish_what_expires = publish_past_the_front_exchange = None  # type: ignore[assignment]
    a_second_copy_is_stored = channel_is_lost = None  # type: ignore[assignment]
    # Among several clients there is no order, and RabbitMQ may count messages again and again.
    another_client_receives = None  # type: ignore[assignment]

    def give(self, receiver: int, message: Any) -> None:
        """Each message is given when all before it were."""
        given = self.had | {each.number for each in self.out}
        first = next(each for each in range(1, self.published + 2) if each not in given)
        if message.number > self.split_to:
            assert message.number == first, f"{message.number} before {first}"
        self.given_back.add(message.entry)
        self.got_one(receiver)
        self.out.append(message)

    def returned_to_queue(self, held: Any, *, is_counted: bool) -> None:
        super().returned_to_queue(held, is_counted=is_counted)
        self.note_split()

    def note_split(self) -> None:
        """Note whether more are on their way back, or are back, than a channel passes on."""
        back = [*self.returns, *(entry for what, _, entry in self.commands if what == "nack")]
        back += [each.number for each in getattr(self.credit, "_returns", [])]
        if len(back) > PASSED_ON_MAX:
            self.split_to = max(self.split_to, *back)

    def arrived(self, fetch: int, entry: int) -> None:
        self.last_heard = min(self.last_heard, entry - 1)  # returned in flight: it comes again
        super().arrived(fetch, entry)

    @rule(count=st.sampled_from([0, 1, 3, 20]))
    def is_slow(self, count: int) -> None:
        """Set how much is in front of a channel when it takes a cancel."""
        self.crossing = count

    @precondition(lambda self: self.commands)
    @rule()
    def rabbitmq_works(self) -> None:
        """A channel takes a command; the queue counts its messages without waiting for acks."""
        command = self.commands[0]
        what, fetch, _ = command
        if what == "ack":
            self.passed_on.append(self.commands.popleft())
            return
        before = set(self.replies)
        if what != "look":
            self.take_acks(fetch)
        if what == "close":
            sent = [each for each in self.replies if each[:2] == ("message", fetch)]
            fetched = sum(each not in before for each in sent)
            for each in sent[max(len(sent) - max(fetched, self.crossing), 0) :]:
                self.replies.remove(each)
                self.returns.append(each[2])
            self.note_split()
        super().rabbitmq_works()

    def take_acks(self, fetch: int | None = None) -> None:
        """The queue takes acks that channels have passed on: of the channel of a window, or all."""
        mine = self.passed_on if fetch is None or not self.is_apart else [
            each for each in self.passed_on if each[1] == fetch
        ]  # fmt: skip
        self.passed_on = [each for each in self.passed_on if each not in mine]
        for each in mine:
            self.commands.appendleft(each)
            super().rabbitmq_works()

    @precondition(lambda self: self.passed_on)
    @rule()
    def acks_are_taken(self) -> None:
        """The queue takes all acks that channels have passed on."""
        self.take_acks()

    @rule()
    def hear_all(self) -> None:
        while True:
            super().hear_all()
            if not self.passed_on:
                return
            self.acks_are_taken()

    @precondition(lambda self: self.out)
    @rule()
    def delete_all(self) -> None:
        """Each receiver says that it has what it was given."""
        while self.out:
            self.delete(self.out.pop(0))
        self.act()

    def delete(self, message: Any) -> None:
        """The ack may wait."""
        self.had.add(message.number)
        self.done.add(message.number)
        self.deleted.add(message.entry)
        self.machine.delete(message, self.now_s)
        self.carry_out()

    @rule(passed_s=st.sampled_from([0.001, 0.01, 0.03, 0.3, 6.0]))
    def time_passes(self, passed_s: float) -> None:
        """Callers that were answered go on at once."""
        if self.out and not any(self.asks.values()):
            self.delete_all()
        super().time_passes(passed_s)

    @rule(receiver=st.integers(1, 3))
    def withdraw(self, receiver: int) -> None:
        """A call ends with what it has, and its caller goes on."""
        if self.out:
            self.delete_all()
        super().withdraw(receiver)

    @rule()
    def calls_are_interrupted(self) -> None:
        """They end, and what they were given and have not had goes back, in one turn."""
        for receiver in self.asks:
            pending = sum(count for other, count in self.tickets.values() if other == receiver)
            ticket = self.machine.withdraw(receiver)
            self.tickets[ticket] = (receiver, self.asks[receiver] - pending)
        while self.out:
            self.machine.release(self.out.pop(0), self.now_s, self.now_ms)
            self.carry_out()
        self.act()

    @rule(
        counts=st.lists(st.sampled_from([1, 2, 3, 7]), min_size=2, max_size=4),
        is_heard=st.booleans(),
    )
    def calls_are_interrupted_in_turn(self, counts: list[int], is_heard: bool) -> None:
        """Each call asks for a number of its own, and gives back what it got of what went back."""
        for count in counts:
            self.ask(1, count)
            if is_heard:
                self.hear_all()
            self.calls_are_interrupted()
        self.hear_all()

    @rule(
        rounds=st.integers(1, 12),
        count=st.sampled_from([1, 5, 20]),
        pause_s=st.sampled_from([0.0, 0.001, 0.01]),
    )
    def receive_promptly(self, rounds: int, count: int, pause_s: float) -> None:
        """A receiver takes some, deletes them, and asks for more at once."""
        self.publish(count)
        for _ in range(rounds):
            self.ask(1, count)
            self.publish(count)
            self.hear_all()
            if self.out:
                self.delete_all()
            self.time_passes(pause_s)

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        places = [*self.queue, *self.returns, *self.gone, *self.in_the_machine()]
        places += [entry for what, _, entry in self.replies if what == "message"]
        places += [entry for what, _, entry in self.commands if what in ("ack", "nack")]
        places += [entry for _, _, entry in self.passed_on]
        places += [each.entry for each in self.out]
        assert sorted(places) == list(range(1, self.published + 1))

    def teardown(self) -> None:
        """In the end receivers have all, in order, and RabbitMQ has all acks."""
        for _ in range(60):
            if not any(self.asks.values()):
                self.ask(1, 20)
            self.hear_all()
            if self.out:
                self.delete_all()
            self.time_passes(0.3)
        assert self.had == set(range(1, self.published + 1))
        assert len(self.gone) == self.published


class LibraryModel(DeletingModel):
    """Receivers of a client of the library: each window has a channel of its own, acks go at once.

    What is written to one channel may be carried out before what was written to another.
    """

    is_apart = True

    def strategy(self) -> Strategy[Any]:
        return Windows(is_apart=True, windows_max=3)

    def fetch(self, effect: object) -> None:
        """Nothing is fetched while something is on its way back: it would be overtaken."""
        if isinstance(effect, Get | Open):
            assert not any(what == "nack" for what, _, _ in self.commands), "overtakes"
        super().fetch(effect)

    def act(self) -> None:
        """It is told when all is back."""
        is_returning = any(what == "nack" for what, _, _ in self.commands)
        self.machine.plan(self.now_s, self.now_ms, can_fetch=not is_returning)
        self.carry_out()

    def delete(self, message: Any) -> None:
        self.had.add(message.number)
        self.complete(message)

    @precondition(lambda self: self.commands)
    @rule()
    def rabbitmq_works(self) -> None:
        """A channel takes a command, and says so when it was a return."""
        is_return = self.commands[0][0] == "nack"
        super().rabbitmq_works()
        if is_return:
            self.act()

    @precondition(lambda self: self.commands)
    @rule(choice=st.data())
    def another_channel_is_faster(self, choice: st.DataObject) -> None:
        """Its commands are carried out first."""
        fetch = choice.draw(st.sampled_from(sorted({fetch for _, fetch, _ in self.commands})))
        mine = [each for each in self.commands if each[1] == fetch]
        others = [each for each in self.commands if each[1] != fetch]
        self.commands = deque([*mine, *others])


MODELS = {"bridge": DeletingModel, "library": LibraryModel}


@pytest.fixture(params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Iterator[DeletingModel]:
    """A queue whose receivers have all in order in the end."""
    model = MODELS[request.param]()
    yield model
    model.every_message_is_in_one_place()
    model.teardown()


def test_a_call_gets_its_message_alone_and_gives_it_back_again(model: DeletingModel) -> None:
    """It stood before the one that went back with it, and has not come since."""
    model.publish(2)
    model.ask(1, 1)
    model.hear_all()
    model.ask(1, 1)
    model.calls_are_interrupted()
    model.ask(1, 1)
    model.hear_all()
    model.calls_are_interrupted()
    model.receive_promptly(rounds=1, count=5, pause_s=0.0)


@pytest.mark.parametrize("counts", [(5, 3, 1, 2, 1), (30, 1, 29, 2), (20, 19), (2, 1), (3, 3, 1)])
def test_calls_give_back_in_front_of_what_went_back_before(
    counts: tuple[int, ...], model: DeletingModel
) -> None:
    """However many they are given of it."""
    model.publish(50)
    for count in counts:
        model.ask(1, count)
        model.hear_all()
        assert [each.number for each in model.out] == list(range(1, count + 1))
        model.calls_are_interrupted()


def test_what_is_asked_for_meanwhile_is_fetched_when_all_is_back(model: DeletingModel) -> None:
    """The library's next window has a channel of its own, where RabbitMQ may be faster."""
    model.publish(12)
    for count in (6, 2):
        model.ask(1, count)
        model.hear_all()
        model.calls_are_interrupted()
    model.ask(1, 3)
    model.hear_all()
    assert [each.number for each in model.out] == [1, 2, 3]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_is_on_its_way_to_a_call_comes_though_it_is_interrupted(
    count: int, model: DeletingModel
) -> None:
    """RabbitMQ would return it behind what went back before."""
    model.publish(12)
    model.ask(1, 6)
    model.hear_all()
    model.calls_are_interrupted()
    model.hear_all()
    model.is_slow(20)
    model.ask(1, count)
    model.calls_are_interrupted()


def test_what_rabbitmq_returns_behind_what_went_back_is_put_in_its_place(
    model: DeletingModel,
) -> None:
    """It was on its way to a window that was closed since RabbitMQ did not answer."""
    model.publish(12)
    model.ask(1, 6)
    model.hear_all()
    model.calls_are_interrupted()
    model.hear_all()
    model.is_slow(20)
    model.ask(1, 3)
    model.calls_are_interrupted()
    model.time_passes(6.0)


def test_a_call_gets_some_of_what_rabbitmq_has_returned_itself(model: DeletingModel) -> None:
    """Of a window that had room for more; it gives them back in front of the rest."""
    model.publish(1)
    model.ask(1, 9)
    model.hear_all()
    model.calls_are_interrupted()
    model.rabbitmq_works()  # the question whether more is on its way
    model.is_slow(20)
    model.publish(4)
    model.hear_all()
    model.ask(1, 2)
    model.hear_all()
    model.calls_are_interrupted()


SETTINGS = settings(max_examples=examples(100), stateful_step_count=20, deadline=None)
TestDeleting = DeletingModel.TestCase
TestDeleting.settings = SETTINGS
TestLibrary = LibraryModel.TestCase
TestLibrary.settings = SETTINGS
