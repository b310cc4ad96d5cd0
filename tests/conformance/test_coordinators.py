"""Transactions over bytes: what is answered, committed, rolled back and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from bridge.gateway.server import Gateway
from bridge.machine.transactions.limits import MESSAGES_MAX
from bridge.model.entity import Queue, Tier
from bridge.model.errors import ServerBusy, TransactionInDoubt, TransactionRolledBack
from bridge.model.name import parse_path
from bridge.wire.amqp10 import writing
from bridge.wire.amqp10.message import BATCH_FORMAT, AmqpMessage
from bridge.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from bridge.wire.amqp10.types import Array, Described, Symbol, Timestamp, Ulong
from tests.bench.memory_namespace import MemoryNamespace
from tests.bench.memory_queue import MemoryQueue
from tests.bench.memory_transactions import MemoryTransactions
from tests.conformance.client import MANAGEMENT_IN, MANAGEMENT_OUT, Client
from tests.conformance.served import client, connections_of, gateway, message
from tests.unit.machine.amqp10.peer import frame

DECLARE = writing.encode(Described(Ulong(0x77), Described(Ulong(0x31), [])))

FAR = Timestamp(4_000_000_000_000)

SESSIONS = Queue(name="s", lock_duration_ms=60_000, requires_session=True)
SESSION = Symbol("com.microsoft:session-filter")
SET_STATE = "com.microsoft:set-session-state"
GET_STATE = "com.microsoft:get-session-state"

TO, FROM, OTHER, COORDINATOR, SECOND = 7, 8, 9, 10, 11
"""Handles: a sender and a receiver of the queue, a sender of another one, coordinators."""


def discharge(txn_id: bytes, *, fail: bool = False) -> bytes:
    """Return the message by which a client commits a transaction, or rolls it back."""
    return writing.encode(Described(Ulong(0x77), Described(Ulong(0x32), [txn_id, fail])))


class Transacting:
    """A client with a coordinator, links to a queue `q`, and one to a queue `other`."""

    def __init__(
        self, peer: Client, served: Gateway, port: int, engine: MemoryTransactions
    ) -> None:
        self.peer = peer
        self.port = port
        self.served = served
        self.engine = engine

    def queue(self, name: str) -> MemoryQueue:
        """Return a queue behind the gateway."""
        namespace = self.served.connections.namespace
        assert isinstance(namespace, MemoryNamespace)
        return namespace.queue(parse_path(name))

    async def attach(self, handle: int, address: str, *, role: bool = False, **more: Any) -> None:
        """Attach a link."""
        self.peer.attach(handle, address, role=role, **more)
        await self.peer.next(Attach, handle=handle)

    async def coordinate(self, handle: int = COORDINATOR) -> None:
        """Attach a coordinator."""
        await self.attach(handle, "", target=Coordinator(("amqp:local-transactions",)))

    async def declare(self, handle: int = COORDINATOR) -> bytes:
        """Declare a transaction; return its id."""
        outcome = await self.peer.outcome(self.peer.transfer(handle, DECLARE))
        assert isinstance(outcome, Declared)
        assert len(outcome.txn_id) == 16
        return outcome.txn_id

    def discharge(self, txn_id: bytes, *, fail: bool = False, handle: int = COORDINATOR) -> int:
        """Ask for a commit or a rollback; return the delivery's id."""
        return self.peer.transfer(handle, discharge(txn_id, fail=fail))

    async def commit(self, txn_id: bytes) -> None:
        """Commit."""
        assert await self.peer.outcome(self.discharge(txn_id)) == Accepted()

    async def rollback(self, txn_id: bytes) -> None:
        """Roll back."""
        assert await self.peer.outcome(self.discharge(txn_id, fail=True)) == Accepted()

    async def refusal(self, delivery_id: int, txn_id: bytes | None = None) -> tuple[str, str]:
        """Return condition and text of a refusal; of an operation with the id of its state."""
        outcome = await self.peer.outcome(delivery_id)
        if txn_id is not None:
            assert isinstance(outcome, TransactionalState)
            assert outcome.txn_id == txn_id
            outcome = outcome.outcome
        assert isinstance(outcome, Rejected)
        return outcome.error.condition, outcome.error.description

    def send(self, txn_id: bytes, body: bytes, handle: int = TO, **more: Any) -> int:
        """Send a message in a transaction; return the delivery's id."""
        return self.peer.transfer(handle, message(body), state=TransactionalState(txn_id), **more)

    async def receive(self, handle: int = FROM, count: int = 0) -> Transfer:
        """Receive a message."""
        self.peer.credit(handle, 1, count=count)
        transfer, _ = await self.peer.next(Transfer, handle=handle)
        assert isinstance(transfer, Transfer)
        return transfer

    def settle(
        self, txn_id: bytes, transfer: Transfer, outcome: Any = None, *, settled: bool = False
    ) -> None:
        """Settle a message in a transaction."""
        state = TransactionalState(txn_id, outcome or Accepted())
        self.peer.send(Disposition(True, transfer.delivery_id, None, settled, state))

    async def settled(self, transfer: Transfer) -> Any:
        """Return the answer to a settlement."""
        answer = await self.peer.next(Disposition, role=False, first=transfer.delivery_id)
        assert answer.settled
        return answer.state

    async def until_active(self, name: str, count: int) -> None:
        """Wait until a queue has so many messages that are not locked."""
        await self.peer.until(lambda: len(self.queue(name).active) == count)


