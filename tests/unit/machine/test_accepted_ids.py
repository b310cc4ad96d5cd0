"""Duplicate detection: the window, what a successor learns, and what is numbered."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.machine.inbox.accepted_ids import SEGMENT_ROWS, History, row
from bridge.machine.inbox.applied import Applied
from bridge.machine.inbox.arrival import SendCommand, read
from bridge.machine.inbox.journal_entries import marker
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.model.entity import Queue, Subscription, Tier, Topic
from bridge.wire import digest, envelope
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item, Operation
from bridge.wire.reply import Done, decode_reply

WINDOW_MS = 20_000
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000

QUEUE = Queue(
    name="orders",
    requires_duplicate_detection=True,
    duplicate_detection_history_time_window_ms=WINDOW_MS,
)
TERM, NEXT_TERM = bytes(16), bytes([1] * 16)


def a_digest(number: int) -> bytes:
    """Return the digest of an id."""
    return digest.of_text(str(number))


def a_history(window_ms: int = WINDOW_MS) -> History:
    """Return a history that knows nothing."""
    history = History()
    history.set_window(window_ms)
    return history


def test_an_id_is_known_for_its_window_and_no_longer() -> None:
    """By the millisecond; with the number that it got."""
    history = a_history()
    history.accept(a_digest(1), 41, START_MS)
    assert history.find(a_digest(1), START_MS + WINDOW_MS - 1) == 41
    assert history.find(a_digest(1), START_MS + WINDOW_MS) is None
    assert history.find(a_digest(2), START_MS) is None


def test_what_is_older_than_the_window_is_forgotten() -> None:
    """Memory follows the window, not all that was ever sent."""
    history = a_history()
    for number in range(10_000):
        history.accept(a_digest(number), number, START_MS + 100 * number)
    assert len(history) <= 1.3 * WINDOW_MS / 100


def test_the_window_can_be_changed() -> None:
    """A longer one lets an id be known for longer."""
    history = a_history()
    history.accept(a_digest(1), 1, START_MS)
    history.set_window(7 * DAY_MS)
    assert history.find(a_digest(1), START_MS + 7 * DAY_MS - 1) == 1
    history.set_window(WINDOW_MS)
    assert history.find(a_digest(1), START_MS + WINDOW_MS) is None


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 15_000), st.integers(0, 9)), max_size=60
    )
)
def test_a_successor_knows_what_the_model_says(steps: list[tuple[int, int, int]]) -> None:
    """Segments in any order, some of them twice, and what is in none."""
    history, model = a_history(), dict[bytes, tuple[int, int]]()
    segments: list[bytes] = []
    now_ms = START_MS
    for number, (name, wait_ms, act) in enumerate(steps):
        now_ms += wait_ms
        one = a_digest(name)
        known = model.get(one)
        expected = known[0] if known is not None and now_ms - known[1] < WINDOW_MS else None
        assert history.find(one, now_ms) == expected
        if expected is None:
            history.accept(one, number, now_ms)
            model[one] = number, now_ms
        if act == 0:
            segments.append(history.next_segment)
            history.close_segment(len(segments[-1]))
        elif act == 1:
            successor = a_history()
            successor.learn_open(history.open)
            for segment in [*reversed(segments), *segments[:1]]:
                successor.learn(segment, now_ms)
            history = successor


def a_sequencer(entity: Queue | Topic = QUEUE) -> Sequencer:
    """Return a sequencer that has given no number."""
    memory = blank(is_partitioned=entity.enable_partitioning)
    return Sequencer(entity, Tier.STANDARD, memory, uuid4)


def items(*ids: str, due_ms: int | None = None, key: bytes | None = None) -> list[Item]:
    """Return messages with these ids, as a door makes them."""
    return [
        Item(
            Properties(message_id=each, delivery_mode=2).encode(),
            b"body",
            None,
            due_ms,
            key,
            None,
            digest.of_text(each),
        )
        for each in ids
    ]


def carried_out(
    sequencer: Sequencer,
    sent: list[Item],
    now_ms: int = START_MS,
    *,
    identity: int = 1,
    operation: Operation = Operation.SCHEDULE,
) -> Applied:
    """Carry out an envelope as it comes out of an inbox."""
    body = envelope.encode(operation, identity.to_bytes(16, "big"), sent)
    asked = Properties(headers=envelope.HEADERS, reply_to="reply", correlation_id="1").encode()
    command = read(asked, body, detects_duplicates=True)
    return sequencer.apply(command, now_ms)


def numbers(outcome: Applied) -> tuple[int, ...]:
    """Return the numbers that the sender is told."""
    assert outcome.answer is not None
    reply = decode_reply(outcome.answer.body)
    assert isinstance(reply, Done)
    return reply.numbers


def successor(entries: list[Publication], queue: Queue = QUEUE) -> Sequencer:
    """Return the sequencer that follows and has read these entries."""
    replay = Replay(
        is_partitioned=queue.enable_partitioning, readers={NEXT_TERM}, fingerprint="boot"
    )
    for entry in [marker(queue, TERM, "boot"), *entries, marker(queue, NEXT_TERM, "boot")]:
        replay.feed(Properties.decode(entry.properties), entry.body)
    assert not replay.unreadable
    return Sequencer(queue, Tier.STANDARD, replay.result())


def test_a_duplicate_gets_no_number_and_the_answer_of_the_first() -> None:
    """In one batch too; the next message has the next number."""
    sequencer = a_sequencer()
    outcome = carried_out(sequencer, items("a", "b", "a"))
    assert (numbers(outcome), len(outcome.publications)) == ((1, 2, 1), 2)
    outcome = carried_out(sequencer, items("b", "c"), START_MS + WINDOW_MS - 1, identity=2)
    assert (numbers(outcome), len(outcome.publications)) == ((2, 3), 1)
    outcome = carried_out(sequencer, items("a"), START_MS + WINDOW_MS, identity=3)
    assert numbers(outcome) == (4,)


def test_scheduled_messages_take_part_both_ways() -> None:
    """From the moment when they were scheduled."""
    sequencer = a_sequencer()
    due_ms = START_MS + 5_000
    assert numbers(carried_out(sequencer, items("a", due_ms=due_ms))) == (1,)
    assert numbers(carried_out(sequencer, items("a", due_ms=due_ms + 1), identity=2)) == (1,)
    assert carried_out(sequencer, items("a"), identity=3).publications == []
    carried_out(sequencer, items("b"), identity=4)
    assert carried_out(sequencer, items("b", due_ms=due_ms), identity=5).publications == []


def test_a_successor_drops_the_duplicates_of_what_the_journal_has() -> None:
    """With a snapshot between, or none; scheduled ones too."""
    sequencer = a_sequencer()
    entries = [
        *carried_out(sequencer, items("a")).publications,
        *carried_out(sequencer, items("b", due_ms=START_MS + 1), identity=2).publications,
    ]
    with_snapshot = [*entries, *sequencer.snapshot(TERM, "boot", 0)]
    entries += carried_out(sequencer, items("c"), identity=3).publications
    for read_back in (entries, [*with_snapshot, *entries[2:]], with_snapshot[2:]):
        following = successor(list(read_back))
        outcome = carried_out(following, items("a", "b"), START_MS + 1, identity=9)
        assert (numbers(outcome), list(outcome.publications)) == ((1, 2), [])


def test_a_message_that_comes_again_is_no_duplicate_of_itself() -> None:
    """Its queue may have lost what the journal has: it is published again, with its number."""
    sequencer = a_sequencer()
    entries = list(carried_out(sequencer, items("a")).publications)
    outcome = carried_out(successor(entries), items("a"), START_MS + 1)
    assert (numbers(outcome), len(outcome.publications)) == ((1,), 1)


def test_a_native_message_that_comes_again_is_not_lost() -> None:
    """It has no identity but its id: known by that it is published again."""
    native = Properties(message_id="a", delivery_mode=2).encode()
    command = read(native, b"body", detects_duplicates=True, comes_again=True)
    another = read(native, b"other", detects_duplicates=True)
    sequencer = a_sequencer()
    first = sequencer.apply(command, START_MS)
    assert sequencer.apply(another, START_MS + 1).publications == []

    following = successor(list(first.publications))
    again = following.apply(command, START_MS + 1)
    assert len(again.publications) == 1
    assert following.memory.counters == [1]
    assert successor(list(first.publications)).apply(another, START_MS + 1).publications == []
    late = successor(list(first.publications)).apply(command, START_MS + WINDOW_MS)
    assert len(late.publications) == 1


def test_what_could_not_be_carried_out_was_not_accepted() -> None:
    """Nothing has come of it: the next one of its id is taken."""
    sequencer = a_sequencer()
    broken = items("a", "b")
    broken[1].properties = b""
    try:
        sequencer.apply(SendCommand(bytes(16), broken), START_MS)
    except Exception:
        assert len(sequencer.memory.history) == 0
        assert sequencer.memory.history.open == b""
    else:
        raise AssertionError("an empty property list was stamped")
    assert numbers(carried_out(sequencer, items("a"), identity=2)) == (1,)


def test_a_partitioned_entity_detects_by_id_and_partition_key() -> None:
    """Two keys are two messages."""
    sequencer = a_sequencer(replace(QUEUE, enable_partitioning=True))
    sent = [*items("a", key=b"x"), *items("a", key=b"y"), *items("a", key=b"x")]
    outcome = carried_out(sequencer, sent)
    assert len(outcome.publications) == 2


def test_a_topic_drops_a_duplicate_for_all_its_subscriptions() -> None:
    """Detection is the topic's."""
    topic = Topic(
        name="events",
        requires_duplicate_detection=True,
        subscriptions=(Subscription(topic="events", name="audit"),),
    )
    sequencer = a_sequencer(topic)
    assert len(carried_out(sequencer, items("a")).publications) == 1
    assert carried_out(sequencer, items("a"), identity=2).publications == []


