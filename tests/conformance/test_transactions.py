"""Connections and transactions: plain work beside a coordinator, and operations without one."""

from __future__ import annotations

from bridge.wire.amqp10.message import AmqpMessage
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Detach,
    Disposition,
    Error,
    Rejected,
    TransactionalState,
    Transfer,
)
from tests.conformance.client import MANAGEMENT_IN, MANAGEMENT_OUT
from tests.conformance.served import client, gateway, message, queue_of

UNKNOWN = "amqp:transaction:unknown-id"


async def test_plain_work_goes_on_beside_coordinators() -> None:
    """.NET attaches one with the session, and another when it declares; either may go."""
    async with gateway() as (served, port), client(port) as peer:
        for handle in (6, 7):
            peer.attach(handle, "", role=False, target=Coordinator(("amqp:local-transactions",)))
            attach = await peer.next(Attach, handle=handle)
            assert attach.target == Coordinator(), "no capability is in force"
        peer.attach(8, "q", role=False)
        await peer.next(Attach, handle=8)
        peer.send_detach(7)
        await peer.next(Detach, handle=7)
        await peer.outcome(peer.transfer(8, message(b"x")))
        assert len(queue_of(served).active) == 1


async def test_without_a_coordinator_every_transaction_is_unknown() -> None:
    """A message is not stored, a settlement and a request change nothing."""
    state = TransactionalState(b"txn")
    async with gateway() as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        peer.attach(8, "q", role=True)
        await peer.outcome(peer.transfer(7, message(b"x")))
        outcome = await peer.outcome(peer.transfer(7, message(b"y"), state=state))
        assert isinstance(outcome, Rejected)
        assert isinstance(outcome.error, Error)
        assert outcome.error.condition == UNKNOWN
        peer.credit(8, 1)
        transfer, _ = await peer.next(Transfer, handle=8)
        taken = TransactionalState(b"txn", Accepted())
        peer.send(Disposition(True, transfer.delivery_id, None, False, taken))
        answer = await peer.next(Disposition, first=transfer.delivery_id)
        assert isinstance(answer.state, Rejected)
        assert isinstance(answer.state.error, Error)
        assert answer.state.error.condition == UNKNOWN
        assert await peer.manage("q", "com.microsoft:peek-message", {})
        request = AmqpMessage(
            application_properties={"operation": "com.microsoft:peek-message"}, value={}
        )
        reply = await peer.request(MANAGEMENT_OUT, MANAGEMENT_IN, request, state=state)
        assert reply.application_properties["errorCondition"] == UNKNOWN
        assert len(queue_of(served).locked) + len(queue_of(served).active) == 1
