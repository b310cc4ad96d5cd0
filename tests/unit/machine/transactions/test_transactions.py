"""The transactions of a connection: what is answered, asked for, pinned, refused and told."""

from __future__ import annotations

import pytest

from bridge.machine.transactions.effects import (
    Answer,
    AskForCommit,
    CommitEnd,
    EndCoordinator,
    Enlist,
    Refuse,
    TransactionEffect,
    Unpin,
)
from bridge.machine.transactions.limits import OPERATION_BYTES, TIMEOUT_MS
from bridge.machine.transactions.operations import TransactedOperation, TransactedVerb
from bridge.machine.transactions.transactions import Transactions
from bridge.model.entity import Tier
from bridge.model.errors import (
    MessageSizeExceeded,
    NotAllowed,
    QuotaExceeded,
    ServiceBusError,
    TransactionRolledBack,
    TransactionTimedOut,
    TransactionUnknown,
)
from bridge.wire.amqp10.performatives import (
    Accepted,
    Declared,
    Modified,
    TransactionalState,
)
from tests.unit.machine.transactions.operations import (
    ACROSS,
    BUSY,
    LOST,
    OTHER,
    PLAIN,
    RENEW,
    SEND,
    SETTLE,
    UNKNOWN,
    operation,
)

BYTES_MAX = 100_000


class Connection:
    """A connection's transactions, whose checks succeed at once; time stands still."""

    def __init__(self, **limits: int) -> None:
        self.machine = Transactions(BYTES_MAX, **limits)
        self.machine.sessions.coordinator_attached("own")
        self.machine.sessions.link_attached(PLAIN, "q")
        self.checks = True

    def effects(self) -> list[TransactionEffect]:
        """Return what is due, checks aside, which are answered."""
        found: list[TransactionEffect] = []
        while self.machine.due:
            due, self.machine.due = self.machine.due, []
            for effect in due:
                if isinstance(effect, Enlist) and self.checks:
                    self.machine.enlisted(effect.operation)
                else:
                    found.append(effect)
        return found

    def declared(self, txn_id: bytes = b"1", coordinator: str = "c") -> Connection:
        """Declare a transaction; return the connection."""
        self.machine.declare(coordinator, "declare", txn_id, Tier.STANDARD)
        assert self.effects() == [Answer("declare", Declared(txn_id))]
        return self

    def operate(
        self,
        asked: TransactedOperation,
        txn_id: bytes = b"1",
        session: str = PLAIN,
        now_ms: int = 0,
    ) -> list[TransactionEffect]:
        """Operate in a transaction; return what is due."""
        self.machine.operate(session, txn_id, asked, now_ms)
        return self.effects()

    def discharge(
        self,
        txn_id: bytes = b"1",
        *,
        is_failed: bool = False,
        coordinator: str = "c",
        now_ms: int = 0,
    ) -> list[TransactionEffect]:
        """Discharge a transaction; return what is due."""
        self.machine.discharge(coordinator, "discharge", txn_id, is_failed=is_failed, now_ms=now_ms)
        return self.effects()

    def refusal(
        self, asked: TransactedOperation, txn_id: bytes = b"1", session: str = PLAIN
    ) -> ServiceBusError:
        """Return why an operation is refused."""
        (effect,) = self.operate(asked, txn_id, session)
        assert isinstance(effect, Refuse)
        assert (effect.asker, effect.txn_id) == (asked.asker, txn_id), "its state names both"
        return effect.error

    def rollback(self) -> tuple[ServiceBusError, list[TransactionEffect]]:
        """Ask for a commit; return why there is none, and what comes before."""
        *before, last = self.discharge()
        assert isinstance(last, Refuse)
        return last.error, before


