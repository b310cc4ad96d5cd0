"""The copy of entities under any interleaving: the target ends with the source's messages alone.

Runs are killed at any step, before or behind what the step does; answers of imports are lost; the
source changes; its peeks are in the order of sessions; the target refuses. The target is a model of
the contract: held, it takes numbers that rise, all of a transfer or none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from bridge.operations.migration.copy_effects import (
    AwaitCancelled,
    AwaitMark,
    AwaitOthers,
    CancelAtSource,
    CopyAnswer,
    CopyCount,
    CopyDone,
    CopyEffect,
    CopyPause,
    CopyPlace,
    CopyRefused,
    CopyStopped,
    CopyUnanswered,
    CountSource,
    HoldTarget,
    ImportBatch,
    ListSourceSessions,
    ListTargetStates,
    PeekedMessage,
    PeekPage,
    ReadLastNumbers,
    ReadSourceStates,
    ReleaseTarget,
    SourceRecounted,
    SourceStates,
    StoreTargetStates,
    TargetHeld,
    TargetStates,
    peeked,
)
from bridge.operations.migration.entity_copy import CopyPhase, EntityCopy
from bridge.operations.migration.entity_reading import CopySteps
from bridge.operations.migration.kept_messages import OVERHEAD_BYTES
from bridge.operations.migration.message_ledger import PlaceLedger
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Int, Long, Timestamp
from tests.fixtures.examples import examples

FAR_MS = 10_000_000
"""When scheduled messages are due."""

QUEUE = (CopyPlace(path="q"), CopyPlace(path="q/$DeadLetterQueue", is_dead=True))
SESSIONS = (CopyPlace(path="s", has_sessions=True), replace(QUEUE[1], path="s/$DeadLetterQueue"))
TOPIC = (
    CopyPlace(path="t"),
    CopyPlace(path="t/Subscriptions/a", series=1, is_ordered_by_topic=True),
    CopyPlace(
        path="t/Subscriptions/a/$DeadLetterQueue", series=1, is_ordered_by_topic=True, is_dead=True
    ),
    CopyPlace(path="t/Subscriptions/b", series=2, is_ordered_by_topic=True),
)

Messages = list[dict[int, PeekedMessage]]


def made(number: int, what: str = "", order: int | None = None, **values: Any) -> PeekedMessage:
    """A message whose digest is of what it says."""
    digest = hashlib.blake2b(f"{number} {what} {values}".encode(), digest_size=16).digest()
    order = number if order is None else order
    return PeekedMessage(number=number, order=order, digest=digest, size_bytes=10, **values)


@dataclass
class Side:
    """The messages of an entity at one side, by place and number, and the states of its sessions.

    Attributes:
        states: by session; the place with sessions is the first.
        locked: sessions that somebody has.
    """

    places: Sequence[CopyPlace]
    messages: Messages
    states: dict[str, bytes] = field(default_factory=dict)
    locked: set[str] = field(default_factory=set)

    def page(self, wanted: PeekPage, most: int) -> list[PeekedMessage]:
        """Those from a number on; where there are sessions, one session behind the other."""
        found = [
            each
            for each in self.messages[wanted.place].values()
            if each.number >= wanted.from_number and wanted.session_id in (None, each.session_id)
        ]
        is_grouped = self.places[wanted.place].has_sessions and wanted.side == "source"
        found.sort(key=lambda each: (each.session_id or "" if is_grouped else "", each.number))
        return found[: min(most, wanted.count)]

    def copy(self) -> Messages:
        """What it has now."""
        return [dict(each) for each in self.messages]

    def sessions(self) -> list[str]:
        """What a list of sessions has: those with messages that are not scheduled, or a state."""
        found = {each.session_id or "" for each in self.messages[0].values() if each.due_ms is None}
        return sorted(found | set(self.states))

    def read_states(self, wanted: ReadSourceStates) -> SourceStates | CopyRefused:
        """The states of some sessions."""
        for each in wanted.session_ids:
            if each in self.locked:
                return CopyRefused(f"session {each!r}: somebody has it")
        states = [(each, self.states[each]) for each in wanted.session_ids if each in self.states]
        return SourceStates(tuple(states))


@dataclass
class Target(Side):
    """A target of the contract.

    Attributes:
        last: the highest number of each series.
        refusal: why it takes no messages.
        state_refusal: why it takes no states.
        is_live: it has messages of its own, not of the migration.
        shown: the places whose messages peeks show; `None`: of all.
    """

    is_held: bool = False
    last: dict[int, int] = field(default_factory=dict)
    refusal: str = ""
    state_refusal: str = ""
    is_live: bool = False
    shown: set[int] | None = None

    def shown_page(self, wanted: PeekPage, most: int) -> list[PeekedMessage]:
        """What a peek shows: what was taken just now it may not show yet."""
        is_shown = self.shown is None or wanted.place in self.shown
        return self.page(wanted, most) if is_shown else []

    def take(self, batch: ImportBatch, may_know: set[tuple[int, int]]) -> CopyDone | CopyRefused:
        """Store a batch; what is there already is known only where its answer was lost."""
        assert self.is_held
        if self.refusal:
            return CopyRefused(self.refusal)
        last, new = dict(self.last), []
        for place, each in batch.messages:
            series = self.places[place].series
            found = self.messages[place].get(each.number)
            if found is not None:
                assert (place, each.number) in may_know
                assert found == each
                continue
            assert each.number > last.get(series, 0), "numbers rise"
            last[series] = each.number
            new.append((place, each))
        for place, each in new:
            self.messages[place][each.number] = each
        self.last = last
        if new:
            self.shown = {0}
        return CopyDone()

    def store_states(self, wanted: StoreTargetStates) -> CopyDone | CopyRefused:
        """Store states; the same may be there."""
        assert self.is_held
        for session_id, state in wanted.states:
            if self.state_refusal:
                return CopyRefused(f"the state of session {session_id!r}: {self.state_refusal}")
            assert self.states.get(session_id, state) == state, "no other state is overwritten"
            self.states[session_id] = state
        return CopyDone()


class World:
    """Both sides of some entities, and the mark; the runs come and go.

    Args:
        sources: the messages of each entity.
        page: how many messages a peek shows at most.
        kept: how many messages a run keeps from its first reading to the copy.
    """

    def __init__(self, sources: Sequence[Side], page: int = 3, kept: int = 0) -> None:
        self.sources = sources
        self.targets = [self._target(each) for each in sources]
        self.is_marked = False
        self.is_over = False
        self.stopped = ""
        self.at_mark: list[Messages] = []
        self.states_at_mark: list[dict[str, bytes]] = []
        self.released: set[int] = set()
        self._page = page
        self._kept_bytes = kept * (10 + OVERHEAD_BYTES)
        self.begin()

    def begin(self) -> None:
        """Begin the run, or begin it again."""
        self.copies = [self._copy(each) for each in self.sources]
        self._steps: list[CopySteps] = [each.steps() for each in self.copies]
        self._next: list[CopyEffect | None] = [None] * len(self.copies)
        self._in_doubt: set[tuple[int, int]] = set()
        self._before = [_count(each) for each in self.sources]
        self.recounted: list[int] = []
        self._are_cancelled = False
        for index in range(len(self.copies)):
            self._advance(index, None)

    def _target(self, source: Side) -> Target:
        return Target(source.places, [{} for _ in source.places])

    def copied(self, index: int) -> Messages:
        """The copies at the target, under the numbers of the source."""
        return self.targets[index].messages

    def _copy(self, source: Side) -> EntityCopy:
        return EntityCopy(
            source.places,
            due_after_ms=1,
            batch_count=4,
            kept_bytes=self._kept_bytes,
            is_verified=self.is_marked,
        )

    def _advance(self, index: int, answer: CopyAnswer | None) -> None:
        steps = self._steps[index]
        try:
            effect = next(steps) if answer is None else steps.send(answer)
        except StopIteration:
            self._next[index] = None
            if all(each.phase is CopyPhase.DONE for each in self.copies):
                self.is_marked, self.is_over = False, True
        except CopyStopped as stopped:
            self.stopped = str(stopped)
        else:
            self._next[index] = effect

    def next_effect(self, index: int) -> CopyEffect | None:
        """What an entity wants done next; `None`: nothing more."""
        return self._next[index]

    def step(self, index: int, kill: str = "", doubt: str = "") -> None:
        """Do what an entity wants, unless it waits for others; the run may be killed.

        Args:
            kill: "before" or "behind" what is done.
            doubt: an import is "stored" or "lost" without an answer.
        """
        index %= len(self.copies)
        effect = self._next[index]
        if kill == "before" or effect is None:
            if kill:
                self.begin()
            return
        answer = self._do(index, effect, doubt)
        if kill == "behind":
            self.begin()
        elif answer is not None:
            self._advance(index, answer)

    def _do(self, index: int, effect: CopyEffect, doubt: str) -> CopyAnswer | None:
        source, target = self.sources[index], self.targets[index]
        match effect:
            case HoldTarget():
                assert index not in self.released, "what lives at the target is not held again"
                was_held, target.is_held = target.is_held, True
                return TargetHeld(not was_held)
            case PeekPage(side="source"):
                return source.page(effect, self._page)
            case PeekPage(place=place):
                if target.shown is not None and place not in target.shown:
                    self._in_doubt |= {(place, number) for number in target.messages[place]}
                return target.shown_page(effect, self._page)
            case ListSourceSessions():
                return source.sessions()
            case CountSource(place):
                return CopyCount(len(source.messages[place]))
            case ReadLastNumbers():
                raise AssertionError("numbers stay")
            case ImportBatch(messages):
                if doubt == "lost":
                    return CopyUnanswered()
                taken = target.take(effect, self._in_doubt)
                if doubt == "stored" and isinstance(taken, CopyDone):
                    self._in_doubt |= {(place, each.number) for place, each in messages}
                    return CopyUnanswered()
                return taken
            case CopyPause():
                target.shown = None
                return CopyDone()
            case ReadSourceStates():
                return source.read_states(effect)
            case ListTargetStates():
                return TargetStates({n: sha256(each).digest() for n, each in target.states.items()})
            case StoreTargetStates():
                return target.store_states(effect)
            case AwaitOthers():
                if all(isinstance(each, AwaitOthers) for each in self._next):
                    self.recounted = [_count(each) for each in self.sources]
                if not self.recounted:
                    return None
                return SourceRecounted(self.recounted[index] != self._before[index])
            case AwaitMark():
                if all(isinstance(each, AwaitMark) for each in self._next):
                    self.is_marked = True
                    self.at_mark = [each.copy() for each in self.sources]
                    self.states_at_mark = [dict(each.states) for each in self.sources]
                return CopyDone() if self.is_marked else None
            case CancelAtSource(place, numbers):
                for number in numbers:
                    self._cancel(index, place, number)
                return CopyDone()
            case AwaitCancelled():
                if all(isinstance(each, AwaitCancelled) for each in self._next):
                    self._are_cancelled = True
                return CopyDone() if self._are_cancelled else None
            case ReleaseTarget():
                self._release(index)
                return CopyDone()

    def _cancel(self, index: int, place: int, number: int) -> None:
        assert self.is_marked
        there = self.sources[index].messages[place].get(number)
        if there is not None and there.due_ms is not None:
            assert same(there, self.copied(index)[place][number])
            del self.sources[index].messages[place][number]

    def _release(self, index: int) -> None:
        target = self.targets[index]
        target.is_held = False
        if self.is_marked:
            assert self._are_cancelled, "no hold ends before all entities are seen once more"
            assert alike(self.copied(index), self.at_mark[index])
            assert self.states_at_mark[index].items() <= target.states.items()
            assert target.is_live or target.states == self.states_at_mark[index]
            assert not any(
                each.due_ms is not None and number in there
                for here, there in zip(
                    self.sources[index].messages, self.copied(index), strict=True
                )
                for number, each in here.items()
            ), "no message is scheduled at both sides"
            self.released.add(index)
        else:
            is_empty = not any(target.messages) and not target.states
            assert target.is_live or is_empty, "what was copied stays held"

    def finish(self) -> None:
        """Go on without more faults, until the end."""
        for _ in range(2_000):
            if self.is_over or self.stopped:
                return
            for index in range(len(self.copies)):
                self.step(index)
        raise AssertionError("it does not come to an end")


def _count(source: Side) -> int:
    return sum(map(len, source.messages))


def same(one: PeekedMessage, other: PeekedMessage) -> bool:
    """Whether two messages are the same."""
    return one.digest == other.digest


def alike(one: Messages, other: Messages) -> bool:
    """Whether two sides have the same messages under the same numbers."""
    return [{n: m.digest for n, m in each.items()} for each in one] == [
        {n: m.digest for n, m in each.items()} for each in other
    ]


def has_hidden_session(sources: Sequence[Side]) -> bool:
    """Whether a session has scheduled messages alone: a list of sessions has it not."""
    for source in sources:
        sessions: dict[str | None, bool] = {}
        for each in source.messages[0].values() if source.places[0].has_sessions else ():
            sessions[each.session_id] = sessions.get(each.session_id, True) and (
                each.due_ms is not None
            )
        if any(sessions.values()):
            return True
    return False


NUMBERS = st.one_of(
    st.integers(1, 40), st.integers(1, 5).map(lambda partition: (partition << 48) + partition * 3)
)
KINDS = st.sampled_from(("active", "scheduled", "deferred", "dead"))
SESSION_IDS = [*"abc", *(f"s{number}" for number in range(12))]
STATES = st.dictionaries(st.sampled_from(SESSION_IDS), st.sampled_from([b"x", b"y"]))
"""More than are read at once; of sessions without messages, too."""


@st.composite
def queues(draw: st.DrawFn) -> Side:
    """A queue with messages in all states, perhaps with sessions."""
    has_sessions = draw(st.booleans())
    messages: Messages = [{}, {}]
    for number, kind in draw(st.dictionaries(NUMBERS, KINDS, max_size=14)).items():
        session = draw(st.sampled_from("abc")) if has_sessions else None
        due_ms = FAR_MS if kind == "scheduled" else None
        message = made(number, kind, due_ms=due_ms, session_id=session)
        messages[kind == "dead"][number] = message
    states = draw(STATES) if has_sessions else {}
    return Side(SESSIONS if has_sessions else QUEUE, messages, states)


@st.composite
def topics(draw: st.DrawFn) -> Side:
    """A topic with scheduled messages, and copies at its subscriptions."""
    messages: Messages = [{} for _ in TOPIC]
    next_number = {1: 1, 2: 1}
    for order in sorted(draw(st.sets(st.integers(1, 40), max_size=10))):
        if draw(st.booleans()):
            messages[0][order] = made(order, "scheduled", due_ms=FAR_MS)
            continue
        for place in draw(st.sets(st.integers(1, 3), max_size=2)):
            if place == 2 and any(each.order == order for each in messages[1].values()):
                continue
            series = TOPIC[place].series
            number = next_number[series] = next_number[series] + draw(st.integers(1, 5))
            messages[place][number] = made(number, "copy", order=order)
    return Side(TOPIC, messages)


ENTITIES = st.lists(st.one_of(queues(), topics()), min_size=1, max_size=3)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(("", "", "", "", "", "", "before", "behind")),
        st.sampled_from(("", "", "stored", "lost")),
    ),
    max_size=120,
)


KEPT = st.sampled_from((0, 3, 1_000))


@given(sources=ENTITIES, steps=STEPS, page=st.integers(1, 4), kept=KEPT)
@settings(max_examples=examples(150))
def test_killed_at_any_step_the_target_has_what_the_source_had(
    sources: list[Side], steps: list[tuple[int, str, str]], page: int, kept: int
) -> None:
    """Each message once, under its number; scheduled ones are at the target alone in the end."""
    at_first = [each.copy() for each in sources]
    world = World(sources, page, kept)
    for index, kill, doubt in steps:
        if not world.is_over:
            world.step(index, kill, doubt)
    world.finish()
    if world.stopped:
        assert "peeks show" in world.stopped
        assert has_hidden_session(sources)
        assert not world.released
        return
    for source, target, first in zip(world.sources, world.targets, at_first, strict=True):
        assert alike(target.messages, first)
        assert target.states == source.states
        assert not target.is_held
        left = [{n: m for n, m in each.items() if m.due_ms is None} for each in first]
        assert alike(source.messages, left)


CHANGES = st.sampled_from(
    ("send", "send low", "receive", "defer", "bury", "change", "set state", "clear state", "lock")
)


def change(source: Side, what: str, at: int) -> None:
    """Change the source as an application would; "send low": into another partition."""
    every = [(place, number) for place, each in enumerate(source.messages) for number in each]
    highest = max((number for _, number in every), default=0)
    if what in ("set state", "clear state", "lock"):
        session_id = SESSION_IDS[at % len(SESSION_IDS)]
        if what == "clear state":
            source.states.pop(session_id, None)
        elif source.places is SESSIONS and what == "lock":
            source.locked ^= {session_id}
        elif source.places is SESSIONS:
            source.states[session_id] = b"set at %d" % at
        return
    is_topic = source.places is TOPIC
    if what in ("send", "send low") or not every:
        place = 1 if is_topic else 0
        used = {number for _, number in every}
        number = highest + 1 + at
        if what == "send low":
            number = next(each for each in range(1 + at, number + 1) if each not in used)
        session = "abc"[at % 3] if source.places[place].has_sessions else None
        source.messages[place][number] = made(number, "new", session_id=session)
        return
    place, number = every[at % len(every)]
    message = source.messages[place].pop(number)
    if what in ("defer", "change"):
        other = made(number, what, order=message.order, session_id=message.session_id)
        source.messages[place][number] = other
    elif what == "bury" and place == 0 and not is_topic and message.due_ms is None:
        source.messages[1][number] = made(number, "dead", session_id=message.session_id)


@given(
    sources=ENTITIES,
    steps=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 2), st.sampled_from(("", "", "", "before", "behind"))),
            st.tuples(st.integers(0, 2), CHANGES),
        ),
        max_size=60,
    ),
    at=st.integers(0, 20),
    kept=KEPT,
)
@settings(max_examples=examples(150))
def test_nothing_may_be_received_at_the_target_that_the_source_has_not(
    sources: list[Side], steps: list[tuple[int, str]], at: int, kept: int
) -> None:
    """A source that changes before it is read once more stops the run, or its change is copied."""
    world = World(sources, kept=kept)
    for index, what in steps:
        if world.is_over or world.stopped:
            break
        if what in ("", "before", "behind"):
            world.step(index, what)
            continue
        index %= len(sources)
        if world.copies[index].phase.value in ("holding", "reading numbers", "copying"):
            change(sources[index], what, at)
    world.finish()
    event("stopped" if world.stopped else "done")
    if world.stopped:
        assert not world.is_marked
        assert not world.released


@given(
    sources=ENTITIES,
    steps=st.lists(st.integers(0, 2), max_size=60),
    when=st.integers(0, 60),
    what=st.sampled_from(("receive", "set state", "clear state")),
    kept=KEPT,
)
@settings(max_examples=examples(80))
def test_a_message_that_goes_while_it_is_read_once_more_stops_the_run_or_is_at_both(
    sources: list[Side], steps: list[int], when: int, what: str, kept: int
) -> None:
    """A change at any step: what the source has all the time is at the target when it may live."""
    world = World(sources, kept=kept)
    before = sources[0].copy()
    for step, index in enumerate(steps):
        if step == when and not world.is_marked:
            change(sources[0], what, 3)
        world.step(index)
        if world.is_marked or world.stopped:
            break
    kept = sources[0].copy()
    if not world.is_marked and not world.stopped:
        world.finish()
    if world.is_marked or world.is_over:
        there = world.targets[0].messages
        for place, messages in enumerate(kept):
            for number, message in messages.items():
                if number in before[place]:
                    assert same(there[place][number], message)


@pytest.mark.parametrize(("kept", "fetched"), [(0, 2), (4, 1), (5, 0)])
def test_the_source_is_not_read_again_for_what_was_kept(kept: int, fetched: int) -> None:
    """Pages of three, and five messages: what there was no room for is read again."""
    world = World([queue_of(1, 2, 3, 4, 5)], kept=kept)
    pages = 0
    while world.copies[0].phase is not CopyPhase.VERIFYING:
        effect = world.next_effect(0)
        pages += isinstance(effect, PeekPage) and world.copies[0].phase is CopyPhase.COPYING
        world.step(0)
    world.finish()
    assert pages == fetched
    assert alike(world.targets[0].messages, world.sources[0].messages)


def test_the_end_of_the_source_is_looked_at_once_before_the_others_are_verified() -> None:
    """Pages of three: the second look ends with the last message, and is none where there are none.

    What has come behind is found when all entities are verified, and stops the run.
    """
    looks: dict[CopyPhase, list[tuple[int, int]]] = {each: [] for each in CopyPhase}
    world = World([queue_of(1, 2, 3, 4)])
    while not world.stopped:
        effect, copy = world.next_effect(0), world.copies[0]
        if isinstance(effect, PeekPage) and effect.side == "source":
            looks[copy.phase].append((effect.place, effect.from_number))
        elif copy.phase is CopyPhase.VERIFYING:
            world.sources[0].messages[1][5] = made(5)
        world.step(0)
    assert looks[CopyPhase.READING] == [(0, 1), (0, 4), (0, 5), (1, 1)]
    assert looks[CopyPhase.VERIFYING] == [(0, 1), (0, 4)]
    assert "q/$DeadLetterQueue: message 5 has come at the source" in world.stopped
    assert world.targets[0].is_held


# -- stops


def stopped_with(source: Side, do: Callable[[World, int], None], page: int = 3) -> World:
    """A run that is stopped; a function is called before each step."""
    world = World([source], page)
    for step in range(300):
        do(world, step)
        world.step(0)
        if world.stopped:
            return world
    raise AssertionError("it was not stopped")


def queue_of(*numbers: int, **values: Any) -> Side:
    """A queue with messages of these numbers."""
    return Side(QUEUE, [{each: made(each, **values) for each in numbers}, {}])


def in_phase(phase: CopyPhase, do: Callable[[Side], Any]) -> Callable[[World, int], None]:
    """Change the source when the copy is in a phase."""
    is_done = []

    def changed(world: World, step: int) -> None:
        if world.copies[0].phase is phase and not is_done:
            is_done.append(step)
            do(world.sources[0])

    return changed


@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda source: source.messages[0].pop(5), "q: message 5 has gone at the source"),
        (lambda source: source.messages[0].update({8: made(8)}), "q: message 8 has come at"),
        (
            lambda source: source.messages[0].update({5: made(5, "other")}),
            "q: message 5 has changed at the source",
        ),
        (
            lambda source: source.messages[1].update({5: source.messages[0].pop(5)}),
            "q: message 5 has gone at the source",
        ),
    ],
)
def test_what_changes_at_the_source_is_named(do: Callable[[Side], Any], text: str) -> None:
    """By its number; the target stays held."""
    world = stopped_with(queue_of(1, 5, 7), in_phase(CopyPhase.VERIFYING, do))
    assert text in world.stopped
    assert "begin again" in world.stopped
    assert world.targets[0].is_held


@pytest.mark.parametrize("sends_too", [False, True])
def test_what_was_received_behind_the_look_at_its_entity_stops_the_run(sends_too: bool) -> None:
    """By the count, which fell; or by the number of what has come in its place."""
    world = World([queue_of(1, 5), queue_of(2)])
    while world.copies[0].phase is not CopyPhase.WAITING:
        world.step(0)
    del world.sources[0].messages[0][5]
    if sends_too:
        world.sources[0].messages[0][6] = made(6)
    world.finish()
    what = "6 has come" if sends_too else "5 has gone"
    assert f"q: message {what} at the source" in world.stopped
    assert world.targets[0].is_held
    assert world.targets[1].is_held


@given(numbers=st.sets(NUMBERS, max_size=8), new=NUMBERS)
def test_a_new_number_is_behind_one_of_those_that_are_looked_at(
    numbers: set[int], new: int
) -> None:
    """In each partition numbers rise; what stands behind its last one is shown first."""
    ledger = PlaceLedger(QUEUE[0])
    for each in sorted(numbers):
        ledger.note(made(each))
    ledger.close()
    same_partition = [each for each in numbers if each >> 48 == new >> 48]
    if new <= max(same_partition, default=0):
        return
    every = sorted({*numbers, new})
    shown = {next((n for n in every if n >= start), 0) for start in ledger.next_numbers()}
    assert new in shown


def test_a_hold_over_what_was_empty_ends_when_it_stops_before_the_copy() -> None:
    """This run has begun it, and nothing was copied."""
    steps = EntityCopy(QUEUE, due_after_ms=1).steps()
    next(steps)
    effect: CopyEffect = steps.send(TargetHeld(False, was_empty=True))
    shown = [made(3, due_ms=0)]
    while isinstance(effect, PeekPage):
        is_first = effect.from_number == 1 and effect.place == 0 and effect.side == "source"
        effect = steps.send(shown if is_first else [])
    assert isinstance(effect, ReleaseTarget)


def test_a_message_that_no_peek_shows_is_missed_by_the_count() -> None:
    """Scheduled alone in its session, with a lower number than those that are shown before it."""
    source = Side(SESSIONS, [{7: made(7, session_id="a")}, {}])
    hidden = made(5, due_ms=FAR_MS, session_id="z")
    do = in_phase(CopyPhase.COPYING, lambda source: source.messages[0].update({5: hidden}))
    text = "s: peeks show 1 message, and the source tells 2"
    assert text in stopped_with(source, do, page=1).stopped
    first = Side(SESSIONS, [{7: made(7, session_id="a"), 5: hidden}, {}])
    assert text in stopped_with(first, lambda world, step: None, page=1).stopped


def test_a_refused_batch_is_named_and_the_hold_ends_when_nothing_was_copied() -> None:
    """With the target's own words."""
    world = World([queue_of(3, 4)])
    world.targets[0].refusal = "above its bound"
    while not world.stopped:
        world.step(0)
    text = "q: the target refuses 2 messages from 3 on: above its bound"
    assert world.stopped == text
    assert not world.targets[0].is_held


