"""A term that hands over in order leaves nothing to be published again, whatever RabbitMQ does."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.background.waits import Waits
from bridge.broker.connection.connection import Connection
from bridge.broker.connection.endpoint import Endpoint
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.errors import BrokerError
from bridge.machine.inbox.arrival import SendCommand
from bridge.machine.inbox.journal_entries import commit_marker
from bridge.machine.inbox.sequencer import Sequencer
from bridge.machine.inbox.sequencer_memory import blank
from bridge.machine.inbox.wheel import BucketKey
from bridge.model.entity import Queue, Tier
from bridge.sidecar.leader.in_flight import InFlight
from bridge.sidecar.leader.leader import BESIDE_S, Leader
from bridge.sidecar.leader.leader_state import LeaderState, TermOver
from bridge.sidecar.leader.orderly_end import PAUSE_MAX_S, PAUSE_MIN_S, OrderlyEnd
from bridge.sidecar.shared_connection import SharedConnection
from bridge.wire.basic import Properties
from bridge.wire.envelope import Item
from bridge.wire.journal import BucketState
from tests.fixtures.examples import examples
from tests.fixtures.model_broker import ClockLoop, ModelBroker, Verdict

QUEUE = Queue(name="orders")
MARKER = commit_marker(QUEUE, bytes(16), "boot")
BARE = Properties(delivery_mode=2).encode()
WHY = "another bridge is to lead"

READS = {
    "stored": Verdict.STORED,
    "late": Verdict.LATE,
    "refused": Verdict.REFUSED,
    "missing": Verdict.MISSING,
}


class Term:
    """One term: its arrivals, publications and end.

    Attributes:
        acked: the arrivals that are acked; any other one would come again, to the next term.
        published: all arrivals that were published.
        copied: how many messages were published on another channel, and confirmed.
        noted: how many of them the journal has.
        stored: what RabbitMQ had stored when the term ended in order.
    """

    def __init__(self, connection: Connection, broker: ModelBroker) -> None:
        self.acked: list[int] = []
        self.published: list[int] = []
        self.copied = self.noted = 0
        self.failed: BrokerError | None = None
        self.over: TermOver | None = None
        self.stored: list[bytes] = []
        self.waits = Waits(clock=asyncio.get_running_loop().time)
        self._connection = connection
        self._broker = broker
        self._copying: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sequencer = Sequencer(QUEUE, Tier.STANDARD, blank(is_partitioned=False))

    async def begin(self) -> None:
        """Open the publishing channels."""
        self._other = await self._connection.channel()
        await self._other.publisher.confirm_select()
        channel = await self._connection.channel()
        await channel.publisher.confirm_select()
        channel.on_closed = self._fail
        self.in_flight = InFlight(
            channel,
            active_queues={},
            beyond=0,
            waits=self.waits,
            entity=QUEUE.name,
            on_failed=self._fail,
            on_confirmed=lambda: None,
            on_answer=lambda answer: None,
        )
        self.in_flight.release()
        self.end = OrderlyEnd(
            QUEUE.name,
            self.in_flight,
            marker=MARKER,
            may_mark=lambda: self.failed is None,
            note=self._note_progress,
            waits=self.waits,
            start=lambda work: self._tasks.add(asyncio.ensure_future(work)),
            on_over=self._note_over,
            on_leading_on=lambda: None,
        )

    @property
    def takes(self) -> bool:
        """Whether the term gives numbers now."""
        return not self.is_over and not self.end.is_pausing

    @property
    def is_over(self) -> bool:
        """Whether the term has ended, in order or not."""
        return self.failed is not None or self.over is not None

    def ack(self, tag: int) -> None:
        """Note that an arrival is acked: this is the channel that arrivals come on."""
        self.acked.append(tag)

    def submit(self) -> None:
        """Number the next arrival and publish it, if the term takes any now."""
        if not self.takes or not self.in_flight.has_room:
            return
        tag = len(self.published)
        self.published.append(tag)
        command = SendCommand(tag.to_bytes(16), (Item(BARE, b"%d" % tag, None, None),))
        publications = self._sequencer.apply(command, 1_000).publications
        acks = ((self, tag),)
        self.in_flight.submit(self._sequencer, publications, acks=acks, site="sequencer.number")

    def note(self) -> None:
        """Write an entry of the journal, as work beside the arrivals does at any time."""
        if not self.is_over:
            entry = self._sequencer.journal.note_bucket(BucketKey(0, 1), BucketState.GONE)
            self.in_flight.submit(self._sequencer, (entry,), site="sequencer.journal")

    def copy(self) -> None:
        """Publish a message for a subscription that catches up, on another channel, and no two."""

        async def publish() -> None:
            async with self.end.beside():
                publish = self._other.publisher.publish_confirmed
                await publish("", "sub", BARE, b"copy %d" % self.copied)
                self.copied += 1

        if self._copying is None or self._copying.done():
            self._copying = asyncio.ensure_future(publish())
            self._tasks.add(self._copying)

    def _note_progress(self) -> None:
        self.noted = self.copied
        if self.copied:
            self.note()

    def leave(self) -> None:
        """Ask for the end."""
        if not self.is_over:
            self.end.begin(TermOver(text=WHY))

    async def close(self) -> None:
        """End what still runs."""
        self.in_flight.close()
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fail(self, error: BrokerError) -> None:
        if self.over is None:
            self.failed = self.failed or error

    def _note_over(self, over: TermOver) -> None:
        self.over, self.stored = over, list(self._broker.stored)


EVENTS = ("submit", "note", "copy", "copy", "leave", "confirm", "block", "unblock", "lose", "wait")
OFTEN = ("submit", "submit", "stored", "late", "confirm")
STEPS = st.lists(
    st.tuples(st.sampled_from([*OFTEN, *OFTEN, *EVENTS, *READS]), st.integers(0, 3)), max_size=40
)


def carry_out(what: str, chance: int, term: Term, broker: ModelBroker) -> float:
    """Do one step; return how long to wait then."""
    if what in READS:
        broker.read(READS[what])
    elif what in ("submit", "note", "copy", "leave"):
        getattr(term, what)()
    elif what == "confirm":
        broker.confirm(newest_first=chance > 1, multiple=chance % 2 == 0)
    elif what in ("block", "unblock"):
        broker.block(is_blocked=what == "block")
    elif what == "lose":
        broker.lose(reads_rest=chance > 1)
    return (0.5, 2.5, 9.0, 31.0)[chance] if what == "wait" else 0.0


async def turns() -> None:
    """Let the loop do all that is ready."""
    for _ in range(5):
        await asyncio.sleep(0)


async def led(steps: list[tuple[str, int]]) -> tuple[Term, ModelBroker]:
    """Carry out all steps; then RabbitMQ confirms all that it is sent."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ClockLoop)
    broker = ModelBroker(loop)
    connection = await Connection.open(Endpoint(hosts=(("model", 5672),)), name="test")
    term = Term(connection, broker)
    await term.begin()
    for what, chance in steps:
        await asyncio.sleep(carry_out(what, chance, term, broker))
        await turns()
    broker.block(is_blocked=False)
    term.leave()
    end_s = loop.time() + 3 * PAUSE_MAX_S
    while not term.is_over and loop.time() < end_s:
        for _ in range(100):
            broker.read(Verdict.STORED)
        broker.confirm(newest_first=False, multiple=True)
        await asyncio.sleep(0.1)
    await term.close()
    await connection.close()
    return term, broker