def test_a_message_received_and_one_sent() -> None:
    """Both are answered with the transaction and their outcome, and carried out by one commit."""
    connection = Connection().declared()
    settled = operation("settle", SETTLE, outcome=Modified(True, False))
    sent = operation("send", messages=3)
    state = TransactionalState(b"1", Modified(True, False))
    assert connection.operate(settled) == [Answer("settle", state)]
    assert connection.operate(sent) == [Answer("send", TransactionalState(b"1", Accepted()))]

    (commit,) = connection.discharge()

    assert commit == AskForCommit(b"1", "q", (settled, sent))
    assert isinstance(commit, AskForCommit)
    assert (commit.sends(), commit.of(SETTLE)) == ({"q": [sent]}, [settled])
    connection.machine.commit_ended(b"1", CommitEnd.ACCEPTED)
    assert connection.effects() == [Answer("discharge", Accepted())], "exactly: Java compares"
    assert (len(connection.machine), connection.machine.held_bytes) == (0, 0)


def test_a_rollback_lets_go_what_is_pinned() -> None:
    """A discharge that failed is accepted; the lock is as it was, the message is not sent."""
    connection = Connection().declared()
    settled = operation("settle", SETTLE)
    connection.operate(settled)
    connection.operate(operation("send"))

    assert connection.discharge(is_failed=True) == [
        Unpin(settled),
        Answer("discharge", Accepted()),
    ]
    assert isinstance(connection.refusal(operation("late")), TransactionUnknown)


def test_nothing_is_asked_for_a_transaction_without_operations() -> None:
    """It is committed at once, as is one in which locks were renewed alone."""
    assert Connection().declared().discharge() == [Answer("discharge", Accepted())]
    connection = Connection().declared()
    connection.operate(operation("renew", RENEW))
    assert connection.discharge() == [Answer("discharge", Accepted())]
    assert connection.machine.held_bytes == 0


def test_an_id_is_known_to_its_own_connection_only() -> None:
    """On every session of that one; its own coordinator alone discharges it, and once."""
    first, second = Connection().declared(), Connection()
    assert isinstance(second.refusal(operation("send")), TransactionUnknown)
    first.operate(operation("send"), session=OTHER)
    other = first.discharge(coordinator="d")
    assert [type(each) for each in other] == [Refuse]
    assert isinstance(first.discharge()[0], AskForCommit)
    (again,) = first.discharge()
    assert isinstance(again, Refuse)
    assert isinstance(again.error, TransactionUnknown)
    assert isinstance(first.refusal(operation("late")), TransactionUnknown)


def test_a_refused_operation_dooms_the_commit() -> None:
    """Java does not look at a send's outcome: the discharge says what was wrong."""
    connection = Connection().declared()
    connection.checks = False
    settled = operation("settle", SETTLE)
    for asked in (settled, operation("send")):
        connection.operate(asked)
    connection.machine.enlisted(settled)
    (sent,) = (each for each in connection.machine._open[b"1"].pending)
    connection.machine.refused(sent, BUSY)
    assert [type(each) for each in connection.effects()] == [Answer, Refuse]
    error = connection.refusal(operation("more"))
    assert isinstance(error, TransactionRolledBack), "nothing can come of it any more"

    error, before = connection.rollback()

    assert isinstance(error, TransactionRolledBack)
    assert str(BUSY) in str(error)
    assert before == [Unpin(settled)]


def test_a_commit_waits_for_the_checks() -> None:
    """It is asked for when all operations are answered, in the order in which they came."""
    connection = Connection().declared()
    connection.checks = False
    first, second = operation("first", SETTLE), operation("second")
    assert connection.operate(first) == [Enlist(first, "q")]
    connection.operate(second)
    assert connection.discharge() == []
    assert isinstance(connection.refusal(operation("late")), TransactionUnknown)
    connection.machine.enlisted(second)
    connection.machine.enlisted(first, "found")
    assert connection.effects()[-1] == AskForCommit(b"1", "q", (first, second))
    assert first.found == "found"


