"""The machine of sessions: order, one receiver a session, counts, and nothing lost.

RabbitMQ is a list of copies here: what is ready, and what the machine holds, by tag. Whatever the
machine wants done is done to it at once, and after every step each message is in one place.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bridge.machine.queue.fate import Fate, Rules
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.machine.queue.second_copies import Left
from bridge.machine.queue.settled import SettledMemory
from bridge.machine.sessions import effects as fx
from bridge.machine.sessions.ages import Ages
from bridge.machine.sessions.entry import COMING, LEAVING, OUT, READY, SessionEntry
from bridge.machine.sessions.sessions import Sessions
from tests.fixtures.examples import examples

DURATION_MS = 5_000
MAX_DELIVERIES = 3
SESSIONS = ("a", "A", "b", "c", "C")
"""Three sessions; of two of them both spellings are sent and asked for."""

RECEIVERS = tuple(range(4))


@dataclass(frozen=True)
class Stored:
    """A copy in RabbitMQ."""

    number: int
    session_id: str
    generation: int
    expires_ms: int | None

    @property
    def identity(self) -> bytes:
        """What all copies of it share."""
        return b"%d" % self.number


def has_expired(place: SessionEntry[Stored], now_ms: int) -> bool:
    """Whether a message may not be delivered any more."""
    return place.expires_ms is not None and place.expires_ms <= now_ms


def is_of(stored: Stored, session_id: str) -> bool:
    """Whether a message is of a session, in whatever case their ids are."""
    return stored.session_id.upper() == session_id.upper()


class World:
    """RabbitMQ, receivers and a clock around the machine."""

    def __init__(self, room_bytes: int = 1_000) -> None:
        self.now_ms = 1_000_000
        self.machine: Sessions[Stored] = Sessions(
            MemoryBudget(room_bytes),
            SettledMemory().numbers(),
            lock_duration_ms=DURATION_MS,
            rules=Rules(MAX_DELIVERIES),
            ages=Ages(step=1, gone_min=2),
        )
        self.ready: list[Stored] = []
        self.held: dict[int, Stored] = {}
        self.tags = 0
        self.sent: dict[int, Stored] = {}
        self.fate: dict[int, str] = {}
        self.session_of: dict[int, str] = {}
        self.asked: dict[int, str | None] = {}
        self.until_ms: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.out: dict[int, list[SessionEntry[Stored]]] = {}
        self.delivered: list[tuple[int, int, int]] = []
        self.counts: Counter[int] = Counter()
        self.pins: list[tuple[Hashable, str, SessionEntry[Stored] | None]] = []

    def send(self, session_id: str, ttl_ms: int | None = None) -> int:
        """Put a message into the queue."""
        number = len(self.sent) + 1
        expires_ms = None if ttl_ms is None else self.now_ms + ttl_ms
        self.sent[number] = Stored(number, session_id, 0, expires_ms)
        self.ready.append(self.sent[number])
        return number

    def bring(self, index: int = 0) -> None:
        """RabbitMQ delivers a copy to the machine; what has expired it ends itself."""
        stored = self.ready.pop(index)
        if stored.expires_ms is not None and stored.expires_ms <= self.now_ms:
            self.gone(stored.number, "expired")
            return
        self.tags += 1
        self.held[self.tags] = stored
        place = SessionEntry(
            stored.number,
            stored.identity,
            stored.generation,
            stored.expires_ms,
            stored.session_id,
            self.tags,
            stored,
            100,
        )
        self.do(self.machine.arrived(place, now_ms=self.now_ms))

    def bring_all(self) -> None:
        """RabbitMQ delivers all that is ready."""
        while self.ready:
            self.bring()

    def gone(self, number: int, fate: str) -> None:
        """A message has left, or one of two copies has."""
        self.fate.setdefault(number, fate)

    def do(self, effects: list[fx.Effect]) -> None:
        """Carry out what the machine wants."""
        for effect in effects:
            match effect:
                case fx.Given(receiver, session_id, until_ms):
                    held = {each.upper() for each in self.session_of.values()}
                    assert session_id.upper() not in held, "one receiver a session"
                    assert session_id.upper() not in self.pinned, "a transaction has it"
                    assert self.asked[receiver] is not None or not self.machine.is_leaving
                    assert session_id == (self.asked.pop(receiver) or self.oldest(session_id))
                    assert until_ms == self.now_ms + DURATION_MS
                    self.waiting.discard(receiver)
                    self.session_of[receiver] = session_id
                    self.until_ms[receiver] = until_ms
                    self.out[receiver] = []
                case fx.RefuseSession(receiver):
                    self.waiting.discard(receiver)
                case fx.LockExpired(receiver):
                    self.waiting.discard(receiver)
                    lost = self.session_of.pop(receiver, "")
                    assert lost.upper() not in self.pinned, "a transaction has it"
                    self.out.pop(receiver, None)
                case fx.Deliver(receiver, place):
                    assert not self.machine.is_leaving
                    self.deliver(receiver, place)
                case fx.FetchBody(place):
                    assert place.message is None
                    self.ready.insert(0, self.held.pop(place.where))
                case fx.ReturnCounted(place):
                    self.again(place)
                case fx.Refresh(place):
                    assert place.message is not None
                    self.ready.append(self.held.pop(place.where))
                case fx.End(place, fate, failed):
                    assert place.message is not None, "the body goes to the dead-letter queue"
                    if fate is Fate.DELIVERY_COUNT_EXCEEDED:
                        assert place.generation + failed >= MAX_DELIVERIES
                    self.end(place, fate.name)
                case fx.Drop(where):
                    del self.held[where]
                case fx.Unlock(place):
                    pass

    def deliver(self, receiver: int, place: SessionEntry[Stored]) -> None:
        """A receiver gets a message: in order, unexpired, under a lock that has not ended."""
        session_id = self.session_of[receiver]
        assert place.session_id == self.sent[place.number].session_id, "each keeps its spelling"
        assert place.session_id.upper() == session_id.upper()
        assert self.now_ms < self.until_ms[receiver] or session_id.upper() in self.pinned
        assert place.message is not None
        assert not has_expired(place, self.now_ms)
        assert place.generation == self.counts[place.number]
        for number, stored in self.sent.items():
            if is_of(stored, session_id) and number < place.number:
                is_held = any(each.number == number for each in self.out[receiver])
                known = self.machine.find(stored.identity)
                assert (
                    number in self.fate
                    or is_held
                    or (stored.expires_ms is not None and stored.expires_ms <= self.now_ms)
                    or (
                        known is not None
                        and known.state == LEAVING
                        and self.leaves(known, receiver)
                    )
                    or (known is None and self.is_ready(number))
                ), f"{number} was to come before {place.number}"
        self.out[receiver].append(place)
        self.delivered.append((receiver, place.number, place.generation))

    def leaves(self, place: SessionEntry[Stored], receiver: int) -> bool:
        """Whether what is settled may come back behind others: it does not, or to who had it."""
        is_pinned = any(each is place for _, _, each in self.pins)
        return not is_pinned or place.holder is self.machine._held[receiver].holder

    @property
    def pinned(self) -> set[str]:
        """The sessions that transactions keep."""
        return {session_id.upper() for _, session_id, _ in self.pins}

    def unpin(self, index: int, *, is_committed: bool) -> None:
        """A transaction ends, or goes on without this."""
        by, session_id, place = self.pins.pop(index % len(self.pins))
        if place is not None and is_committed:
            self.complete(place)
        elif place is not None:
            effects = self.machine.stayed(place, place.where, now_ms=self.now_ms)
            if effects is None:
                self.out[place.holder.receiver].append(place)
            else:
                self.do(effects)
        self.do(self.machine.pins.unpin(session_id, by, now_ms=self.now_ms))
        for receiver in self.session_of:
            holder = self.machine._held[receiver].holder
            assert holder is not None
            self.until_ms[receiver] = holder.until_ms

    def oldest(self, session_id: str) -> str:
        """The id of a session as its oldest message in the machine has it."""
        return next(
            stored.session_id
            for number, stored in self.sent.items()
            if is_of(stored, session_id)
            and (known := self.machine.find(stored.identity)) is not None
            and known.state != LEAVING
        )

    def is_ready(self, number: int) -> bool:
        """Whether RabbitMQ has not brought it yet."""
        return any(stored.number == number for stored in self.ready)

    def again(self, place: SessionEntry[Stored]) -> None:
        """Publish a message again, one more on its count, and ack the old copy."""
        self.counts[place.number] += 1
        assert place.generation == self.counts[place.number]
        old = self.held.pop(place.where)
        self.ready.append(Stored(old.number, old.session_id, place.generation, old.expires_ms))

    def end(self, place: SessionEntry[Stored], fate: str) -> None:
        """Hand a message over to the dead-letter queue."""
        self.gone(place.number, fate)
        self.held.pop(place.where)
        self.do(self.machine.left(place, Left.DEAD_LETTERED))

    def accept(self, receiver: int, session_id: str | None) -> None:
        """A receiver wants a session."""
        self.waiting.add(receiver)
        self.asked[receiver] = session_id
        self.do(self.machine.accept(receiver, session_id, now_ms=self.now_ms))

    def credit(self, receiver: int, count: int) -> None:
        """A receiver wants messages."""
        self.do(self.machine.add_credit(receiver, count, now_ms=self.now_ms))

    def close(self, receiver: int) -> None:
        """A receiver gives up."""
        self.waiting.discard(receiver)
        self.do(self.machine.tick(self.now_ms))
        self.session_of.pop(receiver, None)
        self.out.pop(receiver, None)
        self.do(self.machine.close(receiver, now_ms=self.now_ms))

    def take(self, receiver: int, index: int = 0) -> SessionEntry[Stored] | None:
        """Take what a receiver settles, if its lock holds."""
        self.do(self.machine.tick(self.now_ms))
        out = self.out.get(receiver) or []
        return out.pop(index % len(out)) if out else None

    def complete(self, place: SessionEntry[Stored]) -> None:
        """A receiver is done with a message."""
        self.machine.leaving(place)
        self.gone(place.number, "completed")
        del self.held[place.where]
        self.do(self.machine.left(place, Left.SETTLED))

    def abandon(self, place: SessionEntry[Stored]) -> None:
        """A receiver does not want a message."""
        self.do([self.machine.fail(place, now_ms=self.now_ms)])

    def pass_time(self, ms: int) -> None:
        """Time goes on, and the machine is woken."""
        self.now_ms += ms
        self.do(self.machine.tick(self.now_ms))


class AnyHistory(RuleBasedStateMachine):
    """Whatever happens, in whatever order."""

    @initialize(room_bytes=st.sampled_from((0, 250, 1_000)))
    def begin(self, room_bytes: int) -> None:
        """Begin with nothing."""
        self.world = World(room_bytes)

    @rule(session_id=st.sampled_from(SESSIONS), ttl_ms=st.sampled_from((None, None, 4_000)))
    def send(self, session_id: str, ttl_ms: int | None) -> None:
        """A message is sent."""
        self.world.send(session_id, ttl_ms)

    @rule(index=st.integers(0, 3))
    def bring(self, index: int) -> None:
        """RabbitMQ delivers: in order, but for what it was given back."""
        ready = self.world.ready
        if ready:
            # What was never delivered comes in order.
            fresh = [each for each in ready if self.world.machine.find(each.identity) is None]
            stale = [at for at, each in enumerate(ready) if each not in fresh]
            if stale and index:
                self.world.bring(stale[index % len(stale)])
            elif fresh:
                self.world.bring(ready.index(min(fresh, key=lambda each: each.number)))

    @rule(receiver=st.sampled_from(RECEIVERS), session_id=st.sampled_from((None, *SESSIONS)))
    def accept(self, receiver: int, session_id: str | None) -> None:
        """A receiver wants a session."""
        world = self.world
        world.do(world.machine.tick(world.now_ms))
        if receiver not in world.session_of and receiver not in world.waiting:
            world.accept(receiver, session_id)

    @rule(receiver=st.sampled_from(RECEIVERS), count=st.integers(1, 3))
    def credit(self, receiver: int, count: int) -> None:
        """A receiver wants messages."""
        self.world.credit(receiver, count)

    @rule(receiver=st.sampled_from(RECEIVERS))
    def drain(self, receiver: int) -> None:
        """A receiver wants no more."""
        self.world.machine.drain(receiver)

    @rule(receiver=st.sampled_from(RECEIVERS))
    def close(self, receiver: int) -> None:
        """A receiver gives up."""
        self.world.close(receiver)

    @rule(receiver=st.sampled_from(RECEIVERS), index=st.integers(0, 3))
    def complete(self, receiver: int, index: int) -> None:
        """A receiver is done with a message."""
        place = self.world.take(receiver, index)
        if place is not None:
            self.world.complete(place)

    @rule(receiver=st.sampled_from(RECEIVERS), is_young=st.booleans())
    def delete(self, receiver: int, is_young: bool) -> None:
        """A receiver deletes its session's next message, unless that is too young."""
        world = self.world
        world.do(world.machine.tick(world.now_ms))
        session_id = world.session_of.get(receiver)
        if session_id is None:
            return
        effects, place = world.machine.take(session_id, now_ms=world.now_ms)
        world.do(effects)
        if place is None:
            return
        world.deliver(receiver, place)
        world.out[receiver].remove(place)
        if is_young:
            world.do(world.machine.released(place, now_ms=world.now_ms))
        else:
            world.complete(place)

    @rule(receiver=st.sampled_from(RECEIVERS), index=st.integers(0, 3))
    def abandon(self, receiver: int, index: int) -> None:
        """A receiver abandons a message."""
        place = self.world.take(receiver, index)
        if place is not None:
            self.world.abandon(place)

    @rule(receiver=st.sampled_from(RECEIVERS), index=st.integers(0, 3))
    def release(self, receiver: int, index: int) -> None:
        """A receiver gives a message back uncounted."""
        world = self.world
        place = world.take(receiver, index)
        if place is not None:
            world.do(world.machine.released(place, now_ms=world.now_ms))

    @rule(receiver=st.sampled_from(RECEIVERS), is_published=st.booleans())
    def fail_to_settle(self, receiver: int, is_published: bool) -> None:
        """What a settlement publishes is refused: the receiver has the message as before."""
        world = self.world
        place = world.take(receiver)
        if place is None:
            return
        world.machine.leaving(place)
        if is_published:
            world.machine.returning(place, now_ms=world.now_ms)
        effects = world.machine.stayed(place, place.where, now_ms=world.now_ms)
        assert effects is None
        world.out[receiver].append(place)

    @rule(receiver=st.sampled_from(RECEIVERS))
    def renew(self, receiver: int) -> None:
        """A receiver renews its lock."""
        world = self.world
        world.do(world.machine.tick(world.now_ms))
        session_id = world.session_of.get(receiver)
        if session_id is not None:
            renewed = world.machine.renew(session_id, now_ms=world.now_ms)
            assert renewed is not None
            assert sorted(renewed[1]) == sorted(world.out[receiver])
            world.until_ms[receiver] = renewed[0]

    @rule(receiver=st.sampled_from(RECEIVERS), settles=st.booleans(), index=st.integers(0, 3))
    def pin(self, receiver: int, settles: bool, index: int) -> None:
        """A transaction is to settle a message of a session, or to set its state."""
        world = self.world
        place = world.take(receiver, index) if settles else None
        session_id = world.session_of.get(receiver)
        if session_id is None or (settles and place is None):
            return
        by: Hashable = object() if place is None else place
        holder = world.machine.pins.pin(session_id, by, now_ms=world.now_ms)
        assert holder is not None
        assert world.machine.pins.keeps(session_id, by, holder)
        if place is not None:
            world.machine.leaving(place)
        world.pins.append((by, session_id, place))

    @rule(
        receiver=st.sampled_from(RECEIVERS),
        other=st.sampled_from(RECEIVERS),
        settles=st.booleans(),
        is_next=st.booleans(),
    )
    def give_up_pinned(self, receiver: int, other: int, settles: bool, is_next: bool) -> None:
        """A receiver gives a pinned session up, and another one wants it."""
        session_id = self.world.session_of.get(receiver)
        self.pin(receiver, settles, 0)
        if session_id is not None:
            self.world.close(receiver)
            self.accept(other, None if is_next else session_id)
            self.credit(other, 3)

    @rule(index=st.integers(0, 3), is_committed=st.booleans())
    def unpin(self, index: int, is_committed: bool) -> None:
        """A transaction ends."""
        self.world.do(self.world.machine.tick(self.world.now_ms))
        if self.world.pins:
            self.world.unpin(index, is_committed=is_committed)

    @rule(ms=st.sampled_from((1, 1_000, 5_000, 20_000)))
    def pass_time(self, ms: int) -> None:
        """Time goes on."""
        self.world.pass_time(ms)

    @rule()
    def sweep(self) -> None:
        """Expired messages are looked for."""
        world = self.world
        for effects in world.machine.sweep(now_ms=world.now_ms):
            world.do(effects)

    @rule(at_most=st.integers(1, 3))
    def refresh(self, at_most: int) -> None:
        """What is old is published again."""
        self.world.do(self.world.machine.refresh(at_most, now_ms=self.world.now_ms))

    @rule(order=st.randoms())
    def crash(self, order: object) -> None:
        """RabbitMQ takes all back, all locks end; then it brings all, before anybody accepts."""
        world = self.world
        world.pins.clear()
        world.do(world.machine.clear())
        assert not world.session_of
        assert not world.waiting
        back = list(world.held.values())
        world.held.clear()
        order.shuffle(back)  # type: ignore[attr-defined]
        world.ready[:0] = back
        world.bring_all()

    @invariant()
    def each_message_is_somewhere(self) -> None:
        """Nothing is lost, and nothing that has left is here."""
        if not hasattr(self, "world"):
            return
        world = self.world
        copies = Counter(each.number for each in (*world.ready, *world.held.values()))
        for number in world.sent:
            if number in world.fate:
                assert copies[number] == 0
            else:
                assert copies[number] == 1, f"{copies[number]} copies of {number}"
        for tag, stored in world.held.items():
            place = world.machine.find(stored.identity)
            assert place is not None
            assert place.where == tag
            assert place.state != COMING

    @invariant()
    def what_is_wanted_is_delivered(self) -> None:
        """No receiver with credit waits for what is there."""
        if not hasattr(self, "world"):
            return
        world = self.world
        held = {each.session_id.upper() for each in world.held.values()}
        for session_id in (
            held - {each.upper() for each in world.session_of.values()} - world.pinned
        ):
            ready = [each for each in world.held.values() if is_of(each, session_id)]
            coming = [
                each
                for each in world.ready
                if is_of(each, session_id) and world.machine.find(each.identity)
            ]
            if not coming and any(self.is_deliverable(each) for each in ready):
                assert not world.waiting, f"{session_id} is there"

    def teardown(self) -> None:
        """What is left in the end can be had, all of it, in order."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for receiver in RECEIVERS:
            world.close(receiver)
        while world.pins:
            world.unpin(0, is_committed=False)
        world.bring_all()
        world.pass_time(20_000)
        for session_id in SESSIONS:
            world.accept(9, session_id)
            for _ in world.sent:
                world.credit(9, 1)
                world.bring_all()
                while (place := world.take(9)) is not None:
                    world.complete(place)
            world.close(9)
        world.pass_time(20_000)
        assert set(world.fate) == set(world.sent)
        assert len(world.machine) == 0
        assert world.machine.ids == []

    def is_deliverable(self, stored: Stored) -> bool:
        """Whether a receiver could have it."""
        place = self.world.machine.find(stored.identity)
        assert place is not None
        return place.state == READY and not has_expired(place, self.world.now_ms)


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_pinned_session_is_nobody_elses_until_its_transaction_ends(is_committed: bool) -> None:
    """Its receiver has given it up; what is rolled back comes before what is behind it."""
    world = World()
    for _ in range(3):
        world.send("a")
    world.bring_all()
    world.accept(1, "a")
    world.credit(1, 2)
    place = world.take(1)
    assert place is not None
    assert world.machine.pins.pin("A", "txn", now_ms=world.now_ms) is not None
    world.machine.leaving(place)
    world.pins.append(("txn", "a", place))
    world.pass_time(20_000)
    assert world.session_of == {1: "a"}
    world.close(1)
    world.accept(2, "a")
    assert not world.waiting
    world.accept(3, None)
    assert world.waiting == {3}
    world.unpin(0, is_committed=is_committed)
    assert world.session_of == {3: "a"}
    world.credit(3, 3)
    expected = [2, 3] if is_committed else [1, 2, 3]
    assert [number for receiver, number, _ in world.delivered if receiver == 3] == expected


AnyHistory.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=60, deadline=None
)
test_any_history_keeps_order_and_loses_nothing = AnyHistory.TestCase


class LeavingHistory(AnyHistory):
    """The same, with an owner that is about to end: until its end it gives nobody any more."""

    @rule()
    def leave(self) -> None:
        """Nothing is delivered from now on; what is out is settled as before."""
        self.world.machine.is_leaving = True

    @rule(order=st.randoms())
    def end(self, order: object) -> None:
        """Another owner goes on."""
        self.world.machine.is_leaving = False
        self.crash(order)

    @invariant()
    def what_is_wanted_is_delivered(self) -> None:
        """Only by an owner that is not to end."""
        if hasattr(self, "world") and not self.world.machine.is_leaving:
            super().what_is_wanted_is_delivered()

    def teardown(self) -> None:
        """The next owner delivers what is left."""
        if hasattr(self, "world") and self.world.machine.is_leaving:
            self.end(random.Random(0))
        super().teardown()


LeavingHistory.TestCase.settings = settings(
    max_examples=examples(300), stateful_step_count=60, deadline=None
)
test_an_owner_that_is_to_end_gives_nothing_more_and_loses_nothing = LeavingHistory.TestCase


def bodies(world: World) -> list[int]:
    """The numbers that were delivered, in order."""
    return [number for _, number, _ in world.delivered]


def test_an_abandoned_message_comes_before_those_behind_it() -> None:
    """Also those that are asked for before it is back."""
    world = World()
    for _ in range(3):
        world.send("a")
    world.bring_all()
    world.accept(1, "a")
    world.credit(1, 1)
    place = world.take(1)
    assert place is not None
    world.abandon(place)
    world.credit(1, 3)
    assert bodies(world) == [1]
    world.bring_all()
    assert world.delivered == [(1, 1, 0), (1, 1, 1), (1, 2, 0), (1, 3, 0)]


def test_an_owner_that_is_to_end_gives_no_message_and_no_session() -> None:
    """Messages that are out are settled; receivers that wait are given nothing."""
    world = World()
    for session_id in ("a", "a", "b"):
        world.send(session_id)
    world.bring_all()
    world.accept(0, "a")
    world.credit(0, 1)
    world.machine.is_leaving = True
    world.credit(0, 1)
    world.accept(1, None)
    world.accept(2, "b")
    world.credit(2, 1)
    place = world.take(0)
    assert place is not None
    world.abandon(place)
    world.bring_all()

    assert bodies(world) == [1]
    assert world.waiting == {1}
    assert world.session_of == {0: "a", 2: "b"}


def test_a_lock_that_ends_counts_and_one_that_is_given_up_does_not() -> None:
    """Its messages are those that were delivered under it, and not settled."""
    world = World()
    world.send("a")
    world.bring_all()
    world.accept(1, "a")
    world.credit(1, 1)
    world.close(1)
    world.accept(1, "a")
    world.credit(1, 1)
    world.pass_time(DURATION_MS)
    world.bring_all()
    world.accept(1, "a")
    world.credit(1, 1)
    assert world.delivered == [(1, 1, 0), (1, 1, 0), (1, 1, 1)]


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_message_that_stays_is_not_that_of_the_next_receiver(is_closed: bool) -> None:
    """Whose session was it when it was delivered has lost it: the next receiver is given it."""
    world = World()
    number = world.send("a")
    world.bring_all()
    world.accept(0, "a")
    world.credit(0, 1)
    place = world.take(0)
    assert place is not None
    world.machine.leaving(place)
    if is_closed:
        world.close(0)
    else:
        world.pass_time(DURATION_MS)
    world.accept(1, "a")
    world.credit(1, 1)
    assert not world.out[1]
    effects = world.machine.stayed(place, place.where, now_ms=world.now_ms)
    assert effects is not None, "the earlier lock is not to go on"
    world.do(effects)
    assert [each.number for each in world.out[1]] == [number]


def test_the_last_delivery_that_fails_ends_a_message() -> None:
    """It is not brought again."""
    world = World()
    world.send("a")
    for _ in range(MAX_DELIVERIES):
        world.bring_all()
        world.accept(1, "a")
        world.credit(1, 1)
        world.pass_time(DURATION_MS)
    assert len(world.delivered) == MAX_DELIVERIES
    assert world.fate == {1: "DELIVERY_COUNT_EXCEEDED"}
    assert len(world.machine) == 0


def test_who_waits_gets_the_session_that_was_available_first() -> None:
    """First come, first served; an empty session is nobody's next."""
    world = World()
    world.accept(1, None)
    world.accept(2, None)
    world.accept(3, "c")
    world.send("b")
    world.send("a")
    world.bring_all()
    assert world.session_of == {1: "b", 2: "a", 3: "c"}