@asynccontextmanager
async def transacting(*, stored: int = 0, **engine: Any) -> AsyncIterator[Transacting]:
    """Run a gateway with transactions, and a client of it."""
    namespace = MemoryNamespace(
        Queue(name="q", lock_duration_ms=60_000), Queue(name="other"), SESSIONS
    )
    verbs = namespace.transactions
    for name, value in engine.items():
        setattr(verbs, name, value)
    async with gateway(namespace=namespace) as (served, port), client(port) as peer:
        found = Transacting(peer, served, port, verbs)
        await found.attach(TO, "q")
        await found.attach(FROM, "q", role=True)
        await found.attach(OTHER, "other")
        await found.coordinate()
        for number in range(stored):
            await peer.outcome(peer.transfer(TO, message(b"%d" % number)))
        yield found


async def test_received_and_sent_together() -> None:
    """Both are answered with the transaction and the outcome; the commit does both, once."""
    async with transacting(stored=1) as it:
        txn_id = await it.declare()
        transfer = await it.receive()
        it.settle(txn_id, transfer)
        assert await it.settled(transfer) == TransactionalState(txn_id, Accepted())
        sent = await it.peer.outcome(it.send(txn_id, b"answer"))
        assert sent == TransactionalState(txn_id, Accepted())
        assert len(it.queue("q").locked) == 1, "nothing is done before the commit"
        assert not it.queue("q").active
        await it.commit(txn_id)
        assert not it.queue("q").locked
        assert len(it.queue("q").active) == 1
        assert [each.identity for each in it.engine.commits] == [txn_id]


async def test_a_rollback_leaves_the_lock_and_what_comes_right_behind_settles() -> None:
    """.NET abandons a message right behind the rollback, by its lock token."""
    async with transacting(stored=1) as it:
        txn_id = await it.declare()
        transfer = await it.receive()
        it.settle(txn_id, transfer)
        await it.settled(transfer)
        it.send(txn_id, b"never")
        body = {
            "disposition-status": "abandoned",
            "lock-tokens": Array("uuid", (_token(transfer),)),
        }
        await it.peer.manage("q", "com.microsoft:peek-message", {})  # attaches the links
        rolled_back = it.discharge(txn_id, fail=True)
        reply = await it.peer.manage("q", "com.microsoft:update-disposition", body)
        assert reply.application_properties["statusCode"] == 200
        assert await it.peer.outcome(rolled_back) == Accepted()
        assert not it.queue("q").locked
        assert len(it.queue("q").active) == 1
        assert not it.engine.commits


def _token(transfer: Transfer) -> UUID:
    return UUID(bytes_le=transfer.delivery_tag)


async def test_what_is_settled_as_settled_comes_again_after_a_rollback() -> None:
    """qpid-jms forgets its deliveries: nobody else would end their locks. It counts as tried."""
    async with transacting(stored=1) as it:
        txn_id = await it.declare()
        transfer = await it.receive()
        it.settle(txn_id, transfer, settled=True)
        await it.rollback(txn_id)
        await it.until_active("q", 1)
        assert it.queue("q").active[0].delivery_count == 1


