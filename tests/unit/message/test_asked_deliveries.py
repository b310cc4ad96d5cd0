"""A queue of an entity with transactions: what comes again waits for its leader's answer.

The queue's messages are the real ones; RabbitMQ, the leader and the receivers are models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bridge.client.core.wire import Delivery
from bridge.machine.credit.windows import Windows
from bridge.machine.queue.fate import Fate
from bridge.machine.queue.second_copies import Left
from bridge.machine.queue.settled import SettledMemory
from bridge.message.asking import Asking
from bridge.message.channels import SHARED, Channels
from bridge.message.departure import Departure
from bridge.message.held import Held
from bridge.message.queue_messages import QueueMessages
from bridge.message.wake import Wake
from bridge.model.entity import Queue
from bridge.model.name import SubQueue
from bridge.topology import names
from bridge.wire import headers
from bridge.wire.basic import Properties, long
from bridge.wire.commits import NO_INQUIRY, LockedMessage, OutcomeKind
from bridge.wire.inquiries import Told
from tests.fixtures.counting_calls import calls_of
from tests.fixtures.examples import examples

QUEUE = Queue(name="orders", transactional=True)
DONE: Told = OutcomeKind.COMPLETE, b""
DROPPED: Told = OutcomeKind.DROP, b""
RECEIVERS = (1, 2)
GENERATION = 1_000_000
EXPIRED, FAILED = 501, 502
"""The numbers of a message whose time is over, and of one that has failed too often."""


class Window:
    """A consumer."""

    def __init__(
        self, room: int, deliver: Callable[[Delivery], None], end: Callable[[], None]
    ) -> None:
        self.room = room
        self.deliver = deliver
        self.end = end
        self.is_cancelled = False


class ModelChannel:
    """RabbitMQ's channel of a queue; one connection's life.

    Attributes:
        ready: numbers in the queue; shared by all channels.
        came: numbers that were delivered before; likewise.
    """

    is_closed = False
    on_settled: Callable[[], None] | None = None

    def __init__(self, ready: list[int], came: set[int]) -> None:
        self.ready = ready
        self.came = came
        self.windows: dict[str, Window] = {}
        self.unacked: dict[int, tuple[int, Window | None]] = {}
        self.gets: list[Callable[[Any], None]] = []
        self.looks: list[Callable[[int, int], None]] = []
        self._last_tag = 0

    @property
    def outstanding(self) -> int:
        """The count of unacked messages."""
        return len(self.unacked)

    def consume(
        self,
        queue: str,
        tag: str,
        prefetch: int,
        on_delivery: Callable[[Any], None],
        on_ended: Callable[[], None],
        *,
        no_ack: bool = False,
    ) -> None:
        """A window begins."""
        self.windows[tag] = Window(prefetch, on_delivery, on_ended)

    def cancel(self, tag: str) -> None:
        """It is to end."""
        self.windows[tag].is_cancelled = True

    def get(self, queue: str, on_got: Callable[[Any], None], on_silent: Callable[[], None]) -> None:
        """A get begins."""
        self.gets.append(on_got)

    def look(
        self, queue: str, on_seen: Callable[[int, int], None], on_silent: Callable[[], None]
    ) -> None:
        """A look begins."""
        self.looks.append(on_seen)

    def barrier(self, on_passed: Callable[[], None]) -> None:
        """All is carried out at once."""
        on_passed()

    def ack(self, tag: int) -> None:
        """A message is gone."""
        self._settled(tag)

    def nack(self, tag: int) -> None:
        """A message is back in its place."""
        self.ready.append(self._settled(tag))
        self.ready.sort()

    reject = nack

    def close(self) -> None:
        """RabbitMQ takes all back."""
        self.is_closed = True
        self.ready += [number for number, _ in self.unacked.values()]
        self.ready.sort()
        self.unacked.clear()

    def _settled(self, tag: int) -> int:
        number, window = self.unacked.pop(tag)
        if window is not None:
            window.room += 1
        return number

    # RabbitMQ's turns.

    def works(self) -> bool:
        """Deliver a message, or answer something; return whether there was anything to do."""
        if self.gets:
            on_got = self.gets.pop(0)
            on_got(self._next(None) if self.ready else None)
            return True
        if self.looks:
            self.looks.pop(0)(len(self.ready), len(self.windows))
            return True
        for tag, window in list(self.windows.items()):
            if window.room and self.ready and not window.is_cancelled:
                window.room -= 1
                window.deliver(self._next(window))
                return True
            if window.is_cancelled:
                del self.windows[tag]
                window.end()
                return True
        return False

    def _next(self, window: Window | None) -> Delivery:
        number = self.ready.pop(0)
        self._last_tag += 1
        self.unacked[self._last_tag] = number, window
        again = number in self.came
        self.came.add(number)
        return Delivery(
            self._last_tag,
            again,
            names.active_exchange("orders"),
            properties(number),
            b"",
            len(self.ready),
        )


def properties(number: int) -> bytes:
    """Return those of a numbered message; from `GENERATION` on of one that was published again."""
    generation, number = divmod(number, GENERATION)
    table = {
        headers.SEQUENCE_NUMBER: long(number),
        headers.ENQUEUED_TIME: long(1),
        headers.IDENTITY: ("x", number.to_bytes(16, "big")),
        headers.DELIVERED: long(generation),
    }
    if number == EXPIRED:
        table[headers.TIME_TO_LIVE] = long(1)
    if number == FAILED:
        table["x-delivery-count"] = long(QUEUE.max_delivery_count)
    return Properties(headers=table, delivery_mode=2).encode()


class ModelChannels(Channels[Any]):
    """The queue's only channel."""

    def __init__(self, on_lost: Callable[[Any, list[Any]], None]) -> None:
        super().__init__(
            SHARED,
            open_own=lambda on_closed: None,
            later=lambda wait_s, call: None,
            on_lost=on_lost,
            on_ready=lambda: None,
        )
        self.set_up(True)


