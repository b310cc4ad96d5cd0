"""Imports under kills: a term ends anywhere, arrivals come again, and runs send them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox.applied import Applied
from bridge.machine.inbox.arrival import ImportCommand, ReplyTo, SendCommand, read
from bridge.machine.inbox.imported_messages import KEPT, ImportedMessages
from bridge.machine.inbox.journal_entries import commit_marker, marker
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import Memory
from bridge.machine.inbox.wheel import place
from bridge.model.entity import Queue, SendEntity, Subscription, Tier, Topic
from bridge.model.name import short_id
from bridge.model.number import compose
from bridge.topology import names
from bridge.topology.parts import DEFERRED_MAX
from bridge.wire import envelope, headers, reply, series_numbers, stamp
from bridge.wire.basic import Properties, Table
from bridge.wire.envelope import Item, Operation
from bridge.wire.gaps import OWN
from bridge.wire.imported import (
    ACTIVE,
    DEFERRED,
    SCHEDULED,
    Imported,
    identity_of,
    run_digest,
)
from bridge.wire.sections import MalformedEntry
from tests.unit.machine.test_gaps import gaps_of, numbers_of

RUN = "run-1"
QUEUE = Queue(name="orders", held=RUN)
PARTITIONED = Queue(name="orders", enable_partitioning=True, held=RUN)
DETECTING = Queue(name="orders", requires_duplicate_detection=True, held=RUN)
SUBSCRIPTIONS = tuple(
    Subscription(topic="orders", name=name, incarnation=name, held=RUN) for name in ("one", "two")
)
TOPIC = Topic(name="orders", subscriptions=SUBSCRIPTIONS, held=RUN)
ONE, TWO = short_id("one"), short_id("two")
BARE = Properties(delivery_mode=2).encode()
TO = ReplyTo("asker", "1")
DAY_MS = 86_400_000
NOW_MS = 10 * DAY_MS
BOOT = "boot"

widths = st.integers(1, 3) | st.integers(1, 2**40)
"""How far a number is above the last one."""

kinds = st.sampled_from(
    [(ACTIVE, False), (ACTIVE, True), (DEFERRED, False), (DEFERRED, True), (SCHEDULED, False)]
)


class Source(NamedTuple):
    """A message at the namespace that it comes from."""

    number: int
    state: int
    is_dead: bool
    short: bytes = OWN
    topics_number: int = 0

    def item(self, text: str = "", **fields: object) -> Item:
        """Return it as an item of an envelope."""
        body = f"{self.number} {text}".encode()
        imported = Imported(
            self.number,
            NOW_MS - DAY_MS + self.number % 1_000,
            self.state,
            self.is_dead,
            3,
            self.short,
            self.topics_number,
            identity_of(RUN, self.short.hex(), body),
        )
        due_ms = NOW_MS + DAY_MS + self.number % 1_000 if self.state == SCHEDULED else None
        item = Item(BARE, body, scheduled_ms=due_ms, imported=imported)
        return replace(item, **fields) if fields else item


@st.composite
def sources(draw: st.DrawFn) -> list[Source]:
    """Messages of a queue, in the order of their numbers."""
    found, number = [], 0
    for width, (state, is_dead) in draw(st.lists(st.tuples(widths, kinds), max_size=12)):
        number += width
        found.append(Source(number, state, is_dead))
    return found


@st.composite
def copies_of_topic(draw: st.DrawFn) -> list[Source]:
    """Messages of a topic and its subscriptions, in the order of the topic's numbers."""
    found, number, lasts = [], 0, Counter[bytes]()
    for width, shorts, (state, is_dead) in draw(
        st.lists(st.tuples(widths, st.sets(st.sampled_from([ONE, TWO])), kinds), max_size=8)
    ):
        number += width
        if state == SCHEDULED:
            found.append(Source(number, state, False))
            continue
        for short in sorted(shorts):
            lasts[short] += draw(widths)
            found.append(Source(lasts[short], state, is_dead, short, number))
    return found


