"""The verbs of transactions: a commit is one envelope, asked about until its leader has decided.

    begun ──locks lost, refused──► rolled back
      │ published
      ├── refused by the leader ──► rolled back
      ├── decided ──► outcomes carried out, reported
      └── no answer ──► asked again with the same envelope, for as long as the entity is there

Nothing is published before all locks are known to be this bridge's, or another's that answers.
From the publish on, they are not anybody else's until the verdict is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from bridge.background.supervisor import Standing, Supervisor
from bridge.background.tasks import Tasks
from bridge.background.waits import Wait
from bridge.broker.errors import BrokerError
from bridge.broker.failpoint import reach
from bridge.engine import texts
from bridge.engine.administration.directory import Directory
from bridge.engine.api import DeadLetter, Disposition
from bridge.engine.sending.requests import Sending, new_identity
from bridge.engine.settlement.disposition_fields import outcome_of
from bridge.engine.settlement.locktable import Locked
from bridge.engine.transaction_verbs import (
    PinnedLock,
    PinnedSession,
    PreparedSchedule,
    PreparedSend,
    TransactionWork,
)
from bridge.engine.transactions import commit_content
from bridge.engine.transactions.pins import LockPin
from bridge.engine.transactions.pins_anywhere import PinsAnywhere
from bridge.engine.transactions.reports import CarriedOutReports
from bridge.engine.transactions.state_pins import StatePin, StatePins
from bridge.engine.transactions.taken_commit import TakenCommit
from bridge.engine.transactions.writes import Writes
from bridge.machine.queue.locks import Lock
from bridge.machine.transactions.refusals import rolled_back, several_entities
from bridge.message.envelopes import Outgoing
from bridge.model import entity as model
from bridge.model.errors import (
    EntityNotFound,
    InternalError,
    MessageSizeExceeded,
    NotAllowed,
    OperationTimeout,
    ServerBusy,
    ServiceBusError,
    TransactionInDoubt,
    TransactionRolledBack,
)
from bridge.model.name import EntityPath, SubQueue
from bridge.topology import names
from bridge.topology.definitions import incarnation_of
from bridge.wire import commits, reservations
from bridge.wire.commits import CommitVerdict, OutcomeKind

IN_DOUBT_S: Final = 20.0
"""So long a client waits for the answer to a commit."""

WRITTEN_S: Final = 5.0
"""So long a decided commit's answer waits for its settlements, which go on."""

MADE_ANEW = "'{entity}' was made anew since the messages were scheduled."

UNANSWERED = "a commit of a transaction is not answered, and keeps its messages locked: {reason}"

IN_DOUBT = "Nobody knows yet whether the transaction is committed: {reason}."

log = logging.getLogger(__name__)


