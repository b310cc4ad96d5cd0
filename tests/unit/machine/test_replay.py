"""Replay: scenarios of a journal's tail, and what is learnt from each."""

from __future__ import annotations

from bridge.machine.inbox.arrival import Cancel, SendCommand
from bridge.machine.inbox.journal_entries import commit_marker, marker
from bridge.machine.inbox.known import Known
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay, missing_before
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import Memory, blank
from bridge.machine.inbox.wheel import BucketKey, place
from bridge.model.entity import Queue, Tier
from bridge.model.number import NUMBER_MAX, compose
from bridge.wire import stamp
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item

QUEUE = Queue(name="orders")
BARE = Properties(delivery_mode=2).encode()
TERM, NEXT_TERM, TRIED_TERM, OTHER_TERM = (bytes([number] * 16) for number in range(4))
BEGUN, OVER = marker(QUEUE, TERM, "boot"), commit_marker(QUEUE, TERM, "boot")


def a_sequencer(memory: Memory | None = None, queue: Queue = QUEUE) -> Sequencer:
    """Return a sequencer that has given no number, or begins with this memory."""
    blank_memory = blank(is_partitioned=queue.enable_partitioning)
    return Sequencer(queue, Tier.STANDARD, memory or blank_memory)


def replayed(
    entries: list[Publication],
    *,
    fingerprint: str = "boot",
    is_partitioned: bool = False,
) -> Replay:
    """Return what a new term reads."""
    replay = Replay(
        is_partitioned=is_partitioned, readers={NEXT_TERM, TRIED_TERM}, fingerprint=fingerprint
    )
    for entry in [*entries, marker(QUEUE, NEXT_TERM, fingerprint)]:
        replay.feed(Properties.decode(entry.properties), entry.body)
    return replay


def missing(entries: list[Publication]) -> int | None:
    """Return how many entries before these are needed."""
    return missing_before((Properties.decode(each.properties), each.body) for each in entries)


SENDER = bytes([7] * 16)


def a_send(
    sequencer: Sequencer, due_ms: int | None = None, identity: bytes = SENDER
) -> Publication:
    """Send one message; its bucket is there."""
    command = SendCommand(identity, (Item(BARE, b"", None, due_ms),))
    if due_ms is not None:
        sequencer.memory.wheel.add(place(due_ms, 0))
    (publication,) = sequencer.apply(command, 0).publications
    return publication


def test_an_activated_message_does_not_wait_again_when_its_schedule_is_published_twice() -> None:
    """A second copy of a schedule, behind the activation, is an old story."""
    sequencer = a_sequencer()
    schedule = a_send(sequencer, due_ms=500)
    (activation,) = sequencer.activate(stamp.unwait(schedule.properties), b"", 500)

    memory = replayed([schedule, activation, schedule]).result()

    assert (len(memory.pending), memory.counters) == (0, [2])


def test_second_copies_do_not_turn_the_counter_back() -> None:
    """After 1 2 3 1 the next number is 4."""
    sequencer = a_sequencer()
    entries = [a_send(sequencer, identity=bytes([n] * 16)) for n in range(3)]

    memory = replayed([*entries, entries[0]]).result()

    assert memory.counters == [3]


def test_the_counter_rolls_over_to_zero_and_goes_on() -> None:
    """The number after the largest is 0, also for a sequencer that reads it from the journal."""
    sequencer = a_sequencer(Memory(counters=[NUMBER_MAX - 1]))
    snapshot = sequencer.snapshot(TERM, "boot", 0)
    entries = [a_send(sequencer, identity=bytes([n] * 16)) for n in range(3)]

    memory = replayed([*snapshot, *entries]).result()

    assert memory.counters == [1]


def test_each_partition_has_a_counter_of_its_own() -> None:
    """Numbers of partition 3 do not move the counter of partition 4."""
    queue = Queue(name="orders", enable_partitioning=True)
    sequencer = a_sequencer(queue=queue)
    sequencer.memory.counters[3] = compose(3, 41)
    snapshot = sequencer.snapshot(TERM, "boot", 0)

    memory = replayed(snapshot, is_partitioned=True).result()

    assert [compose(3, 41), compose(4, 0)] == memory.counters[3:5]


def trusted(entries: list[Publication], *, fingerprint: str = "boot") -> list[bool]:
    """Return which of the known messages a new term trusts to be in their queue, in order."""
    known = replayed(entries, fingerprint=fingerprint).result().known
    return [each.is_trusted for each in known.values()]


def sends(count: int) -> list[Publication]:
    """Return the entries of so many messages, each with its own identity."""
    sequencer = a_sequencer()
    return [a_send(sequencer, identity=bytes([100 + number] * 16)) for number in range(count)]


def test_only_what_stands_before_its_writers_landing_is_trusted() -> None:
    """Of the rest a queue may have dropped some when its writer's channel ended."""
    before, after = sends(2)

    assert trusted([BEGUN, before, after]) == [False, False]
    assert trusted([BEGUN, before, OVER, after]) == [True, False]


