"""The taking of messages under any interleaving: every message is accounted for.

The source locks, gives back and removes messages; locks end, answers are lost, the disk fails, the
target is busy, away, or refuses; somebody stops it, and gives the command again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.operations.taking import Taking
from bridge.operations.taking_effects import (
    Received,
    TakingEffect,
    TakingEnd,
    TakingEnded,
    Write,
)
from bridge.operations.taking_rules import TakingRules
from bridge.relay.machine.effects import (
    Accepted,
    Complete,
    Failed,
    Refused,
    Release,
    Renew,
    Send,
    SendOutcome,
)
from tests.fixtures.examples import examples

LOCK_MS = 30_000
OUTAGE_MS = 60_000
PAUSE_MS = 4_000
COUNT = 24

REFUSED = Refused("amqp:not-allowed", "too large")

INDEX = st.integers(0, 3)
SELDOM = st.integers(0, 9)
"""What ends a run happens with 0 alone: most runs last."""

ACTIONS = st.one_of(
    st.tuples(st.just("receive"), st.integers(1, 6)),
    st.tuples(st.just("receive"), st.integers(1, 6)),
    st.tuples(st.just("write"), INDEX),
    st.tuples(st.just("write"), INDEX),
    st.tuples(st.just("answer"), INDEX),
    st.tuples(st.just("answer"), INDEX),
    st.tuples(st.just("lose answer"), INDEX),
    st.tuples(st.just("fail"), INDEX),
    st.tuples(st.just("busy"), INDEX),
    st.tuples(st.just("settle"), INDEX),
    st.tuples(st.just("settle"), INDEX),
    st.tuples(st.just("lose settlement"), INDEX),
    st.tuples(st.just("lose its answer"), INDEX),
    st.tuples(st.just("renew"), st.booleans()),
    st.tuples(st.just("end lock"), st.integers(0, 9)),
    st.tuples(st.just("end lock unheard"), st.integers(0, 9)),
    st.tuples(st.just("pass"), st.sampled_from((1, 200, 5_000, 31_000))),
    st.tuples(st.just("dry"), st.just(0)),
    st.tuples(st.just("disk full"), SELDOM),
    st.tuples(st.just("source lost"), SELDOM),
    st.tuples(st.just("kill"), SELDOM),
    st.tuples(st.just("stop"), SELDOM),
)

RULES = st.builds(
    TakingRules,
    is_moving=st.booleans(),
    is_written=st.booleans(),
    limit=st.none() | st.none() | st.integers(1, 9),
    hold=st.integers(0, COUNT),
    window=st.integers(1, 12),
    batches_max=st.integers(1, 4),
    messages_max=st.integers(1, 5),
    bytes_max=st.integers(1, 40),
    outage_ms=st.just(OUTAGE_MS),
    rate_per_s=st.sampled_from((None, None, 0.5, 7.0)),
)


def is_wanted(number: int) -> bool:
    """Whether the condition takes a message."""
    return number % 3 != 1


def session_of(number: int) -> int | None:
    """Return a message's session; a third has none."""
    return None if number % 4 == 0 else number % 2