def test_a_batch_without_an_answer_may_be_there_so_the_hold_stays() -> None:
    """Its refusal afterwards does not say that it is not."""
    world = World([queue_of(3, 4)])
    while world.copies[0].phase is not CopyPhase.COPYING:
        world.step(0)
    world.step(0)  # the page
    world.step(0, doubt="lost")
    world.targets[0].refusal = "no"
    while not world.stopped:
        world.step(0)
    assert world.targets[0].is_held


@pytest.mark.parametrize("is_held_before", [True, False])
def test_what_another_run_has_copied_meanwhile_keeps_the_hold(is_held_before: bool) -> None:
    """The same command was given twice, or a killed run's transfer was on its way still."""
    world = World([queue_of(3, 4)])
    source, target = world.sources[0], world.targets[0]
    target.is_held = is_held_before
    while world.copies[0].phase is not CopyPhase.COPYING:
        world.step(0)
    world.step(0)
    target.messages[0][3] = source.messages[0][3]
    target.refusal = "3 is not above 3"
    while not world.stopped:
        world.step(0)
    assert target.is_held


def test_messages_of_the_targets_own_are_named_and_it_is_held_no_longer() -> None:
    """A queue that is in use there is not this run's."""
    world = World([queue_of(3, 4)])
    world.targets[0].messages[0][3] = made(3)
    world.targets[0].is_live = True
    while not world.stopped:
        world.step(0)
    text = "q: the target has messages of its own, such as 3: receive or purge them first."
    assert world.stopped == text
    assert not world.targets[0].is_held


