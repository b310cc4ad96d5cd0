"""The way back of entities under any interleaving: the source ends as the target has left it.

Runs are killed before or behind any step; answers of sends are lost, with or without the messages;
what was locked at the target when it was held is settled there until its lock ends; peeks lack for
a while what is there; others have locked messages at the source; scheduled ones become due there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from bridge.model.number import COUNTER_MAX
from bridge.operations.migration.copy_effects import (
    CancelAtSource,
    CopyAnswer,
    CopyCount,
    CopyDone,
    CopyPause,
    CopyPlace,
    CopyStopped,
    CopyUnanswered,
    CountSource,
    ListSourceSessions,
    PeekPage,
)
from bridge.operations.migration.entity_return import EntityReturn, ReturnPhase, ReturnRules
from bridge.operations.migration.last_copied import LastCopied
from bridge.operations.migration.return_effects import (
    AgreeToReturn,
    AwaitLocks,
    BringToSource,
    CloseTarget,
    HoldForReturn,
    ReturnEffect,
    ReturnMessage,
    SetSessionStates,
    SettleAtSource,
    SettledAs,
    brought_from,
    brought_text,
    return_message,
)
from bridge.operations.migration.side_ledger import SideLedger
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.message_properties import MessageProperties
from bridge.wire.amqp10.scalars import Int, Long, Timestamp
from tests.fixtures.examples import examples

COPIED_MS = 1_000
"""The source's messages were enqueued before, and were copied then."""

QUEUE = (CopyPlace(path="q"), CopyPlace(path="q/$DeadLetterQueue", is_dead=True))
SESSIONS = (CopyPlace(path="s", has_sessions=True), replace(QUEUE[1], path="s/$DeadLetterQueue"))
TOPIC = (
    CopyPlace(path="t"),
    CopyPlace(path="t/Subscriptions/a", series=1),
    CopyPlace(path="t/Subscriptions/a/$DeadLetterQueue", series=1, is_dead=True),
)
TARGET = "target/2026"
NAMES = [f"{TARGET}/{each}" for each in ("q", "s", "t", "t/subscriptions/a")]

Place = dict[int, ReturnMessage]


def digest_of(name: str) -> bytes:
    """A digest by which messages are told apart."""
    return hashlib.blake2b(name.encode(), digest_size=7).digest()


