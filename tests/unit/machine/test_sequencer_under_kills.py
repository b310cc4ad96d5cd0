"""The sequencer against a model of RabbitMQ, under kills of the bridge and of the broker.

The model keeps what RabbitMQ keeps: an inbox whose unacked messages come again in order, an active
queue, a journal and buckets. A publication is on its way until it is confirmed; a kill of the
bridge, a closed connection or a kill of the broker may cut each queue at another place. After every
step: no number names two messages, no message has two numbers, each gap has an entry. In the end
nothing is lost, and nothing is there twice where bridges ended in order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bridge.machine.inbox import large_envelope
from bridge.machine.inbox.applied import Applied, SenderAnswer, Unplaced
from bridge.machine.inbox.arrival import (
    Cancel,
    Command,
    Commit,
    Move,
    SendCommand,
    TransactionCommand,
    read,
)
from bridge.machine.inbox.journal_entries import commit_marker, is_snapshot, marker
from bridge.machine.inbox.large_envelope import LargeEnvelope
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.replay import Replay, missing_before
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.wheel import place
from bridge.model.entity import (
    DEFAULT_RULE,
    FalseFilter,
    Queue,
    Rule,
    SendEntity,
    Subscription,
    Tier,
    Topic,
    TrueFilter,
)
from bridge.model.name import short_id
from bridge.topology import names
from bridge.wire import copies, envelope, headers, snapshot, stamp
from bridge.wire.basic import Properties, Table
from bridge.wire.envelope import Item, Operation
from bridge.wire.gaps import OWN, Gap, gaps_in
from bridge.wire.journal import BucketState
from tests.fixtures.examples import examples

QUEUE = Queue(name="orders")
TAKES_NOTHING = (Rule(name="none", filter=FalseFilter()),)
SUBSCRIPTIONS = tuple(
    Subscription(topic="orders", name=name, incarnation=name, rules=rules)
    for name, rules in (
        ("one", (DEFAULT_RULE,)),
        ("other", (DEFAULT_RULE,)),
        ("idle", TAKES_NOTHING),
        ("third", (DEFAULT_RULE,)),
        ("changed", (Rule(name="act", filter=TrueFilter(), action="SET a = 1"),)),
    )
)
TOPIC = Topic(name="orders", subscriptions=SUBSCRIPTIONS)
CHANGED = short_id("changed")
TAKING = [short_id(each.incarnation) for each in SUBSCRIPTIONS if each.rules != TAKES_NOTHING]
JOURNAL = names.journal("orders")
BUCKETS = names.bucket_prefix("orders")
TRANSFERS = names.transfer_queue("orders")
BARE = Properties(delivery_mode=2).encode()
WIDE_MS = 1_000_000_000
PART_BYTES = 60
PART_MESSAGES = 2
"""So many messages of an envelope are numbered at a time."""


@dataclass
class Flight:
    """Publications on their way, and what is acked when they have arrived."""

    publications: list[Publication]
    arrival: int | None = None
    waiting: int | None = None
    unplaced: Sequence[Unplaced] = ()
    is_move: bool = False
    answer: SenderAnswer | None = None
    goes_on: Commit | None = None


@dataclass
class Rabbit:
    """The queues, as RabbitMQ keeps them."""

    inbox: list[tuple[bytes, bytes]] = field(default_factory=list)
    acking: list[int] = field(default_factory=list)
    acked: set[int] = field(default_factory=set)
    active: list[bytes] = field(default_factory=list)
    journal: list[tuple[bytes, bytes]] = field(default_factory=list)
    bucket: dict[int, bytes] = field(default_factory=dict)
    transfers: list[bytes] = field(default_factory=list)
    stored: int = 0
    fingerprint: int = 0

    def take(self, publication: Publication, *, is_journal: bool, is_queue: bool) -> None:
        """Store a publication in some of the queues that it goes to."""
        if publication.routing_key == TRANSFERS:
            self.transfers += [publication.body] * is_queue
            return
        if is_journal:
            self.journal.append((publication.properties, publication.body))
        if is_queue and publication.exchange:
            self.active.append(publication.properties)
        elif is_queue and publication.routing_key.startswith(BUCKETS):
            self.stored += 1
            self.bucket[self.stored] = publication.properties


def read_back(rabbit: Rabbit, term: bytes, step: int) -> Replay:
    """Read the journal's tail as a term does: no more than is needed."""
    while True:
        replay = Replay(
            is_partitioned=False,
            readers={term},
            fingerprint=str(rabbit.fingerprint),
        )
        start = len(rabbit.journal) - step
        for properties, body in rabbit.journal[max(start, 0) :]:
            replay.feed(Properties.decode(properties), body)
        missing = missing_before(
            (Properties.decode(properties), body)
            for properties, body in rabbit.journal[max(start, 0) :]
        )
        if missing == 0 or (start <= 0 and (missing is None or missing > 0)):
            return replay
        step = min(step, len(rabbit.journal)) + (step if missing is None else missing)