@pytest.mark.parametrize(
    ("number", "what", "text"),
    [
        (9, "", "q: the target has message 9, which the source has not"),
        (4, "other", "q: the target has message 4, and the source another"),
        (4, "", "q: the target lacks message 3, and has later ones"),
    ],
)
def test_a_target_that_is_no_copy_stops_the_run_by_number(
    number: int, what: str, text: str
) -> None:
    """It stays held."""
    world = World([queue_of(3, 4)])
    world.targets[0].is_held = True
    world.targets[0].messages[0][number] = made(number, what)
    while not world.stopped:
        world.step(0)
    assert text in world.stopped
    assert world.targets[0].is_held


def test_a_message_that_is_due_too_early_is_named_before_anything_is_copied() -> None:
    """The source would activate it under way."""
    world = World([queue_of(3, due_ms=0)])
    while not world.stopped:
        world.step(0)
    assert "q: message 3 is due at 1970-01-01T00:00:00" in world.stopped
    assert not world.targets[0].is_held


def test_a_message_without_a_number_stops_the_run() -> None:
    """It cannot be copied under its own."""
    world = World([queue_of(1)])
    world.sources[0].messages[0] = {1: replace(made(1), number=0)}
    pages = iter([[replace(made(1), number=0)]])
    copy = EntityCopy(QUEUE, due_after_ms=0)
    steps = copy.steps()
    next(steps)
    steps.send(TargetHeld(True))
    assert isinstance(steps.send(next(pages)), ReleaseTarget)
    with pytest.raises(CopyStopped, match="cannot be read"):
        steps.send(CopyDone())