def test_two_minutes_begin_with_the_first_operation() -> None:
    """Then it is rolled back, and what is asked of it says so, until it is discharged."""
    connection = Connection().declared()
    assert connection.machine.due_ms() is None
    settled = operation("settle", SETTLE)
    connection.operate(settled, now_ms=5_000_000)
    connection.operate(operation("send"), now_ms=5_060_000)
    assert connection.machine.due_ms() == 5_000_000 + TIMEOUT_MS
    connection.machine.expire(5_000_000 + TIMEOUT_MS - 1)
    assert connection.effects() == []

    connection.machine.expire(5_000_000 + TIMEOUT_MS)

    assert connection.effects() == [Unpin(settled)]
    assert connection.machine.due_ms() is None
    late = connection.refusal(operation("late"))
    assert isinstance(late, NotAllowed), "InvalidOperationException in .NET"
    assert str(late) == (
        "No active Transaction was found for ID 'txn:31'. The Transaction may have timed out or "
        "attempted to span multiple top-level entities such as Queue or Topic. The server "
        "Transaction timeout is: 00:02:00."
    )
    error, before = connection.rollback()
    assert (type(error), before) == (TransactionTimedOut, [])
    assert len(connection.machine) == 0


def test_a_discharge_is_late_without_the_timer() -> None:
    """Whether or not `expire` was called in time; one that failed is accepted all the same."""
    for is_failed, kind in ((False, Refuse), (True, Answer)):
        connection = Connection().declared()
        connection.operate(operation("send"))
        (effect,) = connection.discharge(is_failed=is_failed, now_ms=TIMEOUT_MS)
        assert type(effect) is kind
        assert len(connection.machine) == 0


def test_a_check_that_takes_too_long() -> None:
    """The discharge that waits for it is told at the end of the time; then the check is undone."""
    connection = Connection().declared()
    connection.checks = False
    settled = operation("settle", SETTLE)
    connection.operate(settled)
    assert connection.discharge() == []
    connection.machine.expire(TIMEOUT_MS)
    (told,) = connection.effects()
    assert isinstance(told, Refuse)
    assert isinstance(told.error, TransactionTimedOut)
    connection.machine.enlisted(settled)
    unpin, refused = connection.effects()
    assert unpin == Unpin(settled)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, TransactionRolledBack)


def test_a_hundred_messages() -> None:
    """Each of a batch counts, the 101st is refused; what is settled does not count."""
    connection = Connection().declared()
    for number in range(120):
        connection.operate(operation(f"settle {number}", SETTLE))
    connection.operate(operation("batch", messages=99))
    connection.operate(operation("schedule", TransactedVerb.SCHEDULE, messages=1))
    error = connection.refusal(operation("one more"))
    assert (type(error), str(error)) == (
        NotAllowed,
        "Cannot send more than 100 messages in a single transaction.",
    )
    assert isinstance(connection.rollback()[0], TransactionRolledBack)


def test_a_commit_that_would_be_too_large_is_refused_at_its_send() -> None:
    """The send that passes `max_message_size`, and not at the commit."""
    half = BYTES_MAX // 2 - OPERATION_BYTES
    connection = Connection().declared()
    connection.operate(operation("first", size_bytes=half))
    connection.operate(operation("second", size_bytes=half))
    error = connection.refusal(operation("settle", SETTLE, size_bytes=0))
    assert isinstance(error, MessageSizeExceeded)
    assert str(BYTES_MAX) in str(error)


def test_a_size_that_is_known_after_the_check_only() -> None:
    """What the engine says counts: a larger size is refused, a smaller one leaves room."""
    connection = Connection().declared()
    connection.checks = False
    first, second = operation("first", SETTLE), operation("second", SETTLE)
    for asked in (first, second):
        connection.operate(asked)
    connection.machine.enlisted(first, size_bytes=BYTES_MAX - 3 * OPERATION_BYTES)
    connection.machine.enlisted(second, size_bytes=BYTES_MAX)
    answer, unpin, refused = connection.effects()[-3:]
    assert isinstance(answer, Answer)
    assert unpin == Unpin(second)
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, MessageSizeExceeded)
    assert connection.machine.held_bytes == BYTES_MAX - 2 * OPERATION_BYTES


