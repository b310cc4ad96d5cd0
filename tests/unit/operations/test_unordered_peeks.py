"""Peeks across sessions and partitions in any order: all is copied, or the run stops by name.

Azure promises no order there, so a message may be shown behind one of a higher number.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.number import compose, partition_of
from bridge.operations.migration.copy_effects import (
    CopyAnswer,
    CopyCount,
    CopyEffect,
    CopyStopped,
    CountSource,
    PeekedMessage,
    PeekPage,
)
from bridge.operations.migration.entity_reading import CopySteps, EntityReading
from tests.unit.operations.test_entity_copy import QUEUE, SESSIONS, Side, World, alike, made

PARTITIONS = 4


@dataclass
class UnorderedSide(Side):
    """A source whose peeks show partitions, or sessions, in an order of their own.

    Attributes:
        ranks: where a partition's messages stand, or those of a session.
        is_fair: one of each partition in turn; else one partition behind the other.
    """

    ranks: tuple[int, ...] = (0, 1, 2, 3)
    is_fair: bool = False

    def page(self, wanted: PeekPage, most: int) -> list[PeekedMessage]:
        """From a number on; within a partition, or a session, numbers rise."""
        groups: dict[int, list[PeekedMessage]] = {}
        for number, each in sorted(self.messages[wanted.place].items()):
            if number >= wanted.from_number and wanted.session_id in (None, each.session_id):
                group = int(each.session_id or partition_of(number))
                groups.setdefault(self.ranks[group % len(self.ranks)], []).append(each)
        found = [
            (at if self.is_fair else 0, rank, at, each)
            for rank, group in groups.items()
            for at, each in enumerate(group)
        ]
        found.sort(key=lambda each: each[:3])
        return [each for *_, each in found][: min(most, wanted.count)]


NUMBERS = st.builds(compose, st.integers(0, PARTITIONS - 1), st.integers(1, 12))
RANKS = st.permutations(range(PARTITIONS)).map(tuple)


def moved(source: UnorderedSide, page: int) -> World:
    """A run from a source to its end."""
    world = World([source], page)
    world.finish()
    if world.is_over:
        assert alike(world.copied(0), world.at_mark[0])
    return world


@given(numbers=st.sets(NUMBERS, min_size=1, max_size=30), ranks=RANKS, page=st.integers(1, 6))
def test_partitions_in_turn_are_copied_whole(
    numbers: set[int], ranks: tuple[int, ...], page: int
) -> None:
    """A page that has some of each is not the end of those with lower numbers."""
    messages = {number: made(number) for number in numbers}
    source = UnorderedSide(QUEUE, [dict(messages), {}], ranks=ranks, is_fair=True)
    world = moved(source, page + PARTITIONS)
    assert world.is_over, world.stopped
    assert set(world.copied(0)[0]) == numbers


@given(
    numbers=st.sets(NUMBERS, max_size=30),
    ranks=RANKS,
    is_fair=st.booleans(),
    page=st.integers(1, 6),
)
def test_partitions_in_any_order_are_copied_whole_or_the_run_stops(
    numbers: set[int], ranks: tuple[int, ...], is_fair: bool, page: int
) -> None:
    """No message is passed over without a word, and none is received then."""
    messages = {number: made(number) for number in numbers}
    source = UnorderedSide(QUEUE, [dict(messages), {}], ranks=ranks, is_fair=is_fair)
    world = moved(source, page)
    if world.is_over:
        assert set(world.copied(0)[0]) == numbers
    else:
        assert "q: peeks show" in world.stopped
        assert not any(world.copied(0))


@given(
    sessions=st.dictionaries(st.integers(1, 40), st.integers(0, 3), max_size=30),
    ranks=RANKS,
    is_fair=st.booleans(),
    page=st.integers(1, 6),
)
def test_sessions_in_any_order_are_copied_whole(
    sessions: dict[int, int], ranks: tuple[int, ...], is_fair: bool, page: int
) -> None:
    """What a peek across sessions passes over, one of its session shows."""
    messages = {number: made(number, session_id=str(at)) for number, at in sessions.items()}
    source = UnorderedSide(SESSIONS, [dict(messages), {}], ranks=ranks, is_fair=is_fair)
    world = moved(source, page)
    assert world.is_over, world.stopped
    assert set(world.copied(0)[0]) == set(sessions)


@pytest.mark.parametrize("page", [1, 2, 3])
def test_a_message_behind_a_page_of_higher_numbers_is_not_lost(page: int) -> None:
    """The last partition is shown first."""
    numbers = [compose(0, 1), compose(0, 2), compose(3, 1), compose(3, 2), compose(3, 3)]
    messages = {number: made(number) for number in numbers}
    source = UnorderedSide(QUEUE, [messages, {}], ranks=(3, 2, 1, 0))
    world = moved(source, page)
    assert "q: peeks show 3 messages, and the source tells 5" in world.stopped


@pytest.mark.parametrize("lacks", [0, 1])
def test_where_deferred_messages_are_counted_with_others_the_whole_is_compared(lacks: int) -> None:
    """The queue and its dead-letter queue together; what no peek shows stops the run."""
    reading = EntityReading(SESSIONS)
    for place, numbers in enumerate(((3, 4), (5,))):
        for number in numbers:
            reading.ledgers[place].note(made(number, session_id="a"))
        reading.ledgers[place].close()
    assert answered(reading.check_count(0), CopyCount(None, 3 + lacks)) == [CountSource(0)]
    if not lacks:
        assert answered(reading.check_count(1), CopyCount(None)) == []
        return
    with pytest.raises(CopyStopped, match="peeks show 3 messages, and the source tells 4"):
        answered(reading.check_count(1), CopyCount(None))


def answered(steps: CopySteps, answer: CopyAnswer) -> list[CopyEffect]:
    """Give one answer to all that is asked; return what was."""
    asked = []
    with suppress(StopIteration):
        asked.append(next(steps))
        while True:
            asked.append(steps.send(answer))
    return asked