async def test_what_is_settled_as_settled_comes_again_after_a_refused_commit() -> None:
    """Also when its own settlement was refused with the doomed transaction."""
    async with transacting(stored=2) as it:
        txn_id = await it.declare()
        first = await it.receive()
        second = await it.receive(count=1)
        it.settle(txn_id, first, settled=True)
        it.peer.deliver(TO, message(b"x" * 270_000), state=TransactionalState(txn_id))
        it.settle(txn_id, second, settled=True)
        condition, text = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"
        assert "exceeds the limit" in text
        await it.until_active("q", 2)


async def test_a_discharge_right_behind_sends_waits_for_them() -> None:
    """Batches that are read in slices, too: qpid-jms waits for no outcome."""
    async with transacting() as it:
        txn_id = await it.declare()
        batch = b"".join(
            writing.encode(Described(Ulong(0x75), message(b"%d" % each + b"x" * 400)))
            for each in range(60)
        )
        number = it.peer.transfer(
            TO, batch, state=TransactionalState(txn_id), message_format=BATCH_FORMAT, settled=True
        )
        it.send(txn_id, b"last", settled=True)
        await it.commit(txn_id)
        assert len(it.queue("q").active) == 61
        assert number < it.peer.transfer(TO, message(b"plain"))


async def test_a_settlement_of_a_range() -> None:
    """Each delivery of a disposition is part of the transaction, and answered."""
    async with transacting(stored=3) as it:
        txn_id = await it.declare()
        it.peer.credit(FROM, 3)
        ids = [(await it.peer.next(Transfer, handle=FROM))[0].delivery_id for _ in range(3)]
        state = TransactionalState(txn_id, Modified(True, False))
        it.peer.send(Disposition(True, ids[0], ids[-1], False, state))
        answer = await it.peer.next(Disposition, role=False, first=ids[0])
        assert (answer.last, answer.state) == (ids[-1], state)
        await it.commit(txn_id)
        assert [each.delivery_count for each in it.queue("q").active] == [1, 1, 1]


async def test_the_end_of_the_client_rolls_back() -> None:
    """A client that is gone has committed nothing; its locks end with their time."""
    async with transacting(stored=1) as it:
        txn_id = await it.declare()
        transfer = await it.receive()
        it.settle(txn_id, transfer)
        await it.settled(transfer)
        (connection,) = connections_of(it.served)
        transactions = connection.transactions
        assert transactions is not None
        assert transactions.is_busy
        await it.peer.close()
        await it.served.connections.changed.wait()
        assert not transactions.is_busy
        assert not it.queue("q").pinned
        assert len(it.queue("q").locked) == 1
        assert not it.engine.commits


async def test_the_end_of_its_coordinator_rolls_back() -> None:
    """Other coordinators of the connection keep theirs."""
    async with transacting() as it:
        await it.coordinate(SECOND)
        mine, other = await it.declare(), await it.declare(SECOND)
        for txn_id in (mine, other):
            await it.peer.outcome(it.send(txn_id, b"x"))
        it.peer.send_detach(COORDINATOR)
        await it.peer.next(Detach, handle=COORDINATOR)
        assert await it.peer.outcome(it.discharge(other, handle=SECOND)) == Accepted()
        condition, _ = await it.refusal(it.send(mine, b"y"), mine)
        assert condition == "amqp:transaction:unknown-id"
        assert len(it.queue("q").active) == 1


async def test_an_unknown_id() -> None:
    """It is named as such for each kind of operation and a discharge."""
    async with transacting(stored=1) as it:
        unknown = b"?" * 16
        condition, text = await it.refusal(it.send(unknown, b"x"), unknown)
        assert condition == "amqp:transaction:unknown-id"
        assert text.startswith("Transaction hasn't been declared yet")
        transfer = await it.receive()
        it.settle(unknown, transfer)
        state = await it.settled(transfer)
        assert state.outcome.error.condition == "amqp:transaction:unknown-id"
        condition, text = await it.refusal(it.discharge(unknown))
        assert condition == "amqp:transaction:unknown-id"
        assert text.startswith("Transaction is not declared.")
        done = await it.declare()
        await it.commit(done)
        condition, _ = await it.refusal(it.discharge(done))
        assert condition == "amqp:transaction:unknown-id"