class Transacting:
    """See `TransactionVerbs`.

    Args:
        first_use: returns when all bridges know that an entity has transactions; called with the
            path of a queue, a topic or a subscription.
        check_known: raises ServerBusy while a bridge of the namespace does not know a feature.
    """

    def __init__(
        self,
        directory: Directory,
        sending: Sending,
        pins: PinsAnywhere,
        reports: CarriedOutReports,
        supervisor: Supervisor,
        first_use: Callable[[str], Awaitable[None]],
        check_known: Callable[[str], None],
        states: StatePins,
    ) -> None:
        self._directory = directory
        self._sending = sending
        self._pins = pins
        self._states = states
        self._reports = reports
        self._supervisor = supervisor
        self._first_use = first_use
        self._check_known = check_known
        self._committing: dict[TakenCommit, Standing] = {}
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"Transacting({len(self._committing)} are committed)"

    @property
    def tier(self) -> model.Tier:
        """The namespace's tier."""
        return self._sending.tier

    @property
    def bytes_max(self) -> int:
        """RabbitMQ's largest message."""
        return self._sending.message_bytes_max

    @property
    def in_doubt(self) -> int:
        """How many commits are published whose verdict is not known."""
        return len(self._committing)

    def check(self) -> None:
        """Raise what keeps a transaction from being declared now."""
        self._check_known(commits.FEATURE)

    def prepare(
        self, pinned: EntityPath, target: EntityPath, batch: Sequence[Outgoing]
    ) -> PreparedSend:
        """Check messages; see `TransactionVerbs.prepare`."""
        entity = self._directory.send_entity(target)
        items = self._sending.checked(entity, batch)
        return commit_content.prepared(pinned, target, entity, batch, items)

    def pin_here(self, path: EntityPath, lock_token: UUID) -> PinnedLock | None:
        """Keep a lock of this bridge; see `TransactionVerbs.pin_here`."""
        return self._pins.pin_here(path, lock_token)

    async def reserve(self, pinned: EntityPath, batch: Sequence[Outgoing]) -> PreparedSchedule:
        """Check messages, and reserve their numbers; see `TransactionVerbs.reserve`."""
        entity = self._directory.send_entity(pinned)
        items = [item for each in batch for item in self._sending.checked(entity, (each,))]
        numbers: Sequence[int] = ()
        if items:
            await self._first_use(entity.path)
            body = reservations.encode_keys(new_identity(), [each.key for each in items])
            numbers = (await self._sending.ask_leader(entity, body)).numbers
        return commit_content.scheduled(pinned, items, numbers, incarnation_of(entity))

    async def pin(self, path: EntityPath, lock_token: UUID) -> PinnedLock:
        """Keep a lock; see `TransactionVerbs.pin`."""
        return await self._pins.pin(path, lock_token)

    def release(self, pins: Iterable[PinnedLock]) -> None:
        """Let locks go on; see `TransactionVerbs.release`."""
        for each in pins:
            self._pins.release(_pin(each))

    async def set_state(
        self, transaction: bytes, path: EntityPath, session_id: str, state: bytes | None
    ) -> PinnedSession:
        """Keep a session; see `TransactionVerbs.set_state`."""
        return await self._states.pin(transaction, path, session_id, state)

    def state_in(
        self, transaction: bytes, path: EntityPath, session_id: str
    ) -> PinnedSession | None:
        """Return what a session is to get; see `TransactionVerbs.state_in`."""
        return self._states.find(transaction, path, session_id)

    def release_sessions(self, pins: Iterable[PinnedSession]) -> None:
        """Let sessions go; see `TransactionVerbs.release_sessions`."""
        for each in pins:
            if isinstance(each, StatePin):
                self._states.release(each)

    def size_bytes(self, work: TransactionWork) -> int:
        """Return the size of a commit; see `TransactionVerbs.size_bytes`."""
        return commit_content.size_bytes(work)

    async def commit(self, work: TransactionWork) -> None:
        """Carry out all, or nothing; see `TransactionVerbs.commit`."""
        loop = asyncio.get_running_loop()
        in_doubt_s = loop.time() + IN_DOUBT_S
        pins = [_pin(each) for each, _ in work.settlements]
        if commit_content.is_empty(work):
            return
        try:
            async with asyncio.timeout(IN_DOUBT_S):
                one = await self._ready(work, pins)
        except TimeoutError as error:
            self._let_go(work)
            raise rolled_back(OperationTimeout("not all bridges have answered in time")) from error
        except ServiceBusError as error:
            self._let_go(work)
            raise rolled_back(error) from error
        except Exception as error:  # nothing is published yet, so nobody is in doubt
            self._let_go(work)
            if not isinstance(error, BrokerError | OSError):
                log.exception("commit.failed entity=%s", work.pinned.entity)
            raise rolled_back(InternalError(str(error))) from error
        except BaseException:
            self._let_go(work)
            raise
        standing = self._supervisor.repeat(
            "commit", partial(self._settle, one), subject=work.pinned.entity
        )
        self._committing[one] = standing
        standing.task.add_done_callback(partial(self._ended, one))
        await asyncio.wait({one.told}, timeout=max(in_doubt_s - loop.time(), 0.0))
        if not one.told.done():
            raise TransactionInDoubt(IN_DOUBT.format(reason=one.reason))
        if (refused := one.told.result()) is not None:
            raise refused

    def _let_go(self, work: TransactionWork) -> None:
        self.release(pin for pin, _ in work.settlements)
        self.release_sessions(work.states)

    async def close(self) -> None:
        """Ask about no commit any more; whoever waits is in doubt."""
        standing = [each.task for each in self._committing.values()]
        for each in standing:
            each.cancel()
        await asyncio.gather(*standing, return_exceptions=True)
        self._tasks.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._states.close()
        self._reports.close()

    async def _ready(self, work: TransactionWork, pins: Sequence[LockPin]) -> TakenCommit:
        """Check all that may refuse a commit here, and take its locks.

        Raises:
            ServiceBusError: it is refused; no lock is taken.
        """
        entity = self._directory.send_entity(work.pinned)
        states = commit_content.last_states(work)
        settled = dict.fromkeys(each.path.entity for each in pins)
        settled |= dict.fromkeys(each.path.entity for each in states)
        for path in settled:
            if names.front_path(path).lower() != entity.path.lower():
                raise several_entities()
        for pin, disposition in work.settlements:
            if isinstance(disposition, DeadLetter) and pin.path.sub_queue is not SubQueue.NONE:
                raise NotAllowed(texts.DEAD_LETTER_AGAIN.format(entity=pin.path))
        if any(each.incarnation != incarnation_of(entity) for each in work.schedules):
            raise NotAllowed(MADE_ANEW.format(entity=entity.path))
        if entity.held:
            self._sending.check_open(entity)
        body = commit_content.encode(work, entity)
        if len(body) > self.bytes_max:
            raise MessageSizeExceeded(texts.too_large(entity.path, len(body), self.bytes_max))
        for path in (entity.path, *settled):
            await self._first_use(path)
        for pin in pins:
            await self._pins.prove(pin)
        for each in states:
            await self._states.keep(each)
        taken: list[tuple[LockPin, Lock[Locked] | None, Disposition]] = []
        try:
            for pin, (_, disposition) in zip(pins, work.settlements, strict=True):
                taken.append((pin, self._pins.take(pin), disposition))
        except ServiceBusError:
            for pin, lock, _ in taken:
                if lock is not None:
                    self._pins.put_back(pin, lock)
            raise
        return TakenCommit(work, entity, body, taken)

    async def _settle(self, one: TakenCommit) -> None:
        """Ask until the leader has decided, and do what it says."""
        verdict = await self._verdict(one)
        if verdict is None:
            self._put_back(one)
            return
        kind, reason = verdict
        if kind is CommitVerdict.REFUSED:
            one.tell(TransactionRolledBack(f"The transaction was rolled back: {reason}"))
            self._put_back(one)
            return
        reach("engine.commit.decided")
        taken, one.taken = one.taken, []
        states = commit_content.last_states(one.work)
        own = Writes(sum(lock is not None for _, lock, _ in taken) + len(states))
        for pin, lock, disposition in taken:
            if lock is None:
                self._tasks.start(self._carry_out(one, pin, disposition), "outcome")
            else:
                self._settle_own(one, pin, lock, disposition, own)
        for state in states:
            writing = self._tasks.start(self._states.carry_out(state), "state")
            writing.add_done_callback(lambda task: own.count())
        await own.wait(WRITTEN_S)
        one.tell(None)

    async def _verdict(self, one: TakenCommit) -> tuple[CommitVerdict, str] | None:
        """Return verdict and reason; `None`: the envelope is not stored, or its entity is gone."""
        with contextlib.ExitStack() as unanswered:
            return await self._asked_for(one, unanswered)

    async def _asked_for(
        self, one: TakenCommit, unanswered: contextlib.ExitStack
    ) -> tuple[CommitVerdict, str] | None:
        """Ask until there is an answer; health names what has none."""
        wait: Wait | None = None
        while True:
            try:
                reach("engine.commit.begun")
                one.may_be_stored, was_stored = True, one.may_be_stored
                try:
                    done = await self._sending.ask_leader(one.entity, one.body)
                except (ServerBusy, EntityNotFound, MessageSizeExceeded):
                    one.may_be_stored = was_stored
                    raise
                return commits.decode_verdict(done.content)
            except ServiceBusError as error:
                one.reason = str(error)
                if not one.may_be_stored:
                    one.tell(rolled_back(error))
                    return None
                if self._is_gone(one.entity):
                    one.tell(TransactionInDoubt(IN_DOUBT.format(reason="its entity is gone")))
                    return None
                log.info("commit.unanswered entity=%s error=%s", one.entity.path, error)
            reason = UNANSWERED.format(reason=one.reason.rstrip("."))
            if wait is None:
                waits = self._supervisor.waits
                wait = unanswered.enter_context(waits.begin(one.entity.path, reason))
            wait.reason = reason
            await asyncio.sleep(one.pause_s())

    def _is_gone(self, entity: model.SendEntity) -> bool:
        there = self._directory.find(entity.path)
        return there is None or incarnation_of(there) != incarnation_of(entity)

    def _settle_own(
        self,
        one: TakenCommit,
        pin: LockPin,
        lock: Lock[Locked],
        disposition: Disposition,
        own: Writes,
    ) -> None:
        """Carry out the outcome of a lock of this bridge; what fails is left to the next one."""

        def done(error: ServiceBusError | None) -> None:
            if error is None:
                self._note(one, pin, disposition)
            own.count()

        try:
            self._pins.settle(lock, disposition, done)
        except Exception:  # the others are still to be settled
            log.exception("outcome.failed entity=%s", pin.path)
            own.count()

    async def _carry_out(self, one: TakenCommit, pin: LockPin, disposition: Disposition) -> None:
        """Have another bridge carry out an outcome; what fails is left to the next one."""
        try:
            is_done = await self._pins.carry_out(pin, disposition)
        except ServiceBusError as error:
            log.info("outcome.unanswered entity=%s error=%s", pin.path, error)
            return
        if is_done:
            self._note(one, pin, disposition)

    def _note(self, one: TakenCommit, pin: LockPin, disposition: Disposition) -> None:
        """Have an outcome reported that is carried out; leaders keep no plain abandons."""
        kind, details = outcome_of(disposition)
        if kind is not OutcomeKind.ABANDON or details:
            self._reports.note(one.entity.path, pin.message)

    def _put_back(self, one: TakenCommit) -> None:
        taken, one.taken = one.taken, []
        for pin, lock, _ in taken:
            self._pins.put_back(pin, lock)
        self.release_sessions(one.work.states)

    def _ended(self, one: TakenCommit, task: asyncio.Task[None]) -> None:
        """Take the end of a commit: of one whose verdict is unknown the process ends, too."""
        self._committing.pop(one, None)
        one.tell(TransactionInDoubt(IN_DOUBT.format(reason="the bridge stops")))


def _pin(pinned: PinnedLock) -> LockPin:
    if not isinstance(pinned, LockPin):
        raise InternalError("The lock was not pinned by the engine.")
    return pinned
