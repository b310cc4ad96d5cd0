"""A link on which a client holds a session of an entity, and receives the session's messages.

The client's attach is answered when the session is held; until then the link asks for no messages
and polls nothing. A client that goes away while it waits gives up its place. When the session's
lock ends the link is detached; when the link ends, the lock ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from bridge.engine.api import ReceiveMode, SessionReceiver
from bridge.gateway.client.client import Client, refuse
from bridge.gateway.client.links import EntityLink
from bridge.gateway.links.receiving import ReceivingLink, refusal_of
from bridge.machine.amqp10.events import CreditChanged, OutcomeArrived
from bridge.machine.amqp10.link import OutgoingLink
from bridge.model.entity import Right
from bridge.model.errors import ArgumentError, ServiceBusError
from bridge.model.name import EntityPath
from bridge.topology.shards import SessionKey
from bridge.wire.amqp10.performatives import Source
from bridge.wire.amqp10.types import Described, Long
from bridge.wire.link_properties import LOCKED_UNTIL, SESSION_FILTER, TIMEOUT, ticks

_SHARED = 0x137000000E
"""Descriptor of the filter that asks for a session which another receiver may take over (.NET)."""

TIMEOUT_S = 65.0
"""How long a client without that property waits for a next session (Azure's own tests)."""

EARLIER_S = 0.2
"""How long before the end of the client's own time the refusal is sent: with both at once the
JavaScript client reports a timeout of its own."""


def wants_session(source: Any) -> bool:
    """Whether an attach asks for a session."""
    return isinstance(source, Source) and SESSION_FILTER in (source.filter or {})


def is_shared(wanted: Any) -> bool:
    """Whether a filter asks for a session that another receiver may take over."""
    return isinstance(wanted, Described) and wanted.descriptor == _SHARED


def wanted_session(source: Any) -> str | None:
    """Return the session id that an attach asks for; `None` for the next free session.

    Raises:
        ArgumentError: the filter is no text.
    """
    wanted = source.filter[SESSION_FILTER]
    if isinstance(wanted, Described):
        wanted = wanted.value
    if wanted is not None and not isinstance(wanted, str):
        raise ArgumentError(f"'{SESSION_FILTER}' must be a string or null.")
    return None if wanted is None else str(wanted)


def filter_of(source: Any, session_id: str) -> dict[Any, Any]:
    """Return the filter of the gateway's attach: the accepted session.

    The Go client describes its filter and reads described filters only; the others do neither.
    """
    wanted = source.filter[SESSION_FILTER]
    if isinstance(wanted, Described):
        return {SESSION_FILTER: Described(wanted.descriptor, session_id)}
    return {SESSION_FILTER: session_id}


def wait_s(properties: Mapping[Any, Any] | None) -> float:
    """Return how long a client waits for the answer to its attach."""
    given_ms = (properties or {}).get(TIMEOUT)
    if not isinstance(given_ms, int) or isinstance(given_ms, bool) or given_ms < 0:
        return TIMEOUT_S
    return max(given_ms / 1000 - EARLIER_S, given_ms / 2000)


class SessionLink(EntityLink):
    """A client's session receiver: first waiting for the session, then holding the session.

    Attributes:
        path: the entity of the session.
        right: the right that the client's token must give for as long as the link lives.
        session_id: the held session, as the client has asked for it, or was told of the next one;
            `None` while waiting.
    """

    link: OutgoingLink
    right = Right.LISTEN

    def __init__(
        self, client: Client, link: OutgoingLink, path: EntityPath, mode: ReceiveMode
    ) -> None:
        wanted = wanted_session(link.peer.source)
        self.link = link
        self.path = path
        self.client = client
        self.session_id: str | None = None
        self._key: tuple[str, SessionKey] | None = None
        self._receiving = ReceivingLink(client, link, path, in_session=True)
        link.owner = self
        self._waiting: asyncio.Task[None] | None = None
        if not client.is_leaving:  # else it asks again on another connection
            accepting = self._accept(wanted, mode, wait_s(link.peer.properties))
            self._waiting = client.links.spawn(link, accepting)

    async def _accept(self, wanted: str | None, mode: ReceiveMode, timeout_s: float) -> None:
        """Wait for the session and answer the attach."""
        try:
            receiver = await self.client.namespace.accept_session(
                self.path,
                wanted,
                mode=mode,
                deliver=self._receiving.deliver,
                on_lost=self._on_lost,
                timeout_s=timeout_s,
            )
        except ServiceBusError as error:
            refuse(self.client, self.link, str(self.path), error)
            self.client.links.forget(self)
        else:
            await self._hold(receiver)
        self.client.flush_soon()

    async def _hold(self, receiver: SessionReceiver) -> None:
        if not self.link.is_alive:
            await receiver.close()
            return
        self.session_id = receiver.session_id
        self._key = self.path.key, receiver.session_key
        self.client.sessions[self._key] = self
        self._receiving.begin(
            receiver,
            filters=filter_of(self.link.peer.source, receiver.session_id),
            properties={LOCKED_UNTIL: Long(ticks(receiver.locked_until_ms))},
        )

    def _on_lost(self, error: ServiceBusError) -> None:
        """Detach the link when the session's lock has ended."""
        self.link.detach(*self.client.describe(error, str(self.path)))
        self.client.log.info("session.lost", entity=str(self.path), reason=str(error))
        self.client.links.forget(self)
        self.client.flush_soon()

    def on_credit(self, event: CreditChanged) -> None:
        """Handle a change of the client's credit."""
        self._receiving.on_credit(event)

    def on_written(self) -> None:
        """Note that a received-and-deleted message is in the client's output."""
        self._receiving.on_written()

    def leave(self) -> None:
        """Wait no more for a session; of one that is held, ask for no more messages."""
        if self.session_id is None:
            self.client.links.forget(self)
        else:
            self._receiving.leave()

    def has_locked(self, is_locked: Callable[[UUID], bool]) -> bool:
        """Whether the client has a message of the session, which it holds."""
        return bool(self.link.unsettled)

    def on_outcome(self, event: OutcomeArrived) -> None:
        """Settle the client's deliveries."""
        self._receiving.on_outcome(event)

    def refusal(self) -> ServiceBusError | None:
        """Return the error for receiving any longer; `None` while receiving is allowed."""
        return refusal_of(self.client, self.path)

    def on_detached(self) -> None:
        """Release the session's lock, or the place among waiting receivers, of an ended link."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None  # the task keeps this link, with the error that ends it
        held = self.client.sessions
        if self._key is not None and held.get(self._key) is self:
            del held[self._key]
        self._receiving.on_detached()