@dataclass
class Rabbit:
    """What RabbitMQ keeps of one entity, and the terms that work on it."""

    entity: SendEntity = QUEUE
    journal: list[Publication] = field(default_factory=list)
    queues: dict[str, list[bytes]] = field(default_factory=dict)
    terms: int = 0
    sequencer: Sequencer | None = None

    def begin(self, *, has_snapshot: bool = False) -> Sequencer:
        """Begin a term by what the journal says."""
        self.terms += 1
        term = self.terms.to_bytes(16, "big")
        self.journal.append(marker(self.entity, term, BOOT))
        self.sequencer = Sequencer(self.entity, Tier.STANDARD, self.read(term), uuid4)
        for days in range(3):
            for offset in range(2):
                where = place(NOW_MS + days * DAY_MS + offset * 1_000, NOW_MS)
                self.sequencer.memory.wheel.add(where)
        if has_snapshot:
            self.journal += self.sequencer.snapshot(term, BOOT, 0)
        return self.sequencer

    def commit(self) -> None:
        """End the term in order."""
        self.journal.append(commit_marker(self.entity, self.terms.to_bytes(16, "big"), BOOT))

    def read(self, reader: bytes = bytes(16)) -> Memory:
        """Return what a successor reads."""
        is_partitioned = self.entity.enable_partitioning
        replay = Replay(is_partitioned=is_partitioned, readers={reader}, fingerprint=BOOT)
        for each in self.journal:
            replay.feed(Properties.decode(each.properties), each.body)
        assert not replay.unreadable
        return replay.result()

    def take(self, applied: Applied, in_journal: int, in_queue: int) -> None:
        """Take the first publications: the journal and the queues, each up to its own place."""
        self.journal += applied.publications[:in_journal]
        for each in applied.publications[:in_queue]:
            name = each.exchange or each.routing_key
            self.queues.setdefault(name, []).append(each.properties)


def command_of(items: Sequence[Item], run: str = RUN) -> ImportCommand:
    """Return a transfer as a leader reads it."""
    body = envelope.encode(Operation.IMPORT, run_digest(run), items)
    properties = Properties(
        headers=envelope.HEADERS, delivery_mode=2, reply_to=TO.queue, correlation_id="1"
    ).encode()
    command = read(properties, body)
    assert isinstance(command, ImportCommand)
    return command


def answer_of(applied: Applied) -> reply.Reply:
    """Return what the run is told."""
    assert applied.answer is not None
    assert applied.answer.to == TO
    return reply.decode_reply(applied.answer.body)


def identity_in(properties: bytes) -> bytes:
    """Return the identity of a stored message."""
    table = Properties.decode(properties).headers or {}
    if headers.WAITING in table:
        return stamp.unwait(properties).identity
    identity = table[headers.IDENTITY][1]
    assert isinstance(identity, bytes)
    return identity


def queue_of(entity: SendEntity, source: Source) -> str:
    """Return where a message must stand."""
    path = entity.path
    if source.short != OWN:
        path = f"orders/Subscriptions/{'one' if source.short == ONE else 'two'}"
    if source.state == DEFERRED:
        return names.deferred_queue(path)
    if source.is_dead:
        return names.dead_letter_queue(path)
    if source.state == SCHEDULED:
        return "bucket"
    return names.active_exchange(entity.path)


def placed(rabbit: Rabbit) -> dict[str, set[bytes]]:
    """Return the identities in each queue, all buckets as one."""
    found: dict[str, set[bytes]] = {}
    for name, stored in rabbit.queues.items():
        key = "bucket" if name.startswith(names.bucket_prefix("orders")) else name
        messages = [each for each in stored if headers.ENTRY not in _table(each)]
        if messages:
            found.setdefault(key, set()).update(map(identity_in, messages))
    return found


def _table(properties: bytes) -> Table:
    return Properties.decode(properties).headers or {}


Kills = list[tuple[int, int, bool]]

cuts = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), max_size=3)
"""For each kill: how much the journal has, how much the queues have, and whether the next term
writes a snapshot at once."""


def play(rabbit: Rabbit, transfers: list[list[Source]], killed: list[Kills]) -> None:
    """Import the transfers, each with kills, and each sent once more."""
    sequencer = rabbit.begin()
    for at, transfer in enumerate(transfers):
        items = [each.item() for each in transfer]
        for in_journal, in_queue, has_snapshot in killed[at] if at < len(killed) else ():
            applied = sequencer.apply(command_of(items), NOW_MS)
            rabbit.take(applied, in_journal, min(in_journal, in_queue))
            sequencer = rabbit.begin(has_snapshot=has_snapshot)
        applied = sequencer.apply(command_of(items), NOW_MS)
        count = len(applied.publications)
        rabbit.take(applied, count, count)
        expected = reply.Done(tuple(each.number for each in transfer))
        assert answer_of(applied) == expected
        # The run has not heard the answer.
        again = sequencer.apply(command_of(items), NOW_MS)
        rabbit.take(again, len(again.publications), len(again.publications))
        assert answer_of(again) == expected
        assert again.answer is not None
        assert again.answer.after_all
        assert again.publications, "an answer waits for what came before"
        numbers = numbers_of(_messages(rabbit))
        assert not numbers or rabbit.entity.enable_partitioning or numbers[-1] == max(numbers)
    # Peeks find a number that stands twice only where all higher ones stand behind it, too.
    for transfer in transfers if rabbit.entity is QUEUE else ():
        again = sequencer.apply(command_of([each.item() for each in transfer]), NOW_MS)
        assert [headers.ENTRY in _table(each.properties) for each in again.publications] == [True]


