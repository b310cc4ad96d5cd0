"""Receiving from RabbitMQ 4.3: returns are not counted, so windows close at any time.

RabbitMQ refills a window's prefetch with every ack of a message that came by that window.
Therefore:

* while a receiver waits, acks may refill windows beyond the demand: no message stands in vain;
* while no receiver waits, windows are closed, at the latest before an ack, and their messages are
  returned. If the receivers usually ask again at once (`read_ahead`), they have `LINGER_S` for it.

**One window at a time has room.** RabbitMQ serves windows with room in turn, and messages of two
come in no order (docs/rabbitmq-faults.md: windows-order), even to one receiver alone. So a larger
demand waits until the window is full, and a full one is closed before an ack that would refill it
beside another. A first, small window of fast receivers is closed before an ack; a larger follows.

Messages that a closing window may still bring count as fetched until RabbitMQ has closed the
window. When a message is returned, all messages on their way to windows stood behind it in the
queue: they are returned too, and nothing is fetched before.

**Apart** (4.3 clusters): each window has a channel of its own, on which nothing is consumed again,
and nothing is got.
"""

from __future__ import annotations

from bridge.machine.credit.balance import State
from bridge.machine.credit.buffer import Message
from bridge.machine.credit.effects import Close, Effect, Get, Open, Return, Withdrawn
from bridge.machine.credit.read_ahead import AHEAD, AHEAD_MAX, LINGER_S
from bridge.machine.credit.strategy import Strategy

WINDOW_SIZE_MAX = 2_000
"""Messages of one window; the rest of a larger demand follows when the window is full."""

WINDOWS_MAX = 8
"""Windows of one queue that may have room, be closing, or be full and wait for acks, at a time."""

GETS_MAX = 2
"""Up to this many messages are got one by one, when the queue seems to have some.

Measured (4.3, one idle node): a get 0.17 ms; a window of one 0.33 ms and 0.25 ms for its cancel;
three gets 0.51 ms, a window of three 0.27 ms.
"""


