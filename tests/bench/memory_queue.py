"""A queue in memory, with its locks."""

from __future__ import annotations

import asyncio
import heapq
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from bridge.engine.api import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Disposition,
    NotTaken,
    Received,
    ReceiveMode,
    Release,
)
from bridge.message.envelopes import Outgoing
from bridge.model import entity as model
from bridge.model.errors import (
    MessageLockLost,
    MessageNotFound,
    NotImplementedHere,
)
from bridge.wire import headers
from bridge.wire.basic import text
from bridge.wire.mapping.outward import merge_properties
from bridge.wire.record import Record

LOCK_LOST = (
    "The lock supplied is invalid. Either the lock expired, or the message has already been "
    "removed from the queue."
)


@dataclass(slots=True, order=True)
class Stored:
    """A message in a queue, ordered by its number."""

    number: int
    record: Record
    enqueued_ms: int
    time_to_live_ms: int | None
    delivery_count: int = 0

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over."""
        ttl_ms = self.time_to_live_ms
        return ttl_ms is not None and self.enqueued_ms + ttl_ms <= now_ms


class MemoryReceiver:
    """A demand for messages of one queue."""

    def __init__(
        self, queue: MemoryQueue, mode: ReceiveMode, deliver: Callable[[Received], None]
    ) -> None:
        self.queue = queue
        self.mode = mode
        self.deliver = deliver
        self.credit = 0

    def add_credit(self, count: int) -> None:
        """Ask for more."""
        if not self.credit:
            self.queue.waiting.append(self)
        self.credit += count
        self.queue.pump_soon()

    async def drain(self) -> None:
        """Deliver what is there, then take the credit back."""
        self.queue.pump()
        await self.withdraw()

    async def withdraw(self) -> None:
        """Take the credit back."""
        if self.credit:
            self.credit = 0
            self.queue.waiting.remove(self)

    def taken(self) -> None:
        """Do nothing: what is received and deleted is forgotten at once."""

    async def close(self) -> None:
        """Take the credit back for good."""
        if self.credit:
            self.credit = 0
            self.queue.waiting.remove(self)


class MemoryQueue:
    """One queue or dead-letter queue: a heap by number, and locks."""

    def __init__(self, definition: model.Queue, dead_letters: MemoryQueue | None) -> None:
        self.definition = definition
        self.dead_letters = dead_letters
        self.active: list[Stored] = []
        self.locked: dict[UUID, tuple[Stored, asyncio.TimerHandle]] = {}
        self.pinned: dict[UUID, float] = {}
        self.scheduled: dict[int, tuple[Outgoing, asyncio.TimerHandle]] = {}
        self.waiting: deque[MemoryReceiver] = deque()
        self.last_number = 0
        self._is_pump_due = False
        self._loop = asyncio.get_running_loop()

    def enqueue(self, record: Record) -> None:
        """Number a message and offer it."""
        self.last_number += 1
        ttl = (record.properties.headers or {}).get(headers.TIME_TO_LIVE)
        ttl_ms = ttl[1] if ttl is not None and isinstance(ttl[1], int) else None
        stored = Stored(self.last_number, record, int(time.time() * 1000), ttl_ms)
        heapq.heappush(self.active, stored)
        self.pump_soon()

    def pump_soon(self) -> None:
        """Deliver at the end of the loop's turn."""
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Deliver what there is to who asks."""
        self._is_pump_due = False
        now_ms = int(time.time() * 1000)
        while self.active and self.waiting:
            if self.active[0].is_expired(now_ms):
                heapq.heappop(self.active)
                continue
            receiver = self.waiting[0]
            receiver.credit -= 1
            if not receiver.credit:
                self.waiting.popleft()
            stored = heapq.heappop(self.active)
            token = until_ms = None
            if receiver.mode is ReceiveMode.PEEK_LOCK:
                token = UUID(bytes=os.urandom(16))
                until_ms = now_ms + self.definition.lock_duration_ms
                self.locked[token] = (stored, self._timer(token))
            received = Received(
                record=stored.record,
                sequence_number=stored.number,
                enqueued_ms=stored.enqueued_ms,
                delivery_count=stored.delivery_count,
                lock_token=token,
                locked_until_ms=until_ms,
                time_to_live_ms=stored.time_to_live_ms,
            )
            try:
                receiver.deliver(received)
            except NotTaken:
                self._end(receiver, stored, token)

    def _end(self, receiver: MemoryReceiver, stored: Stored, token: UUID | None) -> None:
        """End a receiver that takes no message any more; this one is available again."""
        if token is not None:
            self.locked.pop(token)[1].cancel()
        heapq.heappush(self.active, stored)
        if receiver.credit:
            receiver.credit = 0
            self.waiting.remove(receiver)

    def _timer(self, token: UUID) -> asyncio.TimerHandle:
        delay_s = self.definition.lock_duration_ms / 1000
        return self._loop.call_later(delay_s, self._on_lock_end, token)

    def _on_lock_end(self, token: UUID) -> None:
        stored, _ = self.locked.pop(token)
        self._return(stored, counts=True)

    def _return(self, stored: Stored, *, counts: bool) -> None:
        if counts:
            stored.delivery_count += 1
        if stored.delivery_count >= self.definition.max_delivery_count and self.dead_letters:
            reason = "MaxDeliveryCountExceeded"
            self._bury(stored, DeadLetter(reason=reason, description="Too many deliveries."))
            return
        heapq.heappush(self.active, stored)
        self.pump_soon()

    def _bury(self, stored: Stored, why: DeadLetter) -> None:
        assert self.dead_letters is not None
        table = dict(why.properties)
        if why.reason is not None:
            table[headers.DEAD_LETTER_REASON] = text(why.reason)
        if why.description is not None:
            table[headers.DEAD_LETTER_ERROR_DESCRIPTION] = text(why.description)
        self.dead_letters.enqueue(merge_properties(stored.record, table))

    def pin(self, token: UUID) -> None:
        """Keep a lock until it is released: neither time nor a settlement ends it."""
        held = self.locked.get(token)
        if held is None or token in self.pinned:
            raise MessageLockLost(LOCK_LOST)
        self.pinned[token] = held[1].when() - self._loop.time()
        held[1].cancel()

    def unpin(self, token: UUID) -> None:
        """Let a lock go on."""
        left_s = max(self.pinned.pop(token), 1.0)
        stored, _ = self.locked[token]
        self.locked[token] = stored, self._loop.call_later(left_s, self._on_lock_end, token)

    def settle(self, token: UUID, disposition: Disposition) -> None:
        """End a lock."""
        held = self.locked.get(token)
        if held is None or token in self.pinned:
            raise MessageLockLost(LOCK_LOST)
        if isinstance(disposition, Defer):
            raise NotImplementedHere("Deferral is not implemented.")
        if isinstance(disposition, DeadLetter) and self.dead_letters is None:
            raise NotImplementedHere("A dead letter cannot be dead-lettered again.")
        stored, timer = held
        del self.locked[token]
        timer.cancel()
        match disposition:
            case Complete():
                pass
            case Abandon():
                if disposition.properties:
                    merged = merge_properties(stored.record, disposition.properties)
                    stored = replace(stored, record=merged)
                self._return(stored, counts=True)
            case Release():
                self._return(stored, counts=False)
            case DeadLetter():
                self._bury(stored, disposition)

    def renew(self, tokens: Sequence[UUID]) -> list[int]:
        """Give locks their full duration from now."""
        if any(token not in self.locked for token in tokens):
            raise MessageLockLost(LOCK_LOST)
        for token in tokens:
            stored, timer = self.locked[token]
            timer.cancel()
            if token not in self.pinned:
                self.locked[token] = (stored, self._timer(token))
        until_ms = int(time.time() * 1000) + self.definition.lock_duration_ms
        return [until_ms] * len(tokens)

    def reserve(self) -> int:
        """Return a number that no other message gets."""
        self.last_number += 1
        return self.last_number

    def schedule(self, item: Outgoing, number: int | None = None) -> int:
        """Keep a message for later, under a number that was reserved."""
        assert item.scheduled_ms is not None
        number = self.reserve() if number is None else number
        delay_s = max(item.scheduled_ms / 1000 - time.time(), 0)
        timer = self._loop.call_later(delay_s, self._on_due, number)
        self.scheduled[number] = (item, timer)
        return number

    def _on_due(self, number: int) -> None:
        item, _ = self.scheduled.pop(number)
        self.enqueue(item.record)

    def cancel(self, numbers: Sequence[int]) -> None:
        """Forget scheduled messages, all of the numbers or none."""
        for number in numbers:
            if number not in self.scheduled:
                raise MessageNotFound(
                    f"The scheduled message with sequence number {number} could not be found."
                )
        for number in numbers:
            self.scheduled.pop(number)[1].cancel()

    def forget(self) -> None:
        """Drop all messages and their timers."""
        for _, timer in (*self.locked.values(), *self.scheduled.values()):
            timer.cancel()
        self.locked.clear()
        self.scheduled.clear()
        self.active.clear()