# -- states of sessions


def sessions_of(**states: bytes) -> Side:
    """A queue with sessions, and one message."""
    return Side(SESSIONS, [{3: made(3, session_id="a")}, {}], states)


def stopped(world: World) -> str:
    """Go on until the run stops; why."""
    while not world.stopped:
        assert not world.is_over, "it has come to its end"
        world.step(0)
    return world.stopped


def test_a_locked_session_stops_the_run_by_name() -> None:
    """Its state cannot be read; nothing was copied, and the hold ends."""
    world = World([sessions_of(a=b"x")])
    world.sources[0].locked = {"a"}
    assert stopped(world) == "s: session 'a': somebody has it"
    assert not world.targets[0].is_held


def test_a_session_that_is_locked_behind_the_copy_stops_the_run_too() -> None:
    """What was copied stays held."""
    do = in_phase(CopyPhase.VERIFYING, lambda source: source.locked.add("a"))
    world = stopped_with(sessions_of(a=b"x"), do)
    assert "s: session 'a': somebody has it" in world.stopped
    assert world.targets[0].is_held


@pytest.mark.parametrize("phase", [CopyPhase.VERIFYING, CopyPhase.WAITING])
@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda source: source.states.update(a=b"y"), "session 'a' has changed at the source"),
        (lambda source: source.states.pop("a"), "session 'a' has gone at the source"),
        (lambda source: source.states.update(b=b"x"), "session 'b' has come at the source"),
    ],
)
def test_a_state_that_changes_at_the_source_is_named(
    do: Callable[[Side], Any], text: str, phase: CopyPhase
) -> None:
    """Also while the entity waits for the others; the target stays held."""
    world = stopped_with(sessions_of(a=b"x"), in_phase(phase, do))
    assert f"s: the state of {text}: stop what receives there, and begin again" in world.stopped
    assert world.targets[0].is_held