class Setup:
    """The queue between RabbitMQ, its receivers and the leader.

    Attributes:
        given: each message that a receiver has, and the receiver.
        credit: what each receiver may still get.
        settled: numbers of the messages that receivers have settled.
        told: numbers of those whose outcome was carried out.
        ended: what has expired, or failed too often.
        asking: what is to be asked for.
    """

    def __init__(self, queue: Queue = QUEUE) -> None:
        self.ready: list[int] = []
        self.came: set[int] = set()
        self.given: dict[int, tuple[int, Held[Any]]] = {}
        self.order: list[int] = []
        self.credit = dict.fromkeys(RECEIVERS, 0)
        self.withdrawing: dict[int, tuple[int, set[int]]] = {}
        self.settled: set[int] = set()
        self.told: set[int] = set()
        self.asking: Asking | None = None
        self.ended: dict[int, Fate] = {}
        self.now_s = 1.0
        self.acts: list[Callable[[], None]] = []
        self.channels = ModelChannels(lambda error, ended: self.messages.lose())
        self.open()
        wake = Wake(self.acts.append, lambda due_s, call: cast(Any, None), self._act)
        self.messages: QueueMessages[Any] = QueueMessages(
            queue,
            SubQueue.NONE,
            credit=Windows(),
            settled=SettledMemory().numbers(),
            departure=cast(Departure, self),
            channels=self.channels,
            wake=wake,
            now_s=lambda: self.now_s,
            now_ms=lambda: 2,
            deliver=self._deliver,
            withdrawn=self._withdrawn,
            on_left=lambda number: None,
            on_failed=lambda number, failures: None,
            on_refused=lambda error: None,
            on_acted=lambda: None,
            reach=lambda point, channel: None,
            inquirer=self,
        )

    def open(self) -> None:
        """Open the channel."""
        self.channel = ModelChannel(self.ready, self.came)
        self.channels.main = self.channel

    @property
    def waiting(self) -> set[int]:
        """The numbers of the messages that wait for the leader, or behind others that do."""
        came = {number for number, _ in self.channel.unacked.values()}
        return came - set(self.messages.machine.copies.held())

    @property
    def ending(self) -> set[int]:
        """The receivers that wait for the end of a withdrawal."""
        return {receiver for receiver, _ in self.withdrawing.values()}

    def _act(self) -> None:
        self.messages.act()

    def turn(self) -> None:
        """End a turn of the loop."""
        while self.acts:
            self.acts.pop(0)()

    def _deliver(self, receiver: int, held: Held[Any]) -> None:
        assert self.credit[receiver] > 0, "beyond the credit"
        assert held.number not in self.told | self.settled, "it was settled"
        assert held.number not in self.given, "twice"
        self.credit[receiver] -= 1
        self.given[held.number] = receiver, held
        self.order.append(held.number)

    def _withdrawn(self, ticket: int) -> None:
        receiver, waiting = self.withdrawing.pop(ticket)
        self.credit[receiver] = 0
        if not any(self.credit.values()):
            assert not waiting & self.waiting, "what waited has not come"

    def ask(self, receiver: int, count: int) -> None:
        """A receiver gives credit."""
        self.credit[receiver] += count
        self.messages.ask(receiver, count)

    def withdraw(self, receiver: int) -> None:
        """It takes that back."""
        self.withdrawing[self.messages.machine.withdraw(receiver)] = receiver, self.waiting
        self.acts.append(self._act)

    def settle(self, number: int) -> None:
        """A receiver completes a message."""
        _, held = self.given.pop(number)
        self.messages.ack(held, "")
        self.messages.left(held, Left.SETTLED)
        self.settled.add(number)

    def lose(self) -> None:
        """The channel ends; locks with it."""
        self.channel.close()
        self.given.clear()
        self.order.clear()
        self.channels.main = None
        self.messages.lose()
        self.open()
        self.acts.append(self._act)

    def finish(self, source: Any, held: Held[Any], fate: Fate) -> None:
        """A message has ended (`message.departure.Departure`)."""
        self.ended[held.number] = fate

    # The leader's side (`message.asking.Inquirer`).

    def begin(self, asking: Asking) -> None:
        """Something is to be asked for."""
        self.asking = asking

    def carry_out(self, owner: Any, held: Any, told: Told, asking: Asking) -> None:
        """It was settled."""
        assert told in (DONE, DROPPED)
        assert held.number not in self.given
        assert held.number not in self.told
        owner.ack(held, "")
        if told == DONE:
            self.told.add(held.number)
        owner.left(held, Left.SETTLED if told == DONE else Left.REPLACED)


