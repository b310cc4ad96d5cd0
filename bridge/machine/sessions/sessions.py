"""The sessions of one entity as a pure machine, which gives each receiver its messages.

* **First in, first out.** A session's messages are delivered in the order of their numbers. A
  message that is to come again (its count is raised, its body fetched) holds up later messages.
* **No case.** Ids that `fold` makes equal are one session's. A receiver is told the id as it has
  asked for it; who asks for the next session, or lists them, as the oldest message has it.
* **One receiver.** A session is one receiver's from `accept` until `close`, or until its lock
  ends. A receiver that waits for a next session gets the session that has been available longest;
  receivers are served first come, first served.
* **Transactions.** One that settles a session's message, or gives the session a state, pins it:
  until its end, time does not end the session's lock, and nobody else gets the session when its
  receiver has given it up. So what is rolled back then comes before what is behind it.
* **Counts.** A delivery fails when the message is abandoned, or when the session's lock ends at its
  instant before the message is settled. `close` counts no failure, nor does a delivery that
  RabbitMQ repeats by itself.
* **Expiry.** An expired message is not delivered; it is found when it is next in its session, or by
  `sweep`.

RabbitMQ keeps every message; this machine has an index of all and the bodies of some
(`MemoryBudget`). Of two copies of one message the later one stays (`queue.second_copies`). No
message is forgotten before it has left.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

from bridge.machine.queue.fate import Fate, Rules
from bridge.machine.queue.locks import Locks
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.machine.queue.second_copies import Identity, Left, LeftMessages, digest
from bridge.machine.queue.settled import SettledNumbers
from bridge.machine.sessions.ages import Ages
from bridge.machine.sessions.effects import (
    ComeAgain,
    Deliver,
    Drop,
    Effect,
    End,
    FetchBody,
    Given,
    LockExpired,
    Refresh,
    RefuseSession,
    ReturnCounted,
    Unlock,
)
from bridge.machine.sessions.entry import (
    COMING,
    FETCHED,
    LEAVING,
    READY,
    REFRESHED,
    SessionEntry,
)
from bridge.machine.sessions.expected import Expected
from bridge.machine.sessions.index import Index
from bridge.machine.sessions.session import Holder, Session
from bridge.machine.sessions.session_pins import SessionPins, lock_of
from bridge.machine.sessions.supply import Supply
from bridge.model.session_id import FoldedId, fold

Message = TypeVar("Message")

TAKEN_AHEAD = 100
"""Bodies that are fetched at a time for messages that are taken."""


class Sessions(Generic[Message]):
    """All sessions of an entity; each command returns effects to be carried out in order.

    Args:
        budget: counts the bodies in memory.
        settled: the memory of settled numbers.
        ages: counts the arrivals.
        lock_duration_ms: how long a session is locked.
        rules: what ends a message.

    Attributes:
        pins: the sessions that transactions keep.
        is_leaving: nothing more is delivered, and no next session given; the owner is to end.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        settled: SettledNumbers,
        *,
        lock_duration_ms: int,
        rules: Rules,
        ages: Ages | None = None,
    ) -> None:
        self._ages = ages if ages is not None else Ages()
        self.lock_duration_ms = lock_duration_ms
        self.rules = rules
        self.is_leaving = False
        self._settled = settled
        self._left = LeftMessages()
        self._supply: Supply[Message] = Supply()
        self._index: Index[Message] = Index(budget, self._supply)
        self._held: dict[Hashable, Session[Message]] = {}
        self._locks: Locks[Session[Message]] = Locks()
        self._expected = Expected()
        self.pins: SessionPins[Message] = SessionPins(self._index, self._locks, self._on_ready)
        self._given = 0

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._index.places)

    def __repr__(self) -> str:
        return (
            f"Sessions({len(self._index.places)} messages of {len(self._index.sessions)}, "
            f"{len(self._held)} held, {len(self._supply.receivers)} waiting)"
        )

    @property
    def ids(self) -> list[str]:
        """The sessions that have messages, each as its oldest message has the id."""
        return [each.spelling for each in self._index.sessions.values() if each.count]

    def spelling(self, session_id: str) -> str | None:
        """Return a session's id as its oldest message has it; `None`: it has no messages."""
        session = self._index.find(session_id)
        return session.spelling if session is not None and session.count else None

    @property
    def holders(self) -> list[Hashable]:
        """The receivers that hold a session."""
        return list(self._held)

    def is_held(self, session_id: str, *, now_ms: int) -> bool:
        """Whether a receiver holds a session, whatever case its id is given in."""
        return self._locks.find(lock_of(fold(session_id)), now_ms=now_ms) is not None

    # Messages from RabbitMQ.

    def arrived(self, place: SessionEntry[Message], *, now_ms: int) -> list[Effect]:
        """Take an arrived message, with its body."""
        self._ages.arrived()
        known = self._index.places.get(place.identity)
        if known is not None:
            return self._again(known, place, now_ms)
        settled = self._settled.digest_of(place.number)
        if settled is not None and settled == digest(place.identity):
            return [Drop(place.where)]
        if self._left.has_copy(place):
            return [Drop(place.where)]
        session = self._index.add(place, self._ages.now)
        session.ready(place)
        return self._on_ready(session, now_ms)

    def _again(
        self, known: SessionEntry[Message], new: SessionEntry[Message], now_ms: int
    ) -> list[Effect]:
        """Take a copy of a message that is in the index, or is expected."""
        is_later = (new.deaths, new.generation) >= (known.deaths, known.generation)
        if known.state == COMING and is_later:
            refreshing, known.refreshing = known.refreshing, 0
            self._index.replace(known, new, is_wanted=refreshing != REFRESHED)
            if refreshing == FETCHED:
                self._index.is_new(known, self._ages.now)
                return [*_drops_of_seconds(known), _published_again(known)]
            known.state = READY
            session = self._index.sessions[known.folded]
            session.ready(known)
            return [*_drops_of_seconds(known), *self._on_ready(session, now_ms)]
        if known.state == READY:
            if not is_later:
                return [Drop(new.where)]
            earlier = known.where
            self._index.replace(known, new, is_wanted=False)
            return [Drop(earlier)]
        known.seconds = [*(known.seconds or ()), (new.where, new.deaths)]
        return []

    def find(self, identity: Identity) -> SessionEntry[Message] | None:
        """Return the entry of a message."""
        return self._index.places.get(identity)

    def clear(self) -> list[Effect]:
        """Forget all messages, taken back by RabbitMQ, and end all locks; settled numbers stay."""
        effects: list[Effect] = [
            LockExpired(receiver) for receiver in (*self._held, *self._supply.receivers)
        ]
        self._index.clear()
        self._supply.clear()
        self._held.clear()
        self._locks.lose(_all)
        self._expected.clear()
        return effects

    # Requests of receivers.

    def accept(self, receiver: Hashable, session_id: str | None, *, now_ms: int) -> list[Effect]:
        """Give a receiver a session, or (`None`) let the receiver wait for the next session."""
        assert receiver not in self._held
        if session_id is None:
            self._supply.wait(receiver)
            return self._serve(now_ms)
        effects = self.tick(now_ms)
        session = self._index.session(session_id)
        if session.holder is not None or session.pins:
            return [*effects, RefuseSession(receiver)]
        return [*effects, *self._give(session, receiver, session_id, now_ms)]

    def add_credit(self, receiver: Hashable, count: int, *, now_ms: int) -> list[Effect]:
        """Add to a receiver's credit: it wants `count` more messages."""
        effects = self.tick(now_ms)
        session = self._held.get(receiver)
        if session is None or session.holder is None:
            return effects
        session.holder.credit += count
        return [*effects, *self._pump(session, now_ms)]

    def drain(self, receiver: Hashable) -> None:
        """End a receiver's credit: it wants no more messages for now."""
        session = self._held.get(receiver)
        if session is not None and session.holder is not None:
            session.holder.credit = 0

    def close(self, receiver: Hashable, *, now_ms: int, unused: bool = False) -> list[Effect]:
        """Take a session back from its receiver, or end the receiver's wait.

        Args:
            unused: no client has had the session: it stays the next one.
        """
        effects = self.tick(now_ms)
        self._supply.give_up(receiver)
        session = self._held.pop(receiver, None)
        if session is None:
            return effects
        self.pins.end(session, now_ms)
        session.holder = None
        for place in session.take_out():
            effects.append(Unlock(place))
            place.state = READY
            session.ready(place)
        if unused and session.head() is not None and not session.pins:
            self._supply.offer(session, is_next=True)
        return [*effects, *self._on_ready(session, now_ms)]

    def renew(
        self, session_id: str, *, now_ms: int
    ) -> tuple[int, list[SessionEntry[Message]]] | None:
        """Return a lock's new end, and the messages under it; `None` if the lock has ended."""
        key = lock_of(fold(session_id))
        session = self._locks.find(key, now_ms=now_ms)
        until_ms = self._locks.renew(key, duration_ms=self.lock_duration_ms, now_ms=now_ms)
        if session is None or session.holder is None or until_ms is None:
            return None
        session.holder.until_ms = until_ms
        return until_ms, list(session.out.values())

    def take(
        self, session_id: str, *, now_ms: int
    ) -> tuple[list[Effect], SessionEntry[Message] | None]:
        """Take out a held session's next message as delivered, past its receiver's credit.

        Returns:
            The message, or `None`: there is none yet (`has_more` tells), or its body is fetched.
        """
        session = self._index.find(session_id)
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
        """Whether a session has messages beyond those with the receiver."""
        session = self._index.find(session_id)
        return session is not None and session.count > len(session.out)

    # The fate of delivered messages.

    def leaving(self, place: SessionEntry[Message]) -> None:
        """Note that a message is being settled, or moved: the token is spent."""
        place.state = LEAVING
        self._index.sessions[place.folded].out.pop(id(place), None)

    def stayed(
        self, place: SessionEntry[Message], where: Any, *, now_ms: int
    ) -> list[Effect] | None:
        """Undo `leaving` or `returning`, which failed; `None`: the receiver has the message again.

        The lock is then the same. Otherwise the token is to end: the session was given up
        meanwhile, perhaps to another receiver, or the message's new copy has come although nothing
        has confirmed that.
        """
        if place.where != where:
            return [Drop(where)]
        if place.state == COMING:
            place.generation -= 1
        session = self._index.sessions[place.folded]
        is_held = session.holder is not None and session.holder is place.holder
        if is_held and _is_locked(self._locks, session, now_ms):
            session.delivered(place)
            return None
        return [Unlock(place), *self.released(place, now_ms=now_ms)]

    def returning(self, place: SessionEntry[Message], *, now_ms: int) -> None:
        """Expect the new copy of a message published again, with its count raised by 1."""
        session = self._index.sessions[place.folded]
        session.out.pop(id(place), None)
        place.generation += 1
        self._index.is_new(place, self._ages.now)
        self._expected.add(place, now_ms)
        session.coming(place)

    def released(self, place: SessionEntry[Message], *, now_ms: int) -> list[Effect]:
        """Make a message available again, unchanged."""
        session = self._index.sessions[place.folded]
        session.out.pop(id(place), None)
        place.state = READY
        session.ready(place)
        return self._on_ready(session, now_ms)

    def left(self, place: SessionEntry[Message], how: Left) -> list[Effect]:
        """Remove a message that has left the queue, for good or for another place."""
        if how is Left.SETTLED:
            self._settled.add(place.number, digest(place.identity))
        self._left.note(place, how)
        effects = _drops_of_seconds(place)
        self._index.forget(place)
        return effects

    # Old messages.

    def refresh(self, at_most: int, *, now_ms: int) -> list[Effect]:
        """Return the effects that publish the oldest waiting messages again, if too old."""
        limit = self._ages.limit(len(self._index.places))
        old: dict[FoldedId, list[SessionEntry[Message]]] = {}
        for place in self._index.places.values():  # in the order in which they came
            if place.since >= limit or at_most <= 0:
                break
            fate = self.rules.of_waiting(place.expires_ms, place.generation, now_ms)
            if place.state == READY and fate is Fate.AVAILABLE:
                old.setdefault(place.folded, []).append(place)
                at_most -= 1
        effects: list[Effect] = []
        for folded, places in old.items():
            session = self._index.sessions[folded]
            session.take(places)
            for place in places:
                self._expected.add(place, now_ms)
                session.coming(place)
                if place.message is None:
                    place.refreshing = FETCHED
                    effects.append(FetchBody(place))
                else:
                    self._index.is_new(place, self._ages.now)
                    effects.append(_published_again(place))
        return effects

    # Time.

    def tick(self, now_ms: int) -> list[Effect]:
        """End the locks and waits that are due."""
        effects: list[Effect] = []
        for session in self._locks.expire(now_ms):
            effects += self._expire_lock(session, now_ms)
        for place in self._expected.take_overdue(now_ms):
            if place.state == COMING and self._index.places.get(place.identity) is place:
                session = self._index.sessions[place.folded]
                effects += _drops_of_seconds(place)
                self._index.forget(place)
                effects += self._on_ready(session, now_ms)
        return effects

    def due_ms(self) -> int | None:
        """Return when `tick` is due next."""
        ends = [self._locks.next_end_ms(), self._expected.due_ms()]
        return min((each for each in ends if each is not None), default=None)

    def sweep(self, *, now_ms: int) -> Iterator[list[Effect]]:
        """End expired messages at the head of each session, a session a step."""
        for session in list(self._index.sessions.values()):
            yield self._prune(session, now_ms)

    def _expire_lock(self, session: Session[Message], now_ms: int) -> list[Effect]:
        assert session.holder is not None
        receiver = session.holder.receiver
        session.holder = None
        del self._held[receiver]
        effects: list[Effect] = [LockExpired(receiver)]
        for place in session.take_out():
            effects.append(self.fail(place, now_ms=now_ms))
        return [*effects, *self._on_ready(session, now_ms)]

    def fail(self, place: SessionEntry[Message], *, now_ms: int) -> Effect:
        """Fail the delivery of a message that was abandoned, or whose lock has ended."""
        session = self._index.sessions[place.folded]
        session.out.pop(id(place), None)
        place.state = LEAVING
        fate = self.rules.of_failed(place.expires_ms, place.generation, now_ms)
        if fate is not Fate.AVAILABLE:
            return End(place, fate, failed=1)
        self.returning(place, now_ms=now_ms)
        return ReturnCounted(place)

    # The order within a session.

    def _on_ready(self, session: Session[Message], now_ms: int) -> list[Effect]:
        """Deliver or offer the messages of a session that may have some."""
        if session.holder is not None:
            return self._pump(session, now_ms)
        if session.pins:
            return []
        if session.is_over:
            self._index.forget_session(session)
            return []
        if session.head() is not None:
            self._supply.offer(session)
            return self._serve(now_ms)
        return []

    def _serve(self, now_ms: int) -> list[Effect]:
        """Give available sessions to waiting receivers."""
        effects: list[Effect] = []
        while not self.is_leaving and (session := self._supply.take()) is not None:
            effects += self._prune(session, now_ms)
            if session.head() is None:
                continue
            receiver = self._supply.take_receiver()
            effects += self._give(session, receiver, session.spelling, now_ms)
        return effects

    def _give(
        self, session: Session[Message], receiver: Hashable, spelling: str, now_ms: int
    ) -> list[Effect]:
        self._supply.withdraw(session)
        self._given += 1
        until_ms = self._locks.acquire(
            lock_of(session.id),
            session,
            order=self._given,
            duration_ms=self.lock_duration_ms,
            now_ms=now_ms,
        )
        session.holder = Holder(receiver, until_ms)
        self._held[receiver] = session
        return [Given(receiver, spelling, until_ms)]

    def _pump(self, session: Session[Message], now_ms: int) -> list[Effect]:
        """Deliver messages up to the receiver's credit, and fetch their missing bodies."""
        effects: list[Effect] = []
        holder = session.holder
        if self.is_leaving or holder is None or not _is_locked(self._locks, session, now_ms):
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
        """End messages at the head of a session that may not be delivered any more."""
        effects: list[Effect] = []
        while (place := session.head()) is not None:
            fate = self.rules.of_waiting(place.expires_ms, place.generation, now_ms)
            if fate is Fate.AVAILABLE:
                break
            session.pop()
            if place.message is None:
                self._expected.add(place, now_ms)
                effects.append(FetchBody(place))
                continue
            place.state = LEAVING
            effects.append(End(place, fate))
        return effects

    def _fetch_ahead(self, session: Session[Message], wanted: int, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        skipped: list[SessionEntry[Message]] = []
        while wanted > 0 and session.has_ready:
            place = session.pop()
            wanted -= 1
            if place.message is None:
                self._expected.add(place, now_ms)
                session.coming(place)
                effects.append(FetchBody(place))
            else:
                skipped.append(place)
        for place in skipped:
            session.ready(place)
        return effects


def _all(session: Session[Any]) -> bool:
    return True


def _is_locked(locks: Locks[Session[Message]], session: Session[Message], now_ms: int) -> bool:
    return locks.find(lock_of(session.id), now_ms=now_ms) is not None


def _drops_of_seconds(place: SessionEntry[Any]) -> list[Effect]:
    """Return the effects that drop the second copies of a settled or replaced message.

    One that was dead-lettered since is no copy: an operator has brought the message back.
    """
    seconds, place.seconds = place.seconds, None
    return [
        Drop(where) if deaths <= place.deaths else ComeAgain(where)
        for where, deaths in seconds or ()
    ]


def _published_again(place: SessionEntry[Any]) -> Effect:
    """Return the effect that publishes an old message again."""
    place.refreshing = REFRESHED
    return Refresh(place)