@dataclass
class World:
    """Both sides of an entity; runs come and go.

    Attributes:
        source, target: messages by place and number.
        locked: numbers that consumers of the target had locked when it was held, by place.
        hidden: what peeks do not show in this look, by side, place and number.
        taken: numbers that somebody has locked at the source.
        doubts: what becomes of the next batches: taken, "stored" or "lost" without an answer, or
            taken "late"; the last one first.
        coming: what the source takes long after its sender has given up.
        last: the last number that was copied; 0: no run has copied the entity.
    """

    places: Sequence[CopyPlace]
    source: list[Place]
    target: list[Place]
    locked: list[tuple[int, int]] = field(default_factory=list)
    hidden: set[tuple[str, int, int]] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    returns: bool = True
    page: int = 3
    stopped: str = ""
    is_closed: bool = False
    is_held: bool = False
    late: list[bytes] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    was_hidden: set[tuple[str, int, int]] = field(default_factory=set)
    coming: list[list[BringToSource]] = field(default_factory=lambda: [[], []])
    last: int = COUNTER_MAX

    def __post_init__(self) -> None:
        every = [number for side in (self.source, self.target) for each in side for number in each]
        self._next_number = count(max(every, default=0) + 1)
        self.begin()

    def begin(self) -> None:
        """Begin the run, or begin it again."""
        copied = {
            each.path.lower(): LastCopied(path=each.path, lasts={0: self.last})
            for each in self.places
            if self.last and not each.is_dead
        }
        rules = ReturnRules(target=TARGET, returns=self.returns, copied=copied)
        self.machine = EntityReturn(self.places, rules)
        self._steps = self.machine.steps()
        self.effect: ReturnEffect | None = next(self._steps)

    def step(self, kill: str = "") -> None:
        """Do what the run wants; it may be killed before or behind it."""
        if kill == "before" or self.effect is None:
            self.begin()
            return
        answer = self._do(self.effect)
        if kill == "behind" and not self.is_closed:
            self.begin()
            return
        try:
            self.effect = self._steps.send(answer)
        except StopIteration:
            self.effect = None
        except CopyStopped as stopped:
            self.stopped = str(stopped)

    def _do(self, effect: ReturnEffect) -> CopyAnswer:
        match effect:
            case HoldForReturn():
                self.is_held = True
            case PeekPage():
                return self._shown(effect)
            case ListSourceSessions(place):
                found = self.source[place].values()
                return sorted({each.session_id or "" for each in found if each.due_ms is None})
            case CountSource(place):
                return CopyCount(len(self.source[place]))
            case AwaitLocks():
                self.locked.clear()
                self._pass(2)
            case CopyPause():
                self.taken.clear()
                self._pass()
            case SettleAtSource():
                self._settle(effect)
            case CancelAtSource(place, numbers):
                for number in numbers:
                    self.source[place].pop(number, None)  # it may be due meanwhile
            case BringToSource(place, messages):
                doubt = self.doubts.pop() if self.doubts else ""
                if doubt == "late":
                    self.coming[0].append(effect)
                if doubt in ("late", "lost"):
                    return CopyUnanswered()
                self._take(place, messages)
                return CopyUnanswered() if doubt == "stored" else CopyDone()
            case CloseTarget():
                assert self.is_held
                self.check()
                self.is_closed = True
            case _:
                assert isinstance(effect, AgreeToReturn | SetSessionStates)
        return CopyDone()

    def _pass(self, times: int = 1) -> None:
        """Let time pass between two looks."""
        self.was_hidden, self.hidden = self.hidden, set()
        for _ in range(times):
            earlier, later = self.coming
            self.coming = [[], earlier]
            for each in later:
                self._take(each.place, each.messages)

    def _shown(self, wanted: PeekPage) -> list[ReturnMessage]:
        side = self.source if wanted.side == "source" else self.target
        hidden = {each[2] for each in self.hidden if each[:2] == (wanted.side, wanted.place)}
        found = [
            each
            for each in side[wanted.place].values()
            if each.number >= wanted.from_number
            and wanted.session_id in (None, each.session_id)
            and each.number not in hidden
        ]
        is_grouped = self.places[wanted.place].has_sessions and side is self.source
        found.sort(key=lambda each: (each.session_id or "" if is_grouped else "", each.number))
        return found[: min(self.page, wanted.count)]

    def hide(self, at: int) -> None:
        """Have peeks not show a message in this look; the next one shows it."""
        every = [(place, number) for place, each in enumerate(self.target) for number in each]
        if every and (each := ("target", *every[at % len(every)])) not in self.was_hidden:
            self.hidden.add(each)

    def _settle(self, effect: SettleAtSource) -> None:
        place = self.source[effect.place]
        for number, message in effect.messages:
            there = place.get(number)
            if there is None or number in self.taken:
                continue
            assert there.state == ("deferred" if effect.is_deferred else "active")
            if self.places[effect.place].has_sessions:
                assert there.session_id == effect.session_id
            del place[number]
            if effect.how is SettledAs.DEFERRED:
                place[number] = replace(there, state="deferred")
            elif effect.how is SettledAs.DEAD_LETTERED:
                assert message is not None, "it says why"
                self.source[effect.place + 1][number] = replace(there, state="active")

    def _take(self, place: int, messages: Sequence[tuple[ReturnMessage, str]]) -> None:
        alive = place - self.places[place].is_dead
        for each, text in messages:
            number = next(self._next_number)
            self.source[alive][number] = replace(
                each,
                number=number,
                state="active" if each.due_ms is None else "scheduled",
                enqueued_ms=COPIED_MS + number,
                brought=text,
                digest=digest_of(f"{number} {text}"),
            )

    def settle_locked(self, how: str) -> None:
        """Have a consumer that is not stopped settle at the target what it has locked."""
        if not self.locked:
            return
        place, number = self.locked.pop()
        found = self.target[place].pop(number, None)
        if found is None or how == "complete":
            return
        if how == "bury":
            self.target[place + 1][number] = found
        else:
            self.target[place][number] = replace(found, state="deferred")

    def become_due(self, at: int) -> None:
        """Activate a scheduled message at the source, under a new number."""
        due = [each for each in self.source[0].values() if each.due_ms is not None and each.brought]
        if due:
            each = due[at % len(due)]
            del self.source[0][each.number]
            number = next(self._next_number)
            active = replace(each, number=number, state="active", due_ms=None)
            self.source[self.places is TOPIC][number] = active

    def finish(self) -> None:
        """Go on without more faults, until the end."""
        for _ in range(30_000):
            if self.stopped or self.machine.phase is ReturnPhase.DONE:
                return
            self.step()
        raise AssertionError("it does not come to an end")

    def check(self) -> None:
        """See that the source has what the target has not settled, each once, and nothing else."""
        found: dict[bytes, list[tuple[int, str]]] = {}
        for place, messages in enumerate(self.source):
            for each in messages.values():
                found_at = [brought_from(each_name, each.brought) for each_name in NAMES]
                came = next((each for each in found_at if each is not None), None)
                digest = each.digest if came is None else came[1].to_bytes(7)
                found.setdefault(digest, []).append((place, each.state))
        there = {
            each.digest: (place, each)
            for place, messages in enumerate(self.target)
            for each in messages.values()
        }
        for digest, (place, message) in there.items():
            if digest not in found:
                assert not self.returns
                assert message.enqueued_ms >= COPIED_MS
                assert message.state != "scheduled"
                continue
            ((at, state),) = found.pop(digest)
            if message.state == "scheduled":
                assert state in ("scheduled", "active")
            else:
                assert (at, state) == (place, message.state)
        assert sorted(found) == sorted(self.late), "what the target has settled is nowhere"


