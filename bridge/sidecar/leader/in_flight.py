"""The unconfirmed publications of a sequencer: in order, bounded, and kept beyond the term.

All publications of a term go through here, over one channel, so that numbers stand in the journal
in the order in which they were given. When a publication fails the term ends. The unconfirmed
publications are kept, and the next term of this process publishes them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from bridge.background.waits import Wait, Waits
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.delivery import Delivery
from bridge.broker.errors import BrokerError
from bridge.broker.handover import Acks, HandOver, Publish
from bridge.machine.inbox.applied import SenderAnswer
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.sequencer import Sequencer
from bridge.sidecar.leader.leader_state import Unconfirmed
from bridge.wire.envelope import Item

BEYOND = 200
"""How many more publishes than a dead queue lets pass are written for a queue: 400 to 599 from the
oldest unconfirmed one on. With 200 to 399 the hop is 18 % slower on RabbitMQ
4.3.6; with 4,000 no faster (docs/performance.md). RabbitMQ reads an ack after all earlier
publishes, so a kill in a backlog leaves about as many second copies."""

LOOK_S = 0.5
"""Interval of looks at the oldest unconfirmed publication, while there is one."""

WINDOW_BYTES = 32 << 20
"""Bytes of unconfirmed publications up to which the next arrival, of any size, is published."""


class InFlight:
    """The publications of one term that are not confirmed yet.

    Args:
        active_queues: routing key -> the queue that the active exchange leads to beside the
            journal; empty for a topic.
        beyond: how many more publications are written than a dead queue lets pass.
        waits: takes note of publications that RabbitMQ does not confirm, for health.
        entity: the entity's path.

    Attributes:
        open: by serial number, oldest first: the submissions that are unconfirmed, or whose answer
            waits for older ones.
        submitted: how many submissions there were, those of an earlier term included.
        holds: how many tasks want a pause; above 0 the sequencer publishes nothing new.
        on_failed: called when a publication failed.
        on_confirmed: called when a submission was confirmed.
        on_answer: called with the answer of a confirmed submission.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        active_queues: Mapping[str, str],
        beyond: int,
        waits: Waits,
        entity: str,
        on_failed: Callable[[BrokerError], None],
        on_confirmed: Callable[[], None],
        on_answer: Callable[[SenderAnswer], None],
    ) -> None:
        self.open: dict[int, Unconfirmed] = {}
        self.submitted = 0
        self._last_answers: dict[int, SenderAnswer] = {}
        self.holds = 0
        self.on_failed = on_failed
        self.on_confirmed = on_confirmed
        self.on_answer = on_answer
        self._handover = HandOver(channel, beyond=beyond)
        self._active = active_queues
        self._bytes = 0
        self._unsettled = 0
        self._all_settled = asyncio.Event()
        self._is_released = False
        self._waits = waits
        self._entity = entity
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.TimerHandle | None = None
        self._looked: int | None = None
        self._wait: Wait | None = None

    @property
    def has_room(self) -> bool:
        """Whether more may be published now."""
        return not self.holds and self._handover.has_room and self._bytes < WINDOW_BYTES

    @property
    def count(self) -> int:
        """The number of unconfirmed publications."""
        return self._handover.in_flight

    @property
    def oldest(self) -> int | None:
        """The serial number of the oldest submission in `open`; None when all are settled."""
        return next(iter(self.open), None) if self._unsettled else None

    def lead_to(self, queue: str) -> bool:
        """Whether a publication to this queue by the default exchange is not confirmed yet."""
        return self._handover.leads_to(queue)

    def first_entry(self, otherwise: int) -> int:
        """Return the journal's entry count before the oldest open submission, or `otherwise`."""
        oldest = next(iter(self.open.values()), None)
        return otherwise if oldest is None else oldest.first_entry

    def submit(
        self,
        sequencer: Sequencer,
        publications: Sequence[Publication],
        *,
        acks: Acks = (),
        answer: SenderAnswer | None = None,
        native: Item | None = None,
        then: Callable[[], None] | None = None,
        site: str,
    ) -> None:
        """Publish; when all publications are confirmed, ack, answer, and call `then`.

        Args:
            sequencer: the sequencer that has just made the publications.
            publications: the publications of one submission; without any, the acks and the answer
                leave at once, and `then` is not called.
            acks: deliveries to ack.
            answer: the answer to a command.
            native: the native message that the publications store, if any.
            then: called last.
            site: the hand-over site, for failpoints.
        """
        # An entry would stand in the journal before older ones, and be published twice.
        assert self._is_released, "what an earlier term left unconfirmed comes first"
        if not publications:
            self._handover.submit((), acks=acks, done=self._acked, failpoint=site)
            if answer is not None:
                self.on_answer(answer)
            return
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK_S, self._look)
        serial, self.submitted = self.submitted, self.submitted + 1
        first_entry = sequencer.journal.entries - len(publications)
        self.open[serial] = Unconfirmed(first_entry, publications, answer, native)
        size = sum([len(each.body) for each in publications])
        self._bytes += size
        self._unsettled += 1

        def done(error: BrokerError | None) -> None:
            self._bytes -= size
            self._unsettled -= 1
            if not self._unsettled:
                self._all_settled.set()
            if error is not None:
                self.on_failed(error)
                return
            if answer is not None and answer.after_all:
                self._last_answers[serial] = answer
            else:
                del self.open[serial]
                if answer is not None:
                    self.on_answer(answer)
            if self._last_answers:
                self._answer_last()
            if then is not None:
                then()
            self.on_confirmed()

        self._handover.submit(
            publications,
            targets=self._targets(publications),
            acks=acks,
            done=done,
            failpoint=site,
        )

    def _answer_last(self) -> None:
        """Send the answers that waited for all older submissions to be confirmed.

        When the term ends before, the next term sends them.
        """
        while (oldest := next(iter(self.open), -1)) in self._last_answers:
            del self.open[oldest]
            self.on_answer(self._last_answers.pop(oldest))

    def _targets(self, publications: Sequence[Publication]) -> Collection[str]:
        """Return the queues that publications go to beside the journal."""
        found = set()
        for each in publications:
            queue = self._active.get(each.routing_key) if each.exchange else each.routing_key
            if queue is not None:
                found.add(queue)
        return found

    def keep(self, unconfirmed: Sequence[Unconfirmed]) -> None:
        """Keep the unconfirmed submissions of an earlier term, to be published again."""
        self.open.update(enumerate(unconfirmed, self.submitted))
        self.submitted += len(unconfirmed)

    def release(self) -> list[Unconfirmed]:
        """Return the kept submissions of an earlier term; only then this term may submit any."""
        self._is_released = True
        unconfirmed = list(self.open.values())
        self.open.clear()
        return unconfirmed

    def ack(self, arrival: Delivery, *, site: str) -> None:
        """Ack an arrival that needs no publication."""
        acks = ((arrival.channel, arrival.tag),)
        self._handover.submit((), acks=acks, done=self._acked, failpoint=site)

    def pass_on(self, publish: Publish, arrival: Delivery, *, site: str) -> None:
        """Publish a message that is no entry of the journal, then ack an arrival."""
        acks = ((arrival.channel, arrival.tag),)
        self._handover.submit((publish,), acks=acks, done=self._acked, failpoint=site)

    async def move(self, publish: Publish, *, site: str) -> None:
        """Publish a message that the sequencer has not made, and wait until it is confirmed."""
        await self._handover.move((publish,), failpoint=site)

    async def wait_confirmed(self) -> None:
        """Wait until all submissions are confirmed; when one fails, its term ends, and cancels."""
        while self.open:
            self._all_settled.clear()
            await self._all_settled.wait()

    async def settle(self) -> None:
        """Wait until all submissions are confirmed or have failed."""
        while self._unsettled:
            self._all_settled.clear()
            await self._all_settled.wait()

    def close(self) -> None:
        """End the watch over unconfirmed publications: the term has ended."""
        if self._looking is not None:
            self._looking.cancel()
        if self._wait is not None:
            self._wait.end()

    def _look(self) -> None:
        """Have health name the entity while its oldest publication stays the same."""
        oldest = self.oldest
        if self._wait is not None and oldest != self._looked:
            self._wait.end()
            self._wait = None
        elif self._wait is None and oldest is not None and oldest == self._looked:
            reason = "RabbitMQ has not confirmed what was published"
            self._wait = self._waits.begin(self._entity, reason)
            self._wait.since_s -= LOOK_S
        self._looked = oldest
        self._looking = None
        if oldest is not None:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def _acked(self, error: BrokerError | None) -> None:
        if error is not None:
            self.on_failed(error)
