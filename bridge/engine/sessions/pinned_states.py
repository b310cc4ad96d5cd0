"""The states that transactions are about to give sessions of one shard, at the shard's owner.

    pinned ──commit──► kept ──decided──► set, reported to the leader, let go
      │                 │ └─refused────► let go
      └─rolled back, or its time is over──► let go
                        └─nobody says what was decided: its leader is asked

A pinned session is nobody else's until it is let go, and its state changes for no other reason. The
next owner of the shard asks the leader which states its sessions are to get, before it gives any;
by that a commit of an earlier owner that comes later is refused (`machine.inbox.decided`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from bridge.engine import texts
from bridge.engine.services import Services
from bridge.engine.sessions.messages import SessionMessages
from bridge.engine.sessions.stored_states import StoredStates
from bridge.machine.sessions.session import Holder
from bridge.message.locked_source import source_of_states
from bridge.model.errors import ServerBusy, SessionLockLost
from bridge.model.session_id import FoldedId, fold
from bridge.wire.commits import NO_INQUIRY, StateOutcome

PIN_S: Final = 150.0
"""So long a session is pinned at most: two minutes of its transaction, and 20 s for the answer."""

FREE_S: Final = 10.0
"""So long who changes a state waits for the transaction that is about to change it."""

IN_TRANSACTION: Final = "a transaction that is not ended yet sets the session's state"

log = logging.getLogger(__name__)


class PinnedState:
    """A session that a transaction keeps.

    Attributes:
        transaction: the transaction's id.
        outcome: what the session gets, without the state.
        is_kept: the transaction may be committed: only who knows what was decided lets it go.
        ready: done when the session is pinned, and has a state that is to be followed.
        ended: set when the session is let go.
        bridge: the name of the bridge that has the transaction; `None`: this one, or unknown.
    """

    def __init__(self, transaction: bytes, bridge: bytes | None) -> None:
        self.transaction = transaction
        self.bridge = bridge
        self.holder: Holder | None = None
        self.outcome: StateOutcome | None = None
        self.is_kept = False
        self.ready: asyncio.Future[StateOutcome] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None


class PinnedStates:
    """The pinned sessions of one shard.

    Attributes:
        inquiry: the name of the owner's last inquiry, after which it has its sessions.
    """

    def __init__(self, messages: SessionMessages, stored: StoredStates, services: Services) -> None:
        self.inquiry = NO_INQUIRY
        self._messages = messages
        self._stored = stored
        self._inquirer = services.inquirer
        self._supervisor = services.supervisor
        self._watch = services.watch
        self._locks = services.locks
        self._pins: dict[FoldedId, PinnedState] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"PinnedStates({len(self._pins)})"

    def __len__(self) -> int:
        """Return the number of pinned sessions."""
        return len(self._pins)

    async def pin(
        self, session_id: str, transaction: bytes, bridge: bytes | None = None
    ) -> StateOutcome:
        """Keep a session for a transaction; return what it is to get, without the state.

        Args:
            bridge: the name of the bridge that has the transaction, if that is known.

        Raises:
            SessionLockLost: no receiver holds the session, or this process is no more the owner.
            ServerBusy, OperationTimeout, BrokerError: another transaction has the session, or
                RabbitMQ does not answer.
        """
        folded = fold(session_id)
        await self.free(session_id, transaction)
        pin = self._pins.get(folded)
        if pin is None:
            if bridge is not None and self._locks.is_named(bridge):
                bridge = None
            pin = self._pins[folded] = PinnedState(transaction, bridge)
            await self._begin(session_id, pin)
        return await asyncio.shield(pin.ready)

    async def _begin(self, session_id: str, pin: PinnedState) -> None:
        messages = self._messages
        try:
            pin.holder = messages.kept.pin(session_id, pin)
            over = partial(self._over, session_id, pin)
            pin.timer = asyncio.get_running_loop().call_later(PIN_S, over)
            if pin.bridge is not None:
                self._watch.begin(pin.bridge, pin, over)
            below_ms = await self._stored.prepare(session_id)
            self._check(session_id, pin)
        except Exception as error:
            if not pin.ready.done():
                pin.ready.set_exception(error)
            self._end(session_id, pin)
            return
        except BaseException:
            self._end(session_id, pin)
            raise
        source = source_of_states(messages.queue)
        pin.outcome = StateOutcome(source, messages.shard, self.inquiry, below_ms, session_id, None)
        pin.ready.set_result(pin.outcome)

    async def keep(self, session_id: str, transaction: bytes) -> None:
        """Return when a pinned session is known to be nobody else's, and its receiver's still.

        Until then all bridges know that the entity has transactions; so whoever owns the shard
        later asks for what was decided.

        Raises:
            SessionLockLost: it was lost.
        """
        pin = self._find(session_id, transaction)
        await self._stored.prove()
        self._check(session_id, pin)
        self._messages.kept.check(session_id, pin, pin.holder)
        pin.is_kept = True

    def release(self, session_id: str, transaction: bytes) -> None:
        """Let a session go: its transaction is rolled back."""
        pin = self._pins.get(fold(session_id))
        if pin is not None and pin.transaction == transaction:
            self._end(session_id, pin)

    async def carry_out(self, session_id: str, transaction: bytes, state: bytes | None) -> None:
        """Set the state of a transaction that is committed; `None` clears it.

        Raises:
            SessionLockLost: this process does not have the session: the next owner sets it.
            ServerBusy, OperationTimeout, BrokerError: it is to be called again.
        """
        pin = self._find(session_id, transaction)
        await self._set(session_id, pin, state)

    async def take_over(self) -> None:
        """Set the states that sessions are to get, before any is given; all stored ones have come.

        Raises:
            ServerBusy, OperationTimeout, BrokerError: RabbitMQ does not answer.
            SessionLockLost: this process is no more the owner.
        """
        for outcome in await self._ask():
            await self._stored.follow(outcome.session_id, outcome.state, outcome.below_ms)
            self._report(outcome)

    async def free(
        self, session_id: str, but: bytes | None = None, *, of_kept: bool = False
    ) -> None:
        """Wait until no transaction has a session.

        Args:
            but: the id of a transaction that may have it.
            of_kept: only for one that may be committed already.

        Raises:
            ServerBusy: one has it for too long.
        """
        try:
            async with asyncio.timeout(FREE_S):
                while (pin := self._pins.get(fold(session_id))) is not None:
                    if pin.transaction == but or (of_kept and not pin.is_kept):
                        return
                    await pin.ended.wait()
        except TimeoutError as error:
            raise ServerBusy(texts.busy(IN_TRANSACTION)) from error

    def check_free(self, session_id: str) -> None:
        """Raise ServerBusy while a transaction has a session."""
        if fold(session_id) in self._pins:
            raise ServerBusy(texts.busy(IN_TRANSACTION))

    def lose(self) -> None:
        """Forget all: this process is no more the owner. The next one asks."""
        self.inquiry = NO_INQUIRY
        pins, self._pins = self._pins, {}
        for each in pins.values():
            self._stop(each)
        for asking in self._asking:
            asking.cancel()

    def _find(self, session_id: str, transaction: bytes) -> PinnedState:
        pin = self._pins.get(fold(session_id))
        if pin is None or pin.transaction != transaction or pin.outcome is None:
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        return pin

    def _check(self, session_id: str, pin: PinnedState) -> None:
        if self._pins.get(fold(session_id)) is not pin:
            raise SessionLockLost(texts.SESSION_LOCK_LOST)

    async def _set(self, session_id: str, pin: PinnedState, state: bytes | None) -> None:
        assert pin.outcome is not None
        check = partial(self._check, session_id, pin)
        await self._stored.replace(session_id, state, pin.outcome.below_ms, check)
        self._report(pin.outcome)
        self._end(session_id, pin)

    def _report(self, outcome: StateOutcome) -> None:
        self._inquirer.report(self._messages.queue.front, outcome.message)

    def _end(self, session_id: str, pin: PinnedState) -> None:
        """Let a session go, unless it was lost."""
        self._stop(pin)
        if self._pins.get(fold(session_id)) is pin:
            del self._pins[fold(session_id)]
            self._stored.strip(session_id)
            self._messages.kept.unpin(session_id, pin)

    def _stop(self, pin: PinnedState) -> None:
        self._unwatch(pin)
        if not pin.ready.done():
            pin.ready.set_exception(SessionLockLost(texts.SESSION_LOCK_LOST))
        if not pin.ready.cancelled():
            pin.ready.exception()
        pin.ended.set()

    def _unwatch(self, pin: PinnedState) -> None:
        if pin.timer is not None:
            pin.timer.cancel()
        if pin.bridge is not None:
            self._watch.end(pin.bridge, pin)

    def _over(self, session_id: str, pin: PinnedState) -> None:
        """End a pin whose time is over, or whose bridge is gone; a kept one behind an inquiry."""
        self._unwatch(pin)
        log.warning("pin.over entity=%s", self._messages.path)
        if not pin.is_kept:
            self._end(session_id, pin)
            return
        ask = partial(self._ask_for, session_id, pin)
        asking = self._supervisor.repeat("inquiry", ask, subject=str(self._messages.path)).task
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _ask_for(self, session_id: str, pin: PinnedState) -> None:
        """Ask what was decided about a transaction that nobody has ended, and do that."""
        assert pin.outcome is not None
        told = {each.message: each for each in await self._ask()}
        if self._pins.get(fold(session_id)) is not pin:
            return
        outcome = told.get(pin.outcome.message)
        if outcome is None:
            self._end(session_id, pin)
        else:
            await self._set(session_id, pin, outcome.state)

    async def _ask(self) -> list[StateOutcome]:
        """Return the states that the shard's sessions are to get; earlier pins are lost by that."""
        messages = self._messages
        source = source_of_states(messages.queue)
        self.inquiry, told = await self._inquirer.states(
            messages.resource, messages.queue.front, source, messages.shard
        )
        return told