def in_transfers(found: list[Source], sizes: list[int]) -> list[list[Source]]:
    """Cut the messages into transfers."""
    transfers, at = [], 0
    for size in [*sizes, len(found)]:
        if found[at : at + size]:
            transfers.append(found[at : at + size])
        at += size
    return transfers


@given(sources(), st.lists(st.integers(1, 4), max_size=6), st.lists(cuts, max_size=6))
def test_each_message_is_in_its_place_once_under_its_number(
    found: list[Source], sizes: list[int], killed: list[Kills]
) -> None:
    """Whatever the journal and the queues had when a term ended."""
    rabbit = Rabbit()
    play(rabbit, in_transfers(found, sizes), killed)
    expected: dict[str, set[bytes]] = {}
    for each in found:
        imported = each.item().imported
        assert imported is not None
        expected.setdefault(queue_of(QUEUE, each), set()).add(imported.identity)
    assert placed(rabbit) == expected
    _are_whole(rabbit, [each.number for each in found])
    assert rabbit.sequencer is not None
    memory = rabbit.sequencer.memory
    read_back = rabbit.read()
    for known in (memory, read_back):
        assert known.counters == [found[-1].number if found else 0]
        assert {number for number, _ in known.pending} == {
            source.number for source in found if source.state == SCHEDULED
        }
        assert known.enqueued_ms == 0, "the entity has enqueued nothing"
        deferred = sum(source.state == DEFERRED for source in found)
        assert known.imported.deferred.get(OWN, 0) == deferred


def _are_whole(rabbit: Rabbit, numbers: list[int]) -> None:
    """Check that numbers rise and every gap has an entry, in front of the number behind it."""
    rising = sorted(set(numbers_of(_messages(rabbit))))
    assert rising == numbers
    passed = {gap[:2] for gap in gaps_of(rabbit.journal)}
    series = sorted([*((each, each) for each in numbers), *passed])
    assert [first for first, _ in series] == [1, *[last + 1 for _, last in series]][: len(series)]


def _messages(rabbit: Rabbit) -> list[Publication]:
    return [each for each in rabbit.journal if headers.ENTRY not in _table(each.properties)]


@given(copies_of_topic(), st.lists(st.integers(1, 4), max_size=6), st.lists(cuts, max_size=6))
def test_copies_of_a_topic_are_in_their_subscriptions_under_their_numbers(
    found: list[Source], sizes: list[int], killed: list[Kills]
) -> None:
    """Each past its rules, and the topic's numbers follow."""
    rabbit = Rabbit(TOPIC)
    play(rabbit, in_transfers(found, sizes), killed)
    expected: dict[str, set[bytes]] = {}
    for each in found:
        imported = each.item().imported
        assert imported is not None
        expected.setdefault(queue_of(TOPIC, each), set()).add(imported.identity)
    assert placed(rabbit) == expected
    assert rabbit.sequencer is not None
    for memory in (rabbit.sequencer.memory, rabbit.read()):
        assert memory.counters == [
            max([each.topics_number or each.number for each in found] or [0])
        ]
        for short in (ONE, TWO):
            numbers = [each.number for each in found if each.short == short]
            assert memory.subscriptions.get(short, 0) == max(numbers, default=0)
    for name in set(rabbit.queues) & {names.active_exchange("orders")}:
        for properties in rabbit.queues[name]:
            keys = _table(properties).get("BCC")
            if headers.ENTRY not in _table(properties):
                assert keys is not None, "it goes to one subscription"


