"""Replay: scenarios of a journal's tail, and what is learnt from each."""

from __future__ import annotations

from bridge.machine.arrival import Send
from bridge.machine.replay import Replay
from bridge.machine.sequencer import Memory, Publication, Sequencer, blank, marker
from bridge.machine.wheel import Place
from bridge.model.entity import Queue, Tier
from bridge.model.number import NUMBER_MAX, compose
from bridge.wire import stamp
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item

QUEUE = Queue(name="orders")
BARE = Properties(delivery_mode=2).encode()
LIFE, NEXT_LIFE = bytes(16), bytes([1] * 16)


def a_sequencer(memory: Memory | None = None, queue: Queue = QUEUE) -> Sequencer:
    """Return a sequencer that has given no number, or begins with this memory."""
    blank_memory = blank(is_partitioned=queue.enable_partitioning)
    return Sequencer(queue, Tier.STANDARD, memory or blank_memory)


def replayed(
    entries: list[Publication],
    *,
    fingerprint: str = "boot",
    is_partitioned: bool = False,
    sure_ms: int = 1_000_000,
) -> Replay:
    """Return what a new life reads."""
    replay = Replay(
        is_partitioned=is_partitioned, life=NEXT_LIFE, fingerprint=fingerprint, sure_ms=sure_ms
    )
    for entry in [*entries, marker(QUEUE, NEXT_LIFE, fingerprint)]:
        replay.feed(Properties.decode(entry.properties), entry.body)
    return replay


SENDER = bytes([7] * 16)


def a_send(
    sequencer: Sequencer, due_ms: int | None = None, identity: bytes = SENDER
) -> Publication:
    """Send one message; its bucket is there."""
    command = Send(identity, (Item(BARE, b"", None, due_ms),))
    wheel = sequencer.memory.wheel
    for where in wheel.missing(sequencer.dues_ms(command, 0), 0):
        wheel.add(where)
    (publication,) = sequencer.apply(command, 0).publications
    return publication


def test_an_activated_message_does_not_wait_again_when_its_schedule_is_published_twice() -> None:
    """A second copy of a schedule, behind the activation, is an old story."""
    sequencer = a_sequencer()
    schedule = a_send(sequencer, due_ms=500)
    activation = sequencer.activate(stamp.unwait(schedule.properties), b"", 500)
    assert activation is not None

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
    snapshot = sequencer.snapshot(LIFE, "boot", 0)
    entries = [a_send(sequencer, identity=bytes([n] * 16)) for n in range(3)]

    memory = replayed([*snapshot, *entries]).result()

    assert memory.counters == [1]


def test_each_partition_has_a_counter_of_its_own() -> None:
    """Numbers of partition 3 do not move the counter of partition 4."""
    queue = Queue(name="orders", enable_partitioning=True)
    sequencer = a_sequencer(queue=queue)
    sequencer.memory.counters[3] = compose(3, 41)
    snapshot = sequencer.snapshot(LIFE, "boot", 0)

    memory = replayed(snapshot, is_partitioned=True).result()

    assert [compose(3, 41), compose(4, 0)] == memory.counters[3:5]


def test_entries_of_another_boot_are_not_trusted() -> None:
    """What was written before the broker failed may be in the journal alone."""
    sequencer = a_sequencer()
    begun = marker(QUEUE, LIFE, "before")
    entries = [begun, a_send(sequencer)]

    trusted = [
        [known.is_trusted for known in replayed(entries, fingerprint=boot).result().known.values()]
        for boot in ("before", "after")
    ]

    assert trusted == [[True], [False]]


def test_what_was_enqueued_just_before_the_election_is_not_trusted() -> None:
    """A queue may have dropped it when its writer's channel ended."""
    sequencer = a_sequencer()
    entries = [marker(QUEUE, LIFE, "boot"), a_send(sequencer, identity=bytes([1] * 16))]
    late = Send(bytes([2] * 16), (Item(BARE, b"", None, None),))
    entries += sequencer.apply(late, 501).publications

    known = replayed(entries, sure_ms=500).result().known.values()

    assert [each.is_trusted for each in known] == [True, False]


def test_what_waits_for_its_time_is_never_trusted() -> None:
    """The journal does not say when it was written; a second copy in a bucket is harmless."""
    sequencer = a_sequencer()
    entries = [marker(QUEUE, LIFE, "boot"), a_send(sequencer, due_ms=500)]

    known = replayed(entries).result().known.values()

    assert [each.is_trusted for each in known] == [False]


def test_the_channels_to_wait_for_are_those_since_the_newest_snapshot() -> None:
    """Its writer had waited for all others; a life that only announced itself may be there too."""
    sequencer = a_sequencer()
    first = marker(QUEUE, bytes([2] * 16), "boot")
    snapshot = sequencer.snapshot(LIFE, "boot", 0)
    third = marker(QUEUE, bytes([3] * 16), "boot")
    replay = Replay(is_partitioned=False, life=NEXT_LIFE, fingerprint="boot", sure_ms=0)
    entries = [first, *snapshot, third, marker(QUEUE, NEXT_LIFE, "boot")]
    for entry, address in zip(entries, ("first", "second", "third", "own"), strict=True):
        properties = Properties.decode(entry.properties)
        assert properties.reply_to == "amq.rabbitmq.reply-to"
        properties.reply_to = address
        replay.feed(properties, entry.body)

    assert replay.addresses == {"second", "third"}


def test_entries_before_a_snapshot_belong_to_its_life() -> None:
    """They were written in the same boot as the snapshot, when no marker lies between."""
    sequencer = a_sequencer()
    sent = a_send(sequencer)
    snapshot = sequencer.snapshot(LIFE, "boot", 1)

    replay = replayed([sent, *snapshot])

    assert [known.is_trusted for known in replay.result().known.values()] == [True]
    assert replay.is_sufficient()
    assert replay.lives == [LIFE]


def test_a_range_without_a_whole_snapshot_or_too_short_for_its_span_is_not_sufficient() -> None:
    """Then the range must go further back."""
    sequencer = a_sequencer()
    for due_ms in range(60_000):
        sequencer.memory.pending.add(due_ms + 1, due_ms, 0)
    a_send(sequencer)
    parts = sequencer.snapshot(LIFE, "boot", 1)
    assert len(parts) > 1

    assert not replayed(parts[1:]).is_sufficient()
    assert not replayed(parts).is_sufficient()


def test_a_snapshot_holds_what_waits_and_the_buckets() -> None:
    """Nothing before a snapshot is needed to go on."""
    sequencer = a_sequencer()
    a_send(sequencer, due_ms=500_000)
    snapshot = sequencer.snapshot(LIFE, "boot", 0)

    memory = replayed(snapshot).result()

    assert list(memory.pending) == [(1, 500_000)]
    assert [Place(1, 3)] == list(memory.wheel.buckets)
