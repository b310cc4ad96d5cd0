"""Copies under new numbers, beside a target's own messages, under any interleaving of kills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model.number import COUNTER_MAX, compose, partition_of
from bridge.operations.migration.copy_effects import (
    CopyAnswer,
    CopyDone,
    CopyEffect,
    CopyPlace,
    CopyRefused,
    CopyStopped,
    ImportBatch,
    LastNumbers,
    PeekedMessage,
    PeekPage,
    ReadLastNumbers,
    peeked,
)
from bridge.operations.migration.entity_copy import CopyPhase
from bridge.operations.migration.renumbered_message import (
    ADDED_BYTES_MAX,
    RENUMBERED,
    check_renumberable,
    check_size,
    copy_bytes,
    peeked_copy,
    renumbered,
    unsayable,
)
from bridge.operations.migration.state_counts import StateCounter, StateCounts, sent_bytes
from bridge.relay.plan.relayed_message import SEQUENCE
from bridge.remote.message import RemoteMessage
from bridge.wire.amqp10.scalars import Int, Long, Timestamp
from tests.fixtures.examples import examples
from tests.unit.operations.test_entity_copy import (
    ENTITIES,
    QUEUE,
    STATES,
    STEPS,
    TOPIC,
    Messages,
    Side,
    Target,
    World,
    alike,
    has_hidden_session,
    made,
    queue_of,
    sessions_of,
    stopped,
)

RUN = "run-1"
PARTITIONS = 16


def renumbering(source: Side) -> Side:
    """The same side, whose messages get new numbers."""
    return replace(source, places=[replace(each, renumbered_by=RUN) for each in source.places])


@dataclass
class LivelyTarget(Target):
    """A target that has given numbers itself; its messages stand under the number that they show.

    Attributes:
        is_partitioned: each partition has numbers of its own.
        imported: numbers that imports have, by series.
    """

    is_partitioned: bool = False
    imported: set[tuple[int, int]] = field(default_factory=set)

    def page(self, wanted: PeekPage, most: int) -> list[PeekedMessage]:
        """In the order of the numbers that it shows."""
        shown = sorted(self.messages[wanted.place].items())
        found = [each for number, each in shown if number >= wanted.from_number]
        return found[: min(most, wanted.count)]

    def of(self, series: int, number: int) -> int:
        """Where the last number of a series is kept; of the entity's own by partition."""
        return number >> 48 if series == 0 and self.is_partitioned else -series

    def told(self, place: int) -> LastNumbers:
        """The last numbers of a place's series."""
        series = self.places[place].series
        partitions = PARTITIONS if series == 0 and self.is_partitioned else 1
        numbers = []
        for partition in range(partitions):
            first = compose(partition, 0)
            last = self.last.get(self.of(series, first), first)
            numbers.append((last, (series, last) in self.imported))
        return LastNumbers(tuple(numbers))

    def take(self, batch: ImportBatch, may_know: set[tuple[int, int]]) -> CopyDone | CopyRefused:
        """Store a batch; what is there already is the same, byte by byte."""
        assert self.is_held
        if self.refusal:
            return CopyRefused(self.refusal)
        last, new = dict(self.last), []
        for place, each in batch.messages:
            at = self.places[place]
            number = each.shown_number
            found = self.messages[place].get(number)
            if found is not None:
                assert found == each, "no other message has the number"
                continue
            assert number > last.get(self.of(at.series, number), 0), "numbers rise"
            last[self.of(at.series, number)] = number
            if at.is_ordered_by_topic:
                topics = self.of(0, each.order)
                assert each.order >= last.get(topics, 0), "the topic's rise, too"
                last[topics] = each.order
            new.append((place, each))
        for place, each in new:
            self.messages[place][each.shown_number] = each
            self.imported.add((self.places[place].series, each.shown_number))
        self.last = last
        if new:
            self.shown = {0}
        return CopyDone()


