"""Two processes that share a route with `order = "entity"`, under any interleaving.

The source's locks and the lock of the order end by its own clock, whatever a process knows of it;
a process may stand still, be killed, be cut off without hearing of it, or hear late. What it has
sent may arrive after it is dead. The target numbers what it has taken before no second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.relay.machine.effects import (
    Accepted,
    Arrival,
    Complete,
    DeadLetter,
    Effect,
    Ended,
    Ending,
    Failed,
    Refused,
    Release,
    Renew,
    Send,
)
from bridge.relay.machine.entity_order import EntityOrder
from bridge.relay.machine.hand_over import HandOver
from bridge.relay.machine.hand_over_rules import HandOverRules
from bridge.relay.machine.lease import Lease
from tests.fixtures.examples import examples
from tests.unit.relay.test_entity_order import admitted

LOCK_MS = 30_000
SEND_MS = 60_000
"""Nobody waits longer for the outcome of a batch."""
COUNT = 20
CREDIT = 6

PROCESS = st.integers(0, 1)
INDEX = st.integers(0, 3)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(("begin", "receive", "receive", "tick", "renew")), PROCESS),
    st.tuples(st.sampled_from(("renew the order", "hear of the order", "stop", "kill")), PROCESS),
    st.tuples(st.sampled_from(("cut off", "end a message lock", "settle", "settle")), PROCESS),
    st.tuples(st.sampled_from(("arrive", "arrive", "answer", "answer", "fail", "lose")), INDEX),
    st.tuples(st.just("settle in vain"), PROCESS),
    st.tuples(st.just("pass"), st.sampled_from((1, 300, 5_000, 16_000, 31_000))),
)


@dataclass
class Process:
    """One run of the route in a process; `machine` is `None` while it has no run.

    Attributes:
        ahead_ms: how far its clock is ahead of the source's.
        is_cut: it has lost everything at the source, and has not heard of it.
        keys: what it has received, by the keys of the hand-over.
    """

    ahead_ms: int
    machine: HandOver | None = None
    lease: Lease | None = None
    entity_order: EntityOrder | None = None
    is_cut: bool = False
    keys: dict[int, int] = field(default_factory=dict)
    settling: list[Complete | Release | DeadLetter] = field(default_factory=list)
    renewing: list[Renew] = field(default_factory=list)


@dataclass
class Batch:
    """A batch on its way.

    Attributes:
        machine: whose it is.
        since_ms: when it was sent.
        is_awaited: whether somebody still waits for its outcome.
        outcome: what the target has said, once it has arrived.
    """

    machine: HandOver
    number: int
    numbers: list[int]
    since_ms: int
    is_awaited: bool = True
    outcome: Accepted | Refused | None = None


class World:
    """A source with a control queue, a target, and two processes."""

    def __init__(self, aheads_ms: tuple[int, int], poisoned: frozenset[int]) -> None:
        self.now_ms = 1_000_000
        self.poisoned = poisoned
        self.rules = HandOverRules(
            is_ordered=True, credit=CREDIT, messages_max=3, dead_letters_refused=True
        )
        self.processes = [Process(each) for each in aheads_ms]
        self.active = list(range(1, COUNT + 1))
        self.locked: dict[tuple[int, int], tuple[int, int]] = {}
        self.order: tuple[int, int] | None = None
        self.completed: list[int] = []
        self.dead: list[int] = []
        self.target: list[int] = []
        self.batches: list[Batch] = []
        self.key = 0

    # -- the source

    def expire(self) -> None:
        """End the locks that are over; nobody is told."""
        for lock, (_, until_ms) in list(self.locked.items()):
            if until_ms <= self.now_ms:
                self.unlock(lock)
        if self.order is not None and self.order[1] <= self.now_ms:
            self.order = None

    def unlock(self, lock: tuple[int, int]) -> None:
        """Make a message available in its place."""
        self.active = sorted([*self.active, self.locked.pop(lock)[0]])

    def leave(self, index: int) -> None:
        """Give back all that a process has at the source."""
        for lock in [each for each in self.locked if each[0] == index]:
            self.unlock(lock)
        if self.order is not None and self.order[0] == index:
            self.order = None

    # -- a process

    def clock(self, index: int) -> int:
        """The time as a process sees it."""
        return self.now_ms + self.processes[index].ahead_ms

    def begin(self, index: int) -> None:
        """Lock the order, and begin; if nobody else has it."""
        one = self.processes[index]
        if one.machine is not None or self.order is not None:
            return
        until_ms = self.now_ms + LOCK_MS
        self.order = index, until_ms
        one.lease = Lease(until_ms, self.clock(index))
        one.entity_order = EntityOrder(self.clock(index))
        one.machine = HandOver(self.rules, self.clock(index), None, (one.lease,))
        one.is_cut = False
        one.keys, one.settling, one.renewing = {}, [], []

    def receive(self, index: int) -> None:
        """Lock the first messages that are available, and take them as a lane does."""
        one = self.processes[index]
        if one.machine is None or one.is_cut:
            return
        room = one.machine.room
        found, self.active = self.active[:room], self.active[room:]
        keys = range(self.key + 1, self.key + 1 + len(found))
        self.key += len(found)
        arrivals = []
        for key, number in zip(keys, found, strict=True):
            one.keys[key] = number
            self.locked[index, key] = number, self.now_ms + LOCK_MS
            arrivals.append(Arrival(key, number, lock_ms=LOCK_MS))
        one.machine.arrive(arrivals, self.clock(index), is_early=True)
        if not room:
            one.machine.give_room(self.clock(index))
        self.admit(one, one.machine, self.clock(index))

    def admit(self, one: Process, machine: HandOver, now_ms: int) -> None:
        """Let go on what comes next."""
        assert one.entity_order is not None
        there = [*self.active, *(number for number, _ in self.locked.values())]
        early = {each.arrival.number: key for key, each in machine.early.items()}
        found, _ = admitted(one.entity_order, early, there, now_ms)
        machine.admit([early[each] for each in found], now_ms)

    def renew(self, index: int) -> None:
        """Renew what is to be renewed; the process hears what is lost."""
        one = self.processes[index]
        if one.machine is None or not one.renewing:
            return
        lost = []
        held = []
        for key in one.renewing.pop().keys:
            if (index, key) in self.locked:
                self.locked[index, key] = one.keys[key], self.now_ms + LOCK_MS
                held.append(key)
            else:
                lost.append(key)
        one.machine.renewed(held, LOCK_MS, self.clock(index))
        one.machine.lock_lost(lost, self.clock(index))

    def renew_order(self, index: int) -> None:
        """Renew the lock of the order, or hear that it is lost; too late, it is given up."""
        one = self.processes[index]
        if one.machine is None:
            return
        assert one.lease is not None
        if not one.lease.is_held(self.clock(index)):
            one.machine.stop(self.clock(index))
        elif self.order is not None and self.order[0] == index and not one.is_cut:
            self.order = index, self.now_ms + LOCK_MS
            one.lease.renewed(self.order[1], self.clock(index))
        else:
            one.lease.lose()
            one.machine.stop(self.clock(index))

    def hear(self, index: int) -> None:
        """Hear of an order that is lost."""
        if self.order is None or self.order[0] != index or self.processes[index].is_cut:
            self.renew_order(index)

    def settle(self, index: int, *, is_done: bool) -> None:
        """Settle at the source, where the message is still locked; the process goes on anyway."""
        one = self.processes[index]
        if one.machine is None or not one.settling:
            return
        effect = one.settling.pop(0)
        is_sure = is_done and all((index, each) in self.locked for each in effect.keys)
        for key in effect.keys:
            if not is_done or (index, key) not in self.locked:
                continue
            if isinstance(effect, Release):
                self.unlock((index, key))
                continue
            number, _ = self.locked.pop((index, key))
            (self.completed if isinstance(effect, Complete) else self.dead).append(number)
        one.machine.settled(effect.keys, self.clock(index), is_sure=is_sure)

    def end_message_lock(self, index: int) -> None:
        """End the lock of a message; its process is told."""
        held = sorted(key for owner, key in self.locked if owner == index)
        machine = self.processes[index].machine
        if held and machine is not None:
            self.unlock((index, held[-1]))
            machine.lock_lost([held[-1]], self.clock(index))

    def kill(self, index: int) -> None:
        """End a process: its locks live on, and what it has sent is on its way."""
        for each in self.batches:
            if each.machine is self.processes[index].machine:
                each.is_awaited = False
        self.processes[index].machine = None

    # -- the way to the target

    def with_batch(self, what: str, index: int) -> None:
        """Let something happen to a batch."""
        if not self.batches:
            return
        batch = self.batches[index % len(self.batches)]
        if what == "arrive":
            if batch.outcome is None:
                self.take(batch)
            return
        if what == "lose" and batch.is_awaited:
            return  # whoever waits for it hears something first
        if what != "fail" or not batch.is_awaited:
            if batch.outcome is None and what != "lose":
                return
            self.batches.remove(batch)
        if batch.is_awaited:
            batch.is_awaited = False
            outcome = Failed("no answer") if what == "fail" else batch.outcome
            assert outcome is not None
            for number, each in enumerate(self.processes):
                if each.machine is batch.machine:
                    each.machine.sent(batch.number, outcome, self.clock(number))

    def take(self, batch: Batch) -> None:
        """Let the target take a batch, or refuse it."""
        if any(each in self.poisoned for each in batch.numbers):
            batch.outcome = Refused("amqp:not-allowed", "poison")
            return
        self.target += [each for each in batch.numbers if each not in self.target]
        batch.outcome = Accepted()

    # -- what happens, and what must hold

    def apply(self, action: tuple[str, int]) -> None:
        """Do one thing, and look."""
        match action:
            case ("begin", index):
                self.begin(index)
            case ("receive", index):
                self.receive(index)
            case ("tick", index):
                if (machine := self.processes[index].machine) is not None:
                    machine.tick(self.clock(index))
            case ("renew", index):
                self.renew(index)
            case ("renew the order", index):
                self.renew_order(index)
            case ("hear of the order", index):
                self.hear(index)
            case ("stop", index):
                if (machine := self.processes[index].machine) is not None:
                    machine.stop(self.clock(index))
            case ("kill", index):
                self.kill(index)
            case ("cut off", index):
                self.leave(index)
                self.processes[index].is_cut = True
            case ("end a message lock", index):
                self.end_message_lock(index)
            case ("settle", index):
                self.settle(index, is_done=not self.processes[index].is_cut)
            case ("settle in vain", index):
                self.settle(index, is_done=False)
            case ("pass", time_ms):
                self.now_ms += time_ms
                self.expire()
                for each, batch in enumerate(self.batches):
                    if batch.is_awaited and self.now_ms - batch.since_ms > SEND_MS:
                        self.with_batch("fail", each)
            case (what, index):
                self.with_batch(what, index)
        self.look()

    def look(self) -> None:
        """Take the effects of both, and check that all messages are where they must be."""
        for index, one in enumerate(self.processes):
            while one.machine is not None and (effects := one.machine.take_effects()):
                for effect in effects:
                    self.check(index, one, one.machine, effect)
        assert self.target == sorted(self.target), "an order is not kept"
        assert len(set(self.target)) == len(self.target)
        for number in self.completed:
            assert number in self.target, f"{number} is completed and was not sent"
        assert set(self.dead) <= self.poisoned
        locked = [number for number, _ in self.locked.values()]
        everywhere = [*self.active, *locked, *self.completed, *self.dead]
        assert sorted(everywhere) == list(range(1, COUNT + 1))

    def check(self, index: int, one: Process, machine: HandOver, effect: Effect) -> None:
        match effect:
            case Send(batch, keys):
                has_order = self.order is not None and self.order[0] == index
                assert has_order or one.is_cut, "sent without the lock of the order"
                under_way = [it for it in self.batches if it.machine is machine and it.is_awaited]
                assert not under_way, "two batches at a time"
                numbers = [one.keys[each] for each in keys]
                self.batches.append(Batch(machine, batch, numbers, self.now_ms))
            case Complete() | Release() | DeadLetter():
                one.settling.append(effect)
            case Renew():
                one.renewing.append(effect)
            case Ended(ending, _):
                assert ending is not Ending.REFUSED
                one.machine = None
                if not one.is_cut:
                    self.leave(index)

    def finish(self) -> None:
        """Leave one process alone with everything, until nothing is left to do."""
        self.kill(1)
        for _ in range(500):
            if not (self.active or self.locked):
                return
            for each in ("hear of the order", "tick", "renew", "begin", "receive"):
                self.apply((each, 0))
            for each in ("arrive", "answer", "lose"):
                for number in range(len(self.batches)):
                    self.apply((each, number))
            self.apply(("settle", 0))
            self.apply(("renew the order", 0))
            self.apply(("pass", 2_000))
        raise AssertionError(f"no end: {self.processes[0]} active={self.active}")


def numbers_but(poisoned: Iterable[int]) -> list[int]:
    """All numbers that the target takes."""
    return [each for each in range(1, COUNT + 1) if each not in poisoned]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.tuples(*[st.sampled_from((0, 0, 900, 20_000, 40_000))] * 2),
    st.frozensets(st.integers(1, COUNT), max_size=2),
    st.lists(ACTIONS, min_size=50, max_size=200),
)
def test_an_order_is_kept_by_whoever_has_its_lock(
    aheads_ms: tuple[int, int], poisoned: frozenset[int], actions: list[tuple[str, int]]
) -> None:
    """Nothing is sent without it; nothing overtakes what has failed; all come, each once."""
    world = World(aheads_ms, poisoned)
    for each in actions:
        world.apply(each)
    world.finish()
    assert world.target == numbers_but(poisoned)
    assert sorted(world.completed) == world.target
    assert set(world.dead) == poisoned
