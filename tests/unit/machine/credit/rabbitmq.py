"""A queue of RabbitMQ that fills every prefetch, with commands and deliveries on their way.

Never does a receiver get more than it asked for; every message is in one place; what is asked for
is fetched; messages come in the order of the queue, though the answer to a get overtakes what is on
its way to windows.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.machine.credit.effects import Close, Deliver, Get, Look, Open, Return, Withdrawn
from bridge.machine.credit.strategy import Strategy


@dataclass(slots=True, eq=False)
class Fetched:
    """A message that has come."""

    number: int
    fetch: int
    redelivered: bool = False


class QueueModel(RuleBasedStateMachine):
    """One queue, three receivers, one process."""

    is_apart = False
    counts_returns = False
    serves_in_turn = False

    def __init__(self) -> None:
        super().__init__()
        self.credit = self.strategy()
        self.now_s = 1.0
        self.commands: deque[tuple[str, int, int]] = deque()
        self.replies: deque[tuple[str, int, int]] = deque()
        self.queue: deque[int] = deque()
        self.returns: deque[int] = deque()
        self.returned: set[int] = set()
        self.delivered: Counter[int] = Counter()
        self.remaining: dict[int, int] = {}
        self.looked: dict[int, int] = {}
        self.consumers: set[int] = set()
        self.cancelled: set[int] = set()
        self.got: set[int] = set()
        self.room: dict[int, int] = {}
        self.here: dict[int, Fetched] = {}
        self.held: list[Fetched] = []
        self.asks = {1: 0, 2: 0, 3: 0}
        self.tickets: dict[int, tuple[int, int]] = {}
        self.last_heard = self.last_given = 0
        self.given_back: set[int] = set()
        self.owed: set[int] = set()
        self.published = self.settled = self.others = 0

    def strategy(self) -> Strategy[Fetched]:
        raise NotImplementedError

    @property
    def ready(self) -> int:
        return len(self.queue) + len(self.returns)

    @property
    def unapplied(self) -> list[tuple[str, int, int]]:
        """What RabbitMQ was told and the queue has not carried out."""
        return [*self.commands]

    def act(self) -> None:
        for effect in self.credit.plan(self.now_s):
            match effect:
                case Deliver(receiver, message):
                    del self.here[message.number]
                    self.give(receiver, message)
                case Return(message):
                    del self.here[message.number]
                    self.give_back(message)
                case _:
                    self.fetch(effect)

    def fetch(self, effect: object) -> None:
        """Carry out what begins or ends a fetch, or a receiver's wish."""
        match effect:
            case Open(fetch, size):
                if self.serves_in_turn:
                    assert not any(self.rooms()), "two windows with room"
                self.commands.append(("open", fetch, size))
            case Get(fetch):
                self.commands.append(("get", fetch, 0))
            case Look(fetch):
                self.commands.append(("look", fetch, 0))
            case Close(fetch):
                self.commands.append(("close", fetch, 0))
            case Withdrawn(ticket):
                receiver, count = self.tickets.pop(ticket)
                self.asks[receiver] -= min(count, self.asks[receiver])
            case _:
                raise AssertionError(effect)

    def due_s(self) -> float | None:
        return self.credit.due_s

    def rooms(self) -> list[int]:
        return [entry.room for entry in self.credit.balance.fetches.values() if entry.room][:-1]

    def give(self, receiver: int, message: Fetched) -> None:
        assert self.asks[receiver] > 0, "given more than asked"
        if message.number not in self.given_back and not self.counts_returns:
            assert message.number > self.last_given, "given out of order"
            self.last_given = message.number
        self.owed.discard(message.number)
        if message.number not in self.given_back | self.returned:
            assert not self.owed or message.number < min(self.owed), "what went back is overtaken"
        self.got_one(receiver)
        self.held.append(message)

    def got_one(self, receiver: int) -> None:
        """Count a message against what its receiver has asked for."""
        self.asks[receiver] -= 1
        for ticket, (other, count) in self.tickets.items():
            if other == receiver and count:
                self.tickets[ticket] = (other, count - 1)
                break

    def settling(self, message: Fetched) -> None:
        effect = self.credit.settling(message.fetch, self.now_s)
        if effect is not None:
            self.commands.append(("close", effect.fetch, 0))

    def give_back(self, message: Fetched) -> None:
        self.settling(message)
        self.commands.append(("nack", message.fetch, message.number))

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.published += 1
            self.queue.append(self.published)
        self.fill()

    def fill(self) -> None:
        """Serve the consumers; what comes at once is sent consumer by consumer."""
        sent: dict[int, list[int]] = {}
        while self.ready and (
            turns := [each for each in sorted(self.consumers) if self.room[each]]
        ):
            for fetch in turns[: self.ready] if self.serves_in_turn else turns[:1]:
                self.room[fetch] -= 1
                sent.setdefault(fetch, []).append(self.next())
        for fetch, numbers in sent.items():
            self.replies += [("message", fetch, number) for number in numbers]

    def next(self) -> int:
        """What was returned comes first, in the order in which it was."""
        number = (self.returns or self.queue).popleft()
        self.delivered[number] += 1
        return number

    @precondition(lambda self: self.commands)
    @rule()
    def rabbitmq_works(self) -> None:
        what, fetch, number = self.commands.popleft()
        match what:
            case "open":
                self.consumers.add(fetch)
                self.room[fetch] = number
            case "get" if self.ready:
                self.got.add(fetch)
                found = self.next()
                self.remaining[found] = self.ready
                self.answer_a_get(fetch, found)
            case "get":
                self.others = 0
                self.replies.append(("empty", fetch, 0))
            case "look":
                self.looked[fetch] = len(self.consumers) + len(self.got)
                self.replies.append(("looked", fetch, self.ready + self.others))
            case "close":
                self.consumers.discard(fetch)
                self.cancelled.add(fetch)
                self.replies.append(("closed", fetch, 0))
            case "ack" | "nack":
                if what == "ack":
                    self.settled += 1
                else:
                    self.returned.add(number)
                    if any(other > number for other in self.returns):
                        self.given_back.add(number)  # RabbitMQ puts it behind those
                    self.returns.append(number)
                self.got.discard(fetch)
                if fetch in self.consumers:
                    self.room[fetch] += 1
        self.fill()

    def answer_a_get(self, fetch: int, number: int) -> None:
        """RabbitMQ's channel waits for the queue's answer; deliveries wait in its mailbox."""
        place = len(self.replies)
        while place and self.replies[place - 1][1] in self.room:
            place -= 1
        self.replies.insert(place, ("message", fetch, number))

    @precondition(lambda self: self.replies)
    @rule()
    def hear(self) -> None:
        what, fetch, number = self.replies.popleft()
        match what:
            case "message":
                if number not in self.returned:
                    assert number > self.last_heard, "overtaken"
                    self.last_heard = number
                message = Fetched(number, fetch, self.delivered[number] > 1)
                receiver = self.credit.arrived(fetch, message, self.now_s)
                if receiver is None:
                    self.here[number] = message
                else:
                    self.give(receiver, message)
                if number in self.remaining:
                    self.credit.counted(self.remaining.pop(number))
            case "empty":
                self.credit.empty(fetch)
            case "looked":
                self.credit.looked(fetch, number, self.looked.pop(fetch))
            case "closed":
                self.credit.closed(fetch)
        self.act()

    @rule(count=st.integers(0, 3))
    def another_client_receives(self, count: int) -> None:
        """RabbitMQ counts messages that go to another client, until a get finds none."""
        self.others = count

    @rule()
    def hear_all(self) -> None:
        for _ in range(10_000):
            if self.commands:
                self.rabbitmq_works()
            elif self.replies:
                self.hear()
            else:
                return
        raise AssertionError("it never becomes quiet")

    @rule(passed_s=st.sampled_from([0.001, 0.01, 0.03, 0.3, 6.0]))
    def time_passes(self, passed_s: float) -> None:
        """The timer fires as soon as there is something to do."""
        end_s = self.now_s + passed_s
        for _ in range(1_000):
            due_s = self.due_s()
            if due_s is None or due_s > end_s:
                break
            self.now_s = max(due_s, self.now_s) + 0.0001
            self.act()
        else:
            raise AssertionError("it is always due")
        self.now_s = max(self.now_s, end_s)

    @rule(receiver=st.integers(1, 3), count=st.just(1) | st.integers(1, 20))
    def ask(self, receiver: int, count: int) -> None:
        self.credit.ask(receiver, count, self.now_s)
        self.asks[receiver] += count
        self.act()

    @rule(receiver=st.integers(1, 3))
    def withdraw(self, receiver: int) -> None:
        pending = sum(count for other, count in self.tickets.values() if other == receiver)
        ticket = self.credit.withdraw(receiver)
        self.tickets[ticket] = (receiver, self.asks[receiver] - pending)
        self.act()

    @precondition(lambda self: self.held)
    @rule(choice=st.data(), how=st.sampled_from(["ack", "ack", "nack", "release"]))
    def settle(self, choice: st.DataObject, how: str) -> None:
        message = self.held.pop(choice.draw(st.integers(0, len(self.held) - 1)))
        self.given_back.add(message.number)
        if how != "ack" and not any(self.asks.values()) and not self.counts_returns:
            self.owed.add(message.number)
        if how == "nack":
            self.credit.returning(message)
        if how == "release":
            self.here[message.number] = message
            self.credit.released(message, self.now_s)
        else:
            self.settling(message)
            self.commands.append((how, message.fetch, message.number))
        self.act()

    @rule(times=st.integers(1, 12))
    def work_fast(self, times: int) -> None:
        """A receiver takes one, completes it and asks for the next at once."""
        for _ in range(times):
            self.hear_all()
            if not self.held:
                return
            message = self.held.pop(0)
            self.given_back.add(message.number)
            self.settling(message)
            self.commands.append(("ack", message.fetch, message.number))
            self.act()
            self.now_s += 0.001
            self.ask(1, 1)

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        numbers = [*self.queue, *self.returns, *self.here]
        numbers += [number for what, _, number in self.replies if what == "message"]
        numbers += [number for what, _, number in self.unapplied if what == "nack"]
        numbers += [message.number for message in self.held]
        acks = sum(1 for what, _, _ in self.unapplied if what == "ack")
        assert len(numbers) == len(set(numbers))
        assert len(numbers) + acks + self.settled == self.published
        assert len(self.here) == self.credit.buffered

    @invariant()
    def no_more_is_on_its_way_than_is_counted(self) -> None:
        on_its_way = sum(1 for what, _, _ in self.replies if what == "message")
        on_its_way += sum(1 for what, _, _ in self.commands if what == "get")
        on_its_way += sum(size for what, _, size in self.commands if what == "open")
        on_its_way += sum(self.room[fetch] for fetch in self.consumers)
        assert on_its_way <= self.credit.balance.under_way

    def teardown(self) -> None:
        """When all has been said, what is asked for has come, or the queue is empty."""
        for _ in range(40):
            self.hear_all()
            self.time_passes(0.3)
        self.hear_all()
        assert not self.tickets
        assert not self.ready or not self.credit.balance.waiters.asked or self.must_wait
        if self.credit.due_s is None:
            assert not self.here

    @property
    def must_wait(self) -> bool:
        """Whether nothing may be fetched until a message is settled."""
        return False
