"""Receiving from RabbitMQ 4.3: what goes back is not counted, so windows close at any time.

RabbitMQ refills a window's prefetch with every ack of a message that came by it, and only with
those. Therefore:

* while receivers ask again at once (`read_ahead`), windows stay open, and acks refill them up to
  `AHEAD_MAX` messages beyond what is asked for; what nobody has asked for within `LINGER_S` is
  closed, or goes back;
* else a window is closed before an ack that would bring what nobody wants, and when it is full.

What a closing window may still bring counts as fetched until RabbitMQ says that it is closed. When
something goes back, all that is on its way to windows stood behind it in the queue: it goes back
too, and nothing is fetched before.

**Apart** (4.3 clusters): each window has a channel of its own, on which nothing is consumed again.
What comes on two channels comes in no order, so one window at a time has room, and nothing is got.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic

from bridge.machine.credit.buffer import LocalBuffer, Message
from bridge.machine.credit.effects import Close, Deliver, Effect, Get, Open, Return, Withdrawn
from bridge.machine.credit.read_ahead import AHEAD_MAX, LINGER_S, ReadAhead
from bridge.machine.credit.waiters import Waiters

WINDOW_SIZE_MAX = 2_000
"""Messages of one window; the rest of a larger demand follows when it is full."""

WINDOWS_MAX = 8
"""Windows of one queue that may have room, or be closing, at a time."""

GETS_MAX = 2
"""Up to this many messages are got one by one, when the queue seems to have some.

