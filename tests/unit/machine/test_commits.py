"""A leader's decisions about commits: all or nothing, once, and kept as long as they may matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.inbox import arrival, decided
from bridge.machine.inbox.applied import Applied
from bridge.machine.inbox.arrival import Commit, Inquiry, RefusedItem, ReplyTo
from bridge.machine.inbox.commits import REFUSED_BEFORE, answer_failed, apply_transaction
from bridge.machine.inbox.decided import Decided
from bridge.machine.inbox.journal_entries import commit_marker, marker
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import Memory, blank
from bridge.machine.inbox.wheel import place
from bridge.model.entity import (
    DEFAULT_RULE,
    Queue,
    Rule,
    SendEntity,
    SqlFilter,
    Subscription,
    Tier,
    Topic,
)
from bridge.model.number import partition_for_key, partition_of
from bridge.topology import names
from bridge.wire import commits, decisions, envelope, headers, inquiries, sections, stamp
from bridge.wire.basic import Properties, Table, bytes_in, text
from bridge.wire.commits import (
    NO_INQUIRY,
    CommitContent,
    CommitVerdict,
    LockedMessage,
    LockOutcome,
    OutcomeKind,
    TransferredEnvelope,
)
from bridge.wire.decisions import Decision
from bridge.wire.envelope import DIGEST_BYTES, Item, Operation
from bridge.wire.journal import JournalSection
from bridge.wire.reply import Done, Refusal, decode_reply
from bridge.wire.reservations import ReservedSchedules
from bridge.wire.sections import MalformedEntry

QUEUE = Queue(name="orders")
BARE = Properties(delivery_mode=2).encode()
SOURCE = b"source\x00"
TO = ReplyTo("address", "1")
TERM = bytes(16)
BOOT = "boot"
COMMITTED, REFUSED = CommitVerdict.COMMITTED, CommitVerdict.REFUSED
POISON = Rule(
    name="poison", filter=SqlFilter(expression="color = 'poison'"), action="SET a = newid()"
)
TOPIC = Topic(
    name="orders",
    subscriptions=(
        Subscription(topic="orders", name="all", incarnation="all", rules=(DEFAULT_RULE,)),
        Subscription(topic="orders", name="odd", incarnation="odd", rules=(POISON,)),
    ),
)
POISONED = Item(Properties(delivery_mode=2, headers={"color": text("poison")}).encode(), b"")
"""A message that cannot be stored while `no_room` gives the ids that a rule asks for."""


def no_room() -> UUID:
    """Fail where a rule asks for an id."""
    raise RuntimeError("no room")


def a_message(number: int = 1, generation: int = 0) -> LockedMessage:
    """Return a locked message."""
    return LockedMessage(SOURCE, number, number, generation)


def completes(message: LockedMessage, inquiry: bytes = NO_INQUIRY) -> LockOutcome:
    """Return the outcome of a completion."""
    return LockOutcome(message, inquiry, OutcomeKind.COMPLETE)


class Led:
    """An entity's leader, and what it has published."""

    def __init__(
        self,
        memory: Memory | None = None,
        entity: SendEntity = QUEUE,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        memory = memory or blank(is_partitioned=False)
        self.sequencer = Sequencer(entity, Tier.STANDARD, memory, new_id)
        self.decided = memory.decided
        self.published: list[Publication] = []

    def commit(self, identity: int, **content: Sequence[object]) -> Applied:
        """Carry out a commit as it comes from the inbox."""
        body = commits.encode(identity.to_bytes(16, "big"), CommitContent(**content))  # type: ignore[arg-type]
        command = arrival.read(waiting(), body)
        assert isinstance(command, Commit)
        return self.carry_out(command)

    def ask(self, identity: int, *messages: LockedMessage) -> Applied:
        """Carry out an inquiry as it comes from the inbox."""
        body = inquiries.encode_inquiry(identity.to_bytes(8, "big") * 2, messages)
        command = arrival.read(waiting(), body)
        assert isinstance(command, Inquiry)
        return self.carry_out(command)

    def report(self, *messages: LockedMessage) -> Applied:
        """Carry out a report as it comes from the inbox."""
        body = inquiries.encode_carried_out(bytes(16), messages)
        command = arrival.read(envelope.SILENT_PROPERTIES, body)
        assert isinstance(command, arrival.CarriedOut)
        return self.carry_out(command)

    def carry_out(self, command: arrival.TransactionCommand) -> Applied:
        """Carry out a command."""
        made = apply_transaction(self.sequencer, command, 0)
        self.published += made.publications
        return made

    def successor(
        self,
        published: Sequence[Publication],
        *,
        is_whole: bool = True,
        new_id: Callable[[], UUID] = uuid4,
    ) -> Led:
        """Return the next leader, which reads what the journal has.

        Args:
            is_whole: the journal has the commit marker, too.
        """
        replay = Replay(is_partitioned=False, readers={TERM}, fingerprint=BOOT)
        last = bytes(15) + b"1"
        entries = [marker(QUEUE, last, BOOT), *published]
        if is_whole:
            entries.append(commit_marker(QUEUE, last, BOOT))
        for each in [*entries, marker(QUEUE, TERM, BOOT)]:
            if each.routing_key != names.transfer_queue("orders"):
                replay.feed(Properties.decode(each.properties), each.body)
        assert not replay.unreadable
        return Led(replay.result(), self.sequencer.entity, new_id)


def waiting() -> bytes:
    """Return the properties of an envelope whose sender waits."""
    headers_of = dict(envelope.HEADERS)
    return Properties(
        headers=headers_of, delivery_mode=2, reply_to=TO.queue, correlation_id=TO.correlation_id
    ).encode()


def verdict_in(made: Applied) -> tuple[CommitVerdict, str]:
    """Return what the sender of a commit is told."""
    assert made.answer is not None
    assert made.answer.after_all, "what it follows from is not confirmed"
    reply = decode_reply(made.answer.body)
    assert isinstance(reply, Done)
    return commits.decode_verdict(reply.content)


def told_in(made: Applied) -> list[inquiries.Told]:
    """Return what a deliverer is told."""
    assert made.answer is not None
    assert made.answer.after_all, "what it follows from is not confirmed"
    reply = decode_reply(made.answer.body)
    assert isinstance(reply, Done)
    return inquiries.decode_answer(reply.content)


def table_of(publication: Publication) -> Table:
    """Return the headers of a publication."""
    return Properties.decode(publication.properties).headers or {}


def kinds_of(made: Applied) -> list[str]:
    """Return what each publication is."""
    found = []
    for each in made.publications:
        entry = bytes_in(table_of(each), headers.ENTRY)
        found.append(entry.decode() if entry else each.routing_key or each.exchange)
    return found


ITEM = Item(BARE, b"body")
TRANSFER = TransferredEnvelope("other", b"envelope")


def test_the_decision_is_before_all_that_it_leads_to() -> None:
    """A journal that has a message of a commit has its decision."""
    led = Led()
    made = led.commit(
        1, sends=[ITEM, ITEM], transfers=[TRANSFER], outcomes=[completes(a_message())]
    )
    assert kinds_of(made) == [
        "decision",
        "orders/$active",
        "orders/$active",
        "orders/$transfer",
    ]
    assert verdict_in(made) == (COMMITTED, "")
    moved = made.publications[3]
    assert moved.body == TRANSFER.body
    assert table_of(moved) == {headers.TRANSFER_TO: text("other")}
    decision = decisions.decode_decision(made.publications[0].body)
    assert decision.outcomes == [completes(a_message())]
    assert led.sequencer.memory.counters == [2]


def test_a_message_that_was_asked_for_is_settled_by_its_new_lock_only() -> None:
    """The commit by an earlier lock may come late: RabbitMQ gave the message to somebody else."""
    led = Led()
    assert told_in(led.ask(7, a_message())) == [None]
    verdict, reason = verdict_in(led.commit(1, sends=[ITEM], outcomes=[completes(a_message())]))
    assert verdict is REFUSED
    assert reason == "The lock of the message with SequenceNumber = 1 was lost before the commit."
    assert led.sequencer.memory.counters == [0]
    lock = completes(a_message(), (7).to_bytes(8, "big"))
    assert verdict_in(led.commit(2, sends=[ITEM], outcomes=[lock]))[0] is COMMITTED
    assert led.sequencer.memory.counters == [1]


def test_a_message_is_settled_by_one_transaction() -> None:
    """The second is refused, and of it nothing is done."""
    led = Led()
    led.commit(1, outcomes=[completes(a_message())])
    made = led.commit(2, sends=[ITEM], transfers=[TRANSFER], outcomes=[completes(a_message())])
    assert kinds_of(made) == ["decision"]
    verdict, reason = verdict_in(made)
    assert verdict is REFUSED
    assert reason == "Another transaction has settled the message with SequenceNumber = 1."


def test_scheduled_messages_are_cancelled_together_with_all_else() -> None:
    """One that waits no more refuses the commit."""
    led = Led()
    due_ms = 1_000_000
    led.sequencer.memory.wheel.add(place(due_ms, 0))
    led.commit(1, sends=[Item(BARE, b"", None, due_ms)])
    assert 1 in led.sequencer.memory.pending
    verdict, reason = verdict_in(led.commit(2, cancels=[1, 9], outcomes=[completes(a_message())]))
    assert verdict is REFUSED
    assert reason == "The message with SequenceNumber = 9 is not scheduled, or no longer."
    assert 1 in led.sequencer.memory.pending
    made = led.commit(3, cancels=[1], sends=[ITEM])
    assert made.answer is None
    assert kinds_of(made) == ["decision"]
    assert 1 not in led.sequencer.memory.pending
    assert made.goes_on is not None
    rest = led.carry_out(made.goes_on)
    assert verdict_in(rest)[0] is COMMITTED
    assert kinds_of(rest) == ["orders/$active"]
    assert led.sequencer.memory.counters == [2]
    later = led.successor(led.published)
    assert 1 not in later.sequencer.memory.pending


def test_a_message_that_cannot_be_read_or_stored_refuses_its_commit() -> None:
    """Nobody was told that the others are stored; a repeated arrival is refused, too."""
    led = Led(entity=TOPIC, new_id=no_room)
    made = led.commit(1, sends=[ITEM, Item(b"no properties", b"")], transfers=[TRANSFER])
    verdict, reason = verdict_in(made)
    assert verdict is REFUSED
    assert reason.startswith("A message cannot be read: ")
    assert kinds_of(made) == ["decision"]
    sends = [ITEM, POISONED]
    verdict, reason = verdict_in(led.commit(2, sends=sends, outcomes=[completes(a_message())]))
    assert (verdict, reason) == (REFUSED, "A message cannot be stored: RuntimeError: no room")
    assert led.sequencer.memory.counters == [0]
    again = led.commit(2, sends=sends, outcomes=[completes(a_message())])
    assert verdict_in(again) == (REFUSED, REFUSED_BEFORE)
    assert led.sequencer.memory.counters == [0]


def test_a_commit_that_cancels_and_cannot_store_its_messages_cancels_nothing() -> None:
    """Its messages are tried before it is decided."""
    led = Led(entity=TOPIC, new_id=no_room)
    led.sequencer.memory.wheel.add(place(1_000_000, 0))
    led.commit(1, sends=[Item(BARE, b"", None, 1_000_000)])
    assert verdict_in(led.commit(2, cancels=[1], sends=[POISONED]))[0] is REFUSED
    assert 1 in led.sequencer.memory.pending
    assert led.sequencer.memory.counters == [1]


def test_what_is_no_commit_is_a_dead_letter() -> None:
    """A section that this bridge does not know is named."""
    raw = sections.encode_bare([(9, b"more")])
    body = envelope.encode_sections(Operation.COMMIT, bytes(16), raw)
    command = arrival.read(envelope.SILENT_PROPERTIES, body)
    assert isinstance(command, RefusedItem)
    assert command.reason == arrival.MALFORMED_ENVELOPE
    assert "a section of kind 9" in command.description


def test_a_commit_that_comes_again_in_its_term_is_answered_and_nothing_else() -> None:
    """Its sender had no answer. The answer waits for what is on its way."""
    led = Led()
    content = {"sends": [ITEM], "transfers": [TRANSFER], "outcomes": [completes(a_message())]}
    led.commit(1, **content)
    made = led.commit(1, **content)
    assert kinds_of(made) == ["asked"]
    assert verdict_in(made) == (COMMITTED, "")
    assert led.sequencer.memory.counters == [1]


@pytest.mark.parametrize("reached", range(5))
def test_a_successor_publishes_what_the_journal_lacks(reached: int) -> None:
    """Wherever the publications were cut; and once, when the arrival comes twice."""
    led = Led()
    content = {"sends": [ITEM, ITEM, ITEM], "transfers": [TRANSFER]}
    led.commit(1, **content)
    later = led.successor(led.published[:reached], is_whole=False)
    made = later.commit(1, **content)
    assert verdict_in(made)[0] is COMMITTED
    assert kinds_of(made) == ["decision", *["orders/$active"] * 3, "orders/$transfer"]
    numbers = [table_of(each)[headers.SEQUENCE_NUMBER][1] for each in made.publications[1:4]]
    assert numbers == [1, 2, 3]
    assert kinds_of(later.commit(1, **content)) == ["asked"]
    assert later.sequencer.memory.counters == [3]


def test_a_successor_that_can_trust_the_journal_publishes_nothing() -> None:
    """The commit marker proves that all has reached its queue."""
    led = Led()
    content = {"sends": [ITEM], "transfers": [TRANSFER], "outcomes": [completes(a_message())]}
    led.commit(1, **content)
    later = led.successor(led.published)
    for _ in range(2):
        made = later.commit(1, **content)
        assert not made.publications
        assert verdict_in(made)[0] is COMMITTED


def test_what_was_decided_long_ago_is_answered_only() -> None:
    """All arrivals of earlier terms have come: this one was sent again."""
    led = Led()
    led.commit(1, sends=[ITEM])
    later = led.successor(led.published, is_whole=False)
    later.sequencer.forget_inherited()
    assert kinds_of(later.commit(1, sends=[ITEM])) == ["asked"]
    assert later.sequencer.memory.counters == [1]


def test_a_message_that_fails_behind_a_decision_is_a_dead_letter() -> None:
    """The commit stands: what can be stored is."""
    led = Led(entity=TOPIC)
    led.commit(1, sends=[POISONED, ITEM])
    later = led.successor(led.published[:1], is_whole=False, new_id=no_room)
    made = later.commit(1, sends=[POISONED, ITEM])
    assert verdict_in(made)[0] is COMMITTED
    decision, dead, stored = made.publications
    assert bytes_in(table_of(decision), headers.ENTRY) == b"decision"
    assert headers.DEAD_LETTER_REASON in table_of(dead)
    assert stored.exchange == "orders/$active"
    assert headers.DEAD_LETTER_REASON not in table_of(stored)


@pytest.mark.parametrize(
    ("kind", "details", "told"),
    [
        (OutcomeKind.COMPLETE, b"", (OutcomeKind.COMPLETE, b"")),
        (OutcomeKind.DEAD_LETTER, b"why", (OutcomeKind.DEAD_LETTER, b"why")),
        (OutcomeKind.DEFER, b"", (OutcomeKind.DEFER, b"")),
        (OutcomeKind.ABANDON, b"more", (OutcomeKind.ABANDON, b"more")),
        (OutcomeKind.ABANDON, b"", None),
    ],
)
def test_whoever_gets_a_message_back_is_told_its_outcome(
    kind: OutcomeKind, details: bytes, told: inquiries.Told
) -> None:
    """Until it is carried out; a copy that comes again after that is dropped."""
    led = Led()
    led.commit(1, outcomes=[LockOutcome(a_message(), NO_INQUIRY, kind, details)])
    for each in (led, led.successor(led.published)):
        assert told_in(each.ask(1, a_message(), a_message(2))) == [told, None]
        assert told_in(each.ask(1, a_message(generation=1))) == [None]
        assert told_in(each.ask(1, LockedMessage(SOURCE, 1, 99))) == [None]
        each.report(a_message())
        dropped = None if told is None else (OutcomeKind.DROP, b"")
        assert told_in(each.ask(1, a_message())) == [dropped]
        assert told_in(each.ask(1, a_message(generation=1))) == [None]


def test_a_message_that_was_put_back_with_changes_is_settled_by_a_later_commit() -> None:
    """It is of a higher generation."""
    led = Led()
    led.commit(1, outcomes=[LockOutcome(a_message(), NO_INQUIRY, OutcomeKind.ABANDON, b"x")])
    assert verdict_in(led.commit(2, outcomes=[completes(a_message(generation=1))]))[0] is COMMITTED
    assert told_in(led.ask(1, a_message(generation=1))) == [(OutcomeKind.COMPLETE, b"")]
    assert told_in(led.ask(1, a_message(generation=2))) == [None]


def test_a_late_report_of_an_earlier_outcome_does_not_close_a_later_one() -> None:
    """Else a message that is to be a dead letter would be dropped when it comes again."""
    led = Led()
    led.commit(1, outcomes=[LockOutcome(a_message(), NO_INQUIRY, OutcomeKind.ABANDON, b"x")])
    later = a_message(generation=1)
    led.commit(2, outcomes=[LockOutcome(later, NO_INQUIRY, OutcomeKind.DEAD_LETTER, b"why")])
    led.report(a_message())
    assert told_in(led.ask(1, later)) == [(OutcomeKind.DEAD_LETTER, b"why")]
    led.report(later)
    assert told_in(led.ask(2, later)) == [(OutcomeKind.DROP, b"")]


def test_so_many_outcomes_are_kept_and_closed_ones_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Open ones may be all that knows what is to be done."""
    monkeypatch.setattr(decided, "KEPT_MAX", 3)
    kept = Decided()

    def decide(number: int) -> None:
        identity = number.to_bytes(16, "big")
        kept.decide(Decision(identity, COMMITTED, [completes(a_message(number))]))

    for number in range(3):
        decide(number)
    kept.close([a_message(1), a_message(2)])
    for number in (3, 4):
        decide(number)
    assert [number for number in range(5) if kept.told_of(a_message(number))] == [0, 3, 4]
    decide(5)
    assert [number for number in range(6) if kept.told_of(a_message(number))] == [3, 4, 5]
    assert kept.open_count == kept.outcome_count == 3
    assert kept.verdict_of((2).to_bytes(16, "big")) is None
    assert kept.verdict_of((3).to_bytes(16, "big")) is COMMITTED
    for number in range(5):
        kept.note_asked(number.to_bytes(8, "big"), [a_message(100 + number)])
    assert not kept.refusal_of(completes(a_message(101)))
    assert kept.refusal_of(completes(a_message(102)))


def reserved_by(led: Led, count: int) -> tuple[int, ...]:
    """Reserve numbers; return them."""
    made = led.carry_out(arrival.Reserve(bytes(16), [None] * count, TO))
    assert kinds_of(made) == ["gap"]
    assert made.answer is not None
    told = decode_reply(made.answer.body)
    assert isinstance(told, Done)
    return told.numbers


def later(body: bytes, due_ms: int) -> Item:
    """Return a message for later."""
    return Item(BARE, body, None, due_ms)


def test_a_commit_schedules_under_numbers_that_were_reserved() -> None:
    """Nobody else gets them; behind them come those of other messages."""
    led = Led()
    led.sequencer.memory.wheel.add(place(1_000_000, 0))
    assert reserved_by(led, 2) == (1, 2)
    led.commit(1, sends=[ITEM])
    assert reserved_by(led, 1) == (4,)
    schedules = ReservedSchedules([later(b"a", 1_000_000), later(b"b", 1_000_000)], (2, 4))
    made = led.commit(2, sends=[ITEM], schedules=schedules)
    assert verdict_in(made)[0] is COMMITTED
    waits = [stamp.unwait(each.properties).number for each in made.publications[2:]]
    assert waits == [2, 4]
    assert all(headers.RESERVED in table_of(each) for each in made.publications[2:])
    assert led.sequencer.memory.counters == [5]
    assert kinds_of(led.commit(2, sends=[ITEM], schedules=schedules)) == ["asked"]
    for each in (led, led.successor(led.published)):
        assert sorted(number for number, _ in each.sequencer.memory.pending) == [2, 4]
        assert each.sequencer.memory.counters == [5]


def test_what_is_due_when_it_is_committed_waits_in_the_journal_alone() -> None:
    """Then it becomes active at once, with a new number: active messages have numbers that rise."""
    led = Led()
    (number,) = reserved_by(led, 1)
    made = led.commit(1, schedules=ReservedSchedules([later(b"a", 0)], (number,)))
    (unplaced,) = made.unplaced
    (active,) = led.sequencer.activate(unplaced.waiting, unplaced.body, 0)
    assert table_of(active)[headers.SEQUENCE_NUMBER][1] == number + 1
    assert not len(led.sequencer.memory.pending)


@pytest.mark.parametrize(("number", "text"), [(9, "was not reserved"), (1, "already"), (0, "not")])
def test_a_number_that_is_not_reserved_refuses_its_commit(number: int, text: str) -> None:
    """Of an entity that was made anew, say."""
    led = Led()
    (first,) = reserved_by(led, 1)
    led.commit(1, schedules=ReservedSchedules([later(b"a", 1_000_000)], (first,)))
    schedules = ReservedSchedules([later(b"b", 1_000_000)], (number,))
    verdict, reason = verdict_in(led.commit(2, sends=[ITEM], schedules=schedules))
    assert verdict is REFUSED
    assert text in reason
    assert led.sequencer.memory.counters == [1]
    assert list(led.sequencer.memory.pending) == [(1, 1_000_000)]


def test_a_commit_that_cannot_store_a_message_schedules_none() -> None:
    """Nothing waits under its number."""
    led = Led(entity=TOPIC, new_id=no_room)
    (number,) = reserved_by(led, 1)
    schedules = ReservedSchedules([later(b"a", 1_000_000)], (number,))
    assert verdict_in(led.commit(1, sends=[POISONED], schedules=schedules))[0] is REFUSED
    assert not len(led.sequencer.memory.pending)
    assert verdict_in(led.commit(2, schedules=schedules))[0] is COMMITTED
    assert list(led.sequencer.memory.pending) == [(1, 1_000_000)]


def test_a_commit_that_schedules_and_cancels() -> None:
    """Its messages come behind its decision, under their numbers."""
    led = Led()
    led.commit(1, sends=[later(b"old", 1_000_000)])
    (number,) = reserved_by(led, 1)
    schedules = ReservedSchedules([later(b"new", 1_000_000)], (number,))
    made = led.commit(2, cancels=[1], schedules=schedules)
    assert made.goes_on is not None
    assert not len(led.sequencer.memory.pending)
    assert verdict_in(led.carry_out(made.goes_on))[0] is COMMITTED
    assert list(led.sequencer.memory.pending) == [(number, 1_000_000)]


def test_a_partitioned_entity_reserves_in_the_partition_of_a_messages_key() -> None:
    """Where the message is to be, and those of its session."""
    memory = blank(is_partitioned=True)
    led = Led(memory, replace(QUEUE, enable_partitioning=True))
    keys = [b"a", None, b"a", b"b"]
    made = led.carry_out(arrival.Reserve(bytes(16), keys, TO))
    assert made.answer is not None
    told = decode_reply(made.answer.body)
    assert isinstance(told, Done)
    first, _, second, other = told.numbers
    assert partition_of(first) == partition_for_key(b"a")
    assert second > first
    assert partition_of(other) == partition_for_key(b"b")
    assert len(set(told.numbers)) == 4


def test_a_duplicate_is_not_scheduled_and_a_refused_one_is_no_first() -> None:
    """A message that is sent again, after a commit that failed, is not lost."""
    led = Led(entity=replace(QUEUE, requires_duplicate_detection=True))
    one, two, three = reserved_by(led, 3)
    digest = bytes(DIGEST_BYTES)
    item = replace(later(b"a", 1_000_000), digest=digest)
    refused = ReservedSchedules([item], (one,))
    assert verdict_in(led.commit(1, schedules=refused, cancels=[99]))[0] is REFUSED
    assert verdict_in(led.commit(2, schedules=ReservedSchedules([item], (two,))))[0] is COMMITTED
    assert verdict_in(led.commit(3, schedules=ReservedSchedules([item], (three,))))[0] is COMMITTED
    assert [number for number, _ in led.sequencer.memory.pending] == [two]


def test_so_many_bytes_of_details_are_kept_and_what_is_due_without_them_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message is settled once, though without its reason; a change that is lost is none."""
    monkeypatch.setattr(decided, "DETAILS_BYTES_MAX", 250)
    kept = Decided()
    kinds = OutcomeKind.DEAD_LETTER, OutcomeKind.ABANDON, OutcomeKind.DEFER, OutcomeKind.DEFER
    for number, kind in enumerate(kinds):
        outcome = LockOutcome(a_message(number), NO_INQUIRY, kind, bytes(100))
        kept.decide(Decision(number.to_bytes(16, "big"), COMMITTED, [outcome]))
    for each in (kept, Decided.decode(kept.encode())):
        assert [each.told_of(a_message(number)) for number in range(4)] == [
            (OutcomeKind.DEAD_LETTER, b""),
            None,
            (OutcomeKind.DEFER, bytes(100)),
            (OutcomeKind.DEFER, bytes(100)),
        ]
        assert each.details_bytes == 200
        each.close([a_message(0), a_message(2)])
        assert each.details_bytes == 100


def test_a_commit_that_fails_inside_the_bridge_is_refused_and_answered() -> None:
    """Its sender does not ask for ever; nothing of it is stored, however often it comes."""
    led = Led()
    body = commits.encode(bytes(16), CommitContent(sends=[ITEM]))
    command = arrival.read(waiting(), body)
    assert isinstance(command, Commit)
    made = answer_failed(led.sequencer, command, RuntimeError("a bug"))
    text = "It failed inside the bridge (RuntimeError: a bug)."
    assert verdict_in(made) == (REFUSED, text)
    assert kinds_of(made) == ["decision"]
    assert verdict_in(led.carry_out(command)) == (REFUSED, REFUSED_BEFORE)
    assert led.sequencer.memory.counters == [0]


def test_a_commit_that_fails_behind_its_decision_is_not_refused() -> None:
    """It is decided: what is left of it is for an operator."""
    led = Led()
    led.commit(0, sends=[ITEM])
    command = arrival.read(waiting(), commits.encode(bytes(16), CommitContent(sends=[ITEM])))
    assert isinstance(command, Commit)
    with pytest.raises(RuntimeError, match="a bug"):
        answer_failed(led.sequencer, command, RuntimeError("a bug"))


def test_a_question_and_a_report_that_fail_inside_the_bridge() -> None:
    """Who asks is told, and asks again; a report is dropped."""
    led = Led()
    body = inquiries.encode_inquiry(bytes(16), [a_message()])
    question = arrival.read(waiting(), body)
    assert isinstance(question, Inquiry)
    made = answer_failed(led.sequencer, question, RuntimeError("a bug"))
    assert made.answer is not None
    told = decode_reply(made.answer.body)
    assert told == Refusal(
        "amqp:internal-error", "It failed inside the bridge (RuntimeError: a bug)."
    )
    report = arrival.CarriedOut([a_message()])
    assert answer_failed(led.sequencer, report, RuntimeError("a bug")) == Applied(())


steps = st.lists(
    st.tuples(
        st.sampled_from(["decide", "refuse", "close", "ask"]), st.integers(0, 6), st.integers(0, 1)
    ),
    max_size=30,
)


@given(steps, st.integers(0, 30))
def test_a_snapshot_has_all_that_entries_have(
    happened: list[tuple[str, int, int]], cut: int
) -> None:
    """A successor knows the same, wherever the snapshot stands."""
    led = Led()
    for at, (what, number, generation) in enumerate(happened):
        message = a_message(number, generation)
        if at == cut:
            led.published += led.sequencer.snapshot(bytes(15) + b"1", BOOT, 0)
        if what == "ask":
            led.ask(at, message)
        elif what == "close":
            led.report(message)
        else:
            more = {"cancels": [99]} if what == "refuse" else {}
            lock = LockOutcome(message, NO_INQUIRY, OutcomeKind.DEFER, b"d")
            led.commit(1000 + at, outcomes=[lock], **more)
    later = led.successor(led.published)
    assert Decided.decode(later.decided.encode()).encode() == later.decided.encode()
    for at in range(len(happened)):
        identity = (1000 + at).to_bytes(16, "big")
        assert later.decided.verdict_of(identity) == led.decided.verdict_of(identity)
    for number in range(7):
        for generation in range(3):
            message = a_message(number, generation)
            # A report is in the snapshots only: what it closed may be open again.
            assert bool(later.decided.told_of(message)) == bool(led.decided.told_of(message))
            lock = completes(message)
            assert later.decided.refusal_of(lock) == led.decided.refusal_of(lock)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_memory_of_decisions_are_refused(raw: bytes) -> None:
    """Any client may publish into the journal."""
    try:
        found = Decided.decode(raw)
    except MalformedEntry:
        return
    assert Decided.decode(found.encode()).encode() == found.encode()


def test_an_entity_without_transactions_has_nothing_of_them_in_its_snapshot() -> None:
    """An older bridge can read it."""
    led = Led()
    kinds = tuple(JournalSection)
    for is_there in (False, True):
        (part,) = led.sequencer.snapshot(TERM, BOOT, 0)
        inner = sections.decode(part.body, kinds)[JournalSection.PART]
        found = sections.decode_bare(inner[16:], kinds)
        assert (JournalSection.TRANSACTIONS in found) == is_there
        led.commit(1, outcomes=[completes(a_message())])


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_inquiry_ends_no_lock_on_a_later_copy(is_kept: bool) -> None:
    """A message that was abandoned with changes comes for the first time: nobody asks for it."""
    led = Led()
    led.ask(5, a_message(1, generation=1))
    if is_kept:
        led = Led(blank_with(Decided.decode(led.decided.encode())))
    assert verdict_in(led.commit(1, outcomes=[completes(a_message(1))]))[0] is REFUSED
    assert verdict_in(led.commit(2, outcomes=[completes(a_message(1, 1))]))[0] is REFUSED
    assert verdict_in(led.commit(3, outcomes=[completes(a_message(1, 2))]))[0] is COMMITTED


def blank_with(kept: Decided) -> Memory:
    """Return the memory of a leader that has read these decisions."""
    memory = blank(is_partitioned=False)
    memory.decided = kept
    return memory
