"""What an entity's receivers ask for, and what is fetched for it, as a pure machine.

No message is fetched that nobody asked for. A **fetch** is either a *get* (one message or none) or
a *window*: one consumer with a prefetch of its own. RabbitMQ refills a prefetch with every ack, but
only with acks of messages that this same consumer was given. Therefore:

* a window that is full is closed at once, before any of its messages is settled;
* a window that still has room is closed before one of its messages is settled, unless somebody asks
  for one more message: then the refill is that message;
* messages of closed windows can be settled at any time.

What a closing window may still bring counts as fetched until RabbitMQ says that it is closed. What
arrives when the asker has gone is **kept** (unacked), and offered to the next asker, lowest number
first.

The engine reports what happened, then calls `plan` and does what it says.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

WINDOW_SIZE_MAX = 2_000
"""Messages of one window; the rest of a larger demand follows when it is full."""

WINDOWS_MAX = 8
"""Windows that may be open or closing at a time, of one entity."""

GETS_MAX = 2
"""Up to this many messages are got one by one, when the queue seems to have some."""


@dataclass(slots=True, eq=False)
class Fetched:
    """A message that RabbitMQ has handed to this process and that is not settled.

    Attributes:
        number: its sequence number.
        fetch: the fetch that brought it.
        expires_ms: when it expires (UTC ms), or `None` for never.
    """

    number: int
    fetch: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class Open:
    """Begin to consume with this prefetch."""

    fetch: int
    size: int


@dataclass(frozen=True, slots=True)
class Get:
    """Get one message."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Close:
    """Cancel the consumer; report `closed` when RabbitMQ has answered."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A withdrawal has ended: nothing more comes of the credit that it took back."""

    ticket: int


Effect = Open | Get | Close | Withdrawn

Message = TypeVar("Message", bound=Fetched)


class _State(Enum):
    GET = "get"
    OPEN = "open"
    CLOSING = "closing"


@dataclass(slots=True)
class _Fetch:
    state: _State
    room: int


@dataclass(slots=True)
class _Ask:
    receiver: int
    count: int
    is_withdrawn: bool = False