def test_messages_that_are_counted_after_the_check_only() -> None:
    """A batch that is read in slices is there when it comes: its commit waits, and counts all."""
    for count, kind in ((99, Answer), (100, Refuse)):
        connection = Connection().declared()
        connection.operate(operation("one"))
        connection.checks = False
        batch = operation("batch", messages=0)
        connection.operate(batch)
        assert connection.discharge() == []
        connection.machine.enlisted(batch, message_count=count)
        told, end = connection.effects()
        assert type(told) is kind
        assert type(end) is (AskForCommit if kind is Answer else Refuse)


def test_what_all_transactions_of_a_connection_hold() -> None:
    """Too many bytes and too many transactions are refused, until some are discharged."""
    connection = Connection(held_bytes_max=2 * OPERATION_BYTES + 20, open_max=3)
    connection.declared(b"1").declared(b"2").declared(b"3")
    connection.machine.declare("c", "more", b"4", Tier.PREMIUM)
    (refused,) = connection.effects()
    assert isinstance(refused, Refuse)
    assert (refused.txn_id, type(refused.error)) == (None, QuotaExceeded)
    connection.operate(operation("a"), b"1")
    connection.operate(operation("b"), b"2")
    assert isinstance(connection.refusal(operation("c"), b"3"), QuotaExceeded)
    connection.discharge(b"1", is_failed=True)
    connection.declared(b"4")
    connection.operate(operation("d"), b"4")


def test_there_are_none_in_the_basic_tier() -> None:
    """The declare is refused."""
    connection = Connection()
    connection.machine.declare("c", "declare", b"1", Tier.BASIC)
    (refused,) = connection.effects()
    assert isinstance(refused, Refuse)
    assert isinstance(refused.error, NotAllowed)
    assert "Basic" in str(refused.error)
    assert len(connection.machine) == 0


@pytest.mark.parametrize("verb", list(TransactedVerb))
def test_the_first_operation_pins_an_entity(verb: TransactedVerb) -> None:
    """Any operation on another one is refused, and dooms the commit."""
    connection = Connection().declared()
    connection.operate(operation("first", verb))
    error = connection.refusal(operation("second", verb, "other"))
    assert (type(error), str(error)) == (
        NotAllowed,
        "Local transactions cannot span multiple top-level entities such as queue or topic.",
    )
    assert isinstance(connection.rollback()[0], TransactionRolledBack)


def across() -> Connection:
    """Return a connection with a session that began with a coordinator, then a link of `q`."""
    connection = Connection()
    connection.machine.sessions.coordinator_attached(ACROSS)
    for entity in ("q", "other"):
        connection.machine.sessions.link_attached(ACROSS, entity)
    return connection.declared()


def test_sends_to_others_go_by_way_of_the_first_entity() -> None:
    """Also when a send to another comes first, as NServiceBus settles behind all its sends."""
    connection = across()
    sent = operation("send", entity="other")
    settled = operation("settle", SETTLE)
    third = operation("third", entity="third")
    for asked in (sent, settled, third):
        assert [type(each) for each in connection.operate(asked, session=ACROSS)] == [Answer]
    (commit,) = connection.discharge()
    assert commit == AskForCommit(b"1", "q", (sent, settled, third))
    assert isinstance(commit, AskForCommit)
    assert commit.sends() == {"other": [sent], "third": [third]}


@pytest.mark.parametrize("verb", [verb for verb in TransactedVerb if verb is not SEND])
def test_only_sends_go_to_others(verb: TransactedVerb) -> None:
    """What else is done on another entity is refused, first or later."""
    connection = across()
    error = connection.refusal(operation("x", verb, "other"), session=ACROSS)
    assert isinstance(error, NotAllowed)