@given(
    st.lists(st.tuples(st.integers(0, 3), widths), min_size=1, max_size=10),
    st.lists(cuts, max_size=3),
)
def test_each_partition_has_its_own_series(
    found: list[tuple[int, int]], killed: list[Kills]
) -> None:
    """In each transfer, the numbers of a partition rise."""
    lasts, messages = Counter[int](), []
    for partition, width in found:
        lasts[partition] += width
        messages.append(Source(compose(partition, lasts[partition]), ACTIVE, False))
    rabbit = Rabbit(PARTITIONED)
    play(rabbit, in_transfers(messages, [3, 3]), killed)
    counters = [compose(partition, lasts[partition]) for partition in range(16)]
    assert rabbit.sequencer is not None
    assert rabbit.sequencer.memory.counters == rabbit.read().counters == counters


@given(sources().filter(bool), widths)
def test_what_is_sent_behind_imports_gets_higher_numbers(found: list[Source], width: int) -> None:
    """When the hold has ended, also at a successor."""
    rabbit = Rabbit()
    play(rabbit, [found], [])
    rabbit.entity = replace(QUEUE, held="")
    sequencer = rabbit.begin()
    sent = sequencer.apply(SendCommand(bytes(16), (Item(BARE, b""),)), NOW_MS)
    assert numbers_of(list(sent.publications)) == [found[-1].number + 1]
    assert sequencer.memory.enqueued_ms == NOW_MS
    assert len(sequencer.memory.imported) == 0


def test_a_term_that_ended_in_order_repeats_nothing() -> None:
    """All of it has reached its queues."""
    rabbit = Rabbit()
    items = [Source(5, ACTIVE, False).item(), Source(9, ACTIVE, True).item()]
    applied = rabbit.begin().apply(command_of(items), NOW_MS)
    rabbit.take(applied, 4, 4)
    rabbit.commit()
    again = rabbit.begin().apply(command_of(items), NOW_MS)
    assert [headers.ENTRY in _table(each.properties) for each in again.publications] == [True]
    assert answer_of(again) == reply.Done((5, 9))


@pytest.mark.parametrize(
    ("entity", "second", "run", "condition"),
    [
        (QUEUE, Source(7, ACTIVE, False), RUN, "com.microsoft:argument-out-of-range"),
        (QUEUE, Source(6, ACTIVE, True), RUN, "com.microsoft:argument-out-of-range"),
        (QUEUE, Source(8, ACTIVE, False), "other", "com.microsoft:precondition-failed"),
        (
            replace(QUEUE, held=""),
            Source(8, ACTIVE, False),
            RUN,
            "com.microsoft:precondition-failed",
        ),
        (
            PARTITIONED,
            Source(compose(40, 1), ACTIVE, False),
            RUN,
            "com.microsoft:argument-out-of-range",
        ),
        (TOPIC, Source(1, ACTIVE, False, b"absent", 9), RUN, "amqp:not-found"),
    ],
)
def test_a_transfer_is_refused_as_a_whole(
    entity: SendEntity, second: Source, run: str, condition: str
) -> None:
    """Another message has the number, or nobody may import here: nothing has changed."""
    rabbit = Rabbit(entity)
    sequencer = rabbit.begin()
    memory = sequencer.memory
    if entity is QUEUE:
        sequencer.apply(command_of([Source(7, ACTIVE, False).item("another")]), NOW_MS)
    before = memory.counters[:], dict(memory.subscriptions), len(memory.imported)
    is_topic = entity is TOPIC
    first = Source(8, SCHEDULED, False) if is_topic else Source(10, ACTIVE, False)
    transfer = [first.item(), second.item()] if is_topic else [second.item(), first.item()]
    applied = sequencer.apply(command_of(transfer, run), NOW_MS)
    refusal = answer_of(applied)
    assert isinstance(refusal, reply.Refusal)
    assert (refusal.condition, list(applied.publications)) == (condition, [])
    assert "nothing of the transfer is stored" in refusal.description
    assert before == (memory.counters, memory.subscriptions, len(memory.imported))


def told(rabbit: Rabbit, run: str = RUN) -> dict[tuple[bytes, int], tuple[int, bool]] | reply.Reply:
    """What a transfer without messages is answered."""
    assert rabbit.sequencer is not None
    applied = rabbit.sequencer.apply(command_of([], run), NOW_MS)
    assert applied.answer is not None
    found = answer_of(applied)
    if isinstance(found, reply.Refusal):
        return found
    assert applied.answer.after_all
    rabbit.take(applied, len(applied.publications), len(applied.publications))
    decoded = series_numbers.decode(found.content)
    return {(each.short, each.partition): (each.last, each.is_imported) for each in decoded}