@given(STEPS)
@example([("submit", 0), ("late", 0), ("leave", 0), ("wait", 1), ("submit", 0), ("confirm", 0)])
@example([("submit", 0), ("stored", 0), ("leave", 0), ("note", 0), ("stored", 0), ("late", 0)])
@example([("leave", 0), ("late", 0), ("wait", 1), ("submit", 0), ("wait", 1), ("confirm", 0)])
@example([("submit", 0), ("block", 0), ("leave", 0), ("wait", 3), ("submit", 0)])
@example([("submit", 0), ("leave", 0), ("refused", 0)])
@example([("copy", 0), ("late", 0), ("leave", 0), ("wait", 1), ("copy", 0), ("confirm", 0)])
@example([("submit", 0), ("submit", 0), ("late", 0), ("leave", 0), ("lose", 2)])
@settings(deadline=None, max_examples=examples(300))
def test_a_term_that_ends_in_order_leaves_nothing_to_be_published_again(
    steps: list[tuple[str, int]],
) -> None:
    """All arrivals are acked, each message is stored once, and the marker stands behind them all.

    The journal knows how far a subscription has caught up. Unless a publication or the connection
    has failed, the term does end.
    """
    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        term, broker = runner.run(led(steps))
    if term.failed is not None:
        return
    assert term.over is not None, "it ends in the end"
    assert sorted(term.acked) == term.published
    copies = [body for body in term.stored if body.startswith(b"copy")]
    assert copies == [b"copy %d" % number for number in range(term.noted)], "none comes again"
    counts = Counter(body for body in broker.stored if body.isdigit())
    assert counts == Counter(b"%d" % tag for tag in term.published)
    assert term.stored == broker.stored, "nothing is stored later"
    assert not term.stored or term.stored[-1] == MARKER.body


