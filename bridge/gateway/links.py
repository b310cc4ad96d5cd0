"""The links of one connection: dispatch of their events, and their end.

A fault of the bridge in the handling of one link ends this link, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from bridge.gateway import attaching, texts
from bridge.gateway.nodes import ReplyLink, RequestLink
from bridge.gateway.receiving import ReceivingLink
from bridge.gateway.sending import SendingLink
from bridge.gateway.sessions import SessionLink
from bridge.machine.amqp10.events import (
    Closed,
    CreditChanged,
    Event,
    LinkAttached,
    LinkDetached,
    MessageArrived,
    MessageRefused,
    MessageWritten,
    Opened,
    OutcomeArrived,
    SaslChosen,
)
from bridge.machine.amqp10.faults import DETACH_FORCED, INTERNAL_ERROR, LinkFault
from bridge.machine.amqp10.link import Link
from bridge.model.claims import missing_right
from bridge.model.errors import ServiceBusError, Unauthorized

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection

EntityLink = SendingLink | ReceivingLink | SessionLink
"""A link to or from an entity; other links are those of `$cbs` and `$management`."""

LinkEvent = (
    MessageArrived
    | MessageRefused
    | MessageWritten
    | OutcomeArrived
    | CreditChanged
    | LinkAttached
    | LinkDetached
)


class Links:
    """The links of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._alive: dict[EntityLink, None] = {}

    def __len__(self) -> int:
        return len(self._alive)

    def on_event(self, event: Event) -> None:
        """Pass an event to its link, or to the connection."""
        match event:
            case SaslChosen() | Opened() | Closed():
                self._connection.on_event(event)
            case _:
                try:
                    self._on_event(event)
                except Exception as error:
                    self.fail(event.link, error)

    def _on_event(self, event: LinkEvent) -> None:
        owner = event.link.owner
        match event:
            case MessageArrived():
                if isinstance(owner, SendingLink | RequestLink):
                    owner.on_message(event)
            case MessageRefused():
                if isinstance(owner, SendingLink | RequestLink):
                    owner.top_up()
            case MessageWritten():
                if isinstance(owner, ReceivingLink | SessionLink | ReplyLink):
                    owner.on_written()
            case OutcomeArrived():
                if isinstance(owner, ReceivingLink | SessionLink):
                    owner.on_outcome(event)
            case CreditChanged():
                if isinstance(owner, ReceivingLink | SessionLink | ReplyLink):
                    owner.on_credit(event)
            case LinkAttached():
                try:
                    attaching.attach(self._connection, event.link)
                finally:
                    if isinstance(event.link.owner, EntityLink):
                        self._alive[event.link.owner] = None
            case LinkDetached():
                if owner is not None:
                    self.forget(owner)
            case _:
                assert_never(event)

    def spawn(self, link: Link, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of a link: its failure ends the link."""
        return self._connection.work.spawn(work, partial(self.fail, link))

    def fail(self, link: Link, error: Exception) -> None:
        """End a link alone whose handling has failed, or that has reached a limit."""
        if isinstance(error, LinkFault):
            self._connection.log.info("link.ended", reason=error.error.description)
            link.detach(error.error.condition, error.error.description or "")
        else:
            self._connection.log.failed(error)
            link.detach(INTERNAL_ERROR, texts.FAILED_LINK)
        if link.owner is not None:
            self.forget(link.owner)
        self._connection.flush_soon()

    def forget(self, owner: EntityLink | ReplyLink | RequestLink) -> None:
        """Forget an ended link, and release its resources once, in this turn or a later one."""
        if isinstance(owner, EntityLink):
            if owner not in self._alive:
                return
            del self._alive[owner]
        self._connection.gateway.endings.add(self._connection, partial(_release, owner))

    def forget_all(self) -> None:
        """Forget all links."""
        for link in list(self._alive):
            self.forget(link)
        self._connection.reply_links.drop_all()

    def stop(self) -> None:
        """Receive nothing more for the client."""
        for link in list(self._alive):
            if isinstance(link, ReceivingLink | SessionLink):
                self.forget(link)

    def drop_unauthorized(self) -> None:
        """End the links that no token allows any more, after a token's expiry."""
        connection = self._connection
        for link in list(self._alive):
            if link.link.is_alive and not connection.grants.allows(link.right, link.path):
                text = texts.TOKEN_EXPIRED.format(resource=connection.resource_of(str(link.path)))
                self._end_soon(link, Unauthorized(text), "link.expired")

    def recheck(self) -> Iterator[None]:
        """End the links that are not allowed any more, one a step.

        Called after a change of entities, or of the rules that give rights.
        """
        for link in list(self._alive):
            try:
                error = self._refusal(link) if link.link.is_alive else None
                if error is not None:
                    self._end_soon(link, error, "link.ended", reason=str(error))
            except Exception as fault:
                self.fail(link.link, fault)
            yield

    def _refusal(self, link: EntityLink) -> ServiceBusError | None:
        """Return the error for going on with a link; `None` while it is allowed."""
        if not self._connection.grants.allows(link.right, link.path):
            return missing_right(link.right, self._connection.resource_of(str(link.path)))
        return link.refusal()

    def end_unknown(self, link: SendingLink, error: ServiceBusError) -> None:
        """End a link on which a message was sent of which nobody knows whether it is stored.

        SDKs take the end of a link for a fault of the connection: what was sent may have arrived,
        and is sent again by their retry options, on another link. Of `com.microsoft:timeout` the
        Python SDK would make an error of the link for good.
        """
        entity = str(link.path)
        _, description = self._connection.describe(error, entity)
        link.link.detach(DETACH_FORCED, description)
        self._connection.log.info("send.unknown", entity=entity, reason=str(error))
        self.forget(link)

    def _end_soon(self, link: EntityLink, error: ServiceBusError, note: str, **fields: str) -> None:
        """End one of perhaps many links with an error, in this turn or a later one."""
        end = partial(self._end, link, error, note, **fields)
        self._connection.gateway.endings.add(self._connection, end)

    def _end(self, link: EntityLink, error: ServiceBusError, note: str, **fields: str) -> None:
        if not link.link.is_alive:
            return
        entity = str(link.path)
        link.link.detach(*self._connection.describe(error, entity))
        self._connection.log.info(note, entity=entity, **fields)
        self._connection.flush_soon()
        self.forget(link)


def _release(owner: EntityLink | ReplyLink | RequestLink) -> None:
    try:
        owner.on_detached()
    finally:
        owner.link.owner = None  # freed at once: without a cycle, it waits for no collection
