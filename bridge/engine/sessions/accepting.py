"""The receivers of sessions in this process: they accept, and hear when their sessions end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from bridge.broker.errors import Unroutable
from bridge.engine import texts
from bridge.engine.api import Received, ReceiveMode, Undeliverable
from bridge.engine.browse.settlements import Settlements
from bridge.engine.counters import Counters
from bridge.engine.peers import Peers
from bridge.engine.receiving.intake import Intake
from bridge.engine.sending.sender import Sender
from bridge.engine.sessions import whereabouts
from bridge.engine.sessions.deferred import DeferredLocks
from bridge.engine.sessions.events import EVENT, Event, Given, Lost, Refused, decode_event
from bridge.engine.sessions.holders import Holders
from bridge.engine.sessions.messages import Key
from bridge.engine.sessions.receiver import SessionReceiver
from bridge.engine.sessions.remote import RemoteReceivers
from bridge.engine.sessions.whereabouts import There, Whereabouts
from bridge.engine.settlement.departure import Departure
from bridge.engine.settlement.locktable import LockTable
from bridge.model import entity as model
from bridge.model.errors import (
    MessageSizeExceeded,
    OperationTimeout,
    ServerBusy,
    ServiceBusError,
    SessionCannotBeLocked,
)
from bridge.model.name import EntityPath
from bridge.topology.capabilities import Capabilities
from bridge.wire import headers
from bridge.wire.basic import Table, python_value, text
from bridge.wire.reply import encode_done

STATE_BYTES_MAX = 256 << 10
"""What Service Bus's Standard tier stores with a session."""

PING_S = 2.0
"""So often a bridge that holds sessions for receivers here is asked whether it is there."""

AGAIN_S = 0.1

log = logging.getLogger(__name__)

Undelivered = Callable[[EntityPath, Received, Undeliverable], None]


