"""Transactions: each operation is carried out once if its commit is, and else never.

The engine is a table of pins and of commits here. Its answers come in any order, late, or say that
nobody knows; clients declare, operate, discharge and go away meanwhile, on several sessions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
from bridge.machine.transactions.held_bytes import HeldBytes
from bridge.machine.transactions.limits import OPERATION_BYTES, TIMEOUT_MS
from bridge.machine.transactions.operations import PINNING, TransactedOperation, TransactedVerb
from bridge.machine.transactions.transactions import Transactions
from bridge.model.entity import Tier
from bridge.model.errors import (
    TransactionUnknown,
)
from bridge.wire.amqp10.performatives import (
    Accepted,
    Declared,
    TransactionalState,
)
from tests.fixtures.examples import examples
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

SELDOM = st.sampled_from((False,) * 9 + (True,))


@dataclass
class Fate:
    """What has become of an operation, by the effects of the machine and the engine's answers."""

    txn_id: bytes
    session: str
    is_refused: bool = False
    is_enlisted: bool = False
    is_pinned: bool = False
    is_lost: bool = False
    asked: int = 0
    carried_out: int = 0
    answers: int = 0


@dataclass
class Told:
    """What the client of a transaction knows, and when its first operation came."""

    coordinator: int
    first_ms: int | None = None
    operations: list[TransactedOperation] = field(default_factory=list)
    is_failed: bool = False
    is_discharged: bool = False
    is_accepted: bool = False
    is_rejected: bool = False
    is_asked: bool = False


