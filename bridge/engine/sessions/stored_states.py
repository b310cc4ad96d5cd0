"""The states of sessions: each is a message in the queue `$sessions`, which the owner consumes.

A state is set when RabbitMQ has delivered its message, so memory and queue are equal. Changes of
one session are made one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.clock import now_ms
from bridge.engine.ownership.ownership import Ownership, ack
from bridge.engine.sending.sender import Sender
from bridge.machine.sessions.states import States
from bridge.model.errors import OperationTimeout, SessionLockLost
from bridge.model.session_id import FoldedId, fold
from bridge.wire import headers
from bridge.wire.basic import Table, python_value
from bridge.wire.sessions import state_properties

POINT = "engine.session.acked"
"""The failpoint behind the acks of messages of `$sessions`."""

BROUGHT_S = 10.0
"""The longest wait for the delivery of a confirmed state; then its outcome is unknown."""


class StoredStates:
    """The stored states of the sessions that this process owns.

    Attributes:
        states: the states, by session.
    """

    def __init__(self, ownership: Ownership, sender: Sender) -> None:
        self.states = States()
        self._ownership = ownership
        self._sender = sender
        self._changes: WeakValueDictionary[FoldedId, asyncio.Lock] = WeakValueDictionary()
        self._coming: dict[tuple[FoldedId, int], asyncio.Future[bool]] = {}

    def __repr__(self) -> str:
        return f"StoredStates({self.states!r})"

    @property
    def is_changing(self) -> bool:
        """Whether a state is published, and not delivered yet."""
        return bool(self._coming)

    async def store(
        self,
        session_id: str,
        state: bytes | None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Store a session's state; `None` clears it. Of two calls the later one counts.

        Args:
            check: called in the turn in which the state is changed; what it raises is raised.

        Raises:
            ServerBusy, BrokerError: the state is unchanged.
            OperationTimeout: RabbitMQ did not deliver the state in time, or this process lost the
                ownership meanwhile: the state may be set or not.
            SessionLockLost: this process is no more the owner; the state is unchanged.
        """
        async with self._change(session_id):
            check()
            if state is not None:
                await self._set(session_id, state)
            elif self.states.value_of(session_id) is not None:
                await self._clear(session_id)

    # States that transactions give sessions.

    async def prepare(self, session_id: str) -> int:
        """Give a session a state to be followed, if it has none: a bare one.

        Returns the times of states that the next one follows (`States.is_due`).

        Raises:
            ServerBusy, BrokerError, OperationTimeout, SessionLockLost: as for `store`.
        """
        async with self._change(session_id):
            if not self.states.has_any(session_id):
                await self._set(session_id, None)
            below_ms = self.states.next_ms(session_id, now_ms())
            self.states.note_followed(below_ms)
            return below_ms

    async def replace(
        self, session_id: str, state: bytes | None, below_ms: int, check: Callable[[], None]
    ) -> None:
        """Store a state that follows those of some times; `None`: a bare one.

        Raises as `store`.
        """
        async with self._change(session_id):
            check()
            await self._set(session_id, state, below_ms)

    async def follow(self, session_id: str, state: bytes | None, below_ms: int) -> None:
        """Do as `replace`, unless that was done before; raises likewise."""
        async with self._change(session_id):
            self.states.note_followed(below_ms)
            if self.states.is_due(session_id, below_ms):
                await self._set(session_id, state, below_ms)

    def strip(self, session_id: str) -> None:
        """Let a session have no bare state any more: nothing is to follow it."""
        channel, tag = self._ownership.channel, self.states.strip(session_id)
        if channel is not None and tag is not None:
            ack(channel, tag, POINT)

    def strip_all(self) -> None:
        """Do that for all sessions."""
        for session_id in self.states.bare:
            self.strip(session_id)

    async def prove(self) -> None:
        """Return when RabbitMQ has said that this process is the owner still.

        Raises:
            SessionLockLost: it is not.
        """
        channel = self._ownership.channel
        try:
            if channel is not None:
                await channel.barrier()
        except BrokerError as error:
            raise SessionLockLost(f"{texts.SESSION_LOCK_LOST} ({error})") from error
        if channel is None or channel is not self._ownership.channel:
            raise SessionLockLost(texts.SESSION_LOCK_LOST)

    @asynccontextmanager
    async def _change(self, session_id: str) -> AsyncIterator[None]:
        """Let nobody else change a session's state; raises SessionLockLost likewise."""
        channel = self._ownership.channel
        change = self._changes.setdefault(fold(session_id), asyncio.Lock())
        async with change:
            if channel is None or channel is not self._ownership.channel:
                raise SessionLockLost(texts.SESSION_LOCK_LOST)
            yield

    # Changes.

    async def _clear(self, session_id: str) -> None:
        """Have a bare state follow a session's state: RabbitMQ does not confirm acks.

        If it forgets the ack of the earlier state, it forgets that of the bare one, too.
        """
        await self._set(session_id, None)
        self.strip(session_id)

    async def _set(self, session_id: str, state: bytes | None, least_ms: int = 0) -> None:
        updated_ms = max(self.states.next_ms(session_id, now_ms()), least_ms)
        properties = state_properties(session_id, updated_ms, is_bare=state is None)
        coming: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        key = fold(session_id), updated_ms
        self._coming[key] = coming
        try:
            await self._sender.publish("", self._ownership.resource, properties, state or b"")
            async with asyncio.timeout(BROUGHT_S):
                is_here = await coming
        except TimeoutError as error:
            raise OperationTimeout(texts.unknown("RabbitMQ does not deliver states now")) from error
        finally:
            del self._coming[key]
        if not is_here:
            raise OperationTimeout(texts.unknown("another process keeps the session's state now"))

    def arrived(self, delivery: Delivery, table: Table) -> None:
        """Keep a delivered state, unless a later one is known; ack the earlier of the two."""
        session_id = python_value(table.get(headers.SESSION_ID, ("V", None)))
        updated_ms = python_value(table.get(headers.ENQUEUED_TIME, ("V", None)))
        earlier: int | None = delivery.tag
        if isinstance(session_id, str) and isinstance(updated_ms, int):
            is_bare = python_value(table.get(headers.NO_STATE, ("V", None))) is True
            state = None if is_bare else delivery.body
            earlier = self.states.arrived(session_id, updated_ms, state, delivery.tag)
            coming = self._coming.get((fold(session_id), updated_ms))
            if coming is not None and not coming.done():
                coming.set_result(True)
        if earlier is not None:
            ack(delivery.channel, earlier, POINT)

    def lose(self) -> None:
        """Forget all states, and fail running calls of `store`: the ownership has ended."""
        self.states.lose()
        for coming in self._coming.values():
            if not coming.done():
                coming.set_result(False)
