"""The copies of relays at their target: each message of a source gets one number."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bridge.machine.inbox import arrival, relayed
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.came import Came
from bridge.machine.inbox.journal_entries import commit_marker, marker
from bridge.machine.inbox.poisoned_envelope import apply_each
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.relayed import RelayedCopies
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import Memory, blank
from bridge.message.envelopes import Outgoing, RelayedCopy, item_of
from bridge.model.entity import Queue, SendEntity, Subscription, Tier, Topic
from bridge.wire import headers
from bridge.wire.basic import Properties, text, with_fields, without_fields
from bridge.wire.envelope import SILENT_PROPERTIES, Item, Operation, encode
from bridge.wire.native import clean
from bridge.wire.record import Record
from bridge.wire.relay_source import digest_of, read, said_in_front, say
from bridge.wire.sections import MalformedEntry
from bridge.wire.snapshot import Snapshot
from tests.fixtures.examples import examples

SOURCE, OTHER = digest_of("azure/orders"), digest_of("azure/orders/$deadletterqueue")
QUEUE = Queue(name="orders")
DETECTING = replace(QUEUE, requires_duplicate_detection=True)
TOPIC = Topic(name="orders", subscriptions=(Subscription(name="s", topic="orders"),))
TERM = bytes(16)
SECOND_PARTITION = 1 << 48


def copy_of(number: int, lowest: int = 0, at_ms: int | None = None, source: bytes = SOURCE) -> Item:
    """Return a relay's copy as a bridge's door writes it into an envelope."""
    base = number >> 48 << 48
    said = say(source, number, number - base if at_ms is None else at_ms, max(lowest, base))
    record = Record(Properties(message_id="m", headers={"a": text("b")}, delivery_mode=2), b"body")
    return item_of(QUEUE, RelayedCopy(record=record, size_bytes=4, said=said))


def plain() -> Item:
    """Return an ordinary sender's message."""
    record = Record(Properties(headers={"a": text("b")}, delivery_mode=2), b"plain")
    return item_of(QUEUE, Outgoing(record=record, size_bytes=5))


def a_sequencer(memory: Memory | None = None, entity: SendEntity = QUEUE) -> Sequencer:
    """Return a sequencer that has given no number, or begins with this memory."""
    return Sequencer(entity, Tier.STANDARD, memory or blank(is_partitioned=False), uuid4)


class Envelopes:
    """Makes envelopes with identities of their own, and reads them as a leader does."""

    def __init__(self) -> None:
        self.made = 0

    def of(self, *items: Item) -> bytes:
        """Return an envelope."""
        self.made += 1
        return encode(Operation.SEND, self.made.to_bytes(16, "big"), items)


ENVELOPES = Envelopes()


def read_envelope(body: bytes) -> SendCommand:
    """Return the command of an envelope."""
    command = arrival.read(SILENT_PROPERTIES, body)
    assert isinstance(command, SendCommand)
    return command


def send(sequencer: Sequencer, *items: Item) -> list[Publication]:
    """Have an envelope numbered."""
    return list(sequencer.apply(read_envelope(ENVELOPES.of(*items)), 0).publications)


def is_dead(publication: Publication) -> bool:
    """Whether a publication is a dead letter."""
    return headers.DEAD_LETTER_REASON in (Properties.decode(publication.properties).headers or {})


def learnt(
    entries: list[Publication], entity: SendEntity = QUEUE, *, keeps_known: bool = False
) -> Memory:
    """Return what a successor knows by these entries."""
    replay = Replay(is_partitioned=False, readers={TERM}, fingerprint="boot")
    for each in [*entries, marker(entity, TERM, "boot")]:
        replay.feed(Properties.decode(each.properties), each.body)
    assert replay.unreadable == []
    memory = replay.result()
    if not keeps_known:
        memory.known = {}  # as when all that was unacked has come again
    return memory