@pytest.mark.parametrize("phase", [CopyPhase.HOLDING, CopyPhase.VERIFYING])
@pytest.mark.parametrize(
    ("do", "text"),
    [
        (lambda states: states.update(a=b"y"), "a state of session 'a', and the source another"),
        (lambda states: states.update(b=b"x"), "a state of session 'b', which the source has not"),
        (lambda states: states.pop("a", None), "no state of session 'a', which the source has"),
    ],
)
def test_a_target_with_other_states_stops_the_run(
    phase: CopyPhase, do: Callable[[dict[str, bytes]], Any], text: str
) -> None:
    """At its beginning, if it was held by this run already, and at its end; it stays held."""
    world = World([sessions_of(a=b"x")])
    target = world.targets[0]
    target.is_held = True
    while world.copies[0].phase is not phase:
        world.step(0)
    do(target.states)
    if phase is CopyPhase.HOLDING and not target.states:
        world.finish()  # what it lacks is copied
        assert target.states == {"a": b"x"}
        return
    assert f"s: the target has {text}: the source has changed. Delete" in stopped(world)
    assert target.is_held


def test_states_of_the_targets_own_are_named_and_it_is_held_no_longer() -> None:
    """They are not overwritten."""
    world = World([sessions_of(a=b"x")])
    target = world.targets[0]
    target.states, target.is_live = {"b": b"its own"}, True
    text = "s: the target has a state of session 'b' of its own: clear it first"
    assert text in stopped(world)
    assert (target.states, target.is_held) == ({"b": b"its own"}, False)


