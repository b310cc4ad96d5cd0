"""Receiving from a cluster of RabbitMQ before 4.3: few messages at a time, each got by itself.

When a node dies, what its consumers held goes back at once, but what cancelled ones held stays
unacked until the node is back and the queue has another leader. So nothing is held on a cancelled
consumer: messages are got one by one, and the window of one message that waits on an empty queue
stays until its message is settled.

To the queue each unsettled get is a consumer, and above 32 of them its members disagree on the
order of what is returned (docs/rabbitmq-faults.md, returns-order): so few are had at a time, all
bridges' and native ones counted.

Whatever goes back counts as a failed delivery: what was released, or came for no receiver, is kept
as on one node (`gets`).
"""

from __future__ import annotations

from typing import Generic

from bridge.machine.credit.balance import Balance, State
from bridge.machine.credit.buffer import Message
from bridge.machine.credit.effects import Close, Effect, Get, Look, Open, Withdrawn
from bridge.machine.credit.gets import KEEP_S, QUIET_S, has_open_room, return_old

CROWDED_S = 0.2
"""How often RabbitMQ is asked whether the queue still has all the consumers that it may have."""

CONSUMERS_MAX = 15
"""Nothing is got while a queue has so many consumers. Those of a node that has died stay among
them, empty, until it is back, and there may be a window beside: 32 in all."""

HELD_MIN = 4
"""So many messages may be held even if others have all these consumers."""


class ClusteredGets(Generic[Message]):
    """What one queue's receivers ask for, and what is fetched for it; see `strategy.Strategy`."""

    def __init__(self) -> None:
        self.balance: Balance[Message] = Balance()
        self._held: dict[int, int] = {}
        self._seen: tuple[int, int] | None = None
        self._crowded_until_s = -1.0
        self._last_arrival_s = 0.0
        self._surplus_since_s = -1.0

    def __repr__(self) -> str:
        return f"ClusteredGets({self.balance!r})"

    @property
    def buffered(self) -> int:
        """Messages that wait here for a receiver."""
        return self.balance.buffer.count

    def limit(self, max_delivery_count: int) -> None:
        """It does not matter how many failed deliveries are too many: nothing comes ahead."""

    def ask(self, receiver: int, count: int, now_s: float) -> None:
        """A receiver wants `count` more messages."""
        self.balance.waiters.add(receiver, count)

    def withdraw(self, receiver: int) -> int:
        """A receiver takes back all it asked for; return the ticket that `Withdrawn` will carry."""
        return self.balance.waiters.withdraw(receiver)

    def arrived(self, fetch: int, message: Message, now_s: float) -> int | None:
        """A fetch has brought a message; return the receiver that gets it now."""
        self._last_arrival_s = now_s
        self.discarded(fetch)
        return self.balance.take(message, now_s)

    def discarded(self, fetch: int) -> None:
        """A fetch has brought a message that is for no receiver."""
        self._held[fetch] = self._held.get(fetch, 0) + 1
        self.balance.came(fetch)

    def released(self, message: Message, now_s: float) -> None:
        """A receiver has given a message back that it did not touch: the next one gets it."""
        self.balance.buffer.push(message, now_s)

    def returning(self) -> None:
        """It does not matter that a message is about to go back: nothing comes ahead."""

    def empty(self, fetch: int) -> None:
        """A get has found nothing."""
        self.balance.is_stocked = False
        self.balance.end(fetch)

    def counted(self, ready: int) -> None:
        """RabbitMQ has said with a message that was got how many more are ready."""
        self.balance.is_stocked = ready > 0

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """RabbitMQ has said how many messages are ready, and how many consumers there are."""
        self._seen = ready, consumers
        self.balance.end(fetch)

    def closed(self, fetch: int) -> None:
        """RabbitMQ has closed a window, whether it was told to or not."""
        self.balance.end(fetch)

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """A message of this fetch is about to be settled; return what must be done first."""
        self._crowded_until_s = min(self._crowded_until_s, now_s)
        self._last_arrival_s = now_s  # what is given back may come to a window of ours at once
        held = self._held.pop(fetch, 0) - 1
        if held > 0:
            self._held[fetch] = held
        balance = self.balance
        entry = balance.fetches.get(fetch)
        if entry is None or entry.state is not State.OPEN:
            return None
        if not entry.room and balance.surplus >= 0:
            return balance.close(fetch)
        balance.refill(entry)
        return None

    def stayed(self, fetch: int) -> None:
        """A message that was about to be settled was not: its window is not refilled."""
        self._held[fetch] = self._held.get(fetch, 0) + 1
        self.balance.unfill(fetch)

    def lost(self) -> None:
        """The channels are gone, and all that came on them; receivers still wait."""
        self._held.clear()
        self._seen = None
        self._crowded_until_s = self._surplus_since_s = -1.0
        self.balance.lose()

    def due_s(self) -> float | None:
        """Return when `plan` has something to do if nothing else happens; `None` for never."""
        times = []
        if self.balance.buffer.count:
            times.append(self.balance.buffer.oldest_s + KEEP_S)
        if self._surplus_since_s >= 0:
            times.append(self._surplus_ends_s())
        if self._crowded_until_s >= 0 and self.balance.waiters.asked:
            times.append(self._crowded_until_s)
        return min(times, default=None)

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return what is to be done so that what is fetched agrees with what is asked for."""
        balance = self.balance
        if now_s >= self._crowded_until_s:
            self._crowded_until_s = -1.0
        effects = balance.offer()
        effects += self._close_windows(now_s)
        effects += return_old(balance, now_s)
        if balance.waiters.has_withdrawals:
            effects += [Withdrawn(ticket) for ticket in balance.waiters.end_withdrawals(None)]
        if balance.surplus < 0 and can_fetch:
            effects += self._fetch(-balance.surplus, now_s)
        else:
            self._seen = None
        return effects

    def _surplus_ends_s(self) -> float:
        return max(self._surplus_since_s, self._last_arrival_s) + QUIET_S

    def _close_windows(self, now_s: float) -> list[Close]:
        """Return what closes room that nobody wants while nothing arrives."""
        balance = self.balance
        if balance.surplus <= 0 or not has_open_room(balance):
            self._surplus_since_s = -1.0
            return []
        if self._surplus_since_s < 0:
            self._surplus_since_s = now_s
        if now_s < self._surplus_ends_s():
            return []
        return [
            balance.close(fetch)
            for fetch, entry in balance.fetches.items()
            if entry.state is State.OPEN and entry.room
        ]

    def _fetch(self, wanted: int, now_s: float) -> list[Effect[Message]]:
        """Look, and begin as many gets as there may be consumers, or a window of one."""
        balance = self.balance
        busy = (State.GETTING, State.LOOKING)
        if any(entry.room or entry.state in busy for entry in balance.fetches.values()):
            return []
        if self._crowded_until_s >= 0:
            return []
        if self._seen is None:
            return [Look(balance.begin(State.LOOKING, 0))]
        (ready, consumers), self._seen = self._seen, None
        # Half of what is free: others may look at the same time.
        may_get = max((CONSUMERS_MAX - consumers + 1) // 2, HELD_MIN - len(self._held))
        if may_get <= 0:
            self._crowded_until_s = now_s + CROWDED_S
            return []
        if not ready:
            return [Open(balance.begin(State.OPEN, 1), 1)]
        gets = min(wanted, ready, may_get)
        return [Get(balance.begin(State.GETTING, 1)) for _ in range(gets)]