async def test_an_id_of_another_connection() -> None:
    """.NET's live tests use one client's transaction with another client."""
    async with transacting() as it:
        txn_id = await it.declare()
        async with client(it.port) as other:
            other.attach(TO, "q", role=False)
            await other.next(Attach, handle=TO)
            number = other.transfer(TO, message(b"x"), state=TransactionalState(txn_id))
            outcome = await other.outcome(number)
            assert isinstance(outcome, Rejected)
            assert outcome.error.condition == "amqp:transaction:unknown-id"


async def test_an_id_on_another_session_of_its_connection() -> None:
    """.NET and Java have their coordinator in a session of its own."""
    async with transacting() as it:
        it.peer.write(frame(1, Begin(None, 0, 5_000, 5_000)))
        await it.peer.next(Begin, remote_channel=1)
        it.peer.write(
            frame(
                1,
                Attach("own", 20, False, source=Source("c"), target=Target("q"),
                       initial_delivery_count=0),
            )
        )  # fmt: skip
        await it.peer.next(Attach, handle=20)
        txn_id = await it.declare()
        state = TransactionalState(txn_id)
        transfer = Transfer(20, 0, b"1", 0, settled=True, state=state)
        it.peer.write(frame(1, transfer, message(b"x")))
        await it.commit(txn_id)
        assert len(it.queue("q").active) == 1


async def test_another_entity_is_refused_and_dooms() -> None:
    """Azure's text; the commit names it again."""
    async with transacting() as it:
        txn_id = await it.declare()
        await it.peer.outcome(it.send(txn_id, b"x"))
        condition, text = await it.refusal(it.send(txn_id, b"y", OTHER), txn_id)
        assert condition == "amqp:not-allowed"
        assert text.startswith("Local transactions cannot span multiple top-level entities")
        condition, text = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"
        assert "Local transactions cannot span" in text
        assert not it.queue("q").active


async def test_a_session_that_begins_with_a_coordinator_sends_to_others() -> None:
    """By way of its first entity; a receiver of another one is refused when it attaches."""
    async with transacting(stored=1) as it:
        it.peer.write(frame(1, Begin(None, 0, 5_000, 5_000)))
        await it.peer.next(Begin, remote_channel=1)

        def attach(handle: int, role: bool, address: str, target: Any = None) -> None:
            source, mine = Source(address if role else "c"), Target("c" if role else address)
            it.peer.write(
                frame(
                    1,
                    Attach(
                        f"across-{handle}",
                        handle,
                        role,
                        source=source,
                        target=target or mine,
                        initial_delivery_count=None if role else 0,
                    ),
                )
            )

        attach(30, False, "", Coordinator())
        attach(31, True, "q")
        attach(32, False, "other")
        for handle in (30, 31, 32):
            await it.peer.next(Attach, handle=handle)
        attach(33, True, "other")
        refused = await it.peer.next(Detach, handle=33)
        assert refused.error.condition == "amqp:not-allowed"
        assert refused.error.description.startswith("Local transactions cannot span")

        it.peer.write(frame(1, Transfer(30, 100, b"1", 0), DECLARE))
        declared = (await it.peer.next(Disposition, role=True, first=100)).state
        assert isinstance(declared, Declared)
        state = TransactionalState(declared.txn_id)
        flow = Flow(0x40000000, 5_000, 1, 5_000, 31, 0, 1)
        it.peer.write(frame(1, flow))
        received, _ = await it.peer.next(Transfer, handle=31)
        it.peer.write(frame(1, Transfer(32, 101, b"2", 0, state=state), message(b"on")))
        taken = TransactionalState(declared.txn_id, Accepted())
        it.peer.write(frame(1, Disposition(True, received.delivery_id, None, True, taken)))
        it.peer.write(frame(1, Transfer(30, 102, b"3", 0), discharge(declared.txn_id)))
        assert (await it.peer.next(Disposition, role=True, first=102)).state == Accepted()
        (commit,) = it.engine.commits
        assert commit.pinned.key == "q"
        assert [each.target.key for each in commit.sends] == ["other"]
        assert (len(it.queue("other").active), len(it.queue("q").locked)) == (1, 0)
        it.peer.write(frame(1, End()))
        await it.peer.next(End)