class AskedDeliveriesInAnyOrder(RuleBasedStateMachine):
    """Everything in any order; each message is given or settled once, and in the queue's order."""

    def __init__(self) -> None:
        super().__init__()
        self.setup = Setup()
        self.published = 0
        self.questions = 0
        self.under_way: tuple[bytes, list[LockedMessage]] | None = None

    @rule(count=st.integers(1, 4))
    def publish(self, count: int) -> None:
        """Messages come to the queue."""
        for _ in range(count):
            self.published += 1
            self.setup.ready.append(self.published)

    @rule(receiver=st.sampled_from(RECEIVERS), count=st.integers(1, 3))
    def ask(self, receiver: int, count: int) -> None:
        """A receiver gives credit, unless it is about to end."""
        if receiver not in self.setup.ending:
            self.setup.ask(receiver, count)
            self.setup.turn()

    @rule(receiver=st.sampled_from(RECEIVERS))
    def withdraw(self, receiver: int) -> None:
        """A receiver ends, or drains."""
        if receiver not in self.setup.ending:
            self.setup.withdraw(receiver)
            self.setup.turn()

    @initialize(count=st.integers(1, 6), before=st.integers(0, 6))
    def some_came_before(self, count: int, before: int) -> None:
        """To a bridge that is gone."""
        self.setup.came |= set(range(1, before + 1))
        self.publish(count)
        self.ask(1, count)

    @rule(count=st.sampled_from([1, 2, 9]))
    def rabbitmq_works(self, count: int) -> None:
        """RabbitMQ delivers and answers."""
        for _ in range(count):
            self.setup.channel.works()
        self.setup.turn()

    @rule()
    def time_passes(self) -> None:
        """The loop turns later."""
        self.setup.now_s += 1.0
        self.setup.acts.append(self.setup._act)
        self.setup.turn()

    @precondition(lambda self: self.setup.given)
    @rule(choice=st.data())
    def settle(self, choice: st.DataObject) -> None:
        """A receiver completes one of its messages."""
        self.setup.settle(choice.draw(st.sampled_from(sorted(self.setup.given))))
        self.setup.turn()

    @precondition(lambda self: self.setup.channel.unacked)
    @rule()
    def lose(self) -> None:
        """The connection ends."""
        self.setup.lose()
        self.setup.turn()

    @precondition(lambda self: self.setup.waiting and not self.under_way)
    @rule()
    def question(self) -> None:
        """The leader is asked."""
        self.questions += 1
        inquiry = self.questions.to_bytes(8, "big")
        if self.setup.asking is None:
            return
        messages = self.setup.asking.question(inquiry)
        if messages:
            self.under_way = inquiry, messages

    @precondition(lambda self: self.under_way)
    @rule(told=st.lists(st.none() | st.just(DONE), min_size=99, max_size=99))
    def answer(self, told: Sequence[Told]) -> None:
        """It answers, perhaps to a question before a loss."""
        self._answer(told)
        self.setup.turn()

    @precondition(lambda self: self.under_way)
    @rule()
    def fail(self) -> None:
        """It does not answer."""
        assert self.under_way is not None
        assert self.setup.asking is not None
        self.setup.asking.failed(self.under_way[0])
        self.under_way = None

    def _answer(self, told: Sequence[Told]) -> None:
        assert self.under_way is not None
        assert self.setup.asking is not None
        inquiry, messages = self.under_way
        self.under_way = None
        self.setup.asking.answered(inquiry, told[: len(messages)])

    @invariant()
    def what_is_given_comes_in_order(self) -> None:
        """Of one connection; what comes again was asked for."""
        assert self.setup.order == sorted(self.setup.order)

    def teardown(self) -> None:
        """All that is left is given once, and nothing waits."""
        setup = self.setup
        gone = setup.settled | setup.told
        for receiver in RECEIVERS:
            if receiver not in setup.ending:
                setup.ask(receiver, self.published + 1)
        for _ in range(40 + 8 * self.published):
            setup.now_s += 1.0
            setup.acts.append(setup._act)
            setup.turn()
            while setup.channel.works():
                setup.turn()
            if self.under_way is None and setup.asking is not None:
                self.question()
            if self.under_way is not None:
                self._answer([None] * 99)
            for receiver in RECEIVERS:
                if not setup.credit[receiver] and receiver not in setup.ending:
                    setup.ask(receiver, self.published + 1)
        gone |= setup.settled | setup.told
        assert gone | setup.given.keys() == set(range(1, self.published + 1))
        assert not setup.withdrawing
        assert setup.asking is None or not setup.asking.waits


