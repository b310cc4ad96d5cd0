"""What a client holds of one queue: calls that end while messages are still on their way.

What is received and deleted is settled on the word of the caller that has it.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.entity_receiver import EntityReceiver
from bridge.client.core.publisher import Publisher
from bridge.client.core.pull import Begun
from bridge.client.core.settlements import ClientSettlements
from bridge.client.core.wire import Delivery
from bridge.machine.queue.settled import SettledMemory
from bridge.message.received import Received
from bridge.model.entity import Queue, Tier
from bridge.model.name import SubQueue
from bridge.topology import names
from bridge.topology.capabilities import Capabilities
from bridge.topology.description import DescribedEntity
from bridge.wire import stamp
from bridge.wire.basic import Properties
from tests.fixtures.examples import examples
from tests.fixtures.scripted_wire import ScriptedWire

QUEUE = Queue(name="orders")


def described(
    queue: Queue = QUEUE, version: str = "4.3.6", *, is_clustered: bool = False
) -> DescribedEntity:
    """Return what a client knows of a queue."""
    capabilities = Capabilities.of(version)
    return DescribedEntity(queue, capabilities, is_clustered=is_clustered, tier=Tier.STANDARD)


def a_receiver(
    wire: ScriptedWire, version: str = "4.3.6", *, is_clustered: bool = False
) -> EntityReceiver:
    """Return what a client has of it."""
    any_wire = cast(Any, wire)
    publisher = Publisher(any_wire)
    return EntityReceiver(
        described(version=version, is_clustered=is_clustered),
        SubQueue.NONE,
        wire=any_wire,
        publisher=publisher,
        settled=SettledMemory(1 << 20),
        settlements=ClientSettlements(any_wire, publisher),
    )


def a_delivery(number: int) -> Delivery:
    """Return a numbered message as RabbitMQ delivers it."""
    properties = Properties(delivery_mode=2, headers={}).encode()
    fields = stamp.active(number, 0, number.to_bytes(20, "big"), None)
    exchange = names.active_exchange(QUEUE.path)
    return Delivery(number, False, exchange, stamp.put(properties, fields), b"body")


def test_a_call_that_fills_up_while_it_ends_keeps_its_locks() -> None:
    """Its last message comes between its end's beginning and RabbitMQ's answer to that."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    answer: Future[list[Received]] = Future()
    receiver.pull(2, None, ServiceBusReceiveMode.PEEK_LOCK, answer)
    wire.turn()
    (channel,) = wire.channels
    assert channel.deliver is not None
    channel.deliver(a_delivery(1))
    wire.turn()
    wire.advance(1)
    assert channel.is_cancelled
    assert not answer.done()
    channel.deliver(a_delivery(2))
    wire.turn()
    assert channel.end is not None
    channel.end()
    wire.turn()
    wire.advance(1)
    tokens = [each.lock_token for each in answer.result(0)]
    assert (len(tokens), channel.returned) == (2, [])
    for token in tokens:
        assert token is not None
        receiver.complete(token, Future())
    assert channel.acked == [1, 2]


def test_a_client_that_leaves_cancels_all_windows_that_share_a_channel() -> None:
    """RabbitMQ would deliver to the others of them: to nobody, and counted before 4.3."""
    wire = ScriptedWire()
    receiver = a_receiver(wire, "4.0.5", is_clustered=True)
    first: Future[list[Received]] = Future()
    receiver.pull(1, None, ServiceBusReceiveMode.PEEK_LOCK, first)
    wire.turn()
    (channel,) = wire.channels
    channel.looks.pop()(0, 0)
    wire.turn()
    assert channel.deliver is not None
    channel.deliver(a_delivery(1))
    wire.turn()
    receiver.pull(2, None, ServiceBusReceiveMode.PEEK_LOCK, Future())
    wire.turn()
    channel.looks.pop()(0, 1)
    wire.turn()
    (got,) = first.result(0)
    assert got.lock_token is not None
    receiver.complete(got.lock_token, Future())  # its window is filled again
    wire.turn()
    assert len(channel.consumers) == 2
    left: list[bool] = []
    receiver.leave(lambda: left.append(True))
    wire.turn()
    assert channel.consumers == {}
    assert left == [True]


