"""Receiving from RabbitMQ before 4.3: whatever goes back counts as a failed delivery.

A message that is on its way to a consumer that is just being cancelled goes back, counted (3.10,
4.0). So consumers are made to fill: one message is got first, for RabbitMQ tells with it how many
are ready; a window of that many follows, and is closed when it is full; on an empty queue a window
of one message waits. Room that nobody wants any more is closed when nothing has arrived for
`QUIET_S`. One fetch at a time has room.

What was released, or came for no receiver, is kept for the next one, lowest number first, for
`KEEP_S`; then it is returned, counted.

**Clustered.** When a node dies, what its consumers held goes back at once, but what cancelled ones
held stays unacked until the node is back and the queue has another leader. So nothing is held on a
cancelled consumer: messages are got one by one, and the window that waits stays until its message
is settled. To the queue each unsettled get is a consumer, and above 32 of them its members disagree
on the order of what is returned (docs/rabbitmq-faults.md, returns-order): so few are had at a time,
all bridges' and native ones counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic

from bridge.machine.credit.buffer import LocalBuffer, Message
from bridge.machine.credit.effects import Close, Deliver, Effect, Get, Look, Open, Return, Withdrawn
from bridge.machine.credit.waiters import Waiters
from bridge.machine.credit.windows import WINDOW_SIZE_MAX

KEEP_S = 5.0
"""How long a message is kept here for the next receiver."""

QUIET_S = 2.0
"""After so long without an arrival or a return none is likely to be on its way to a window."""

CROWDED_S = 0.2
"""How often RabbitMQ is asked whether the queue still has all the consumers that it may have."""

CONSUMERS_MAX = 15
"""In a cluster nothing is got while a queue has so many consumers. Those of a node that has died
stay among them, empty, until it is back, and there may be a window beside: 32 in all."""

HELD_MIN = 4
"""So many messages may be held even if others have all these consumers."""


class _State(Enum):
    GETTING = "getting"
    LOOKING = "looking"
    OPEN = "open"
    CLOSING = "closing"


@dataclass(slots=True)
class _Fetch:
    state: _State
    room: int


class Gets(Generic[Message]):
    """What one queue's receivers ask for, and what is fetched for it.

    Args:
        is_clustered: RabbitMQ has several nodes, or may have.
    """

    def __init__(self, *, is_clustered: bool = False) -> None:
        self._is_clustered = is_clustered
        self._waiters = Waiters()
        self._buffer: LocalBuffer[Message] = LocalBuffer()
        self._fetches: dict[int, _Fetch] = {}
        self._held: dict[int, int] = {}
        self._under_way = 0
        self._last_fetch = 0
        self._is_stocked = True
        self._ready: int | None = None
        self._consumers = 0
        self._crowded_since_s = -1.0
        self._last_arrival_s = 0.0
        self._spare_since_s = -1.0

    def __repr__(self) -> str:
        return (
            f"Gets(asked={self.asked}, under_way={self._under_way}, buffered={len(self._buffer)})"
        )

    @property
    def asked(self) -> int:
        """Messages that receivers ask for and have not had (those being withdrawn not counted)."""
        return self._waiters.asked

    @property
    def under_way(self) -> int:
        """Messages that RabbitMQ may still hand over without being told anything more."""
        return self._under_way

    @property
    def buffered(self) -> int:
        """Messages that wait here for a receiver."""
        return len(self._buffer)

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """A receiver wants `count` more messages."""
        self._waiters.add(receiver, count)

    def withdraw(self, receiver: int) -> int:
        """A receiver takes back all it asked for; return the ticket that `Withdrawn` will carry."""
        return self._waiters.withdraw(receiver)

    def arrived(self, fetch: int, message: Message, now_s: float) -> int | None:
        """A fetch has brought a message; return the receiver that gets it now.

        `None`: it is kept here, and `plan` says what becomes of it.
        """
        self._last_arrival_s = now_s
        self.discarded(fetch)
        if not self._buffer:
            receiver = self._waiters.take(with_withdrawn=True)
            if receiver is not None:
                return receiver
        self._buffer.push(message, now_s)
        return None

    def discarded(self, fetch: int) -> None:
        """A fetch has brought a message that is for no receiver."""
        self._is_stocked = True
        self._held[fetch] = self._held.get(fetch, 0) + 1
        entry = self._fetches.get(fetch)
        if entry is not None and entry.room:
            entry.room -= 1
            self._under_way -= 1
            if entry.state is _State.GETTING:
                self._end(fetch)

    def released(self, message: Message, now_s: float) -> None:
        """A receiver has given a message back that it did not touch: the next one gets it."""
        self._buffer.push(message, now_s)

    def empty(self, fetch: int) -> None:
        """A get has found nothing."""
        self._is_stocked = False
        self._end(fetch)

    def counted(self, ready: int) -> None:
        """RabbitMQ has said with a message that was got how many more are ready."""
        self._is_stocked = ready > 0
        self._ready = None if self._is_clustered else ready

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """RabbitMQ has said how many messages are ready, and how many consumers there are."""
        self._is_stocked = ready > 0
        self._ready = ready
        self._consumers = consumers
        self._end(fetch)

    def closed(self, fetch: int) -> None:
        """RabbitMQ has closed a window, whether it was told to or not."""
        self._end(fetch)

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """A message of this fetch is about to be acked, rejected or returned.

        Returns:
            What must be done first, so that RabbitMQ sends nothing that nobody wants. If the
            message is not settled after all, report `stayed`.
        """
        self._crowded_since_s = -1.0
        self._last_arrival_s = now_s  # what is given back may come to a window of ours at once
        held = self._held.get(fetch, 0)
        if held > 1:
            self._held[fetch] = held - 1
        elif held:
            del self._held[fetch]
        entry = self._fetches.get(fetch)
        if entry is None or entry.state is not _State.OPEN:
            return None
        if self._waiters.asked > self._under_way or entry.room:
            entry.room += 1
            self._under_way += 1
            return None
        return self._close(fetch, entry)

    def stayed(self, fetch: int) -> None:
        """A message that was about to be settled was not: its window is not refilled."""
        self._held[fetch] = self._held.get(fetch, 0) + 1
        entry = self._fetches.get(fetch)
        if entry is not None and entry.state is _State.OPEN and entry.room:
            entry.room -= 1
            self._under_way -= 1

    def lost(self) -> list[Message]:
        """The channels are gone, and all that came on them; receivers still wait.

        Returns:
            What was kept here.
        """
        for fetch in list(self._fetches):
            self._end(fetch)
        self._held.clear()
        self._ready = None
        self._crowded_since_s = -1.0
        return self._buffer.pop_all()

    def due_s(self) -> float | None:
        """Return when `plan` has something to do if nothing else happens; `None` for never."""
        times = []
        if self._buffer:
            times.append(self._buffer.oldest_s + KEEP_S)
        if self._spare_since_s >= 0:
            times.append(self._quiet_since_s() + QUIET_S)
        if self._crowded_since_s >= 0 and self._waiters.asked:
            times.append(self._crowded_since_s + CROWDED_S)
        return min(times, default=None)

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return what is to be done so that what is fetched agrees with what is asked for."""
        effects: list[Effect[Message]] = []
        while self._buffer:
            receiver = self._waiters.take(with_withdrawn=False)
            if receiver is None:
                break
            effects.append(Deliver(receiver, self._buffer.pop()))
        effects += self._close_windows(now_s)
        if self._buffer and now_s >= self._buffer.oldest_s + KEEP_S:
            effects += [
                Return(message)
                for message in self._buffer.pop_since(max(now_s - KEEP_S, self._buffer.oldest_s))
            ]
        if self._waiters.has_withdrawals:
            effects += [Withdrawn(ticket) for ticket in self._waiters.end_withdrawals(None)]
        wanted = self._waiters.asked - self._under_way - len(self._buffer)
        if wanted > 0 and can_fetch:
            effects += self._fetch(wanted, now_s)
        else:
            self._ready = None
        return effects

    def _quiet_since_s(self) -> float:
        return max(self._spare_since_s, self._last_arrival_s)

    def _has_spare_room(self) -> bool:
        spare = self._under_way + len(self._buffer) - self._waiters.asked
        return spare > 0 and any(
            entry.state is _State.OPEN and entry.room for entry in self._fetches.values()
        )

    def _close_windows(self, now_s: float) -> list[Close]:
        """Return what closes full windows, and room that nobody wants while nothing arrives."""
        if not self._has_spare_room():
            self._spare_since_s = -1.0
        elif self._spare_since_s < 0:
            self._spare_since_s = now_s
        is_quiet = self._spare_since_s >= 0 and now_s >= self._quiet_since_s() + QUIET_S
        return [
            self._close(fetch, entry)
            for fetch, entry in self._fetches.items()
            if entry.state is _State.OPEN and (is_quiet if entry.room else not self._is_clustered)
        ]

    def _fetch(self, wanted: int, now_s: float) -> list[Effect[Message]]:
        """Begin fetches; none while one is under way, or a window has room."""
        busy = (_State.GETTING, _State.LOOKING)
        if any(entry.room or entry.state in busy for entry in self._fetches.values()):
            return []
        if self._is_clustered:
            return self._fetch_clustered(wanted, now_s)
        ready, self._ready = self._ready, None
        if self._is_stocked and ready is None:
            return [Get(self._begin(_State.GETTING, 1))]
        size = min(wanted, max(ready or 0, 1), WINDOW_SIZE_MAX)
        return [Open(self._begin(_State.OPEN, size), size)]

    def _fetch_clustered(self, wanted: int, now_s: float) -> list[Effect[Message]]:
        """Look, and begin as many gets as there may be consumers, or a window of one."""
        if self._crowded_since_s >= 0:
            if now_s < self._crowded_since_s + CROWDED_S:
                return []
            self._crowded_since_s = -1.0
        if self._ready is None:
            return [Look(self._begin(_State.LOOKING, 0))]
        ready, self._ready = self._ready, None
        # Half of what is free: others may look at the same time.
        may_get = max((CONSUMERS_MAX - self._consumers + 1) // 2, HELD_MIN - len(self._held))
        if may_get <= 0:
            self._crowded_since_s = now_s
            return []
        if not ready:
            return [Open(self._begin(_State.OPEN, 1), 1)]
        gets = min(wanted, ready, may_get)
        return [Get(self._begin(_State.GETTING, 1)) for _ in range(gets)]

    def _close(self, fetch: int, entry: _Fetch) -> Close:
        entry.state = _State.CLOSING
        if entry.room:
            self._is_stocked = False
        return Close(fetch)

    def _begin(self, state: _State, room: int) -> int:
        self._last_fetch += 1
        self._fetches[self._last_fetch] = _Fetch(state, room)
        self._under_way += room
        return self._last_fetch

    def _end(self, fetch: int) -> None:
        entry = self._fetches.pop(fetch, None)
        if entry is not None:
            self._under_way -= entry.room
