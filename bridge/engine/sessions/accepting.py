"""The session receivers of this process: accepting sessions, and requests about them."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from bridge.broker.errors import Unroutable
from bridge.engine import texts
from bridge.engine.api import Deliver, ReceiveMode, Undeliverable
from bridge.engine.peers import Peers, Question
from bridge.engine.services import Services
from bridge.engine.sessions.acceptance import TURN, Acceptance
from bridge.engine.sessions.bounds import check_session_id, check_state
from bridge.engine.sessions.deferred import DeferredLocks
from bridge.engine.sessions.events import Event, SessionLost, decode_event
from bridge.engine.sessions.location import Local, Location, RemoteOwner
from bridge.engine.sessions.owners import Owners, Shard, shards_of
from bridge.engine.sessions.placement import Bridges
from bridge.engine.sessions.receiver import SessionReceiver
from bridge.engine.sessions.remote import RemoteReceivers
from bridge.model import entity as model
from bridge.model.errors import (
    OperationTimeout,
    ServerBusy,
    ServiceBusError,
    SessionLockLost,
)
from bridge.model.name import EntityPath, parse_path
from bridge.topology.capabilities import Capabilities
from bridge.topology.entity_table import Changes
from bridge.topology.shards import count_of, session_key, shard_of
from bridge.wire import sessions as wire
from bridge.wire.basic import Table, long, text
from bridge.wire.reply import Done, encode_done
from bridge.wire.sessions import Key

SESSIONS = "session-"
"""The beginning of the names of questions between bridges about sessions."""

ASKING_MAX = 64
"""The most receivers here that ask for an entity's next session, or for sessions of one shard, at a
time; others wait in line. One that asks takes 16 to 45 KB."""

PING_S = 2.0
"""The time between two checks of the bridges that own sessions of receivers here."""

log = logging.getLogger(__name__)

Undelivered = Callable[[EntityPath, UUID, Undeliverable], None]


class Accepting:
    """All session receivers and shard owners of this process.

    Args:
        on_undeliverable: called with the lock token of a message that no client can have.
        definition: returns the definition of an entity; raises when it cannot be received from.
        capabilities: returns RabbitMQ's capabilities; called from the first accept on.
        consumes_once: returns whether no channel may consume twice (`ShardChannels`).
        peers: asks other bridges, and hands over what they ask.
        bridges: returns the names of all running bridges.
        deferred: the locks of deferred messages, which end with their session's.

    Attributes:
        owners: the owners of shards, here and elsewhere.
    """

    def __init__(
        self,
        services: Services,
        peers: Peers,
        *,
        on_undeliverable: Undelivered,
        definition: Callable[[EntityPath], model.ReceiveEntity],
        deferred: DeferredLocks,
        capabilities: Callable[[], Capabilities],
        consumes_once: Callable[[], bool],
        bridges: Bridges,
    ) -> None:
        self._turn = 0
        self._lines: dict[tuple[str, int], asyncio.Semaphore] = {}
        self._deferred = deferred
        self._definition = definition
        self._locks = services.locks
        self._supervisor = services.supervisor
        self._on_undeliverable = on_undeliverable
        self._receivers: dict[int, SessionReceiver] = {}
        self._numbers = itertools.count(1)
        self._pinging: asyncio.Task[None] | None = None
        self._peers = peers
        self._remote = RemoteReceivers(peers, services.watch)
        self.owners = self._remote.owners = Owners(
            services,
            peers,
            capabilities=capabilities,
            consumes_once=consumes_once,
            bridges=bridges,
            tell=self._tell,
            on_ready=self._on_ready,
            on_gone=self._on_gone,
        )
        peers.answer(SESSIONS, self._carry_out)

    def __repr__(self) -> str:
        return f"Accepting({len(self._receivers)} receivers, {self.owners})"

    @property
    def natives(self) -> list[str]:
        """A sentence for each owned entity whose queues native consumers consume, too."""
        natives: dict[str, int] = {}
        for each in self.owners.all:
            if each.is_ready and each.natives:
                path = str(each.messages.path)
                natives[path] = natives.get(path, 0) + each.natives
        return [texts.native_on_sessions(path, count) for path, count in natives.items()]

    @property
    def open_paths(self) -> set[str]:
        """The entities with receivers here that hold a session or wait for one (lower case)."""
        return {each.path.key for each in self._receivers.values()}

    def held(self, path: str) -> int:
        """Return how many messages of an entity this process holds."""
        return self.owners.held(path.lower())

    async def accept(
        self,
        queue: model.ReceiveEntity,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        deliver: Deliver,
        on_lost: Callable[[ServiceBusError], None],
        timeout_s: float,
    ) -> SessionReceiver:
        """Lock a session and return its receiver; see `api.NamespaceVerbs.accept_session`."""
        if session_id is not None:
            check_session_id(session_id)
        try:
            async with asyncio.timeout(timeout_s):
                async with self._line(queue, session_id):
                    return await self._accepted(queue, session_id, mode, deliver, on_lost)
        except TimeoutError as error:
            raise OperationTimeout(texts.NO_SESSION_IN_TIME) from error

    def _line(self, queue: model.ReceiveEntity, session_id: str | None) -> asyncio.Semaphore:
        """Return the line of receivers that ask for a session; first come, first served.

        A shard that gives no answer keeps only those waiting that need it.
        """
        shard = -1 if session_id is None else shard_of(queue, session_id)
        key = queue.path.lower(), shard
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = asyncio.Semaphore(ASKING_MAX)
        return line

    async def _accepted(
        self,
        queue: model.ReceiveEntity,
        session_id: str | None,
        mode: ReceiveMode,
        deliver: Deliver,
        on_lost: Callable[[ServiceBusError], None],
    ) -> SessionReceiver:
        candidates = [
            SessionReceiver(
                (self._locks.instance, next(self._numbers)),
                EntityPath(queue.path),
                shard,
                mode,
                deliver,
                on_lost,
                on_closed=self._forget,
                on_undeliverable=self._on_undeliverable,
            )
            for shard in self._shards_for(queue, session_id)
        ]
        self._receivers |= {each.key[1]: each for each in candidates}
        acceptance = Acceptance(
            candidates, session_id, find=self._find_for, owned=self._owned, moved=self._moved
        )
        return await acceptance.wait(lead_elsewhere=self._turn % TURN == 0)

    def _shards_for(self, queue: model.ReceiveEntity, session_id: str | None) -> Sequence[int]:
        """Return the shards to ask for a session: its own, or all from a shard that rotates."""
        count = count_of(queue)
        if session_id is not None or count == 1:
            return (shard_of(queue, session_id),)
        self._turn += 1
        return [(self._turn + at) % count for at in range(count)]

    async def renew(self, queue: model.ReceiveEntity, session_id: str) -> int:
        """Give a session's lock its full duration; return its end (UTC ms)."""
        until_ms = (await self._ask(wire.RENEW, queue, session_id)).numbers[0]
        receiver = self._receiver(queue, session_id)
        if receiver is not None:
            receiver.locked_until_ms = until_ms
            await self._deferred.renew(receiver)
        return until_ms

    def took_deferred(
        self, queue: model.ReceiveEntity, session_id: str, tokens: Sequence[UUID]
    ) -> None:
        """Note a session receiver's deferred messages: their locks end with the session's lock."""
        receiver = self._receiver(queue, session_id)
        if receiver is not None:
            self._deferred.took(receiver, tokens)

    async def check(self, queue: model.ReceiveEntity, session_id: str) -> None:
        """Raise SessionLockLost unless a receiver holds the session."""
        await self._ask(wire.CHECK, queue, session_id)

    async def state(self, queue: model.ReceiveEntity, session_id: str) -> bytes | None:
        """Return a session's stored state."""
        return wire.decode_state((await self._ask(wire.GET_STATE, queue, session_id)).content)

    async def store(self, queue: model.ReceiveEntity, session_id: str, state: bytes | None) -> None:
        """Store a session's state; `None` clears it."""
        check_state(queue.path, state)
        fields: Table = {} if state is None else {"state": ("x", state)}
        await self._ask(wire.STORE, queue, session_id, fields)

    async def delete(
        self, queue: model.ReceiveEntity, session_id: str, count: int, before_ms: int
    ) -> int:
        """Delete up to `count` waiting messages of a session; return the count of deleted ones."""
        fields: Table = {"count": long(count), "before": long(before_ms)}
        return (await self._ask(wire.DELETE, queue, session_id, fields)).numbers[0]

    async def sessions(self, queue: model.ReceiveEntity, updated_after_ms: int | None) -> list[str]:
        """Return the ids of an entity's sessions, sorted.

        Args:
            updated_after_ms: only sessions whose state was set after this time; `None`: all
                sessions with a state or messages.
        """
        fields = {"after": long(-1 if updated_after_ms is None else updated_after_ms)}
        asks = (self._sessions_of(queue, shard, fields) for shard in range(count_of(queue)))
        return list(heapq.merge(*await asyncio.gather(*asks)))

    async def _sessions_of(
        self, queue: model.ReceiveEntity, shard: int, fields: Table
    ) -> list[str]:
        try:
            done = await (await self.owners.find(queue, shard)).ask(wire.LIST, fields)
        except (Unroutable, ServerBusy):  # the shard's owner has changed
            self.owners.ask_again((queue.path.lower(), shard))
            done = await (await self.owners.find(queue, shard)).ask(wire.LIST, fields)
        return [str(each) for each in json.loads(done.content)]

    async def _ask(
        self, what: str, queue: model.ReceiveEntity, session_id: str, fields: Table | None = None
    ) -> Done:
        """Ask the owner of a session's shard (`answers`)."""
        at = await self.owners.find(queue, shard_of(queue, session_id))
        try:
            return await at.ask(what, {"session": text(session_id), **(fields or {})})
        except Unroutable as error:
            raise SessionLockLost(texts.SESSION_LOCK_LOST) from error

    def follow(self, changes: Changes) -> None:
        """Take over changed definitions; receivers of entities that are no more lose sessions."""
        for path in self.owners.follow(changes):
            self._lose(partial(_is_of, path))
        for path in changes.gone:
            for shard in (-1, *shards_of(changes, path)):
                self._lines.pop((path, shard), None)  # those in line keep it, until they are told

    async def close(self) -> None:
        """Close all receivers, then end all owners."""
        if self._pinging is not None:
            self._pinging.cancel()
        gives = [receiver.close() for receiver in list(self._receivers.values())]
        await asyncio.gather(*gives, return_exceptions=True)
        self._remote.close()
        await self.owners.end()

    # Calls of an acceptance.

    async def _find_for(self, candidate: SessionReceiver) -> Location:
        at = await self.owners.find(self._definition(candidate.path), candidate.shard)
        if isinstance(at, RemoteOwner):
            self._watch()
        return at

    def _owned(self, candidate: SessionReceiver) -> Local | None:
        owner = self.owners.ready((candidate.path.key, candidate.shard))
        return None if owner is None else Local(owner)

    def _moved(self, candidate: SessionReceiver) -> None:
        self.owners.ask_again((candidate.path.key, candidate.shard))

    # Events of an owner.

    def _tell(self, key: Key, event: Event) -> None:
        """Send an event to a receiver, in this process or another bridge."""
        if self._locks.is_named(key[0]):
            receiver = self._receivers.get(key[1])
            if receiver is not None:
                receiver.on_event(event)
            return
        self._remote.tell(key, event)

    # Requests and events of another bridge.

    async def _carry_out(self, asked: Question) -> bytes:
        """Carry out another bridge's request or event; return the reply."""
        what, question = asked.what, asked.table
        if what == wire.EVENT:
            number, event = decode_event(question)
            receiver = self._receivers.get(number)
            if receiver is not None:
                receiver.on_event(event)
            return b""
        if what == wire.PING:
            return encode_done(())
        if what == wire.STAND_BY:
            queue = self._definition(parse_path(wire.string(question, "path")))
            await self.owners.stand_by(queue, wire.shard_in(question))
            return encode_done(())
        return await self._remote.carry_out(what, question)

    # Lost bridges.

    def _watch(self) -> None:
        if self._pinging is None or self._pinging.done():
            self._pinging = self._supervisor.repeat("session ping", self._ping).task

    async def _ping(self) -> None:
        """Check every `PING_S` that the bridges that own receivers' sessions are running."""
        while bridges := self._asked_bridges():
            for bridge in bridges:
                with contextlib.suppress(ServiceBusError):
                    try:
                        await self._peers.ask(bridge, {"do": text(wire.PING)})
                    except Unroutable:
                        self._on_gone(bridge)
            # Messages to this process's earlier name do not reach it any more.
            self._lose(partial(_is_deaf, self._locks.instance))
            await asyncio.sleep(PING_S)

    def _asked_bridges(self) -> set[bytes]:
        asked = (receiver.at for receiver in self._receivers.values())
        return {at.bridge for at in asked if isinstance(at, RemoteOwner)}

    def _on_ready(self, shard: Shard) -> None:
        """End receivers at a shard's earlier owner: this process owns the shard now."""
        self._lose(
            lambda each: isinstance(each.at, RemoteOwner) and (each.path.key, each.shard) == shard
        )

    def _on_gone(self, bridge: bytes) -> None:
        self.owners.forget(bridge)
        self._lose(lambda each: isinstance(each.at, RemoteOwner) and each.at.bridge == bridge)

    def _lose(self, is_lost: Callable[[SessionReceiver], bool]) -> None:
        for receiver in [each for each in self._receivers.values() if is_lost(each)]:
            receiver.on_event(SessionLost(has_moved=True))

    def _receiver(self, queue: model.ReceiveEntity, session_id: str) -> SessionReceiver | None:
        """Return the receiver of this process that has a session, or `None`."""
        path, key = queue.path.lower(), session_key(queue, session_id)
        for receiver in self._receivers.values():
            is_near = receiver.has_session and receiver.shard == key.shard
            if is_near and receiver.path.key == path and receiver.session_key == key:
                return receiver
        return None

    def _forget(self, receiver: SessionReceiver) -> None:
        self._receivers.pop(receiver.key[1], None)
        self._deferred.ended(receiver)


def _is_deaf(name: bytes, receiver: SessionReceiver) -> bool:
    return isinstance(receiver.at, RemoteOwner) and receiver.key[0] != name


def _is_of(key: str, receiver: SessionReceiver) -> bool:
    return receiver.path.key == key
