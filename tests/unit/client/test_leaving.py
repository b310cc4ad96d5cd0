"""A client that closes, beside a RabbitMQ that forgets what its channels have not passed on.

A channel passes 32 settlements on to a queue, and keeps the others until the queue has taken some;
a cancel passes on what was kept for its consumer; a channel that ends forgets what it keeps
(forgotten-acks in docs/rabbitmq-faults.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.wire import Delivery, Unsettled
from bridge.message.received import Received
from tests.fixtures.examples import examples
from tests.fixtures.scripted_wire import ScriptedWire
from tests.unit.client.test_entity_receiver import a_delivery, a_receiver

PASSED_ON_MAX = 32


class ForgetfulChannel(Unsettled):
    """A channel and its queue's leader: what is written, what is kept, what is taken."""

    is_closed = False

    def __init__(self) -> None:
        self.unwritten: deque[tuple[str, Any]] = deque()
        self.mailbox: deque[tuple[str, Any]] = deque()
        self.is_asking = False
        self.passed_on: deque[tuple[str, int]] = deque()
        self.pending = 0
        self.kept: dict[str, list[int]] = {}
        self.consumer = ""
        self.taken: set[int] = set()
        self.forgotten: set[int] = set()
        self.deliver: Callable[[Delivery], None] | None = None
        self.ends: dict[str, Callable[[], None]] = {}

    # The client.

    def consume(
        self, queue: str, tag: str, prefetch: int, on_delivery: Any, on_ended: Any, **_: Any
    ) -> None:
        """A consumer begins."""
        self.window = tag

        def deliver(delivery: Delivery) -> None:
            self.outstanding += 1
            on_delivery(delivery)

        self.deliver, self.ends[tag] = deliver, on_ended
        self.write("consume", tag)

    def cancel(self, tag: str) -> None:
        """A consumer ends."""
        self.write("cancel", tag)

    def barrier(self, on_passed: Callable[[], None]) -> None:
        """A question to the channel alone."""
        self.write("barrier", on_passed)

    def ack(self, tag: int) -> None:
        """A settlement."""
        self.settled()
        self.write("settle", tag)

    nack = reject = ack

    def written(self, call: Callable[[], None]) -> None:
        """All is with the kernel at once."""
        call()

    def close(self) -> None:
        """The end, at once."""
        self.is_closed = True
        while self.mailbox and any(what == "settle" for what, _ in self.mailbox):
            self.handle()  # what was written before the end is read
        for tags in self.kept.values():
            self.forgotten.update(tags)
        self.kept.clear()

    def write(self, what: str, of: Any) -> None:
        self.unwritten.append((what, of))
        self.send()

    def send(self) -> None:
        """Nothing follows a question before its answer."""
        while self.unwritten and not self.is_asking:
            self.mailbox.append(self.unwritten.popleft())
            self.is_asking = self.mailbox[-1][0] != "settle"

    def answered(self) -> None:
        self.is_asking = False
        self.send()

    # RabbitMQ.

    def handle(self) -> None:
        """The channel takes the next thing that was written to it, or that its queue has said."""
        what, of = self.mailbox.popleft()
        match what:
            case "settle":
                key = self.consumer or "none"
                if self.pending > PASSED_ON_MAX:
                    self.kept.setdefault(key, []).append(of)
                else:
                    self.pass_on([of])
            case "applied":
                self.pending -= of
                if self.pending < PASSED_ON_MAX:
                    for key in list(self.kept):
                        self.pass_on(self.kept.pop(key))
            case "consume":
                self.take_all()
                self.consumer = of
                self.answered()
            case "cancel":
                if self.consumer in self.kept:
                    self.pass_on(self.kept.pop(self.consumer))
                self.take_all()
                self.consumer = ""
                self.answered()
                self.ends.pop(of)()
            case "barrier":
                self.answered()
                of()

    def pass_on(self, tags: list[int]) -> None:
        self.pending += 1
        self.passed_on.append(("settle", len(tags)))
        self.taken.update(tags)  # the queue has them, also when the channel ends

    def take_all(self) -> None:
        """The queue's answer comes behind what was passed on; what it says of that waits."""
        self.apply(len(self.passed_on))

    def apply(self, count: int) -> None:
        """The queue takes what was passed on."""
        for _ in range(min(count, len(self.passed_on))):
            self.passed_on.popleft()
            self.mailbox.append(("applied", 1))


