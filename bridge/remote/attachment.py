"""A link from the attach that asks for it to its end; senders, receivers and requests hold one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from typing import TypeVar

from bridge.machine.amqp10.client_link import ClientIncomingLink, ClientOutgoingLink
from bridge.machine.amqp10.events import ClientEvent, LinkDetached, LinkOpened
from bridge.machine.amqp10.faults import LinkFault
from bridge.machine.amqp10.link import Link
from bridge.remote.connection import RemoteConnection
from bridge.remote.errors import (
    CONNECTION_FORCED,
    DETACH_FORCED,
    TIMEOUT,
    RemoteBusy,
    RemoteConnectionLost,
    RemoteError,
    RemoteLinkEnded,
    RemoteTimeout,
    error_of,
)

ATTACH_S = 60.0
"""How long a server may take to answer an attach, or a request (the SDKs: 60 s)."""

DETACH_S = 5.0
"""How long the end of a link waits for the server's answer."""

_Link = TypeVar("_Link", ClientIncomingLink, ClientOutgoingLink)

OnEvent = Callable[[ClientEvent], None]


class Attachment:
    """The owner of one link; the session that was begun for it ends with it.

    Args:
        on_event: called with each event of the open link, its end too.

    Attributes:
        ended: why the link has ended; `None` as long as it lives.
    """

    def __init__(self, connection: RemoteConnection, on_event: OnEvent) -> None:
        self.connection = connection
        self.ended: RemoteError | None = None
        self._told = on_event
        self._changed = asyncio.Event()
        self._is_open = False

    async def open(
        self, ask: Callable[[], _Link], what: str, *, within_s: float = ATTACH_S
    ) -> _Link:
        """Attach a link and wait for the server's answer.

        Args:
            ask: asks for the link.
            what: names it in errors.

        Raises:
            RemoteTimeout: no answer in time; the link is given up.
            RemoteError: the server's refusal, or the connection's end.
        """
        try:
            link = ask()
        except LinkFault as fault:
            raise self.connection.lost or RemoteLinkEnded(
                fault.error.condition, fault.error.description or ""
            ) from None
        link.owner = self
        self.connection.flush_soon()
        try:
            async with asyncio.timeout(within_s):
                while not self._is_open and self.ended is None:
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            self.drop(link)
            text = f"The server has not answered the attach of {what} within {within_s:.0f} s."
            raise RemoteTimeout(TIMEOUT, text) from None
        except BaseException:
            self.drop(link)
            raise
        if self.ended is not None:
            raise self.ended
        return link

    async def end(self, link: ClientIncomingLink | ClientOutgoingLink) -> None:
        """Detach the link, and wait a little for the server's answer; nothing is raised."""
        link.end()
        self.connection.flush_soon()
        try:
            async with asyncio.timeout(DETACH_S):
                while self.ended is None:
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            self.drop(link)

    def drop(self, link: Link) -> None:
        """End the link's session, and so the link, at once."""
        link.session.end(None)
        self.connection.flush_soon()

    def on_event(self, event: ClientEvent) -> None:
        """Handle an event of the link."""
        if isinstance(event, LinkOpened):
            self._is_open = True
            self._changed.set()
            return
        if isinstance(event, LinkDetached):
            self.ended = self._error_of(event)
            self.connection.pause.begin(self.ended)
            self._changed.set()
            self.drop(event.link)
            if not self._is_open:
                return
        self._told(event)

    def _error_of(self, event: LinkDetached) -> RemoteError:
        error = event.link.error  # type: ignore[attr-defined]
        if error is not None:
            return error_of(error.condition, error.description)
        lost = self.connection.lost
        if isinstance(lost, RemoteBusy):
            return copy(lost)
        if lost is not None:
            return RemoteConnectionLost(lost.condition, lost.description, lost.retryable)
        if not self.connection.is_open:
            return RemoteConnectionLost(CONNECTION_FORCED, "The connection has ended.")
        return RemoteLinkEnded(DETACH_FORCED, "The server has detached the link.")


def in_doubt(error: RemoteError) -> RemoteError:
    """Return an error for a call that had reached the transport: it may have been done."""
    found = copy(error)
    found.in_doubt = True
    return found
