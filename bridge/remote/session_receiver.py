"""A receiver of one session of a remote namespace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from bridge.machine.amqp10.client_link import ClientIncomingLink
from bridge.machine.amqp10.events import ClientEvent, LinkDetached
from bridge.remote.delivery import RemoteDelivery
from bridge.remote.errors import (
    SESSION_LOCK_LOST,
    RemoteError,
    RemoteLinkEnded,
    RemoteLockLost,
    RemoteRefused,
)
from bridge.remote.outcomes import Release, RemoteOutcome
from bridge.remote.receiver import ReceiveMode, RemoteReceiver
from bridge.wire.amqp10.performatives import Source
from bridge.wire.amqp10.scalars import Uint
from bridge.wire.amqp10.types import Described
from bridge.wire.link_properties import LOCKED_UNTIL, SESSION_FILTER, TIMEOUT, utc_ms_of

if TYPE_CHECKING:
    from bridge.remote.namespace import RemoteNamespace

ANSWER_S = 10.0
"""How much longer than its own wait a server may take to say that there is no session."""


class RemoteSessionReceiver(RemoteReceiver):
    """Receives the messages of one session, in order; the session is locked meanwhile.

    Unlike another receiver it is not attached again when its link has ended: the session may be
    another's by then. Accept it anew.

    Attributes:
        session_id: the session, as its server spells it.
        locked_until_ms: the end of the lock, in milliseconds since 1970, as last told.
    """

    def __init__(
        self,
        namespace: RemoteNamespace,
        entity: str,
        session_id: str | None,
        mode: ReceiveMode,
        max_wait_s: float,
        credit: int = 0,
        *,
        until_settled: bool = False,
    ) -> None:
        super().__init__(namespace, entity, mode, credit, until_settled=until_settled)
        self.session_id = session_id or ""
        self.locked_until_ms = 0
        self._asked_id = session_id
        self._wait_s = max_wait_s
        self._attach_s = max_wait_s + ANSWER_S
        self._ended = asyncio.Event()

    async def attach(self) -> None:
        """Accept the session, once; raises RemoteError."""
        await self._attached()

    async def _attached(self) -> ClientIncomingLink:
        if self._attachment is not None and (self._link is None or not self._link.is_open):
            ended = self._why()
            text = f"The session {self.session_id!r} is not held any more: {ended}"
            kind = RemoteLockLost if isinstance(ended, RemoteLockLost) else RemoteLinkEnded
            raise kind(ended.condition, text, False)
        return await super()._attached()

    def _filter(self) -> dict[Any, Any]:
        return {SESSION_FILTER: self._asked_id}

    def _properties(self) -> dict[Any, Any]:
        if self._asked_id is not None:
            return {}
        return {TIMEOUT: Uint(int(self._wait_s * 1000))}

    def _take_answer(self, link: ClientIncomingLink) -> None:
        source = link.peer.source
        filters = source.filter if isinstance(source, Source) else None
        found = (filters or {}).get(SESSION_FILTER)
        if isinstance(found, Described):
            found = found.value
        if not isinstance(found, str):
            raise RemoteRefused("amqp:not-allowed", f"{self.entity} has given no session.")
        self.session_id = found
        ticks = (link.peer.properties or {}).get(LOCKED_UNTIL)
        if isinstance(ticks, int):
            self.locked_until_ms = utc_ms_of(ticks)

    async def _settle_apart(self, delivery: RemoteDelivery, outcome: RemoteOutcome) -> None:
        token, link = delivery.lock_token, self._link
        is_held = link is not None and link.is_open
        if is_held and token is not None and not isinstance(outcome, Release):
            management = self._namespace.management_of(self.entity)
            await management.settle_deferred((token,), outcome, self.session_id)
            return
        text = f"The session {self.session_id!r} is not held any more."
        raise RemoteLockLost(SESSION_LOCK_LOST, text)

    async def ended(self, within_s: float) -> RemoteError | None:
        """Return why the link has ended, as soon as it has; `None`: not within this time."""
        try:
            async with asyncio.timeout(within_s):
                await self._ended.wait()
        except TimeoutError:
            return None
        return self._why()

    def _on_event(self, event: ClientEvent) -> None:
        super()._on_event(event)
        if isinstance(event, LinkDetached):
            self._ended.set()

    async def renew(self) -> int:
        """Renew the session's lock, and return its end; raises RemoteLockLost."""
        management = self._namespace.management_of(self.entity)
        self.locked_until_ms = await management.renew_session_lock(self.session_id)
        return self.locked_until_ms

    async def state(self) -> bytes | None:
        """Return the session's state; `None` if it has none. Raises RemoteLockLost."""
        return await self._namespace.management_of(self.entity).session_state(self.session_id)

    async def set_state(self, state: bytes | None) -> None:
        """Set the session's state; `None` removes it. Raises RemoteLockLost."""
        management = self._namespace.management_of(self.entity)
        await management.set_session_state(self.session_id, state)