class LivelyWorld(World):
    """Entities whose targets have messages and states of their own."""

    def __init__(
        self,
        sources: Sequence[Side],
        own: Sequence[set[int]],
        states: dict[str, bytes] | None = None,
        page: int = 3,
    ) -> None:
        self._own = own
        self._own_states = states or {}
        super().__init__([renumbering(each) for each in sources], page)

    def _target(self, source: Side) -> LivelyTarget:
        index = len(getattr(self, "made", []))
        self.made = [*getattr(self, "made", []), index]
        target = LivelyTarget(source.places, [{} for _ in source.places], is_live=True)
        target.is_partitioned = any(n >> 48 for each in source.messages for n in each)
        for number in sorted(self._own[index % len(self._own)]):
            place = number % len(source.places)
            of = target.of(source.places[place].series, number)
            own = replace(made(number, "its own"), target_number=number, is_own=True)
            target.messages[place][number] = own
            target.last[of] = max(target.last.get(of, 0), number)
        if source.places[0].has_sessions:
            target.states = dict(self._own_states)
        return target

    def copied(self, index: int) -> Messages:
        """Those that are not the target's own, by their old numbers."""
        return [
            {each.number: each for each in there.values() if not each.is_own}
            for there in self.targets[index].messages
        ]

    def _do(self, index: int, effect: CopyEffect, doubt: str) -> CopyAnswer | None:
        target = self.targets[index]
        assert isinstance(target, LivelyTarget)
        if isinstance(effect, ReadLastNumbers):
            return target.told(effect.place)
        return super()._do(index, effect, doubt)


OWN = st.lists(st.sets(st.integers(1, 60), max_size=8), min_size=1, max_size=3)


@given(sources=ENTITIES, own=OWN, states=STATES, steps=STEPS, page=st.integers(1, 4))
@settings(max_examples=examples(150))
def test_killed_at_any_step_copies_stand_once_behind_the_targets_own(
    sources: list[Side],
    own: list[set[int]],
    states: dict[str, bytes],
    steps: list[tuple[int, str, str]],
    page: int,
) -> None:
    """In the order that they had; what the target has itself is as it was."""
    at_first = [each.copy() for each in sources]
    states_first = [dict(each.states) for each in sources]
    world = LivelyWorld(sources, own, states, page)
    own_first = [
        [{n: m for n, m in there.items() if m.is_own} for there in each.messages]
        for each in world.targets
    ]
    for index, kill, doubt in steps:
        if not world.is_over and not world.stopped:
            world.step(index, kill, doubt)
    world.finish()
    if world.stopped:
        clash = any(
            states.get(session_id, state) != state
            for each in states_first
            for session_id, state in each.items()
        )
        assert ("peeks show" in world.stopped and has_hidden_session(world.sources)) or (
            "a state of session" in world.stopped and clash
        )
        return
    for index, (target, first) in enumerate(zip(world.targets, at_first, strict=True)):
        assert alike(world.copied(index), first)
        kept = [{n: m for n, m in there.items() if m.is_own} for there in target.messages]
        assert kept == own_first[index]
        assert target.states.items() >= states_first[index].items()
        assert sum(map(len, target.messages)) == sum(map(len, [*first, *kept])), "each once"
        distances: dict[tuple[int, int], set[int]] = {}
        for place, there, was in zip(target.places, target.messages, first, strict=True):
            assert isinstance(target, LivelyTarget)
            for number, each in there.items():
                if each.is_own:
                    continue
                of = target.of(place.series, number)
                distances.setdefault((place.series, of), set()).add(number - each.number)
                if place.is_ordered_by_topic:
                    of, order = target.of(0, each.order), was[each.number].order
                    distances.setdefault((0, of), set()).add(each.order - order)
        assert all(len(each) == 1 for each in distances.values()), "the order stays"


def test_a_distance_is_as_short_as_it_can_be_and_numbers_stay_where_they_can() -> None:
    """Two partitions: one whose numbers are above the target's, and one where they are not."""
    source = Side(
        QUEUE, [{compose(1, 9): made(compose(1, 9)), compose(2, 5): made(compose(2, 5))}, {}]
    )
    world = LivelyWorld([source], [{compose(1, 4), compose(2, 7)}])
    target = world.targets[0]
    while world.copies[0].phase is not CopyPhase.VERIFYING:
        world.step(0)
    copies = {
        each.number: n for there in target.messages for n, each in there.items() if not each.is_own
    }
    assert copies == {compose(1, 9): compose(1, 9), compose(2, 5): compose(2, 8)}
    world.finish()
    assert world.is_over


def test_a_topics_numbers_go_on_with_the_distance_of_its_copies() -> None:
    """Killed half-way: those that are left keep their order, and their distance."""
    copies = {number: made(number, order=number + 2) for number in range(1, 9)}
    world = LivelyWorld([Side(TOPIC, [{}, copies, {}, {}])], [{40}])
    while not any(world.copied(0)):
        world.step(0)
    world.begin()
    world.finish()
    found = [(each.number, each.order) for each in world.targets[0].messages[1].values()]
    assert found == [(number, number + 40) for number in range(1, 9)]