class Demand(Generic[Message]):
    """Demand and supply of one entity in one process."""

    def __init__(self, *, windows_max: int = WINDOWS_MAX, gets_max: int = GETS_MAX) -> None:
        self._windows_max = windows_max
        self._gets_max = gets_max
        self._asks: deque[_Ask] = deque()
        self._asked = 0
        self._fetches: dict[int, _Fetch] = {}
        self._under_way = 0
        self._kept: list[tuple[int, int, Message]] = []
        self._withdrawals: dict[int, list[_Ask]] = {}
        self._last_id = 0
        self._is_stocked = True

    def __repr__(self) -> str:
        return f"Demand(asked={self._asked}, under_way={self._under_way}, kept={len(self._kept)})"

    @property
    def asked(self) -> int:
        """Messages that receivers ask for and have not had (those being withdrawn not counted)."""
        return self._asked

    @property
    def under_way(self) -> int:
        """Messages that RabbitMQ may still hand over without being told anything more."""
        return self._under_way

    @property
    def kept(self) -> int:
        """Messages held for the next asker."""
        return len(self._kept)

    def ask(self, receiver: int, count: int) -> None:
        """A receiver wants `count` more messages."""
        assert count > 0, "an ask is for one message at least"
        last = self._asks[-1] if self._asks else None
        if last is not None and last.receiver == receiver and not last.is_withdrawn:
            last.count += count
        else:
            self._asks.append(_Ask(receiver, count))
        self._asked += count

    def withdraw(self, receiver: int) -> int:
        """A receiver takes back all it asked for; return the ticket that `Withdrawn` will carry.

        Until then it may still be given what is on its way.
        """
        asks = [ask for ask in self._asks if ask.receiver == receiver and not ask.is_withdrawn]
        for ask in asks:
            ask.is_withdrawn = True
            self._asked -= ask.count
        ticket = self._next_id()
        self._withdrawals[ticket] = asks
        return ticket

    def arrived(self, fetch: int) -> int | None:
        """A fetch has brought a message; return who gets it, or `None` if nobody asks any more."""
        self._arrive(fetch)
        return self._next_asker()

    def discarded(self, fetch: int) -> None:
        """A fetch has brought a message that is not for any receiver."""
        self._arrive(fetch)

    def empty(self, fetch: int) -> None:
        """A get has found nothing."""
        self._is_stocked = False
        self._end(fetch)

    def closed(self, fetch: int) -> None:
        """RabbitMQ has closed a window, whether it was told to or not."""
        self._end(fetch)

    def settling(self, fetch: int, *, may_refill: bool = True) -> Close | None:
        """A message of this fetch is about to be acked or rejected; first do what is returned.

        Args:
            may_refill: the ack follows now. Otherwise (it waits for a confirm, and may never be
                sent) the refill cannot be counted on.
        """
        entry = self._fetches.get(fetch)
        if entry is None or entry.state is not _State.OPEN:
            return None
        if may_refill and self._asked > self._under_way:
            entry.room += 1
            self._under_way += 1
            return None
        return self._close(fetch, entry)

    def keep(self, message: Message) -> None:
        """Hold a message that came back without being settled, for the next asker."""
        heapq.heappush(self._kept, (message.number, self._next_id(), message))

    def offer(self) -> tuple[int, Message] | None:
        """Return the next kept message and who gets it; `None` if there is none of either.

        What is being fetched is promised already: while it covers the demand nothing is offered
        (`plan` then closes windows).
        """
        if not self._kept or self._asked <= self._under_way:
            return None
        receiver = self._next_asker(with_withdrawn=False)
        assert receiver is not None, "asked counts asks that are not withdrawn"
        return receiver, heapq.heappop(self._kept)[2]

    def expire(self, now_ms: int) -> list[Message]:
        """Take out and return the kept messages that have expired."""
        expired = [entry[2] for entry in self._kept if _is_expired(entry[2], now_ms)]
        if expired:
            self._kept = [entry for entry in self._kept if not _is_expired(entry[2], now_ms)]
            heapq.heapify(self._kept)
        return expired

    def next_expiry_ms(self) -> int | None:
        """Return when `expire` has something to do next."""
        return min(
            (e[2].expires_ms for e in self._kept if e[2].expires_ms is not None), default=None
        )

    def give_up_kept(self) -> list[Message]:
        """Take out and return all kept messages, lowest number first."""
        kept, self._kept = [entry[2] for entry in sorted(self._kept)], []
        return kept

    def lost(self) -> list[Message]:
        """The channel is gone, and all it held with it; asks stay. Return what had been kept."""
        for fetch in list(self._fetches):
            self._end(fetch)
        return self.give_up_kept()

    def plan(self, *, can_fetch: bool = True) -> list[Effect]:
        """Return what is to be done so that what is fetched agrees with what is asked."""
        effects: list[Effect] = []
        spare = self._under_way + len(self._kept) - self._asked
        for entry in self._fetches.values():
            if entry.state is _State.CLOSING:
                spare -= entry.room
        for fetch, entry in reversed(self._fetches.items()):
            if entry.state is _State.OPEN and (entry.room == 0 or spare > 0):
                spare -= entry.room
                effects.append(self._close(fetch, entry))
        effects += self._end_withdrawals()
        wanted = self._asked - self._under_way - len(self._kept)
        if wanted > 0 and can_fetch:
            effects += self._fetch(wanted)
        return effects

    def _arrive(self, fetch: int) -> None:
        self._is_stocked = True
        entry = self._fetches.get(fetch)
        if entry is not None and entry.room:
            entry.room -= 1
            self._under_way -= 1
            if entry.state is _State.GET:
                self._end(fetch)

    def _fetch(self, wanted: int) -> list[Effect]:
        """Begin fetches. While gets are under way no window is opened that could overtake them."""
        if any(entry.state is _State.GET for entry in self._fetches.values()):
            return []
        if self._is_stocked and wanted <= self._gets_max:
            return [Get(self._begin(_State.GET, 1)) for _ in range(wanted)]
        windows = sum(1 for entry in self._fetches.values() if entry.state is not _State.GET)
        if windows >= self._windows_max:
            return []
        size = min(wanted, WINDOW_SIZE_MAX)
        return [Open(self._begin(_State.OPEN, size), size)]

    def _end_withdrawals(self) -> list[Effect]:
        """End those without which there is still an asker for all that is under way."""
        ended: list[Effect] = []
        withdrawn = sum(ask.count for asks in self._withdrawals.values() for ask in asks)
        for ticket, asks in list(self._withdrawals.items()):
            others = withdrawn - sum(ask.count for ask in asks)
            if self._under_way <= self._asked + others:
                withdrawn = others
                del self._withdrawals[ticket]
                for ask in asks:
                    ask.count = 0
                ended.append(Withdrawn(ticket))
        return ended

    def _next_asker(self, *, with_withdrawn: bool = True) -> int | None:
        while self._asks and not self._asks[0].count:
            self._asks.popleft()
        for ask in self._asks:
            if ask.count and (with_withdrawn or not ask.is_withdrawn):
                ask.count -= 1
                if not ask.is_withdrawn:
                    self._asked -= 1
                return ask.receiver
        return None

    def _close(self, fetch: int, entry: _Fetch) -> Close:
        entry.state = _State.CLOSING
        if entry.room:
            self._is_stocked = False
        return Close(fetch)

    def _begin(self, state: _State, room: int) -> int:
        fetch = self._next_id()
        self._fetches[fetch] = _Fetch(state, room)
        self._under_way += room
        return fetch

    def _end(self, fetch: int) -> None:
        entry = self._fetches.pop(fetch, None)
        if entry is not None:
            self._under_way -= entry.room

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id


def _is_expired(message: Fetched, now_ms: int) -> bool:
    return message.expires_ms is not None and message.expires_ms <= now_ms
