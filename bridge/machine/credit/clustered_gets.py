"""Receiving from a cluster of RabbitMQ before 4.3: single gets, few messages at a time.

When a node dies, messages of its live consumers go back at once, but messages of its cancelled
consumers stay unacked until the node is back and the queue has another leader. So the strategy
holds nothing on a cancelled consumer: it gets messages one by one, and the window of one message
that waits on an empty queue stays until its message is settled.

To the queue each unsettled get is a consumer, and above 32 of them its members disagree on the
order of returned messages (docs/rabbitmq-faults.md, returns-order). So gets are few at a time; the
consumers of all bridges and of native clients count.

All else is as on one node (`gets`): each return counts as a failed delivery, so messages that were
released, or came for no receiver, are kept.
"""

from __future__ import annotations

from bridge.machine.credit.balance import FetchState
from bridge.machine.credit.buffer import Message
from bridge.machine.credit.effects import Close, Effect, Get, Open
from bridge.machine.credit.gets import Gets

CROWDED_S = 0.2
"""How often the bridge asks RabbitMQ again while the queue has all consumers that it may have."""

CONSUMERS_MAX = 15
"""Nothing is got while a queue has so many consumers. Empty consumers of a dead node count until
the node is back, and there may be a window beside: 32 in all.
"""

HELD_MIN = 4
"""A bridge may hold so many messages even if other clients have all these consumers."""


class ClusteredGets(Gets[Message]):
    """The strategy for a queue in a cluster before 4.3; reads nothing ahead."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, int] = {}
        self._consumers = 0
        self._crowded_until_s = -1.0

    @property
    def _keeps_full(self) -> bool:
        return True

    def limit(self, max_delivery_count: int) -> None:
        """Ignore the delivery limit: nothing is read ahead."""

    def discarded(self, fetch: int) -> None:
        """Count a message that a fetch brought for no receiver."""
        self._held[fetch] = self._held.get(fetch, 0) + 1
        super().discarded(fetch)

    def counted(self, ready: int) -> None:
        """Ignore the count that a get brings: RabbitMQ is asked before each round."""

    def looked(self, fetch: int, ready: int, consumers: int) -> None:
        """Take RabbitMQ's counts of ready messages and of consumers."""
        self._ready, self._consumers = ready, consumers
        self.balance.end(fetch)

    def settling(self, fetch: int, now_s: float) -> Close | None:
        """Return the effect to carry out before a message of this fetch is settled, or `None`."""
        if self._crowded_until_s > now_s:
            self._crowded_until_s = self.due_s = now_s
        held = self._held.pop(fetch, 0) - 1
        if held > 0:
            self._held[fetch] = held
        return super().settling(fetch, now_s)

    def stayed(self, fetch: int) -> None:
        """Take back a `settling`: the message was not settled, and its window is not refilled."""
        self._held[fetch] = self._held.get(fetch, 0) + 1
        super().stayed(fetch)

    def lost(self) -> None:
        """Forget the channels and their messages; receivers still wait."""
        self._held.clear()
        self._crowded_until_s = -1.0
        super().lost()

    def _next_s(self) -> float | None:
        due_s = super()._next_s()
        if self._crowded_until_s < 0 or not self.balance.waiters.asked:
            return due_s
        return self._crowded_until_s if due_s is None else min(due_s, self._crowded_until_s)

    def plan(self, now_s: float, *, can_fetch: bool = True) -> list[Effect[Message]]:
        """Return the effects that bring the fetches in line with the receivers' demand."""
        if now_s >= self._crowded_until_s:
            self._crowded_until_s = -1.0
        if not can_fetch:
            self._ready = None  # other clients may fetch before this strategy can
        return super().plan(now_s, can_fetch=can_fetch)

    def _fetch(self, wanted: int, now_s: float) -> list[Effect[Message]]:
        """Look, then begin as many gets as consumers are allowed, or a window of one message."""
        balance = self.balance
        entries = balance.fetches.values()
        if any(entry.room or entry.state is FetchState.LOOKING for entry in entries):
            return []
        if self._crowded_until_s >= 0:
            return []
        ready, self._ready = self._ready, None
        if ready is None:
            return [self.look()]
        # Half of the free consumers: other bridges may look at the same time.
        may_get = max((CONSUMERS_MAX - self._consumers + 1) // 2, HELD_MIN - len(self._held))
        if may_get <= 0:
            self._crowded_until_s = now_s + CROWDED_S
            return []
        if not ready:
            return [Open(balance.begin(FetchState.OPEN, 1), 1)]
        gets = min(wanted, ready, may_get)
        return [Get(balance.begin(FetchState.GETTING, 1)) for _ in range(gets)]
