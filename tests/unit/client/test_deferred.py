"""Deferred messages that a client receives and deletes, whatever is interrupted or lost meanwhile.

Each is deferred still, or a caller has it: never neither.
"""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.call import Call
from bridge.client.core.held_session import HeldSession
from bridge.client.core.namespace import ClientNamespace
from bridge.client.core.receiving import ReceiveSource
from bridge.client.core.session_source import SessionSource
from bridge.client.core.wire import Delivery
from bridge.client.exceptions import ServiceBusConnectionError
from bridge.message.received import Received
from bridge.message.shown import encode
from bridge.model.errors import MessageLockLost, MessageNotFound
from bridge.model.name import EntityPath
from bridge.topology import names
from bridge.wire.basic import Properties, Table, decode_table
from bridge.wire.record import Record
from bridge.wire.reply import encode_done, encode_found, encode_refused
from tests.fixtures.examples import examples
from tests.fixtures.scripted_wire import ScriptedChannel, ScriptedWire

DELETES = ServiceBusReceiveMode.RECEIVE_AND_DELETE
INSTANCE = b"bridge"
LOCK_S = 30.0
COUNT = 4


@dataclass
class Lock:
    """A lock of the bridge's."""

    number: int
    token: UUID
    until_s: float


class Bridge:
    """The bridge that has the deferred messages, behind RabbitMQ."""

    def __init__(self, wire: ScriptedWire) -> None:
        self._wire = wire
        self._read: dict[ScriptedChannel, int] = {}
        self._tokens = 0
        self.deferred = set(range(1, COUNT + 1))
        self.locks: dict[UUID, Lock] = {}
        self.replies: deque[tuple[ScriptedChannel, str, bytes]] = deque()

    def questions(self) -> list[tuple[ScriptedChannel, int]]:
        """The first question that waits on each channel."""
        return [
            (channel, self._read.get(channel, 0))
            for channel in self._wire.channels
            if len(channel.published) > self._read.get(channel, 0)
        ]

    def work(self) -> bool:
        """Answer the first question; return whether there was one."""
        waiting = self.questions()
        if not waiting:
            return False
        channel, index = waiting[0]
        self._read[channel] = index + 1
        _, body, confirmed = channel.published[index]
        properties = Properties.decode(channel.properties[index])
        if not channel.is_closed:
            confirmed(None)
        number = properties.correlation_id or ""
        self.replies.append((channel, number, self._answer(body)))
        return True

    def hear(self) -> bool:
        """Bring the client its first reply, if there is one."""
        if not self.replies:
            return False
        channel, number, body = self.replies.popleft()
        if not channel.is_closed:
            assert channel.deliver is not None
            properties = Properties(correlation_id=number).encode()
            channel.deliver(Delivery(1, False, "", properties, body))
            self._wire.turn()
        return True

    def lose(self, *, is_heard: bool) -> None:
        """End the connection; what was written is carried out, or not."""
        for channel in self._wire.channels:
            if not channel.is_closed:
                if not is_heard:
                    self._read[channel] = len(channel.published)
                channel.fail(ServiceBusConnectionError("lost"))
        self.replies.clear()
        self._wire.turn()

    def end_locks(self) -> None:
        """Locks that have lasted their time end."""
        now_s = self._wire.now_s()
        self.locks = {token: each for token, each in self.locks.items() if each.until_s > now_s}

    def _answer(self, body: bytes) -> bytes:
        if not body:
            return encode_found(names.bridge_queue(INSTANCE).encode())
        question = decode_table(body)[0]
        match cast(bytes, question["do"][1]).decode():
            case "client-deferred" | "client-session-deferred":
                return self._give(question)
            case "complete" | "release" as how:
                return self._end(UUID(bytes=cast(bytes, question["token"][1])), how)
            case "client-session-close":
                return encode_done(())
            case what:
                raise AssertionError(what)

    def _give(self, question: Table) -> bytes:
        wanted = [int(cast(int, value)) for _, value in cast(Any, question["numbers"][1])]
        locked = {each.number for each in self.locks.values()}
        if any(each not in self.deferred or each in locked for each in wanted):
            return encode_refused(MessageNotFound.condition, "not found")
        if not question.get("lock", ("t", False))[1]:
            self.deferred -= set(wanted)
            return encode_found(encode([a_message(each) for each in wanted]))
        found = []
        for each in wanted:
            self._tokens += 1
            token = UUID(bytes=INSTANCE + self._tokens.to_bytes(10, "big"))
            until_s = self._wire.now_s() + LOCK_S
            self.locks[token] = Lock(each, token, until_s)
            found.append(a_message(each, token, int(until_s * 1000)))
        return encode_found(encode(found))

    def _end(self, token: UUID, how: str) -> bytes:
        self.end_locks()
        lock = self.locks.pop(token, None)
        if lock is None:
            return encode_refused(MessageLockLost.condition, "lost")
        if how == "complete":
            self.deferred.discard(lock.number)
        return encode_done(())