class ForgetfulWire(ScriptedWire):
    """Its connection."""

    def open(self, on_closed: Any, *, has_confirms: bool = False) -> Any:
        self.channels.append(ForgetfulChannel())  # type: ignore[arg-type]
        return self.channels[-1]


class LeavingMachine(RuleBasedStateMachine):
    """A client receives, settles some, and closes while RabbitMQ is behind."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = ForgetfulWire()
        self.receiver = a_receiver(self.wire)  # type: ignore[arg-type]
        self.answer: Future[list[Received]] = Future()
        self.locked: list[Received] = []
        self.settled: set[int] = set()
        self.is_leaving = self.has_left = False

    @property
    def channel(self) -> Any:
        return self.wire.channels[0]

    @precondition(lambda self: not self.wire.channels)
    @rule(count=st.sampled_from([3, 40, 100]))
    def receive(self, count: int) -> None:
        """A call gets all that it asks for."""
        self.receiver.pull(count, None, ServiceBusReceiveMode.PEEK_LOCK, self.answer)
        self.wire.turn()
        self.channel.handle()
        for number in range(1, count + 1):
            self.channel.deliver(a_delivery(number))
        self.locked = self.answer.result(0)

    @precondition(lambda self: self.wire.channels)
    @rule()
    def turn(self) -> None:
        """The client's turn ends: it cancels its full window."""
        self.wire.turn()

    @precondition(lambda self: self.locked and not self.is_leaving)
    @rule(count=st.sampled_from([1, 31, 33, 40, 100]))
    def complete(self, count: int) -> None:
        """The application completes some."""
        for each in self.locked[:count]:
            assert each.lock_token is not None
            self.receiver.complete(each.lock_token, Future())
            self.settled.add(each.sequence_number)
        del self.locked[:count]

    @precondition(lambda self: self.wire.channels and self.channel.mailbox)
    @rule(times=st.integers(1, 50))
    def channel_works(self, times: int) -> None:
        """The channel takes some of what waits for it."""
        while times and self.channel.mailbox:
            times -= 1
            self.channel.handle()

    @precondition(lambda self: self.wire.channels)
    @rule(count=st.integers(1, 40))
    def queue_works(self, count: int) -> None:
        """The queue takes some of what was passed on."""
        self.channel.apply(count)

    @precondition(lambda self: self.wire.channels and not self.is_leaving)
    @rule()
    def leave(self) -> None:
        """The client is closed: its channels end as soon as they may."""
        self.is_leaving = True
        self.receiver.leave(self.left)

    def left(self) -> None:
        """The client ends its channels, and its connection."""
        assert not self.has_left
        self.has_left = True
        self.receiver.close()
        for each in self.wire.channels:
            if not each.is_closed:
                each.close()

    @invariant()
    def nothing_that_was_settled_is_forgotten(self) -> None:
        """It would come again."""
        if self.wire.channels:
            assert not self.channel.forgotten

    def teardown(self) -> None:
        """A client that leaves has left when RabbitMQ has done all."""
        if not self.wire.channels:
            return
        if not self.is_leaving:
            self.leave()
        for _ in range(300):
            self.wire.turn()
            self.channel_works(50)
            self.queue_works(40)
        assert self.has_left
        self.channel_works(200)
        assert self.settled <= self.channel.taken
        self.nothing_that_was_settled_is_forgotten()


LeavingMachine.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=20, deadline=None
)
TestLeaving = LeavingMachine.TestCase