class Accepting:
    """What this process has to do with sessions.

    Args:
        on_undeliverable: called with a message that no client can have.
        settlements: hears of what has left its queue.
        definition: returns that of an entity which is there, and may be received from, now.
        capabilities: returns RabbitMQ's, once something is accepted.
        deferred: the locks of deferred messages that end with their session's.
    """

    def __init__(
        self,
        *,
        intake: Intake,
        sender: Sender,
        departure: Departure,
        locks: LockTable,
        counters: Counters,
        on_undeliverable: Undelivered,
        settlements: Settlements,
        definition: Callable[[EntityPath], model.ReceiveEntity],
        deferred: DeferredLocks,
        capabilities: Callable[[], Capabilities],
    ) -> None:
        self._deferred = deferred
        self._definition = definition
        self._locks = locks
        self._on_undeliverable = on_undeliverable
        self._receivers: dict[int, SessionReceiver] = {}
        self._numbers = itertools.count(1)
        self._pinging: asyncio.Task[None] | None = None
        self._remote = RemoteReceivers()
        self._holders = self._remote.holders = Holders(
            intake=intake,
            sender=sender,
            departure=departure,
            locks=locks,
            counters=counters,
            settlements=settlements,
            capabilities=capabilities,
            tell=self._tell,
            on_ready=self._on_ready,
            on_gone=self._on_gone,
        )

    def __repr__(self) -> str:
        return f"Accepting({len(self._receivers)} receivers, {self._holders})"

    def introduce(self, peers: Peers) -> None:
        """Say how other bridges are asked, before anything is accepted."""
        self._holders.peers = self._remote.peers = self._peers = peers

    @property
    def natives(self) -> list[str]:
        """A sentence for each entity whose queue somebody else consumes, too."""
        return [
            texts.native_on_sessions(str(each.messages.path), each.natives)
            for each in self._holders.all
            if each.is_ready and each.natives
        ]

    @property
    def open_paths(self) -> set[str]:
        """The entities of sessions that are held here, or waited for (lower case)."""
        return {each.path.key for each in self._receivers.values()}

    def held(self, path: str) -> int:
        """Return how many messages of an entity this process holds."""
        return self._holders.held(path.lower())

    async def accept(
        self,
        queue: model.ReceiveEntity,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
        on_lost: Callable[[ServiceBusError], None],
        timeout_s: float,
    ) -> SessionReceiver:
        """Lock a session and return its receiver; see `api.Namespace.accept_session`."""
        receiver = SessionReceiver(
            (self._locks.instance, next(self._numbers)),
            EntityPath(queue.path),
            mode,
            deliver,
            on_lost,
            on_closed=self._forget,
            on_undeliverable=self._on_undeliverable,
        )
        self._receivers[receiver.key[1]] = receiver
        is_given = False
        try:
            async with asyncio.timeout(timeout_s):
                await self._given(receiver, session_id)
            is_given = True
        except TimeoutError as error:
            raise OperationTimeout(texts.NO_SESSION_IN_TIME) from error
        finally:
            if not is_given:
                receiver.close()
        return receiver

    async def renew(self, queue: model.ReceiveEntity, session_id: str) -> int:
        """Give a session's lock its full duration; return its end (UTC ms)."""
        until_ms = await (await self._holders.find(queue)).renew(session_id)
        receiver = self._receiver(queue, session_id)
        if receiver is not None:
            receiver.renewed(until_ms)
            await self._deferred.renew(receiver)
        return until_ms

    def took_deferred(
        self, queue: model.ReceiveEntity, session_id: str, tokens: Sequence[UUID]
    ) -> None:
        """A session's receiver has some of its deferred messages: their locks end with its own."""
        receiver = self._receiver(queue, session_id)
        if receiver is not None:
            self._deferred.took(receiver, tokens)

    async def check(self, queue: model.ReceiveEntity, session_id: str) -> None:
        """Raise SessionLockLost unless somebody holds a session."""
        await (await self._holders.find(queue)).check(session_id)

    async def state(self, queue: model.ReceiveEntity, session_id: str) -> bytes | None:
        """Return what is stored with a session."""
        return await (await self._holders.find(queue)).state(session_id)

    async def store(self, queue: model.ReceiveEntity, session_id: str, state: bytes | None) -> None:
        """Store a state with a session, or clear it."""
        if state is not None and len(state) > STATE_BYTES_MAX:
            raise MessageSizeExceeded(
                texts.state_too_large(queue.path, len(state), STATE_BYTES_MAX)
            )
        await (await self._holders.find(queue)).store(session_id, state)

    async def delete(
        self, queue: model.ReceiveEntity, session_id: str, count: int, before_ms: int
    ) -> int:
        """Delete what waits in a session; return how many messages are gone."""
        return await (await self._holders.find(queue)).delete(session_id, count, before_ms)

    async def sessions(self, queue: model.ReceiveEntity, updated_after_ms: int | None) -> list[str]:
        """Return the ids of sessions, in order."""
        try:
            return await (await self._holders.find(queue)).sessions(updated_after_ms)
        except (Unroutable, ServerBusy):  # it was held there
            self._holders.ask_again(queue.path.lower())
            return await (await self._holders.find(queue)).sessions(updated_after_ms)

    def follow(self, namespace: model.Namespace) -> None:
        """The definitions have changed."""
        for path in self._holders.follow(namespace):
            self._lose(partial(_is_of, path))

    async def close(self) -> None:
        """Let go of everything."""
        if self._pinging is not None:
            self._pinging.cancel()
        gives = [receiver.close() for receiver in list(self._receivers.values())]
        await asyncio.gather(*gives, return_exceptions=True)
        await self._holders.end()

    async def _given(self, receiver: SessionReceiver, session_id: str | None) -> None:
        while True:
            queue = self._definition(receiver.path)
            try:
                at = await self._holders.find(queue)
            except OperationTimeout:  # a takeover may last: the receiver's own time counts
                continue
            if isinstance(at, There):
                self._watch()
            match await receiver.ask(at, session_id):
                case Given():
                    if receiver.accepted():
                        return
                case Refused():
                    raise SessionCannotBeLocked(texts.session_cannot_be_locked(session_id or ""))
            self._holders.ask_again(receiver.path.key)
            await asyncio.sleep(AGAIN_S)

    # What a holder says.

    def _tell(self, key: Key, event: Event) -> None:
        """Have a receiver hear something, here or in another process."""
        if self._locks.is_named(key[0]):
            receiver = self._receivers.get(key[1])
            if receiver is not None:
                receiver.on_event(event)
            return
        self._remote.tell(key, event)

    # What another bridge says.

    async def carry_out(self, what: str, question: Table) -> bytes:
        """Do what another bridge asks or tells; return the reply.

        Raises:
            ServiceBusError: the answer.
        """
        if what == EVENT:
            number, event = decode_event(question)
            receiver = self._receivers.get(number)
            if receiver is not None:
                receiver.on_event(event)
            return b""
        if what == whereabouts.PING:
            return encode_done(())
        return await self._remote.carry_out(what, question)

    # Bridges that go.

    def _watch(self) -> None:
        if self._pinging is None or self._pinging.done():
            loop = asyncio.get_running_loop()
            self._pinging = loop.create_task(self._ping(), name="session ping")

    async def _ping(self) -> None:
        """See whether the bridges are there that hold sessions for receivers here."""
        while bridges := {at.bridge for at in self._places() if isinstance(at, There)}:
            for bridge in bridges:
                with contextlib.suppress(ServiceBusError):
                    try:
                        await self._peers.ask(bridge, {"do": text(whereabouts.PING)})
                    except Unroutable:
                        self._on_gone(bridge)
            # Under its earlier name this process hears nothing any more.
            self._lose(partial(_is_deaf, self._locks.instance))
            await asyncio.sleep(PING_S)

    def _places(self) -> list[Whereabouts | None]:
        return [receiver.at for receiver in self._receivers.values()]

    def _on_ready(self, path: str) -> None:
        """This process holds an entity's sessions: nobody else does."""
        self._lose(lambda each: isinstance(each.at, There) and each.path.key == path)

    def _on_gone(self, bridge: bytes) -> None:
        self._holders.forget(bridge)
        self._lose(lambda each: isinstance(each.at, There) and each.at.bridge == bridge)

    def _lose(self, is_lost: Callable[[SessionReceiver], bool]) -> None:
        for receiver in [each for each in self._receivers.values() if is_lost(each)]:
            receiver.on_event(Lost(has_moved=True))

    def _receiver(self, queue: model.ReceiveEntity, session_id: str) -> SessionReceiver | None:
        """Return who holds a session here, or asks for it."""
        key = queue.path.lower()
        for receiver in self._receivers.values():
            if receiver.session_id == session_id and receiver.path.key == key:
                return receiver
        return None

    def _forget(self, receiver: SessionReceiver) -> None:
        self._receivers.pop(receiver.key[1], None)
        self._deferred.ended(receiver)


def is_of_session(received: Received, session_id: str) -> bool:
    """Whether a message is a session's."""
    table = received.record.properties.headers or {}
    return python_value(table.get(headers.SESSION_ID, ("V", None))) == session_id


def _is_deaf(name: bytes, receiver: SessionReceiver) -> bool:
    return isinstance(receiver.at, There) and receiver.key[0] != name


def _is_of(key: str, receiver: SessionReceiver) -> bool:
    return receiver.path.key == key
