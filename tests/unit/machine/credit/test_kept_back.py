"""A channel that keeps settlements back: nothing overtakes what receivers have given back.

A channel of RabbitMQ passes on so many settlements that the queue has not applied; it keeps the
rest, while consumes, gets and cancels go ahead (docs/rabbitmq-faults.md: returns-late).
"""

from __future__ import annotations

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from bridge.machine.credit.windows import Windows
from tests.fixtures.examples import examples
from tests.unit.machine.credit.rabbitmq import Fetched
from tests.unit.machine.credit.test_windows import WindowsModel

PASSED_ON_MAX = 2
SETTLEMENTS = ("ack", "nack")


class KeptBackModel(WindowsModel):
    """The channel of a queue that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_on: deque[tuple[str, int, int]] = deque()
        self.kept: list[tuple[str, int, int]] = []

    def strategy(self) -> Windows[Fetched]:
        return Windows(windows_max=3, passed_on_max=PASSED_ON_MAX)

    @property
    def unapplied(self) -> list[tuple[str, int, int]]:
        """With what the channel keeps, and what the queue has still to apply."""
        return [*self.passed_on, *self.kept, *self.commands]

    @precondition(lambda self: self.commands)
    @rule()
    def rabbitmq_works(self) -> None:
        """The channel takes a command: it waits for the answer to all but settlements."""
        what = self.commands[0][0]
        if what in SETTLEMENTS:
            command = self.commands.popleft()
            if self.kept or len(self.passed_on) >= PASSED_ON_MAX:
                self.kept.append(command)
            else:
                self.passed_on.append(command)
            return
        if what != "look":
            while self.passed_on:
                self._apply()
        super().rabbitmq_works()
        self._flush()

    @precondition(lambda self: self.passed_on)
    @rule()
    def the_queue_applies(self) -> None:
        """And the channel hears of it."""
        self._apply()
        self._flush()

    def _apply(self) -> None:
        self.commands.appendleft(self.passed_on.popleft())
        super().rabbitmq_works()

    def _flush(self) -> None:
        if len(self.passed_on) < PASSED_ON_MAX:
            self.passed_on += self.kept
            self.kept.clear()

    @rule()
    def hear_all(self) -> None:
        """Until nothing is on its way."""
        for _ in range(10_000):
            if self.commands:
                self.rabbitmq_works()
            elif self.replies:
                self.hear()
            elif self.passed_on:
                self.the_queue_applies()
            else:
                return
        raise AssertionError("it never becomes quiet")

    @precondition(lambda self: self.held)
    @rule(count=st.integers(1, 6), how=st.sampled_from(["nack", "release"]))
    def give_some_back(self, count: int, how: str) -> None:
        """Receivers settle nothing else here."""
        for message in self.held[:count]:
            self.held.remove(message)
            self.given_back.add(message.number)
            if not any(self.asks.values()):
                self.owed.add(message.number)
            if how == "nack":
                self.credit.returning(message)
                self.settling(message)
                self.commands.append((how, message.fetch, message.number))
            else:
                self.here[message.number] = message
                self.credit.released(message, self.now_s)
        self.act()

    settle = work_fast = withdraw = None  # type: ignore[assignment]


TestKeptBack = KeptBackModel.TestCase
TestKeptBack.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
