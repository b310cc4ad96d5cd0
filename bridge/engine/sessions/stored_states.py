"""The states of sessions: each is a message in the queue `$sessions`, which the owner consumes.

A state is set when RabbitMQ has delivered its message, so memory and queue are equal. Changes of
one session are made one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from weakref import WeakValueDictionary

from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.broker.outcome import resolve
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
        channel = self._ownership.channel
        change = self._changes.setdefault(fold(session_id), asyncio.Lock())
        async with change:
            if channel is None or channel is not self._ownership.channel:
                raise SessionLockLost(texts.SESSION_LOCK_LOST)
            check()
            if state is None:
                await self._clear(session_id, channel)
            else:
                await self._set(session_id, state)

    async def _clear(self, session_id: str, channel: Channel) -> None:
        tag = self.states.clear(session_id)
        if tag is not None:
            ack(channel, tag, POINT)
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            channel.when_written(partial(resolve, written))
            try:
                await written
            except BrokerError as error:
                raise OperationTimeout(texts.unknown(error)) from error

    async def _set(self, session_id: str, state: bytes) -> None:
        updated_ms = self.states.next_ms(session_id, now_ms())
        properties = state_properties(session_id, updated_ms)
        coming: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        key = fold(session_id), updated_ms
        self._coming[key] = coming
        try:
            await self._sender.publish("", self._ownership.resource, properties, state)
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
            earlier = self.states.arrived(session_id, updated_ms, delivery.body, delivery.tag)
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
