"""The engine's API in memory: the gateway without RabbitMQ, for benchmarks and tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from bridge.background.slices import in_slices
from bridge.engine.api import (
    Disposition,
    OnSent,
    OnSettled,
    Received,
    ReceiveMode,
    SessionReceiver,
)
from bridge.engine.change_verbs import ChangeVerbs
from bridge.engine.import_verbs import ImportVerbs
from bridge.message.envelopes import Outgoing
from bridge.model import entity as model
from bridge.model.errors import (
    EntityNotFound,
    NotAllowed,
    NotImplementedHere,
    ServiceBusError,
)
from bridge.model.name import EntityPath, SubQueue
from tests.bench.memory_queue import MemoryQueue, MemoryReceiver
from tests.bench.memory_sessions import MemorySessions
from tests.bench.memory_transactions import MemoryTransactions

TURN_MESSAGES = 500
"""So many messages of a batch are stored in one turn of the loop."""


class MemoryNamespace:
    """Queues by name, and `engine.api.NamespaceVerbs` on them.

    Attributes:
        sent_bytes_max: the largest message of a queue without a limit of its own.
        transactions: the verbs of transactions.
    """

    def __init__(self, *definitions: model.Queue) -> None:
        self.sent_bytes_max = 262_144
        self.transactions = MemoryTransactions(self)
        self._queues: dict[tuple[str, SubQueue], MemoryQueue] = {}
        self._storing = asyncio.Lock()
        self._sends: set[asyncio.Task[None]] = set()
        for definition in definitions:
            self.declare(definition)

    def declare(self, definition: model.Queue) -> None:
        """Add a queue with its dead-letter queue."""
        key = definition.name.lower()
        dead = MemoryQueue(replace(definition, requires_session=False), None)
        self._queues[key, SubQueue.DEAD_LETTER] = dead
        kind = MemorySessions if definition.requires_session else MemoryQueue
        self._queues[key, SubQueue.NONE] = kind(definition, dead)

    @property
    def administration(self) -> ChangeVerbs:
        """There are no subscriptions, and so no rules."""
        raise NotImplementedHere("There are queues only.")

    @property
    def importing(self) -> ImportVerbs:
        """Nothing is imported here."""
        raise NotImplementedHere("There is nothing to import.")

    def forget(self) -> None:
        """Drop all messages and their timers."""
        for queue in self._queues.values():
            queue.forget()

    def queue(self, path: EntityPath) -> MemoryQueue:
        queue = self._queues.get((path.key, path.sub_queue))
        if queue is None:
            raise EntityNotFound(f"The messaging entity '{path}' could not be found.")
        return queue

    def entity(self, path: EntityPath) -> model.Queue:
        """Return a queue's definition."""
        return self.queue(path).definition

    receive_entity = entity

    def message_bytes_max(self, path: EntityPath) -> int:
        """Return the largest message that a queue takes."""
        size_kb = self.send_entity(path).max_message_size_kb
        return self.sent_bytes_max if size_kb is None else size_kb * 1024

    def send_entity(self, path: EntityPath) -> model.Queue:
        """Return a queue's definition."""
        if path.sub_queue is not SubQueue.NONE:
            raise NotAllowed(f"'{path}' takes no messages from senders.")
        return self.entity(path)

    def begin_sending(self, path: EntityPath, batch: Sequence[Outgoing], done: OnSent) -> None:
        """Store messages."""
        task = asyncio.get_running_loop().create_task(self._send(path, batch, done))
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)

    async def begin_sending_each(
        self, path: EntityPath, each: Iterator[Outgoing], done: OnSent
    ) -> None:
        """Store messages."""
        self.begin_sending(path, await in_slices(each), done)

    async def _send(self, path: EntityPath, batch: Sequence[Outgoing], done: OnSent) -> None:
        try:
            await self.send(path, batch)
        except ServiceBusError as error:
            done(error)
        else:
            done(None)

    async def send(self, path: EntityPath, batch: Sequence[Outgoing]) -> None:
        """Store messages."""
        queue = self.queue(path)
        if queue.definition.requires_session and any(each.session_id is None for each in batch):
            raise NotAllowed("The SessionId was not set on a message.")
        async with self._storing:
            for number, item in enumerate(batch, 1):
                if item.scheduled_ms is not None and item.scheduled_ms > time.time() * 1000:
                    queue.schedule(item)
                else:
                    queue.enqueue(item.record)
                if not number % TURN_MESSAGES:
                    await asyncio.sleep(0)

    async def schedule(
        self, path: EntityPath, batch: Sequence[Outgoing], moved: Sequence[int] | None = None
    ) -> list[int]:
        """Store messages for later."""
        queue = self.queue(path)
        queue.cancel(moved or ())
        numbers = []
        async with self._storing:
            for number, item in enumerate(batch, 1):
                numbers.append(queue.schedule(item))
                if not number % TURN_MESSAGES:
                    await asyncio.sleep(0)
        return numbers

    async def cancel_scheduled(self, path: EntityPath, numbers: Sequence[int]) -> None:
        """Forget scheduled messages."""
        self.queue(path).cancel(numbers)

    def check_known(self, feature: str) -> None:
        """There are no other bridges."""

    def open_receiver(
        self, path: EntityPath, *, mode: ReceiveMode, deliver: Callable[[Received], None]
    ) -> MemoryReceiver:
        """Return a receiver without credit."""
        return MemoryReceiver(self.queue(path), mode, deliver)

    async def receive_deferred(
        self,
        path: EntityPath,
        numbers: Sequence[int],
        mode: ReceiveMode,
        session_id: str | None = None,
    ) -> list[Received]:
        """Nothing is deferred here."""
        raise NotImplementedHere("Deferral is not implemented.")

    async def peek(
        self, path: EntityPath, start: int, count: int, session_id: str | None = None
    ) -> list[Received]:
        """Return what is available or locked, from a number on."""
        queue = self.queue(path)
        there = [*queue.active, *(stored for stored, _ in queue.locked.values())]
        return [
            Received(
                record=stored.record,
                sequence_number=stored.number,
                enqueued_ms=stored.enqueued_ms,
                delivery_count=stored.delivery_count,
            )
            for stored in sorted(there)
            if stored.number >= start
        ][:count]

    async def accept_session(
        self,
        path: EntityPath,
        session_id: str | None,
        *,
        mode: ReceiveMode,
        deliver: Callable[[Received], None],
        on_lost: Callable[[ServiceBusError], None],
        timeout_s: float,
    ) -> SessionReceiver:
        """Lock a session of a queue and return its receiver."""
        sessions = self._sessions(path)
        return await sessions.accept(session_id, mode, deliver, on_lost, timeout_s)

    def _sessions(self, path: EntityPath) -> MemorySessions:
        queue = self.queue(path)
        if not isinstance(queue, MemorySessions):
            raise NotAllowed(f"'{path}' requires no sessions.")
        return queue

    async def renew_session_lock(self, path: EntityPath, session_id: str) -> int:
        """Lengthen a session's lock."""
        return self._sessions(path).holder(session_id).renew()

    async def session_state(self, path: EntityPath, session_id: str) -> bytes | None:
        """Return what is stored with a session."""
        return self._sessions(path).state(session_id)

    async def set_session_state(
        self, path: EntityPath, session_id: str, state: bytes | None
    ) -> None:
        """Store something with a session."""
        self._sessions(path).set_state(session_id, state)

    async def list_sessions(
        self, path: EntityPath, *, updated_after_ms: int | None, skip: int, top: int
    ) -> list[str]:
        """Return a page of the ids of sessions."""
        return self._sessions(path).listed(updated_after_ms)[skip : skip + top]

    async def settle(self, path: EntityPath, lock_token: UUID, disposition: Disposition) -> None:
        """End a lock."""
        self.queue(path).settle(lock_token, disposition)

    def begin_settling(
        self, path: EntityPath, lock_token: UUID, disposition: Disposition, done: OnSettled
    ) -> None:
        """End a lock."""
        try:
            self.queue(path).settle(lock_token, disposition)
        except ServiceBusError as error:
            done(error)
        else:
            done(None)

    def flush(self) -> None:
        """Nothing is put off here."""

    async def renew_locks(self, path: EntityPath, lock_tokens: Sequence[UUID]) -> list[int]:
        """Lengthen locks."""
        return self.queue(path).renew(lock_tokens)