def test_messages_whose_locks_end_together_go_back_by_their_numbers() -> None:
    """RabbitMQ keeps them in the order in which they come back."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    answer: Future[list[Received]] = Future()
    receiver.pull(32, None, ServiceBusReceiveMode.PEEK_LOCK, answer)
    wire.turn()
    (channel,) = wire.channels
    assert channel.deliver is not None
    for number in range(1, 33):
        channel.deliver(a_delivery(number))
    wire.turn()
    assert len(answer.result(0)) == 32
    wire.advance(QUEUE.lock_duration_ms / 1000 + 1)
    assert channel.returned == list(range(1, 33))


def test_what_is_read_after_the_loss_of_its_channel_is_not_held() -> None:
    """RabbitMQ brings it again, and then it is no second copy of one that is here."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    answer: Future[list[Received]] = Future()
    receiver.pull(1, None, ServiceBusReceiveMode.PEEK_LOCK, answer)
    wire.turn()
    (lost,) = wire.channels
    receiver.lose()
    assert lost.deliver is not None
    lost.deliver(a_delivery(1))
    wire.turn()
    wire.advance(2)
    channel = wire.channels[-1]
    assert (answer.done(), receiver.held_count) == (False, 0)
    assert channel.deliver is not None
    channel.deliver(a_delivery(1))
    wire.turn()
    (got,) = answer.result(0)
    assert got.lock_token is not None
    receiver.complete(got.lock_token, Future())
    assert (lost.acked, channel.acked) == ([], [1])


DELETES = ServiceBusReceiveMode.RECEIVE_AND_DELETE


def given(receiver: EntityReceiver, wire: ScriptedWire) -> tuple[list[int], Begun]:
    """Have a call answered with two messages; return their numbers."""
    answer: Future[list[Received]] = Future()
    begun = receiver.pull(2, None, DELETES, answer)
    wire.turn()
    (channel,) = wire.channels
    assert channel.deliver is not None
    for number in (1, 2):
        channel.deliver(a_delivery(number))
    wire.turn()
    return [each.sequence_number for each in answer.result(0)], begun


def test_what_is_received_and_deleted_is_settled_when_the_caller_has_it() -> None:
    """Not by the answer, behind which the caller may be interrupted."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    numbers, begun = given(receiver, wire)
    assert (numbers, wire.channels[0].acked) == ([1, 2], [])
    assert begun.taken is not None
    begun.taken()
    assert (wire.channels[0].acked, wire.channels[0].returned) == ([1, 2], [])


def test_what_an_interrupted_caller_would_have_deleted_goes_back() -> None:
    """Nothing is settled: RabbitMQ has it for the next call, anybody's."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    _, begun = given(receiver, wire)
    begun.put_back()
    wire.turn()
    (channel,) = wire.channels
    assert (channel.acked, channel.returned, receiver.held_count) == ([], [1, 2], 0)


def test_nothing_is_fetched_while_the_last_message_of_a_channel_goes_back() -> None:
    """Newer messages on the next channel would overtake it."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    answer: Future[list[Received]] = Future()
    begun = receiver.pull(1, None, DELETES, answer)
    wire.turn()
    (channel,) = wire.channels
    channel.is_slow = True
    assert channel.deliver is not None
    channel.deliver(a_delivery(1))
    wire.turn()
    assert channel.is_cancelled
    assert channel.end is not None
    channel.end()
    wire.turn()
    begun.put_back()
    wire.turn()
    assert channel.returned == [1]
    receiver.pull(1, None, DELETES, Future())
    wire.turn()
    assert wire.channels == [channel]
    channel.pass_barriers()
    wire.turn()
    assert len(wire.channels) == 2


def test_nothing_is_fetched_while_rabbitmq_returns_what_came_to_a_cancelled_window() -> None:
    """Its channel does so behind the answer to the cancel."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    begun = receiver.pull(2, None, DELETES, Future())
    wire.turn()
    (channel,) = wire.channels
    channel.is_slow = True
    begun.stop()
    wire.turn()
    receiver.pull(1, None, DELETES, Future())
    wire.turn()
    assert channel.is_cancelled
    assert channel.end is not None
    channel.end()
    wire.turn()
    assert wire.channels == [channel]
    channel.pass_barriers()
    wire.turn()
    assert len(wire.channels) == 2


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_client_that_closes_settles_nothing_without_a_word(is_answered: bool) -> None:
    """A call that waits ends with nothing; RabbitMQ has its messages again."""
    wire = ScriptedWire()
    receiver = a_receiver(wire)
    answer: Future[list[Received]] = Future()
    receiver.pull(1 if is_answered else 2, None, DELETES, answer)
    wire.turn()
    (channel,) = wire.channels
    assert channel.deliver is not None
    channel.deliver(a_delivery(1))
    wire.turn()
    assert answer.done() is is_answered
    receiver.close()
    assert len(answer.result(0)) == is_answered
    assert (channel.acked, channel.is_closed) == ([], True)


