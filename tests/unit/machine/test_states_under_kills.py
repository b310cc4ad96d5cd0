"""States of sessions in commits, against a model of RabbitMQ, under kills of leaders and owners.

The model of the sequencer under kills is extended by the owner of a shard, which is killed between
any two steps: what it has published arrives or not, RabbitMQ forgets the last of its acks, and the
next owner gets the messages of `$sessions` in any order. Commits come late, or twice. Each is
wholly carried out or not at all, and a state that was replaced or cleared never comes back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from bridge.machine.inbox.applied import Applied, SenderAnswer
from bridge.machine.inbox.arrival import Command, TransactionCommand
from bridge.machine.inbox.commits import apply_transaction
from bridge.machine.sessions.states import States
from bridge.wire import commits, headers, inquiries
from bridge.wire.basic import Properties
from bridge.wire.commits import (
    INQUIRY_BYTES,
    NO_INQUIRY,
    CommitContent,
    CommitVerdict,
    LockedIn,
    LockedMessage,
    StateOutcome,
    shard_of_states,
)
from bridge.wire.decisions import decode_decision
from bridge.wire.reply import Done, decode_reply
from tests.fixtures.examples import examples
from tests.unit.machine.test_sequencer_under_kills import SequencerUnderKills

SOURCE = commits.source_in(b"source", LockedIn.STATES)
SHARD = 3
SESSIONS = ("a", "b")
IDS = {"a": ("a", "A"), "b": ("b", "B")}
VALUES = (None, b"1", b"2")


@dataclass
class Kept:
    """A session that a transaction keeps.

    Attributes:
        below_ms: the times of states that the next one follows; -1: a bare state is on its way.
    """

    below_ms: int = -1
    identity: bytes | None = None


@dataclass
class SentState:
    """A commit that was sent.

    Attributes:
        is_resolved: its session went on, with its state or without.
    """

    session_id: str
    body: bytes
    outcome: StateOutcome
    told: CommitVerdict | None = None
    is_resolved: bool = False


@dataclass
class StatesOwner:
    """The owner of the shard.

    Attributes:
        asking: the inquiry that it waits for; `None`: it has an answer.
        publishing: states on their way to RabbitMQ, and what follows their delivery.
    """

    inquiry: bytes = NO_INQUIRY
    asking: bytes | None = None
    is_ready: bool = True
    states: States = field(default_factory=States)
    kept: dict[str, Kept] = field(default_factory=dict)
    publishing: list[tuple[str, int, bytes | None, Callable[[], None]]] = field(
        default_factory=list
    )


class StatesUnderKills(SequencerUnderKills):
    """Pins, commits, plain changes and kills in any order."""

    # What is about messages is tried elsewhere.
    send = cancel = pass_over = make_buckets = None  # type: ignore[assignment]
    close_connection = fail_while_it_takes_over = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.queue: dict[int, tuple[str, int, bytes | None]] = {}
        self.tags = 0
        self.acks: list[int] = []
        self.owner = StatesOwner()
        self.commits: dict[bytes, SentState] = {}
        self.closing: list[LockedMessage] = []
        self.allowed: dict[str, set[bytes | None]] = {each: {None} for each in SESSIONS}
        self.cleared: dict[str, tuple[int, bytes | None]] = {}
        self.chance = random.Random(0)
        super().__init__()

    def carry_out(self, command: Command | TransactionCommand) -> Applied:
        """Have the sequencer carry out a command."""
        if not isinstance(command, TransactionCommand):
            return super().carry_out(command)
        assert self.sequencer is not None
        return apply_transaction(self.sequencer, command, self.now_ms)

    # The owner.

    def _publish_state(
        self, session_id: str, value: bytes | None, then: Callable[[], None], least_ms: int = 0
    ) -> None:
        owner = self.owner
        on_way = [at for each, at, _, _ in owner.publishing if each.upper() == session_id.upper()]
        assert not on_way, "changes of one session are made one after the other"
        updated_ms = max(owner.states.next_ms(session_id, self.now_ms), least_ms)
        owner.publishing.append((session_id, updated_ms, value, then))

    def _arrived(self, tag: int) -> None:
        earlier = self.owner.states.arrived(*self.queue[tag], tag)
        if earlier is not None:
            self.acks.append(earlier)

    @precondition(lambda self: self.owner.publishing)
    @rule(count=st.integers(1, 3))
    def deliver(self, count: int) -> None:
        """RabbitMQ delivers states to the owner."""
        for _ in range(min(count, len(self.owner.publishing))):
            *message, then = self.owner.publishing.pop(0)
            self.tags += 1
            self.queue[self.tags] = (message[0], message[1], message[2])
            self._arrived(self.tags)
            then()
        if self.owner.asking is None and not self.owner.is_ready and not self.owner.publishing:
            self._is_ready()

    @precondition(lambda self: self.acks)
    @rule(count=st.integers(1, 4))
    def apply_acks(self, count: int) -> None:
        """RabbitMQ applies the oldest acks."""
        for tag in self.acks[:count]:
            del self.queue[tag]
        del self.acks[:count]

    def _free(self, session_id: str) -> bool:
        owner = self.owner
        is_changing = any(each[0].upper() == session_id.upper() for each in owner.publishing)
        return owner.is_ready and session_id not in owner.kept and not is_changing

    @rule(session_id=st.sampled_from(SESSIONS), spelt=st.integers(0, 1))
    def pin(self, session_id: str, spelt: int) -> None:
        """A transaction is to give a session a state."""
        if not self._free(session_id):
            return
        owner, kept = self.owner, Kept()
        owner.kept[session_id] = kept

        def begin() -> None:
            kept.below_ms = owner.states.next_ms(session_id, self.now_ms)
            owner.states.note_followed(kept.below_ms)

        if owner.states.has_any(session_id):
            begin()
        else:
            self._publish_state(IDS[session_id][spelt], None, begin)

    @rule(
        session_id=st.sampled_from(SESSIONS),
        value=st.sampled_from(VALUES),
        spelt=st.integers(0, 1),
    )
    def commit(self, session_id: str, value: bytes | None, spelt: int) -> None:
        """The transaction is committed; it may be that its envelope comes late."""
        kept = self.owner.kept.get(session_id)
        if kept is None or kept.below_ms < 0 or kept.identity is not None:
            return
        kept.identity = self.new_identity()
        spelling = IDS[session_id][spelt]
        outcome = StateOutcome(SOURCE, SHARD, self.owner.inquiry, kept.below_ms, spelling, value)
        body = commits.encode(kept.identity, CommitContent(states=[outcome]))
        self.commits[kept.identity] = SentState(session_id, body, outcome)
        if spelt:
            self.put(kept.identity, body)

    @rule(
        session_id=st.sampled_from(SESSIONS),
        value=st.sampled_from(VALUES),
        steps=st.integers(0, 3),
    )
    def transact(self, session_id: str, value: bytes | None, steps: int) -> None:
        """A transaction, as far as it comes."""
        self.pin(session_id, 0)
        for step in (
            lambda: self.deliver_all(),
            lambda: self.commit(session_id, value, 1),
            lambda: self.lead(2),
        )[:steps]:
            step()

    @rule(count=st.integers(1, 4))
    def lead(self, count: int) -> None:
        """The leader carries out what has come."""
        for _ in range(count):
            if self.next < len(self.rabbit.inbox):
                self.arrive()
        self.confirm_all()

    @rule()
    def deliver_all(self) -> None:
        """RabbitMQ delivers all states to the owner."""
        while self.owner.publishing:
            self.deliver(9)

    @precondition(lambda self: self.commits)
    @rule(chance=st.randoms(use_true_random=False))
    def send_again(self, chance: random.Random) -> None:
        """A sender that has no answer, or hears its answer late, sends the same envelope."""
        identity = chance.choice(sorted(self.commits))
        self.put(identity, self.commits[identity].body)

    @rule(session_id=st.sampled_from(SESSIONS))
    def roll_back(self, session_id: str) -> None:
        """The transaction is rolled back before its commit is sent."""
        kept = self.owner.kept.get(session_id)
        if kept is not None and kept.below_ms >= 0 and kept.identity is None:
            self._end(session_id)

    def _end(self, session_id: str) -> None:
        tag = self.owner.states.strip(session_id)
        if tag is not None:
            self.acks.append(tag)
        del self.owner.kept[session_id]

    @rule(session_id=st.sampled_from(SESSIONS), value=st.sampled_from(VALUES))
    def change(self, session_id: str, value: bytes | None) -> None:
        """A receiver sets the state without a transaction, or clears it."""
        if not self._free(session_id):
            return
        allowed, states = self.allowed[session_id], self.owner.states
        if value is None:
            before = states.value_of(session_id)
            tag = states.clear(session_id)
            if tag is not None:
                self.acks.append(tag)
                self.cleared[session_id] = tag, before
            self.allowed[session_id] = {None}
            return
        allowed.add(value)
        self._publish_state(session_id, value, lambda: self._set(session_id, value))

    def _set(self, session_id: str, value: bytes | None) -> None:
        self.allowed[session_id] = {value}
        self.cleared.pop(session_id, None)

    @precondition(lambda self: self.closing)
    @rule()
    def report(self) -> None:
        """The owner tells what it has set."""
        messages, self.closing = self.closing, []
        body = inquiries.encode_carried_out(self.new_identity(), messages)
        self.put(b"", body, is_asked=False)

    @rule(
        arrives=st.integers(0, 2),
        applied=st.integers(0, 4),
        reports=st.booleans(),
        chance=st.randoms(use_true_random=False),
    )
    def kill_owner(self, arrives: int, applied: int, reports: bool, chance: random.Random) -> None:
        """The owner is killed; the next one asks the leader, and waits for the answer."""
        for session_id, updated_ms, value, _ in self.owner.publishing[:arrives]:
            self.tags += 1
            self.queue[self.tags] = (session_id, updated_ms, value)
        if self.acks:
            self.apply_acks(applied)
        for session_id, (tag, before) in self.cleared.items():
            if tag in self.acks:  # RabbitMQ does not confirm acks
                self.allowed[session_id].add(before)
        self.cleared.clear()
        self.acks.clear()
        if not reports:
            self.closing.clear()
        self.chance = chance
        identity = self.new_identity()
        self.owner = StatesOwner(identity[:INQUIRY_BYTES], asking=identity, is_ready=False)
        asked = [shard_of_states(SOURCE, SHARD)]
        self.put(identity, inquiries.encode_inquiry(identity, asked))

    def answered(self, answer: SenderAnswer | None) -> None:
        """A sender or the next owner hears the leader's answer."""
        if answer is None:
            return
        identity = bytes.fromhex(answer.to.correlation_id)
        reply = decode_reply(answer.body)
        assert isinstance(reply, Done)
        if identity in self.commits:
            self._told(identity, commits.decode_verdict(reply.content)[0])
        elif identity == self.owner.asking:
            (told,) = inquiries.decode_answer(reply.content)
            self.owner.asking = None
            self._take_over([] if told is None else commits.decode_states(told[1]))

    def _told(self, identity: bytes, verdict: CommitVerdict) -> None:
        sent = self.commits[identity]
        assert sent.told in (None, verdict), "a commit has two verdicts"
        is_first = sent.told is None
        sent.told = verdict
        kept = self.owner.kept.get(sent.session_id)
        if not is_first or kept is None or kept.identity != identity:
            return
        if verdict is CommitVerdict.REFUSED:
            sent.is_resolved = True
            self._end(sent.session_id)
            return

        def done() -> None:
            sent.is_resolved = True
            self._set(sent.session_id, sent.outcome.state)
            self.closing.append(sent.outcome.message)
            self._end(sent.session_id)

        self._publish_state(
            sent.outcome.session_id, sent.outcome.state, done, sent.outcome.below_ms
        )

    def _take_over(self, told: list[StateOutcome]) -> None:
        tags = list(self.queue)
        self.chance.shuffle(tags)
        for tag in tags:
            self._arrived(tag)
        for outcome in told:
            close = self._closer(outcome)
            self.owner.states.note_followed(outcome.below_ms)
            if self.owner.states.is_due(outcome.session_id, outcome.below_ms):
                self._publish_state(outcome.session_id, outcome.state, close, outcome.below_ms)
            else:
                close()
        if not self.owner.publishing:
            self._is_ready()

    def _closer(self, outcome: StateOutcome) -> Callable[[], None]:
        return lambda: self.closing.append(outcome.message)

    def _is_ready(self) -> None:
        """The next owner gives sessions: each has the state that it is to have."""
        owner = self.owner
        for session_id in owner.states.bare:
            tag = owner.states.strip(session_id)
            assert tag is not None
            self.acks.append(tag)
        owner.is_ready = True
        verdicts = self._verdicts()
        for identity, sent in self.commits.items():
            if not sent.is_resolved:
                sent.is_resolved = True
                if verdicts.get(identity) is CommitVerdict.COMMITTED:
                    self.allowed[sent.session_id] = {sent.outcome.state}
                else:  # it is refused for good
                    sent.told = CommitVerdict.REFUSED
        for session_id in SESSIONS:
            found = owner.states.value_of(session_id)
            assert found in self.allowed[session_id], f"{session_id} has {found!r}"
            self.allowed[session_id] = {found}

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
    def nothing_refused_is_committed(self) -> None:
        """A session that went on without a commit's state never gets it."""
        for identity, verdict in self._verdicts().items():
            told = self.commits[identity].told
            assert told in (None, verdict), "half"

    def _finish(self) -> None:
        """In the end every sender asks until it has its answer, and the next owners give all."""
        for identity, sent in list(self.commits.items()):
            self.put(identity, sent.body)
        for applied in (0, 9):
            self.kill_owner(1, applied, False, self.chance)
            super()._finish()
            while self.owner.publishing:
                self.deliver(9)
            assert self.owner.is_ready
        if self.closing:
            self.report()
        super()._finish()
        assert all(each.is_resolved for each in self.commits.values())
        assert self._verdicts().keys() == self.commits.keys()
        assert self.sequencer is not None
        assert not self.sequencer.memory.decided.states, "kept for nobody"


TestStatesUnderKills = StatesUnderKills.TestCase
TestStatesUnderKills.settings = settings(
    max_examples=examples(100), stateful_step_count=60, deadline=None
)
