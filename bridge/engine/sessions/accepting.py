"""The receivers of sessions in this process, and where the sessions of each entity are held."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Callable
from functools import partial

from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import texts
from bridge.engine.api import Received, ReceiveMode, Undeliverable
from bridge.engine.browse.settlements import Settlements
from bridge.engine.counters import Counters
from bridge.engine.peers import Peers
from bridge.engine.receiving.intake import Intake
from bridge.engine.sending.sender import REPLY_TIMEOUT_S, Sender
from bridge.engine.sessions import whereabouts
from bridge.engine.sessions.events import (
    EVENT,
    Event,
    Given,
    Lost,
    Message,
    Refused,
    content,
    decode_event,
    encode_event,
    integer,
    string,
)
from bridge.engine.sessions.holder import Holder
from bridge.engine.sessions.messages import Key
from bridge.engine.sessions.receiver import SessionReceiver
from bridge.engine.sessions.seat import ASK_HEADERS
from bridge.engine.sessions.whereabouts import Here, There, Whereabouts
from bridge.engine.settlement.departure import Departure
from bridge.engine.settlement.locktable import LockTable
from bridge.machine.settled import SettledMemory
from bridge.machine.shelf import Room
from bridge.model import entity as model
from bridge.model.errors import (
    MessageSizeExceeded,
    OperationTimeout,
    ServerBusy,
    ServiceBusError,
    SessionCannotBeLocked,
    SessionLockLost,
)
from bridge.model.name import EntityPath, parse_path
from bridge.topology.definitions import incarnation_of
from bridge.wire import headers
from bridge.wire.basic import Table, python_value, text
from bridge.wire.reply import Done, decode_reply, encode_done, encode_found

BODIES_BYTES_MAX = 256 << 20
"""Bodies of sessions' messages that are in memory; others are read again when they are wanted."""

