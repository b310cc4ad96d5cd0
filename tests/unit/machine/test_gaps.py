"""Numbers that are passed over: nobody walks them, and everybody knows them by their entries."""

from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.browse.anchors import SPACING, Anchors
from bridge.machine.browse.entity_messages import LeftNumbers
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import Memory, blank
from bridge.machine.inbox.wheel import place
from bridge.machine.queue.settled import PAGE_BYTES, SettledMemory
from bridge.machine.ranges import Ranges
from bridge.model.entity import Queue, SendEntity, Subscription, Tier, Topic
from bridge.model.name import short_id
from bridge.model.number import compose, partition_for_key, partition_of
from bridge.wire import gaps, headers, stamp
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item
from bridge.wire.gaps import OWN, Gap
from bridge.wire.settled import Settled

QUEUE = Queue(name="orders")
PARTITIONED = Queue(name="orders", enable_partitioning=True)
TOPIC = Topic(
    name="orders", subscriptions=(Subscription(topic="orders", name="one", incarnation="one"),)
)
SHORT = short_id("one")
BARE = Properties(delivery_mode=2).encode()
TERM = bytes(16)
DAY_MS = 86_400_000

widths = st.integers(1, 20) | st.integers(1, 2**40)
"""How many numbers a gap has."""


class Story:
    """What a sequencer has published, by its own account and by its entries."""

    def __init__(self, entity: SendEntity) -> None:
        self.memory = blank(is_partitioned=entity.enable_partitioning)
        self.sequencer = Sequencer(entity, Tier.STANDARD, self.memory, uuid4)
        self.entries: list[Publication] = []
        self.sent = 0

    def send(self, due_ms: int | None = None, key: bytes | None = None) -> None:
        """Number one message."""
        self.sent += 1
        if due_ms is not None:
            self.memory.wheel.add(place(due_ms, 0))
        item = Item(BARE, b"", None, due_ms, key=key)
        command = SendCommand(self.sent.to_bytes(16, "big"), (item,))
        self.entries += self.sequencer.apply(command, 0).publications

    def skip(self, *found: Gap) -> None:
        """Pass over numbers."""
        self.entries.append(self.sequencer.skip(found))

    def read_again(self, entries: list[Publication]) -> Memory:
        """Return what a successor reads."""
        is_partitioned = self.sequencer.entity.enable_partitioning
        replay = Replay(is_partitioned=is_partitioned, readers={TERM}, fingerprint="boot")
        for each in [*entries, marker(self.sequencer.entity, TERM, "boot")]:
            replay.feed(Properties.decode(each.properties), each.body)
        assert not replay.unreadable
        return replay.result()


def numbers_of(entries: list[Publication]) -> list[int]:
    """Return the numbers in a journal, in its order."""
    found = []
    for each in entries:
        table = Properties.decode(each.properties).headers or {}
        if headers.WAITING in table:
            found.append(stamp.unwait(each.properties).number)
        elif headers.ENTRY not in table:
            number = table[headers.SEQUENCE_NUMBER][1]
            assert isinstance(number, int)
            found.append(number)
    return found


def gaps_of(entries: list[Publication], short: bytes = OWN) -> list[Gap]:
    """Return the gaps in a journal."""
    return [
        gap
        for each in entries
        for gap in gaps.gaps_in(Properties.decode(each.properties).headers or {}, each.body, short)
    ]


steps = st.lists(st.sampled_from(["now", "later"]) | widths, max_size=12)


