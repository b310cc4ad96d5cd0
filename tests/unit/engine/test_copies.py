"""Second copies of a message are recognised; what was put back changed is none."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.broker.channel import Channel
from bridge.broker.delivery import Delivery
from bridge.broker.transport import Transport
from bridge.engine.copies import SETTLED_MAX, SETTLED_MS, Copies
from bridge.engine.holding import Holding, read
from bridge.wire import headers
from bridge.wire.basic import Properties, Table, long
from bridge.wire.stamp import NO_IDENTITY

A, B = b"a" * 20, b"b" * 20


async def without_socket() -> Channel:
    """Return a channel that nothing is sent on."""
    return Channel(Transport(lambda _: None), 1, on_free=lambda _: None)


CHANNEL = asyncio.run(without_socket())


def message(
    number: int,
    *,
    generation: int = 0,
    failures: int = 0,
    identity: bytes = NO_IDENTITY,
    enqueued_ms: int = 1,
    tag: int = 1,
) -> Holding:
    """A delivery of a numbered message, read."""
    table: Table = {
        headers.SEQUENCE_NUMBER: long(number),
        headers.ENQUEUED_TIME: long(enqueued_ms),
        headers.IDENTITY: ("x", identity),
    }
    if generation:
        table[headers.DELIVERED] = long(generation)
    if failures:
        table["x-delivery-count"] = long(failures)
    raw = Properties(headers=table).encode()
    delivery = Delivery(tag, False, "orders/$active", "", raw, b"", "1", CHANNEL)
    return read(delivery, 1, can_expire=True)


def test_a_message_that_is_held_is_not_held_twice() -> None:
    """Until it is let go; then it may come again."""
    copies = Copies()
    copies.hold(message(1))
    assert copies.is_second(message(1), 0)
    copies.let_go(message(1))
    assert not copies.is_second(message(1), 0)


def test_what_is_settled_is_remembered_for_a_while() -> None:
    """After that time RabbitMQ would have brought the copy."""
    copies = Copies()
    copies.settle(message(1), 0)
    assert copies.is_second(message(1), SETTLED_MS - 1)
    assert not copies.is_second(message(1), SETTLED_MS)


def test_two_messages_under_one_number_are_no_copies() -> None:
    """One of them would be lost."""
    copies = Copies()
    copies.hold(message(1, identity=A))
    copies.settle(message(2, identity=A), 0)
    copies.settle(message(3, enqueued_ms=1), 0)
    assert not copies.is_second(message(1, identity=B), 0)
    assert not copies.is_second(message(2, identity=B), 0)
    assert not copies.is_second(message(3, enqueued_ms=2), 0)


def test_one_message_under_two_numbers_is_a_copy() -> None:
    """A sequencer that does not know of the first number gives it another."""
    copies = Copies()
    copies.hold(message(1, identity=A))
    assert copies.is_second(message(2, identity=A), 0)


def test_a_message_put_back_with_changed_properties_is_no_copy() -> None:
    """Not even when it comes before the old one is acked; the old one is a copy from then on."""
    copies = Copies()
    copies.hold(message(1))
    copies.expect(message(1), 1)
    assert not copies.is_second(message(1, generation=1), 0)
    copies.hold(message(1, generation=1))
    copies.expect_no_more(message(1))
    copies.settle(message(1), 0, is_put_back=True)
    assert len(copies) == 1
    assert copies.is_second(message(1, generation=1), 0)
    copies.let_go(message(1, generation=1))
    assert copies.is_second(message(1), 0)
    assert not copies.is_second(message(1, generation=1), 0)


def test_of_what_a_dead_bridge_has_put_back_and_not_acked_the_second_is_the_copy() -> None:
    """Whichever comes first is delivered, and when it is settled the other is dropped."""
    for first, second in ((0, 1), (1, 0)):
        copies = Copies()
        copies.hold(message(1, generation=first))
        assert copies.is_second(message(1, generation=second), 0)
        copies.settle(message(1, generation=first), 0)
        assert copies.is_second(message(1, generation=second), 0)


def waiting(copies: Copies, *second: Holding) -> None:
    """Second copies come and wait."""
    for each in second:
        assert copies.is_second(each, 0)
        copies.wait(each)


def test_a_copy_of_what_is_held_waits_and_is_settled_with_it() -> None:
    """It may be the only one that RabbitMQ still knows."""
    copies = Copies()
    copies.hold(message(1))
    copies.hold(message(2))
    waiting(copies, message(1, tag=5), message(2, tag=6), message(1, tag=7))
    assert not copies.take_settled((1, 1), 0)
    assert not copies.take_free((1, 1))
    copies.settle(message(1), 0)
    assert [each.tag for each in copies.take_settled((1, 1), 0)] == [5, 7]
    assert copies.has_waiting
    copies.settle(message(2), 0)
    assert [each.tag for each in copies.take_settled((2, 1), 0)] == [6]
    assert not copies.has_waiting


def test_a_copy_goes_back_with_the_held_one() -> None:
    """The next that comes is the message, and others wait for it."""
    copies = Copies()
    copies.hold(message(1))
    waiting(copies, message(1, tag=5))
    copies.let_go(message(1))
    assert not copies.take_settled((1, 1), 0)
    assert [each.tag for each in copies.take_free((1, 1))] == [5]
    assert not copies.has_waiting
    assert not copies.is_second(message(1), 0)


def test_a_copy_of_what_was_put_back_changed_is_not_settled_with_the_old_one() -> None:
    """Its own one may be locked just now; copies of the old one are gone with that."""
    copies = Copies()
    copies.hold(message(1))
    copies.expect(message(1), 1)
    copies.hold(message(1, generation=1))
    waiting(copies, message(1, generation=1, tag=5), message(1, tag=6))
    copies.expect_no_more(message(1))
    copies.settle(message(1), 0, is_put_back=True)
    assert [each.tag for each in copies.take_settled((1, 1), 0)] == [6]
    assert not copies.take_free((1, 1))
    copies.let_go(message(1, generation=1))
    assert [each.tag for each in copies.take_free((1, 1))] == [5]


def test_a_lost_channel_forgets_what_was_held_and_not_what_was_settled() -> None:
    """RabbitMQ brings back the one, and may bring back the other."""
    copies = Copies()
    copies.hold(message(1))
    waiting(copies, message(1))
    copies.settle(message(2), 0)
    copies.lose_all()
    assert not copies.has_waiting
    assert not copies.is_second(message(1), 0)
    assert copies.is_second(message(2), 0)


def test_the_memory_is_bounded() -> None:
    """In number and in time."""
    copies = Copies()
    for number in range(SETTLED_MAX + 10):
        copies.settle(message(number), 0)
    assert len(copies._settled) == SETTLED_MAX
    copies.settle(message(-1 + 10**9), SETTLED_MS)
    assert len(copies._settled) == 1


def test_failures_in_another_queue_are_left_out() -> None:
    """RabbitMQ 4 shows them at a dead letter's first delivery."""
    copies = Copies()
    assert copies.failures_here(message(1, failures=4)) == 0
    assert copies.failures_here(message(1, failures=5)) == 1
    assert copies.failures_here(message(2)) == 0
    assert copies.failures_here(message(2, failures=1)) == 1


