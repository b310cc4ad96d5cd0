"""What an entity's receivers ask for, and what is fetched for it, as a pure machine.

No message is fetched that nobody asked for. A **fetch** is either a *get* (one message or none) or
a *window*: one consumer with a prefetch of its own. RabbitMQ refills a prefetch with every ack, but
only with acks of messages that this same consumer was given. Therefore:

* a window that is full is closed at once, before any of its messages is settled;
* a window that still has room is closed before one of its messages is settled, unless somebody asks
  for one more message: then the refill is that message;
* messages of closed windows can be settled at any time.

**Ahead.** While receivers take one message at a time in a steady rhythm (`rhythm`), a window of
`AHEAD_MAX` messages stands: an ack brings a message before it is asked for, for
RabbitMQ takes longer to bring it than a client to ask. It goes to the next asker; the engine ends
the standing as soon as nobody asks at once, and gives back what came ahead (keeps it while it is
cautious, see below). No other message is ever fetched without having been asked for.

What a closing window may still bring counts as fetched until RabbitMQ says that it is closed. What
arrives when the asker has gone is **kept** (unacked), and offered to the next asker.

**Cautious.** Before 4.3, a message that is on its way to a consumer that is just being cancelled
goes back into its queue *counted as a failed delivery* (measured on 3.10 and 4.0; on 4.3 it goes
back uncounted). There a window with room is not closed while anything may arrive. Instead windows
are made to fill: one message is got first, for RabbitMQ tells with it how many are ready (what that
leaves for the next window is the *stock*: who asks at once for no more than that need not get one
first), and on an empty queue a window of one message waits (the *sentinel*). Room that nobody wants
any more is closed when nothing has arrived for a while (`close_spare`); until then what comes too
much is kept.

**Clustered.** Before 4.3, when a node dies, what its consumers held goes back at once, but not what
cancelled ones held: that stays unacked, nobody's, until the node is back and a new leader of the
queue is elected (measured on 3.10 and 4.0). So in a cluster nothing is held on a cancelled
consumer: messages are got one by one, and a sentinel that has brought its message stays open until
that is settled.

To the queue each got message is a consumer of its own until it is settled. When a connection ends,
each member of the queue gives back what its consumers held, in the order of an Erlang map: by key
up to 32 entries, above that in another order on every node. From then on the members differ in
which message comes next, and hence in which one an ack means; the next leader has lost messages and
brings settled ones again. So few consumers are had at a time (`CONSUMERS_MAX`), all bridges' and
native ones counted; who asks for more waits until something is settled.

**Apart.** Where each window or get has a channel of its own (`channels`), what comes on two of them
comes in no order: so one at a time has room. Where such a channel is spent, nothing is got.

The engine reports what happened, then calls `plan` and does what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic

from bridge.machine.channels import Channels
from bridge.machine.credit.waiters import Waiters
from bridge.machine.kept import Fetched, Kept, Message

WINDOW_SIZE_MAX = 2_000
"""Messages of one window; the rest of a larger demand follows when it is full."""

WINDOWS_MAX = 8
"""Windows that may be open or closing at a time, of one entity."""

AHEAD_MAX = 32
"""Messages that may be fetched ahead of who asks.

Measured (one idle node): an ack brings the next message after 0.15 ms, a client asks after
about 0.05 ms.
"""

CONSUMERS_MAX = 15
"""In a cluster nothing is got while a queue has so many consumers. Those of a node that has died
stay in the map, empty, until it is back; and there may be a sentinel beside either: 32 in all."""

HELD_MIN = 4
"""So many messages may be held even if others have all these consumers."""

__all__ = ["REFILL", "Close", "Demand", "Fetched", "Get", "Look", "Open", "Withdrawn"]


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
class Look:
    """Ask RabbitMQ how many messages are ready, and how many consumers it has; report `looked`."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Close:
    """Cancel the consumer; report `closed` when RabbitMQ has answered."""

    fetch: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A withdrawal has ended: nothing more comes of the credit that it took back."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Refill:
    """Nothing is to be done: RabbitMQ sends another message, and it is wanted."""


REFILL = Refill()

Effect = Open | Get | Look | Close | Withdrawn