async def test_more_messages_than_azure_takes() -> None:
    """The 101st dooms the transaction."""
    async with transacting() as it:
        txn_id = await it.declare()
        for _ in range(MESSAGES_MAX):
            it.send(txn_id, b"x", settled=True)
        condition, text = await it.refusal(it.send(txn_id, b"y"), txn_id)
        assert (condition, text.split(";")[0].split(" Tracking")[0]) == (
            "amqp:not-allowed",
            "Cannot send more than 100 messages in a single transaction.",
        )
        condition, _ = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"


async def test_a_commit_that_would_be_too_large() -> None:
    """The send that passes RabbitMQ's limit is refused."""
    async with transacting(bytes_max=5_000) as it:
        txn_id = await it.declare()
        await it.peer.outcome(it.send(txn_id, b"x" * 3_000))
        condition, text = await it.refusal(it.send(txn_id, b"x" * 3_000), txn_id)
        assert condition == "amqp:link:message-size-exceeded"
        assert "max_message_size" in text


@pytest.mark.parametrize(
    ("refused", "condition"),
    [
        ({"tier": Tier.BASIC}, "amqp:not-allowed"),
        ({"declares_refused": ServerBusy("An older bridge.")}, "com.microsoft:server-busy"),
    ],
)
async def test_a_declare_that_is_refused(refused: dict[str, Any], condition: str) -> None:
    """In the Basic tier, and while a bridge does not know transactions."""
    async with transacting(**refused) as it:
        assert (await it.refusal(it.peer.transfer(COORDINATOR, DECLARE)))[0] == condition


async def test_a_refused_commit_is_a_rollback() -> None:
    """The leader's reason is told, and the lock is as it was."""
    async with transacting(stored=1, commits_end=TransactionRolledBack("It is gone.")) as it:
        txn_id = await it.declare()
        transfer = await it.receive()
        it.settle(txn_id, transfer)
        condition, text = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"
        assert "It is gone." in text
        assert len(it.queue("q").locked) == 1


async def test_a_commit_in_doubt_ends_the_coordinators_link() -> None:
    """No outcome says that nobody knows; other links go on."""
    async with transacting(commits_end=TransactionInDoubt("Nobody knows.")) as it:
        txn_id = await it.declare()
        it.send(txn_id, b"x")
        it.discharge(txn_id)
        detach = await it.peer.next(Detach, handle=COORDINATOR)
        assert detach.error is not None
        assert await it.peer.outcome(it.peer.transfer(TO, message(b"plain"))) == Accepted()


async def _request(
    it: Transacting, txn_id: bytes, operation: str, body: Any, queue: str = "q"
) -> dict[str, Any]:
    """Ask a queue's `$management` in a transaction; return the reply's properties."""
    return (await _reply(it, txn_id, operation, body, queue)).application_properties


async def _state(it: Transacting, txn_id: bytes | None) -> bytes | None:
    """Return the state of a session, in a transaction or outside of one."""
    body = {"session-id": "one"}
    if txn_id is None:
        found = await it.peer.manage("s", GET_STATE, body)
    else:
        found = await _reply(it, txn_id, GET_STATE, body, "s")
    state: bytes | None = found.value["session-state"]
    return state


async def _reply(
    it: Transacting, txn_id: bytes, operation: str, body: Any, queue: str = "q"
) -> AmqpMessage:
    await it.peer.manage(queue, "com.microsoft:peek-message", {})  # attaches the links
    asked = AmqpMessage(application_properties={"operation": operation}, value=body)
    state = TransactionalState(txn_id)
    return await it.peer.request(MANAGEMENT_OUT, MANAGEMENT_IN, asked, state=state)


