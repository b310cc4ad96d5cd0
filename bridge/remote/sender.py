"""A sender of a remote namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from bridge.machine.amqp10.client_link import ClientOutgoingLink
from bridge.machine.amqp10.events import ClientEvent, CreditChanged, LinkDetached, OutcomeArrived
from bridge.machine.amqp10.faults import MESSAGE_SIZE_EXCEEDED
from bridge.machine.amqp10.link import OutgoingDelivery
from bridge.machine.amqp10.serial import MASK
from bridge.machine.amqp10.termini import SECOND, UNSETTLED
from bridge.remote.attachment import ATTACH_S, Attachment, in_doubt
from bridge.remote.batch import payload_of
from bridge.remote.connection import RemoteConnection
from bridge.remote.errors import (
    CONNECTION_FORCED,
    IMPORT_UNKNOWN,
    SOURCE_UNKNOWN,
    SUBSCRIPTION_UNKNOWN,
    TIMEOUT,
    RemoteConnectionLost,
    RemoteError,
    RemoteRefused,
    RemoteTimeout,
    answer_of,
)
from bridge.remote.message import RemoteMessage
from bridge.remote.patience import Patience
from bridge.wire.amqp10.performatives import Accepted, Error, Rejected, Source, Target
from bridge.wire.amqp10.scalars import Symbol
from bridge.wire.link_properties import BATCH_BYTES_MAX, IMPORT, RELAY_SOURCE, RELAY_SUBSCRIPTION

Attached = TypeVar("Attached")

CLOSED = "The sender was closed by this client."


class SendersNamespace(Protocol):
    """What a sender needs of its namespace.

    Attributes:
        patience: how long calls are made again that have failed and are not in doubt.
    """

    patience: Patience

    async def attached(
        self, entity: str, attach: Callable[[RemoteConnection], Awaitable[Attached]]
    ) -> Attached:
        """Attach links on the connection, on which this client has proved itself for an entity."""

    def forget(self, link: RemoteSender) -> None:
        """Close the sender no more with the namespace: it is closed."""


class RemoteSender:
    """Sends to a queue or topic; any number of sends may be under way.

    A link that has ended is attached again by the next send. Where the entity's answer about the
    source has changed, that send is refused with `SOURCE_UNKNOWN`: what it sends was made for the
    former answer. Once the entity knows the source, nothing is sent to one that does not.

    Args:
        relay_source: the source that all messages are copied from; `None` for none.
        subscription: the only subscription of the topic that gets them, with a source.
        import_run: the migration's run that imports them, each under the number that it had.

    Attributes:
        entity: the entity's path.
    """

    def __init__(
        self,
        namespace: SendersNamespace,
        entity: str,
        relay_source: str | None = None,
        subscription: str | None = None,
        import_run: str | None = None,
    ) -> None:
        self.entity = entity
        self._knew_source: bool | None = None
        self._said: dict[Symbol, str] | None = None
        if relay_source is not None:
            self._said = {RELAY_SOURCE: relay_source}
            if subscription is not None:
                self._said[RELAY_SUBSCRIPTION] = subscription
        elif import_run is not None:
            self._said = {IMPORT: import_run}
        self._namespace = namespace
        self._attachment: Attachment | None = None
        self._link: ClientOutgoingLink | None = None
        self._attaching = asyncio.Lock()
        self._has_credit = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._count = 0
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<RemoteSender {self.entity!r} {self._link!r} waiting={len(self._waiting)}>"

    @property
    def max_message_size(self) -> int:
        """The largest message that the entity takes, in bytes; 0 if it has not said."""
        return (self._link.peer.max_message_size or 0) if self._link is not None else 0

    @property
    def max_batch_size(self) -> int:
        """The largest batch that the entity takes, in bytes; 0 if it has not said."""
        found = self._answered.get(BATCH_BYTES_MAX)
        return found if isinstance(found, int) else self.max_message_size

    @property
    def knows_source(self) -> bool:
        """Whether the entity numbers no message of the relay's source twice: a bridge does."""
        return self._said is not None and self._answered.get(RELAY_SOURCE) is not None

    @property
    def _answered(self) -> dict[Any, Any]:
        """The link properties of the server's attach."""
        return (self._link.peer.properties or {}) if self._link is not None else {}

    async def attach(self) -> None:
        """Attach the link, if it is not; raises RemoteError."""
        await self._namespace.patience.repeat(self._attached)

    async def send(self, messages: Sequence[RemoteMessage], *, within_s: float = ATTACH_S) -> None:
        """Send messages: one as it is, several as one batch; return when they are accepted.

        The server takes all of a batch or nothing. What was refused for a while is sent again, as
        long as the namespace's patience lasts; what is in doubt is not.

        Args:
            within_s: how long the server may take to answer.

        Raises:
            RemoteRefused: too large, or the entity does not take it.
            RemoteConnectionLost, RemoteLinkEnded, RemoteTimeout: with `in_doubt` it may have been
                accepted.
            RemoteError: the server's refusal.
        """
        if not messages:
            return
        payload, message_format = payload_of(messages)
        await self._namespace.patience.repeat(lambda: self._send(payload, message_format, within_s))

    async def _send(self, payload: bytes, message_format: int, within_s: float) -> None:
        link = self._link
        if link is None or not link.is_open:
            link = await self._attached()
        size_max = self.max_message_size
        if size_max and len(payload) > size_max:
            text = f"{len(payload)} bytes are more than the {size_max} that {self.entity} takes."
            raise RemoteRefused(MESSAGE_SIZE_EXCEEDED, text)
        number = None
        try:
            async with asyncio.timeout(within_s):
                while link.is_open and link.credit <= 0:
                    self._has_credit.clear()
                    await self._has_credit.wait()
                if not link.is_open:
                    raise self._why()
                number = self._write(link, payload, message_format)
                await self._waiting[number]
        except TimeoutError:
            text = f"{self.entity} has not answered a send within {within_s:.0f} s."
            error = RemoteTimeout(TIMEOUT, text)
            raise (error if number is None else in_doubt(error)) from None
        except RemoteError:
            if IMPORT in (self._said or {}):
                await self._end(link)  # behind a transfer that was refused it takes none
            raise
        finally:
            if number is not None:
                self._waiting.pop(number, None)

    def _write(self, link: ClientOutgoingLink, payload: bytes, message_format: int) -> int:
        self._count = (self._count + 1) & MASK
        number = self._count
        self._waiting[number] = asyncio.get_running_loop().create_future()
        link.send(number.to_bytes(4, "big"), payload, message_format, is_settled=False)
        assert self._attachment is not None
        self._attachment.connection.flush_soon()
        return number

    async def _attached(self) -> ClientOutgoingLink:
        async with self._attaching:
            if self._is_closed:
                raise RemoteConnectionLost(CONNECTION_FORCED, CLOSED, False)
            if self._link is not None and self._link.is_open:
                return self._link
            return await self._namespace.attached(self.entity, self._attach_on)

    async def _attach_on(self, connection: RemoteConnection) -> ClientOutgoingLink:
        session = connection.begin()
        attachment = Attachment(connection, self._on_event)
        name = str(uuid4())
        link = await attachment.open(
            lambda: session.attach_sender(
                name,
                Source(f"sender-link-{name}"),
                Target(self.entity),
                snd_settle_mode=UNSETTLED,
                rcv_settle_mode=SECOND,
                properties=self._said,
            ),
            self.entity,
        )
        answered = link.peer.properties or {}
        if RELAY_SUBSCRIPTION in (self._said or {}) and RELAY_SUBSCRIPTION not in answered:
            await attachment.end(link)
            text = f"{self.entity} would give the messages to all of its subscriptions."
            raise RemoteRefused(SUBSCRIPTION_UNKNOWN, text, False)
        if IMPORT in (self._said or {}) and IMPORT not in answered:
            await attachment.end(link)
            text = f"{self.entity} would give the messages numbers of its own."
            raise RemoteRefused(IMPORT_UNKNOWN, text, False)
        self._attachment, self._link = attachment, link
        before, self._knew_source = self._knew_source, self._knew_source or self.knows_source
        if before is not None and before != self.knows_source:
            await attachment.end(link)
            text = f"{self.entity} has changed whether it heeds the source of what is sent to it."
            raise RemoteRefused(SOURCE_UNKNOWN, text, False)
        return link

    def _why(self) -> RemoteError:
        assert self._attachment is not None
        return self._attachment.ended or RemoteConnectionLost(CONNECTION_FORCED, CLOSED, False)

    def _on_event(self, event: ClientEvent) -> None:
        match event:
            case OutcomeArrived(link, deliveries, outcome, is_settled):
                for each in deliveries:
                    self._on_outcome(each, outcome)
                    if not is_settled:
                        link.session.settle_outgoing(each, outcome)
            case CreditChanged():
                self._has_credit.set()
            case LinkDetached(link):
                self._has_credit.set()
                if link is self._link:
                    error = in_doubt(self._why())
                    for number in list(self._waiting):
                        self._resolve(number, error)

    def _on_outcome(self, delivery: OutgoingDelivery, outcome: Any) -> None:
        number = int.from_bytes(delivery.tag, "big")
        match outcome:
            case Accepted():
                self._resolve(number, None)
            case Rejected(Error(condition, description)):
                self._resolve(number, answer_of(condition, description))
            case _:
                text = f"{self.entity} has not accepted the message: {outcome!r}."
                self._resolve(number, RemoteRefused("amqp:not-accepted", text, True))

    def _resolve(self, number: int, error: RemoteError | None) -> None:
        found = self._waiting.get(number)
        if found is None or found.done():
            return
        if error is None:
            found.set_result(None)
        else:
            found.set_exception(error)

    async def close(self) -> None:
        """Detach the link; what is being sent is in doubt."""
        self._is_closed = True
        self._namespace.forget(self)
        if self._link is not None:
            await self._end(self._link)

    async def _end(self, link: ClientOutgoingLink) -> None:
        if self._attachment is not None and link is self._link and link.is_open:
            await self._attachment.end(link)
