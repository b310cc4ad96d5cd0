"""Receiving and deleting from RabbitMQ 4.3, which loses the order of what is in flight at a cancel.

A channel returns what comes for a consumer that it has cancelled, before whatever is returned later
(cancel-order in docs/rabbitmq-faults.md): what acks have fetched that the queue takes while the
channel waits for the cancel, and what was published in that instant. Receivers that delete have all
in order nevertheless, whenever they pause, and when their calls are interrupted.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.credit.strategy import Strategy
from bridge.machine.credit.windows import Windows
from tests.fixtures.examples import examples
from tests.unit.machine.queue.test_queue import Model


class DeletingModel(Model):
    """Receivers of a bridge, that delete what they get; acks are between channel and queue.

    Attributes:
        crossing: how many messages that a window is sent are still in front of its channel.
    """

    def __init__(self) -> None:
        super().__init__()
        self.passed_on: list[tuple[str, int, int]] = []
        self.had: set[int] = set()
        self.crossing = 0

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
        assert message.number == first, f"{message.number} before {first}"
        self.given_back.add(message.entry)
        self.got_one(receiver)
        self.out.append(message)

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

    def act(self) -> None:
        """Nothing is fetched while something is on its way back."""
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


SETTINGS = settings(max_examples=examples(100), stateful_step_count=20, deadline=None)
TestDeleting = DeletingModel.TestCase
TestDeleting.settings = SETTINGS
TestLibrary = LibraryModel.TestCase
TestLibrary.settings = SETTINGS
