"""Commits against a model of RabbitMQ, its deliverers and the locks' owners, under kills of all.

The model of the sequencer under kills is extended by messages that are locked, given back and asked
for; by numbers that are reserved, and messages that commits schedule under these; by commits that
come late, after their locks were lost, or twice; and by acks that RabbitMQ forgets. In the end each
commit was carried out wholly or not at all, and of a message that a commit has settled no receiver
has got a later lock: nothing half, nothing twice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.inbox.applied import Applied, SenderAnswer
from bridge.machine.inbox.arrival import (
    Cancel,
    Command,
    Move,
    SendCommand,
    TransactionCommand,
)
from bridge.machine.inbox.commits import apply_transaction
from bridge.wire import commits, envelope, headers, inquiries, reservations, stamp
from bridge.wire.basic import Properties, Table
from bridge.wire.commits import (
    INQUIRY_BYTES,
    NO_INQUIRY,
    CommitContent,
    CommitVerdict,
    LockedIn,
    LockedMessage,
    LockOutcome,
    OutcomeKind,
    TransferredEnvelope,
)
from bridge.wire.decisions import decode_decision
from bridge.wire.envelope import Item
from bridge.wire.reply import Done, decode_reply
from bridge.wire.reservations import ReservedSchedules
from tests.fixtures.examples import examples
from tests.unit.machine.test_sequencer_under_kills import (
    BARE,
    CHANGED,
    TOPIC,
    SequencerUnderKills,
    TopicUnderKills,
)

SOURCE = commits.source_in(b"source", LockedIn.ACTIVE)
MESSAGES = 4
"""So many messages there are to lock."""


@dataclass
class Lockable:
    """A message that receivers lock.

    Attributes:
        locks: the inquiry of each lock that was given, in their order.
        is_held: the last of them lasts.
        asking: the inquiry under way.
        was_delivered: RabbitMQ marks its next delivery as redelivered.
        is_gone: it was settled.
    """

    message: LockedMessage
    locks: list[bytes] = field(default_factory=list)
    is_held: bool = False
    asking: bytes | None = None
    was_delivered: bool = False
    is_gone: bool = False


@dataclass
class Sent:
    """A commit that was sent.

    Attributes:
        locks: the messages and which of their locks it settles.
    """

    identity: bytes
    body: bytes
    content: CommitContent
    locks: list[tuple[Lockable, int]]
    told: CommitVerdict | None = None

    @property
    def message_count(self) -> int:
        """How many messages of the pinned entity it has."""
        return len(self.content.sends) + len(self.content.schedules.items)


class _Commits(SequencerUnderKills):
    """Rules about commits, for a queue or a topic."""

    def __init__(self) -> None:
        self.lockables = [
            Lockable(LockedMessage(SOURCE, number, number * 7)) for number in range(MESSAGES)
        ]
        self.commits: dict[bytes, Sent] = {}
        self.used: set[tuple[int, int]] = set()
        self.closing: list[LockedMessage] = []
        self.reserving: set[bytes] = set()
        self.heard: set[bytes] = set()
        self.free: list[int] = []
        super().__init__()

    def carry_out(self, command: Command | TransactionCommand) -> Applied:
        """Have the sequencer carry out a command."""
        assert self.sequencer is not None
        if isinstance(command, SendCommand | Cancel | Move):
            return self.sequencer.apply(command, self.now_ms)
        assert isinstance(command, TransactionCommand)
        return apply_transaction(self.sequencer, command, self.now_ms)

    # Deliverers.

    @rule(at=st.integers(0, MESSAGES - 1))
    def deliver(self, at: int) -> None:
        """RabbitMQ gives a message to a deliverer, which asks when it was delivered before."""
        each = self.lockables[at]
        if each.is_gone or each.is_held or each.asking is not None:
            return
        if not each.was_delivered:
            each.was_delivered = each.is_held = True
            each.locks.append(NO_INQUIRY)
            return
        each.asking = self.new_identity()
        self.put(each.asking, inquiries.encode_inquiry(each.asking, [each.message]))

    @rule(at=st.integers(0, MESSAGES - 1))
    def lose_lock(self, at: int) -> None:
        """A deliverer dies, or RabbitMQ gives its message back without a word."""
        each = self.lockables[at]
        each.is_held, each.asking = False, None

    @rule(at=st.integers(0, MESSAGES - 1))
    def forget_ack(self, at: int) -> None:
        """RabbitMQ forgets the ack of a message that a commit has settled."""
        self.lockables[at].is_gone = False

    # Commits.

    @rule(count=st.integers(1, 2))
    def reserve(self, count: int) -> None:
        """A gateway asks for numbers."""
        identity = self.new_identity()
        self.reserving.add(identity)
        self.put(identity, reservations.encode_keys(identity, [None] * count))

    @rule(
        sends=st.lists(st.none() | st.just(50), max_size=2),
        transfers=st.integers(0, 2),
        count=st.integers(0, 3),
        is_late=st.booleans(),
        cancels=st.booleans(),
        schedules=st.lists(st.integers(-5, 60), max_size=2),
        chance=st.randoms(use_true_random=False),
    )
    def commit(
        self,
        sends: list[int | None],
        transfers: int,
        count: int,
        is_late: bool,
        cancels: bool,
        schedules: list[int],
        chance: random.Random,
    ) -> None:
        """A gateway sends a commit: by locks that last, or by some that were lost meanwhile."""
        assert self.sequencer is not None
        locks = [
            (each, index)
            for each in self.lockables
            for index in range(len(each.locks))
            if (each.message.number, index) not in self.used
            and (is_late or (each.is_held and index == len(each.locks) - 1))
        ]
        chosen = {each.message.number: (each, at) for each, at in chance.sample(locks, len(locks))}
        kept = list(chosen.values())[:count]
        waiting = sorted(number for number, _ in self.sequencer.memory.pending)
        identity = self.new_identity()
        numbers = [self.free.pop() for _ in schedules[: len(self.free)]]
        later = [Item(BARE, b"", None, self.now_ms + delay) for delay in schedules[: len(numbers)]]
        content = CommitContent(
            [
                Item(BARE, b"", None, None if delay is None else self.now_ms + delay)
                for delay in sends
            ],
            [
                TransferredEnvelope("other", identity + bytes((index,)))
                for index in range(transfers)
            ],
            [
                LockOutcome(each.message, each.locks[index], OutcomeKind.COMPLETE)
                for each, index in kept
            ],
            tuple(chance.sample(waiting, 1)) if cancels and waiting else (),
            schedules=ReservedSchedules(later, numbers),
        )
        if content == CommitContent([], [], [], (), schedules=ReservedSchedules([], [])):
            return
        self.used |= {(each.message.number, index) for each, index in kept}
        body = commits.encode(identity, content)
        self.commits[identity] = Sent(identity, body, content, kept)
        self.put(identity, body)

    @precondition(lambda self: self.commits)
    @rule(chance=st.randoms(use_true_random=False))
    def send_again(self, chance: random.Random) -> None:
        """A sender that has no answer, or hears its answer late, sends the same envelope."""
        sent = chance.choice(sorted(self.commits.values(), key=lambda each: each.identity))
        self.put(sent.identity, sent.body)

    @precondition(lambda self: self.closing)
    @rule()
    def report(self) -> None:
        """Owners tell what they have carried out."""
        messages, self.closing = self.closing, []
        identity = self.new_identity()
        self.put(identity, inquiries.encode_carried_out(identity, messages), is_asked=False)

    def answered(self, answer: SenderAnswer | None) -> None:
        """A sender or a deliverer hears the leader's answer."""
        if answer is None:
            return
        identity = bytes.fromhex(answer.to.correlation_id)
        reply = decode_reply(answer.body)
        assert isinstance(reply, Done)
        if identity in self.reserving:
            assert not set(reply.numbers) & self.reserved, "a number is reserved twice"
            self.reserved |= set(reply.numbers)
            if identity not in self.heard:  # whoever asked hears one answer
                self.heard.add(identity)
                self.free += reply.numbers
            return
        if identity in self.commits:
            self._told(self.commits[identity], commits.decode_verdict(reply.content)[0])
            return
        (told,) = inquiries.decode_answer(reply.content)
        for each in self.lockables:
            if each.asking == identity:
                each.asking = None
                if told is None:
                    each.is_held = True
                    each.locks.append(identity[:INQUIRY_BYTES])
                else:
                    self._settle(each)

    def _told(self, sent: Sent, verdict: CommitVerdict) -> None:
        assert sent.told in (None, verdict), "a commit has two verdicts"
        sent.told = verdict
        for each, index in sent.locks:
            if verdict is CommitVerdict.COMMITTED and each.is_held and index == len(each.locks) - 1:
                self._settle(each)

    def _settle(self, each: Lockable) -> None:
        each.is_gone, each.is_held = True, False
        self.closing.append(each.message)

    # What must hold.

    def _verdicts(self) -> dict[bytes, CommitVerdict]:
        """Return the decisions in the journal; there is one about each commit at most."""
        found: dict[bytes, CommitVerdict] = {}
        for properties, body in self.rabbit.journal:
            table = Properties.decode(properties).headers or {}
            if table.get(headers.ENTRY) == ("S", b"decision"):
                decision = decode_decision(body)
                before = found.setdefault(decision.identity, decision.verdict)
                assert before is decision.verdict, "two decisions about a commit"
        return found

    @invariant()
    def nothing_is_settled_twice(self) -> None:
        """A message that a commit has settled has no later lock, and no other commit."""
        settled: set[int] = set()
        for identity, verdict in self._verdicts().items():
            if verdict is CommitVerdict.REFUSED:
                continue
            for each, index in self.commits[identity].locks:
                assert each.message.number not in settled, "two commits settle a message"
                settled.add(each.message.number)
                assert index == len(each.locks) - 1, "a receiver has what a commit has settled"

    def _all_are_there(self, active: set[object]) -> None:
        verdicts = self._verdicts()
        stored: set[object] = set(self.identities)
        cancels = 0
        transferred = set(self.rabbit.transfers)
        for sent in self.commits.values():
            is_committed = verdicts[sent.identity] is CommitVerdict.COMMITTED
            assert sent.told is verdicts[sent.identity], "who sent it was told otherwise"
            bodies = {each.body for each in sent.content.transfers}
            assert transferred & bodies == (bodies if is_committed else set()), "half"
            if is_committed:
                cancels += len(sent.content.cancels)
                stored |= {
                    envelope.item_identity(sent.identity, index)
                    for index in range(sent.message_count)
                }
        cancels += len(
            {
                body
                for properties, body in self.rabbit.journal
                if (Properties.decode(properties).headers or {}).get(headers.ENTRY)
                == ("S", b"cancel")
            }
        )
        assert active <= stored, "half: a refused commit's message is there"
        assert len(stored - active) <= cancels, "lost"

    def _finish(self) -> None:
        """In the end every sender asks until it has its answer, and each message is delivered."""
        for sent in list(self.commits.values()):
            self.put(sent.identity, sent.body)
        super()._finish()
        for _ in range(2):
            for at in range(MESSAGES):
                self.lose_lock(at)
                self.deliver(at)
            while self.next < len(self.rabbit.inbox):
                self.arrive()
            self.confirm_all()
        verdicts = self._verdicts()
        settled = {
            each.message.number
            for sent in self.commits.values()
            if verdicts[sent.identity] is CommitVerdict.COMMITTED
            for each, _ in sent.locks
        }
        for each in self.lockables:
            assert each.is_gone == (each.message.number in settled), "half"
        self.nothing_is_settled_twice()


class CommitsUnderKills(_Commits):
    """Commits that pin a queue."""


class TopicCommitsUnderKills(_Commits, TopicUnderKills):
    """Commits that pin a topic."""

    entity = TOPIC

    def _message_of(self, table: Table) -> bytes:
        identity = super()._message_of(table)
        for sent in self.commits.values():
            for index in range(sent.message_count):
                own = envelope.item_identity(sent.identity, index)
                if identity == stamp.derived(own, CHANGED, b"act"):
                    return own
        return identity


TestCommitsUnderKills = CommitsUnderKills.TestCase
TestCommitsUnderKills.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None
)

TestTopicCommitsUnderKills = TopicCommitsUnderKills.TestCase
TestTopicCommitsUnderKills.settings = settings(
    max_examples=examples(100), stateful_step_count=40, deadline=None
)
