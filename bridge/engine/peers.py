"""Questions between bridges, such as a settlement that arrives at a bridge without the lock.

Every bridge has its own queue, exclusive to its connection, and a lock token names its bridge. A
bridge that is gone has no queue, and its locks have ended: a question to it comes back unroutable.
Each part of the engine that answers questions says so (`Peers.answer`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bridge.background.tasks import Tasks
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.sending.sender import Sender
from bridge.model.errors import InternalError, ServerBusy, ServiceBusError
from bridge.topology import names
from bridge.topology.parts import SCHEMA, bound_by_own_name
from bridge.topology.resources import Binding
from bridge.wire.basic import Properties, Table, decode_table, encode_table
from bridge.wire.reply import Done, encode_refused
from bridge.wire.sessions import string

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """A question that has come.

    Attributes:
        what: the question's name, its field `do`.
        table: its fields.
        address: where the answer goes; "" if none is wanted.
        exchange: the exchange that it was published to: RabbitMQ's permissions apply to it.
    """

    what: str
    table: Table
    address: str
    exchange: str


Answers = Callable[[Question], Awaitable[bytes]]
"""Carries out a question; returns the encoded reply (`wire.reply`).

It may raise `ServiceBusError` (the question is refused), `BrokerError` (RabbitMQ is busy), and
`LookupError`, `ValueError`, `TypeError` or `AttributeError` (the question cannot be read)."""


class Peers:
    """Asks other bridges, and hands their questions to the parts that answer them."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._named: dict[str, Answers] = {}
        self._prefixed: dict[str, Answers] = {}
        self._bound: Binding | None = None
        self._answers = Tasks()

    def answer(self, what: str, answer: Answers) -> None:
        """Have questions of this name answered; of all names that begin so if it ends in `-`."""
        (self._prefixed if what.endswith("-") else self._named)[what] = answer

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

    def _on_question(self, delivery: Delivery) -> None:
        self._answers.start(self._answer(delivery))

    async def _answer(self, delivery: Delivery) -> None:
        try:
            properties = Properties.decode(delivery.properties)
        except ValueError as error:
            log.error("peer.malformed error=%r", error)
            return
        try:
            table, address = decode_table(delivery.body)[0], properties.reply_to or ""
            question = Question(string(table, "do"), table, address, delivery.exchange)
            reply = await self._handler(question.what)(question)
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

    def _handler(self, what: str) -> Answers:
        prefix, hyphen, _ = what.partition("-")
        found = self._named.get(what) or self._prefixed.get(prefix + hyphen)
        if found is None:
            raise LookupError(what)
        return found