def test_a_copy_that_comes_again_gets_no_second_number() -> None:
    """Of each source by itself, and whatever else is in its batch."""
    sequencer = a_sequencer()
    assert len(send(sequencer, copy_of(1), plain(), copy_of(2))) == 3
    assert len(send(sequencer, copy_of(2), copy_of(3), plain())) == 2
    assert len(send(sequencer, copy_of(1, source=OTHER), copy_of(1 + SECOND_PARTITION))) == 2
    assert sequencer.memory.counters == [7]


def test_what_lies_below_the_lowest_is_forgotten() -> None:
    """It was copied by another process, or is wanted by nobody; nothing of it is kept."""
    sequencer = a_sequencer()
    send(sequencer, *[copy_of(number) for number in range(1, 6)])
    send(sequencer, copy_of(9, lowest=6))
    assert len(sequencer.memory.relayed) == 1
    assert len(send(sequencer, copy_of(6), copy_of(8))) == 2


@pytest.mark.parametrize("entity", [QUEUE, DETECTING, TOPIC], ids=["queue", "detecting", "topic"])
def test_a_copy_below_the_lowest_that_is_not_known_becomes_a_dead_letter(
    entity: SendEntity,
) -> None:
    """Its relay told a number that was too high: what is dropped would be lost; once, and counted.

    It is known as one that came, whatever is told later.
    """
    sequencer = a_sequencer(entity=entity)
    send(sequencer, copy_of(9, lowest=6))
    (dead,) = send(sequencer, copy_of(3))
    table = Properties.decode(dead.properties).headers or {}
    assert table[headers.DEAD_LETTER_REASON] == text("RelayedTooLate")
    assert send(sequencer, copy_of(3)) == []
    send(sequencer, copy_of(20, lowest=20))
    assert send(sequencer, copy_of(3), copy_of(20)) == []
    assert (sequencer.copies_too_late, sequencer.copies_again) == (1, 3)
    assert len(send(sequencer, copy_of(21))) == 1


def test_two_sources_of_one_name_lose_nothing_to_each_other() -> None:
    """What one's relay tells of its own numbers makes dead letters of the other's, and is said."""
    sequencer = a_sequencer()
    send(sequencer, *[copy_of(number, lowest=number, at_ms=5_000 + number) for number in (50, 60)])
    made = send(sequencer, *[copy_of(number, at_ms=4_000 + number) for number in range(1, 6)])
    assert len(made) == 5
    assert {is_dead(each) for each in made} == {True}


@pytest.mark.parametrize("entity", [QUEUE, TOPIC], ids=["queue", "topic"])
@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_successor_publishes_a_dead_letter_again_that_may_be_lost(
    entity: SendEntity, *, with_snapshot: bool
) -> None:
    """With the number that it has: its queue may lack what the journal has. Nothing is lost."""
    sequencer = a_sequencer(entity=entity)
    entries = send(sequencer, copy_of(9, lowest=6))
    late = ENVELOPES.of(copy_of(3))
    dead = list(sequencer.apply(read_envelope(late), 0).publications)
    entries += dead
    if with_snapshot:
        entries += sequencer.snapshot(TERM, "boot", 0)
    successor = a_sequencer(learnt(entries, entity, keeps_known=True), entity)
    again = list(successor.apply(read_envelope(late), 0).publications)
    assert again == dead
    assert send(successor, copy_of(3)) == []  # of another envelope: its relay has sent it again


def test_a_source_that_was_made_anew_loses_nothing() -> None:
    """It counts from 1 again: its messages are newer than what was told before."""
    sequencer = a_sequencer()
    send(sequencer, copy_of(5_000, lowest=5_000, at_ms=10_000))
    anew = [copy_of(number, lowest=1, at_ms=20_000 + number) for number in (3, 1, 2)]
    assert len(send(sequencer, *anew)) == 3
    assert send(sequencer, *anew) == []
    assert all(map(is_dead, send(sequencer, copy_of(4_999, at_ms=9_999))))
    assert send(sequencer, copy_of(5_000, at_ms=10_000)) == []