def test_numbers_that_do_not_fit_above_the_targets_are_refused_by_name() -> None:
    """Of a partition; nothing was copied."""
    high = compose(1, COUNTER_MAX - 1)
    source = Side(QUEUE, [{compose(1, 1): made(compose(1, 1)), high: made(high)}, {}])
    world = LivelyWorld([source], [{compose(1, 5)}])
    assert "the numbers above" in stopped(world)
    assert not any(world.copied(0))
    assert partition_of(high) == 1


def test_a_copy_that_differs_is_named_and_nothing_is_copied_twice() -> None:
    """Begun again, the target has one that is not the source's any more."""
    world = LivelyWorld([queue_of(3, 4, 5, 6, 7)], [{10}])
    while sum(map(len, world.copied(0))) < 4:
        world.step(0)
    target = world.targets[0]
    there = target.messages[0][12]
    assert there.number == 4
    target.messages[0][12] = replace(there, digest=b"other")
    world.begin()
    assert "q: the target has message 4, and the source another" in stopped(world)
    assert "--give-up" in world.stopped
    assert target.is_held


def test_copies_that_no_peek_shows_are_waited_for_and_never_made_again() -> None:
    """The target says that it has given its last number to one."""
    world = LivelyWorld([queue_of(3, 4)], [{10}])
    target = world.targets[0]
    while not any(world.copied(0)):
        world.step(0)
    hidden = [{n: m for n, m in each.items() if not m.is_own} for each in target.messages]
    for there, gone in zip(target.messages, hidden, strict=True):
        for number in gone:
            del there[number]
    world.begin()
    assert "q: the target has imported a message under 12, and shows no copy" in stopped(world)
    assert target.is_held


def test_what_an_application_has_sent_again_with_a_copys_properties_is_the_targets_own() -> None:
    """Its enqueued time is another one, and so is its distance."""
    world = LivelyWorld([queue_of(3, 4)], [{10}])
    target = world.targets[0]
    target.messages[0][10] = replace(made(3, "again"), target_number=10)
    world.finish()
    assert world.is_over
    copies = {n: each.number for n, each in target.messages[0].items()}
    assert copies == {10: 3, 11: 3, 12: 4}


def test_a_session_with_a_state_at_each_side_is_named() -> None:
    """Which of them counts nobody can tell."""
    world = LivelyWorld([sessions_of(a=b"x")], [{10}], {"a": b"its own"})
    text = "s: the target has a state of session 'a', and the source another: it is its own, or"
    assert text in stopped(world)


def test_a_hold_of_a_target_that_lives_ends_when_nothing_was_copied() -> None:
    """A message is due too early: the target goes on."""
    world = LivelyWorld([queue_of(3, due_ms=0)], [{10}])
    assert "is due at" in stopped(world)
    assert not world.targets[0].is_held


# -- what a copy says

PLACE = CopyPlace(path="q", renumbered_by=RUN)
COPIES = CopyPlace(path="t/Subscriptions/a", is_ordered_by_topic=True, renumbered_by=RUN)


def message(
    number: int = 7, properties: dict[str, Any] | None = None, **more: Any
) -> RemoteMessage:
    """A message as a peek of the source shows it."""
    annotations = {
        "x-opt-sequence-number": Long(number),
        "x-opt-enqueued-time": Timestamp(1_000),
        "x-opt-message-state": Int(0),
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    return RemoteMessage.of(
        data=b"order", annotations=annotations, application_properties=properties
    )


EARLIER = st.none() | st.sampled_from(["", "1", "1;2", ";", "abc", "run-0", "run-1/5", "run-1"])


@given(
    number=st.integers(1, 2**62),
    new=st.integers(1, 2**62),
    sequence=EARLIER,
    mark=EARLIER,
    order=st.none() | st.integers(1, 2**62),
    others=st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.booleans(), max_size=3),
)
def test_a_copy_says_what_it_was(
    number: int,
    new: int,
    sequence: str | None,
    mark: str | None,
    order: int | None,
    others: dict[str, Any],
) -> None:
    """Whatever stood in its properties before, from however many runs and relays."""
    place = PLACE if order is None else COPIES
    before = dict(others)
    before |= {} if sequence is None else {SEQUENCE: sequence}
    before |= {} if mark is None else {RENUMBERED: mark}
    orders = {} if order is None else {"x_opt_enqueue_sequence_number": Long(order)}
    source = message(number, before, **orders)
    copy = renumbered(source, place, number, new, None if order is None else 5)
    assert copy.sequence_number == new
    assert copy.application_property_values[SEQUENCE].split(";")[-1] == str(number)
    found = peeked_copy(copy, place)
    was = peeked(source, is_dead=False)
    assert (found.number, found.digest, found.target_number) == (number, was.digest, new)
    assert not found.is_own
    assert found.order == (new if order is None else 5)
    assert copy.body == source.body