KINDS = ("active", "active", "scheduled", "deferred", "dead", "dead deferred")
LIVES = ("stays", "stays", "goes", "deferred", "dead", "dead deferred", "locked")


def put(side: list[Place], alive: int, kind: str, message: ReturnMessage) -> None:
    """Put a message into the place of its state."""
    state = kind.rpartition(" ")[2]
    is_dead = kind.startswith("dead")
    message = replace(message, state="active" if state == "dead" else state)  # type: ignore[arg-type]
    side[alive + is_dead][message.number] = message


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """An entity that was copied, after the target has lived for a while."""
    places = draw(st.sampled_from((QUEUE, SESSIONS, TOPIC)))
    source, target = ([dict[int, ReturnMessage]() for _ in places] for _ in range(2))
    alive = 1 if places is TOPIC else 0
    locked, late = [], []
    copied = draw(st.dictionaries(st.integers(1, 30), st.sampled_from(KINDS), max_size=10))
    for number, kind in copied.items():
        session = draw(st.sampled_from("abc")) if places is SESSIONS else None
        message = ReturnMessage(
            number=number, order=number, digest=digest_of(f"old {number}"), session_id=session
        )
        life = draw(st.sampled_from(LIVES))
        if kind == "scheduled":
            is_cancelled = draw(st.booleans())
            where = 0 if places is TOPIC else alive
            message = replace(message, due_ms=5, digest=digest_of(f"due {number}"))
            if not is_cancelled and life != "goes":  # the run was killed before
                put(source, where, kind, message)
            if life != "goes":
                put(target, where, kind, message)
            continue
        put(source, alive, kind, message)
        if life == "goes":
            continue
        wanted = life if life not in ("stays", "locked") else kind
        if kind.startswith("dead") and not wanted.startswith("dead"):
            wanted = "dead deferred"
        if kind.endswith("deferred") and wanted == "dead":
            wanted = "dead deferred" if kind.startswith("dead") else "dead"
        put(target, alive, wanted, message)
        if life == "locked" and kind == "active":
            locked.append((alive, number))
    highest = max(copied, default=0)
    kinds = st.lists(st.sampled_from(KINDS), max_size=6)
    for number, kind in enumerate(draw(kinds), highest + 1):  # what the target took as new
        session = draw(st.sampled_from("abc")) if places is SESSIONS else None
        message = ReturnMessage(
            number=number,
            order=number,
            digest=digest_of(f"new {number}"),
            session_id=session,
            enqueued_ms=COPIED_MS + number,
            due_ms=5 if kind == "scheduled" else None,
        )
        where = 0 if places is TOPIC and kind == "scheduled" else alive
        put(target, where, kind, message)
        if kind == "active" and draw(st.booleans()):
            locked.append((alive, number))
    for number in range(highest + 1, highest + 1 + draw(st.integers(0, 2))):
        digest = digest_of(f"late {number}")  # a sender was not stopped: numbers meet numbers
        session = "a" if places is SESSIONS else None
        straggler = ReturnMessage(
            number=number, order=number, digest=digest, session_id=session, enqueued_ms=COPIED_MS
        )
        put(source, alive, "active", straggler)
        late.append(digest)
    every = [(place, number) for place, each in enumerate(target) for number in each]
    hidden = draw(st.sets(st.sampled_from(every), max_size=3)) if every else set()
    unseen = {("target", *each) for each in hidden}
    taken = draw(st.sets(st.integers(1, 30), max_size=3))
    return World(
        places,
        source,
        target,
        locked,
        unseen,
        taken,
        draw(st.booleans()),
        draw(st.integers(1, 5)),
        late=late,
        last=highest,
    )