class Windows(Strategy[Message]):
    """The strategy for a queue of RabbitMQ 4.3 or later.

    Args:
        is_apart: each window has a channel of its own.
    """

    def __init__(self, *, is_apart: bool = False, windows_max: int = WINDOWS_MAX) -> None:
        super().__init__()
        self._is_apart = is_apart
        self._windows_max = windows_max
        self._gets_max = 0 if is_apart else GETS_MAX
        self._returns: list[Message] = []

    @property
    def buffered(self) -> int:
        """Messages that wait here for a receiver, or for their return."""
        return self.balance.buffer.count + len(self._returns)

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """Ask for `count` more messages for a receiver."""
        waiters = self.balance.waiters
        self._read_ahead.asked(now_s, is_first=not waiters.asked)
        self._surplus_since_s = -1.0
        waiters.add(receiver, count)

    def arrived(self, fetch: int, message: Message, now_s: float) -> int | None:
        """Take a fetched message; return the receiver to deliver the message to."""
        entry = self.balance.fetches.get(fetch)
        is_behind = entry is not None and entry.is_behind
        self.balance.came(fetch)
        if is_behind:
            self._returns.append(message)
            return None
        receiver = self.balance.take(message, now_s)
        if not self.balance.waiters.asked:
            self._note_surplus(now_s)
        return receiver

    def released(self, message: Message, now_s: float) -> None:
        """Take back a message that a receiver has given back untouched."""
        self.returning()
        self._returns.append(message)

    def returning(self) -> None:
        """Note that a message is about to return to the queue, before the messages read ahead."""
        super().returning()
        if self.balance.surplus > 0:
            self._fall_behind()

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """Return the effect to carry out before a message of this fetch is settled, or `None`."""
        balance = self.balance
        self._read_ahead.settled(now_s, balance.waiters.asked)
        entry = balance.fetches.get(fetch)
        if entry is None or entry.state is not State.OPEN:
            return None
        may_refill = balance.waiters.asked or self._read_ahead.is_on
        surplus_max = max(AHEAD_MAX, entry.size) if may_refill else 0
        is_small = self._read_ahead.is_fast and entry.size < AHEAD
        is_second = len(balance.fetches) > 1 and self._is_another_filling(fetch)
        if entry.is_behind or is_small or is_second or balance.surplus >= surplus_max:
            return balance.close(fetch)
        balance.refill(entry)
        self._note_surplus(now_s)
        return None

    def _is_another_filling(self, fetch: int) -> bool:
        """Whether another window may bring messages."""
        return any(
            entry.room and entry.state is not State.GETTING
            for other, entry in self.balance.fetches.items()
            if other != fetch
        )

    def is_filling(self, fetch: int) -> bool:
        """Whether an ack of this fetch's message would bring more than receivers ask for."""
        entry = self.balance.fetches.get(fetch)
        is_open = entry is not None and entry.state is State.OPEN and entry.room > 0
        return is_open and self.balance.surplus >= 0

    def lost(self) -> None:
        """Forget the channels and their messages; receivers still wait."""
        self._returns.clear()
        super().lost()

    def due_s(self) -> float | None:
        """Return when `plan` is due if no event comes before; `None` for never."""
        return self._surplus_since_s + LINGER_S if self._surplus_since_s >= 0 else None

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return the effects that bring the fetches in line with the receivers' demand."""
        balance, waiters = self.balance, self.balance.waiters
        effects = balance.offer()
        self._note_surplus(now_s)
        if self._surplus_since_s >= 0 and now_s >= self._surplus_since_s + LINGER_S:
            self._read_ahead.end()
            self._surplus_since_s = now_s
        if waiters.has_withdrawals or not (waiters.asked or self._read_ahead.is_on):
            self._end_surplus(effects)
        if balance.fetches:
            effects += self._close_full()
        if self._returns:
            effects += [Return(message) for message in sorted(self._returns, key=_number)]
            self._returns.clear()
        if waiters.has_withdrawals:
            tickets = waiters.end_withdrawals(balance.under_way)
            effects += [Withdrawn(ticket) for ticket in tickets]
        wanted = (1 if self._read_ahead.is_fast else 0) - balance.surplus
        if wanted > 0 and can_fetch:
            effects += self._fetch(wanted)
        if effects:
            self._note_surplus(now_s)
        return effects

    def _note_surplus(self, now_s: float) -> None:
        """Note since when room or messages stand that no receiver waits for."""
        balance = self.balance
        # `balance.surplus`, where nobody asks: this runs several times a message.
        if balance.waiters.asked or balance.under_way + balance.buffer.count <= balance.closing:
            self._surplus_since_s = -1.0
        elif self._surplus_since_s < 0:
            self._surplus_since_s = now_s

    def _end_surplus(self, effects: list[Effect[Message]]) -> None:
        """Close unwanted room, and return messages that came for no receiver."""
        balance = self.balance
        if balance.surplus <= balance.closing:
            return
        if balance.buffer.count:
            self._fall_behind()
        surplus = balance.surplus - balance.closing
        for fetch, entry in reversed(balance.fetches.items()):
            if entry.state is State.OPEN and entry.room and (surplus > 0 or entry.is_behind):
                surplus -= entry.room
                effects.append(balance.close(fetch))

    def _fall_behind(self) -> None:
        """Return buffered and arriving messages: in the queue they stood behind a returned one."""
        for entry in self.balance.fetches.values():
            entry.is_behind = True
        self._returns += self.balance.buffer.pop_all()

    def _close_full(self) -> list[Close]:
        """Return the effects that close windows which an ack would refill in vain."""
        is_on = self._read_ahead.is_on
        closed: list[Close] = []
        for fetch, entry in self.balance.fetches.items():
            if entry.state is State.OPEN and (entry.is_behind or not (entry.room or is_on)):
                closed.append(self.balance.close(fetch))
        return closed

    def _fetch(self, wanted: int) -> list[Effect[Message]]:
        """Begin fetches.

        Nothing is begun while a message may still be returned that stood before the new messages,
        nor while gets are under way or a window has room: what is begun later could overtake them.
        """
        balance, read_ahead = self.balance, self._read_ahead
        busy = 0
        has_room = False
        for entry in balance.fetches.values():
            if entry.is_behind or entry.state is State.GETTING:
                return []
            has_room = has_room or entry.room > 0
            busy += entry.room > 0 or entry.state is not State.OPEN
        if busy >= self._windows_max or has_room:
            return []
        is_small = wanted <= self._gets_max and not read_ahead.is_on
        if is_small and balance.is_stocked:
            return [Get(balance.begin(State.GETTING, 1)) for _ in range(wanted)]
        size = min(max(wanted, AHEAD) if read_ahead.is_fast else wanted, WINDOW_SIZE_MAX)
        effects: list[Effect[Message]] = list(self._close_oldest())
        effects.append(Open(balance.begin(State.OPEN, size), size))
        return effects

    def _close_oldest(self) -> list[Close]:
        """Return the effects that close full windows: only a few may wait for acks."""
        full = [
            fetch
            for fetch, entry in self.balance.fetches.items()
            if entry.state is State.OPEN and not entry.room
        ]
        keep = 0 if self._is_apart else self._windows_max - 1
        return [self.balance.close(fetch) for fetch in full[: max(len(full) - keep, 0)]]


def _number(message: Message) -> int:
    return message.number
