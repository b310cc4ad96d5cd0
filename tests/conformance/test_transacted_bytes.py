"""What the transactions of all connections hold together, over bytes."""

from __future__ import annotations

from tests.conformance.served import client
from tests.conformance.test_coordinators import TO, Transacting, transacting
from tests.fixtures.waiting import until


async def test_transactions_of_all_connections_have_one_bound() -> None:
    """A client that finds no room is told, and goes on when another one has gone."""
    async with transacting() as it:
        bound = it.served.backlog.transacted
        bound.most = 5_000
        async with client(it.port) as peer:
            other = Transacting(peer, it.served, it.port, it.engine)
            await other.attach(TO, "q")
            await other.coordinate()
            txn_id = await other.declare()
            await peer.outcome(other.send(txn_id, b"x" * 3_000))
            refused = await it.declare()
            condition, text = await it.refusal(it.send(refused, b"x" * 3_000), refused)
            assert condition == "amqp:resource-limit-exceeded"
            assert "all connections" in text
            condition, _ = await it.refusal(it.discharge(refused))
            assert condition == "amqp:transaction:rollback"
        await until(lambda: not bound.held)
        txn_id = await it.declare()
        await it.peer.outcome(it.send(txn_id, b"x" * 3_000))
        await it.commit(txn_id)
        assert len(it.queue("q").active) == 1
        assert not bound.held