def test_entries_of_another_boot_are_not_trusted() -> None:
    """Publishes that had landed before the broker failed may be in the journal alone."""
    entries = [BEGUN, *sends(1), OVER]

    assert trusted(entries, fingerprint="boot") == [True]
    assert trusted(entries, fingerprint="later boot") == [False]


def test_the_landing_of_a_term_that_is_not_the_writer_proves_nothing() -> None:
    """It says nothing of what others wrote, nor of what stands behind another's marker."""
    entries = sends(2)
    other = marker(QUEUE, OTHER_TERM, "boot")

    assert trusted([BEGUN, entries[0], commit_marker(QUEUE, OTHER_TERM, "boot")]) == [False]
    assert trusted([BEGUN, entries[0], other, entries[1], OVER]) == [False, False]
    assert trusted([BEGUN, *entries, other, commit_marker(QUEUE, OTHER_TERM, "boot")]) == [
        False,
        False,
    ]


def test_the_first_landing_in_the_range_is_of_whoever_wrote_what_stands_before() -> None:
    """Its marker stands further back; no other's is in between."""
    before, after = sends(2)
    other = marker(QUEUE, OTHER_TERM, "boot")

    assert trusted([before, OVER, other, after]) == [True, False]
    assert trusted([before, OVER, other, after], fingerprint="later boot") == [False, False]


def test_a_term_that_marks_the_journal_once_more_has_written_nothing_before() -> None:
    """Between its markers stand late entries of the term before it."""
    late, own = sends(2)

    assert trusted([BEGUN, late, BEGUN, own, OVER]) == [False, True]


def test_markers_of_terms_that_only_read_do_not_come_between() -> None:
    """Entries and the commit marker of the last writer may come behind them."""
    before, after = sends(2)
    reading = [marker(QUEUE, term, "boot") for term in (NEXT_TERM, TRIED_TERM)]

    replay = replayed([BEGUN, before, *reading, after, OVER])

    assert [known.is_trusted for known in replay.result().known.values()] == [True, True]
    assert replay.terms == [TERM]


def test_what_is_published_twice_counts_as_its_second_writer_left_it() -> None:
    """The second writer did not trust the first copy."""
    (entry,) = sends(1)
    other = marker(QUEUE, OTHER_TERM, "boot")

    assert trusted([BEGUN, entry, OVER, other, entry]) == [False]
    assert trusted([BEGUN, entry, other, entry, commit_marker(QUEUE, OTHER_TERM, "boot")]) == [True]


def test_what_waits_for_its_time_is_never_trusted() -> None:
    """A second copy in a bucket is harmless."""
    entries = [BEGUN, a_send(a_sequencer(), due_ms=500), OVER]

    assert trusted(entries) == [False]


def test_an_activation_is_trusted_as_any_other_message_is() -> None:
    """It is known by the number under which it waited."""
    sequencer = a_sequencer()
    schedule = a_send(sequencer, due_ms=500)
    (activation,) = sequencer.activate(stamp.unwait(schedule.properties), b"", 500)

    for ends, is_trusted in (([], False), ([OVER], True)):
        activated = replayed([BEGUN, schedule, activation, *ends]).result().activated
        assert [known.is_trusted for known in activated.values()] == [is_trusted]


def test_a_term_whose_process_goes_on_vouches_for_what_was_confirmed_to_it() -> None:
    """The rest is published again, and known once that is done."""
    confirmed, unconfirmed = sends(2)

    for fingerprint, is_trusted in (("boot", True), ("later boot", False)):
        replay = replayed([BEGUN, confirmed, unconfirmed], fingerprint=fingerprint)
        replay.go_on(TERM, [unconfirmed])
        known = replay.result().known.values()
        assert [each.is_trusted for each in known] == [is_trusted, True]


def test_a_landing_counts_as_an_entry() -> None:
    """It stands in the journal, and a snapshot's span is counted over it."""
    snapshot = a_sequencer().snapshot(TERM, "boot", 2)

    assert missing([OVER, *snapshot]) == 1
    assert missing([BEGUN, OVER, *snapshot]) == 0


def test_the_channels_to_wait_for_are_those_since_the_newest_snapshot() -> None:
    """Its writer had waited for all others; a term that only announced itself may be there too."""
    sequencer = a_sequencer()
    first = marker(QUEUE, bytes([2] * 16), "boot")
    snapshot = sequencer.snapshot(TERM, "boot", 0)
    third = marker(QUEUE, bytes([3] * 16), "boot")
    replay = Replay(is_partitioned=False, readers={NEXT_TERM}, fingerprint="boot")
    entries = [first, *snapshot, third, marker(QUEUE, NEXT_TERM, "boot")]
    for entry, address in zip(entries, ("first", "second", "third", "own"), strict=True):
        properties = Properties.decode(entry.properties)
        assert properties.reply_to == "amq.rabbitmq.reply-to"
        properties.reply_to = address
        replay.feed(properties, entry.body)

    assert replay.addresses == {"second", "third"}