def test_a_transfer_without_messages_is_answered_with_the_last_numbers() -> None:
    """Also in the next term; what was sent meanwhile is no import."""
    rabbit = Rabbit(TOPIC)
    sequencer = rabbit.begin()
    assert told(rabbit) == {(OWN, 0): (0, False)}
    copy = Source(7, ACTIVE, False, ONE, 9).item()
    applied = sequencer.apply(command_of([copy]), NOW_MS)
    rabbit.take(applied, len(applied.publications), len(applied.publications))
    expected = {(OWN, 0): (9, False), (ONE, 0): (7, True)}
    assert told(rabbit) == expected
    rabbit.begin()
    assert told(rabbit) == expected


def test_the_last_number_of_each_partition_is_told() -> None:
    """A number that was sent for is none of an import."""
    rabbit = Rabbit(PARTITIONED)
    sequencer = rabbit.begin()
    sequencer.apply(command_of([Source(compose(3, 8), ACTIVE, False).item()]), NOW_MS)
    found = told(rabbit)
    assert isinstance(found, dict)
    assert found.pop((OWN, 3)) == (compose(3, 8), True)
    assert found == {(OWN, each): (compose(each, 0), False) for each in range(16) if each != 3}
    sequencer.memory.counters[3] += 1
    found = told(rabbit)
    assert isinstance(found, dict)
    assert found[OWN, 3] == (compose(3, 9), False)


def test_last_numbers_are_told_to_the_run_that_holds_alone() -> None:
    """Nobody else may take them for his."""
    rabbit = Rabbit()
    rabbit.begin()
    refusal = told(rabbit, "another")
    assert isinstance(refusal, reply.Refusal)
    assert refusal.condition == "com.microsoft:precondition-failed"


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=6, max_size=6),
            st.integers(0, 15),
            st.integers(0, 2**63 - 1),
            st.booleans(),
        )
    )
)
def test_last_numbers_are_read_as_they_were_written(
    rows: list[tuple[bytes, int, int, bool]],
) -> None:
    """Bytes that are cut are none."""
    found = [series_numbers.SeriesNumbers(*each) for each in rows]
    raw = series_numbers.encode(found)
    assert series_numbers.decode(raw) == found
    if raw:
        with pytest.raises(ValueError, match="bytes of numbers"):
            series_numbers.decode(raw[:-1])


def test_more_deferred_messages_than_an_entity_may_have_are_refused() -> None:
    """One bridge must be able to hold them all."""
    sequencer = Rabbit().begin()
    sequencer.memory.imported.expect_deferred(OWN, DEFERRED_MAX - 1)
    first, second = Source(1, DEFERRED, False).item(), Source(2, DEFERRED, True).item()
    refusal = answer_of(sequencer.apply(command_of([first, second]), NOW_MS))
    assert isinstance(refusal, reply.Refusal)
    assert refusal.condition == "amqp:resource-limit-exceeded"
    assert sequencer.memory.counters == [0]
    assert answer_of(sequencer.apply(command_of([first]), NOW_MS)) == reply.Done((1,))


def test_a_failing_transfer_takes_no_number() -> None:
    """It is no dead letter either: the run is told, and sends it again."""
    sequencer = Rabbit().begin()
    bad = Source(5, ACTIVE, False).item(properties=b"")
    command = ImportCommand(run_digest(RUN), (Source(3, ACTIVE, False).item(), bad), TO)
    refusal = answer_of(sequencer.apply(command, NOW_MS))
    assert isinstance(refusal, reply.Refusal)
    assert refusal.condition == "amqp:internal-error"
    assert sequencer.memory.counters == [0]
    assert len(sequencer.memory.imported) == 0


def test_what_a_killed_term_stored_is_published_again_also_behind_the_hold() -> None:
    """Its queue may lack it; the rest is refused."""
    rabbit = Rabbit()
    items = [Source(5, ACTIVE, False).item(), Source(9, ACTIVE, False).item()]
    rabbit.take(rabbit.begin().apply(command_of(items), NOW_MS), 2, 0)
    rabbit.entity = replace(QUEUE, held="")
    applied = rabbit.begin().apply(command_of(items), NOW_MS)
    assert numbers_of(list(applied.publications)) == [5]
    assert isinstance(answer_of(applied), reply.Refusal)