def test_a_term_whose_confirms_do_not_come_leads_on_and_tries_again() -> None:
    """Health says what the hand-over waits for, until it is done."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        broker = ModelBroker(loop)
        connection = await Connection.open(Endpoint(hosts=(("model", 5672),)), name="test")
        term = Term(connection, broker)
        await term.begin()
        term.submit()
        await turns()
        broker.read(Verdict.LATE)
        term.leave()
        term.submit()
        assert len(term.published) == 1, "it gives no numbers while it waits"
        await asyncio.sleep(PAUSE_MIN_S + 0.1)
        assert term.takes
        assert any(WHY in each for each in term.waits.sentences())
        term.submit()
        await turns()
        broker.read(Verdict.STORED)
        await asyncio.sleep(PAUSE_MIN_S)
        assert not term.takes, "it tries again"
        broker.confirm(newest_first=False, multiple=True)
        await turns()
        broker.read(Verdict.STORED)
        await turns()
        assert str(term.over) == WHY
        assert sorted(term.acked) == [0, 1]
        await term.close()
        assert not term.waits.late
        await connection.close()

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(work())


def test_a_stop_marks_the_journal_though_a_subscription_that_catches_up_confirms_nothing() -> None:
    """Without the marker all messages of the term came again, not those of the subscription."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        broker = ModelBroker(loop)
        connection = await Connection.open(Endpoint(hosts=(("model", 5672),)), name="test")
        term = Term(connection, broker)
        await term.begin()
        term.submit()
        await turns()
        broker.read(Verdict.STORED)
        term.copy()
        await turns()
        broker.read(Verdict.LATE)
        term.end.pause()
        settling = asyncio.create_task(term.end.settle(beside_s=BESIDE_S))
        await asyncio.sleep(BESIDE_S - 0.1)
        assert broker.stored[-1] == b"copy 0", "the copy may be confirmed yet"
        await asyncio.sleep(0.2)
        broker.read(Verdict.STORED)
        await asyncio.sleep(0.1)
        assert broker.stored[-1] == MARKER.body
        assert settling.done()
        assert settling.result()
        await term.close()
        await connection.close()

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(work())


def test_a_term_that_waits_to_hand_over_lets_the_loop_rest_though_messages_could_go_on() -> None:
    """A bucket was made that they have waited for: they go on when the term leads on."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockLoop)
        broker = ModelBroker(loop)
        connection = await Connection.open(Endpoint(hosts=(("model", 5672),)), name="test")
        term = Term(connection, broker)
        await term.begin()
        shared = SharedConnection(connection)
        shared.boot = "boot"
        leader = Leader(
            LeaderState(QUEUE, Tier.STANDARD), ConnectionLease(connection, QUEUE.name), shared
        )
        leader.in_flight, leader.orderly_end = term.in_flight, term.end
        leader.sequencer = Sequencer(QUEUE, Tier.STANDARD, blank(is_partitioned=False))
        leader.is_ready = True
        done: list[str] = []
        messages = leader._buckets.messages
        messages.await_bucket(BucketKey(0, 1), 10**15, lambda: done.append("numbered"), 1)
        term.end.pause()
        messages._awaiting.made(BucketKey(0, 1))
        leader.go_on()
        await turns()
        assert not leader._is_pump_due, "else it looks again in each turn"
        assert not done
        term.end.is_pausing = False
        leader.go_on()
        await turns()
        assert done == ["numbered"]
        messages.close()
        await term.close()
        await connection.close()

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        runner.run(work())
