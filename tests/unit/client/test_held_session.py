"""One session of a client: whatever comes when, each message is one call's, in order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bridge.client.core.answers import ignore
from bridge.client.core.held_session import HeldSession
from bridge.client.core.pull import Begun
from bridge.client.exceptions import SessionLockLostError
from bridge.message.received import Received
from bridge.wire.basic import Properties
from bridge.wire.record import Record
from tests.fixtures.examples import examples
from tests.fixtures.scripted_wire import ScriptedWire

RECORD = Record(Properties(), b"")
LOCK_S = 600


def a_message(number: int) -> Received:
    """A message of the session."""
    return Received(record=RECORD, sequence_number=number, enqueued_ms=0, delivery_count=0)


class Bridge:
    """The bridge that has the session: what it was asked for, and may still send."""

    def __init__(self) -> None:
        self.credit_left = 0
        self.drained: list[Callable[[], None]] = []
        self.taken_count = 0

    def taken(self, held: HeldSession) -> None:
        """The application has so many, in all."""
        self.taken_count = held.taken

    def credit(self, held: HeldSession, count: int) -> None:
        """So many more are wanted."""
        assert not self.drained, "nothing is asked for while credit is taken back"
        self.credit_left += count

    def drain(self, held: HeldSession, done: Callable[[], None]) -> None:
        """None is wanted."""
        self.drained.append(done)


def a_session(bridge: Bridge) -> tuple[ScriptedWire, HeldSession]:
    """A session that was just given."""
    wire = ScriptedWire()
    held = HeldSession(
        1,
        "bridge",
        "orders",
        "s",
        LOCK_S * 1000,
        deletes=True,
        wire=cast(Any, wire),
        asked=bridge,
    )
    return wire, held


class SessionMachine(RuleBasedStateMachine):
    """Calls begin and end, messages come, credit is taken back; in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.bridge = Bridge()
        self.wire, self.held = a_session(self.bridge)
        self.sent = 0
        self.calls: list[tuple[int, Future[list[Received]], Begun]] = []
        self.had: list[list[int]] = []
        self.given_up = 0

    @rule(count=st.integers(1, 4), wait_s=st.sampled_from((None, 0.05, 5.0)))
    def receive(self, count: int, wait_s: float | None) -> None:
        """A call begins."""
        answer: Future[list[Received]] = Future()
        begun: list[Begun] = []
        self.held.pull(count, wait_s, answer, begun.append)
        self.calls.append((count, answer, begun[0]))

    @precondition(lambda self: self.bridge.credit_left)
    @rule()
    def send(self) -> None:
        """A message comes that was asked for."""
        self.bridge.credit_left -= 1
        self.sent += 1
        self.held.on_message(a_message(self.sent))

    @precondition(lambda self: self.bridge.drained)
    @rule()
    def drain(self) -> None:
        """The bridge has taken its credit back."""
        self.bridge.credit_left = 0
        self.bridge.drained.pop()()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        """A call is to end with what it has."""
        data.draw(st.sampled_from(self.calls))[2].stop()

    @precondition(lambda self: any(not answer.done() for _, answer, _ in self.calls))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """A caller is interrupted."""
        waiting = [each for each in self.calls if not each[1].done()]
        data.draw(st.sampled_from(waiting))[1].cancel()

    @precondition(lambda self: self.answered())
    @rule(data=st.data(), is_interrupted=st.booleans())
    def go_on(self, data: st.DataObject, is_interrupted: bool) -> None:
        """A caller goes on with its messages, or is interrupted before that."""
        each = data.draw(st.sampled_from(self.answered()))
        self.calls.remove(each)
        _, answer, begun = each
        if is_interrupted:
            begun.stop()
            begun.put_back()
        else:
            self.had.append([each.sequence_number for each in answer.result(0)])
            assert begun.taken is not None
            begun.taken()

    def answered(self) -> list[tuple[int, Future[list[Received]], Begun]]:
        """The calls whose callers have yet to go on."""
        return [each for each in self.calls if each[1].done() and not each[1].cancelled()]

    @rule(by_s=st.sampled_from((0.01, 0.3, 6.0)))
    def wait(self, by_s: float) -> None:
        """Time passes."""
        self.wire.advance(by_s)

    def results(self) -> list[list[int]]:
        """What the calls have got, those that have ended."""
        ended = [answer.result(0) for _, answer, _ in self.answered()]
        return self.had + [[each.sequence_number for each in found] for found in ended]

    @invariant()
    def each_message_is_one_calls(self) -> None:
        """None is given twice, and no call has more than it wants, or in another order."""
        found = self.results()
        numbers = [number for each in found for number in each]
        assert len(numbers) == len(set(numbers))
        assert all(each == sorted(each) for each in found)
        for count, answer, _ in self.calls:
            if answer.done() and not answer.cancelled():
                assert len(answer.result(0)) <= count

    @invariant()
    def the_bridge_knows_what_the_callers_have(self) -> None:
        """Neither a message more nor one less: what it is told is settled for good."""
        assert self.bridge.taken_count == sum(map(len, self.had))

    def teardown(self) -> None:
        """In the end nothing is lost: a last call has all that is left."""
        for _ in range(3):
            self.wire.advance(100)
            while self.bridge.drained:
                self.drain()
        for _, answer, begun in self.calls:  # as a client does for who is interrupted
            answer.cancel()
            begun.stop()
            begun.put_back()
        while self.bridge.drained:
            self.drain()
        answer: Future[list[Received]] = Future()
        self.calls.clear()
        last: list[Begun] = []
        self.held.pull(self.sent + 1, None, answer, last.append)
        self.wire.advance(1)
        last[0].stop()
        while self.bridge.drained:
            self.drain()
        assert answer.done()
        numbers = [number for each in self.had for number in each]
        numbers += [each.sequence_number for each in answer.result(0)]
        assert sorted(numbers) == list(range(1, self.sent + 1))


SessionMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
TestSession = SessionMachine.TestCase


def test_what_an_interrupted_caller_puts_back_is_not_told() -> None:
    """The bridge hears of it when the next caller has it."""
    bridge = Bridge()
    _, held = a_session(bridge)
    for is_interrupted in (True, False):
        answer: Future[list[Received]] = Future()
        begun: list[Begun] = []
        held.pull(1, None, answer, begun.append)
        if bridge.credit_left:
            bridge.credit_left = 0
            held.on_message(a_message(1))
        (received,) = answer.result(0)
        assert (received.sequence_number, bridge.taken_count) == (1, 0)
        assert begun[0].taken is not None
        (begun[0].put_back if is_interrupted else begun[0].taken)()
    assert bridge.taken_count == 1


def test_a_call_waits_for_what_is_lost() -> None:
    """It fails when the lock is lost, and so does every later one."""
    _, held = a_session(Bridge())
    answer: Future[list[Received]] = Future()
    held.pull(1, None, answer, ignore)
    held.lose("gone")
    with pytest.raises(SessionLockLostError, match="gone"):
        answer.result(0)
    with pytest.raises(SessionLockLostError, match="gone"):
        held.pull(1, None, Future(), ignore)


def test_a_lock_ends_by_the_clients_own_clock() -> None:
    """No message of the bridge is needed for it."""
    wire, held = a_session(Bridge())
    held.check()
    wire.advance(LOCK_S)
    with pytest.raises(SessionLockLostError):
        held.check()