def test_a_held_session_is_refused_to_others_until_its_lock_ends() -> None:
    """By name; and a session without messages can be held, too."""
    world = World()
    world.accept(1, "a")
    world.accept(2, "a")
    assert world.session_of == {1: "a"}
    world.pass_time(DURATION_MS)
    world.accept(2, "a")
    assert world.session_of == {2: "a"}


def test_a_message_that_rabbitmq_ended_on_its_way_holds_up_nothing_for_long() -> None:
    """It expires while it is to come again."""
    world = World()
    world.send("a", 1_000)
    world.send("a")
    world.bring_all()
    world.accept(1, "a")
    world.credit(1, 1)
    place = world.take(1)
    assert place is not None
    world.abandon(place)
    world.credit(1, 1)
    world.now_ms += 1_500
    world.bring_all()
    assert world.fate == {1: "expired"}
    assert bodies(world) == [1]
    world.machine.renew("a", now_ms=world.now_ms)
    world.until_ms[1] = world.now_ms + DURATION_MS
    due_ms = world.machine.due_ms()
    assert due_ms is not None
    world.machine.renew("a", now_ms=due_ms - 1)
    world.until_ms[1] = due_ms - 1 + DURATION_MS
    world.pass_time(due_ms - world.now_ms)
    assert bodies(world) == [1, 2]


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_copies_the_one_of_the_higher_count_stays(first: int) -> None:
    """A crash can leave both; whichever comes first."""
    world = World()
    world.send("a")
    world.ready.append(Stored(1, "a", 1, None))
    world.counts[1] = 1
    world.bring(first)
    world.bring()
    world.accept(1, "a")
    world.credit(1, 2)
    assert world.delivered == [(1, 1, 1)]
    assert len(world.held) == 1