def test_a_state_that_the_target_refuses_is_named() -> None:
    """With its own words; others may be there, so the hold stays."""
    world = World([sessions_of(a=b"x")])
    world.targets[0].state_refusal = "too large"
    assert stopped(world) == "s: the target refuses the state of session 'a': too large"


@pytest.mark.parametrize("is_held_before", [True, False])
def test_states_that_another_run_has_copied_meanwhile_keep_the_hold(is_held_before: bool) -> None:
    """The same command was given twice; this one stops before it has copied anything."""
    source = sessions_of(a=b"x")
    world = World([source])
    target = world.targets[0]
    target.is_held = is_held_before
    while world.copies[0].phase is not CopyPhase.COPYING:
        world.step(0)
    target.states["a"] = b"x"
    source.locked = {"a"}
    assert "somebody has it" in stopped(world)
    assert target.is_held


def test_sessions_are_read_some_at_a_time() -> None:
    """So that no more than ten states of a place are in memory."""
    states = {f"S{number}": b"x" for number in range(23)}
    world = World([Side(SESSIONS, [{}, {}], states)])
    asked = []
    while not world.is_over:
        effect = world._next[0]
        if isinstance(effect, ReadSourceStates):
            asked.append(len(effect.session_ids))
        world.step(0)
    assert asked == [10, 10, 3] * 2
    assert world.targets[0].states == states
    assert world.copies[0].session_states == 23