def test_entries_before_a_snapshot_belong_to_its_term() -> None:
    """When no marker lies between, they were written by that term, in the same boot."""
    sequencer = a_sequencer()
    sent = a_send(sequencer)
    snapshot = sequencer.snapshot(TERM, "boot", 1)

    replay = replayed([sent, *snapshot, OVER])

    assert [known.is_trusted for known in replay.result().known.values()] == [True]
    assert missing([sent, *snapshot, OVER]) == 0
    assert replay.terms == [TERM]


def test_a_snapshot_continues_what_its_term_has_written() -> None:
    """The publishes that its commit marker proves stand on both sides of the snapshot."""
    sequencer = a_sequencer()
    before = a_send(sequencer, identity=bytes([100] * 16))
    snapshot = sequencer.snapshot(TERM, "boot", 1)
    after = a_send(sequencer, identity=bytes([101] * 16))

    assert trusted([BEGUN, before, *snapshot, after, OVER]) == [True, True]


def test_a_range_without_a_whole_snapshot_or_too_short_for_its_span_is_not_sufficient() -> None:
    """Then the range must go further back."""
    sequencer = a_sequencer()
    for due_ms in range(60_000):
        sequencer.memory.pending.add(due_ms + 1, due_ms, 0)
    a_send(sequencer)
    parts = sequencer.snapshot(TERM, "boot", 1)
    assert len(parts) > 1

    assert missing(parts[1:]) is None
    assert missing(parts) == 1
    assert missing([BEGUN, parts[0], BEGUN, *parts[1:]]) == 0


def test_a_snapshot_holds_what_waits_and_the_buckets() -> None:
    """Nothing before a snapshot is needed to go on."""
    sequencer = a_sequencer()
    a_send(sequencer, due_ms=500_000)
    snapshot = sequencer.snapshot(TERM, "boot", 0)

    memory = replayed(snapshot).result()

    assert list(memory.pending) == [(1, 500_000)]
    assert [BucketKey(1, 3)] == list(memory.wheel.buckets)


def test_what_a_term_reads_does_not_grow_with_the_number_of_terms_before_it() -> None:
    """Each begins with a snapshot of its own, which holds what its predecessors numbered."""
    entries: list[Publication] = []
    read = []
    for number in range(1, 21):
        term = bytes([number] * 16)
        replay = as_needed([*entries, marker(QUEUE, term, "boot")], term)
        read.append(replay.entries)
        sequencer = a_sequencer(replay.result())
        entries += [marker(QUEUE, term, "boot"), *sequencer.snapshot(term, "boot", 0)]
        for index in range(5):
            entries.append(a_send(sequencer, identity=bytes([number, index] * 8)))

    assert read[1:] == 19 * [7]
    known = as_needed([*entries, marker(QUEUE, NEXT_TERM, "boot")], NEXT_TERM).result().known
    assert [each.number for each in known.values()] == list(range(1, 101))


def as_needed(entries: list[Publication], term: bytes) -> Replay:
    """Return what a term learns that reads no more of a journal than it needs."""
    count = 1
    while True:
        replay = Replay(is_partitioned=False, readers={term}, fingerprint="boot")
        for entry in entries[-count:]:
            replay.feed(Properties.decode(entry.properties), entry.body)
        wanted = missing(entries[-count:])
        if count >= len(entries) or wanted == 0:
            return replay
        count += wanted or 1


def test_what_a_writer_inherited_is_believed_as_it_was_by_it() -> None:
    """But in another boot of the broker nothing is."""
    landed_one, unproven = sends(2)
    first = replayed([BEGUN, landed_one, OVER, unproven])
    snapshot = a_sequencer(first.result()).snapshot(NEXT_TERM, "boot", 0)

    assert trusted(snapshot) == [True, False]
    assert trusted(snapshot, fingerprint="later boot") == [False, False]


def test_what_was_inherited_outlives_only_what_forgets_it() -> None:
    """A snapshot that is written when all has come again holds none of it any more."""
    sequencer = a_sequencer(replayed([BEGUN, *sends(2)]).result())
    before = sequencer.snapshot(TERM, "boot", 0)
    sequencer.forget_inherited()
    after = sequencer.snapshot(TERM, "boot", 1)

    assert len(replayed(before).result().known) == 2
    assert replayed([*before, *after]).result().known == {}


def test_activations_and_cancels_are_inherited_too() -> None:
    """A copy that comes out of a bucket again keeps its number, and a cancel is not refused."""
    sequencer = a_sequencer()
    schedule = a_send(sequencer, due_ms=500)
    (activation,) = sequencer.activate(stamp.unwait(schedule.properties), b"", 500)
    later = a_send(sequencer, due_ms=900, identity=bytes([8] * 16))
    cancel = Cancel(bytes([9] * 16), (stamp.unwait(later.properties).number,))
    (cancelled,) = sequencer.apply(cancel, 0).publications
    first = replayed([BEGUN, schedule, activation, later, cancelled])
    snapshot = a_sequencer(first.result()).snapshot(NEXT_TERM, "boot", 0)

    memory = replayed(snapshot).result()

    assert memory.activated == {1: Known(2, 500, is_trusted=False)}
    assert memory.cancelled == {bytes([9] * 16)}
    assert memory.known[bytes([7] * 16) + bytes(4)] == Known(1, None, is_trusted=False)