def test_a_copy_of_a_settled_message_is_dropped() -> None:
    """RabbitMQ may forget an ack."""
    world = World()
    world.send("a")
    again = world.ready[0]
    world.bring_all()
    world.accept(1, "a")
    world.credit(1, 2)
    place = world.take(1)
    assert place is not None
    world.complete(place)
    world.ready.append(again)
    world.bring_all()
    assert bodies(world) == [1]
    assert not world.held


def test_a_copy_of_a_delivered_message_leaves_with_it() -> None:
    """Until then it is kept: it may be the message itself, brought twice."""
    world = World()
    world.send("a")
    again = world.ready[0]
    world.bring_all()
    world.accept(1, "a")
    world.credit(1, 2)
    world.ready.append(again)
    world.bring_all()
    assert len(world.held) == 2
    place = world.take(1)
    assert place is not None
    assert place.state == OUT
    world.complete(place)
    assert not world.held


@pytest.mark.parametrize("room_bytes", [1_000, 0])
def test_what_is_old_is_published_again_while_most_that_came_since_is_gone(
    room_bytes: int,
) -> None:
    """Oldest first, once; its count and its place in the session stay; bodies stay out."""
    world = World(room_bytes)
    old = [world.send("old") for _ in range(3)]
    world.bring_all()
    world.accept(1, "busy")
    passed = 0

    def let_pass(count: int) -> None:
        nonlocal passed
        for _ in range(count):
            world.send("busy")
            world.bring_all()
            world.credit(1, 1)
            world.bring_all()
            place = world.take(1)
            assert place is not None
            world.complete(place)
            passed += 1

    def refreshed(at_most: int) -> list[int]:
        before = [each.number for each in world.ready]
        world.do(world.machine.refresh(at_most, now_ms=world.now_ms))
        fetched = [each for each in world.ready if each.number not in before]
        world.bring_all()
        return [each.number for each in fetched]

    let_pass(2)
    assert refreshed(9) == []
    let_pass(8)
    assert sorted(refreshed(2)) == old[:2]
    assert refreshed(9) == old[2:]
    assert refreshed(9) == []
    assert world.machine._index._budget.used_bytes == min(room_bytes, 300)
    world.accept(2, "old")
    world.credit(2, 3)
    world.bring_all()
    assert [(number, count) for who, number, count in world.delivered if who == 2] == [
        (number, 0) for number in old
    ]
