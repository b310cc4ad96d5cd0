"""The states of sessions, in the queue that the sessions' owner consumes: a message for each."""

from __future__ import annotations

import asyncio

from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.engine import texts
from bridge.engine.clock import now_ms
from bridge.engine.ownership.ownership import Ownership, ack
from bridge.engine.sending.sender import Sender
from bridge.machine.sessions.states import States
from bridge.model.errors import SessionLockLost
from bridge.wire import headers
from bridge.wire.basic import Table, python_value
from bridge.wire.sessions import state_properties

POINT = "engine.session.acked"
"""The failpoint behind the ack of what comes through the queue."""


class StoredStates:
    """What is stored with the sessions that this process owns.

    Attributes:
        states: all of it.
    """

    def __init__(self, ownership: Ownership, sender: Sender) -> None:
        self.states = States()
        self._ownership = ownership
        self._sender = sender

    def __repr__(self) -> str:
        return f"StoredStates({self.states!r})"

    async def store(self, session_id: str, state: bytes | None) -> None:
        """Store a state, or clear it; returns when a crash can no longer undo it.

        Raises:
            ServerBusy, BrokerError: nothing has changed, for all that is known.
            SessionLockLost: this process owns the sessions no more; the next owner has the state.
        """
        if state is None:
            await self._drop(self.states.clear(session_id))
            return
        updated_ms = self.states.next_ms(session_id, now_ms())
        properties = state_properties(session_id, updated_ms)
        channel = self._ownership.channel
        await self._sender.publish("", self._ownership.resource, properties, state)
        if self._ownership.channel is not channel:  # RabbitMQ brings it to whoever is the owner
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        await self._drop(self.states.stored(session_id, updated_ms, state))

    def arrived(self, delivery: Delivery, table: Table) -> None:
        """RabbitMQ has brought a state."""
        session_id = python_value(table.get(headers.SESSION_ID, ("V", None)))
        updated_ms = python_value(table.get(headers.ENQUEUED_TIME, ("V", None)))
        earlier: int | None = delivery.tag
        if isinstance(session_id, str) and isinstance(updated_ms, int):
            earlier = self.states.arrived(session_id, updated_ms, delivery.body, delivery.tag)
        if earlier is not None:
            ack(delivery.channel, earlier, POINT)

    async def _drop(self, tag: int | None) -> None:
        channel = self._ownership.channel
        if tag is None or channel is None:
            return
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_written(error: BrokerError | None) -> None:
            if written.done():
                return
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        ack(channel, tag, POINT)
        channel.when_written(on_written)
        await written
