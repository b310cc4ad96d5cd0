"""The states of sessions that a migration stores while it holds their entity; no session is locked.

Each goes to the owner of the session's shard, as a receiver's does. The owner sees in the turn in
which it publishes the state that the run still holds the entity: a request of a run that was killed
may come late.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

from bridge.broker.errors import Unroutable
from bridge.engine import texts
from bridge.engine.sessions.bounds import check_session_id, check_state
from bridge.engine.sessions.location import Location
from bridge.model import entity as model
from bridge.model.availability import check_held
from bridge.model.errors import NotAllowed, ServerBusy, SessionLockLost
from bridge.model.name import EntityPath, SubQueue
from bridge.topology.shards import count_of, shard_of
from bridge.wire import sessions as wire
from bridge.wire.basic import Table, text
from bridge.wire.own_operations import IMPORT_SESSION_STATE
from bridge.wire.reply import Done


class ShardOwners(Protocol):
    """Finds the owner of a shard."""

    async def find(self, queue: model.ReceiveEntity, shard: int) -> Location:
        """Return where it is; raises ServerBusy, OperationTimeout."""

    def ask_again(self, shard: tuple[str, int]) -> None:
        """Forget where a shard's owner is; the path is in lower case."""


class ImportedStates:
    """Carries out `import_verbs.StateImportVerbs`.

    Args:
        definition: returns the definition of a queue or subscription; raises EntityNotFound.
        check_known: raises ServerBusy while a bridge of the namespace does not know a feature.
    """

    def __init__(
        self,
        definition: Callable[[EntityPath], model.ReceiveEntity],
        owners: ShardOwners,
        check_known: Callable[[str], None],
    ) -> None:
        self._definition = definition
        self._owners = owners
        self._check_known = check_known

    async def store(self, path: EntityPath, run: str, session_id: str, state: bytes | None) -> None:
        """Store a session's state; see `StateImportVerbs.store`."""
        entity = self._sessional(path, run)
        check_session_id(session_id)
        check_state(entity.path, state)
        fields: Table = {"session": text(session_id), "run": text(run)}
        if state is not None:
            fields["state"] = ("x", state)
        await self._ask(entity, shard_of(entity, session_id), wire.IMPORT_STATE, fields)

    async def digests(self, path: EntityPath, run: str) -> list[tuple[str, bytes]]:
        """Return a digest of each state; see `StateImportVerbs.digests`."""
        entity = self._sessional(path, run)
        asks = (
            self._ask(entity, shard, wire.DIGESTS, {"run": text(run)})
            for shard in range(count_of(entity))
        )
        answers = await asyncio.gather(*asks)
        return list(heapq.merge(*(wire.decode_digests(each.content) for each in answers)))

    def _sessional(self, path: EntityPath, run: str) -> model.ReceiveEntity:
        self._check_known(IMPORT_SESSION_STATE)
        entity = self._definition(path)
        if not entity.requires_session or path.sub_queue is not SubQueue.NONE:
            raise NotAllowed(texts.SESSION_ON_PLAIN_ENTITY)
        check_held(entity, run)
        return entity

    async def _ask(self, entity: model.ReceiveEntity, shard: int, what: str, fields: Table) -> Done:
        """Ask a shard's owner; once more if that has changed."""
        try:
            return await (await self._owners.find(entity, shard)).ask(what, fields)
        except (Unroutable, SessionLockLost):
            self._owners.ask_again((entity.path.lower(), shard))
        try:
            return await (await self._owners.find(entity, shard)).ask(what, fields)
        except (Unroutable, SessionLockLost) as error:
            why = f"the owner of a shard of {entity.path!r} is another one now"
            raise ServerBusy(texts.busy(why)) from error
