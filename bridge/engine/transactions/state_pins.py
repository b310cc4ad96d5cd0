"""States that transactions give sessions: asked of the owners of the sessions' shards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from bridge.background.tasks import Tasks
from bridge.broker.errors import Unroutable
from bridge.engine import texts
from bridge.engine.sessions.bounds import check_state
from bridge.engine.sessions.imported_states import ShardOwners
from bridge.engine.settlement.locktable import ProcessLocks
from bridge.engine.transaction_verbs import PinnedSession
from bridge.model import entity as model
from bridge.model.errors import EntityNotFound, NotAllowed, ServiceBusError, SessionLockLost
from bridge.model.name import EntityPath
from bridge.model.session_id import FoldedId, fold
from bridge.topology.shards import shard_of
from bridge.wire import sessions as wire
from bridge.wire.basic import Table, text
from bridge.wire.commits import StateOutcome, decode_states
from bridge.wire.reply import Done

AGAIN_S: Final = 1.0
"""The time until an owner is asked again to set a state."""

_Key = tuple[bytes, str, FoldedId]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class StatePin(PinnedSession):
    """A pinned session, and its state as the entity's leader knows it.

    Attributes:
        transaction: the transaction's id.
    """

    transaction: bytes
    outcome: StateOutcome

    @property
    def key(self) -> _Key:
        """The session, and its transaction."""
        return self.transaction, self.path.key, fold(self.session_id)


class StatePins:
    """Pins sessions at the owners of their shards, here or in other bridges, and sets their states.

    Args:
        definition: returns the definition of a queue or subscription that requires sessions; raises
            ServiceBusError.
        locks: says this bridge's name.
    """

    def __init__(
        self,
        definition: Callable[[EntityPath], model.ReceiveEntity],
        owners: ShardOwners,
        locks: ProcessLocks,
    ) -> None:
        self._definition = definition
        self._owners = owners
        self._locks = locks
        self._tasks = Tasks()
        self._pins: dict[_Key, StatePin] = {}
        self._asking: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"StatePins({len(self._pins)})"

    def find(self, transaction: bytes, path: EntityPath, session_id: str) -> StatePin | None:
        """Return a session that a transaction keeps, with its last state."""
        return self._pins.get((transaction, path.key, fold(session_id)))

    async def pin(
        self, transaction: bytes, path: EntityPath, session_id: str, state: bytes | None
    ) -> StatePin:
        """Pin a session; see `TransactionVerbs.set_state`."""
        check_state(self._definition(path).path, state)
        key = transaction, path.key, fold(session_id)
        asking = self._asking.setdefault(key, asyncio.Lock())
        async with asking:  # of several states the last one counts, so they come in order
            try:
                by: Table = {"bridge": ("x", self._locks.instance)}
                done = await self._ask(wire.PIN, path, session_id, transaction, by)
            except BaseException:
                self._tasks.start(self._release(path, session_id, transaction), "unpin")
                raise
            (outcome,) = decode_states(done.content)
            pin = StatePin(path, session_id, state, transaction, outcome._replace(state=state))
            self._pins[key] = pin
            return pin

    def release(self, pin: StatePin) -> None:
        """Let a session go; its owner ends the pin late if it does not hear it."""
        self._pins.pop(pin.key, None)
        self._tasks.start(self._release(pin.path, pin.session_id, pin.transaction), "unpin")

    async def keep(self, pin: StatePin) -> None:
        """Return when nobody but the transaction's end lets a session go.

        Raises:
            SessionLockLost: its receiver has lost it.
            ServerBusy, OperationTimeout: its owner does not answer.
        """
        await self._ask(wire.KEEP_PINNED, pin.path, pin.session_id, pin.transaction)

    async def carry_out(self, pin: StatePin) -> None:
        """Set a state that was decided, however long that takes, while its entity is there.

        If the session's owner has ended, the next one asks the leader, and sets it.
        """
        self._pins.pop(pin.key, None)
        fields: Table = {} if pin.state is None else {"state": ("x", pin.state)}
        while True:
            try:
                await self._ask(wire.SET_PINNED, pin.path, pin.session_id, pin.transaction, fields)
            except (SessionLockLost, EntityNotFound, NotAllowed):
                return  # the last two: it is gone, or was made anew without sessions
            except ServiceBusError as error:
                log.info("state.unanswered entity=%s error=%s", pin.path, error)
            else:
                return
            await asyncio.sleep(AGAIN_S)

    async def close(self) -> None:
        """Stop telling owners."""
        self._tasks.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _release(self, path: EntityPath, session_id: str, transaction: bytes) -> None:
        try:
            await self._ask(wire.UNPIN, path, session_id, transaction)
        except ServiceBusError as error:
            log.info("pin.unreleased entity=%s error=%s", path, error)

    async def _ask(
        self,
        what: str,
        path: EntityPath,
        session_id: str,
        transaction: bytes,
        fields: Table | None = None,
    ) -> Done:
        queue = self._definition(path)
        at = await self._owners.find(queue, shard_of(queue, session_id))
        question: Table = {"session": text(session_id), "transaction": ("x", transaction)}
        try:
            return await at.ask(what, question | (fields or {}))
        except Unroutable as error:
            raise SessionLockLost(texts.SESSION_LOCK_LOST) from error