def reply_address(identity: bytes) -> bytes:
    """Return the properties of an envelope whose sender waits."""
    return Properties(
        headers=dict(envelope.HEADERS),
        delivery_mode=2,
        reply_to="address",
        correlation_id=identity.hex(),
    ).encode()


class SequencerUnderKills(RuleBasedStateMachine):
    """Arrivals, confirms, activations, snapshots and kills in any order."""

    entity: SendEntity = QUEUE

    def __init__(self) -> None:
        super().__init__()
        # Snapshots have several parts, so that a kill can leave some of them.
        self._part_bytes, snapshot.PART_BYTES_MAX = snapshot.PART_BYTES_MAX, PART_BYTES
        self._part_messages = large_envelope.PART_MESSAGES
        large_envelope.PART_MESSAGES = PART_MESSAGES
        self.rabbit = Rabbit()
        self.now_ms = 1_000_000
        self.flights: list[Flight] = []
        self.unplaced: list[tuple[int, Unplaced]] = []
        self.reserved: set[int] = set()
        self.left: dict[int, int] = {}
        self.large: LargeEnvelope | None = None
        self.fired: set[int] = set()
        self.next = 0
        self.terms = 0
        self.sent = 0
        self.identities: set[bytes] = set()
        self.sequencer: Sequencer | None = None
        self.term = b""
        self.can_repeat = False
        self.entries_read = 0
        self._begin_term(None)

    def _begin_term(self, survivor: Sequencer | None, cut: tuple[int, int] | None = None) -> None:
        """Begin a term; with a cut it is killed while it takes over.

        Args:
            survivor: the sequencer of a process that lives on.
            cut: how many of its first publications reach the journal, and their queue.
        """
        self.terms += 1
        last, self.term = self.term, self.terms.to_bytes(16, "big")
        term = self.term
        fingerprint = str(self.rabbit.fingerprint)
        mark = marker(self.entity, term, fingerprint)
        self.rabbit.journal.append((mark.properties, mark.body))
        replay = read_back(self.rabbit, term, 4)
        self.entries_read = replay.entries
        left = [each for each in self.flights if survivor is not None and not each.is_move]
        self.unplaced, self.left, self.large = [], {}, None
        again = [each for each in left if not is_snapshot(each.publications[0])]
        if survivor is None:
            self.sequencer = Sequencer(self.entity, Tier.STANDARD, replay.result(), uuid4)
        else:
            replay.go_on(last, [each for flight in again for each in flight.publications])
            learnt, memory = replay.result(), survivor.memory
            memory.known, memory.activated = learnt.known, learnt.activated
            memory.cancelled = learnt.cancelled
        assert self.sequencer is not None
        self.fired = set()
        self.next = 0
        self.ack_entries: dict[int, int] = {}
        self.inbox_end = len(self.rabbit.inbox)
        self.due_at_begin = {
            at for at, raw in self.rabbit.bucket.items() if stamp.unwait(raw).due_ms <= self.now_ms
        }
        self.first_entry: list[int] = []
        steps = [each for flight in again for each in flight.publications]
        self.sequencer.journal.entries += len(steps)
        if cut is not None and min(cut) < len(steps):
            # Killed before all that is published again is confirmed: there is no snapshot.
            for index, each in enumerate(steps):
                self.rabbit.take(each, is_journal=index < cut[0], is_queue=index < cut[1])
            return
        for each in steps:
            self.rabbit.take(each, is_journal=True, is_queue=True)
        self.flights = []
        for flight in again:
            self.answered(flight.answer)
        parts = self.sequencer.snapshot(term, fingerprint, 0)
        reached = len(parts) if cut is None else cut[0] - len(steps)
        for each in parts[:reached]:
            self.rabbit.take(each, is_journal=True, is_queue=True)

    @initialize(can_repeat=st.booleans())
    def choose(self, can_repeat: bool) -> None:
        """Let there be only such ends that leave no copies, or any."""
        self.can_repeat = can_repeat

    def put(self, identity: bytes, body: bytes, *, is_asked: bool = True) -> None:
        """Send an envelope, whose sender waits for the answer or not."""
        properties = reply_address(identity) if is_asked else envelope.SILENT_PROPERTIES
        self.rabbit.inbox.append((properties, body))

    def new_identity(self) -> bytes:
        """Return the identity of an envelope that was not sent yet."""
        self.sent += 1
        return self.sent.to_bytes(4, "big") * 4

    @rule(count=st.integers(1, 5), delay=st.sampled_from([None, -5, 50, 5000]))
    def send(self, count: int, delay: int | None) -> None:
        """A door publishes an envelope."""
        self.sent += 1
        identity = self.sent.to_bytes(16, "big")
        due_ms = None if delay is None else self.now_ms + delay
        items = [Item(BARE, b"", None, due_ms) for _ in range(count)]
        body = envelope.encode(Operation.SEND, identity, items)
        self.rabbit.inbox.append((envelope.SILENT_PROPERTIES, body))
        self.identities |= {envelope.item_identity(identity, index) for index in range(count)}

    @rule(chance=st.randoms(use_true_random=False))
    def cancel(self, chance: random.Random) -> None:
        """A door cancels something that waits."""
        assert self.sequencer is not None
        numbers = sorted(number for number, _ in self.sequencer.memory.pending)
        if numbers:
            self.sent += 1
            body = envelope.encode_cancel(self.sent.to_bytes(16, "big"), [chance.choice(numbers)])
            self.rabbit.inbox.append((envelope.SILENT_PROPERTIES, body))

    @rule(width=st.sampled_from([1, 2, 300, 2**40]), is_copies=st.booleans())
    def pass_over(self, width: int, is_copies: bool) -> None:
        """The leader passes over numbers, of the entity and of a subscription that takes all."""
        assert self.sequencer is not None
        memory = self.sequencer.memory
        last = memory.counters[0]
        found = [Gap(last + 1, last + width)]
        if is_copies and isinstance(self.entity, Topic):
            last = memory.subscriptions.get(TAKING[0], 0)
            found.append(Gap(last + 1, last + width, TAKING[0]))
        self._publish([self.sequencer.skip(found)], None)

    @precondition(lambda self: self.next < len(self.rabbit.inbox))
    @rule()
    def arrive(self) -> None:
        """A leader carries out the next message of the inbox that is not acked, or a part of it."""
        assert self.sequencer is not None
        if any(flight.goes_on is not None for flight in self.flights):
            self.confirm_all()  # the rest of that command comes first
        while self.next < len(self.rabbit.inbox) and self.next in self.rabbit.acked:
            self.next += 1
        if self.next == len(self.rabbit.inbox):
            return
        arrived = self.rabbit.inbox[self.next]
        if self.large is None:
            self.ack_entries[self.next] = self.sequencer.journal.entries
            self.left[self.next] = 1  # what has no number yet
            self.large = large_envelope.large_envelope(*arrived, folds_keys=False)
        if self.large is not None and not self.large.is_checked:
            self.large.check()
        command = read(*arrived) if self.large is None else self.large.part()
        self._carry_out(self.next, command)
        if self.large is None or self.large.is_over:
            self.large = None
            self._count_out(self.next)
            self.next += 1

    def _carry_out(self, arrival: int, command: Command | TransactionCommand) -> None:
        outcome = self.carry_out(command)
        for each in outcome.publications:
            table = _table(each.properties)
            if headers.WAITING in table and headers.RESERVED not in table:
                due_ms = stamp.unwait(each.properties).due_ms
                assert due_ms > self.now_ms, "what is due needs no bucket"
        if outcome.publications:
            self.left[arrival] += max(len(outcome.unplaced), 1)
            self._publish(list(outcome.publications), arrival, unplaced=outcome.unplaced)
            self.flights[-1].answer = outcome.answer
            self.flights[-1].goes_on = outcome.goes_on
        else:
            self.answered(outcome.answer)

    def carry_out(self, command: Command | TransactionCommand) -> Applied:
        """Have the sequencer carry out a command."""
        assert self.sequencer is not None
        assert isinstance(command, SendCommand | Cancel | Move)
        return self.sequencer.apply(command, self.now_ms)

    def answered(self, answer: SenderAnswer | None) -> None:
        """A sender gets its answer; here nobody waits for one."""
        assert answer is None

    @precondition(lambda self: self.unplaced)
    @rule()
    def make_buckets(self) -> None:
        """The buckets are made that messages wait for: these move into them, in any order."""
        assert self.sequencer is not None
        wheel = self.sequencer.memory.wheel
        waiting, self.unplaced = self.unplaced, []
        for arrival, each in waiting:
            if each.waiting.due_ms <= self.now_ms:
                publications = self.sequencer.activate(each.waiting, each.body, self.now_ms)
                self._publish(list(publications), arrival)
                continue
            where = place(each.waiting.due_ms, self.now_ms)
            if not wheel.is_usable(where):
                self._publish([self.sequencer.journal.note_bucket(where, BucketState.SAFE)], None)
                wheel.add(where)
            if not self.sequencer.is_wanted(each.waiting):
                self._count_out(arrival)
                continue
            properties = stamp.put(
                each.waiting.properties,
                stamp.waiting(
                    each.waiting.number, each.waiting.identity, each.waiting.due_ms, None
                ),
            )
            bucket = names.bucket("orders", *where)
            self.first_entry.append(self.ack_entries[arrival])
            self.flights.append(
                Flight([Publication("", bucket, properties, each.body)], arrival, is_move=True)
            )

    def _publish(
        self,
        publications: list[Publication],
        arrival: int | None,
        waiting: int | None = None,
        unplaced: Sequence[Unplaced] = (),
    ) -> None:
        assert self.sequencer is not None
        if publications:
            self.first_entry.append(self.sequencer.journal.entries - len(publications))
            self.flights.append(Flight(publications, arrival, waiting, unplaced))
        elif arrival is not None:
            self._count_out(arrival)
        elif waiting is not None:
            del self.rabbit.bucket[waiting]

    def _count_out(self, arrival: int) -> None:
        """Ack an arrival when each of its messages is active, or in a bucket."""
        self.left[arrival] -= 1
        if not self.left[arrival]:
            self.rabbit.acking.append(arrival)

    @precondition(lambda self: self.flights)
    @rule(count=st.integers(1, 4))
    def confirm(self, count: int) -> None:
        """RabbitMQ confirms the oldest publications; their arrivals are acked."""
        for flight in self.flights[:count]:
            for each in flight.publications:
                self.rabbit.take(each, is_journal=not flight.is_move, is_queue=True)
            if flight.unplaced:
                assert flight.arrival is not None
                self.unplaced += [(flight.arrival, each) for each in flight.unplaced]
            elif flight.arrival is not None:
                if flight.goes_on is not None:
                    self._carry_out(flight.arrival, flight.goes_on)
                self._count_out(flight.arrival)
            if flight.waiting is not None:
                del self.rabbit.bucket[flight.waiting]
            self.answered(flight.answer)
        del self.flights[:count], self.first_entry[:count]

    def confirm_all(self) -> None:
        """RabbitMQ confirms all, and what follows from that."""
        while self.flights:
            self.confirm(len(self.flights))

    @precondition(lambda self: self.rabbit.acking)
    @rule(count=st.integers(1, 8))
    def take_acks(self, count: int) -> None:
        """RabbitMQ takes the oldest acks that are on their way."""
        self.rabbit.acked.update(self.rabbit.acking[:count])
        del self.rabbit.acking[:count]

    @precondition(lambda self: self.next >= self.inbox_end and self.due_at_begin <= self.fired)
    @rule()
    def forget(self) -> None:
        """All that was unacked when this term began has come, and its acks were taken since."""
        assert self.sequencer is not None
        inherited = [each for each in range(self.inbox_end) if each in self.ack_entries]
        if all(each in self.rabbit.acked or self._is_on_its_way(each) for each in inherited):
            self.sequencer.forget_inherited()

    def _is_on_its_way(self, arrival: int) -> bool:
        """Whether entries of this term belong to an arrival: a snapshot's span covers them."""
        return self.left.get(arrival, 0) > 0

    @rule(step=st.integers(1, 3000))
    def pass_time(self, step: int) -> None:
        """Time goes on, and what is due fires."""
        assert self.sequencer is not None
        self.now_ms += step
        for at, raw in list(self.rabbit.bucket.items()):
            waiting = stamp.unwait(raw)
            if at in self.fired or waiting.due_ms > self.now_ms:
                continue
            self.fired.add(at)
            publications = self.sequencer.activate(waiting, b"", self.now_ms)
            self._publish(list(publications), None, at)
        due = [each for each in self.unplaced if each[1].waiting.due_ms <= self.now_ms]
        self.unplaced = [each for each in self.unplaced if each not in due]
        for arrival, each in due:
            publications = self.sequencer.activate(each.waiting, b"", self.now_ms)
            self._publish(list(publications), arrival)

    @rule()
    def snapshot(self) -> None:
        """The sequencer writes down what it knows."""
        assert self.sequencer is not None
        begun = [arrival for arrival, left in self.left.items() if left]
        unacked = [self.ack_entries[each] for each in self.rabbit.acking + begun]
        oldest = min([*self.first_entry, *unacked, self.sequencer.journal.entries])
        parts = self.sequencer.snapshot(
            self.term, str(self.rabbit.fingerprint), self.sequencer.journal.entries - oldest
        )
        self._publish(parts, None)

    @precondition(lambda self: self.can_repeat)
    @rule(cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4))
    def kill_while_they_take_over(self, cuts: list[tuple[int, int]]) -> None:
        """One term after another is killed, each after some of its first publications."""
        self._cut(cuts[0][0], cuts[0][0] - cuts[0][1])
        for in_journal, less in cuts:
            self._begin_term(None, (in_journal, in_journal - less))
        self._begin_term(None)

    @precondition(lambda self: self.can_repeat)
    @rule(
        cuts=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4),
        has_died=st.booleans(),
    )
    def fail_while_it_takes_over(self, cuts: list[tuple[int, int]], has_died: bool) -> None:
        """RabbitMQ fails again and again under a process that lives, and dies at last or not."""
        self._cut(cuts[0][0], cuts[0][0] - cuts[0][1])
        for in_journal, less in cuts:
            self.rabbit.fingerprint += 1
            self._begin_term(self.sequencer, (in_journal, in_journal - less))
        self.rabbit.fingerprint += 1
        self._begin_term(None if has_died else self.sequencer)

    @rule()
    def stop(self) -> None:
        """The bridge ends in order, when all is confirmed, and the next one comes."""
        self.confirm_all()
        self.take_acks(len(self.rabbit.acking))
        self._commit()
        self._begin_term(None)

    @precondition(lambda self: self.can_repeat)
    @rule(in_journal=st.integers(0, 8), less=st.integers(0, 8))
    def kill_bridge(self, in_journal: int, less: int) -> None:
        """Queues drop what they had not taken when the channel ended; the journal has it."""
        self._cut(in_journal, in_journal - less)
        self._begin_term(None)

    @precondition(lambda self: self.can_repeat)
    @rule(in_journal=st.integers(0, 8), less=st.integers(0, 8))
    def close_connection(self, in_journal: int, less: int) -> None:
        """The same happens to a bridge that lives, and goes on."""
        self._cut(in_journal, in_journal - less)
        self._begin_term(self.sequencer)

    @precondition(lambda self: self.can_repeat)
    @rule(in_journal=st.integers(0, 8), in_queue=st.integers(0, 8))
    def kill_broker(self, in_journal: int, in_queue: int) -> None:
        """RabbitMQ dies under a bridge that lives: each queue is cut at another place."""
        self._cut(in_journal, in_queue)
        self.rabbit.fingerprint += 1
        self._begin_term(self.sequencer)

    @precondition(lambda self: self.can_repeat)
    @rule(in_journal=st.integers(0, 8), less=st.integers(0, 8))
    def kill_both(self, in_journal: int, less: int) -> None:
        """Both die; the active queue has no more than the journal."""
        self._cut(in_journal, in_journal - less)
        self.rabbit.fingerprint += 1
        self._begin_term(None)

    def _cut(self, in_journal: int, in_queue: int) -> None:
        """Let so many of the publications on their way reach the journal, and their queue."""
        self.rabbit.acking.clear()
        flat = [(each, flight) for flight in self.flights for each in flight.publications]
        for index, (each, flight) in enumerate(flat):
            is_journal = index < in_journal and not flight.is_move
            self.rabbit.take(each, is_journal=is_journal, is_queue=index < in_queue)

    def _commit(self) -> None:
        """Write that all has landed that this term published, and that has reached RabbitMQ."""
        self.rabbit.take(
            commit_marker(self.entity, self.term, str(self.rabbit.fingerprint)),
            is_journal=True,
            is_queue=False,
        )

    @invariant()
    def numbers_and_messages_belong_together(self) -> None:
        """One number, one message; every gap has an entry."""
        named: dict[int, tuple[bytes, bool]] = {}
        numbered: dict[tuple[bytes, bool], int] = {}
        in_journal = [properties for properties, _ in self.rabbit.journal]
        for raw in [*in_journal, *self.rabbit.active, *self.rabbit.bucket.values()]:
            table = _table(raw)
            if headers.ENTRY in table:
                continue
            if headers.WAITING in table:
                waiting = stamp.unwait(raw)
                number, key = waiting.number, (waiting.identity, True)
            else:
                number = table[headers.SEQUENCE_NUMBER][1]
                key = (self._message_of(table), False)
            assert named.setdefault(number, key) == key, f"{number} names two messages"
            assert numbered.setdefault(key, number) == number, f"{key} has two numbers"
        self._are_whole([each for each in named if each not in self.reserved], OWN)

    def _are_whole(self, named: Iterable[int], short: bytes) -> None:
        """Check that a series of numbers has each one once, in a message or in a gap."""
        passed = {
            gap
            for properties, body in self.rabbit.journal
            for gap in gaps_in(_table(properties), body, short)
        }
        series = sorted([*((each, each) for each in named), *(gap[:2] for gap in passed)])
        firsts, lasts = [each[0] for each in series], [each[1] for each in series]
        assert firsts == [1, *(last + 1 for last in lasts)][: len(series)], "a gap without an entry"

    def _message_of(self, table: Table) -> bytes:
        """Return the identity of the message that something in a queue is, or is a copy of."""
        identity = table[headers.IDENTITY][1]
        assert isinstance(identity, bytes)
        return identity

    def teardown(self) -> None:
        """In the end everything that was accepted is active, or cancelled."""
        try:
            self._finish()
        finally:
            snapshot.PART_BYTES_MAX = self._part_bytes
            large_envelope.PART_MESSAGES = self._part_messages

    def _finish(self) -> None:
        assert self.sequencer is not None
        for _ in range(3):
            while self.next < len(self.rabbit.inbox):
                self.arrive()
            self.confirm_all()
            self.pass_time(WIDE_MS)
            self.confirm_all()
        self.numbers_and_messages_belong_together()
        for stored in self._stored():
            active = set(stored)
            assert self.can_repeat or len(active) == len(stored), "twice"
            self._all_are_there(active)
        assert not self.rabbit.bucket, "something still waits"

    def _stored(self) -> list[list[object]]:
        """Return the identities in each queue of active messages."""
        return [[_table(raw)[headers.IDENTITY][1] for raw in self.rabbit.active]]

    def _all_are_there(self, active: set[object]) -> None:
        cancels = {
            body
            for properties, body in self.rabbit.journal
            if _table(properties).get(headers.ENTRY) == ("S", b"cancel")
        }
        assert active <= self.identities
        assert len(self.identities - active) <= len(cancels), "lost"