async def test_a_settlement_and_a_cancel_by_management() -> None:
    """A deferred message is settled so, and a scheduled one cancelled, with the commit."""
    async with transacting(stored=1) as it:
        transfer = await it.receive()
        schedule = _scheduled()
        reply = await it.peer.manage("q", "com.microsoft:schedule-message", {"messages": schedule})
        (number,) = reply.value["sequence-numbers"].items
        txn_id = await it.declare()
        settle = {
            "disposition-status": "completed",
            "lock-tokens": Array("uuid", (_token(transfer),)),
        }
        cancel = {"sequence-numbers": Array("long", (number,))}
        for operation, body in (
            ("com.microsoft:update-disposition", settle),
            ("com.microsoft:renew-lock", {"lock-tokens": settle["lock-tokens"]}),
            ("com.microsoft:peek-message", {}),
            ("com.microsoft:cancel-scheduled-message", cancel),
        ):
            found = await _request(it, txn_id, operation, body)
            assert found["statusCode"] in (200, 204), found
        assert it.queue("q").scheduled
        await it.commit(txn_id)
        assert not it.queue("q").scheduled
        assert not it.queue("q").locked


async def test_schedules_are_numbered_at_once_and_are_there_with_the_commit() -> None:
    """But one that is cancelled in the same transaction, or rolled back."""
    async with transacting() as it:
        txn_id = await it.declare()
        name, body = "com.microsoft:schedule-message", {"messages": _scheduled() * 2}
        reply = await _reply(it, txn_id, name, body)
        first, second = reply.value["sequence-numbers"].items
        assert first < second
        await it.peer.outcome(it.send(txn_id, b"x"))
        cancel = {"sequence-numbers": Array("long", (second,))}
        found = await _request(it, txn_id, "com.microsoft:cancel-scheduled-message", cancel)
        assert found["statusCode"] == 200
        assert not it.queue("q").scheduled
        await it.commit(txn_id)
        assert list(it.queue("q").scheduled) == [first]
        txn_id = await it.declare()
        await _reply(it, txn_id, name, body)
        await it.rollback(txn_id)
        assert list(it.queue("q").scheduled) == [first]


async def test_scheduled_messages_count_among_the_most_of_a_transaction() -> None:
    """Beside those that are sent."""
    async with transacting() as it:
        txn_id = await it.declare()
        for _ in range(MESSAGES_MAX - 1):
            it.send(txn_id, b"x", settled=True)
        body = {"messages": _scheduled() * 2}
        found = await _request(it, txn_id, "com.microsoft:schedule-message", body)
        assert "more than 100 messages" in found["statusDescription"]


def _scheduled() -> list[dict[str, Any]]:
    annotations = Described(Ulong(0x72), {"x-opt-scheduled-enqueue-time": FAR})
    return [{"message-id": "m", "message": writing.encode(annotations) + message(b"later")}]


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("com.microsoft:batch-delete-messages", {}),
        (
            "com.microsoft:receive-by-sequence-number",
            {"receiver-settle-mode": Ulong(0), "sequence-numbers": Array("long", (1,))},
        ),
        ("com.microsoft:add-rule", {}),
        ("com.microsoft:there-is-no-such-one", {}),
    ],
)
async def test_what_is_in_no_transaction_is_refused_by_name_and_dooms(
    operation: str, body: Any
) -> None:
    """A commit without it would be half a transaction."""
    async with transacting() as it:
        txn_id = await it.declare()
        await it.peer.outcome(it.send(txn_id, b"x"))
        found = await _request(it, txn_id, operation, body)
        assert found["statusCode"] == 501
        assert operation in found["statusDescription"]
        condition, text = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"
        assert operation in text
        assert not it.queue("q").active


@pytest.mark.parametrize(
    ("operation", "remedy"),
    [
        ("com.microsoft:receive-by-sequence-number", "Receive with peek-lock"),
    ],
)
async def test_a_refusal_in_a_transaction_says_what_to_do_instead(
    operation: str, remedy: str
) -> None:
    """In words for who reads them at night."""
    async with transacting() as it:
        txn_id = await it.declare()
        found = await _request(it, txn_id, operation, {"receiver-settle-mode": Ulong(0)})
        assert found["errorCondition"] == "amqp:not-implemented"
        assert remedy in found["statusDescription"]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_sessions_state_is_set_with_the_commit(is_committed: bool) -> None:
    """The transaction reads what it has set; nobody else does before."""
    async with transacting() as it:
        await it.attach(12, "s", role=True, source=Source("s", filter={SESSION: "one"}))
        named = {"session-id": "one"}
        txn_id = await it.declare()
        for state in (b"new", None, b"newer"):
            given = {**named, "session-state": state}
            found = await _request(it, txn_id, SET_STATE, given, "s")
            assert found["statusCode"] == 200, found
            assert await _state(it, txn_id) == state
            assert await _state(it, None) is None
        if is_committed:
            await it.commit(txn_id)
        else:
            await it.rollback(txn_id)
        assert await _state(it, None) == (b"newer" if is_committed else None)
        assert not it.engine.sessions