class DeletingMachine(RuleBasedStateMachine):
    """Calls begin and end, are interrupted before and behind their answers; messages come."""

    def __init__(self) -> None:
        super().__init__()
        self.wire = ScriptedWire()
        self.receiver = a_receiver(self.wire)
        self.calls: list[tuple[Future[list[Received]], Begun]] = []
        self.had: list[int] = []
        self.ready: list[int] = []
        self.sent = 0

    @rule(count=st.integers(1, 3), wait_s=st.sampled_from((None, 0.05, 5.0)))
    def receive(self, count: int, wait_s: float | None) -> None:
        """A call begins."""
        answer: Future[list[Received]] = Future()
        self.calls.append((answer, self.receiver.pull(count, wait_s, DELETES, answer)))
        self.wire.turn()

    @rule()
    def send(self) -> None:
        """The queue gets a message."""
        self.sent += 1
        self.ready.append(self.sent)

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """RabbitMQ delivers the next message to a consumer that still lives."""
        living = [each for each in self.wire.channels if self.lives(each)]
        if living:
            channel = data.draw(st.sampled_from(living))
            number = self.ready.pop(0)
            assert channel.deliver is not None
            channel.deliver(a_delivery(number))
            self.wire.turn()
            self.take_back()

    @rule(data=st.data())
    def end_consumer(self, data: st.DataObject) -> None:
        """RabbitMQ answers the cancel of a consumer."""
        ending = [each for each in self.wire.channels if each.is_cancelled and each.end]
        if ending:
            channel = data.draw(st.sampled_from(ending))
            end, channel.end, channel.deliver = channel.end, None, None
            assert end is not None
            end()
            self.wire.turn()
            self.take_back()

    @precondition(lambda self: any(each.gets for each in self.wire.channels))
    @rule()
    def answer_gets(self) -> None:
        """RabbitMQ answers what asks for messages that it has returned itself."""
        for channel in self.wire.channels:
            while channel.gets:
                channel.answer_get(a_delivery(self.ready.pop(0)) if self.ready else None)
                self.wire.turn()
                self.take_back()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        """A call is to end with what it has."""
        data.draw(st.sampled_from(self.calls))[1].stop()
        self.wire.turn()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        """A caller is interrupted: before its answer, or behind it."""
        self.interrupted(data.draw(st.sampled_from(self.calls)))

    def interrupted(self, call: tuple[Future[list[Received]], Begun]) -> None:
        """Say what a lane says."""
        answer, begun = call
        self.calls.remove(call)
        answer.cancel()
        begun.stop()
        begun.put_back()
        self.wire.turn()
        self.take_back()

    @precondition(lambda self: any(answer.done() for answer, _ in self.calls))
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """A caller goes on with its messages."""
        call = data.draw(st.sampled_from([each for each in self.calls if each[0].done()]))
        self.calls.remove(call)
        self.had += [each.sequence_number for each in call[0].result(0)]
        assert call[1].taken is not None
        call[1].taken()
        self.wire.turn()

    @rule(by_s=st.sampled_from((0.01, 0.3, 6.0)))
    def wait(self, by_s: float) -> None:
        """Time passes."""
        self.wire.advance(by_s)
        self.wire.turn()
        self.take_back()

    def lives(self, channel: Any) -> bool:
        """Whether RabbitMQ may deliver there: a window is open."""
        return channel.deliver is not None and not channel.is_closed

    def take_back(self) -> None:
        """What was sent back is ready again."""
        for channel in self.wire.channels:
            while channel.returned:
                self.ready.append(channel.returned.pop())
        self.ready.sort()

    @invariant()
    def what_is_settled_is_what_callers_have(self) -> None:
        """Neither a message more nor one less, and none twice."""
        settled = sorted(tag for channel in self.wire.channels for tag in channel.acked)
        assert settled == sorted(self.had)
        assert len(set(settled)) == len(settled)

    @invariant()
    def what_is_given_is_nowhere_else(self) -> None:
        """No message is with two callers, or with one and in the queue."""
        answers = [answer for answer, _ in self.calls if answer.done()]
        given = [each.sequence_number for answer in answers for each in answer.result(0)]
        everywhere = given + self.had + self.ready
        assert len(set(everywhere)) == len(everywhere)

    def teardown(self) -> None:
        """In the end each message is had, held, or in the queue; without calls none is held."""
        for call in self.calls[:]:
            self.interrupted(call)
        for _ in range(20):
            for channel in self.wire.channels:
                if channel.is_cancelled and channel.end:
                    end, channel.end, channel.deliver = channel.end, None, None
                    end()
            self.wire.turn()
            self.answer_gets()
            self.wire.advance(10)
            self.take_back()
        assert self.receiver.held_count == 0
        assert sorted(self.had + self.ready) == list(range(1, self.sent + 1))


DeletingMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
TestDeleting = DeletingMachine.TestCase