def test_pages_become_smaller_where_messages_are_large() -> None:
    """So that no more than some megabytes of each place are in memory."""
    count = 2_000
    large = {each: replace(made(each), size_bytes=300_000) for each in range(1, count + 1)}
    source = Side((QUEUE[0],), [large])
    steps = EntityCopy(source.places, due_after_ms=0).steps()
    effect: CopyEffect = next(steps)
    asked: list[int] = []
    while not isinstance(effect, ImportBatch):
        answer: CopyAnswer = TargetHeld(True)
        if isinstance(effect, PeekPage):
            asked.append(effect.count)
            answer = source.page(effect, effect.count) if effect.side == "source" else []
        effect = steps.send(answer)
    assert asked[0] == 250
    assert max(asked[6:]) * 300_000 <= 2 * 4_194_304


def test_a_transfer_takes_what_the_target_says() -> None:
    """In bytes; a message that is larger goes alone."""
    messages = {each: replace(made(each), size_bytes=each * 1_000) for each in range(1, 7)}
    source = Side((QUEUE[0],), [messages])
    steps = EntityCopy(source.places, due_after_ms=0).steps()
    effect: CopyEffect = next(steps)
    sent = []
    while not isinstance(effect, CopyPause):
        answer: CopyAnswer = CopyDone()
        if isinstance(effect, HoldTarget):
            answer = TargetHeld(True, 5_500)
        elif isinstance(effect, PeekPage):
            answer = source.page(effect, 250) if effect.side == "source" else []
        elif isinstance(effect, ImportBatch):
            sent.append([each.number for _, each in effect.messages])
        effect = steps.send(answer)
    assert sent == [[1, 2], [3], [4], [5], [6]]