SETTLED_BYTES_MAX = 32 << 20

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
    ) -> None:
        self._settlements = settlements
        self._intake = intake
        self._sender = sender
        self._departure = departure
        self._locks = locks
        self._counters = counters
        self._on_undeliverable = on_undeliverable
        self._room = Room(BODIES_BYTES_MAX)
        self._settled = SettledMemory(SETTLED_BYTES_MAX)
        self._holders: dict[str, Holder] = {}
        self._elsewhere: dict[str, bytes] = {}
        self._receivers: dict[int, SessionReceiver] = {}
        self._numbers = itertools.count(1)
        self._told: dict[Key, int] = {}
        self._pinging: asyncio.Task[None] | None = None
        self.peers: Peers

    def __repr__(self) -> str:
        return f"Accepting({len(self._receivers)} receivers, {list(self._holders.values())})"

    @property
    def natives(self) -> list[str]:
        """A sentence for each entity whose queue somebody else consumes, too."""
        return [
            texts.native_on_sessions(str(each.messages.path), each.natives)
            for each in self._holders.values()
            if each.is_ready and each.natives
        ]

    @property
    def open_paths(self) -> set[str]:
        """The entities of sessions that are held here, or waited for (lower case)."""
        return {each.path.key for each in self._receivers.values()}

    def held(self, path: str) -> int:
        """Return how many messages of an entity this process holds."""
        holder = self._holders.get(path.lower())
        return 0 if holder is None else len(holder.messages.machine)

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
                await self._given(queue, receiver, session_id)
            is_given = True
        except TimeoutError as error:
            raise OperationTimeout(texts.NO_SESSION_IN_TIME) from error
        finally:
            if not is_given:
                receiver.close()
        return receiver

    async def renew(self, queue: model.ReceiveEntity, session_id: str) -> int:
        """Give a session's lock its full duration; return its end (UTC ms)."""
        until_ms = await (await self._find(queue)).renew(session_id)
        for receiver in self._receivers.values():
            if receiver.session_id == session_id and receiver.path.key == queue.path.lower():
                receiver.renewed(until_ms)
        return until_ms

    async def check(self, queue: model.ReceiveEntity, session_id: str) -> None:
        """Raise SessionLockLost unless somebody holds a session."""
        await (await self._find(queue)).check(session_id)

    async def state(self, queue: model.ReceiveEntity, session_id: str) -> bytes | None:
        """Return what is stored with a session."""
        return await (await self._find(queue)).state(session_id)

    async def store(self, queue: model.ReceiveEntity, session_id: str, state: bytes | None) -> None:
        """Store a state with a session, or clear it."""
        if state is not None and len(state) > STATE_BYTES_MAX:
            raise MessageSizeExceeded(
                texts.state_too_large(queue.path, len(state), STATE_BYTES_MAX)
            )
        await (await self._find(queue)).store(session_id, state)

    async def delete(
        self, queue: model.ReceiveEntity, session_id: str, count: int, before_ms: int
    ) -> int:
        """Delete what waits in a session; return how many messages are gone."""
        return await (await self._find(queue)).delete(session_id, count, before_ms)

    async def sessions(self, queue: model.ReceiveEntity, updated_after_ms: int | None) -> list[str]:
        """Return the ids of sessions, in order."""
        try:
            return await (await self._find(queue)).sessions(updated_after_ms)
        except (Unroutable, ServerBusy):  # it was held there
            self._elsewhere.pop(queue.path.lower(), None)
            return await (await self._find(queue)).sessions(updated_after_ms)

    def follow(self, namespace: model.Namespace) -> None:
        """The definitions have changed."""
        there = {each.path.lower(): each for each in model.receive_entities(namespace)}
        for key, holder in list(self._holders.items()):
            queue = there.get(key)
            if queue is None or incarnation_of(queue) != incarnation_of(holder.messages.queue):
                del self._holders[key]
                self._elsewhere.pop(key, None)
                holder.drop()
                self._lose(partial(_is_of, key))
            else:
                holder.messages.update(queue)

    async def close(self) -> None:
        """Let go of everything."""
        if self._pinging is not None:
            self._pinging.cancel()
        gives = [receiver.close() for receiver in list(self._receivers.values())]
        await asyncio.gather(*gives, return_exceptions=True)
        ends = (holder.end() for holder in self._holders.values())
        await asyncio.gather(*ends, return_exceptions=True)

    # Where sessions are held.

    async def _given(
        self, queue: model.ReceiveEntity, receiver: SessionReceiver, session_id: str | None
    ) -> None:
        while True:
            at = await self._find(queue)
            if isinstance(at, There):
                self._watch()
            match await receiver.ask(at, session_id):
                case Given():
                    if receiver.accepted():
                        return
                case Refused():
                    raise SessionCannotBeLocked(texts.session_cannot_be_locked(session_id or ""))
            self._elsewhere.pop(queue.path.lower(), None)
            await asyncio.sleep(AGAIN_S)

    async def _find(self, queue: model.ReceiveEntity) -> Whereabouts:
        """Return where an entity's sessions are held.

        Raises:
            ServerBusy, OperationTimeout: nobody says so.
        """
        key = queue.path.lower()
        holder = self._holder(queue)
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                await holder.stand_by()
            if holder.is_ready:
                return Here(holder)
            bridge = self._elsewhere.get(key)
            if bridge is None:
                bridge = await self._ask(holder)
        except TimeoutError as error:
            raise OperationTimeout("RabbitMQ does not deliver messages of sessions now.") from error
        except BrokerError as error:
            raise ServerBusy(f"{texts.SERVER_BUSY} ({error})") from error
        if self._locks.is_named(bridge):
            return Here(holder)
        self._elsewhere[key] = bridge
        return There(bridge, EntityPath(queue.path), self.peers, self._on_gone)

    async def _ask(self, holder: Holder) -> bytes:
        answer = await self._sender.ask(
            "", holder.seat.resource, ASK_HEADERS, b"", persistent=True, can_expire=True
        )
        reply = decode_reply(answer)
        if not isinstance(reply, Done):
            raise ServerBusy(texts.SERVER_BUSY)
        return reply.content

    def _holder(self, queue: model.ReceiveEntity) -> Holder:
        key = queue.path.lower()
        holder = self._holders.get(key)
        if holder is None:
            holder = self._holders[key] = Holder(
                queue,
                room=self._room,
                settled=self._settled,
                intake=self._intake,
                sender=self._sender,
                departure=self._departure,
                locks=self._locks,
                counters=self._counters,
                tell=self._tell,
                on_ready=partial(self._on_ready, key),
            )
            messages = holder.messages
            record = self._settlements.of(messages.resource)
            record.known = messages.settled.numbers
            messages.record = record.left_active
        return holder

    # What a holder says.

    def _tell(self, key: Key, event: Event) -> None:
        """Have a receiver hear something, here or in another process."""
        if self._locks.is_named(key[0]):
            receiver = self._receivers.get(key[1])
            if receiver is not None:
                receiver.on_event(event)
            return
        if isinstance(event, Message):
            self._told[key] = self._told.get(key, 0) + 1
        elif not isinstance(event, Given):
            self._told.pop(key, None)
        told = partial(self._on_told, key[0])
        try:
            self.peers.post(key[0], encode_event(key[1], event), told)
        except (BrokerError, ServiceBusError) as error:
            told(BrokerError(text=str(error)))

    def _on_told(self, bridge: bytes, error: BrokerError | None) -> None:
        """A bridge that does not hear what its receivers have has them no more."""
        if error is not None:
            asyncio.get_running_loop().call_soon(self._forget_bridge, bridge)

    def _forget_bridge(self, bridge: bytes) -> None:
        for key in [key for key in self._told if key[0] == bridge]:
            del self._told[key]
        for holder in self._holders.values():
            holder.messages.forget_bridge(bridge)

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
        path = parse_path(string(question, "path"))
        holder = self._holders.get(path.key)
        if "receiver" in question:
            key = content(question, "bridge"), integer(question, "receiver")
            return self._of_receiver(what, holder, key, question)
        if holder is None or not holder.is_ready:
            if what == whereabouts.LIST:
                raise ServerBusy(texts.SERVER_BUSY)
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        return await _of_entity(what, Here(holder), question)

    def _of_receiver(self, what: str, holder: Holder | None, key: Key, question: Table) -> bytes:
        if holder is None or not holder.is_ready:
            self._tell(key, Lost(has_moved=True))
            return encode_done((0,))
        if what == whereabouts.ACCEPT:
            session_id = string(question, "session") if "session" in question else None
            holder.messages.accept(key, session_id, deletes=bool(integer(question, "deletes")))
        elif what == whereabouts.CREDIT:
            holder.messages.add_credit(key, integer(question, "count"))
        elif what == whereabouts.DRAIN:
            holder.messages.drain(key)
        else:
            holder.messages.close(key)
            self._told.pop(key, None)
        return encode_done((self._told.get(key, 0),))

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
                        await self.peers.ask(bridge, {"do": text(whereabouts.PING)})
                    except Unroutable:
                        self._on_gone(bridge)
            # Under its earlier name this process hears nothing any more.
            self._lose(partial(_is_deaf, self._locks.instance))
            await asyncio.sleep(PING_S)

    def _places(self) -> list[Whereabouts | None]:
        return [receiver.at for receiver in self._receivers.values()]

    def _on_ready(self, path: str) -> None:
        """This process holds an entity's sessions: nobody else does."""
        self._elsewhere.pop(path, None)
        self._lose(lambda each: isinstance(each.at, There) and each.path.key == path)

    def _on_gone(self, bridge: bytes) -> None:
        for key in [key for key, each in self._elsewhere.items() if each == bridge]:
            del self._elsewhere[key]
        self._lose(lambda each: isinstance(each.at, There) and each.at.bridge == bridge)

    def _lose(self, is_lost: Callable[[SessionReceiver], bool]) -> None:
        for receiver in [each for each in self._receivers.values() if is_lost(each)]:
            receiver.on_event(Lost(has_moved=True))

    def _forget(self, receiver: SessionReceiver) -> None:
        self._receivers.pop(receiver.key[1], None)


