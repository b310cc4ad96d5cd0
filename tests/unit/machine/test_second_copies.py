"""Second copies of a message are recognised, and nothing is dropped that nothing proves."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import OrderedDict
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.machine.queue.second_copies import (
    LEFT_MAX,
    CopyStatus,
    Identity,
    Left,
    LeftMessages,
    SecondCopies,
    digest,
)
from bridge.machine.queue.settled import (
    MEMORY_BYTES_MAX,
    PAGE_BYTES,
    PAGE_NUMBERS,
    SettledMemory,
)
from tests.fixtures.examples import examples

A, B = b"a" * 20, b"b" * 20


@dataclass(eq=False)
class Message:
    """A message as it came."""

    number: int
    generation: int = 0
    identity: Identity = A
    tag: int = 1
    deaths: int = 0


def second_copies_of(memory: SettledMemory | None = None) -> SecondCopies[int]:
    """Return one whose copies are delivery tags."""
    return SecondCopies((memory or SettledMemory()).numbers())


def test_a_message_that_is_held_is_not_held_twice() -> None:
    """Until it is let go; then it may come again."""
    messages = second_copies_of()
    messages.hold(Message(1))
    assert messages.status_of(Message(1)) is CopyStatus.HELD
    assert messages.status_of(Message(2)) is CopyStatus.NEW
    messages.let_go(Message(1))
    assert messages.status_of(Message(1)) is CopyStatus.NEW


def test_what_is_settled_is_known_by_identity_and_number() -> None:
    """A message of an equal number or of an equal identity is another one."""
    messages = second_copies_of()
    messages.hold(Message(1))
    assert messages.leave(Message(1), Left.SETTLED) == []
    assert messages.status_of(Message(1)) is CopyStatus.SETTLED
    assert messages.status_of(Message(1, generation=3)) is CopyStatus.SETTLED
    assert messages.status_of(Message(1, identity=B)) is CopyStatus.NEW
    assert messages.status_of(Message(2)) is CopyStatus.NEW


def test_a_native_message_is_known_by_number_and_enqueued_time() -> None:
    """It has nothing else."""
    messages = second_copies_of()
    messages.leave(Message(1, identity=(1, 1_000)), Left.SETTLED)
    assert messages.status_of(Message(1, identity=(1, 1_000))) is CopyStatus.SETTLED
    assert messages.status_of(Message(1, identity=(1, 2_000))) is CopyStatus.NEW


def test_what_has_no_number_is_never_a_copy() -> None:
    """It is sent back to be numbered."""
    messages = second_copies_of()
    for _ in range(2):
        messages.hold(Message(-1))
        assert messages.status_of(Message(-1)) is CopyStatus.NEW
        messages.leave(Message(-1), Left.SETTLED)
        assert messages.status_of(Message(-1)) is CopyStatus.NEW


def test_what_was_moved_to_another_queue_is_not_settled() -> None:
    """An operator may bring it back; what waited for it when it was moved is a copy."""
    messages = second_copies_of()
    messages.hold(Message(1))
    messages.wait(Message(1), 5)
    assert messages.leave(Message(1), Left.MOVED) == [5]
    assert messages.status_of(Message(1)) is CopyStatus.NEW


def test_what_was_dead_lettered_is_gone_unless_somebody_has_brought_it_back() -> None:
    """A message that has been in the dead-letter queue is no copy of the one that went there."""
    messages = second_copies_of()
    messages.hold(Message(1))
    messages.wait(Message(1), 5)
    assert messages.leave(Message(1), Left.DEAD_LETTERED) == [5]
    assert messages.status_of(Message(1)) is CopyStatus.SETTLED
    assert messages.status_of(Message(1, deaths=1)) is CopyStatus.NEW
    assert messages.status_of(Message(1, generation=1, deaths=1)) is CopyStatus.NEW
    assert messages.status_of(Message(1, identity=B)) is CopyStatus.NEW
    messages.forget()
    assert messages.status_of(Message(1)) is CopyStatus.NEW


def test_what_another_bridge_dead_lettered_is_no_copy_of_what_was_replaced_before() -> None:
    """A dead letter counts its deliveries anew: its generation is 0 again, in each queue."""
    messages = second_copies_of()
    for deaths in range(3):
        brought_back = Message(1, deaths=deaths)
        assert messages.status_of(brought_back) is CopyStatus.NEW
        messages.leave(brought_back, Left.REPLACED)
        assert messages.status_of(brought_back) is CopyStatus.SETTLED
        messages.hold(Message(1, generation=1, deaths=deaths))
        messages.lose()


def test_what_is_brought_back_often_and_dead_lettered_each_time_is_no_copy() -> None:
    """But for the copies of what it was before."""
    messages = second_copies_of()
    for deaths in range(3):
        assert messages.status_of(Message(1, deaths=deaths)) is CopyStatus.NEW
        messages.leave(Message(1, deaths=deaths), Left.REPLACED)
        messages.leave(Message(1, generation=1, deaths=deaths), Left.DEAD_LETTERED)
        for generation in range(3):
            copy = Message(1, generation=generation, deaths=deaths)
            assert messages.status_of(copy) is CopyStatus.SETTLED


@pytest.mark.parametrize("how", [Left.DEAD_LETTERED, Left.DEFERRED, Left.REPLACED])
def test_what_is_brought_back_before_it_has_left_here_is_given_back(how: Left) -> None:
    """Whoever moves dead letters back at once is faster than the ack."""
    messages = second_copies_of()
    messages.hold(Message(1))
    messages.wait(Message(1), 5)
    messages.wait(Message(1, deaths=1), 6)
    assert messages.leave(Message(1), how) == [5]
    assert messages.take_free(Message(1)) == [6]
    assert messages.status_of(Message(1, deaths=1)) is CopyStatus.NEW


def test_a_copy_of_what_was_deferred_is_known_unless_somebody_has_brought_it_back() -> None:
    """Deferring counts a delivery; a dead letter counts anew, wherever it was dead-lettered."""
    messages = second_copies_of()
    messages.hold(Message(1, generation=1))
    messages.wait(Message(1), 5)
    assert messages.leave(Message(1, generation=1), Left.DEFERRED) == [5]
    assert messages.status_of(Message(1)) is CopyStatus.SETTLED
    assert messages.status_of(Message(1, generation=1)) is CopyStatus.SETTLED
    assert messages.status_of(Message(1, generation=2)) is CopyStatus.NEW
    assert messages.status_of(Message(1, deaths=1)) is CopyStatus.NEW
    assert messages.status_of(Message(1, identity=B)) is CopyStatus.NEW
    messages.forget()
    assert messages.status_of(Message(1)) is CopyStatus.NEW


@pytest.mark.parametrize("how", [Left.DEAD_LETTERED, Left.DEFERRED, Left.REPLACED])
def test_so_many_messages_that_left_are_known(how: Left) -> None:
    """The oldest is forgotten first."""
    left = LeftMessages()
    for number in range(LEFT_MAX + 1):
        left.note(Message(number), how)
    assert len(left) == LEFT_MAX
    assert not left.has_copy(Message(0))
    assert left.has_copy(Message(1))


def test_a_message_put_back_with_changes_is_no_copy() -> None:
    """Not even when it comes before the old one is acked; the old one is a copy from then on."""
    messages = second_copies_of()
    messages.hold(Message(1))
    messages.expect(Message(1), 1)
    assert messages.status_of(Message(1, generation=1)) is CopyStatus.NEW
    messages.hold(Message(1, generation=1))
    messages.leave(Message(1), Left.REPLACED)
    assert len(messages) == 1
    assert messages.status_of(Message(1, generation=1)) is CopyStatus.HELD
    messages.let_go(Message(1, generation=1))
    assert messages.status_of(Message(1)) is CopyStatus.SETTLED
    assert messages.status_of(Message(1, generation=1)) is CopyStatus.NEW


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_of_what_a_dead_bridge_has_put_back_and_not_acked_the_second_is_the_copy(
    first: int, second: int
) -> None:
    """The first of the two is delivered, and when it is settled the other is dropped."""
    messages = second_copies_of()
    messages.hold(Message(1, generation=first))
    assert messages.status_of(Message(1, generation=second)) is CopyStatus.HELD
    messages.leave(Message(1, generation=first), Left.SETTLED)
    assert messages.status_of(Message(1, generation=second)) is CopyStatus.SETTLED


def test_a_copy_of_what_is_held_is_dropped_with_it() -> None:
    """It may be the only one that RabbitMQ still knows."""
    messages = second_copies_of()
    messages.hold(Message(1))
    messages.hold(Message(2))
    for number, tag in ((1, 5), (2, 6), (1, 7)):
        messages.wait(Message(number), tag)
    assert messages.take_free(Message(1)) == []
    assert messages.leave(Message(1), Left.SETTLED) == [5, 7]
    assert messages.leave(Message(2), Left.SETTLED) == [6]


def test_a_copy_goes_back_with_the_held_one() -> None:
    """The next that comes is the message, and others wait for it."""
    messages = second_copies_of()
    messages.hold(Message(1))
    messages.wait(Message(1), 5)
    messages.let_go(Message(1))
    assert messages.take_free(Message(1)) == [5]
    assert messages.status_of(Message(1)) is CopyStatus.NEW


def test_a_copy_of_what_was_put_back_changed_is_not_dropped_with_the_old_one() -> None:
    """Its own one may be locked just now; copies of the old one are gone with that."""
    messages = second_copies_of()
    messages.hold(Message(1))
    messages.expect(Message(1), 1)
    messages.hold(Message(1, generation=1))
    messages.wait(Message(1, generation=1), 5)
    messages.wait(Message(1), 6)
    assert messages.leave(Message(1), Left.REPLACED) == [6]
    assert messages.take_free(Message(1)) == []
    messages.let_go(Message(1, generation=1))
    assert messages.take_free(Message(1)) == [5]


def test_a_lost_channel_forgets_what_was_held_and_not_what_was_settled() -> None:
    """RabbitMQ brings back the one, and may bring back the other."""
    messages = second_copies_of()
    messages.hold(Message(1))
    messages.wait(Message(1), 5)
    messages.leave(Message(2), Left.SETTLED)
    messages.lose()
    assert messages.take_free(Message(1)) == []
    assert messages.status_of(Message(1)) is CopyStatus.NEW
    assert messages.status_of(Message(2)) is CopyStatus.SETTLED


def test_another_incarnation_of_the_entity_counts_anew() -> None:
    """Its numbers are other messages'."""
    memory = SettledMemory()
    messages = second_copies_of(memory)
    messages.leave(Message(1), Left.SETTLED)
    messages.leave(Message(2), Left.REPLACED)
    messages.forget()
    assert messages.status_of(Message(1)) is CopyStatus.NEW
    assert messages.status_of(Message(2)) is CopyStatus.NEW
    assert memory.used_bytes == 0