def test_the_copy_comes_before_its_message_id() -> None:
    """A relay's copy of a message is no duplicate of itself; one of another message is."""
    sequencer = a_sequencer(entity=DETECTING)
    record = Record(Properties(message_id="m", headers={}, delivery_mode=2), b"")
    items = [
        item_of(DETECTING, RelayedCopy(record=record, size_bytes=0, said=say(SOURCE, number, 1, 0)))
        for number in (1, 1, 2)
    ]
    assert [len(send(sequencer, each)) for each in items] == [1, 0, 0]
    assert sequencer.duplicates == 1


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_successor_knows_what_was_relayed(*, with_snapshot: bool) -> None:
    """By the entries behind the last snapshot, and by the snapshot."""
    sequencer = a_sequencer()
    entries = send(sequencer, copy_of(1), copy_of(2), copy_of(4, lowest=2))
    if with_snapshot:
        entries = [*sequencer.snapshot(TERM, "boot", 0), *send(sequencer, copy_of(5))]
    successor = a_sequencer(learnt(entries))
    left = send(successor, *[copy_of(number) for number in (2, 3, 4, 5)])
    assert len(left) == (1 if with_snapshot else 2)


def test_a_scheduled_copy_is_known_too() -> None:
    """Its entry says that it waits."""
    sequencer = a_sequencer()
    item = copy_of(1)
    item.scheduled_ms = 10_000
    send_again = read_envelope(ENVELOPES.of(replace(item)))
    outcome = sequencer.apply(read_envelope(ENVELOPES.of(item)), 0)
    entries = list(outcome.publications)
    assert len(entries) == 1
    for each in (sequencer, a_sequencer(learnt(entries))):
        assert each.apply(send_again, 0).publications == []


def test_of_a_command_that_failed_nothing_is_remembered() -> None:
    """What came before stays known. Message by message, each is known, the dead letter too."""
    sequencer = a_sequencer()
    send(sequencer, copy_of(1))
    command = read_envelope(ENVELOPES.of(copy_of(1), copy_of(2), copy_of(3)))
    command.items[2].properties = b""  # nothing can be put in front of its headers
    with pytest.raises((IndexError, ValueError)):
        sequencer.apply(command, 0)
    assert len(sequencer.memory.relayed) == 1
    outcome = apply_each(sequencer, command, 0)
    assert len(outcome.publications) == 2  # the second, and a dead letter
    assert send(sequencer, copy_of(1), copy_of(2), copy_of(3)) == []


def test_nobody_but_a_bridge_says_that_a_message_is_a_copy() -> None:
    """A native publisher's header is taken off; so is one that is not right."""
    said = say(SOURCE, 1, 1, 1)
    native = Properties(headers={headers.RELAYED: ("x", said)}, delivery_mode=2).encode()
    command = arrival.read(native, b"x")
    assert isinstance(command, SendCommand)
    assert command.items[0].source is None
    wrong = said[:-8] + (2).to_bytes(8, "big")  # the lowest is above its number
    for raw in (wrong, said[:-1], said + b"x"):
        properties = Properties(headers={headers.RELAYED: ("x", raw)}, delivery_mode=2).encode()
        (item,) = read_envelope(ENVELOPES.of(Item(properties, b""))).items
        assert item.source is None
        assert headers.RELAYED not in (Properties.decode(item.properties).headers or {})


def test_an_older_bridge_numbers_a_copy_as_any_message() -> None:
    """It takes the header for a native publisher's: nothing is lost, nothing becomes a dead letter.

    That is what it does to an item that is not canonical.
    """
    item = copy_of(7)
    native = clean(Properties.decode(item.properties))
    assert said_in_front(item.properties) == (say(SOURCE, 7, 7, 0), native.properties)


def test_a_snapshot_without_relayed_messages_is_read() -> None:
    """As a bridge wrote it that knew no relays; one without a relay is the same to an older one."""
    whole = Snapshot(term=TERM, fingerprint="boot", enqueued_ms=0, span=0, average_bytes=0)
    with_table = replace(whole, relayed=b"x")
    assert len(b"".join(whole.encode(1))) + 7 == len(b"".join(with_table.encode(1)))
    sequencer = a_sequencer()
    entries = [*send(sequencer, plain()), *sequencer.snapshot(TERM, "boot", 0)]
    assert len(learnt(entries).relayed) == 0


