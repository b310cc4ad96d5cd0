"""The hand-over under any interleaving: every message is accounted for.

The source locks, releases and forgets messages; the target takes what is sent, also where its
answer is lost. A target that is a busbridge numbers what it has taken before no second time; the
others get a message twice only where an answer was lost.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

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
    Fate,
    Refused,
    Release,
    Renew,
    Send,
    SendOutcome,
)
from bridge.relay.machine.expired import KEPT_MS
from bridge.relay.machine.hand_over import HandOver
from bridge.relay.machine.hand_over_rules import HandOverRules
from tests.fixtures.examples import examples

LOCK_MS = 30_000
OUTAGE_MS = 60_000
PAUSE_MS = 4_000
SKEW_MS = 12_000
"""How far the source's clock is behind: until then it gives what is expired by the relay's."""

REFUSED = Refused("amqp:not-allowed", "no session id")

ACTIONS = st.one_of(
    st.tuples(st.just("receive"), st.integers(1, 6)),
    st.tuples(st.just("receive"), st.integers(1, 6)),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("answer"), st.integers(0, 3)),
    st.tuples(st.just("lose answer"), st.integers(0, 3)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
    st.tuples(st.just("busy"), st.integers(0, 3)),
    st.tuples(st.just("settle"), st.integers(0, 3)),
    st.tuples(st.just("settle"), st.integers(0, 3)),
    st.tuples(st.just("lose settlement"), st.integers(0, 3)),
    st.tuples(st.just("renew"), st.booleans()),
    st.tuples(st.just("end lock"), st.integers(0, 9)),
    st.tuples(st.just("end lock unheard"), st.integers(0, 9)),
    st.tuples(st.just("pass"), st.sampled_from((1, 200, 5_000, 31_000))),
    st.tuples(st.just("link ends"), st.integers(0, 9)),
    st.tuples(st.just("stop"), st.integers(0, 9)),
)

RULES = st.builds(
    HandOverRules,
    is_ordered=st.booleans(),
    credit=st.integers(1, 12),
    batches_max=st.integers(1, 4),
    messages_max=st.integers(1, 5),
    bytes_max=st.integers(1, 40),
    outage_ms=st.just(OUTAGE_MS),
    rate_per_s=st.sampled_from((None, None, 0.5, 7.0)),
    dead_letters_refused=st.booleans(),
)


def is_short(number: int) -> bool:
    """Whether a message's time to live is over by the relay's clock."""
    return number % 8 == 5


class World:
    """A source, a target, and the machine between; begun again when it has ended."""

    def __init__(self, rules: HandOverRules, poisoned: frozenset[int], count: int) -> None:
        self.rules = rules
        self.poisoned = poisoned
        self.now_ms = 0
        self.available = list(range(count))
        self.locked: dict[int, int] = {}
        self.completed: list[int] = []
        self.dead: list[int] = []
        self.expired: list[int] = []
        self.target: list[int] = []
        self.key = 0
        self.is_stopped = False
        self.begin()

    def begin(self) -> None:
        """Begin the hand-over; what the last one had in hand is locked for nobody."""
        self.paused_until_ms = 0
        self.given_ms: dict[int, int] = {}
        self.machine = HandOver(self.rules, self.now_ms)
        self.numbers: dict[int, int] = {}
        self.sending: list[Send] = []
        self.settling: list[Complete | Release | DeadLetter] = []
        self.renewing: list[Renew] = []
        self.sent: set[int] = set()
        self.copied: Counter[int] = Counter()
        self.excused: set[int] = set()
        self.unheard: set[int] = set()
        self.ended: Ended | None = None

    # -- what happens

    def receive(self, count: int) -> None:
        """Lock the first messages that are there, as the room says."""
        if self.now_ms >= SKEW_MS:
            self.expired += [each for each in self.available if is_short(each)]
            self.available = [each for each in self.available if not is_short(each)]
        count = min(count, self.machine.room)
        found, self.available = self.available[:count], self.available[count:]
        arrivals = []
        for number in found:
            self.key += 1
            self.locked[self.key] = self.numbers[self.key] = number
            size = 1 + number % 7
            if is_short(number):
                since_ms = self.now_ms - self.given_ms.get(number, -KEPT_MS)
                assert since_ms >= KEPT_MS, "an expired message has come again in a loop"
                self.given_ms[number] = self.now_ms
            fate: Fate = "expired" if is_short(number) else "relay"
            group = number % 11 == 0
            arrivals.append(
                Arrival(
                    self.key, number + 1,  # 0 is no number
                    fate, group, size, LOCK_MS, enqueued_ms=7,
                )
            )  # fmt: skip
        self.machine.arrive(arrivals, self.now_ms)

    def answer(self, index: int, outcome: SendOutcome | None, *, is_taken: bool) -> None:
        """Let the target answer a batch; of one it refuses it takes nothing."""
        if not self.sending:
            return
        batch = self.sending.pop(index % len(self.sending))
        numbers = [self.numbers[each] for each in batch.keys]
        is_refused = any(each in self.poisoned for each in numbers)
        if is_taken and not is_refused:
            self.target += [each for each in numbers if each not in self.target]
            self.copied.update(numbers)
            if outcome is not None:
                self.excused |= set(numbers)
        if isinstance(outcome, Failed) and outcome.pause_ms:
            self.paused_until_ms = self.now_ms + outcome.pause_ms
        if outcome is None:
            outcome = REFUSED if is_refused else Accepted()
        self.machine.sent(batch.batch, outcome, self.now_ms)

    def settle(self, index: int, *, is_done: bool) -> None:
        """Let the source carry out a settlement, or lose it: then the lock ends by itself."""
        if not self.settling:
            return
        effect = self.settling.pop(index % len(self.settling))
        is_sure = is_done and all(each in self.locked for each in effect.keys)
        for key in effect.keys:
            if (number := self.locked.pop(key, None)) is None:
                continue
            if is_done and isinstance(effect, Complete):
                self.completed.append(number)
            elif is_done and isinstance(effect, DeadLetter):
                self.dead.append(number)
            else:
                self.back(number)
        self.machine.settled(effect.keys, self.now_ms, is_sure=is_sure)

    def back(self, number: int) -> None:
        """Put a message back to its place."""
        self.available = sorted([*self.available, number])

    def renew(self, *, is_answered: bool) -> None:
        """Let the source answer a renewal."""
        if not self.renewing:
            return
        keys = self.renewing.pop().keys
        if not is_answered:
            self.machine.renewal_failed(keys, self.now_ms)
            return
        lost = [each for each in keys if each not in self.locked]
        self.machine.renewed([each for each in keys if each in self.locked], LOCK_MS, self.now_ms)
        self.machine.lock_lost(lost, self.now_ms)

    def end_lock(self, index: int, *, is_heard: bool) -> None:
        """End a lock; the machine hears of it, or not."""
        if self.locked and not self.machine.is_ending:
            key = sorted(self.locked)[index % len(self.locked)]
            number = self.locked.pop(key)
            self.given_ms.pop(number, None)
            self.back(number)
            if is_heard:
                self.machine.lock_lost([key], self.now_ms)
            else:
                self.unheard.add(key)

    def link_ends(self, *, is_lost: bool) -> None:
        """End the source's link: with the locks, as a session's, or without."""
        if not is_lost:
            self.machine.begin_again("the link has ended", self.now_ms)
            return
        for number in self.locked.values():
            self.back(number)
        self.locked.clear()
        self.machine.source_lost("the session is lost", self.now_ms)

    def apply(self, action: tuple[str, Any]) -> None:
        """Do one thing, and take the effects."""
        match action:
            case ("receive", count):
                self.receive(count)
            case ("answer", index):
                self.answer(index, None, is_taken=True)
            case ("lose answer", index):
                self.answer(index, Failed("the link has ended"), is_taken=True)
            case ("fail", index):
                self.answer(
                    index, Failed("not reached", is_of_rights=index % 2 == 1), is_taken=False
                )
            case ("busy", index):
                self.answer(index, Failed("busy", PAUSE_MS), is_taken=False)
            case ("settle", index):
                self.settle(index, is_done=True)
            case ("lose settlement", index):
                self.settle(index, is_done=False)
            case ("renew", is_answered):
                self.renew(is_answered=is_answered)
            case ("end lock", index):
                self.end_lock(index, is_heard=True)
            case ("end lock unheard", index):
                self.end_lock(index, is_heard=False)
            case ("pass", time_ms):
                self.now_ms += time_ms
                self.machine.tick(self.now_ms)
            case ("link ends", chance) if chance < 2:
                self.link_ends(is_lost=chance == 1)
            case ("stop", 0):
                self.machine.stop(self.now_ms)
        self.look()

    # -- what must hold

    def look(self) -> None:
        """Take the effects, and check each."""
        for effect in self.machine.take_effects():
            self.check(effect)
        assert len(self.numbers) >= len(self.sent)
        assert self.machine.unconfirmed.total() <= self.rules.credit
        if self.rules.is_ordered:
            assert len(self.sending) <= 1
            assert self.target == sorted(self.target)
        assert len(set(self.target)) == len(self.target)
        twice = {number for number, count in self.copied.items() if count > 1}
        assert twice <= self.excused, "sent twice, and no answer was lost"
        for number in self.completed:
            assert number in self.target, f"{number} is completed and was not sent"
        everywhere = [*self.available, *self.locked.values(), *self.completed, *self.dead]
        everywhere += self.expired
        assert sorted(everywhere) == list(range(len(everywhere)))
        if self.ended is not None and not self.is_stopped:
            assert not self.sending
            assert not self.settling
            self.is_stopped = self.ended.ending in (Ending.STOPPED, Ending.REFUSED)
            for number in self.locked.values():  # no lock is forgotten but those of lost ends
                self.back(number)
            self.locked.clear()
            self.begin()

    def check(self, effect: Effect) -> None:
        assert self.ended is None, "an effect after the end"
        match effect:
            case Send(_, keys):
                assert 1 <= len(keys) <= self.rules.messages_max
                assert self.now_ms >= self.paused_until_ms, "the target's pause is not over"
                assert len({self.numbers[each] % 11 == 0 for each in keys}) == 1
                assert self.locked.keys() | self.unheard >= set(keys), (
                    "what is not locked any more is sent"
                )
                self.sending.append(effect)
                self.sent |= set(keys)
            case Complete() | Release() | DeadLetter():
                self.settling.append(effect)
            case Renew():
                self.renewing.append(effect)
            case Ended():
                self.ended = effect

    def finish(self) -> None:
        """Answer everything until nothing is left to do, or the route has stopped."""
        for _ in range(2_000):
            if self.is_stopped or not (self.available or self.locked):
                return
            self.apply(("receive", 6))
            self.apply(("answer", 0))
            self.apply(("settle", 0))
            self.apply(("renew", True))
            if not (self.sending or self.settling or self.is_stopped):
                self.apply(("pass", 5_000))
        raise AssertionError(f"no end: {self.machine!r} available={self.available}")


@settings(max_examples=examples(400), deadline=None)
@given(RULES, st.sets(st.integers(0, 24), max_size=3), st.lists(ACTIONS, min_size=20, max_size=120))
def test_every_message_is_accounted_for(
    rules: HandOverRules, poisoned: set[int], actions: list[tuple[str, Any]]
) -> None:
    """Completed only when sent; nothing lost, nothing twice; an order kept; an end to it."""
    world = World(rules, frozenset(poisoned), 25)
    for each in actions:
        world.apply(each)
        if world.is_stopped:
            break
    world.finish()
    if not world.is_stopped:
        short = {each for each in range(25) if is_short(each)}
        assert set(world.expired) == short
        assert sorted(world.completed + world.dead + world.expired) == list(range(25))
        assert set(world.dead) == set(poisoned) - short
        assert set(world.target) == set(range(25)) - set(poisoned) - short