LAST_STEP = 150

FAULTS = st.dictionaries(
    st.integers(0, LAST_STEP),
    st.sampled_from(("before", "behind", "complete", "bury", "defer", "due", "hide", "hide")),
    max_size=12,
)
"""What goes wrong before a step."""

DOUBTS = st.lists(st.sampled_from(("", "stored", "lost", "late")), max_size=6)
"""What becomes of the first batches that are sent."""


@given(world=worlds(), faults=FAULTS, doubts=DOUBTS)
@settings(max_examples=examples(400), deadline=None)
def test_what_the_target_has_settled_is_nowhere_and_all_else_at_the_source_once(
    world: World, faults: dict[int, str], doubts: list[str]
) -> None:
    """Killed at any step, with answers lost, consumers that still settle, and peeks that lack."""
    world.doubts = doubts
    for step in range(LAST_STEP):
        if world.is_closed or world.stopped:
            break
        what = faults.get(step, "")
        if what == "due":
            world.become_due(step)
        elif what == "hide":
            world.hide(step)
        elif what not in ("", "before", "behind"):
            world.settle_locked(what)
        world.step(what if what in ("before", "behind") else "")
    world.finish()
    event("stopped" if world.stopped else "done")
    if world.stopped:
        assert not world.is_closed
        assert "peeks show" in world.stopped or "could not be settled" in world.stopped
        return
    assert world.is_closed
    world.check()


# -- scenarios


def active(number: int, name: str = "", **values: Any) -> ReturnMessage:
    """A message that is told by its name."""
    return ReturnMessage(
        number=number, order=number, digest=digest_of(name or f"old {number}"), **values
    )


def queue_of(*messages: ReturnMessage) -> list[Place]:
    """A queue and its dead-letter queue with messages."""
    return [{each.number: each for each in messages}, {}]


def run(world: World) -> World:
    """Run it to its end."""
    world.finish()
    return world


def test_what_came_to_the_source_behind_the_copy_stays_and_is_counted() -> None:
    """Nothing is known of it at the target, and its number may be another message's there."""
    late = active(2, "straggler", enqueued_ms=COPIED_MS)
    new = active(2, "new", enqueued_ms=COPIED_MS)
    world = run(World(QUEUE, queue_of(active(1), late), queue_of(new), late=[late.digest], last=1))
    assert world.is_closed
    assert sorted(each.digest for each in world.source[0].values() if not each.brought) == [
        late.digest
    ]
    ((_, found),) = world.machine.account
    assert (found.late.count, found.late.numbers) == (1, [2])
    assert [old for old, _ in found.numbers] == [2]