def test_two_dead_letters_with_one_number_are_counted_apart() -> None:
    """What one came with says nothing of the other."""
    copies = Copies()
    assert copies.failures_here(message(1, identity=A, failures=4)) == 0
    assert copies.failures_here(message(1, identity=B, failures=1)) == 0
    assert copies.failures_here(message(1, identity=B, failures=2)) == 1


@dataclass(eq=False)
class _Stored:
    """A message of RabbitMQ's.

    Attributes:
        tag: of its delivery that counts; `None` while it is ready.
    """

    number: int
    generation: int
    tag: int | None = None


class CopiesOfWhatRabbitMQBringsAgain(RuleBasedStateMachine):
    """A RabbitMQ that takes back what it likes, and what the engine does with what comes.

    What is neither completed nor put back with changes is never acked, whatever else is acked
    under its identity; and no copy waits for nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copies = Copies()
        self.stored: list[_Stored] = []
        self.held: list[Holding] = []
        self.leaving: list[Holding] = []
        self.completed: set[int] = set()
        self.published = 0
        self.last_tag = 0

    def store(self, number: int, generation: int = 0) -> None:
        self.stored.append(_Stored(number, generation))

    def ack(self, tag: int) -> None:
        self.stored = [each for each in self.stored if each.tag != tag]

    def requeue(self, tag: int) -> None:
        for each in self.stored:
            if each.tag == tag:
                each.tag = None

    def end_waits(self, holding: Holding) -> None:
        for copy in self.copies.take_settled(holding.identity, 0):
            self.ack(copy.tag)
        for copy in self.copies.take_free(holding.identity):
            self.requeue(copy.tag)

    def remember(self, holding: Holding, *, is_put_back: bool = False) -> None:
        self.ack(holding.tag)
        self.copies.expect_no_more(holding)
        self.copies.settle(holding, 0, is_put_back=is_put_back)
        self.end_waits(holding)

    def arrive(self, stored: _Stored) -> None:
        self.last_tag += 1
        stored.tag = self.last_tag
        holding = message(stored.number, generation=stored.generation, tag=self.last_tag)
        if self.copies.is_second(holding, 0):
            self.copies.wait(holding)
            self.end_waits(holding)
        else:
            self.copies.hold(holding)
            self.held.append(holding)

    def end(self, holding: Holding) -> None:
        self.completed.add(holding.number)
        self.remember(holding)

    def take(self, data: st.DataObject, holdings: list[Holding]) -> Holding:
        return holdings.pop(data.draw(st.integers(0, len(holdings) - 1)))

    @rule()
    def publish(self) -> None:
        self.published += 1
        self.store(self.published)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def publish_once_more(self, data: st.DataObject) -> None:
        """The sequencer does not know that it is stored."""
        again = data.draw(st.sampled_from(self.stored))
        self.store(again.number, again.generation)

    @precondition(lambda self: any(each.tag is None for each in self.stored))
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        ready = [each for each in self.stored if each.tag is None]
        self.arrive(data.draw(st.sampled_from(ready)))

    @precondition(lambda self: any(each.tag is not None for each in self.stored))
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        """Nobody tells the engine."""
        unacked = [each for each in self.stored if each.tag is not None]
        data.draw(st.sampled_from(unacked)).tag = None

    @rule()
    def lose_the_connection(self) -> None:
        for each in self.stored:
            each.tag = None
        self.held.clear()
        self.leaving.clear()
        self.copies.lose_all()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        self.end(self.take(data, self.held))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        holding = self.take(data, self.held)
        self.copies.let_go(holding)
        self.requeue(holding.tag)
        self.end_waits(holding)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), is_refused=st.booleans())
    def begin_to_put_back_with_changes(self, data: st.DataObject, is_refused: bool) -> None:
        holding = self.take(data, self.held)
        self.copies.expect(holding, holding.generation + 1)
        if is_refused:
            self.copies.expect_no_more(holding)
            self.held.append(holding)
        else:
            self.store(holding.number, holding.generation + 1)
            self.leaving.append(holding)

    @precondition(lambda self: self.leaving)
    @rule(data=st.data())
    def have_put_back_with_changes(self, data: st.DataObject) -> None:
        self.remember(self.take(data, self.leaving), is_put_back=True)

    @invariant()
    def what_is_not_completed_is_in_rabbitmq(self) -> None:
        stored = {each.number for each in self.stored}
        assert set(range(1, self.published + 1)) - self.completed <= stored

    @invariant()
    def no_copy_waits_for_nothing(self) -> None:
        held = {holding.identity for holding in (*self.held, *self.leaving)}
        assert self.copies._waiting.keys() <= held

    def teardown(self) -> None:
        """When all that is held is completed, and all else too when it comes, nothing is left."""
        for holding in self.leaving:
            self.remember(holding, is_put_back=True)
        while True:
            while self.held:
                self.end(self.held.pop())
            ready = [each for each in self.stored if each.tag is None]
            if not ready:
                break
            self.arrive(ready[0])
        assert not self.stored
        assert not self.copies.has_waiting


TestCopiesOfWhatRabbitMQBringsAgain = CopiesOfWhatRabbitMQBringsAgain.TestCase
TestCopiesOfWhatRabbitMQBringsAgain.settings = settings(
    max_examples=400, stateful_step_count=50, deadline=None
)
