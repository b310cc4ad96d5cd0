"""The machine of a queue beside a RabbitMQ that crashes, doubles, refuses and loses acks.

After every step each copy of each message is in exactly one place; what is written settles what was
asked, when it was asked; what a receiver has completed never comes again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.credit.balance import FetchState
from bridge.machine.credit.clustered_gets import ClusteredGets
from bridge.machine.credit.effects import Deliver, Get, Open
from bridge.machine.credit.gets import Gets
from bridge.machine.credit.strategy import Strategy
from bridge.machine.credit.windows import Windows
from bridge.machine.queue.effects import Ack, End, Requeue, SendBack
from bridge.machine.queue.fate import Fate, Rules
from bridge.machine.queue.late_acks import HELD_S
from bridge.machine.queue.queue import QueueMachine
from bridge.machine.queue.second_copies import Identity, Left
from bridge.machine.queue.settled import SettledMemory
from tests.fixtures.examples import examples
from tests.unit.machine.credit.rabbitmq import QueueModel

DELIVERIES = 4
"""MaxDeliveryCount."""


@dataclass(slots=True, eq=False)
class Stored:
    """A copy of a message in RabbitMQ; its entry is what RabbitMQ tells copies apart by."""

    number: int
    generation: int = 0
    expires_ms: int | None = None
    count: int = 0
    is_numbered: bool = True


@dataclass(slots=True, eq=False)
class Message:
    """A delivered copy."""

    entry: int
    fetch: int
    number: int
    generation: int
    failures: int
    expires_ms: int | None
    time_to_live_ms: int | None = 1
    deaths: int = 0
    identity: Identity = b""
    redelivered: bool = False

    def __post_init__(self) -> None:
        self.identity = b"%d" % self.number


@dataclass(slots=True, eq=False)
class Copy:
    """A second copy."""

    entry: int
    fetch: int
    number: int
    generation: int


def copy_of(message: Message) -> Copy:
    """Return what is kept of a second copy."""
    return Copy(message.entry, message.fetch, message.number, message.generation)


@dataclass(slots=True, eq=False)
class Moving:
    """A hand-over that has begun; RabbitMQ may have the new copy, and has not said so."""

    message: Message
    how: Left
    is_stored: bool


class Model(QueueModel):
    """A queue with three receivers; entries of `queue`, `returns` and `replies` are copies."""

    def __init__(self) -> None:
        super().__init__()
        self.machine: QueueMachine[Message, Copy] = QueueMachine(
            cast(Any, self.credit), SettledMemory().numbers(), Rules(DELIVERIES), copy_of
        )
        self.stored: dict[int, Stored] = {}
        self.gone: set[int] = set()
        self.out: list[Message] = []
        self.moving: list[Moving] = []
        self.deleted: set[int] = set()
        self.done: set[int] = set()
        self.replaced: dict[int, int] = {}

    def strategy(self) -> Strategy[Any]:
        return Windows(windows_max=3)

    @property
    def must_wait(self) -> bool:
        return len(self.consumers) >= 3

    @property
    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    # What the machine wants done.

    def act(self) -> None:
        self.machine.plan(self.now_s, self.now_ms)
        self.carry_out()

    def carry_out(self) -> None:
        for effect in self.machine.take():
            match effect:
                case Deliver(receiver, message):
                    self.give(receiver, message)
                case Ack():
                    self.acked(effect)
                case Requeue():
                    self.returned_to_queue(effect.held, is_counted=effect.is_counted)
                case End():
                    self.ended(effect.message, effect.fate)
                case SendBack():
                    assert not self.stored[effect.message.entry].is_numbered
                    self.write("ack", effect.message)
                case _:
                    self.fetch(effect)

    def write(self, what: str, held: Message | Copy) -> None:
        """Write a settlement; each copy is settled once."""
        assert held.entry not in self.gone
        assert not any(each[2] == held.entry for each in self.commands if each[0] in SETTLES)
        self.commands.append((what, held.fetch, held.entry))

    def acked(self, effect: Ack) -> None:
        if effect.is_copy:
            assert self.is_over(effect.held.number, effect.held.generation), "nothing proves it"
        else:
            assert effect.held.entry in self.deleted, "its receiver does not have it"
            self.deleted.remove(effect.held.entry)
        self.write("ack", effect.held)

    def is_over(self, number: int, generation: int) -> bool:
        """Whether a copy is settled, or replaced."""
        return number in self.done or generation <= self.replaced.get(number, -1)

    def returned_to_queue(self, held: Message | Copy, *, is_counted: bool) -> None:
        self.write("reject" if is_counted else "nack", held)

    def ended(self, message: Message, fate: Fate) -> None:
        """It is acked or dead-lettered."""
        if fate is Fate.EXPIRED:
            assert message.expires_ms is not None
            assert message.expires_ms <= self.now_ms
        else:
            assert message.failures >= DELIVERIES
        self.done.add(message.number)
        self.write("ack", message)
        self.machine.left(message, Left.SETTLED)
        self.carry_out()

    def give(self, receiver: int, message: Any) -> None:
        """A receiver gets what it asked for, in order, once."""
        assert self.asks[receiver] > 0, "given more than asked"
        assert not self.is_over(message.number, message.generation), "it was settled"
        assert message.expires_ms is None or message.expires_ms > self.now_ms
        assert message.failures < DELIVERIES
        if message.entry not in self.given_back and not self.counts_returns:
            assert message.entry > self.last_given, "given out of order"
            self.last_given = message.entry
        self.got_one(receiver)
        self.out.append(message)

    # RabbitMQ.

    def store(self, stored: Stored) -> None:
        """Put one more copy behind all others."""
        self.published += 1
        self.stored[self.published] = stored
        self.queue.append(self.published)

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.store(Stored(self.published + 1))
        self.fill()

    @rule(lives_s=st.sampled_from([0.001, 0.03, 3.0]))
    def publish_what_expires(self, lives_s: float) -> None:
        self.store(Stored(self.published + 1, expires_ms=self.now_ms + int(lives_s * 1000)))
        self.fill()

    @rule()
    def publish_past_the_front_exchange(self) -> None:
        self.store(Stored(-1, is_numbered=False))
        self.fill()

    @precondition(lambda self: self.stored)
    @rule(choice=st.data())
    def a_second_copy_is_stored(self, choice: st.DataObject) -> None:
        """A leader has published a message twice, or a settled one again."""
        numbered = [each for each in self.stored.values() if each.is_numbered]
        if numbered:
            first = choice.draw(st.sampled_from(numbered[-8:]))
            self.store(Stored(first.number, first.generation, first.expires_ms))
            self.returned.add(self.published)
            self.given_back.add(self.published)
            self.fill()

    @precondition(lambda self: self.commands)
    @rule()
    def rabbitmq_works(self) -> None:
        what, fetch, entry = self.commands[0]
        if what in SETTLES and entry in self.gone:
            raise AssertionError("settled twice")
        if what == "ack":
            self.gone.add(entry)
        if what == "reject":
            self.commands[0] = ("nack", fetch, entry)
            self.stored[entry].count += 1
            if self.stored[entry].count >= DELIVERIES:  # RabbitMQ's delivery limit: a dead letter
                self.commands[0] = ("ack", fetch, entry)
                self.gone.add(entry)
        super().rabbitmq_works()

    @precondition(lambda self: self.replies)
    @rule()
    def hear(self) -> None:
        what, fetch, entry = self.replies.popleft()
        match what:
            case "message":
                self.arrived(fetch, entry)
            case "empty":
                self.machine.empty(fetch)
            case "looked":
                self.machine.looked(fetch, entry, self.looked.pop(fetch))
            case "closed":
                self.machine.closed(fetch)
        self.act()

    def arrived(self, fetch: int, entry: int) -> None:
        if entry not in self.returned:
            assert entry > self.last_heard, "overtaken"
            self.last_heard = entry
        stored = self.stored[entry]
        failures = stored.generation + stored.count
        message = Message(
            entry, fetch, stored.number, stored.generation, failures, stored.expires_ms
        )
        message.redelivered = self.delivered[entry] > 1
        if stored.is_numbered:
            receiver = self.machine.arrived(message, self.now_s, self.now_ms)
            if receiver is not None:
                self.give(receiver, message)
        else:
            self.machine.strayed(message, self.now_s)
        self.carry_out()
        if entry in self.remaining:
            self.machine.counted(self.remaining.pop(entry))

    @rule(applied=st.integers(0, 6))
    def channel_is_lost(self, applied: int) -> None:
        """RabbitMQ has carried out some of what was written, and takes back what is unacked."""
        for _ in range(min(applied, len(self.commands))):
            self.rabbitmq_works()
        waiting = {*self.queue, *self.returns}
        unacked = [each for each in self.stored if each not in waiting and each not in self.gone]
        self.returns = deque(sorted({*self.returns, *unacked}))
        self.returned.update(self.returns)
        self.given_back.update(self.returns)
        self.commands.clear()
        self.replies.clear()
        self.remaining.clear()
        self.looked.clear()
        self.consumers.clear()
        self.cancelled.clear()
        self.got.clear()
        self.room.clear()
        self.out.clear()
        self.moving.clear()
        self.deleted.clear()
        self.machine.lose()
        self.act()

    # Receivers.

    def pop(self, choice: st.DataObject) -> Message:
        message = self.out.pop(choice.draw(st.integers(0, len(self.out) - 1)))
        self.given_back.add(message.entry)
        return message

    def complete(self, message: Message) -> None:
        """No effect is needed: the window is closed if it must be, and the caller acks."""
        self.done.add(message.number)
        self.machine.settling(message.fetch, self.now_s)
        self.carry_out()
        self.write("ack", message)
        self.machine.left(message, Left.SETTLED)
        self.carry_out()

    @precondition(lambda self: self.out)
    @rule(choice=st.data(), how=st.sampled_from(["complete", "complete", "give back", "release"]))
    def settle(self, choice: st.DataObject, how: str) -> None:
        message = self.pop(choice)
        if how == "complete":
            self.complete(message)
        elif how == "give back":
            self.machine.give_back(message, self.now_s)
            self.carry_out()
            assert ("reject", message.fetch, message.entry) in self.commands, "not when asked"
        else:
            self.machine.release(message, self.now_s, self.now_ms)
            self.carry_out()
        self.act()

    @precondition(lambda self: self.out)
    @rule(choice=st.data())
    def received_and_deleted(self, choice: st.DataObject) -> None:
        """Its receiver has it: it never comes again, though its ack may wait, or be lost."""
        message = self.pop(choice)
        self.done.add(message.number)
        self.deleted.add(message.entry)
        self.machine.delete(message, self.now_s)
        self.carry_out()
        self.act()

    @precondition(lambda self: self.out)
    @rule(
        choice=st.data(),
        how=st.sampled_from([Left.REPLACED, Left.DEAD_LETTERED]),
        is_stored=st.booleans(),
    )
    def move(self, choice: st.DataObject, how: Left, is_stored: bool) -> None:
        """A message is published elsewhere, or into its own queue with one failure more."""
        message = self.pop(choice)
        self.machine.settling(message.fetch, self.now_s)
        self.carry_out()
        if how is Left.REPLACED:
            self.machine.putting_back(message, message.failures + 1)
        self.moving.append(Moving(message, how, is_stored))
        if is_stored:
            self.store_moved(self.moving[-1])
        self.act()

    def store_moved(self, moving: Moving) -> None:
        message = moving.message
        if moving.how is Left.REPLACED:
            self.store(Stored(message.number, message.failures + 1, message.expires_ms))
            self.returned.add(self.published)
            self.given_back.add(self.published)
            self.fill()

    @precondition(lambda self: self.moving)
    @rule(is_refused=st.booleans())
    def move_ends(self, is_refused: bool) -> None:
        """RabbitMQ confirms it, or refuses it; what is stored is never refused."""
        moving = self.moving.pop(0)
        message = moving.message
        if is_refused and not moving.is_stored:
            self.machine.stayed(message)
            self.out.append(message)
            return
        if not moving.is_stored:
            self.store_moved(moving)
        if moving.how is Left.REPLACED:
            known = self.replaced.get(message.number, -1)
            self.replaced[message.number] = max(message.generation, known)
        else:
            self.done.add(message.number)
        self.write("ack", message)
        self.machine.left(message, moving.how)
        self.carry_out()
        self.act()

    @rule(times=st.integers(1, 12))
    def work_fast(self, times: int) -> None:
        """A receiver takes one, completes it and asks for the next at once."""
        for _ in range(times):
            self.hear_all()
            if not self.out:
                return
            message = self.out.pop(0)
            self.given_back.add(message.entry)
            self.complete(message)
            self.act()
            self.now_s += 0.001
            self.ask(1, 1)

    def due_s(self) -> float | None:
        return self.machine.due_s()

    # What must hold.

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        places = [*self.queue, *self.returns, *self.gone]
        places += [entry for what, _, entry in self.replies if what == "message"]
        places += [entry for what, _, entry in self.commands if what in SETTLES]
        places += [message.entry for message in self.out]
        places += [moving.message.entry for moving in self.moving]
        places += self.in_the_machine()
        assert sorted(places) == list(range(1, self.published + 1))

    def in_the_machine(self) -> Iterator[int]:
        """Yield what is kept for receivers, waits as a second copy, or waits for its ack."""
        kept = [entry[3] for entry in self.credit.balance.buffer._heap]
        kept += getattr(self.credit, "_returns", [])
        assert len(kept) == self.credit.buffered
        yield from (message.entry for message in kept)  # type: ignore[attr-defined]
        for copies in self.machine.copies._waiting.values():
            yield from (copy.entry for _, copy in copies)
        for waiting in self.machine.late._waiting.values():
            yield from (message.entry for message, _ in waiting)

    @invariant()
    def all_is_carried_out(self) -> None:
        assert not self.machine.due

    @invariant()
    def no_ack_waits_for_ever(self) -> None:
        """The window that must end before is closed in time."""
        oldest_s = self.machine.late.oldest_s
        if oldest_s is not None and self.now_s > oldest_s + HELD_S + 0.001:
            for fetch in self.machine.late._waiting:
                entry = self.credit.balance.fetches[fetch]
                assert entry.state is FetchState.CLOSING

    def teardown(self) -> None:
        """In the end receivers that ask and complete have all: nothing is held for ever."""
        for _ in range(400):
            while self.moving:
                self.move_ends(is_refused=False)
            while self.out:
                message = self.out.pop(0)
                self.given_back.add(message.entry)
                self.complete(message)
            self.act()
            self.hear_all()
            self.time_passes(0.3)
            if len(self.gone) == self.published:
                break
            if not any(self.asks.values()):
                self.ask(1, 20)
        assert len(self.gone) == self.published, "something is never delivered"
        for receiver in self.asks:
            self.withdraw(receiver)
        super().teardown()
        assert not len(self.machine)


SETTLES = ("ack", "reject", "nack")


def a_machine() -> QueueMachine[Message, Copy]:
    """Return the machine of a queue of RabbitMQ 4.3."""
    return QueueMachine(Windows(), SettledMemory().numbers(), Rules(DELIVERIES), copy_of)


def planned(machine: QueueMachine[Message, Copy], now_s: float) -> list[Any]:
    """Return what the machine wants done."""
    machine.plan(now_s, int(now_s * 1000))
    return machine.take()


def message(number: int, fetch: int, expires_ms: int | None = None) -> Message:
    """Return a message that has come."""
    return Message(number, fetch, number, 0, 0, expires_ms)


def test_a_message_that_came_too_late_is_ended_and_another_fetched() -> None:
    """Its receiver still wants one."""
    machine = a_machine()
    machine.ask(1, 1, 1.0)
    assert planned(machine, 1.0) == [Get(1)]
    late = message(1, 1, expires_ms=1_000)
    assert machine.arrived(late, 1.0, 1_000) is None
    (end,) = machine.take()
    assert (end.message, end.fate) == (late, Fate.EXPIRED)
    assert planned(machine, 1.0) == [Get(2)]


def test_a_message_that_expires_while_it_is_kept_is_given_to_nobody() -> None:
    """The receiver that it was meant for is the first for the next message."""
    machine = QueueMachine(Gets(), SettledMemory().numbers(), Rules(DELIVERIES), copy_of)
    for number, expires_ms in ((1, 1_500), (2, None)):
        machine.put_down(message(number, 0, expires_ms), 1.0)
    machine.ask(1, 1, 2.0)
    machine.ask(2, 1, 2.0)
    *_, end, given = planned(machine, 2.0)
    assert (end.message.number, end.fate) == (1, Fate.EXPIRED)
    assert (given.receiver, given.message.number) == (2, 2)
    assert machine.arrived(message(3, 9), 2.0, 2_000) == 1


def test_a_received_and_deleted_message_whose_channel_is_lost_is_not_acked() -> None:
    """RabbitMQ brings it again, and then it is a second copy."""
    machine = a_machine()
    machine.ask(1, 3, 1.0)
    assert planned(machine, 1.0) == [Open(1, 3)]
    assert machine.arrived(message(1, 1), 1.0, 1_000) == 1
    machine.delete(message(1, 1), 1.0)
    assert planned(machine, 1.0) == [], "its ack would fetch a message that nobody asks for"
    machine.lose()
    assert not any(isinstance(each, Ack) for each in planned(machine, 3.0))
    assert machine.arrived(message(1, 2), 3.0, 3_000) is None
    (ack,) = machine.take()
    assert (ack.is_copy, ack.held.fetch) == (True, 2)


class ApartModel(Model):
    """Each window has a channel of its own: what comes on another may be first."""

    is_apart = True

    def strategy(self) -> Strategy[Any]:
        return Windows(is_apart=True, windows_max=3)

    @precondition(lambda self: self.replies)
    @rule(choice=st.data())
    def another_is_faster(self, choice: st.DataObject) -> None:
        fetch = choice.draw(st.sampled_from(sorted({fetch for _, fetch, _ in self.replies})))
        mine = [reply for reply in self.replies if reply[1] == fetch]
        others = [reply for reply in self.replies if reply[1] != fetch]
        self.replies = deque([*mine, *others])


class GetsModel(ApartModel):
    """One node before 4.3: what nobody wants is kept."""

    counts_returns = True

    def strategy(self) -> Strategy[Any]:
        gets: Gets[Any] = Gets(ahead_max=4)
        gets.limit(10)
        return gets


class ClusteredGetsModel(Model):
    """A cluster before 4.3."""

    counts_returns = True

    def strategy(self) -> Strategy[Any]:
        return ClusteredGets()

    def act(self) -> None:
        """Nothing arrives in the instant of a cancel, for nothing has for a while."""
        super().act()
        while any(what == "close" for what, _, _ in self.commands):
            self.rabbitmq_works()

    @property
    def must_wait(self) -> bool:
        return True


SETTINGS = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
TestQueue = Model.TestCase
TestQueue.settings = SETTINGS
TestQueueApart = ApartModel.TestCase
TestQueueApart.settings = SETTINGS
TestQueueOfGets = GetsModel.TestCase
TestQueueOfGets.settings = SETTINGS
TestQueueOfClusteredGets = ClusteredGetsModel.TestCase
TestQueueOfClusteredGets.settings = SETTINGS