async def test_a_state_of_a_session_that_the_connection_has_not_dooms() -> None:
    """Nothing stays pinned, what was set before included."""
    async with transacting() as it:
        await it.attach(12, "s", role=True, source=Source("s", filter={SESSION: "one"}))
        txn_id = await it.declare()
        for session_id, status in (("one", 200), ("two", 410)):
            given = {"session-id": session_id, "session-state": b"new"}
            found = await _request(it, txn_id, SET_STATE, given, "s")
            assert found["statusCode"] == status, found
        condition, text = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"
        assert "The session lock has expired" in text
        assert not it.engine.sessions
        assert await _state(it, None) is None


async def test_a_lost_lock_dooms() -> None:
    """Of several tokens none stays pinned."""
    async with transacting(stored=1) as it:
        txn_id = await it.declare()
        transfer = await it.receive()
        tokens = Array("uuid", (_token(transfer), _token(Transfer(0, 0, bytes(16)))))
        body = {"disposition-status": "completed", "lock-tokens": tokens}
        found = await _request(it, txn_id, "com.microsoft:update-disposition", body)
        assert found["errorCondition"] == "com.microsoft:message-lock-lost"
        assert not it.queue("q").pinned
        condition, _ = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"


@pytest.mark.parametrize("operation", ["com.microsoft:peek-message", "com.microsoft:renew-lock"])
async def test_a_request_with_an_unknown_id(operation: str) -> None:
    """Also of what would be done at once."""
    async with transacting() as it:
        found = await _request(it, b"?" * 16, operation, {})
        assert found["errorCondition"] == "amqp:transaction:unknown-id"


async def test_a_message_that_cannot_be_read() -> None:
    """It is refused, and dooms; so is an outcome that is none."""
    async with transacting(stored=1) as it:
        txn_id = await it.declare()
        state = TransactionalState(txn_id)
        condition, _ = await it.refusal(it.peer.transfer(TO, b"junk", state=state), txn_id)
        assert condition == "amqp:invalid-field"
        txn_id = await it.declare()
        transfer = await it.receive()
        it.peer.send(Disposition(True, transfer.delivery_id, None, False, state))
        assert isinstance((await it.settled(transfer)).outcome, Rejected)


async def test_junk_at_a_coordinator_and_a_settled_declare() -> None:
    """Neither keeps the link from its work."""
    async with transacting() as it:
        assert isinstance(await it.peer.outcome(it.peer.transfer(COORDINATOR, b"junk")), Rejected)
        for _ in range(300):
            it.peer.transfer(COORDINATOR, DECLARE, settled=True)
            txn_id = await it.declare()
            await it.commit(txn_id)


async def test_what_comes_on_a_link_that_has_ended_dooms() -> None:
    """The bridge ends links by itself; what is under way then gets no answer."""
    async with transacting(stored=1) as it:
        txn_id = await it.declare()
        transfer = await it.receive()
        (connection,) = connections_of(it.served)
        for link in list(connection.links._alive):
            link.link.detach("amqp:link:detach-forced", "For a test.")
            connection.links.forget(link)
        it.send(txn_id, b"x", settled=True)
        condition, text = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"
        assert "has ended" in text
        txn_id = await it.declare()
        it.settle(txn_id, transfer, settled=True)
        condition, text = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"
        assert "its link ended" in text


async def test_a_request_that_cannot_be_read_dooms() -> None:
    """It has no reply: nobody knows whom to tell."""
    async with transacting() as it:
        await it.peer.manage("q", "com.microsoft:peek-message", {})  # attaches the links
        txn_id = await it.declare()
        it.peer.transfer(MANAGEMENT_OUT, b"junk", state=TransactionalState(txn_id))
        condition, _ = await it.refusal(it.discharge(txn_id))
        assert condition == "amqp:transaction:rollback"