class _State(Enum):
    GETTING = "getting"
    LOOKING = "looking"
    OPEN = "open"
    CLOSING = "closing"


@dataclass(slots=True)
class _Fetch:
    state: _State
    room: int
    is_behind: bool = False


class Demand(Generic[Message]):
    """Demand and supply of one entity in one process.

    Args:
        is_cautious: RabbitMQ counts what a cancel returns (before 4.3).
        is_clustered: RabbitMQ does not return what cancelled consumers of a dead node held (before
            4.3, in a cluster); needs `is_cautious`.
        channels: what windows and gets are on.

    Attributes:
        is_standing: whether messages may be fetched ahead.
        is_crowded: RabbitMQ has as many consumers as it may have. Nothing is fetched until a
            message is settled here, or the engine sets this back to look again.
    """

    def __init__(
        self,
        *,
        is_cautious: bool = False,
        is_clustered: bool = False,
        channels: Channels = Channels.SHARED,
        windows_max: int = WINDOWS_MAX,
    ) -> None:
        self._is_cautious = is_cautious
        self._is_clustered = is_clustered
        self._is_apart = channels.are_apart
        self._windows_max = windows_max
        self._gets_max = channels.gets_max
        self._waiters = Waiters()
        self._kept: Kept[Message] = Kept()
        self._fetches: dict[int, _Fetch] = {}
        self._under_way = 0
        self._last_fetch = 0
        self._is_stocked = True
        self._ready: int | None = None
        self._stock = 0
        self._consumers = 0
        self._held: dict[int, int] = {}
        self.is_crowded = False
        self.is_standing = False
        self._standing = 0

    def __repr__(self) -> str:
        return f"Demand(asked={self.asked}, under_way={self._under_way}, kept={self.kept})"

    @property
    def asked(self) -> int:
        """Messages that receivers ask for and have not had (those being withdrawn not counted)."""
        return self._waiters.asked

    @property
    def under_way(self) -> int:
        """Messages that RabbitMQ may still hand over without being told anything more."""
        return self._under_way

    @property
    def kept(self) -> int:
        """Messages held for the next asker."""
        return len(self._kept)

    @property
    def spare(self) -> int:
        """Messages that open windows have room for and nobody wants."""
        return self._under_way + len(self._kept) - self.asked - self._closing()

    @property
    def consumers(self) -> int:
        """How many consumers of the queue RabbitMQ should count for this process (cautious only).

        Measured (3.10.8, 4.0.5): to a quorum queue a consumer is who is not cancelled, and who is
        but has not settled all; so is each get whose message is not settled.
        """
        is_open = [f for f, entry in self._fetches.items() if entry.state is _State.OPEN]
        return len(self._held.keys() | is_open)

    def ask(self, receiver: int, count: int) -> None:
        """A receiver wants `count` more messages."""
        self._waiters.add(receiver, count)

    def withdraw(self, receiver: int) -> int:
        """A receiver takes back all it asked for; return the ticket that `Withdrawn` will carry.

        Until then it may still be given what is on its way.
        """
        return self._waiters.withdraw(receiver)

    def arrived(self, fetch: int) -> int | None:
        """A fetch has brought a message; return who gets it, or `None` if nobody asks any more.

        Then it is to be kept, or, where messages go back uncounted, given back unless they may be
        fetched ahead.
        """
        self.discarded(fetch)
        receiver = self._waiters.take(with_withdrawn=True)
        if receiver is None and not self.is_standing:
            self._fall_behind()
        return receiver

    def is_behind(self, fetch: int) -> bool:
        """Whether what this fetch brings stood in the queue behind what was given up.

        Then nobody may have it: it goes back as well, and comes again after that.
        """
        entry = self._fetches.get(fetch)
        return entry is not None and entry.is_behind

    def discarded(self, fetch: int) -> None:
        """A fetch has brought a message that is not for any receiver."""
        self._is_stocked = True
        if self._is_cautious:
            self._hold(fetch)
        entry = self._fetches.get(fetch)
        if entry is not None and entry.room:
            entry.room -= 1
            self._under_way -= 1
            if entry.state is _State.GETTING:
                self._end(fetch)

    def forget_stock(self) -> None:
        """Others may have taken what RabbitMQ said was ready."""
        self._stock = 0

    def empty(self, fetch: int) -> None:
        """A get has found nothing."""
        self._is_stocked = False
        self._stock = 0
        self._end(fetch)

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """RabbitMQ has said how many messages are ready, and how many consumers there are."""
        self._is_stocked = ready > 0
        self._ready = ready
        self._consumers = consumers
        self._end(fetch)

    def counted(self, ready: int) -> None:
        """RabbitMQ has said with a message that was got how many more are ready."""
        self._is_stocked = ready > 0
        self._ready = None if self._is_clustered else ready
        self._stock = self._ready or 0

    def closed(self, fetch: int) -> None:
        """RabbitMQ has closed a window, whether it was told to or not."""
        self._end(fetch)

    def settling(self, fetch: int) -> Close | Refill | None:
        """A message of this fetch is about to be acked or rejected; return what it would bring.

        `Close`: a message that nobody wants, so that is done first; `None`: no message. If the ack
        or reject does not happen after all, report `stayed`.
        """
        if self._is_cautious:
            self._let_go(fetch)
            self.is_crowded = False
        entry = self._fetches.get(fetch)
        if entry is None or entry.state is not _State.OPEN:
            return None
        if not entry.is_behind and (
            self.asked > self._under_way
            or (self._is_cautious and entry.room)
            or (self._stands(fetch) and self.under_way + self.kept - self.asked < AHEAD_MAX)
        ):
            entry.room += 1
            self._under_way += 1
            return REFILL
        return self._close(fetch, entry)

    def stayed(self, fetch: int) -> None:
        """A message that was about to be settled was not: its window is not refilled."""
        if self._is_cautious:
            self._hold(fetch)
        entry = self._fetches.get(fetch)
        if entry is not None and entry.state is _State.OPEN and entry.room:
            entry.room -= 1
            self._under_way -= 1

    def keep(self, message: Message) -> None:
        """Hold a message that came back without being settled, for the next asker."""
        self._kept.push(message)

    def offer(self) -> tuple[int, Message] | None:
        """Return the next kept message and who gets it; `None` if there is none of either.

        What is being fetched is promised already: while it covers the demand nothing is offered
        (`plan` then closes windows, unless it is cautious).
        """
        if not self._kept:
            return None
        if self.asked <= self._under_way - self._standing_room() and not self._is_cautious:
            return None
        receiver = self._waiters.take(with_withdrawn=False)
        return None if receiver is None else (receiver, self._kept.pop())

    def expire(self, now_ms: int) -> list[Message]:
        """Take out and return the kept messages that have expired."""
        return self._kept.pop_expired(now_ms)

    def next_expiry_ms(self) -> int | None:
        """Return when `expire` may have something to do next; `None` for never."""
        return self._kept.next_expiry_ms()

    def give_up_kept(self) -> list[Message]:
        """Take out and return all kept messages, lowest number first: they go back to the queue."""
        if self._kept:
            self._fall_behind()
        return self._kept.pop_all()

    def lost(self) -> list[Message]:
        """The channel is gone, and all it held with it; asks stay. Return what had been kept."""
        for fetch in list(self._fetches):
            self._end(fetch)
        self._held.clear()
        self.is_crowded = False
        self._stock = 0
        return self._kept.pop_all()

    def plan(self, *, can_fetch: bool = True) -> list[Effect]:
        """Return what is to be done so that what is fetched agrees with what is asked."""
        effects: list[Effect] = []
        effects += self._close_full() if self._is_cautious else self.close_spare()
        still_coming = None if self._is_cautious else self._under_way - self._ahead()
        effects += [Withdrawn(ticket) for ticket in self._waiters.end_withdrawals(still_coming)]
        wanted = self.asked - self._under_way - len(self._kept)
        if wanted > 0 and can_fetch:
            effects += self._fetch(wanted)
        else:
            self._ready = None
        return effects

    def close_spare(self) -> list[Close]:
        """Return what closes the windows that are full, and those that nobody wants."""
        closes = self._close_full()
        spare = self.spare - self._ahead()
        for fetch, entry in reversed(self._fetches.items()):
            is_open = entry.state is _State.OPEN and entry.room and not self._stands(fetch)
            if is_open and spare > 0:
                spare -= entry.room
                closes.append(self._close(fetch, entry))
        return closes

    def _close_full(self) -> list[Close]:
        if self._is_clustered:
            return []
        return [
            self._close(fetch, entry)
            for fetch, entry in self._fetches.items()
            if entry.state is _State.OPEN
            and (entry.is_behind or (entry.room == 0 and not self._stands(fetch)))
        ]

    def _stands(self, fetch: int) -> bool:
        return self.is_standing and fetch == self._standing

    def _ahead(self) -> int:
        """Return how many messages are being fetched ahead."""
        return min(self._standing_room(), max(self._under_way - self.asked, 0))

    def _standing_room(self) -> int:
        entry = self._fetches.get(self._standing) if self.is_standing else None
        return 0 if entry is None else entry.room

    def _fetch(self, wanted: int) -> list[Effect]:
        """Begin fetches.

        Nothing is begun while something may still go back that stood before what would come. While
        gets are under way no window is opened that could overtake them. While a window may bring
        something nothing is got: RabbitMQ's channel waits for the queue's answer to a get, and
        meanwhile leaves in its mailbox what is on its way to the window.
        """
        if any(entry.is_behind for entry in self._fetches.values()):
            return []
        has_room = any(entry.room for entry in self._fetches.values())
        states = [
            entry.state
            for entry in self._fetches.values()
            if entry.room or entry.state is not _State.OPEN
        ]
        if _State.GETTING in states or _State.LOOKING in states:
            return []
        if has_room and (self._is_cautious or self._is_apart):
            return []
        if self._is_clustered:
            return self._fetch_clustered(wanted)
        if self.is_standing and wanted == 1 and self._standing not in self._fetches:
            self._standing = self._begin(_State.OPEN, AHEAD_MAX)
            return [Open(self._standing, AHEAD_MAX)]
        if self._is_stocked and not has_room and wanted <= self._gets_max:
            return [Get(self._begin(_State.GETTING, 1)) for _ in range(wanted)]
        if len(states) >= self._windows_max:
            return []
        size = min(wanted, WINDOW_SIZE_MAX)
        if self._is_cautious:
            if self._ready is None and self._stock >= wanted:
                self._ready = self._stock
            if self._is_stocked and self._ready is None:
                return [Get(self._begin(_State.GETTING, 1))]
            ready, self._ready = self._ready or 0, None
            size = min(size, max(ready, 1))
            self._stock = max(ready - size, 0)
        return [Open(self._begin(_State.OPEN, size), size)]

    def _fetch_clustered(self, wanted: int) -> list[Effect]:
        """Look, and begin as many gets as there may be consumers, or a sentinel."""
        if self.is_crowded:
            return []
        if self._ready is None:
            return [Look(self._begin(_State.LOOKING, 0))]
        ready, self._ready = self._ready, None
        # Half of what is free: others may look at the same time.
        may_get = max((CONSUMERS_MAX - self._consumers + 1) // 2, HELD_MIN - len(self._held))
        self.is_crowded = may_get <= 0
        if self.is_crowded:
            return []
        if not ready:
            return [Open(self._begin(_State.OPEN, 1), 1)]
        gets = min(wanted, ready, may_get)
        return [Get(self._begin(_State.GETTING, 1)) for _ in range(gets)]

    def _fall_behind(self) -> None:
        """Something goes back: what is on its way now comes after it."""
        if not self._is_cautious:
            for entry in self._fetches.values():
                entry.is_behind = True

    def _hold(self, fetch: int) -> None:
        self._held[fetch] = self._held.get(fetch, 0) + 1

    def _let_go(self, fetch: int) -> None:
        held = self._held.get(fetch, 0)
        if held > 1:
            self._held[fetch] = held - 1
        elif held:
            del self._held[fetch]

    def _closing(self) -> int:
        return sum(entry.room for entry in self._fetches.values() if entry.state is _State.CLOSING)

    def _close(self, fetch: int, entry: _Fetch) -> Close:
        entry.state = _State.CLOSING
        if entry.room:
            self._is_stocked = False
            self._stock = 0
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