@pytest.mark.parametrize("count", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_numbers_are_remembered_in_little_more_than_their_digests(count: int) -> None:
    """Of one queue."""
    tracemalloc.start()
    try:
        memory = SettledMemory()
        numbers = memory.numbers()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            numbers.add(number, (number + 1).to_bytes(16, "big"))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert numbers.digest_of(0) == (1).to_bytes(16, "big")
    assert after - before <= memory.used_bytes <= 1.1 * 16 * count


def test_all_queues_of_a_process_share_one_bound() -> None:
    """The messages that were settled longest ago give way."""
    memory = SettledMemory(limit_bytes=10 * PAGE_BYTES)
    quiet, busy = memory.numbers(), memory.numbers()
    quiet.add(7, digest(A))
    for number in range(0, 50 * PAGE_NUMBERS, PAGE_NUMBERS):
        busy.add(number, digest(A))
        assert memory.used_bytes <= 10 * PAGE_BYTES
    quiet.add(8, digest(A))
    assert quiet.digest_of(7) is None
    assert list(quiet.numbers()) == [8]
    assert list(busy.numbers()) == list(range(41 * PAGE_NUMBERS, 50 * PAGE_NUMBERS, PAGE_NUMBERS))
    assert MEMORY_BYTES_MAX == 64 << 20


PAGES = 3
"""What the machine below remembers: few pages, so that it forgets."""

STRIDE = PAGE_NUMBERS // 2
"""Between one message's number and the next: two a page."""


@dataclass(eq=False)
class _Stored:
    """A message of RabbitMQ's.

    Attributes:
        queue: where it is.
        tag: of its delivery that counts; `None` while it is ready.
    """

    queue: int
    number: int
    identity: Identity
    generation: int
    tag: int | None = None
    deaths: int = 0


def _dead(message: Message | _Stored, queue: int) -> _Stored:
    return _Stored(queue, message.number, message.identity, 0, deaths=message.deaths + 1)


@dataclass
class _Queue:
    """What a bridge knows of one queue, and what is true."""

    messages: SecondCopies[int]
    held: list[Message] = field(default_factory=list)
    leaving: list[Message] = field(default_factory=list)
    settled: OrderedDict[tuple[int, Identity], None] = field(default_factory=OrderedDict)
    replaced: set[tuple[int, Identity, int, int]] = field(default_factory=set)
    dead: set[tuple[int, Identity, int]] = field(default_factory=set)
    deferred: set[tuple[int, Identity, int, int]] = field(default_factory=set)

    def is_dead(self, each: _Stored) -> bool:
        """Whether its bridge dead-lettered it, then or later."""
        key = each.number, each.identity
        return any(
            key == (number, who) and deaths >= each.deaths for number, who, deaths in self.dead
        )

    def is_older(self, each: _Stored) -> bool:
        """Whether its bridge replaced or deferred it, or a later one."""
        key, rank = (each.number, each.identity), (each.deaths, each.generation)
        return any(
            key == (number, identity) and (deaths, generation) >= rank
            for number, identity, deaths, generation in self.replaced | self.deferred
        )


class CopiesOfWhatRabbitMQBringsAgain(RuleBasedStateMachine):
    """A RabbitMQ that stores twice and takes back what it likes, and what the engine does then.

    Nothing is dropped but what is settled, replaced, or a copy of what leaves just then; a copy of
    what is settled is dropped as long as its page is remembered; no copy waits for nothing; the
    memory is bounded. Two queues: what one knows says nothing of the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.memory = SettledMemory(limit_bytes=PAGES * PAGE_BYTES)
        self.queues = [_Queue(SecondCopies(self.memory.numbers())) for _ in range(2)]
        self.recent: OrderedDict[tuple[int, int], None] = OrderedDict()
        self.stored: list[_Stored] = []
        self.alive: set[tuple[int, Identity]] = set()
        self.tags = itertools.count(1)
        self.next_number = 0
        self.published = 0

    def drop(self, queue: _Queue, tags: list[int], *, with_: Message | None = None) -> None:
        """The engine acks copies: each must be proven."""
        for tag in tags:
            for each in [each for each in self.stored if each.tag == tag]:
                key = each.number, each.identity
                is_with = (
                    with_ is not None
                    and key == (with_.number, with_.identity)
                    and each.deaths <= with_.deaths
                )
                is_gone = key in queue.settled or queue.is_dead(each) or queue.is_older(each)
                assert is_gone or is_with, "no proof"
                self.stored.remove(each)

    def ack(self, tag: int) -> None:
        self.stored = [each for each in self.stored if each.tag != tag]

    def requeue(self, tags: list[int]) -> None:
        for each in self.stored:
            if each.tag in tags:
                each.tag = None

    def leave(self, queue: _Queue, message: Message, how: Left) -> None:
        key = message.number, message.identity
        self.ack(message.tag)
        if how is Left.SETTLED:
            queue.settled[key] = None
            page = self.queues.index(queue), message.number // PAGE_NUMBERS
            self.recent[page] = None
            self.recent.move_to_end(page)
        elif how is Left.REPLACED:
            queue.replaced.add((*key, message.deaths, message.generation))
        elif how is Left.DEAD_LETTERED:
            queue.dead.add((*key, message.deaths))
        elif how is Left.DEFERRED:
            queue.deferred.add((*key, message.deaths, message.generation))
        self.drop(queue, queue.messages.leave(message, how), with_=message)
        free = queue.messages.take_free(message)
        for each in self.stored:
            if each.tag in free and how is not Left.REPLACED:
                assert each.deaths > message.deaths, "they leave with it"
        self.requeue(free)

    def arrive(self, stored: _Stored) -> None:
        queue = self.queues[stored.queue]
        stored.tag = next(self.tags)
        message = Message(
            stored.number,
            stored.generation,
            stored.identity,
            stored.tag,
            stored.deaths,
        )
        status = queue.messages.status_of(message)
        key = message.number, message.identity
        if key in queue.settled and self.is_in_window(queue, message.number):
            assert status is CopyStatus.SETTLED, "a proven copy"
        if queue.is_dead(stored):
            assert status is CopyStatus.SETTLED, "a copy of a dead letter"
        if status is CopyStatus.NEW:
            queue.messages.hold(message)
            queue.held.append(message)
        elif status is CopyStatus.HELD:
            queue.messages.wait(message, stored.tag)
        else:
            self.drop(queue, [stored.tag])

    def is_in_window(self, queue: _Queue, number: int) -> bool:
        """Whether the page is among the last, and nothing else was settled under the number."""
        page = self.queues.index(queue), number // PAGE_NUMBERS
        under_it = [key for key in queue.settled if key[0] == number]
        return page in list(self.recent)[-PAGES:] and len(under_it) == 1

    def take(self, data: st.DataObject, which: str) -> tuple[_Queue, Message]:
        queue = data.draw(st.sampled_from([each for each in self.queues if getattr(each, which)]))
        messages: list[Message] = getattr(queue, which)
        return queue, messages.pop(data.draw(st.integers(0, len(messages) - 1)))

    def some_are(self, which: str) -> bool:
        return any(getattr(each, which) for each in self.queues)

    @rule(queue=st.integers(0, 1), is_native=st.booleans(), has_own=st.booleans())
    def publish(self, queue: int, is_native: bool, has_own: bool) -> None:
        """Two have one number when RabbitMQ and the leader failed together."""
        self.next_number += STRIDE if has_own or not self.next_number else 0
        self.published += 1
        number = self.next_number
        identity: Identity = (number, self.published) if is_native else b"%020d" % self.published
        self.stored.append(_Stored(queue, number, identity, 0))
        self.alive.add((number, identity))

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def publish_once_more(self, data: st.DataObject) -> None:
        """The leader does not know that it is stored."""
        again = data.draw(st.sampled_from(self.stored))
        self.stored.append(replace(again, tag=None))

    @precondition(lambda self: self.some_are("settled"))
    @rule(data=st.data())
    def bring_back_what_is_settled(self, data: st.DataObject) -> None:
        """RabbitMQ has forgotten the ack."""
        index = data.draw(st.sampled_from([i for i in (0, 1) if self.queues[i].settled]))
        number, identity = data.draw(st.sampled_from(list(self.queues[index].settled)))
        self.stored.append(_Stored(index, number, identity, 0))

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
        for queue in self.queues:
            queue.held.clear()
            queue.leaving.clear()
            queue.messages.lose()

    @precondition(lambda self: self.some_are("held"))
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        queue, message = self.take(data, "held")
        self.alive.discard((message.number, message.identity))
        self.leave(queue, message, Left.SETTLED)

    @precondition(lambda self: self.some_are("held"))
    @rule(data=st.data())
    def dead_letter(self, data: st.DataObject) -> None:
        """It goes to the other queue, and an operator may bring it back from there."""
        queue, message = self.take(data, "held")
        self.stored.append(_dead(message, 1 - self.queues.index(queue)))
        self.leave(queue, message, Left.DEAD_LETTERED)

    @precondition(lambda self: any(each.tag is None for each in self.stored))
    @rule(data=st.data(), is_dead=st.booleans())
    def move_past_this_bridge(self, data: st.DataObject, is_dead: bool) -> None:
        """An operator moves a message by RabbitMQ's means; another bridge dead-letters one."""
        moved = data.draw(st.sampled_from([each for each in self.stored if each.tag is None]))
        if is_dead:
            self.stored.append(_dead(moved, 1 - moved.queue))
        else:
            self.stored.append(replace(moved, queue=1 - moved.queue))
        self.stored.remove(moved)

    @precondition(lambda self: self.some_are("held"))
    @rule(data=st.data(), is_brought_back=st.booleans())
    def defer(self, data: st.DataObject, is_brought_back: bool) -> None:
        """It counts a delivery; who receives it by number settles it, or an operator moves it."""
        queue, message = self.take(data, "held")
        if is_brought_back:
            index, generation = self.queues.index(queue), message.generation + 1
            self.stored.append(
                _Stored(
                    *(index, message.number, message.identity, generation),
                    deaths=message.deaths,
                )
            )
        else:
            self.alive.discard((message.number, message.identity))
        self.leave(queue, message, Left.DEFERRED)

    @precondition(lambda self: self.some_are("held"))
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        queue, message = self.take(data, "held")
        queue.messages.let_go(message)
        self.requeue([message.tag])
        self.requeue(queue.messages.take_free(message))

    @precondition(lambda self: self.some_are("held"))
    @rule(data=st.data(), is_refused=st.booleans())
    def begin_to_put_back_with_changes(self, data: st.DataObject, is_refused: bool) -> None:
        queue, message = self.take(data, "held")
        queue.messages.expect(message, message.generation + 1)
        if is_refused:
            queue.messages.expect_no_more(message)
            queue.held.append(message)
        else:
            index, generation = self.queues.index(queue), message.generation + 1
            self.stored.append(
                _Stored(
                    *(index, message.number, message.identity, generation),
                    deaths=message.deaths,
                )
            )
            queue.leaving.append(message)

    @precondition(lambda self: self.some_are("leaving"))
    @rule(data=st.data())
    def have_put_back_with_changes(self, data: st.DataObject) -> None:
        self.leave(*self.take(data, "leaving"), Left.REPLACED)

    @rule()
    def make_the_entity_anew(self) -> None:
        """Its numbers begin again."""
        self.stored.clear()
        self.alive.clear()
        self.next_number = 0
        self.recent.clear()
        for queue in self.queues:
            queue.held.clear()
            queue.leaving.clear()
            queue.settled.clear()
            queue.replaced.clear()
            queue.dead.clear()
            queue.deferred.clear()
            queue.messages.lose()
            queue.messages.forget()

    @invariant()
    def what_is_not_completed_is_in_rabbitmq(self) -> None:
        assert self.alive <= {(each.number, each.identity) for each in self.stored}

    @invariant()
    def no_copy_waits_for_nothing(self) -> None:
        for queue in self.queues:
            held = {(each.number, each.identity) for each in (*queue.held, *queue.leaving)}
            assert queue.messages._waiting.keys() <= held

    @invariant()
    def the_memory_is_bounded(self) -> None:
        assert self.memory.used_bytes <= PAGES * PAGE_BYTES


TestCopiesOfWhatRabbitMQBringsAgain = CopiesOfWhatRabbitMQBringsAgain.TestCase
TestCopiesOfWhatRabbitMQBringsAgain.settings = settings(
    max_examples=examples(120), stateful_step_count=50, deadline=None
)
