"""Nothing overtakes in a route of order = "entity", and what is gone holds up nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.relay.machine.entity_order import LOCK_MS_MAX, LOOK_MS, EntityOrder
from bridge.relay.machine.lowest import PARTITION_SHIFT
from tests.fixtures.examples import examples

PAGE = 3


def admitted(
    order: EntityOrder, early: Iterable[int], shown: Iterable[int], now_ms: int = 0
) -> tuple[list[int], int | None]:
    """Ask what comes next of a source that shows these active messages, by pages."""
    numbers = sorted(early)
    there = sorted(shown)
    while (at := order.look_from(numbers, now_ms)) is not None:
        page = [each for each in there if each >= at][:PAGE]
        order.looked(at, page, page[-1] + 1 if page else max(numbers[-1], at) + 1, now_ms)
    return order.take(numbers, now_ms)


def test_nothing_overtakes_what_another_has_locked() -> None:
    """However many it has locked, and however many came before them; it comes, and all go on."""
    order = EntityOrder(0)
    active = list(range(1, 60))
    assert admitted(order, range(1, 21), active) == (list(range(1, 21)), None)
    assert admitted(order, [41, 42], active) == ([], 21)
    assert admitted(order, [21, 41, 42], active) == ([21], 22)
    assert admitted(order, range(22, 43), active) == (list(range(22, 43)), None)


def test_what_has_gone_is_not_waited_for() -> None:
    """It has expired, or somebody else has received it: the source does not show it any more."""
    order = EntityOrder(0)
    assert admitted(order, [1, 3], [1, 2, 3]) == ([1], 2)
    assert admitted(order, [3], [3], LOOK_MS - 1) == ([], 2)
    assert admitted(order, [3], [3], LOOK_MS) == ([3], None)


def test_what_is_awaited_is_awaited_as_long_as_the_source_shows_it() -> None:
    """Longer than any lock: who has it renews its lock. What is early may be locked anew behind."""
    order = EntityOrder(0)
    assert admitted(order, [1, 3], [1, 2, 3]) == ([1], 2)
    late_ms = 10 * LOCK_MS_MAX
    assert admitted(order, [3], [2, 3], late_ms) == ([], 2)
    assert admitted(order, [2, 3, 9], [2, 3, 8, 9], late_ms) == ([2, 3], 8)


def test_nothing_is_looked_at_when_no_lock_can_be_older() -> None:
    """A lock lasts five minutes at most, and is renewed by nobody who has ended."""
    order = EntityOrder(1_000)
    assert order.look_from([5], 1_000 + LOCK_MS_MAX - 1) == 0
    assert order.look_from([5], 1_000 + LOCK_MS_MAX) is None
    assert order.take([5], 1_000 + LOCK_MS_MAX) == ([5], None)


NUMBER = st.integers(0, 30)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(("receive", "receive", "receive", "look", "look")), NUMBER),
    st.tuples(st.sampled_from(("lock", "unlock", "unlock", "lapse", "goes", "new")), NUMBER),
    st.tuples(st.sampled_from(("goes unseen", "is seen", "give room")), NUMBER),
    st.tuples(st.just("pass"), st.sampled_from((1, 500, LOOK_MS))),
)


class World:
    """A source that others receive from, too, and a lane that relays it in its order.

    Attributes:
        there: the active messages; `foreign`: those that others have locked.
        early: what the lane has locked, and has not relayed.
        ghosts: what has gone, and is shown still.
        gone: received, expired, deferred or dead-lettered elsewhere.
    """

    def __init__(self, count: int, locked: set[int]) -> None:
        self.now_ms = 0
        self.there = list(range(1, count + 1))
        self.foreign = locked & set(self.there)
        self.early: list[int] = []
        self.ghosts: set[int] = set()
        self.gone: set[int] = set()
        self.relayed: list[int] = []
        self.order = EntityOrder(0)
        self.awaited: int | None = None

    @property
    def free(self) -> list[int]:
        """What the source may give."""
        return [each for each in self.there if each not in (*self.foreign, *self.early)]

    def look(self) -> None:
        """Relay what comes next."""
        shown = {*self.there, *self.ghosts}
        found, self.awaited = admitted(self.order, self.early, shown, self.now_ms)
        for each in found:
            before = [it for it in self.there if it < each]
            assert not before, f"{each} has overtaken {before}"
            self.relayed.append(each)
            self.early.remove(each)
            self.there.remove(each)
        assert (self.awaited is None) == (not self.early)
        assert self.awaited is None or self.awaited < min(self.early)

    def apply(self, what: str, index: int) -> None:
        """Let one thing happen."""

        def one_of(numbers: Iterable[int]) -> list[int]:
            found = sorted(numbers)
            return [found[index % len(found)]] if found else []

        match what:
            case "receive":
                # Mostly the first; what has come back may be handed out behind others.
                self.early += one_of(self.free[: 1 + index % 3])
            case "look":
                self.look()
            case "lock":
                self.foreign.update(one_of(self.free))
            case "unlock":
                self.foreign.difference_update(one_of(self.foreign))
            case "lapse" | "give room":
                for each in one_of(self.early):
                    self.early.remove(each)
            case "goes" | "goes unseen":
                for each in one_of({*self.foreign, *self.free}):
                    self.there.remove(each)
                    self.foreign.discard(each)
                    self.gone.add(each)
                    if what == "goes unseen":
                        self.ghosts.add(each)
            case "is seen":
                self.ghosts.difference_update(one_of(self.ghosts))
            case "new":
                known = (*self.there, *self.gone, *self.relayed, 0)
                self.there.append(max(known) + 1 + index % 2)
            case "pass":
                self.now_ms += index

    def finish(self) -> None:
        """All locks end, all that is gone is not shown any more: everything is relayed."""
        self.foreign.clear()
        self.ghosts.clear()
        for _ in range(3):
            self.early += self.free
            self.now_ms += LOOK_MS
            self.look()
        assert not self.there, f"held up: {self.there}, waiting for {self.awaited}"


@settings(max_examples=examples(400), deadline=None)
@given(st.integers(0, 15), st.sets(st.integers(1, 15)), st.lists(ACTIONS, max_size=60))
def test_the_order_stands_and_goes_on(
    count: int, locked: set[int], actions: list[tuple[str, Any]]
) -> None:
    """Messages are locked, come back, lapse, go, are shown though they are gone, and are new.

    Nothing is relayed before one that is there; nothing is passed over that comes later; what is
    gone, and not shown any more, holds up nothing.
    """
    world = World(count, locked)
    for what, index in actions:
        world.apply(what, index)
    world.finish()
    assert world.relayed == sorted(world.relayed)
    assert not set(world.relayed) & world.gone


@given(st.permutations(range(1, 13)), st.integers(1, 3), st.integers(1, 4))
def test_in_whatever_order_a_source_hands_out_each_partition_has_its_own(
    order: list[int], partitions: int, at_once: int
) -> None:
    """What has come waits for what comes before it in its partition, and for nothing else."""
    numbers = [(each % partitions << PARTITION_SHIFT) + each for each in order]
    firsts = [EntityOrder(0, each) for each in range(partitions)]
    relayed: list[int] = []
    early: list[int] = []
    for start in range(0, len(numbers), at_once):
        early += numbers[start : start + at_once]
        for own, first in enumerate(firsts):
            there = [
                each for each in numbers if each >> PARTITION_SHIFT == own and each not in relayed
            ]
            mine = [each for each in early if each >> PARTITION_SHIFT == own]
            found, missing = admitted(first, mine, there) if mine else ([], None)
            assert missing is None or missing not in early
            relayed += found
            early = [each for each in early if each not in found]
    assert sorted(relayed) == sorted(numbers)
    for own in range(partitions):
        found = [each for each in relayed if each >> PARTITION_SHIFT == own]
        assert found == sorted(found)
