"""The links of one connection, and how they end.

A fault of the bridge in the handling of one link ends this link, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from bridge.gateway.client import texts
from bridge.gateway.client.endings import Endings
from bridge.machine.amqp10.faults import DETACH_FORCED, INTERNAL_ERROR, LinkFault
from bridge.machine.amqp10.link import IncomingLink, Link, OutgoingLink
from bridge.model.claims import missing_right
from bridge.model.entity import Right
from bridge.model.errors import ServiceBusError, Unauthorized
from bridge.model.name import EntityPath

if TYPE_CHECKING:
    from bridge.gateway.client.client import Client


class LinkOwner(Protocol):
    """What handles the events of a link."""

    @property
    def link(self) -> IncomingLink | OutgoingLink:
        """The link of AMQP."""

    def on_detached(self) -> None:
        """Release what the link has, which is gone."""


class EntityLink:
    """A link to or from an entity; other links are those of nodes.

    Attributes:
        path: the entity.
        right: the right that the client's token must give for as long as the link lives.
    """

    right: Right
    link: IncomingLink | OutgoingLink
    path: EntityPath

    def refusal(self) -> ServiceBusError | None:
        """Return the error for going on with the link; `None` while it is allowed."""
        raise NotImplementedError

    def on_detached(self) -> None:
        """Release what the link has, which is gone."""
        raise NotImplementedError

    def leave(self) -> None:
        """Ask for nothing more: the client is leaving."""

    def has_locked(self, is_locked: Callable[[UUID], bool]) -> bool:
        """Whether the client has a message of the link whose lock has not ended."""
        return False


class Links:
    """The links of one connection, and their ends.

    Args:
        endings: the links of all clients that have ended and are not released yet.
    """

    def __init__(self, client: Client, endings: Endings) -> None:
        self._client = client
        self._endings = endings
        self._alive: dict[EntityLink, None] = {}

    def __len__(self) -> int:
        return len(self._alive)

    def add(self, link: EntityLink) -> None:
        """Add a link to or from an entity: it ends with the right to it."""
        self._alive[link] = None

    def spawn(self, link: Link, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of a link: its failure ends the link."""
        return self._client.work.spawn(work, partial(self.fail, link))

    def fail(self, link: Link, error: Exception) -> None:
        """End a link alone whose handling has failed, or that has reached a limit."""
        if isinstance(error, LinkFault):
            self._client.log.info("link.ended", reason=error.error.description)
            link.detach(error.error.condition, error.error.description or "")
        else:
            self._client.log.failed(error)
            link.detach(INTERNAL_ERROR, texts.FAILED_LINK)
        if link.owner is not None:
            self.forget(link.owner)
        self._client.flush_soon()

    def forget(self, owner: LinkOwner) -> None:
        """Forget an ended link, and release its resources once, in this turn or a later one."""
        if isinstance(owner, EntityLink):
            if owner not in self._alive:
                return
            del self._alive[owner]
        self._endings.add(self._client, partial(_release, owner))

    def forget_all(self) -> None:
        """Forget all links."""
        for link in list(self._alive):
            self.forget(link)
        self._client.reply_links.drop_all()

    def stop(self) -> None:
        """Receive nothing more for the client."""
        for link in list(self._alive):
            if link.right is Right.LISTEN:
                self.forget(link)

    def leave(self) -> None:
        """Ask for no more messages and sessions; those that the client has stay."""
        for link in list(self._alive):
            link.leave()

    def have_locked(self, is_locked: Callable[[UUID], bool]) -> bool:
        """Whether the client has a message whose lock has not ended."""
        return any(link.has_locked(is_locked) for link in self._alive)

    def drop_unauthorized(self) -> None:
        """End the links that no token allows any more, after a token's expiry."""
        client = self._client
        for link in list(self._alive):
            if link.link.is_alive and not client.grants.allows(link.right, link.path):
                text = texts.TOKEN_EXPIRED.format(resource=client.resource_of(str(link.path)))
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
        if not self._client.grants.allows(link.right, link.path):
            return missing_right(link.right, self._client.resource_of(str(link.path)))
        return link.refusal()

    def end_unknown(self, link: EntityLink, error: ServiceBusError) -> None:
        """End a link on which a message was sent of which nobody knows whether it is stored.

        SDKs take the end of a link for a fault of the connection: what was sent may have arrived,
        and is sent again by their retry options, on another link. Of `com.microsoft:timeout` the
        Python SDK would make an error of the link for good.
        """
        entity = str(link.path)
        _, description = self._client.describe(error, entity)
        link.link.detach(DETACH_FORCED, description)
        self._client.log.info("send.unknown", entity=entity, reason=str(error))
        self.forget(link)

    def _end_soon(self, link: EntityLink, error: ServiceBusError, note: str, **fields: str) -> None:
        """End one of perhaps many links with an error, in this turn or a later one."""
        end = partial(self._end, link, error, note, **fields)
        self._endings.add(self._client, end)

    def _end(self, link: EntityLink, error: ServiceBusError, note: str, **fields: str) -> None:
        if not link.link.is_alive:
            return
        entity = str(link.path)
        link.link.detach(*self._client.describe(error, entity))
        self._client.log.info(note, entity=entity, **fields)
        self._client.flush_soon()
        self.forget(link)


def _release(owner: LinkOwner) -> None:
    try:
        owner.on_detached()
    finally:
        owner.link.owner = None  # freed at once: without a cycle, it waits for no collection
