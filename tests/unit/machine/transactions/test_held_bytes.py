"""What the transactions of all connections hold together."""

from __future__ import annotations

from bridge.machine.transactions.effects import Enlist, Refuse
from bridge.machine.transactions.held_bytes import HeldBytes
from bridge.machine.transactions.limits import OPERATION_BYTES
from bridge.machine.transactions.transactions import Transactions
from bridge.model.entity import Tier
from bridge.model.errors import QuotaExceeded
from tests.unit.machine.transactions.operations import PLAIN, operation


def connection(of_all: HeldBytes) -> Transactions:
    """A connection with a transaction."""
    machine = Transactions(100_000, of_all=of_all)
    machine.declare("c", "declare", b"1", Tier.STANDARD)
    machine.due.clear()
    return machine


def refusal(machine: Transactions) -> QuotaExceeded | None:
    """Operate; return why that was refused."""
    machine.operate(PLAIN, b"1", operation("send"), 0)
    (effect,) = machine.due
    machine.due.clear()
    if isinstance(effect, Refuse):
        assert isinstance(effect.error, QuotaExceeded)
        return effect.error
    assert isinstance(effect, Enlist)
    machine.enlisted(effect.operation)
    machine.due.clear()
    return None


def test_connections_with_little_each_hold_no_more_than_all_may() -> None:
    """The one that comes last is refused by name, until another one has gone."""
    of_all = HeldBytes(2 * (OPERATION_BYTES + 10))
    first, second, third, late = (connection(of_all) for _ in range(4))
    assert refusal(first) is None
    assert refusal(second) is None
    refused = refusal(third)
    assert refused is not None
    assert "all connections" in str(refused)
    assert of_all.held == of_all.most
    first.close()
    assert refusal(late) is None
    second.close()
    late.close()
    third.close()
    assert of_all.held == 0