def test_only_entities_that_want_it_pay() -> None:
    """Without detection nothing is remembered or stamped."""
    sequencer = a_sequencer(Queue(name="orders"))
    (published,) = carried_out(sequencer, items("a")).publications
    assert b"x-busbridge-accepted" not in published.properties
    assert len(sequencer.memory.history) == 0
    assert len(carried_out(sequencer, items("a"), identity=2).publications) == 1


def test_ids_of_two_types_are_two_ids() -> None:
    """The number 7 is not the text "7"; a uuid is not its digits."""
    section = bytes.fromhex("005373c003015307")  # message-id: ulong 7
    typed = Properties(message_id="7", headers={"x-busbridge-sections": ("x", section)})
    plain = Properties(message_id="7")
    assert digest.of_message(plain) == digest.of_text("7")
    assert digest.of_message(typed) not in (None, digest.of_text("7"))
    assert digest.of_message(Properties()) is None


def test_a_segment_is_due_after_a_thousand() -> None:
    """So long what was accepted is in the snapshots."""
    history = a_history()
    for number in range(SEGMENT_ROWS):
        assert not history.is_segment_due
        history.accept(a_digest(number), number, START_MS)
    assert history.is_segment_due
    history.close_segment(len(history.next_segment))
    assert history.open == b""
    assert row(a_digest(1), 1, START_MS) not in history.open
