"""Receiving from one node of RabbitMQ before 4.3: each return counts as a failed delivery.

A message that is on its way to a consumer while the consumer is cancelled goes back, counted (4.0).
So windows are made to fill. A get comes first, because RabbitMQ tells the number of ready messages
with it; a window of that size follows, and is closed when it is full. On an empty queue a window of
one message waits. Room that no receiver wants any more is closed when nothing has arrived for
`QUIET_S`. One fetch at a time has room.

Messages that were released, or came for no receiver, are kept for the next receiver, lowest number
first, for `KEEP_S`; then they are returned, counted.

While receivers are fast (`read_ahead`) a window of some messages stands, and acks refill it. When
the receivers end, messages read ahead are kept, and returned as above. So the receivers must have
taken as many messages before, lest a message be returned twice unseen; and nothing is read ahead
where one return would dead-letter the message (`limit`).
"""

from __future__ import annotations

from bridge.machine.credit.balance import Balance, FetchState
from bridge.machine.credit.buffer import Message
from bridge.machine.credit.effects import Close, Effect, Get, Open, Return, Withdrawn
from bridge.machine.credit.read_ahead import AHEAD_MAX, LINGER_S
from bridge.machine.credit.strategy import Strategy

KEEP_S = 5.0
"""How long a message is kept in the bridge for the next receiver."""

FILLED_MAX = 2_000
"""Messages of one window, which is to fill; the rest of a larger demand follows."""

QUIET_S = 2.0
"""After so long without an arrival or a return no message is likely on its way to a window."""


class Gets(Strategy[Message]):
    """The strategy for a queue on one node of RabbitMQ before 4.3.

    Args:
        ahead_max: messages that may be read ahead, and fast requests that turn this on.
    """

    def __init__(self, ahead_max: int = AHEAD_MAX) -> None:
        super().__init__(ahead_max)
        self._ahead_max = ahead_max
        self._may_read_ahead = False
        self._ready: int | None = None
        self._last_arrival_s = 0.0
        self._surplus_since_s = -1.0

    @property
    def _is_ahead(self) -> bool:
        return self._read_ahead.is_fast and self._may_read_ahead

    @property
    def _keeps_full(self) -> bool:
        """Whether a full window stays open."""
        return self._is_ahead

    def limit(self, max_delivery_count: int) -> None:
        """Set how many failed deliveries dead-letter a message."""
        self._may_read_ahead = max_delivery_count > 1

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """Ask for `count` more messages for a receiver."""
        self._read_ahead.asked(now_s, is_first=True)  # waiting receivers cost a get a message, too
        self.balance.waiters.add(receiver, count)

    def arrived(self, fetch: int, message: Message, now_s: float) -> int | None:
        """Take a fetched message; return the receiver to deliver the message to."""
        self._last_arrival_s = now_s
        self.discarded(fetch)
        return self.balance.take(message, now_s)

    def released(self, message: Message, now_s: float) -> None:
        """Buffer a message that a receiver gave back untouched, for the next receiver."""
        self.balance.buffer.push(message, now_s)

    def counted(self, ready: int) -> None:
        """Take the count of ready messages that RabbitMQ sent with a got message."""
        super().counted(ready)
        self._ready = ready

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """Return the effect to carry out before a message of this fetch is settled, or `None`."""
        balance = self.balance
        self._read_ahead.settled(now_s, balance.waiters.asked)
        self._last_arrival_s = now_s  # a returned message may come to a window of ours at once
        entry = balance.fetches.get(fetch)
        if entry is None or entry.state is not FetchState.OPEN:
            return None
        if not entry.room and balance.surplus >= (self._ahead_max if self._is_ahead else 0):
            return balance.close(fetch)
        balance.refill(entry)
        return None

    def lost(self) -> None:
        """Forget the channels and their messages; receivers still wait."""
        self._ready = None
        self._surplus_since_s = -1.0
        super().lost()

    def _next_s(self) -> float | None:
        due_s = self.balance.buffer.oldest_s + KEEP_S if self.balance.buffer.count else None
        if self._surplus_since_s >= 0:
            surplus_s = self._surplus_ends_s()
            due_s = surplus_s if due_s is None else min(due_s, surplus_s)
        return due_s

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return the effects that bring the fetches in line with the receivers' demand."""
        balance = self.balance
        effects = balance.offer()
        effects += self._close_windows(now_s)
        effects += _return_old(balance, now_s)
        if balance.waiters.has_withdrawals:
            effects += [Withdrawn(ticket) for ticket in balance.waiters.end_withdrawals(None)]
        if balance.surplus < 0 and can_fetch:
            effects += self._fetch(-balance.surplus, now_s)
        if balance.surplus >= 0:
            self._ready = None
        self.due_s = self._next_s()
        return effects

    def _surplus_ends_s(self) -> float:
        if self._is_ahead:
            return self._surplus_since_s + LINGER_S
        return max(self._surplus_since_s, self._last_arrival_s) + QUIET_S

    def _close_windows(self, now_s: float) -> list[Close]:
        """Return the effects that close full windows, and unwanted room while nothing arrives."""
        self._note_surplus(now_s)
        is_over = self._surplus_since_s >= 0 and now_s >= self._surplus_ends_s()
        if is_over and self._is_ahead:
            self._read_ahead.end()
            is_over = now_s >= self._surplus_ends_s()
        if is_over:
            self._surplus_since_s = -1.0
        return [
            self.balance.close(fetch)
            for fetch, entry in self.balance.fetches.items()
            if entry.state is FetchState.OPEN and (is_over if entry.room else not self._keeps_full)
        ]

    def _note_surplus(self, now_s: float) -> None:
        """Note since when a window has unwanted room, or stands while no receiver waits."""
        balance = self.balance
        if self._is_ahead:
            is_surplus = not balance.waiters.asked
        else:
            is_surplus = balance.surplus > 0 and _has_open_room(balance)
        if not is_surplus:
            self._surplus_since_s = -1.0
        elif self._surplus_since_s < 0:
            self._surplus_since_s = now_s

    def _fetch(self, wanted: int, now_s: float) -> list[Effect[Message]]:
        """Begin a fetch; none while another is under way, or a window has room."""
        balance = self.balance
        if any(entry.room for entry in balance.fetches.values()):
            return []
        ready, self._ready = self._ready, None
        if self._is_ahead:
            size = max(min(wanted, FILLED_MAX), self._ahead_max)
        elif balance.is_stocked and ready is None:
            return [Get(balance.begin(FetchState.GETTING, 1))]
        else:
            size = min(wanted, max(ready or 0, 1), FILLED_MAX)
        # Messages of two channels come in no order: so no ack refills a window that stood.
        stood = [
            fetch for fetch, entry in balance.fetches.items() if entry.state is FetchState.OPEN
        ]
        effects: list[Effect[Message]] = [balance.close(fetch) for fetch in stood]
        effects.append(Open(balance.begin(FetchState.OPEN, size), size))
        return effects


def _has_open_room(balance: Balance[Message]) -> bool:
    """Whether an open window has room."""
    return any(entry.state is FetchState.OPEN and entry.room for entry in balance.fetches.values())


def _return_old(balance: Balance[Message], now_s: float) -> list[Effect[Message]]:
    """Return the effects that return messages kept for `KEEP_S`."""
    buffer = balance.buffer
    if not buffer.count or now_s < buffer.oldest_s + KEEP_S:
        return []
    return [Return(message) for message in buffer.pop_since(max(now_s - KEEP_S, buffer.oldest_s))]