def a_message(number: int, token: UUID | None = None, until_ms: int | None = None) -> Received:
    """A deferred message."""
    record = Record(Properties(), b"")
    return Received(
        record=record,
        sequence_number=number,
        enqueued_ms=0,
        delivery_count=0,
        lock_token=token,
        locked_until_ms=until_ms,
    )


def a_session(wire: ScriptedWire, namespace: ClientNamespace) -> SessionSource:
    """A session that was just accepted."""
    source = SessionSource("orders", "s", DELETES, None)
    source.opened(
        HeldSession(
            1, names.bridge_queue(INSTANCE), "orders", "s", 10**12,
            deletes=True, wire=cast(Any, wire), asked=namespace.sessions,
        )
    )  # fmt: skip
    return source


class Client:
    """A client with a queue's receiver and a session's."""

    def __init__(self) -> None:
        self.wire = ScriptedWire()
        self.namespace = ClientNamespace(cast(Any, self.wire), cast(Any, self.wire))
        self.bridge = Bridge(self.wire)
        self.session = a_session(self.wire, self.namespace)
        self.queue = ReceiveSource(EntityPath("orders"), DELETES)

    def begin(self, numbers: list[int], *, in_session: bool) -> tuple[Call[Any], Future[Any]]:
        """Begin a call as a lane does."""
        call = (self.session if in_session else self.queue).deferred(numbers, None)
        answer: Future[Any] = Future()
        call.begin(self.namespace, answer)
        self.wire.turn()
        return call, answer

    def settle_all(self) -> None:
        """All that is on its way comes."""
        while self.bridge.work() or self.bridge.hear():
            pass


@pytest.mark.parametrize("in_session", [False, True])
def test_a_deferred_message_is_deleted_when_its_caller_has_it(in_session: bool) -> None:
    """The bridge's reply deletes nothing: the client may be killed before its caller goes on."""
    client = Client()
    call, answer = client.begin([1, 2], in_session=in_session)
    client.settle_all()
    assert [each.sequence_number for each in answer.result(0)] == [1, 2]
    assert client.bridge.deferred == {1, 2, 3, 4}
    call.follow(client.namespace, answer.result(0))
    client.settle_all()
    assert client.bridge.deferred == {3, 4}
    assert call.read is not None
    assert [each.lock_token for each in call.read(answer.result(0))] == [None, None]


@pytest.mark.parametrize("in_session", [False, True])
def test_what_comes_for_a_caller_that_has_given_up_is_deferred_still(in_session: bool) -> None:
    """At once, for the next call."""
    client = Client()
    _, answer = client.begin([1, 2], in_session=in_session)
    answer.cancel()
    client.settle_all()
    assert (client.bridge.deferred, client.bridge.locks) == ({1, 2, 3, 4}, {})


@pytest.mark.parametrize("in_session", [False, True])
def test_a_bridge_that_was_not_heard_of_a_deletion_is_told_again(in_session: bool) -> None:
    """The caller has the messages, and nobody else gets them."""
    client = Client()
    call, answer = client.begin([1, 2], in_session=in_session)
    client.settle_all()
    call.follow(client.namespace, answer.result(0))
    client.bridge.lose(is_heard=False)
    client.wire.advance(5)
    client.settle_all()
    assert (client.bridge.deferred, client.bridge.locks) == ({3, 4}, {})


