"""Receiving from a cluster of RabbitMQ before 4.3: few messages at a time, each got by itself.

When a node dies, what its consumers held goes back at once, but what cancelled ones held stays
unacked until the node is back and the queue has another leader. So nothing is held on a cancelled
consumer: messages are got one by one, and the window of one message that waits on an empty queue
stays until its message is settled.

To the queue each unsettled get is a consumer, and above 32 of them its members disagree on the
order of what is returned (docs/rabbitmq-faults.md, returns-order): so few are had at a time, all
bridges' and native ones counted.

All else is as on one node (`gets`): whatever goes back counts as a failed delivery, so what was
released, or came for no receiver, is kept.
"""

from __future__ import annotations

from bridge.machine.credit.balance import State
from bridge.machine.credit.buffer import Message
from bridge.machine.credit.effects import Close, Effect, Get, Look, Open
from bridge.machine.credit.gets import Gets

CROWDED_S = 0.2
"""How often RabbitMQ is asked whether the queue still has all the consumers that it may have."""

CONSUMERS_MAX = 15
"""Nothing is got while a queue has so many consumers. Those of a node that has died stay among
them, empty, until it is back, and there may be a window beside: 32 in all."""

HELD_MIN = 4
"""So many messages may be held even if others have all these consumers."""


class ClusteredGets(Gets[Message]):
    """What one queue's receivers ask for, and what is fetched for it: nothing comes ahead."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, int] = {}
        self._consumers = 0
        self._crowded_until_s = -1.0

    @property
    def _keeps_full(self) -> bool:
        return True

    def limit(self, max_delivery_count: int) -> None:
        """It does not matter how many failed deliveries are too many: nothing comes ahead."""

    def discarded(self, fetch: int) -> None:
        """A fetch has brought a message that is for no receiver."""
        self._held[fetch] = self._held.get(fetch, 0) + 1
        super().discarded(fetch)

    def counted(self, ready: int) -> None:
        """It does not matter what a get tells: RabbitMQ is asked before each round."""

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """RabbitMQ has said how many messages are ready, and how many consumers there are."""
        self._ready, self._consumers = ready, consumers
        self.balance.end(fetch)

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """A message of this fetch is about to be settled; return what must be done first."""
        self._crowded_until_s = min(self._crowded_until_s, now_s)
        held = self._held.pop(fetch, 0) - 1
        if held > 0:
            self._held[fetch] = held
        return super().settling(fetch, now_s)

    def stayed(self, fetch: int) -> None:
        """A message that was about to be settled was not: its window is not refilled."""
        self._held[fetch] = self._held.get(fetch, 0) + 1
        super().stayed(fetch)

    def lost(self) -> None:
        """The channels are gone, and all that came on them; receivers still wait."""
        self._held.clear()
        self._crowded_until_s = -1.0
        super().lost()

    def due_s(self) -> float | None:
        """Return when `plan` has something to do if nothing else happens; `None` for never."""
        due_s = super().due_s()
        if self._crowded_until_s < 0 or not self.balance.waiters.asked:
            return due_s
        return self._crowded_until_s if due_s is None else min(due_s, self._crowded_until_s)

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return what is to be done so that what is fetched agrees with what is asked for."""
        if now_s >= self._crowded_until_s:
            self._crowded_until_s = -1.0
        if not can_fetch:
            self._ready = None  # others may fetch before this can
        return super().plan(now_s, can_fetch=can_fetch)

    def _fetch(self, wanted: int, now_s: float) -> list[Effect[Message]]:
        """Look, and begin as many gets as there may be consumers, or a window of one."""
        balance = self.balance
        entries = balance.fetches.values()
        if any(entry.room or entry.state is State.LOOKING for entry in entries):
            return []
        if self._crowded_until_s >= 0:
            return []
        ready, self._ready = self._ready, None
        if ready is None:
            return [Look(balance.begin(State.LOOKING, 0))]
        # Half of what is free: others may look at the same time.
        may_get = max((CONSUMERS_MAX - self._consumers + 1) // 2, HELD_MIN - len(self._held))
        if may_get <= 0:
            self._crowded_until_s = now_s + CROWDED_S
            return []
        if not ready:
            return [Open(balance.begin(State.OPEN, 1), 1)]
        gets = min(wanted, ready, may_get)
        return [Get(balance.begin(State.GETTING, 1)) for _ in range(gets)]
