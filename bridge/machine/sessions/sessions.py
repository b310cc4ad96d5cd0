"""The sessions of one entity as a pure machine: who may have which message, and when.

* **First in, first out.** A session's messages are delivered in the order of their numbers. One
  that is to come again (its count is raised, its body fetched) holds up what is behind it.
* **One receiver.** A session is one receiver's from `accept` until `close`, or until its lock
  ends. Who waits for a next session gets the one that has been available longest, first come first
  served.
* **Counts.** A delivery fails when it is abandoned, or when the session's lock ends at its instant
  before it is settled. `close` counts nothing, nor does what RabbitMQ delivers again by itself.
* **Expiry.** What has expired is not delivered; it is found when it is next in its session, or by
  `sweep`.

RabbitMQ keeps every message; here are an index of all and the bodies of some (`MemoryBudget`). Of
two copies of one message the one of the higher count stays. Nothing is forgotten before it has
left.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from bridge.machine.deduplicator import Identity, digest
from bridge.machine.locks import Locks
from bridge.machine.memory_budget import MemoryBudget
from bridge.machine.sessions.ages import Ages
from bridge.machine.sessions.effects import (
    Count,
    Deliver,
    Drop,
    Effect,
    Exhaust,
    Expire,
    Fetch,
    Given,
    Lost,
    Refresh,
    Refused,
    Unlock,
)
from bridge.machine.sessions.place import (
    COMING,
    FETCHED,
    LEAVING,
    READY,
    REFRESHED,
    Place,
)
from bridge.machine.sessions.session import Holder, Session
from bridge.machine.settled import SettledNumbers

Message = TypeVar("Message")

GRACE_MS = 5_000
"""RabbitMQ itself ends what expires while it is on its way here: after its time it is waited for so
much longer."""


TAKEN_AHEAD = 100
"""So many bodies are fetched at a time of messages that are taken."""


class Sessions(Generic[Message]):
    """All sessions of an entity; each command returns what is to be done, in order.

    Args:
        budget: where the bodies that are here are counted.
        settled: where the settled numbers are remembered.
        ages: counts what comes.
        lock_duration_ms: how long a session is locked.
        max_delivery_count: so many failed deliveries end a message.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        settled: SettledNumbers,
        *,
        lock_duration_ms: int,
        max_delivery_count: int,
        ages: Ages | None = None,
    ) -> None:
        self._ages = ages if ages is not None else Ages()
        self.lock_duration_ms = lock_duration_ms
        self.max_delivery_count = max_delivery_count
        self._budget = budget
        self._settled = settled
        self._places: dict[Identity, Place[Message]] = {}
        self._sessions: dict[str, Session[Message]] = {}
        self._available: dict[str, Session[Message]] = {}
        self._held: dict[Hashable, Session[Message]] = {}
        self._waiters: dict[Hashable, None] = {}
        self._locks: Locks[Session[Message]] = Locks()
        self._overdue: list[tuple[int, int, Place[Message]]] = []

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self._places)

    def __repr__(self) -> str:
        return (
            f"Sessions({len(self._places)} messages of {len(self._sessions)}, "
            f"{len(self._held)} held, {len(self._waiters)} waiting)"
        )

    @property
    def ids(self) -> list[str]:
        """The sessions that have messages."""
        return [each.id for each in self._sessions.values() if each.count]

    @property
    def receivers(self) -> list[Hashable]:
        """Who holds a session, or waits for one."""
        return [*self._held, *self._waiters]

    def is_held(self, session_id: str, *, now_ms: int) -> bool:
        """Whether a receiver holds a session."""
        return self._locks.find(session_id.encode(), now_ms=now_ms) is not None

    # What RabbitMQ brings.

    def arrived(self, place: Place[Message], *, now_ms: int) -> list[Effect]:
        """A message has come, with its body."""
        self._ages.arrived()
        known = self._places.get(place.identity)
        if known is not None:
            return self._again(known, place, now_ms)
        settled = self._settled.digest_of(place.number)
        if settled is not None and settled == digest(place.identity):
            return [Drop(place.where)]
        session = self._session(place.session_id)
        place.since = self._ages.now
        self._places[place.identity] = place
        session.count += 1
        self._keep(place, is_wanted=False)
        session.ready(place)
        return self._on_ready(session, now_ms)

    def _again(self, known: Place[Message], new: Place[Message], now_ms: int) -> list[Effect]:
        """A message has come that is here already, or is expected."""
        if known.state == COMING and new.generation >= known.generation:
            refreshing, known.refreshing = known.refreshing, 0
            self._replace(known, new, is_wanted=refreshing != REFRESHED)
            if refreshing == FETCHED:
                return [*self._drop_seconds(known), self._refresh(known)]
            known.state = READY
            session = self._sessions[known.session_id]
            session.ready(known)
            return [*self._drop_seconds(known), *self._on_ready(session, now_ms)]
        if known.state == READY:
            if new.generation < known.generation:
                return [Drop(new.where)]
            earlier = known.where
            self._replace(known, new, is_wanted=False)
            return [Drop(earlier)]
        known.seconds = [*(known.seconds or ()), new.where]
        return []

    def _replace(self, known: Place[Message], new: Place[Message], *, is_wanted: bool) -> None:
        self._forget_body(known)
        known.generation, known.where = new.generation, new.where
        known.message, known.size_bytes = new.message, new.size_bytes
        self._keep(known, is_wanted=is_wanted)

    def find(self, identity: Identity) -> Place[Message] | None:
        """Return where a message is."""
        return self._places.get(identity)

    def clear(self) -> list[Effect]:
        """RabbitMQ has taken everything back: all locks end; what is settled stays so."""
        effects: list[Effect] = [Lost(receiver) for receiver in self.receivers]
        for place in self._places.values():
            self._forget_body(place)
        self._places.clear()
        self._sessions.clear()
        self._available.clear()
        self._held.clear()
        self._waiters.clear()
        self._locks = Locks()
        self._overdue.clear()
        return effects

    # What receivers want.

    def accept(self, receiver: Hashable, session_id: str | None, *, now_ms: int) -> list[Effect]:
        """A receiver wants a session, or (`None`) waits for the next one."""
        assert receiver not in self._held
        if session_id is None:
            self._waiters[receiver] = None
            return self._serve(now_ms)
        effects = self.tick(now_ms)
        session = self._session(session_id)
        if session.holder is not None:
            return [*effects, Refused(receiver)]
        return [*effects, *self._give(session, receiver, now_ms)]

    def add_credit(self, receiver: Hashable, count: int, *, now_ms: int) -> list[Effect]:
        """A receiver wants `count` more messages."""
        effects = self.tick(now_ms)
        session = self._held.get(receiver)
        if session is None or session.holder is None:
            return effects
        session.holder.credit += count
        return [*effects, *self._pump(session, now_ms)]

    def drain(self, receiver: Hashable) -> None:
        """A receiver wants no more messages for now."""
        session = self._held.get(receiver)
        if session is not None and session.holder is not None:
            session.holder.credit = 0

    def close(self, receiver: Hashable, *, now_ms: int) -> list[Effect]:
        """A receiver gives up its session, or its wait."""
        effects = self.tick(now_ms)
        self._waiters.pop(receiver, None)
        session = self._held.pop(receiver, None)
        if session is None:
            return effects
        self._locks.release(session.id.encode(), now_ms=now_ms)
        session.holder = None
        for place in session.take_out():
            effects.append(Unlock(place))
            place.state = READY
            session.ready(place)
        return [*effects, *self._on_ready(session, now_ms)]

    def renew(self, session_id: str, *, now_ms: int) -> tuple[int, list[Place[Message]]] | None:
        """Return a lock's new end, and what is delivered under it; `None` if it has ended."""
        key = session_id.encode()
        session = self._locks.find(key, now_ms=now_ms)
        until_ms = self._locks.renew(key, duration_ms=self.lock_duration_ms, now_ms=now_ms)
        if session is None or until_ms is None:
            return None
        return until_ms, list(session.out.values())

    def take(self, session_id: str, *, now_ms: int) -> tuple[list[Effect], Place[Message] | None]:
        """Take a held session's next message as if it were delivered, past its receiver's credit.

        Returns:
            The message, or `None`: there is none yet (`has_more` tells), or its body is fetched.
        """
        session = self._sessions.get(session_id)
        if session is None or not self.is_held(session_id, now_ms=now_ms):
            return [], None
        effects = self._prune(session, now_ms)
        place = session.head()
        if place is None:
            return effects, None
        if place.message is None:
            return [*effects, *self._fetch_ahead(session, TAKEN_AHEAD, now_ms)], None
        session.pop()
        session.delivered(place)
        return effects, place

    def has_more(self, session_id: str) -> bool:
        """Whether a session has messages that its receiver does not have."""
        session = self._sessions.get(session_id)
        return session is not None and session.count > len(session.out)

    # What becomes of what was delivered.

    def leaving(self, place: Place[Message]) -> None:
        """It is being settled, or moved: its token is spent."""
        place.state = LEAVING
        self._sessions[place.session_id].out.pop(id(place), None)

    def stayed(self, place: Place[Message], where: Any, *, now_ms: int) -> list[Effect] | None:
        """That has failed; `None`: it is its receiver's again, under the same lock.

        Otherwise its token is to end: its session was given up meanwhile, or its new copy has come
        though nothing has confirmed that.
        """
        if place.where != where:
            return [Drop(where)]
        if place.state == COMING:
            place.generation -= 1
        session = self._sessions[place.session_id]
        if session.holder is not None and self.is_held(session.id, now_ms=now_ms):
            session.delivered(place)
            return None
        return [Unlock(place), *self.released(place, now_ms=now_ms)]

    def returning(self, place: Place[Message], *, now_ms: int) -> None:
        """It is published again, one more on its count: that copy is to come."""
        session = self._sessions[place.session_id]
        session.out.pop(id(place), None)
        place.generation += 1
        self._is_new(place)
        self._coming(session, place, now_ms)

    def released(self, place: Place[Message], *, now_ms: int) -> list[Effect]:
        """It is available again as it was."""
        session = self._sessions[place.session_id]
        session.out.pop(id(place), None)
        place.state = READY
        session.ready(place)
        return self._on_ready(session, now_ms)

    def left(self, place: Place[Message], *, is_settled: bool, now_ms: int) -> list[Effect]:
        """It has left its queue, for good (`is_settled`) or for another."""
        if self._places.get(place.identity) is not place:
            return []
        if is_settled:
            self._settled.add(place.number, digest(place.identity))
        effects = self._drop_seconds(place)
        self._forget(place)
        return effects

    # What is old.

    def refresh(self, at_most: int, *, now_ms: int) -> list[Effect]:
        """Have the oldest messages that wait published again, when they are too old."""
        limit = self._ages.limit(len(self._places))
        old: dict[str, list[Place[Message]]] = {}
        for place in self._places.values():  # in the order in which they came
            if place.since >= limit or at_most <= 0:
                break
            if place.state == READY and not place.has_expired(now_ms):
                old.setdefault(place.session_id, []).append(place)
                at_most -= 1
        effects: list[Effect] = []
        for session_id, places in old.items():
            session = self._sessions[session_id]
            session.take(places)
            for place in places:
                self._coming(session, place, now_ms)
                if place.message is None:
                    place.refreshing = FETCHED
                    effects.append(Fetch(place))
                else:
                    effects.append(self._refresh(place))
        return effects

    def _refresh(self, place: Place[Message]) -> Effect:
        place.refreshing = REFRESHED
        self._is_new(place)
        return Refresh(place)

    def _is_new(self, place: Place[Message]) -> None:
        """It is published again: behind all that is there."""
        place.since = self._ages.now
        self._places[place.identity] = self._places.pop(place.identity)

    # Time.

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        for session in self._locks.expire(now_ms):
            effects += self._lapse(session, now_ms)
        while self._overdue and self._overdue[0][0] <= now_ms:
            _, _, place = heapq.heappop(self._overdue)
            if place.state == COMING and self._places.get(place.identity) is place:
                session = self._sessions[place.session_id]
                effects += self._drop_seconds(place)
                self._forget(place)
                effects += self._on_ready(session, now_ms)
        return effects

    def due_ms(self) -> int | None:
        """Return when `tick` has something to do next."""
        ends = [self._locks.next_end_ms(), self._overdue[0][0] if self._overdue else None]
        return min((each for each in ends if each is not None), default=None)

    def sweep(self, *, now_ms: int) -> Iterator[list[Effect]]:
        """End what has expired at the head of each session, a session a step."""
        for session in list(self._sessions.values()):
            yield self._prune(session, now_ms)

    def _lapse(self, session: Session[Message], now_ms: int) -> list[Effect]:
        assert session.holder is not None
        receiver = session.holder.receiver
        session.holder = None
        del self._held[receiver]
        effects: list[Effect] = [Lost(receiver)]
        for place in session.take_out():
            effects.append(self.fail(place, now_ms=now_ms))
        return [*effects, *self._on_ready(session, now_ms)]

    def fail(self, place: Place[Message], *, now_ms: int) -> Effect:
        """It was abandoned, or its lock has ended."""
        session = self._sessions[place.session_id]
        session.out.pop(id(place), None)
        place.state = LEAVING
        if place.has_expired(now_ms):
            return Expire(place)
        if place.generation + 1 >= self.max_delivery_count:
            return Exhaust(place)
        self.returning(place, now_ms=now_ms)
        return Count(place)

    # The order within a session.

    def _on_ready(self, session: Session[Message], now_ms: int) -> list[Effect]:
        """A session may have something to deliver."""
        if session.holder is not None:
            return self._pump(session, now_ms)
        if session.is_over:
            self._sessions.pop(session.id, None)
            self._available.pop(session.id, None)
            return []
        if session.head() is not None:
            self._available.setdefault(session.id, session)
            return self._serve(now_ms) if self._waiters else []
        return []

    def _serve(self, now_ms: int) -> list[Effect]:
        """Give available sessions to those who wait."""
        effects: list[Effect] = []
        while self._waiters and self._available:
            session = self._available.pop(next(iter(self._available)))
            if session.holder is not None:
                continue
            effects += self._prune(session, now_ms)
            if session.head() is None:
                continue
            receiver = next(iter(self._waiters))
            del self._waiters[receiver]
            effects += self._give(session, receiver, now_ms)
        return effects

    def _give(self, session: Session[Message], receiver: Hashable, now_ms: int) -> list[Effect]:
        self._available.pop(session.id, None)
        session.holder = Holder(receiver)
        self._held[receiver] = session
        until_ms = self._locks.acquire(
            session.id.encode(), session, duration_ms=self.lock_duration_ms, now_ms=now_ms
        )
        return [Given(receiver, session.id, until_ms)]

    def _pump(self, session: Session[Message], now_ms: int) -> list[Effect]:
        """Deliver what the receiver wants, and fetch the bodies that are missing for that."""
        effects: list[Effect] = []
        holder = session.holder
        if holder is None or not self.is_held(session.id, now_ms=now_ms):
            return []
        wanted = holder.credit
        while wanted > 0:
            effects += self._prune(session, now_ms)
            place = session.head()
            if place is None:
                break
            if place.message is None:
                effects += self._fetch_ahead(session, wanted, now_ms)
                break
            session.pop()
            session.delivered(place)
            holder.credit -= 1
            wanted -= 1
            effects.append(Deliver(holder.receiver, place))
        return effects

    def _prune(self, session: Session[Message], now_ms: int) -> list[Effect]:
        """End what may not be delivered any more, at the head of a session."""
        effects: list[Effect] = []
        while (place := session.head()) is not None:
            is_over = place.has_expired(now_ms)
            if not is_over and place.generation < self.max_delivery_count:
                break
            session.pop()
            if place.message is None:
                self._expect(place, now_ms)
                effects.append(Fetch(place))
                continue
            place.state = LEAVING
            effects.append(Expire(place) if is_over else Exhaust(place))
        return effects

    def _fetch_ahead(self, session: Session[Message], wanted: int, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        skipped: list[Place[Message]] = []
        while wanted > 0 and session.has_ready:
            place = session.pop()
            wanted -= 1
            if place.message is None:
                effects.append(self._fetch(session, place, now_ms))
            else:
                skipped.append(place)
        for place in skipped:
            session.ready(place)
        return effects

    def _fetch(self, session: Session[Message], place: Place[Message], now_ms: int) -> Effect:
        self._coming(session, place, now_ms)
        return Fetch(place)

    def _coming(self, session: Session[Message], place: Place[Message], now_ms: int) -> None:
        self._expect(place, now_ms)
        session.coming(place)

    def _expect(self, place: Place[Message], now_ms: int) -> None:
        place.state = COMING
        if place.expires_ms is not None:
            entry = (max(place.expires_ms, now_ms) + GRACE_MS, place.number, place)
            heapq.heappush(self._overdue, entry)

    # Bodies, and the end.

    def _session(self, session_id: str) -> Session[Message]:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id)
        return session

    def _keep(self, place: Place[Message], *, is_wanted: bool) -> None:
        budget = self._budget
        if is_wanted or budget.used_bytes + place.size_bytes <= budget.limit_bytes:
            budget.used_bytes += place.size_bytes
        else:
            place.message = None

    def _forget_body(self, place: Place[Message]) -> None:
        if place.message is not None:
            self._budget.used_bytes -= place.size_bytes
            place.message = None

    def _drop_seconds(self, place: Place[Message]) -> list[Effect]:
        seconds, place.seconds = place.seconds, None
        return [Drop(where) for where in seconds or ()]

    def _forget(self, place: Place[Message]) -> None:
        del self._places[place.identity]
        self._forget_body(place)
        place.state = LEAVING
        session = self._sessions[place.session_id]
        session.out.pop(id(place), None)
        session.count -= 1
        if session.is_over:
            del self._sessions[session.id]
            self._available.pop(session.id, None)