def annotated(**annotations: Any) -> RemoteMessage:
    """A message as a peek shows it."""
    named = {name.replace("_", "-"): value for name, value in annotations.items()}
    return RemoteMessage.of(data=b"order", annotations=named)


def test_a_peeked_message_has_number_order_and_time() -> None:
    """And a digest of its values, if that is needed."""
    message = annotated(x_opt_sequence_number=Long(7), x_opt_enqueue_sequence_number=Long(3))
    found = peeked(message, is_dead=False)
    assert (found.number, found.order, found.due_ms) == (7, 3, None)
    assert found.size_bytes == message.size_bytes
    assert found.digest == peeked(message, is_dead=False).digest != b""
    assert found.digest != peeked(message, is_dead=True).digest
    assert peeked(message, is_dead=False, is_noted=False).digest == b""
    assert peeked(annotated(x_opt_sequence_number=Long(7)), is_dead=False).order == 7


def test_a_scheduled_message_has_no_enqueued_time_yet() -> None:
    """So what a namespace shows as such does not count."""

    def scheduled(enqueued_ms: int, due_ms: int = 90_000) -> PeekedMessage:
        message = annotated(
            x_opt_sequence_number=Long(7),
            x_opt_message_state=Int(2),
            x_opt_scheduled_enqueue_time=Timestamp(due_ms),
            x_opt_enqueued_time=Timestamp(enqueued_ms),
        )
        return peeked(message, is_dead=False)

    assert scheduled(1).due_ms == 90_000
    assert scheduled(1).digest == scheduled(2).digest
    assert scheduled(1).digest != scheduled(1, 90_001).digest


def test_bytes_that_are_no_message_have_no_number() -> None:
    """Their digest is of their bytes."""
    found = peeked(RemoteMessage(annotations=b"\x00\x53\x72\xff"), is_dead=False)
    assert found.number == 0
    assert found.digest