def test_what_a_killed_term_stored_for_a_subscription_goes_when_that_is_deleted() -> None:
    """The other messages of its transfer are published again; a new one for it is refused."""
    rabbit = Rabbit(TOPIC)
    items = [
        Source(5, ACTIVE, False, ONE, 7).item(),
        Source(6, ACTIVE, False, TWO, 8).item(),
    ]
    rabbit.take(rabbit.begin().apply(command_of(items), NOW_MS), 4, 0)
    rabbit.entity = replace(TOPIC, subscriptions=SUBSCRIPTIONS[:1])
    sequencer = rabbit.begin()
    applied = sequencer.apply(command_of(items), NOW_MS)
    (published,) = applied.publications
    assert items[0].imported is not None
    assert identity_in(published.properties) == items[0].imported.identity
    assert answer_of(applied) == reply.Done((5, 6))
    refusal = answer_of(
        sequencer.apply(command_of([Source(9, ACTIVE, False, TWO, 9).item()]), NOW_MS)
    )
    assert isinstance(refusal, reply.Refusal)
    assert refusal.condition == "amqp:not-found"


@pytest.mark.parametrize(("age_ms", "is_dropped"), [(1_000, True), (DAY_MS, False)])
def test_an_imported_id_is_in_the_history_with_its_own_time(age_ms: int, is_dropped: bool) -> None:
    """It is never dropped itself; behind its window another message may have it."""
    entity = replace(DETECTING, duplicate_detection_history_time_window_ms=DAY_MS)
    rabbit = Rabbit(entity)
    sequencer = rabbit.begin()
    digest = b"d" * 16
    items = []
    for number in (1, 2):
        item = Source(number, ACTIVE, False).item(digest=digest)
        assert item.imported is not None
        said = item.imported._replace(enqueued_ms=NOW_MS - age_ms)
        items.append(replace(item, imported=said))
    applied = sequencer.apply(command_of(items), NOW_MS)
    rabbit.take(applied, 2, 2)
    assert numbers_of(list(applied.publications)) == [1, 2]
    open_entity = replace(entity, held="")
    for memory in (sequencer.memory, rabbit.read()):
        then = Sequencer(open_entity, Tier.STANDARD, memory, uuid4)
        sent = then.apply(SendCommand(bytes(16), (Item(BARE, b"", digest=digest),)), NOW_MS)
        assert bool(sent.publications) is not is_dropped


def test_the_time_to_live_begins_at_the_source() -> None:
    """RabbitMQ is told what is left of it; deferred and dead messages do not expire."""
    sequencer = Rabbit().begin()
    items = []
    for number, (age_ms, state, is_dead) in enumerate(
        [(400, ACTIVE, False), (2_000, ACTIVE, False), (400, DEFERRED, False), (400, ACTIVE, True)],
        1,
    ):
        item = Source(number, state, is_dead).item(ttl_ms=1_000)
        assert item.imported is not None
        said = item.imported._replace(enqueued_ms=NOW_MS - age_ms)
        items.append(replace(item, imported=said))
    made = sequencer.apply(command_of(items), NOW_MS).publications
    found = [Properties.decode(each.properties) for each in made]
    assert [each.expiration for each in found] == ["600", "0", None, None]
    assert [(each.headers or {})[headers.TIME_TO_LIVE] for each in found] == [("l", 1_000)] * 4


@given(st.lists(st.tuples(st.sampled_from([OWN, ONE]), st.integers(1, 50), st.booleans())))
def test_the_last_imported_messages_are_kept_in_snapshots(
    noted: list[tuple[bytes, int, bool]],
) -> None:
    """With what is counted of them."""
    found = ImportedMessages()
    for short, number, is_deferred in noted:
        found.note(short, number, number.to_bytes(20, "big"), is_deferred=is_deferred)
    again = ImportedMessages.decode(found.encode())
    assert again.encode() == found.encode()
    assert again.deferred == found.deferred
    assert all(again.has(short, number, number.to_bytes(20, "big")) for short, number, _ in noted)
    assert not again.has(OWN, 51, bytes(20))


def test_of_many_imported_messages_the_last_are_kept() -> None:
    """A snapshot has a bounded size."""
    found = ImportedMessages()
    for number in range(KEPT + 5):
        found.note(OWN, number, bytes(20), is_deferred=False)
    assert len(found) == KEPT
    assert not found.has(OWN, 4, bytes(20))
    assert found.has(OWN, 5, bytes(20))
    with pytest.raises(MalformedEntry):
        ImportedMessages.decode(found.encode()[:-1])