def test_a_session_across_entities_takes_receivers_of_its_first_entity() -> None:
    """Azure refuses others where they attach; sessions without a coordinator take all."""
    machine = across().machine
    assert machine.sessions.refusal_of_receiver(ACROSS, "q") is None
    assert isinstance(machine.sessions.refusal_of_receiver(ACROSS, "other"), NotAllowed)
    for session in (PLAIN, "own", "unheard of"):
        assert machine.sessions.refusal_of_receiver(session, "other") is None
    machine.sessions.ended(ACROSS)
    assert machine.sessions.refusal_of_receiver(ACROSS, "other") is None


def test_a_coordinator_behind_other_links_is_no_wish_for_entities() -> None:
    """Clients say it by the coordinator that comes first."""
    connection = Connection()
    connection.machine.sessions.link_attached(OTHER, "q")
    connection.machine.sessions.coordinator_attached(OTHER)
    connection.declared()
    connection.operate(operation("settle", SETTLE), session=OTHER)
    error = connection.refusal(operation("send", entity="other"), session=OTHER)
    assert isinstance(error, NotAllowed)


def test_sessions_with_and_without_a_coordinator_in_one_transaction() -> None:
    """What the first operation pins holds for those of all sessions."""
    connection = across()
    connection.operate(operation("send", entity="other"), session=ACROSS)
    assert isinstance(connection.operate(operation("settle", SETTLE))[0], Answer)
    error = connection.refusal(operation("plain", entity="other"))
    assert isinstance(error, NotAllowed)


def test_a_coordinator_that_goes_away_rolls_back() -> None:
    """What it has declared, and no other; a commit that was asked for ends by its answer."""
    connection = Connection().declared(b"1").declared(b"2").declared(b"3", "d")
    settled = [operation(str(number), SETTLE) for number in range(3)]
    for number, asked in enumerate(settled):
        connection.operate(asked, b"123"[number : number + 1])
    assert isinstance(connection.discharge(b"1")[0], AskForCommit)

    connection.machine.coordinator_closed("c")

    assert connection.effects() == [Unpin(settled[1])]
    assert isinstance(connection.refusal(operation("late"), b"2"), TransactionUnknown)
    connection.machine.commit_ended(b"1", CommitEnd.ACCEPTED)
    assert connection.effects() == [], "nobody is there to be told"
    assert isinstance(connection.discharge(b"3", coordinator="d")[0], AskForCommit)


def test_a_commit_that_is_refused() -> None:
    """Its client is told that it was rolled back, and why; what was pinned is not touched."""
    connection = Connection().declared()
    connection.operate(operation("settle", SETTLE))
    connection.discharge()
    connection.machine.commit_ended(b"1", CommitEnd.REFUSED, BUSY)
    (refused,) = connection.effects()
    assert isinstance(refused, Refuse)
    assert (refused.asker, refused.txn_id) == ("discharge", None)
    assert isinstance(refused.error, TransactionRolledBack)
    assert str(BUSY) in str(refused.error)


def test_a_commit_in_doubt_ends_the_link() -> None:
    """There is no outcome for it; what else the link had declared is rolled back."""
    connection = Connection().declared(b"1").declared(b"2")
    other = operation("other", SETTLE)
    connection.operate(operation("settle", SETTLE), b"1")
    connection.operate(other, b"2")
    connection.discharge(b"1")
    connection.machine.commit_ended(b"1", CommitEnd.IN_DOUBT, UNKNOWN)
    assert connection.effects() == [EndCoordinator("c", UNKNOWN), Unpin(other)]
    assert len(connection.machine) == 0


def test_a_lock_that_is_lost_meanwhile() -> None:
    """RabbitMQ has taken the message back: there is no commit without it."""
    connection = Connection().declared()
    settled, other = operation("settle", SETTLE), operation("other", SETTLE)
    for asked in (settled, other):
        connection.operate(asked)
    connection.machine.lost(settled, LOST)
    error, before = connection.rollback()
    assert str(LOST) in str(error)
    assert before == [Unpin(other)]
    connection.machine.lost(other, LOST)
    assert connection.effects() == []