def _table(properties: bytes) -> Table:
    return Properties.decode(properties).headers or {}


class TopicUnderKills(SequencerUnderKills):
    """A topic whose subscriptions count by themselves.

    Three plain copies take two publishes, the fourth is one that an action changed.
    """

    entity = TOPIC

    def __init__(self) -> None:
        self._part_max, copies.PART_MAX = copies.PART_MAX, 2
        self._changed: dict[bytes, bytes] = {}
        super().__init__()

    @invariant()
    def numbers_of_subscriptions_and_messages_belong_together(self) -> None:
        """One number of a subscription, one message; every gap has an entry."""
        named: dict[tuple[bytes, int], bytes] = {}
        numbered: dict[tuple[bytes, bytes], int] = {}
        for raw in [*[properties for properties, _ in self.rabbit.journal], *self.rabbit.active]:
            table = _table(raw)
            if not _copies(table):
                continue
            identity = self._message_of(table)
            for short, number in _copies(table):
                assert named.setdefault((short, number), identity) == identity, "two messages"
                assert numbered.setdefault((short, identity), number) == number, "two numbers"
        for short in TAKING:
            self._are_whole([number for each, number in named if each == short], short)

    def _message_of(self, table: Table) -> bytes:
        identity = super()._message_of(table)
        if len(self._changed) < len(self.identities):
            self._changed = {stamp.derived(each, CHANGED, b"act"): each for each in self.identities}
        return self._changed.get(identity, identity)

    def _stored(self) -> list[list[object]]:
        stored: dict[bytes, list[object]] = {short: [] for short in TAKING}
        for table in map(_table, self.rabbit.active):
            for short, _ in _copies(table):
                stored[short].append(self._message_of(table))
        return list(stored.values())

    def teardown(self) -> None:
        """In the end each subscription has all that was accepted, or it was cancelled."""
        try:
            super().teardown()
        finally:
            copies.PART_MAX = self._part_max


def _copies(table: Table) -> copies.Copies:
    raw = table.get(headers.COPIES, ("V", None))[1]
    return copies.decode(raw)[0] if isinstance(raw, bytes) else ()


def test_parts_that_come_again_keep_the_numbers_that_a_snapshot_has() -> None:
    """Two kills, each when the first part is in the journal once more."""
    state = TopicUnderKills()
    state.choose(can_repeat=True)
    state.send(count=1, delay=None)
    state.arrive()
    state.kill_while_they_take_over(cuts=[(2, 0)])
    state.arrive()
    state.kill_both(in_journal=1, less=0)
    state.arrive()
    state.stop()
    state.numbers_of_subscriptions_and_messages_belong_together()
    state.teardown()


TestTopicUnderKills = TopicUnderKills.TestCase
TestTopicUnderKills.settings = settings(
    max_examples=examples(100), stateful_step_count=30, deadline=None
)

TestSequencerUnderKills = SequencerUnderKills.TestCase
TestSequencerUnderKills.settings = settings(
    max_examples=examples(200), stateful_step_count=30, deadline=None
)
