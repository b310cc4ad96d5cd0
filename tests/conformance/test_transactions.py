"""Transactions, until there are any: plain work beside a coordinator goes on, else a refusal."""

from __future__ import annotations

from bridge.gateway.nodes.coordinator import CREDIT
from bridge.wire.amqp10 import writing
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
from bridge.wire.amqp10.types import Described, Ulong
from tests.conformance.client import MANAGEMENT_IN, MANAGEMENT_OUT, Client
from tests.conformance.served import client, gateway, message, queue_of

DECLARE = writing.encode(Described(Ulong(0x77), Described(Ulong(0x31), [])))
"""The message by which a client asks a coordinator for a transaction."""


def _says_that_there_are_no_transactions(error: Error) -> None:
    """Check a refusal: its text begins with the reason, for who shows no more."""
    assert error.condition == "amqp:not-implemented"
    assert (error.description or "").startswith("Transactions are not implemented here:")


async def _rejected(peer: Client, number: int) -> Error:
    outcome = await peer.outcome(number)
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, Error)
    return outcome.error


async def test_a_coordinator_is_there_and_declares_no_transaction() -> None:
    """Its link is there before all others, and the session and its other links go on."""
    async with gateway() as (served, port), client(port) as peer:
        peer.attach(7, "", role=False, target=Coordinator(("amqp:local-transactions",)))
        attach = await peer.next(Attach, handle=7)
        assert attach.target == Coordinator(), "no capability is in force"
        assert attach.source.address == "client-7"
        peer.attach(8, "q", role=False)
        await peer.next(Attach, handle=8)

        for _ in range(CREDIT + 1):
            error = await _rejected(peer, peer.transfer(7, DECLARE))
            _says_that_there_are_no_transactions(error)
        await peer.outcome(peer.transfer(8, message(b"x")))
        assert len(queue_of(served).active) == 1


async def test_a_second_coordinator_of_a_session_is_one_as_well() -> None:
    """.NET attaches one with the session, and another when it declares; either may go."""
    async with gateway() as (_, port), client(port) as peer:
        for handle in (7, 8):
            peer.attach(handle, "", role=False, target=Coordinator())
            await peer.next(Attach, handle=handle)
        peer.send_detach(7)
        await peer.next(Detach, handle=7)
        _says_that_there_are_no_transactions(await _rejected(peer, peer.transfer(8, b"junk")))


async def test_nothing_is_done_in_a_transaction() -> None:
    """A message is not stored, a settlement and a request change nothing."""
    state = TransactionalState(b"txn")
    async with gateway() as (served, port), client(port) as peer:
        peer.attach(7, "q", role=False)
        peer.attach(8, "q", role=True)
        await peer.outcome(peer.transfer(7, message(b"x")))
        _says_that_there_are_no_transactions(
            await _rejected(peer, peer.transfer(7, message(b"y"), state=state))
        )
        peer.credit(8, 1)
        transfer, _ = await peer.next(Transfer, handle=8)
        taken = TransactionalState(b"txn", Accepted())
        peer.send(Disposition(True, transfer.delivery_id, None, False, taken))
        answer = await peer.next(Disposition, first=transfer.delivery_id)
        assert isinstance(answer.state, Rejected)
        assert isinstance(answer.state.error, Error)
        _says_that_there_are_no_transactions(answer.state.error)
        assert await peer.manage("q", "com.microsoft:peek-message", {})
        request = AmqpMessage(
            application_properties={"operation": "com.microsoft:peek-message"}, value={}
        )
        reply = await peer.request(MANAGEMENT_OUT, MANAGEMENT_IN, request, state=state)
        assert reply.application_properties["statusCode"] == 501
        assert reply.application_properties["statusDescription"].startswith("Transactions are not")
        assert len(queue_of(served).locked) + len(queue_of(served).active) == 1