def test_a_message_that_another_has_locked_at_the_source_stops_the_way_back_by_its_number() -> None:
    """The target stays held."""
    world = World(QUEUE, queue_of(active(1), active(2)), queue_of(active(2)))
    for _ in range(20_000):
        world.taken = {1}
        world.step()
        if world.stopped:
            break
    assert "q: 1 messages of the source, the first of them 1, could not be settled" in world.stopped
    assert (world.is_held, world.is_closed) == (True, False)


def test_a_source_that_drops_what_is_sent_to_it_stops_the_way_back() -> None:
    """As one that detects duplicates does."""
    world = World(QUEUE, queue_of(), queue_of(active(1, due_ms=5, state="scheduled")))
    for _ in range(20_000):
        world.doubts = ["lost"]
        world.step()
        if world.stopped:
            break
    assert "Does the source detect duplicates?" in world.stopped


def test_a_state_that_cannot_come_back_is_counted_and_the_message_stays() -> None:
    """A message that expired at the source, and is active at the target."""
    source = queue_of()
    source[1][1] = active(1)
    world = World(QUEUE, source, queue_of(active(1)))
    with pytest.raises(AssertionError):
        world.finish()  # the places differ
    ((_, found),) = world.machine.account
    assert (found.unreachable.numbers, list(source[1])) == ([1], [1])


def test_what_one_look_does_not_show_at_the_source_is_not_sent_there_again() -> None:
    """The look before has shown it."""
    world = World(QUEUE, queue_of(active(1), active(2)), queue_of(active(1), active(2)))
    while not isinstance(world.effect, AwaitLocks):
        world.step()
    world.step()
    world.hidden.add(("source", 0, 2))
    run(world)
    assert world.is_closed
    assert [each.brought for each in world.source[0].values()] == ["", ""]


def test_what_the_last_look_lacks_at_the_target_is_looked_for_once_more() -> None:
    """Else it would be at the disabled target alone."""
    later = active(2, "later", due_ms=5, state="scheduled")
    world = World(QUEUE, queue_of(active(1)), queue_of(active(1), later))
    while not isinstance(world.effect, AwaitLocks):
        world.step()
    world.step()
    world.hidden.add(("target", 0, 2))
    run(world)
    assert world.is_closed
    assert [each.due_ms for each in world.source[0].values()] == [None, 5]


def peeked(number: int, state: int, **application_properties: Any) -> RemoteMessage:
    """A message as a peek shows it."""
    return RemoteMessage.of(
        data=b"body",
        properties=MessageProperties(message_id="m", group_id="red"),
        application_properties=application_properties,
        annotations={
            "x-opt-sequence-number": Long(number),
            "x-opt-enqueued-time": Timestamp(5),
            "x-opt-message-state": Int(state),
            **({"x-opt-scheduled-enqueue-time": Timestamp(9)} if state == 2 else {}),
        },
    )


def test_a_message_is_told_in_any_state_and_with_other_application_properties() -> None:
    """Why it died, and what a consumer has noted in it, are among them."""
    one = return_message(peeked(7, 0), is_dead=False)
    other = return_message(peeked(7, 1, DeadLetterReason="bad"), is_dead=True)
    assert one.digest == other.digest
    assert (one.state, other.state, one.session_id, one.enqueued_ms) == (
        "active",
        "deferred",
        "red",
        5,
    )
    scheduled = return_message(peeked(7, 2), is_dead=False)
    assert (scheduled.state, scheduled.due_ms) == ("scheduled", 9)


def test_a_message_that_cannot_be_read_is_refused() -> None:
    """It could not be told from another one."""
    message = return_message(RemoteMessage(unread=b"nothing"), is_dead=False)
    with pytest.raises(CopyStopped, match="cannot be read"):
        SideLedger("q").note(message, is_dead=False)


def test_what_was_brought_is_known_by_what_it_was_at_this_target_alone() -> None:
    """An entity that was made anew is another one."""
    message = active(7)
    text = brought_text(TARGET, message)
    assert brought_from(TARGET, text) == (7, int.from_bytes(message.digest))
    assert brought_from("target/q/2027", text) is None
    assert brought_from(TARGET, "mine") is None