def is_of_session(received: Received, session_id: str) -> bool:
    """Whether a message is a session's."""
    table = received.record.properties.headers or {}
    return python_value(table.get(headers.SESSION_ID, ("V", None))) == session_id


def _is_deaf(name: bytes, receiver: SessionReceiver) -> bool:
    return isinstance(receiver.at, There) and receiver.key[0] != name


def _is_of(key: str, receiver: SessionReceiver) -> bool:
    return receiver.path.key == key


async def _of_entity(what: str, here: Here, question: Table) -> bytes:
    if what == whereabouts.LIST:
        after_ms = integer(question, "after")
        found = await here.sessions(None if after_ms < 0 else after_ms)
        return encode_found(json.dumps(found).encode())
    session_id = string(question, "session")
    if what == whereabouts.RENEW:
        return encode_done((await here.renew(session_id),))
    if what == whereabouts.DELETE:
        count, before_ms = integer(question, "count"), integer(question, "before")
        return encode_done((await here.delete(session_id, count, before_ms),))
    if what == whereabouts.STATE:
        state = await here.state(session_id)
        return encode_found(b"\x00" if state is None else b"\x01" + state)
    if what == whereabouts.STORE:
        await here.store(session_id, content(question, "state") if "state" in question else None)
    else:
        await here.check(session_id)
    return encode_done(())