class World:
    """A source, a target, a disk, and the machine between; given again when it has ended."""

    def __init__(self, rules: TakingRules, poisoned: frozenset[int]) -> None:
        self.rules = rules
        self.poisoned = poisoned
        self.now_ms = 0
        self.available = list(range(COUNT))
        self.locked: dict[int, int] = {}
        self.completed: list[int] = []
        self.written: set[int] = set()
        self.copies: list[int] = []
        self.key = 0
        self.runs = 0
        self.begin()

    def begin(self) -> None:
        """Give the command; what an earlier process had in hand is locked for nobody."""
        for number in self.locked.values():
            self.back(number)
        self.locked.clear()
        self.paused_until_ms = 0
        self.machine = Taking(self.rules, self.now_ms)
        self.numbers: dict[int, int] = {}
        self.writing: list[Write] = []
        self.sending: list[Send] = []
        self.settling: list[Complete | Release] = []
        self.renewing: list[Renew] = []
        self.before = len(self.completed)
        self.copied: Counter[int] = Counter()
        self.excused: set[int] = set()
        self.ended: TakingEnded | None = None
        self.runs += 1

    def back(self, number: int) -> None:
        """Put a message back to its place."""
        self.available = sorted([*self.available, number])

    # -- what happens

    def receive(self, count: int) -> None:
        """Lock the first messages that are there, as the room says."""
        count = min(count, self.machine.room)
        found, self.available = self.available[:count], self.available[count:]
        messages = []
        for number in found:
            self.key += 1
            self.locked[self.key] = self.numbers[self.key] = number
            session = session_of(number)
            messages.append(
                Received(
                    self.key,
                    number + 1,  # 0 is no number
                    7,
                    is_wanted(number),
                    "no message" if number % 11 == 5 else "",
                    session,
                    session is not None,
                    1 + number % 7,
                    LOCK_MS,
                )
            )
        self.machine.receive(messages, self.now_ms)

    def write(self, index: int, *, is_done: bool) -> None:
        """Let the disk confirm a batch, or fail."""
        if not self.writing:
            return
        effect = self.writing.pop(index % len(self.writing))
        if is_done:
            self.written |= {self.numbers[each] for each in effect.keys}
            self.machine.written(effect.batch, self.now_ms)
        else:
            self.machine.unwritten(effect.batch, "no space is left", self.now_ms)

    def answer(self, index: int, outcome: SendOutcome | None, *, is_taken: bool) -> None:
        """Let the target answer a batch; of one that it refuses it takes nothing."""
        if not self.sending:
            return
        batch = self.sending.pop(index % len(self.sending))
        numbers = [self.numbers[each] for each in batch.keys]
        is_refused = any(each in self.poisoned for each in numbers)
        if is_taken and not is_refused:
            self.copies += numbers
            self.copied.update(numbers)
            if outcome is not None:
                self.excused |= set(numbers)
        if isinstance(outcome, Failed) and outcome.pause_ms:
            self.paused_until_ms = self.now_ms + outcome.pause_ms
        if outcome is None:
            outcome = REFUSED if is_refused else Accepted()
        self.machine.sent(batch.batch, outcome, self.now_ms)

    def settle(self, index: int, *, is_done: bool, is_sure: bool) -> None:
        """Let the source carry out a settlement or lose it, and answer or not."""
        if not self.settling:
            return
        effect = self.settling.pop(index % len(self.settling))
        sure = []
        for key in effect.keys:
            number = self.locked.pop(key, None)
            if number is None:
                continue
            if is_done and isinstance(effect, Complete):
                self.completed.append(number)
            else:
                self.back(number)
            if is_done and is_sure:
                sure.append(key)
        self.machine.settled(sure, self.now_ms)
        self.machine.settled(set(effect.keys) - set(sure), self.now_ms, is_sure=False)

    def renew(self, *, is_answered: bool) -> None:
        """Let the source answer a renewal."""
        if not self.renewing:
            return
        keys = self.renewing.pop().keys
        if not is_answered:
            self.machine.renewal_failed(keys, self.now_ms)
            return
        self.machine.renewed([each for each in keys if each in self.locked], LOCK_MS, self.now_ms)
        self.machine.lock_lost([each for each in keys if each not in self.locked], self.now_ms)

    def end_lock(self, index: int, *, is_heard: bool) -> None:
        """End a lock; the machine hears of it, or not."""
        if self.locked:
            key = sorted(self.locked)[index % len(self.locked)]
            self.back(self.locked.pop(key))
            if is_heard:
                self.machine.lock_lost([key], self.now_ms)

    def apply(self, action: tuple[str, Any]) -> None:
        """Do one thing, and take the effects."""
        match action:
            case ("receive", count):
                self.receive(count)
            case ("write", index):
                self.write(index, is_done=True)
            case ("disk full", 0):
                self.write(0, is_done=False)
            case ("answer", index):
                self.answer(index, None, is_taken=True)
            case ("lose answer", index):
                self.answer(index, Failed("the link has ended"), is_taken=True)
            case ("fail", index):
                self.answer(index, Failed("not reached", is_in_doubt=False), is_taken=False)
            case ("busy", index):
                self.answer(index, Failed("busy", PAUSE_MS, is_in_doubt=False), is_taken=False)
            case ("settle", index):
                self.settle(index, is_done=True, is_sure=True)
            case ("lose settlement", index):
                self.settle(index, is_done=False, is_sure=False)
            case ("lose its answer", index):
                self.settle(index, is_done=True, is_sure=False)
            case ("renew", is_answered):
                self.renew(is_answered=is_answered)
            case ("end lock", index):
                self.end_lock(index, is_heard=True)
            case ("end lock unheard", index):
                self.end_lock(index, is_heard=False)
            case ("pass", time_ms):
                self.now_ms += time_ms
                self.machine.tick(self.now_ms)
            case ("dry", _) if not self.available:
                self.machine.ran_dry(self.now_ms)
            case ("source lost", 0):
                self.machine.source_lost("the connection is lost", self.now_ms)
            case ("kill", 0):
                self.begin()
            case ("stop", 0):
                self.machine.stop(self.now_ms)
        self.look()

    # -- what must hold

    def look(self) -> None:
        """Take the effects, and check each; and where every message is."""
        for effect in self.machine.take_effects():
            self.check(effect)
        rules, account = self.rules, self.machine.account
        everywhere = [*self.available, *self.locked.values(), *self.completed]
        assert sorted(everywhere) == list(range(COUNT)), "a message is nowhere, or at two places"
        if rules.is_moving:
            assert set(self.completed) <= set(self.copies), "completed, and not moved"
        else:
            assert not self.copies
        if rules.is_written:
            assert set(self.completed) | set(self.copies) <= self.written, "not on the disk before"
        twice = {number for number, count in self.copied.items() if count > 1}
        assert twice <= self.excused, "moved twice, and no answer was lost"
        assert all(map(is_wanted, [*self.completed, *self.copies]))
        assert self.machine.held <= rules.hold + 1
        if rules.limit is not None:
            assert account.taken <= rules.limit
        assert account.completed <= len(self.completed) - self.before
        in_hand = [each for each in (self.writing, self.sending, self.settling) if each]
        if self.ended is not None:
            assert not in_hand, "something is under way behind the end"
            self.check_account()
            self.begin()

    def check(self, effect: TakingEffect) -> None:
        assert self.ended is None, "an effect behind the end"
        match effect:
            case Write(_, keys) | Send(_, keys):
                assert 1 <= len(keys) <= self.rules.messages_max
                assert len({session_of(self.numbers[each]) for each in keys}) == 1
                self.check_order(keys)
                if isinstance(effect, Write):
                    assert self.rules.is_written
                    self.writing.append(effect)
                else:
                    assert self.now_ms >= self.paused_until_ms or self.rules.is_written
                    assert self.rules.is_moving
                    self.sending.append(effect)
            case Complete() | Release():
                self.settling.append(effect)
            case Renew():
                self.renewing.append(effect)
            case TakingEnded():
                self.ended = effect

    def check_order(self, keys: tuple[int, ...]) -> None:
        """No message of a session is under way together with an earlier batch of it."""
        session = session_of(self.numbers[keys[0]])
        if session is None:
            return
        batches = [each.keys for each in self.writing] + [each.keys for each in self.sending]
        for each in batches:
            assert session_of(self.numbers[each[0]]) != session

    def check_account(self) -> None:
        """What is told at the end is what has happened."""
        account = self.machine.account
        assert self.ended is not None
        done = account.completed + account.not_completed
        assert done == account.taken
        gone = self.completed[self.before :]
        assert len(gone) - account.not_completed <= account.completed <= len(gone)
        assert len(account.refused) == len({number for number, _ in account.refused})
        if self.ended.end is TakingEnd.DONE and self.rules.limit is None:
            left = {each for each in range(COUNT) if is_wanted(each)} - set(self.completed)
            left -= {number - 1 for number, _ in account.refused}
            assert account.not_completed >= len(left), f"left without a word: {left}"

    def finish(self) -> None:
        """Answer everything, and give the command again until it takes nothing more."""
        runs, completed = self.runs, -1
        for _ in range(3_000):
            if self.runs > runs:
                if len(self.completed) == completed:
                    return
                runs, completed = self.runs, len(self.completed)
            self.apply(("receive", 6))
            self.apply(("dry", 0))
            self.apply(("write", 0))
            self.apply(("answer", 0))
            self.apply(("settle", 0))
            self.apply(("renew", True))
            if not (self.sending or self.settling or self.writing):
                self.apply(("pass", 5_000))
        raise AssertionError(f"no end: {self.machine!r} available={self.available}")

    def can_be_taken(self, number: int) -> bool:
        """Whether a message is moved or removed if nothing goes wrong."""
        is_refused = self.rules.is_moving and number in self.poisoned
        return is_wanted(number) and number % 11 != 5 and not is_refused


@settings(max_examples=examples(300), deadline=None)
@given(
    RULES, st.sets(st.integers(0, COUNT), max_size=3), st.lists(ACTIONS, min_size=20, max_size=80)
)
def test_every_message_is_accounted_for(
    rules: TakingRules, poisoned: set[int], actions: list[tuple[str, Any]]
) -> None:
    """Untouched, moved and completed, or given back; completed only behind copy and disk."""
    world = World(rules, frozenset(poisoned))
    for each in actions:
        world.apply(each)
    world.finish()
    if rules.hold >= COUNT:
        assert not any(map(world.can_be_taken, world.available))
