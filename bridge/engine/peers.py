"""Questions between bridges, such as a settlement that arrives at a bridge without the lock.

Every bridge has its own queue, exclusive to its connection, and a lock token names its bridge. A
bridge that is gone has no queue, and its locks have ended: a question to it comes back unroutable.
To count messages a bridge asks all others for the messages that they hold.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from bridge.background.tasks import Tasks
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine import texts
from bridge.engine.api import Abandon, Complete, DeadLetter, Defer, Disposition, Release
from bridge.engine.clients import CLIENT
from bridge.engine.sending.sender import Sender
from bridge.engine.settlement.locktable import INSTANCE_BYTES
from bridge.model.errors import (
    InternalError,
    MessageLockLost,
    ServerBusy,
    ServiceBusError,
    Unauthorized,
)
from bridge.model.name import EntityPath, parse_path
from bridge.topology import names
from bridge.topology.parts import SCHEMA, bound_by_own_name
from bridge.topology.resources import Binding
from bridge.wire.administration import (
    ADMINISTER,
    Administer,
    decode_request,
    encode_response,
)
from bridge.wire.basic import Properties, Table, decode_table, encode_table, long, text
from bridge.wire.mapping.fields import AMQP_ENCODED
from bridge.wire.reply import Done, encode_done, encode_found, encode_refused

_KINDS: dict[str, type[Disposition]] = {
    "complete": Complete,
    "abandon": Abandon,
    "dead-letter": DeadLetter,
    "defer": Defer,
    "release": Release,
}

log = logging.getLogger(__name__)

Settle = Callable[[EntityPath, UUID, Disposition], Awaitable[None]]
Renew = Callable[[EntityPath, Sequence[UUID]], list[int]]
Show = Callable[[UUID], bytes]
Held = Callable[[Sequence[str]], list[int]]
OfSessions = Callable[[str, Table], Awaitable[bytes]]
OfClients = Callable[[str, Table, str], Awaitable[bytes]]
WaitingHere = Callable[[str, int, int], list[int] | None]
"""Returns the numbers of an entity's scheduled messages, from a number on, up to a count; `None`:
this process does not lead the entity."""

HELD = 3
"""The numbers of an entity in `Counting.held`."""

SESSIONS = "session-"
"""The prefix of `do` in questions between bridges about sessions."""

STANDBYS = "standbys"
"""`do` of a question without an answer: which inboxes a bridge consumes (`membership`)."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a bridge tells of entities; parts are empty where an earlier version does not tell.

    Attributes:
        held, scheduled: as `Counting.held` and `Counting.scheduled` return them there.
        accessed: as `Usage.accessed_ms` returns it there.
    """

    held: Sequence[int] = ()
    scheduled: Sequence[int] = ()
    accessed: Sequence[int] = ()


def _unheard(question: Table) -> None:
    pass


class Peers:
    """Asks other bridges, and answers them.

    Args:
        settle: settles a lock of this process.
        renew: renews locks of this process.
        show: returns the encoded message of a lock of this process.
        held: counts the messages of entities that this process holds (`Counting.held`).
        scheduled: counts the scheduled messages of the entities that this process leads.
        accessed: returns when entities were used last (`Usage.accessed_ms`).
        used: returns the last use of entities, and whether they are refused (`Usage.answer`).
        of_sessions: carries out a request about sessions; returns the reply.
        waiting_here: returns the numbers of scheduled messages of an entity that is led here.
        of_clients: carries out a client's request, given its address; returns the reply.
        administer: answers requests to the administration API.

    Attributes:
        on_standbys: called with what another bridge tells of the inboxes that it consumes.
    """

    def __init__(
        self,
        sender: Sender,
        settle: Settle,
        renew: Renew,
        show: Show,
        held: Held,
        scheduled: Held,
        accessed: Held,
        used: Held,
        of_sessions: OfSessions,
        waiting_here: WaitingHere,
        of_clients: OfClients,
        administer: Administer,
    ) -> None:
        self._sender = sender
        self._settle = settle
        self._renew = renew
        self._show = show
        self._held = held
        self._scheduled = scheduled
        self._accessed = accessed
        self._of_sessions = of_sessions
        self._used = used
        self._waiting_here = waiting_here
        self._of_clients = of_clients
        self._administer = administer
        self.on_standbys: Callable[[Table], None] = _unheard
        self._bound: Binding | None = None
        self._answers = Tasks()

    async def listen(self, connection: Connection, instance: bytes) -> None:
        """Answer questions on a connection, as long as it lasts.

        Args:
            connection: the extra consuming connection, not that of a queue's messages.
            instance: the bridge's name in lock tokens, new for each connection: while the node of
                an earlier connection is down, RabbitMQ keeps the name of its exclusive queue (405,
                seen on 4.3).
        """
        channel = await connection.channel()
        queue = names.bridge_queue(instance)
        await channel.declarations.declare_queue(
            queue, durable=False, exclusive=True, auto_delete=True
        )
        self._bound = bound_by_own_name(names.ADMINISTRATION, queue)
        await self.bind(channel)
        await channel.consumers.consume(queue, self._on_question, no_ack=True)

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The binding of this process's own queue, once it listens."""
        return () if self._bound is None else (self._bound,)

    async def bind(self, channel: Channel) -> None:
        """Make the exchange of administration and the binding, if they are missing."""
        await channel.declarations.declare_exchange(
            names.ADMINISTRATION, "direct", arguments=SCHEMA
        )
        for binding in self.bindings:
            await channel.declarations.bind(binding)

    async def settle(self, path: EntityPath, token: UUID, disposition: Disposition) -> None:
        """Settle a lock of another bridge."""
        kind = next(name for name, made in _KINDS.items() if isinstance(disposition, made))
        question = _question(kind, path, token)
        for name in ("reason", "description"):
            value = getattr(disposition, name, None)
            if value is not None:
                question[name] = text(value)
        plain: Table = {}
        encoded: Table = {}
        for name, field in getattr(disposition, "properties", {}).items():
            if field[0] == AMQP_ENCODED:
                encoded[name] = ("x", field[1])
            else:
                plain[name] = field
        question["plain"], question["encoded"] = ("F", plain), ("F", encoded)
        await self._ask(token, question)

    async def renew(self, path: EntityPath, token: UUID) -> int:
        """Renew a lock of another bridge; return its new end (UTC ms)."""
        return (await self._ask(token, _question("renew", path, token))).numbers[0]

    async def show(self, path: EntityPath, token: UUID) -> bytes:
        """Return the encoded message of another bridge's lock (`settlement.showing`)."""
        return (await self._ask(token, _question("show", path, token))).content

    async def counts(self, bridge: bytes, paths: Sequence[str]) -> Told:
        """Return what a bridge tells of entities; of a gone bridge, nothing."""
        asked = {"path": text("\n".join(paths)), "scheduled": ("t", True), "accessed": ("t", True)}
        numbers = await self._numbers(bridge, {"do": text("count"), **asked})
        count = len(paths)
        held, led = HELD * count, (HELD + 1) * count
        return Told(numbers[:held], numbers[held:led], numbers[led:])

    async def waiting(self, bridge: bytes, path: str, start: int, count: int) -> list[int]:
        """Return the numbers of an entity's scheduled messages, if the bridge leads the entity."""
        asked = {"path": text(path), "start": long(start), "count": long(count)}
        return await self._numbers(bridge, {"do": text("waiting"), **asked})

    async def used(self, bridge: bytes, paths: Sequence[str]) -> list[int]:
        """Return when a bridge's clients used entities last (`Usage.answer`).

        Returns:
            Two numbers an entity: the time since the last use (ms; -1: never), and 1 if the bridge
            refuses the entity. Of a gone bridge, an empty list.
        """
        return await self._numbers(bridge, {"do": text("used"), "path": text("\n".join(paths))})

    async def _numbers(self, bridge: bytes, question: Table) -> list[int]:
        try:
            return list((await self.ask(bridge, question)).numbers)
        except Unroutable:
            return []

    def post(
        self, bridge: bytes, question: Table, done: Callable[[BrokerError | None], None]
    ) -> None:
        """Send a bridge a question without waiting for a reply; `done` is called with the outcome.

        Questions arrive in the order of the calls of `post` and `ask`.

        Raises:
            ServerBusy, BrokerError: the question was not sent.
        """
        self._sender.post(names.bridge_queue(bridge), encode_table(question), done)

    async def ask(self, bridge: bytes, question: Table) -> Done:
        """Ask a bridge, by its name, and return its reply.

        Raises:
            Unroutable: the bridge is gone.
            ServiceBusError: the reply is this error, or there is none.
        """
        owner = names.bridge_queue(bridge)
        return await self._sender.ask("", owner, {}, encode_table(question), persistent=False)

    async def _ask(self, token: UUID, question: Table) -> Done:
        try:
            return await self.ask(token.bytes[:INSTANCE_BYTES], question)
        except Unroutable as error:
            raise MessageLockLost(texts.LOCK_LOST) from error

    def _on_question(self, delivery: Delivery) -> None:
        self._answers.start(self._answer(delivery))

    async def _answer(self, delivery: Delivery) -> None:
        try:
            properties = Properties.decode(delivery.properties)
        except ValueError as error:
            log.error("peer.malformed error=%r", error)
            return
        try:
            question, address = decode_table(delivery.body)[0], properties.reply_to or ""
            reply = await self._carry_out(question, delivery.exchange, address)
        except ServiceBusError as error:
            reply = encode_refused(error.condition, str(error))
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            log.error("peer.malformed error=%r", error)
            reply = encode_refused(InternalError.condition, "The question cannot be read.")
        except BrokerError as error:
            reply = encode_refused(ServerBusy.condition, texts.busy(str(error)))
        except Exception as error:
            log.exception("peer.failed")
            reply = encode_refused(InternalError.condition, f"The bridge failed: {error!r}")
        if not properties.reply_to:
            return
        try:
            self._sender.answer(properties.reply_to, properties.correlation_id or "", reply)
        except BrokerError as error:
            log.warning("peer.unanswered error=%s", error)

    async def _carry_out(self, question: Table, exchange: str, address: str) -> bytes:
        what = _string(question, "do")
        if what == ADMINISTER:
            if exchange != names.ADMINISTRATION:
                raise Unauthorized(
                    f"Who administers entities needs RabbitMQ's permission to write to the "
                    f"exchange {names.ADMINISTRATION}, and asks there."
                )
            return encode_found(encode_response(await self._administer(decode_request(question))))
        if what == "count":
            paths = _string(question, "path").split("\n")
            scheduled = self._scheduled(paths) if "scheduled" in question else []
            accessed = self._accessed(paths) if "accessed" in question else []
            return encode_done([*self._held(paths), *scheduled, *accessed])
        if what == "used":
            return encode_done(self._used(_string(question, "path").split("\n")))
        if what.startswith(SESSIONS):
            return await self._of_sessions(what, question)
        if what.startswith(CLIENT):
            return await self._of_clients(what, question, address)
        if what == STANDBYS:
            self.on_standbys(question)
            return encode_done(())
        if what == "waiting":
            start, count = (cast(int, question[name][1]) for name in ("start", "count"))
            found = self._waiting_here(_string(question, "path"), start, min(count, 5_000))
            return encode_done(found or ())
        path = parse_path(_string(question, "path"))
        token = UUID(bytes=cast(bytes, question["token"][1]))
        if what == "renew":
            return encode_done(self._renew(path, [token]))
        if what == "show":
            return encode_found(self._show(token))
        await self._settle(path, token, _disposition(what, question))
        return encode_done(())


def _question(what: str, path: EntityPath, token: UUID) -> Table:
    return {"do": text(what), "path": text(str(path)), "token": ("x", token.bytes)}


def _disposition(kind: str, question: Table) -> Disposition:
    made = _KINDS[kind]
    if made in (Complete, Release):
        return made()
    properties = dict(cast(Table, question["plain"][1]))
    for name, field in cast(Table, question["encoded"][1]).items():
        properties[name] = (AMQP_ENCODED, field[1])
    if made is DeadLetter:
        return DeadLetter(
            reason=_string(question, "reason") if "reason" in question else None,
            description=_string(question, "description") if "description" in question else None,
            properties=properties,
        )
    return Abandon(properties=properties) if made is Abandon else Defer(properties=properties)


def _string(question: Table, name: str) -> str:
    return cast(bytes, question[name][1]).decode()