def test_a_session_ends_when_its_bridge_has_heard_of_deletions() -> None:
    """Its end would release what the caller has."""
    client = Client()
    call, answer = client.begin([1], in_session=True)
    client.settle_all()
    call.follow(client.namespace, answer.result(0))
    closing = client.session.close()
    assert closing is not None
    closed: Future[Any] = Future()
    closing.begin(client.namespace, closed)
    asked = [
        decode_table(body)[0]["do"][1]
        for channel in client.wire.channels
        for _, body, _ in channel.published
        if body
    ]
    assert asked[-1] == b"complete"
    client.settle_all()
    assert closed.done()
    assert client.bridge.deferred == {2, 3, 4}


class DeferredMachine(RuleBasedStateMachine):
    """Calls begin, end and are interrupted; replies are late; the connection is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Client()
        self.bridge, self.wire = self.client.bridge, self.client.wire
        self.calls: list[tuple[Call[Any], Future[Any]]] = []
        self.had: Counter[int] = Counter()
        self.was_lost = False

    @rule(numbers=st.sets(st.integers(1, COUNT), min_size=1), in_session=st.booleans())
    def receive(self, numbers: set[int], in_session: bool) -> None:
        """A call begins."""
        self.calls.append(self.client.begin(sorted(numbers), in_session=in_session))

    @rule()
    def work(self) -> None:
        """The bridge answers a question."""
        self.bridge.work()

    @rule()
    def hear(self) -> None:
        """A reply comes."""
        self.bridge.hear()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        """A caller is interrupted: before its answer, or behind it."""
        self.interrupted(data.draw(st.sampled_from(self.calls)))

    def interrupted(self, each: tuple[Call[Any], Future[Any]]) -> None:
        """Do what a lane does."""
        self.calls.remove(each)
        call, answer = each
        if not answer.cancel():
            call.undo(self.client.namespace, answer)
        self.wire.turn()

    @precondition(lambda self: any(answer.done() for _, answer in self.calls))
    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        """A caller goes on with its messages, or its error."""
        self.go_on_with(data.draw(st.sampled_from([e for e in self.calls if e[1].done()])))

    def go_on_with(self, each: tuple[Call[Any], Future[Any]]) -> None:
        """Do what a lane does."""
        self.calls.remove(each)
        call, answer = each
        if answer.exception(0) is None:
            call.follow(self.client.namespace, answer.result(0))
            self.had.update(found.sequence_number for found in answer.result(0))
            self.wire.turn()

    @rule(is_heard=st.booleans())
    def lose(self, is_heard: bool) -> None:
        """The connection ends."""
        self.was_lost = True
        self.bridge.lose(is_heard=is_heard)

    @rule(by_s=st.sampled_from((0.1, 2.0)))
    def wait(self, by_s: float) -> None:
        """Time passes, and everybody is heard."""
        self.wire.advance(by_s)
        self.client.settle_all()

    @rule()
    def wait_long(self) -> None:
        """The locks end that the bridge was not told of; callers go on sooner than that."""
        self.client.settle_all()
        while any(answer.done() for _, answer in self.calls):
            self.go_on_with(next(each for each in self.calls if each[1].done()))
        self.client.settle_all()
        self.wire.advance(LOCK_S + 1)
        self.client.settle_all()
        self.bridge.end_locks()

    @invariant()
    def what_is_deleted_was_had(self) -> None:
        """Each message is deferred, or a caller has it."""
        assert self.bridge.deferred | set(self.had) == set(range(1, COUNT + 1))

    def teardown(self) -> None:
        """In the end nothing is locked, and what was had is gone, unless a connection was lost."""
        for each in self.calls[:]:
            self.interrupted(each)
        self.client.settle_all()
        self.wire.advance(LOCK_S + 1)
        self.client.settle_all()
        self.bridge.end_locks()
        assert not self.bridge.locks
        if not self.was_lost:
            assert not self.bridge.deferred & set(self.had)
            assert set(self.had.values()) <= {1}


DeferredMachine.TestCase.settings = settings(
    max_examples=examples(80), stateful_step_count=30, deadline=None
)
TestDeferred = DeferredMachine.TestCase
