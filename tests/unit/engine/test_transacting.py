"""Commits that end before their envelope is published, and those that nobody answers."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from bridge.background.supervisor import Supervisor
from bridge.broker.errors import ManagementRefused
from bridge.engine.api import Complete, DeadLetter, Disposition
from bridge.engine.transaction_verbs import TransactionWork
from bridge.engine.transactions.pins import LockPin
from bridge.engine.transactions.state_pins import StatePins
from bridge.engine.transactions.transacting import Transacting
from bridge.model.entity import Queue, Tier
from bridge.model.errors import OperationTimeout, TransactionInDoubt, TransactionRolledBack
from bridge.model.name import EntityPath, SubQueue
from bridge.wire.commits import NO_INQUIRY, CommitVerdict, LockedMessage, encode_verdict
from bridge.wire.reply import Done
from tests.fixtures.model_broker import ClockLoop

QUEUE = Queue(name="orders", incarnation="orders")
PATH = EntityPath("orders")
STATES = StatePins(lambda path: QUEUE, cast(Any, None), cast(Any, None))


class Locks:
    """The locks of transactions.

    Attributes:
        released: those that were let go.
    """

    def __init__(self) -> None:
        self.released: list[LockPin] = []

    def release(self, pin: LockPin) -> None:
        """Let a lock go."""
        self.released.append(pin)


def transacting(locks: Locks, error: Exception | None) -> Transacting:
    """Return verbs that publish nothing: an entity's first transaction ends with an error."""

    async def first_use(path: str) -> None:
        assert error is not None, "the commit was to be refused before"
        raise error

    directory: Any = SimpleNamespace(send_entity=lambda path: QUEUE)
    sending: Any = SimpleNamespace(tier=Tier.STANDARD, message_bytes_max=1 << 24)
    pins: Any = locks
    reports: Any = None
    return Transacting(
        directory, sending, pins, reports, Supervisor(), first_use, lambda feature: None, STATES
    )


def work(disposition: Disposition, path: EntityPath = PATH) -> TransactionWork:
    """Return a transaction that settles a message."""
    pin = LockPin(path, UUID(int=1), LockedMessage(b"source\x00", 1, 1), NO_INQUIRY)
    return TransactionWork(identity=bytes(16), pinned=PATH, settlements=[(pin, disposition)])


@pytest.mark.parametrize("error", [ManagementRefused(503, "no"), OSError("no"), ValueError("no")])
async def test_whatever_fails_before_the_envelope_rolls_the_transaction_back(
    error: Exception,
) -> None:
    """Nobody is in doubt: nothing was published, and the lock goes on."""
    locks = Locks()
    one = work(Complete())
    with pytest.raises(TransactionRolledBack, match="no"):
        await transacting(locks, error).commit(one)
    assert locks.released == [pin for pin, _ in one.settlements]


@pytest.mark.parametrize("sub_queue", [SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER])
async def test_no_dead_letter_is_dead_lettered_again_in_a_transaction(sub_queue: SubQueue) -> None:
    """As without one."""
    locks = Locks()
    one = work(DeadLetter(reason="R"), EntityPath("orders", sub_queue))
    with pytest.raises(TransactionRolledBack, match="cannot be dead-lettered again"):
        await transacting(locks, None).commit(one)
    assert locks.released == [pin for pin, _ in one.settlements]


class SilentLeader:
    """A leader that gives no answer to so many questions, each of which waits for 30 s.

    Attributes:
        asked_s: when it was asked.
    """

    tier = Tier.STANDARD
    message_bytes_max = 1 << 24

    def __init__(self, silent: int) -> None:
        self.asked_s: list[float] = []
        self._silent = silent

    async def ask_leader(self, entity: Queue, body: bytes) -> Done:
        """Answer, or not."""
        self.asked_s.append(asyncio.get_running_loop().time())
        if len(self.asked_s) <= self._silent:
            await asyncio.sleep(30)
            raise OperationTimeout("no answer has come")
        return Done(content=encode_verdict(CommitVerdict.COMMITTED))


def test_a_commit_without_an_answer_is_asked_about_ever_more_rarely_and_named_in_health() -> None:
    """Each question is the whole envelope, and stays in the inbox of an entity without a leader."""
    leader, supervisor = SilentLeader(silent=9), Supervisor()

    async def first_use(path: str) -> None:
        """All bridges know."""

    async def commit() -> list[str]:
        directory: Any = SimpleNamespace(send_entity=lambda path: QUEUE, find=lambda path: QUEUE)
        sending: Any = leader
        none: Any = None
        verbs = Transacting(
            directory, sending, none, none, supervisor, first_use, lambda feature: None, STATES
        )
        one = TransactionWork(identity=bytes(16), pinned=PATH, cancels=[1])
        with pytest.raises(TransactionInDoubt):
            await verbs.commit(one)
        await asyncio.sleep(60)
        assert verbs.in_doubt == 1
        named = [f"{each.subject} {each.reason}" for each in supervisor.waits._open]
        await asyncio.sleep(1_000)
        assert verbs.in_doubt == 0
        assert not supervisor.waits._open
        return named

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        (named,) = runner.run(commit())
    assert named == (
        "orders a commit of a transaction is not answered, and keeps its messages locked: "
        "no answer has come"
    )
    asked_s = leader.asked_s
    pauses = [later - sooner - 30 for sooner, later in itertools.pairwise(asked_s)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