Measured (4.3, one idle node): a get 0.17 ms; a window of one 0.33 ms and 0.25 ms for its cancel;
three gets 0.51 ms, a window of three 0.27 ms.
"""


class _State(Enum):
    GETTING = "getting"
    OPEN = "open"
    CLOSING = "closing"


@dataclass(slots=True)
class _Fetch:
    state: _State
    room: int
    is_behind: bool = False


class Windows(Generic[Message]):
    """What one queue's receivers ask for, and what is fetched for it.

    Args:
        is_apart: each window has a channel of its own.
    """

    def __init__(self, *, is_apart: bool = False, windows_max: int = WINDOWS_MAX) -> None:
        self._is_apart = is_apart
        self._windows_max = windows_max
        self._gets_max = 0 if is_apart else GETS_MAX
        self._waiters = Waiters()
        self._buffer: LocalBuffer[Message] = LocalBuffer()
        self._returns: list[Message] = []
        self._read_ahead = ReadAhead()
        self._fetches: dict[int, _Fetch] = {}
        self._under_way = 0
        self._closing_room = 0
        self._last_fetch = 0
        self._is_stocked = True
        self._spare_since_s = -1.0

    def __repr__(self) -> str:
        return (
            f"Windows(asked={self.asked}, under_way={self._under_way}, "
            f"buffered={len(self._buffer)}, {self._read_ahead!r})"
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
        """Messages that wait here for a receiver, or to be returned."""
        return len(self._buffer) + len(self._returns)

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """A receiver wants `count` more messages."""
        self._read_ahead.asked(now_s)
        if self._spare_since_s >= 0:
            self._spare_since_s = now_s
        self._waiters.add(receiver, count)

    def withdraw(self, receiver: int) -> int:
        """A receiver takes back all it asked for; return the ticket that `Withdrawn` will carry.

        Until then it may still be given what is on its way.
        """
        self._read_ahead.end()
        return self._waiters.withdraw(receiver)

    def arrived(self, fetch: int, message: Message, now_s: float) -> int | None:
        """A fetch has brought a message; return the receiver that gets it now.

        `None`: it is kept here, and `plan` says what becomes of it.
        """
        entry = self._fetches.get(fetch)
        is_behind = entry is not None and entry.is_behind
        self.discarded(fetch)
        if is_behind:
            self._returns.append(message)
            return None
        if not self._buffer:
            receiver = self._waiters.take(with_withdrawn=True)
            if receiver is not None:
                return receiver
        self._buffer.push(message, now_s)
        self._note_spare(now_s)
        return None

    def discarded(self, fetch: int) -> None:
        """A fetch has brought a message that is for no receiver."""
        self._is_stocked = True
        entry = self._fetches.get(fetch)
        if entry is not None and entry.room:
            entry.room -= 1
            self._under_way -= 1
            if entry.state is _State.CLOSING:
                self._closing_room -= 1
            elif entry.state is _State.GETTING:
                self._end(fetch)

    def released(self, message: Message, now_s: float) -> None:
        """A receiver has given a message back that it did not touch."""
        self._returns.append(message)

    def empty(self, fetch: int) -> None:
        """A get has found nothing."""
        self._is_stocked = False
        self._end(fetch)

    def counted(self, ready: int) -> None:
        """RabbitMQ has said with a message that was got how many more are ready."""
        self._is_stocked = ready > 0

    def closed(self, fetch: int) -> None:
        """RabbitMQ has closed a window, whether it was told to or not."""
        self._end(fetch)

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """A message of this fetch is about to be acked, rejected or returned.

        Returns:
            What must be done first, so that RabbitMQ sends nothing that nobody wants. If the
            message is not settled after all, report `stayed`.
        """
        self._read_ahead.settled(now_s)
        entry = self._fetches.get(fetch)
        if entry is None or entry.state is not _State.OPEN:
            return None
        spare = self._spare()
        if entry.is_behind or spare >= (AHEAD_MAX if self._read_ahead.is_on else 0):
            return self._close(fetch, entry)
        entry.room += 1
        self._under_way += 1
        self._note_spare(now_s)
        return None

    def stayed(self, fetch: int) -> None:
        """A message that was about to be settled was not: its window is not refilled."""
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
        kept = [*self._returns, *self._buffer.pop_all()]
        self._returns.clear()
        return kept

    def due_s(self) -> float | None:
        """Return when `plan` has something to do if nothing else happens; `None` for never."""
        return self._spare_since_s + LINGER_S if self._spare_since_s >= 0 else None

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return what is to be done so that what is fetched agrees with what is asked for."""
        effects: list[Effect[Message]] = []
        self._offer(effects)
        self._end_spare(effects, now_s)
        effects += self._close_full()
        if self._returns:
            effects += [Return(message) for message in sorted(self._returns, key=_number)]
            self._returns.clear()
        if self._waiters.has_withdrawals:
            tickets = self._waiters.end_withdrawals(self._under_way)
            effects += [Withdrawn(ticket) for ticket in tickets]
        wanted = self._wanted()
        if wanted > 0 and can_fetch:
            effects += self._fetch(wanted)
        self._note_spare(now_s)
        return effects

    def _offer(self, effects: list[Effect[Message]]) -> None:
        while self._buffer:
            receiver = self._waiters.take(with_withdrawn=False)
            if receiver is None:
                return
            effects.append(Deliver(receiver, self._buffer.pop()))

    def _wanted(self) -> int:
        return self._waiters.asked - self._under_way - len(self._buffer)

    def _spare(self) -> int:
        """Return how much more is fetched, or here, than is asked for."""
        return self._under_way + len(self._buffer) - self._waiters.asked

    def _note_spare(self, now_s: float) -> None:
        if self._spare() <= self._closing_room:
            self._spare_since_s = -1.0
        elif self._spare_since_s < 0:
            self._spare_since_s = now_s

    def _end_spare(self, effects: list[Effect[Message]], now_s: float) -> None:
        """Close room that nobody wants and return what came for nobody, when it is time."""
        self._note_spare(now_s)
        if self._spare_since_s < 0:
            return
        if now_s >= self._spare_since_s + LINGER_S:
            self._read_ahead.end()
            self._spare_since_s = now_s
        if self._read_ahead.is_on:
            return
        if self._buffer:
            self._fall_behind()
            self._returns += self._buffer.pop_all()
        spare = self._spare() - self._closing_room
        for fetch, entry in reversed(self._fetches.items()):
            if entry.state is _State.OPEN and entry.room and (spare > 0 or entry.is_behind):
                spare -= entry.room
                effects.append(self._close(fetch, entry))

    def _close_full(self) -> list[Close]:
        """Return what closes the windows that an ack would refill in vain."""
        if self._read_ahead.is_on:
            return [
                self._close(fetch, entry)
                for fetch, entry in self._fetches.items()
                if entry.state is _State.OPEN and entry.is_behind
            ]
        return [
            self._close(fetch, entry)
            for fetch, entry in self._fetches.items()
            if entry.state is _State.OPEN and (entry.is_behind or not entry.room)
        ]

    def _fetch(self, wanted: int) -> list[Effect[Message]]:
        """Begin fetches.

        Nothing is begun while something may still go back that stood before what would come. While
        gets are under way no window is opened that could overtake them. While a window may bring
        something nothing is got: RabbitMQ's channel waits for the queue's answer to a get, and
        meanwhile leaves in its mailbox what is on its way to the window.
        """
        busy = 0
        has_room = False
        for entry in self._fetches.values():
            if entry.is_behind or entry.state is _State.GETTING:
                return []
            has_room = has_room or entry.room > 0
            busy += entry.room > 0 or entry.state is not _State.OPEN
        if has_room and self._is_apart:
            return []
        is_fast = self._read_ahead.is_fast
        if self._is_stocked and not has_room and wanted <= self._gets_max and not is_fast:
            return [Get(self._begin(_State.GETTING, 1)) for _ in range(wanted)]
        if busy >= self._windows_max:
            return []
        size = min(wanted + AHEAD_MAX if is_fast else wanted, WINDOW_SIZE_MAX)
        effects: list[Effect[Message]] = list(self._close_oldest())
        effects.append(Open(self._begin(_State.OPEN, size), size))
        return effects

    def _close_oldest(self) -> list[Close]:
        """Return what closes full windows, so that few of them wait for their messages' acks."""
        full = [
            (fetch, entry)
            for fetch, entry in self._fetches.items()
            if entry.state is _State.OPEN and not entry.room
        ]
        keep = 0 if self._is_apart else self._windows_max - 1
        return [self._close(fetch, entry) for fetch, entry in full[: max(len(full) - keep, 0)]]

    def _fall_behind(self) -> None:
        """Something goes back: what is on its way now comes after it."""
        for entry in self._fetches.values():
            entry.is_behind = True

    def _close(self, fetch: int, entry: _Fetch) -> Close:
        entry.state = _State.CLOSING
        self._closing_room += entry.room
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
            if entry.state is _State.CLOSING:
                self._closing_room -= entry.room


def _number(message: Message) -> int:
    return message.number