TestAskedDeliveriesInAnyOrder = AskedDeliveriesInAnyOrder.TestCase
TestAskedDeliveriesInAnyOrder.settings = settings(
    max_examples=examples(400), stateful_step_count=40, deadline=None
)


def received(setup: Setup, count: int = 20) -> None:
    """Receive and complete messages that come for the first time."""
    setup.ready += range(1, count + 1)
    setup.ask(1, count)
    setup.turn()
    while setup.channel.works():
        setup.turn()
    for number in list(setup.given):
        setup.settle(number)
    setup.turn()


def test_a_first_delivery_costs_no_call_more_of_an_entity_that_had_transactions() -> None:
    """Nor a bridge that asks nobody; what comes again costs some."""
    costs = [calls_of(partial(received, setup)) for setup in (Setup(Queue(name="orders")), Setup())]
    assert costs[0] == costs[1]
    again = Setup()
    again.came |= set(range(1, 21))
    received(again)
    assert again.asking is not None
    assert not again.given


def test_what_an_outcome_led_to_is_delivered_behind_the_copy_that_is_dropped() -> None:
    """A message that was abandoned with changes: the one with the changes is no second copy."""
    setup = Setup()
    setup.came.add(1)
    setup.ready += [1, 2, GENERATION + 1]
    setup.ask(1, 3)
    setup.turn()
    while setup.channel.works():
        setup.turn()
    assert setup.asking is not None
    setup.asking.question(b"12345678")
    setup.asking.answered(b"12345678", [DROPPED])
    setup.turn()
    assert setup.order == [2, 1]
    assert setup.given[1][1].generation == 1
    assert not setup.told


@pytest.mark.parametrize("told", [DONE, None])
def test_what_was_settled_neither_expires_nor_fails(told: Told) -> None:
    """The leader is asked before: a message that a transaction completed is no dead letter."""
    setup = Setup()
    setup.came.add(EXPIRED)
    setup.ready += [EXPIRED, FAILED]
    setup.ask(1, 2)
    setup.turn()
    while setup.channel.works():
        setup.turn()
    assert setup.asking is not None
    assert not setup.ended
    setup.asking.question(b"12345678")
    setup.asking.answered(b"12345678", [told, told])
    setup.turn()
    assert not setup.given
    if told is None:
        ends = {EXPIRED: Fate.EXPIRED, FAILED: Fate.DELIVERY_COUNT_EXCEEDED}
        assert (setup.ended, setup.told) == (ends, set())
    else:
        assert (setup.ended, setup.told) == ({}, {EXPIRED, FAILED})


def test_a_message_names_the_inquiry_that_it_was_delivered_after() -> None:
    """A commit by an earlier lock is told from it."""
    setup = Setup()
    setup.came.add(1)
    setup.ready += [1, 2]
    setup.ask(1, 2)
    setup.turn()
    while setup.channel.works():
        setup.turn()
    assert setup.asking is not None
    assert len(setup.asking.question(b"12345678")) == 1
    assert not setup.given
    setup.asking.answered(b"12345678", [None])
    assert [held.inquiry for _, held in setup.given.values()] == [b"12345678", NO_INQUIRY]
