"""The links of one connection: dispatch of their events, and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.gateway import attaching, texts
from bridge.gateway.nodes import ReplyLink, RequestLink
from bridge.gateway.receiving import ReceivingLink
from bridge.gateway.sending import SendingLink
from bridge.gateway.sessions import SessionLink
from bridge.machine.amqp10.events import (
    CreditChanged,
    Event,
    LinkAttached,
    LinkDetached,
    MessageArrived,
    MessageRefused,
    OutcomeArrived,
)
from bridge.model.errors import ServiceBusError, Unauthorized

if TYPE_CHECKING:
    from bridge.gateway.connection import Connection

EntityLink = SendingLink | ReceivingLink | SessionLink
"""A link to or from an entity; other links are those of `$cbs` and `$management`."""


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
            case MessageArrived():
                owner = event.link.owner
                if isinstance(owner, SendingLink | RequestLink):
                    owner.on_message(event)
            case MessageRefused():
                if isinstance(event.link.owner, SendingLink | RequestLink):
                    event.link.owner.top_up()
            case OutcomeArrived():
                if isinstance(event.link.owner, ReceivingLink | SessionLink):
                    event.link.owner.on_outcome(event)
            case CreditChanged():
                if isinstance(event.link.owner, ReceivingLink | SessionLink | ReplyLink):
                    event.link.owner.on_credit(event)
            case LinkAttached():
                attaching.attach(self._connection, event.link)
                if isinstance(event.link.owner, EntityLink):
                    self._alive[event.link.owner] = None
            case LinkDetached():
                if event.link.owner is not None:
                    self.forget(event.link.owner)
            case _:
                self._connection.on_event(event)

    def forget(self, owner: EntityLink | ReplyLink | RequestLink) -> None:
        """Forget an ended link, and release its resources once."""
        if isinstance(owner, EntityLink):
            if owner not in self._alive:
                return
            del self._alive[owner]
        owner.on_detached()

    def forget_all(self) -> None:
        """Forget all links."""
        for link in list(self._alive):
            self.forget(link)

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
                self._end(link, Unauthorized(text), "link.expired")

    def recheck(self) -> None:
        """End the links that are not allowed any more, after a change of entities."""
        for link in list(self._alive):
            error = link.refusal() if link.link.is_alive else None
            if error is not None:
                self._end(link, error, "link.ended", reason=str(error))
        self._connection.flush()

    def _end(self, link: EntityLink, error: ServiceBusError, note: str, **fields: str) -> None:
        entity = str(link.path)
        link.link.detach(*self._connection.describe(error, entity))
        self._connection.log.info(note, entity=entity, **fields)
        self.forget(link)