def test_a_copy_of_a_topic_without_a_number_of_the_topic_has_none_again() -> None:
    """As a namespace may show it."""
    source = message(7)
    copy = renumbered(source, COPIES, 7, 17, 27)
    assert copy.enqueued_sequence_number == 27
    found = peeked_copy(copy, COPIES)
    assert (found.digest, found.order) == (peeked(source, is_dead=False).digest, 27)


@pytest.mark.parametrize(
    "properties",
    [
        None,
        {SEQUENCE: "7"},
        {SEQUENCE: "7", RENUMBERED: "another"},
        {SEQUENCE: "x", RENUMBERED: RUN},
        {SEQUENCE: 7, RENUMBERED: RUN},
        {RENUMBERED: RUN},
    ],
)
def test_what_the_run_has_not_brought_is_the_targets_own(properties: dict[str, Any] | None) -> None:
    """A relay's copy, too, and one of another source."""
    found = peeked_copy(message(30, properties), PLACE)
    assert (found.is_own, found.shown_number) == (True, 30)


def test_bytes_that_are_no_message_are_the_targets_own() -> None:
    """They stay."""
    assert peeked_copy(RemoteMessage(annotations=b"\x00\x53\x72\xff"), PLACE).is_own


def test_a_property_that_is_no_text_is_refused_before_anything_is_copied() -> None:
    """Its value could not come back."""
    check_renumberable(PLACE, message(7, {SEQUENCE: "5"}))
    with pytest.raises(
        CopyStopped, match="q: message 7 has an application property 'repl-sequence'"
    ):
        check_renumberable(PLACE, message(7, {SEQUENCE: 5}))


def test_a_look_counts_what_cannot_say_its_old_number() -> None:
    """With the first of them, before a run begins; what cannot be read is counted apart."""
    count = StateCounter(lambda message: 0, unsayable)
    texts: list[dict[str, Any] | None] = [None, {SEQUENCE: "x"}, {RENUMBERED: 1.5}, {SEQUENCE: 5}]
    for number, properties in enumerate(texts, start=4):
        count.add(message(number, properties), is_dead=False)
    count.add(RemoteMessage(annotations=b"\x00\x53\x72\xff"), is_dead=False)
    found = count.counted(StateCounts())
    assert (found.unsayable, found.unread) == ((2, 6, RENUMBERED), 1)


def test_a_topics_places_are_of_one_run() -> None:
    """The flag is each place's."""
    assert all(each.renumbered_by == RUN for each in renumbering(Side(TOPIC, [])).places)


@given(
    earlier=st.none() | st.text(alphabet="0;", max_size=300),
    old=st.integers(1, (1 << 63) - 1),
    is_ordered=st.booleans(),
    body_bytes=st.integers(0, 300),
)
def test_the_size_of_a_copy_is_known_before_and_bounded(
    earlier: str | None, old: int, is_ordered: bool, body_bytes: int
) -> None:
    """What is a byte above the largest size is refused by name, with figures."""
    texts = {} if earlier is None else {SEQUENCE: earlier, RENUMBERED: earlier}
    message = RemoteMessage.of(
        data=b"x" * body_bytes,
        application_properties=texts,
        annotations={
            "x-opt-sequence-number": Long(old),
            "x-opt-enqueued-sequence-number": Long(old),
        },
    )
    place = CopyPlace(path="orders", renumbered_by="r" * 64, is_ordered_by_topic=is_ordered)
    copy = renumbered(message, place, old, 1, 1 if is_ordered else None)
    size_bytes = copy_bytes(message, place)
    assert size_bytes == sent_bytes(copy)
    assert sent_bytes(message) < size_bytes <= sent_bytes(message) + ADDED_BYTES_MAX
    check_size(place, message, size_bytes)
    with pytest.raises(CopyStopped, match=f"orders: message {old} has .* {size_bytes:,}, and"):
        check_size(place, message, size_bytes - 1)
