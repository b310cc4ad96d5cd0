"""An operation costs as much beside many open transactions as beside few."""

from __future__ import annotations

from bridge.machine.transactions.transactions import Transactions
from bridge.model.entity import Tier
from tests.fixtures.counting_calls import calls_of
from tests.unit.machine.transactions.operations import PLAIN, operation


def busy(size: int) -> Transactions:
    """A connection with so many open transactions of one operation."""
    machine = Transactions(1_000_000)
    machine.sessions.link_attached(PLAIN, "q")
    for number in range(size):
        txn_id = number.to_bytes(2)
        machine.declare("c", "declare", txn_id, Tier.STANDARD)
        machine.operate(PLAIN, txn_id, operation("send"), number)
    return machine


def one(machine: Transactions, now_ms: int = 1_000) -> None:
    """Carry out one transaction of one operation."""
    machine.declare("c", "declare", b"own", Tier.STANDARD)
    own = operation("send")
    machine.operate(PLAIN, b"own", own, now_ms)
    machine.enlisted(own)
    machine.discharge("c", "discharge", b"own", is_failed=False, now_ms=now_ms)
    machine.due_ms()


def test_a_transaction_calls_as_many_functions_beside_ten_as_beside_nine_hundred() -> None:
    """Whoever ends next is known without a look at all."""
    few, many = busy(10), busy(900)
    assert calls_of(lambda: one(few)) == calls_of(lambda: one(many))


def test_those_that_began_first_end_first_whatever_ended_before() -> None:
    """The next end is that of the oldest one that is still open."""
    machine = Transactions(1_000_000, timeout_ms=100)
    machine.sessions.link_attached(PLAIN, "q")
    ends: list[int | None] = []
    for number in range(3):
        machine.declare("c", "declare", bytes([number]), Tier.STANDARD)
    for now_ms, number in enumerate((2, 0, 1)):
        machine.operate(PLAIN, bytes([number]), operation("send"), now_ms)
    for now_ms, ended in ((3, 2), (50, 1), (99, None), (102, None)):
        if ended is None:
            machine.expire(now_ms)
        else:
            machine.discharge("c", "discharge", bytes([ended]), is_failed=True, now_ms=now_ms)
        ends.append(machine.due_ms())
    assert ends == [101, 101, 101, None]
