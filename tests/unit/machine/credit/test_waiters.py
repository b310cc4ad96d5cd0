"""Receivers that wait: none is given more than it asks for, whatever comes between."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bridge.machine.credit.waiters import Waiters

RECEIVERS = st.integers(1, 3)


def test_a_request_after_a_withdrawal_can_be_withdrawn() -> None:
    """Though the receiver's earlier request, which was met, is still the last one."""
    waiters = Waiters()
    waiters.add(1, 1)
    assert waiters.take(with_withdrawn=False) == 1
    waiters.withdraw(1)

    waiters.add(1, 2)
    assert waiters.of(1) == 2
    waiters.withdraw(1)

    assert waiters.asked == 0
    assert waiters.take(with_withdrawn=False) is None


class WaitersModel(RuleBasedStateMachine):
    """Against a count of what each receiver asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.waiters = Waiters()
        self.asks: Counter[int] = Counter()
        self.withdrawn: dict[int, tuple[int, int]] = {}  # ticket -> receiver, count

    @rule(receiver=RECEIVERS, count=st.integers(1, 3))
    def ask(self, receiver: int, count: int) -> None:
        """A receiver asks for more."""
        self.waiters.add(receiver, count)
        self.asks[receiver] += count

    @rule(receiver=RECEIVERS)
    def put_back(self, receiver: int) -> None:
        """A message could not be given."""
        self.waiters.restore(receiver)
        self.asks[receiver] += 1

    @rule(receiver=RECEIVERS)
    def withdraw(self, receiver: int) -> None:
        """A receiver wants no more."""
        ticket = self.waiters.withdraw(receiver)
        self.withdrawn[ticket] = receiver, self.asks.pop(receiver, 0)

    @rule()
    def give(self) -> None:
        """A message comes for one that still asks."""
        receiver = self.waiters.take(with_withdrawn=False)
        assert (receiver is None) == (not self.asks.total())
        if receiver is not None:
            assert self.asks[receiver] > 0, "given more than asked"
            self.asks[receiver] -= 1

    @rule()
    def end(self) -> None:
        """Nothing is under way any more."""
        assert set(self.waiters.end_withdrawals(None)) == set(self.withdrawn)
        self.withdrawn.clear()

    @invariant()
    def counts_agree(self) -> None:
        """Those of each receiver, and their sum."""
        assert {each: self.waiters.of(each) for each in (1, 2, 3)} == {
            each: self.asks[each] for each in (1, 2, 3)
        }
        assert self.waiters.asked == self.asks.total()


TestWaitersAgainstCounts = WaitersModel.TestCase