@given(st.booleans(), st.booleans(), st.binary(max_size=60))
def test_what_is_put_in_front_of_headers_is_taken_off(typed: bool, coded: bool, raw: bytes) -> None:
    """Whatever stands before the headers; anything else is no such field, and no error."""
    properties = Properties(
        content_type="t" if typed else None,
        content_encoding="c" if coded else None,
        headers={"a": text("b")},
        delivery_mode=2,
    ).encode()
    assert without_fields(with_fields(properties, b"\x01xlfield"), b"\x01x", 8) == (
        b"\x01xlfield",
        properties,
    )
    assert without_fields(properties, b"\x01x", 8) is None
    assert said_in_front(raw) is None


@dataclass
class Model:
    """What a table should know: all that was copied, and the floors that were told."""

    copied: set[tuple[int, int]] = field(default_factory=set)
    late: set[tuple[int, int]] = field(default_factory=set)
    floors: list[tuple[int, int]] = field(default_factory=list)

    def is_over(self, number: int, at_ms: int) -> bool:
        """Whether a floor says that a message cannot come any more."""
        return any(number < low and at_ms <= told_ms for low, told_ms in self.floors)

    def came(self, number: int, at_ms: int, lowest: int) -> set[Came]:
        """Do what a table does; what is over may be known yet or forgotten."""
        copy = number, at_ms
        if copy in self.late:
            return {Came.AGAIN}
        if self.is_over(*copy):
            return {Came.AGAIN, Came.TOO_LATE} if copy in self.copied else {Came.TOO_LATE}
        self.floors.append((lowest, at_ms))
        if copy in self.copied:
            return {Came.AGAIN}
        self.copied.add(copy)
        return {Came.FIRST}


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6), st.integers(0, 60)), max_size=120),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_a_table_knows_what_was_copied_or_is_over(
    told: list[tuple[int, int, int]], block: int, chance: random.Random
) -> None:
    """In any order, with floors that rise and fall; and the same when it was encoded in between."""
    before, relayed.BLOCK = relayed.BLOCK, block
    try:
        table, model = RelayedCopies(), Model()
        for number, at_ms, less in told:
            lowest = max(0, number - less)
            expected = model.came(number, at_ms, lowest)
            came = table.came(say(SOURCE, number, at_ms, lowest))
            assert came in expected
            if came is Came.TOO_LATE:
                model.late.add((number, at_ms))
            if chance.random() < 0.2:
                table = RelayedCopies.decode(table.encode())
        kept = {each for each in model.copied if not model.is_over(*each)} | model.late
        assert len(table) >= len(kept)
        if encoded := table.encode():
            with pytest.raises(MalformedEntry):
                RelayedCopies.decode(encoded[:-1])
            half = encoded[: len(encoded) // 2]
            try:
                first = RelayedCopies.decode(half)
            except MalformedEntry:
                pass
            else:  # it ends between two sources
                assert first.encode() == half
    finally:
        relayed.BLOCK = before


@given(st.lists(st.integers(0, 400), max_size=60), st.lists(st.integers(0, 400), max_size=60))
def test_a_command_is_taken_back_wholly(kept: list[int], failed: list[int]) -> None:
    """And nothing that an earlier one has noted."""
    table = RelayedCopies()
    for number in kept:
        table.came(say(SOURCE, number, 1, 0))
    noted, before = table.noted, len(table)
    for number in failed:
        table.came(say(SOURCE, number, 1, 0))
    table.take_back(noted)
    assert (table.noted, len(table)) == (noted, before) == (noted, len(set(kept)))
    for number in set(kept):
        assert table.came(say(SOURCE, number, 1, 0)) is Came.AGAIN
    for number in set(failed) - set(kept):
        assert table.came(say(SOURCE, number, 1, 0)) is Came.FIRST


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By copies, the lowest numbers of the largest source going first, by sources and by floors."""
    monkeypatch.setattr(relayed, "TOTAL", 5_000)
    table = RelayedCopies()
    for number in range(10_000):
        assert table.came(say(SOURCE, number, 1, 0)) is Came.FIRST
    assert 5_000 - relayed.BLOCK < len(table) <= 5_000
    assert table.came(say(SOURCE, 9_999, 1, 0)) is Came.AGAIN
    assert table.came(say(SOURCE, 1, 1, 0)) is Came.TOO_LATE  # which is never silently doubled
    for number in range(relayed.SOURCES_MAX + 10):
        table.came(say(number.to_bytes(16, "big"), 1, 1, 1))
    assert len(table) <= relayed.SOURCES_MAX
    table = RelayedCopies()
    for number in range(100):
        table.came(say(SOURCE, 100 - number, number, 100 - number))
    assert len(table.encode()) < 500


class RelaysUnderKills(RuleBasedStateMachine):
    """Several relays copy a source through a sequencer that is killed, and sometimes twice.

    Each relay takes messages of the source, sends them in batches of any cut, and completes what is
    confirmed; what it has sent may come late, or not at all; it is killed, and what it had not
    completed is another's. It tells the lowest number that it saw some time ago. The leader is
    killed between its journal and the ack of the inbox, writes snapshots and hands over. In the end
    every message was numbered, and none twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waiting: set[int] = set()
        self.sent = 0
        self.held: list[set[int]] = [set(), set(), set()]
        self.lowest = [0, 0, 0]
        self.inbox: list[bytes] = []
        self.next = 0
        self.entries: list[Publication] = []
        self.numbered: Counter[int] = Counter()
        self.terms = 0
        self.sequencer = a_sequencer()

    @initialize(first=st.integers(0, 3))
    def choose(self, first: int) -> None:
        """The source counts from somewhere."""
        self.sent = first << 48

    @rule(count=st.integers(1, 6))
    def arrive_at_the_source(self, count: int) -> None:
        """New messages."""
        for _ in range(count):
            self.sent += 1
            self.waiting.add(self.sent)

    @property
    def _free(self) -> list[int]:
        return sorted(self.waiting - set().union(*self.held))

    @rule(relay=st.integers(0, 2), chance=st.randoms(use_true_random=False))
    def copy(self, relay: int, chance: random.Random) -> None:
        """A relay locks some messages, and sends them in a batch, or again what it holds."""
        free = self._free
        chance.shuffle(free)
        self.held[relay].update(free[: chance.randint(0, 4)])
        batch = chance.sample(sorted(self.held[relay]), chance.randint(0, len(self.held[relay])))
        if batch:
            items = [copy_of(each, min(self.lowest[relay], each)) for each in batch]
            self.inbox.append(ENVELOPES.of(*items))

    @rule(relay=st.integers(0, 2))
    def peek(self, relay: int) -> None:
        """A relay learns the lowest number that may come again; no batch under way has a lower."""
        under_way = [
            read(item.source)[1]
            for body in self.inbox[self.next :]
            for item in read_envelope(body).items
            if item.source is not None
        ]
        self.lowest[relay] = min([*self.waiting, *under_way, self.sent + 1])

    @rule(relay=st.integers(0, 2))
    def complete(self, relay: int) -> None:
        """A relay completes what is confirmed: what the inbox has."""
        stored = {
            read(item.source)[1]
            for body in self.inbox
            for item in read_envelope(body).items
            if item.source is not None
        }
        done = self.held[relay] & stored
        self.held[relay] -= done
        self.waiting -= done

    @rule(relay=st.integers(0, 2))
    def kill_a_relay(self, relay: int) -> None:
        """What it held is free again, whatever it has sent."""
        self.held[relay].clear()

    @precondition(lambda self: self.next < len(self.inbox))
    @rule(cut=st.sampled_from(["no", "before the journal", "before the ack"]))
    def number(self, cut: str) -> None:
        """The leader carries out an arrival, and may be killed."""
        command = read_envelope(self.inbox[self.next])
        said = {item.source: item for item in command.items}
        made = list(self.sequencer.apply(command, 0).publications)
        if cut == "before the journal":
            self._take_over()
            return
        known = {number for number, _ in self._numbers_of(self.entries)}
        for each in made:
            for number, relays_number in self._numbers_of([each]):
                if number not in known:
                    self._note(each, relays_number)
        assert len(said) == len(command.items)
        self.entries += made
        if cut == "no":
            self.next += 1
        else:
            self._take_over()

    def _note(self, publication: Publication, relays_number: int) -> None:
        assert not is_dead(publication)
        self.numbered[relays_number] += 1

    def _numbers_of(self, entries: list[Publication]) -> list[tuple[int, int]]:
        found = []
        for each in entries:
            table = Properties.decode(each.properties).headers or {}
            if headers.RELAYED in table:
                number, said = table[headers.SEQUENCE_NUMBER][1], table[headers.RELAYED][1]
                assert isinstance(number, int)
                assert isinstance(said, bytes)
                found.append((number, read(said)[1]))
        return found

    def _take_over(self) -> None:
        self.terms += 1
        replay = Replay(is_partitioned=False, readers={TERM}, fingerprint="boot")
        for each in [*self.entries, marker(QUEUE, TERM, "boot")]:
            replay.feed(Properties.decode(each.properties), each.body)
        assert replay.unreadable == []
        self.sequencer = a_sequencer(replay.result())

    @rule(forgets=st.booleans())
    def hand_over(self, forgets: bool) -> None:
        """The term ends in order; the next one begins with a snapshot, as every term does."""
        self.entries.append(commit_marker(QUEUE, TERM, "boot"))
        self._take_over()
        if forgets:
            self.sequencer.forget_inherited()
        self.entries += self.sequencer.snapshot(TERM, "boot", 0)

    @rule()
    def write_a_snapshot(self) -> None:
        """In the middle of a term."""
        self.entries += self.sequencer.snapshot(TERM, "boot", len(self.entries))

    def teardown(self) -> None:
        """All is copied in the end: every message has one number."""
        self._copy_all()
        first = self.sent >> 48 << 48
        assert self.numbered == Counter(range(first + 1, self.sent + 1))

    def _copy_all(self) -> None:
        for relay in range(3):
            self.held[relay].clear()
        self.held[0].update(self.waiting)
        for each in sorted(self.waiting):
            self.inbox.append(ENVELOPES.of(copy_of(each)))
        while self.next < len(self.inbox):
            self.number("no")


class WrongRelaysUnderKills(RelaysUnderKills):
    """The same, and relays tell any lowest number, as one whose look at the source is wrong.

    In the end every message has a number, or is a dead letter of which its relay was wrong: none
    has two numbers, none two dead letters, and none has neither.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dead: Counter[int] = Counter()

    @rule(relay=st.integers(0, 2), by=st.integers(-3, 3))
    def guess(self, relay: int, by: int) -> None:
        """A relay takes for the lowest number what is none."""
        free = min(self.waiting, default=self.sent)
        self.lowest[relay] = max(self.sent >> 48 << 48, free + by)

    def _note(self, publication: Publication, relays_number: int) -> None:
        (self.dead if is_dead(publication) else self.numbered)[relays_number] += 1

    def teardown(self) -> None:
        """All is copied in the end."""
        self._copy_all()
        first = self.sent >> 48 << 48
        ended = {*self.numbered, *self.dead}
        assert ended == set(range(first + 1, self.sent + 1))
        assert max([*self.numbered.values(), *self.dead.values()], default=1) == 1


TestRelaysUnderKills = RelaysUnderKills.TestCase
TestRelaysUnderKills.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestWrongRelaysUnderKills = WrongRelaysUnderKills.TestCase
TestWrongRelaysUnderKills.settings = TestRelaysUnderKills.settings