class TransactionsMachine(RuleBasedStateMachine):
    """Coordinators, sessions, sends, settlements, discharges, time, ends; late and lost answers."""

    def __init__(self) -> None:
        super().__init__()
        self.others = HeldBytes(9_000)
        self.others.change(3_500)  # of another connection
        self.machine = Transactions(
            3_000, messages_max=6, open_max=6, held_bytes_max=6_000, of_all=self.others
        )
        self.now_ms = 1_000
        self.fates: dict[TransactedOperation, Fate] = {}
        self.told: dict[bytes, Told] = {}
        self.discharges: dict[str, bytes] = {}
        self.answered: set[str] = set()
        self.checks: list[TransactedOperation] = []
        self.commits: list[AskForCommit] = []
        self.coordinators: list[int] = []
        self.made = 0

    @initialize()
    def begin(self) -> None:
        """A session across entities whose first is `a`, two others, and two coordinators."""
        self.machine.sessions.coordinator_attached(ACROSS)
        self.machine.sessions.link_attached(ACROSS, "a")
        self.machine.sessions.link_attached(PLAIN, "b")
        self.machine.sessions.link_attached(OTHER, "a")
        for _ in range(2):
            self.attach()

    def live(self) -> list[bytes]:
        """Return the transactions that may be discharged."""
        return [
            txn_id
            for txn_id, told in self.told.items()
            if told.coordinator in self.coordinators and not told.is_discharged
        ]

    def transaction(self, data: st.DataObject) -> bytes:
        """Return a transaction that a client names; now and then one that has ended."""
        live = self.live()
        is_stray = not live or data.draw(SELDOM)
        return data.draw(st.sampled_from(list(self.told)[-4:] if is_stray else live))

    def number(self) -> int:
        """Return a number that is used once."""
        self.made += 1
        return self.made

    @precondition(lambda self: len(self.coordinators) < 2)
    @rule()
    def attach(self) -> None:
        """A coordinator's link takes the place of one that has ended."""
        self.machine.sessions.coordinator_attached(f"its own {self.made}")
        self.coordinators.append(self.number())

    @precondition(lambda self: self.coordinators and len(self.live()) < 3)
    @rule(data=st.data())
    def declare(self, data: st.DataObject) -> None:
        """A client asks for a transaction."""
        coordinator = data.draw(st.sampled_from(self.coordinators))
        txn_id = self.number().to_bytes(16, "big")
        self.told[txn_id] = Told(coordinator)
        self.machine.declare(coordinator, txn_id, txn_id, Tier.STANDARD)
        self.carry_out()

    @precondition(lambda self: self.told)
    @rule(
        data=st.data(),
        session=st.sampled_from((ACROSS, ACROSS, ACROSS, OTHER, OTHER, OTHER, OTHER, PLAIN)),
        verb=st.sampled_from((SEND, SEND, SETTLE, SETTLE, *TransactedVerb)),
        is_elsewhere=SELDOM,
        messages=st.sampled_from((1, 1, 1, 2, 4)),
        size_bytes=st.sampled_from((1, 1, 1, 100, 1_000)),
        end=st.sampled_from(("yes", "yes", "yes", "yes", "yes", "no", "later", "later")),
    )
    def operate(
        self,
        data: st.DataObject,
        session: str,
        verb: TransactedVerb,
        is_elsewhere: bool,
        messages: int,
        size_bytes: int,
        end: str,
    ) -> None:
        """A client operates; the engine may check it at once."""
        txn_id = self.transaction(data)
        entity = "b" if (session == PLAIN) is not is_elsewhere else "a"
        name = f"operation {self.number()}"
        asked = operation(name, verb, entity, messages=messages, size_bytes=size_bytes)
        told = self.told[txn_id]
        self.fates[asked] = Fate(txn_id, session)
        if told.coordinator in self.coordinators and not told.is_discharged:
            told.operations.append(asked)
            if told.first_ms is None:
                told.first_ms = self.now_ms
        self.machine.operate(session, txn_id, asked, self.now_ms)
        self.carry_out()
        if end != "later" and asked in self.checks:
            self.end_check(asked, end)

    @precondition(lambda self: self.told and self.coordinators)
    @rule(
        data=st.data(),
        is_failed=st.sampled_from((False, False, False, True)),
        waited_ms=st.sampled_from((0, 0, 0, TIMEOUT_MS)),
    )
    def discharge(self, data: st.DataObject, is_failed: bool, waited_ms: int) -> None:
        """A client discharges a transaction, perhaps late, of another link or once more."""
        self.now_ms += waited_ms
        txn_id = self.transaction(data)
        told = self.told[txn_id]
        name = f"discharge {self.number()}"
        coordinator = told.coordinator
        if coordinator not in self.coordinators or data.draw(SELDOM):
            coordinator = data.draw(st.sampled_from(self.coordinators))
        if coordinator == told.coordinator and not told.is_discharged:
            told.is_discharged, told.is_failed = True, is_failed
        self.discharges[name] = txn_id
        self.machine.discharge(coordinator, name, txn_id, is_failed=is_failed, now_ms=self.now_ms)
        self.carry_out()

    @precondition(lambda self: self.checks)
    @rule(data=st.data(), end=st.sampled_from(("yes", "yes", "yes", "larger", "more", "no")))
    def check(self, data: st.DataObject, end: str) -> None:
        """The engine has checked an operation."""
        self.end_check(data.draw(st.sampled_from(self.checks)), end)

    def end_check(self, asked: TransactedOperation, end: str) -> None:
        """Tell the machine what came of a check."""
        self.checks.remove(asked)
        fate = self.fates[asked]
        if end == "no":
            self.machine.refused(asked, LOST)
        else:
            fate.is_enlisted = True
            fate.is_pinned = asked.verb in PINNING
            larger = asked.size_bytes + 500 if end == "larger" else None
            more = asked.message_count + 2 if end == "more" and asked.message_count else None
            self.machine.enlisted(asked, size_bytes=larger, message_count=more)
        self.carry_out()

    @precondition(lambda self: self.commits)
    @rule(
        data=st.data(),
        end=st.sampled_from((CommitEnd.ACCEPTED, *CommitEnd)),
        is_stored=st.booleans(),
    )
    def commit(self, data: st.DataObject, end: CommitEnd, is_stored: bool) -> None:
        """The engine answers a commit; one in doubt is stored, or not."""
        asked = data.draw(st.sampled_from(self.commits))
        self.commits.remove(asked)
        if end is CommitEnd.ACCEPTED or (end is CommitEnd.IN_DOUBT and is_stored):
            for each in asked.operations:
                self.fates[each].carried_out += 1
        error = None if end is CommitEnd.ACCEPTED else UNKNOWN
        self.machine.commit_ended(asked.txn_id, end, error)
        told = self.told[asked.txn_id]
        effects = self.carry_out()
        answers = [type(each) for each in effects if isinstance(each, Answer | Refuse)]
        if told.coordinator not in self.coordinators and end is not CommitEnd.IN_DOUBT:
            assert answers == []
        elif end is not CommitEnd.IN_DOUBT:
            assert answers == [Answer if end is CommitEnd.ACCEPTED else Refuse]

    def pinned(self) -> list[Fate]:
        """Return the fates of the operations for which something is pinned."""
        return [fate for fate in self.fates.values() if fate.is_pinned]

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """RabbitMQ takes a message back whose lock is pinned."""
        pinned = [each for each, fate in self.fates.items() if fate.is_pinned]
        if pinned:
            asked = data.draw(st.sampled_from(pinned))
            self.fates[asked].is_pinned = False
            self.fates[asked].is_lost = True
            self.machine.lost(asked, LOST)
            self.carry_out()

    @rule(passed_ms=st.sampled_from((1, 1_000, 40_000, TIMEOUT_MS)), is_noticed=st.booleans())
    def wait(self, passed_ms: int, is_noticed: bool) -> None:
        """Time passes; the timer may be late."""
        self.now_ms += passed_ms
        if is_noticed:
            self.machine.expire(self.now_ms)
            self.carry_out()
            due_ms = self.machine.due_ms()
            assert due_ms is None or due_ms > self.now_ms
            for fate in self.pinned():
                first_ms = self.told[fate.txn_id].first_ms
                assert first_ms is not None
                assert self.now_ms < first_ms + TIMEOUT_MS

    @precondition(lambda self: self.coordinators)
    @rule(data=st.data())
    def end_coordinator(self, data: st.DataObject) -> None:
        """A coordinator's link ends, by itself or with its session."""
        coordinator = data.draw(st.sampled_from(self.coordinators))
        self.coordinators.remove(coordinator)
        self.machine.coordinator_closed(coordinator)
        self.carry_out()

    def carry_out(self) -> list[TransactionEffect]:
        """Carry out what is due, as the gateway and the engine do; check each effect."""
        due, self.machine.due = self.machine.due, []
        for effect in due:
            match effect:
                case Enlist(asked):
                    self.checks.append(asked)
                case Unpin(asked):
                    fate = self.fates[asked]
                    assert fate.is_pinned, "let go once, and never what is committed"
                    fate.is_pinned = False
                case AskForCommit():
                    self.check_commit(effect)
                    self.commits.append(effect)
                case Answer(asker, state) | Refuse(asker, state):
                    self.answer(asker, effect, state)
                case EndCoordinator(coordinator):
                    assert isinstance(coordinator, int)
                    self.coordinators.remove(coordinator)
        return due

    def check_commit(self, commit: AskForCommit) -> None:
        """Check that a commit is one that its client asked for, whole and in time."""
        told = self.told[commit.txn_id]
        assert not told.is_asked
        told.is_asked = True
        assert told.is_discharged
        assert not told.is_failed
        assert told.coordinator in self.coordinators
        assert told.first_ms is not None
        assert self.now_ms < told.first_ms + TIMEOUT_MS
        fates = [self.fates[each] for each in told.operations]
        assert not any(fate.is_refused or fate.is_lost for fate in fates), "it is doomed"
        assert all(fate.is_enlisted and fate.answers == 1 for fate in fates)
        asked = [each for each in told.operations if each.verb is not RENEW]
        assert list(commit.operations) == asked
        assert sum(each.message_count for each in asked) <= 6
        assert sum(each.size_bytes + OPERATION_BYTES for each in asked) <= 3_000
        for each in asked:
            fate = self.fates[each]
            assert each.entity == commit.entity or (
                each.verb is SEND and fate.session == ACROSS and commit.entity == "a"
            )
            assert fate.is_pinned == (each.verb in PINNING)
            fate.is_pinned = False
            fate.asked += 1

    def answer(self, asker: Any, effect: Answer | Refuse, state: Any) -> None:
        """Note an answer: each is told once."""
        assert asker not in self.answered
        self.answered.add(asker)
        if isinstance(asker, bytes):
            assert isinstance(effect, Refuse) or state == Declared(asker)
            if isinstance(effect, Refuse):
                del self.told[asker]
            return
        if asker in self.discharges:
            told = self.told[self.discharges[asker]]
            assert isinstance(effect, Refuse) or state == Accepted()
            if isinstance(effect, Answer):
                assert not told.is_accepted
                told.is_accepted = True
            elif not isinstance(effect.error, TransactionUnknown):
                assert not told.is_rejected
                told.is_rejected = True
            return
        asked = next(each for each in self.fates if each.asker == asker)
        fate = self.fates[asked]
        fate.answers += 1
        if isinstance(effect, Refuse):
            fate.is_refused = True
            assert state == fate.txn_id
        else:
            assert state == TransactionalState(fate.txn_id, asked.outcome)

    @invariant()
    def each_operation_is_accounted_for(self) -> None:
        """It is carried out with all others of its transaction, or with none."""
        under_way = {each.txn_id for each in self.commits}
        for asked, fate in self.fates.items():
            told = self.told.get(fate.txn_id)
            assert fate.carried_out <= fate.asked <= 1
            if told is None or asked not in told.operations or asked.verb is RENEW:
                assert not fate.asked
                continue
            if fate.is_refused or told.is_failed or told.is_rejected:
                assert not fate.carried_out
            if told.is_accepted and not told.is_failed:
                assert fate.carried_out == 1
            if fate.txn_id in under_way:
                assert not fate.carried_out
                assert not told.is_accepted
                assert not told.is_rejected
        kinds: dict[bytes, set[int]] = {}
        for asked, fate in self.fates.items():
            if asked.verb is not RENEW and fate.asked:
                kinds.setdefault(fate.txn_id, set()).add(fate.carried_out)
        assert all(len(each) == 1 for each in kinds.values()), "halves"

    @invariant()
    def all_connections_hold_what_each_does(self) -> None:
        """And no more than they may."""
        assert self.others.held == 3_500 + self.machine.held_bytes <= 9_000

    @invariant()
    def what_has_ended_is_forgotten(self) -> None:
        """The rest can be discharged by a link that is there, or is being committed."""
        rest = [
            told
            for told in self.told.values()
            if told.coordinator in self.coordinators
            and not (told.is_accepted or told.is_rejected or told.is_asked)
        ]
        assert len(self.machine) == len(rest) + len(self.commits)

    @invariant()
    def nothing_is_pinned_for_nobody(self) -> None:
        """What is pinned may be committed yet: its coordinator is there, and did not roll back."""
        for fate in self.pinned():
            told = self.told[fate.txn_id]
            assert told.coordinator in self.coordinators
            assert not told.is_rejected
            assert not told.is_failed

    def teardown(self) -> None:
        """The connection ends; when all answers have come, nothing is left of anything."""
        self.machine.close()
        self.coordinators.clear()
        self.carry_out()
        for asked in self.checks:
            self.fates[asked].is_pinned = asked.verb in PINNING
            self.machine.enlisted(asked)
        self.carry_out()
        for commit in self.commits:
            self.machine.commit_ended(commit.txn_id, CommitEnd.REFUSED, BUSY)
        assert self.carry_out() == []
        assert (len(self.machine), self.machine.held_bytes) == (0, 0)
        assert not any(fate.is_pinned for fate in self.fates.values())
        assert all(fate.answers == 1 for fate in self.fates.values())


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(
    max_examples=examples(200), stateful_step_count=50, deadline=None
)
