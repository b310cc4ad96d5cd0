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

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from bridge.machine.deduplicator import Identity, digest
from bridge.machine.locks import Locks
from bridge.machine.memory_budget import MemoryBudget
from bridge.machine.sessions.ages import Ages
from bridge.machine.sessions.effects import (
    Count,
    Deliver,
    DeliveryCountExceeded,
    Drop,
    Effect,
    Expire,
    Fetch,
    Given,
    Lost,
    Refresh,
    Refused,
    Unlock,
)
from bridge.machine.sessions.expected import Expected
from bridge.machine.sessions.index import Index
from bridge.machine.sessions.place import (
    COMING,
    FETCHED,
    LEAVING,
    READY,
    REFRESHED,
    Place,
)
from bridge.machine.sessions.session import Holder, Session
from bridge.machine.sessions.supply import Supply
from bridge.machine.settled import SettledNumbers

Message = TypeVar("Message")

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
        self._settled = settled
        self._supply: Supply[Message] = Supply()
        self._index: Index[Message] = Index(budget, self._supply)
        self._held: dict[Hashable, Session[Message]] = {}
        self._locks: Locks[Session[Message]] = Locks()
        self._expected = Expected()

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self._index.places)

    def __repr__(self) -> str:
        return (
            f"Sessions({len(self._index.places)} messages of {len(self._index.sessions)}, "
            f"{len(self._held)} held, {len(self._supply.receivers)} waiting)"
        )

    @property
    def ids(self) -> list[str]:
        """The sessions that have messages."""
        return [each.id for each in self._index.sessions.values() if each.count]

    @property
    def holders(self) -> list[Hashable]:
        """Who holds a session."""
        return list(self._held)

    def is_held(self, session_id: str, *, now_ms: int) -> bool:
        """Whether a receiver holds a session."""
        return self._locks.find(session_id.encode(), now_ms=now_ms) is not None

    # What RabbitMQ brings.

    def arrived(self, place: Place[Message], *, now_ms: int) -> list[Effect]:
        """A message has come, with its body."""
        self._ages.arrived()
        known = self._index.places.get(place.identity)
        if known is not None:
            return self._again(known, place, now_ms)
        settled = self._settled.digest_of(place.number)
        if settled is not None and settled == digest(place.identity):
            return [Drop(place.where)]
        session = self._index.add(place, self._ages.now)
        session.ready(place)
        return self._on_ready(session, now_ms)

    def _again(self, known: Place[Message], new: Place[Message], now_ms: int) -> list[Effect]:
        """A message has come that is here already, or is expected."""
        if known.state == COMING and new.generation >= known.generation:
            refreshing, known.refreshing = known.refreshing, 0
            self._index.replace(known, new, is_wanted=refreshing != REFRESHED)
            if refreshing == FETCHED:
                self._index.is_new(known, self._ages.now)
                return [*_drops_of_seconds(known), _published_again(known)]
            known.state = READY
            session = self._index.sessions[known.session_id]
            session.ready(known)
            return [*_drops_of_seconds(known), *self._on_ready(session, now_ms)]
        if known.state == READY:
            if new.generation < known.generation:
                return [Drop(new.where)]
            earlier = known.where
            self._index.replace(known, new, is_wanted=False)
            return [Drop(earlier)]
        known.seconds = [*(known.seconds or ()), new.where]
        return []

    def find(self, identity: Identity) -> Place[Message] | None:
        """Return where a message is."""
        return self._index.places.get(identity)

    def clear(self) -> list[Effect]:
        """RabbitMQ has taken everything back: all locks end; what is settled stays so."""
        effects: list[Effect] = [
            Lost(receiver) for receiver in (*self._held, *self._supply.receivers)
        ]
        self._index.clear()
        self._supply.clear()
        self._held.clear()
        self._locks = Locks()
        self._expected.clear()
        return effects

    # What receivers want.

    def accept(self, receiver: Hashable, session_id: str | None, *, now_ms: int) -> list[Effect]:
        """A receiver wants a session, or (`None`) waits for the next one."""
        assert receiver not in self._held
        if session_id is None:
            self._supply.wait(receiver)
            return self._serve(now_ms)
        effects = self.tick(now_ms)
        session = self._index.session(session_id)
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

    def close(self, receiver: Hashable, *, now_ms: int, unused: bool = False) -> list[Effect]:
        """A receiver gives up its session, or its wait.

        Args:
            unused: no client has had the session: it stays the next one.
        """
        effects = self.tick(now_ms)
        self._supply.give_up(receiver)
        session = self._held.pop(receiver, None)
        if session is None:
            return effects
        self._locks.release(session.id.encode(), now_ms=now_ms)
        session.holder = None
        for place in session.take_out():
            effects.append(Unlock(place))
            place.state = READY
            session.ready(place)
        if unused and session.head() is not None:
            self._supply.offer(session, is_next=True)
        return [*effects, *self._on_ready(session, now_ms)]

    def renew(self, session_id: str, *, now_ms: int) -> tuple[int, list[Place[Message]]] | None:
        """Return a lock's new end, and what is delivered under it; `None` if it has ended."""
        key = session_id.encode()
        session = self._locks.find(key, now_ms=now_ms)
        until_ms = self._locks.renew(key, duration_ms=self.lock_duration_ms, now_ms=now_ms)
        if session is None or session.holder is None or until_ms is None:
            return None
        session.holder.until_ms = until_ms
        return until_ms, list(session.out.values())

    def take(self, session_id: str, *, now_ms: int) -> tuple[list[Effect], Place[Message] | None]:
        """Take a held session's next message as if it were delivered, past its receiver's credit.

        Returns:
            The message, or `None`: there is none yet (`has_more` tells), or its body is fetched.
        """
        session = self._index.sessions.get(session_id)
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
        session = self._index.sessions.get(session_id)
        return session is not None and session.count > len(session.out)

    # What becomes of what was delivered.

    def leaving(self, place: Place[Message]) -> None:
        """It is being settled, or moved: its token is spent."""
        place.state = LEAVING
        self._index.sessions[place.session_id].out.pop(id(place), None)

    def stayed(self, place: Place[Message], where: Any, *, now_ms: int) -> list[Effect] | None:
        """That has failed; `None`: it is its receiver's again, under the same lock.

        Otherwise its token is to end: its session was given up meanwhile, or its new copy has come
        though nothing has confirmed that.
        """
        if place.where != where:
            return [Drop(where)]
        if place.state == COMING:
            place.generation -= 1
        session = self._index.sessions[place.session_id]
        if session.holder is not None and self.is_held(session.id, now_ms=now_ms):
            session.delivered(place)
            return None
        return [Unlock(place), *self.released(place, now_ms=now_ms)]

    def returning(self, place: Place[Message], *, now_ms: int) -> None:
        """It is published again, one more on its count: that copy is to come."""
        session = self._index.sessions[place.session_id]
        session.out.pop(id(place), None)
        place.generation += 1
        self._index.is_new(place, self._ages.now)
        self._expected.add(place, now_ms)
        session.coming(place)

    def released(self, place: Place[Message], *, now_ms: int) -> list[Effect]:
        """It is available again as it was."""
        session = self._index.sessions[place.session_id]
        session.out.pop(id(place), None)
        place.state = READY
        session.ready(place)
        return self._on_ready(session, now_ms)

    def left(self, place: Place[Message], *, is_settled: bool) -> list[Effect]:
        """It has left its queue, for good (`is_settled`) or for another."""
        if is_settled:
            self._settled.add(place.number, digest(place.identity))
        effects = _drops_of_seconds(place)
        self._index.forget(place)
        return effects

    # What is old.

    def refresh(self, at_most: int, *, now_ms: int) -> list[Effect]:
        """Have the oldest messages that wait published again, when they are too old."""
        limit = self._ages.limit(len(self._index.places))
        old: dict[str, list[Place[Message]]] = {}
        for place in self._index.places.values():  # in the order in which they came
            if place.since >= limit or at_most <= 0:
                break
            if place.state == READY and not place.has_expired(now_ms):
                old.setdefault(place.session_id, []).append(place)
                at_most -= 1
        effects: list[Effect] = []
        for session_id, places in old.items():
            session = self._index.sessions[session_id]
            session.take(places)
            for place in places:
                self._expected.add(place, now_ms)
                session.coming(place)
                if place.message is None:
                    place.refreshing = FETCHED
                    effects.append(Fetch(place))
                else:
                    self._index.is_new(place, self._ages.now)
                    effects.append(_published_again(place))
        return effects

    # Time.

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due."""
        effects: list[Effect] = []
        for session in self._locks.expire(now_ms):
            effects += self._expire_lock(session, now_ms)
        for place in self._expected.take_overdue(now_ms):
            if place.state == COMING and self._index.places.get(place.identity) is place:
                session = self._index.sessions[place.session_id]
                effects += _drops_of_seconds(place)
                self._index.forget(place)
                effects += self._on_ready(session, now_ms)
        return effects

    def due_ms(self) -> int | None:
        """Return when `tick` has something to do next."""
        ends = [self._locks.next_end_ms(), self._expected.due_ms()]
        return min((each for each in ends if each is not None), default=None)

    def sweep(self, *, now_ms: int) -> Iterator[list[Effect]]:
        """End what has expired at the head of each session, a session a step."""
        for session in list(self._index.sessions.values()):
            yield self._prune(session, now_ms)

    def _expire_lock(self, session: Session[Message], now_ms: int) -> list[Effect]:
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
        session = self._index.sessions[place.session_id]
        session.out.pop(id(place), None)
        place.state = LEAVING
        if place.has_expired(now_ms):
            return Expire(place)
        if place.generation + 1 >= self.max_delivery_count:
            return DeliveryCountExceeded(place)
        self.returning(place, now_ms=now_ms)
        return Count(place)

    # The order within a session.

    def _on_ready(self, session: Session[Message], now_ms: int) -> list[Effect]:
        """A session may have something to deliver."""
        if session.holder is not None:
            return self._pump(session, now_ms)
        if session.is_over:
            self._index.forget_session(session)
            return []
        if session.head() is not None:
            self._supply.offer(session)
            return self._serve(now_ms)
        return []

    def _serve(self, now_ms: int) -> list[Effect]:
        """Give available sessions to those who wait."""
        effects: list[Effect] = []
        while (session := self._supply.take()) is not None:
            effects += self._prune(session, now_ms)
            if session.head() is None:
                continue
            effects += self._give(session, self._supply.take_receiver(), now_ms)
        return effects

    def _give(self, session: Session[Message], receiver: Hashable, now_ms: int) -> list[Effect]:
        self._supply.withdraw(session)
        until_ms = self._locks.acquire(
            session.id.encode(), session, duration_ms=self.lock_duration_ms, now_ms=now_ms
        )
        session.holder = Holder(receiver, until_ms)
        self._held[receiver] = session
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
            effects.append(Deliver(holder.receiver, place, holder.until_ms))
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
                self._expected.add(place, now_ms)
                effects.append(Fetch(place))
                continue
            place.state = LEAVING
            effects.append(Expire(place) if is_over else DeliveryCountExceeded(place))
        return effects

    def _fetch_ahead(self, session: Session[Message], wanted: int, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        skipped: list[Place[Message]] = []
        while wanted > 0 and session.has_ready:
            place = session.pop()
            wanted -= 1
            if place.message is None:
                self._expected.add(place, now_ms)
                session.coming(place)
                effects.append(Fetch(place))
            else:
                skipped.append(place)
        for place in skipped:
            session.ready(place)
        return effects


def _drops_of_seconds(place: Place[Any]) -> list[Effect]:
    """Return what becomes of a message's second copies when it is settled or replaced."""
    seconds, place.seconds = place.seconds, None
    return [Drop(where) for where in seconds or ()]


def _published_again(place: Place[Any]) -> Effect:
    """Have an old message published again."""
    place.refreshing = REFRESHED
    return Refresh(place)