@given(steps, st.integers(0, 12))
def test_numbers_rise_and_every_gap_has_an_entry(happened: list[str | int], cut: int) -> None:
    """A successor goes on behind gaps as behind messages, wherever a snapshot stands."""
    story = Story(QUEUE)
    for at, what in enumerate(happened):
        if at == cut:
            story.entries += story.sequencer.snapshot(TERM, "boot", 0)
        if isinstance(what, int):
            last = story.memory.counters[0]
            story.skip(Gap(last + 1, last + what))
        else:
            story.send(DAY_MS if what == "later" else None)

    numbers, passed = numbers_of(story.entries), gaps_of(story.entries)
    assert numbers == sorted(set(numbers))
    series = sorted([*[(each, each) for each in numbers], *[gap[:2] for gap in passed]])
    assert [first for first, _ in series] == [1, *[last + 1 for _, last in series]][: len(series)]
    read = story.read_again(story.entries + story.entries[len(story.entries) // 2 :])
    assert read.counters == story.memory.counters
    assert read.skipped.get(OWN, 0) == sum(gap.width for gap in passed)
    assert dict(read.pending) == dict(story.memory.pending)


@given(st.sampled_from([b"a", b"b", b"c"]), widths)
def test_a_partition_passes_over_numbers_of_its_own(key: bytes, width: int) -> None:
    """The others go on as before."""
    story = Story(PARTITIONED)
    partition = partition_for_key(key)
    story.send(key=key)
    story.skip(Gap(compose(partition, 2), compose(partition, 1 + width)))
    story.send(key=key)
    assert numbers_of(story.entries) == [compose(partition, 1), compose(partition, width + 2)]
    counters = story.read_again(story.entries).counters
    assert counters == story.memory.counters
    assert [each for each in counters if each not in (compose(partition_of(each), 0),)] == [
        compose(partition, width + 2)
    ]


@given(widths, widths)
def test_a_subscription_passes_over_numbers_that_its_topic_gives(own: int, topics: int) -> None:
    """Both series are told by one entry; the counts that remain are those of messages."""
    story = Story(TOPIC)
    story.send()
    story.skip(Gap(2, 1 + topics), Gap(2, 1 + own, SHORT))
    story.send()
    read = story.read_again(story.entries)
    assert (read.counters, read.subscriptions) == ([topics + 2], {SHORT: own + 2})
    assert (gaps_of(story.entries, SHORT), read.given()) == ([(2, 1 + own, SHORT)], {SHORT: 2})


@pytest.mark.parametrize(
    ("entity", "gap"),
    [
        (QUEUE, Gap(3, 5)),
        (QUEUE, Gap(1, 5)),
        (QUEUE, Gap(2, 1)),
        (QUEUE, Gap(2**62, 2**62)),
        (TOPIC, Gap(3, 3, SHORT)),
        (PARTITIONED, Gap(compose(3, 1), compose(4, 1))),
        (PARTITIONED, Gap(compose(40, 1), compose(40, 1))),
    ],
)
def test_a_gap_begins_behind_the_last_number(entity: SendEntity, gap: Gap) -> None:
    """Any other would leave a number without an entry, or give one twice: nothing changes."""
    story = Story(entity)
    story.send()
    before = story.memory.counters[:], dict(story.memory.subscriptions), dict(story.memory.skipped)
    with pytest.raises(ValueError, match="a gap from"):
        story.skip(gap)
    after = story.memory.counters, story.memory.subscriptions, story.memory.skipped
    assert before == after


@given(st.lists(widths, min_size=1, max_size=4))
def test_what_is_taken_back_is_not_walked(passed: list[int]) -> None:
    """A rollback over gaps leaves what was there before, however wide they are."""
    story = Story(QUEUE)
    story.send(DAY_MS)
    before = story.sequencer.checkpoint()
    for width in passed:
        last = story.memory.counters[0]
        story.skip(Gap(last + 1, last + width))
        story.send(DAY_MS)
    story.sequencer.take_back(None, before)
    assert (story.memory.counters, story.memory.skipped) == ([1], {})
    assert [number for number, _ in story.memory.pending] == [1]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6))), st.integers(0, 70), widths)
def test_a_way_back_counts_only_numbers_that_are_not_in_the_set(
    added: list[tuple[int, int]], last: int, count: int
) -> None:
    """From there on there are so many, and from the next one on there is one less."""
    ranges = Ranges()
    for first, size in added:
        ranges.add(first, first + size)
    found = ranges.back(last, count)
    assert last - found + 1 - ranges.count(found, last) == count
    assert found not in ranges


@given(st.lists(st.tuples(st.integers(1, 3), widths), min_size=1, max_size=30))
def test_a_view_counts_messages_and_no_gaps(series: list[tuple[int, int]]) -> None:
    """Whatever has been settled: what is unsettled are messages, and a peek leaps over gaps."""
    numbers, there, last = LeftNumbers(), list[int](), 0
    for count, width in series:
        there += range(last + 1, last + 1 + count)
        last += count + width
        numbers.pass_over(Gap(last - width + 1, last))
    numbers.take(Settled(active=[(there[0], there[0])]))
    left = there[1:]
    assert numbers.unsettled(1, last) == len(left)
    assert numbers.given(1, last) == len(there)
    found, at = list[int](), numbers.next_active(1)
    while at <= last:
        found.append(at)
        at = numbers.next_active(at + 1)
    assert found == left
    if left:
        assert numbers.active.back(last, len(left)) == left[0]


@given(st.lists(st.tuples(st.integers(1, 400), widths), min_size=1, max_size=20), st.randoms())
def test_offsets_are_estimated_on_both_sides_of_a_gap(
    series: list[tuple[int, int]], chance: object
) -> None:
    """One offset a message and one a gap: an estimate is no further off than two places are."""
    anchors, where, number, offset = Anchors(), dict[int, int](), 0, 0
    for count, width in series:
        for _ in range(count):
            number, offset = number + 1, offset + 1
            where[number] = offset
            anchors.see(number, offset)
        offset += 1
        anchors.see_gap(number + 1, number + width, offset)
        anchors.see_gap(number + 1, number + width, offset)
        number += width
    for each, at in where.items():
        estimate = anchors.estimate(each)
        assert estimate is not None
        assert abs(estimate - at) <= 2 * SPACING


@given(st.lists(widths, min_size=1, max_size=50))
def test_settled_numbers_take_memory_for_messages_alone(passed: list[int]) -> None:
    """A page for each message at most, however far they stand apart."""
    memory, number = SettledMemory(), 0
    settled = memory.numbers()
    for width in passed:
        number += width
        settled.add(number, bytes([1] * 16))
    assert memory.used_bytes <= len(passed) * PAGE_BYTES
    assert len(list(settled.numbers())) == len(passed)
