"""Leaving out subscriptions whose queues hold up their topic, and catching them up later.

RabbitMQ confirms a publish to a topic when all queues have the message. When the oldest publish has
been unconfirmed for a while, the watch probes each subscription: it publishes the first unconfirmed
message once more, to that subscription alone. A subscription whose queue confirms nothing is left
out (`machine.inbox.left_out`). A receiver drops the second copy of the message, as after a
takeover. The journal gets a note first; then the leader's term ends, so that the next term
publishes the unconfirmed messages again without those subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from bridge.background.retry import GrowingWait, retry
from bridge.background.tasks import Tasks
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.errors import BrokerError, PublishRefused
from bridge.machine.inbox.left_out import Missed, first_copies, for_one
from bridge.machine.inbox.publication import Publication
from bridge.machine.suspects import Suspect
from bridge.model.entity import SendEntity, Subscription, Topic
from bridge.model.name import short_id
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import TermOver
from bridge.sidecar.subscriptions.catch_up import CatchUp
from bridge.topology import names
from bridge.topology.definitions import incarnation_of

STALLED_S = 8.0
PROBE_S = 2.0
"""Ten seconds without a confirm in all: `STALLED_S` until the subscriptions are probed, and
`PROBE_S` for their confirms."""

LOOK_S = 0.5
RETRY_MIN_S = 0.5
RETRY_MAX_S = 5.0
"""The longest wait between two attempts to catch up a subscription."""

PROBES_MAX = 200
"""Subscriptions that are probed at once: fewer than RabbitMQ reads when one of them is dead
(docs/rabbitmq-faults.md: unconfirmed-flow)."""

Connect = Callable[[str], AbstractAsyncContextManager[ConnectionLease]]

log = logging.getLogger(__name__)


def silent_subscriptions(leaders: Iterable[Leader]) -> list[Suspect]:
    """Return the left-out subscriptions of topics, by their leaders, for the health report."""
    text = "it is left out, and gets what it misses from the journal when its queue is back"
    found = []
    for leader in leaders:
        left_out = leader.sequencer.memory.left_out
        if left_out:  # no call for each of thousands of leaders
            there = _there(leader.entity)
            found += [
                Suspect(there[short].path, missed.since_ms, text)
                for short, missed in left_out.items()
                if short in there
            ]
    return found


def _there(topic: SendEntity) -> dict[bytes, Subscription]:
    subscriptions = topic.subscriptions if isinstance(topic, Topic) else ()
    return {short_id(incarnation_of(each)): each for each in subscriptions}


class LeftOutWatch:
    """Watches one term of a topic's leader.

    Args:
        connect: leases a separate connection.
        clock: the time (UTC ms).
    """

    def __init__(self, leader: Leader, connect: Connect, clock: Callable[[], int]) -> None:
        self._leader = leader
        self._connect = connect
        self._clock = clock
        self._time_s = asyncio.get_running_loop().time
        self._oldest: int | None = None
        self._since_s = 0.0
        self._refusal: PublishRefused | None = None
        self._asking: asyncio.Task[None] | None = None
        self._running = Tasks()
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        leader.on_refused = self._note_refusal

    def look(self) -> None:
        """Start probes when the topic is held up; otherwise start due catch-ups.

        To be called every `LOOK_S`; the work goes on as tasks.
        """
        if not self._leader.may_publish or (self._asking is not None and not self._asking.done()):
            return
        if self._refusal is not None or self._is_stalled():
            self._asking = self._running.start(self._leave_out(), "left out")
        else:
            self._catch_up()

    async def close(self) -> None:
        """Cancel all work: the term is over."""
        self._leader.meters.left_out = 0
        tasks = [*self._tasks.values(), *([self._asking] if self._asking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_stalled(self) -> bool:
        """Whether the same publish has been the oldest unconfirmed one for `STALLED_S`."""
        oldest = self._leader.in_flight.oldest
        if oldest is None or oldest != self._oldest or self._leader.connection.is_blocked:
            self._oldest, self._since_s = oldest, self._time_s()
        return self._time_s() - self._since_s >= STALLED_S

    def _note_refusal(self, error: PublishRefused) -> None:
        """Note a refusal: a queue without its process may refuse a new channel's publishes."""
        self._refusal = self._refusal or error

    async def _leave_out(self) -> None:
        """Probe the subscriptions and leave out the silent ones.

        The term ends when one was left out, and after a refusal.
        """
        self._since_s = self._time_s()  # when no subscription is silent, probe again later
        end: Exception | None = self._refusal
        in_flight = self._leader.in_flight
        in_flight.holds += 1
        try:
            async with self._connect(f"{self._leader.name} asked") as lease:
                channel = await lease.channel()
                await channel.publisher.confirm_select()
                silent = await self._find_silent(channel)
                if silent and await self._note(channel, silent):
                    # Nobody confirms what the silent ones have got: the term does not wait for it.
                    self._leader.has_failed = True
                    end = TermOver(text=f"without {', '.join(silent.values())}")
        except Exception as error:
            log.warning("subscription.unasked topic=%s error=%r", self._leader.name, error)
        finally:
            if end is not None:
                self._leader.fail(end)
            in_flight.holds -= 1
            self._leader.go_on()

    async def _find_silent(self, channel: Channel) -> dict[bytes, str]:
        """Return the subscriptions (short id -> path) whose queues confirm nothing for 10 s."""
        begun_s = self._time_s() - (0.0 if self._refusal else STALLED_S)
        firsts = self._firsts()
        silent = await self._ask(channel, firsts)
        while silent and self._time_s() - begun_s < STALLED_S + PROBE_S:
            await asyncio.sleep(LOOK_S)
            silent = await self._ask(channel, {short: firsts[short] for short in silent})
        return self._remember(silent, firsts)

    def _firsts(self) -> dict[bytes, tuple[int, Publication]]:
        """Return the first unconfirmed message of each subscription, with its number there."""
        exchange = names.active_exchange(self._leader.name)
        on_way = [
            Publication(*each)
            for one in list(self._leader.in_flight.open.values())
            for each in one.publications
        ]
        there = _there(self._leader.entity)
        firsts = first_copies(on_way, exchange)
        return {short: each for short, each in firsts.items() if short in there}

    async def _ask(
        self, channel: Channel, firsts: Mapping[bytes, tuple[int, Publication]]
    ) -> list[bytes]:
        """Probe subscriptions, each alone; return those whose queues refuse or stay silent."""
        asked = {
            short: asyncio.ensure_future(
                channel.publisher.publish_confirmed(*for_one(publication, short))
            )
            for short, (_, publication) in list(firsts.items())[:PROBES_MAX]
        }
        if not asked:
            return []
        await asyncio.wait(asked.values(), timeout=PROBE_S)
        for each in asked.values():
            each.add_done_callback(lambda done: done.cancelled() or done.exception())
        return [
            short
            for short, each in asked.items()
            if not each.done() or isinstance(each.exception(), PublishRefused)
        ]

    def _remember(
        self, silent: Sequence[bytes], firsts: Mapping[bytes, tuple[int, Publication]]
    ) -> dict[bytes, str]:
        there, left_out = _there(self._leader.entity), self._leader.sequencer.memory.left_out
        since_ms = self._clock() - int((STALLED_S + PROBE_S) * 1000)
        for short in silent:
            left_out[short] = Missed(firsts[short][0], since_ms)
            name = there[short].path
            log.warning("subscription.left_out name=%s first=%d", name, firsts[short][0])
        return {short: there[short].path for short in silent}

    async def _note(self, channel: Channel, silent: Mapping[bytes, str]) -> bool:
        """Write the left-out subscriptions to the journal; undo the change when that fails.

        Without the note in the journal, no publish may skip a subscription.
        """
        sequencer = self._leader.sequencer
        note = sequencer.journal.note_left_out(sequencer.memory)
        try:
            async with asyncio.timeout(PROBE_S):
                await channel.publisher.publish_confirmed(*note)
        except (BrokerError, TimeoutError):
            for short in silent:
                del sequencer.memory.left_out[short]
            return False
        return True

    def _catch_up(self) -> None:
        """Start a catch-up for each left-out subscription; forget those that were deleted."""
        left_out = self._leader.sequencer.memory.left_out
        self._leader.meters.left_out = len(left_out)
        if not left_out or not self._leader.is_ready:
            return
        there = _there(self._leader.entity)
        for short in list(left_out):
            if short not in there:
                self._forget(short)
            elif short not in self._tasks or self._tasks[short].done():
                trying = self._keep_trying(short, there[short])
                self._tasks[short] = self._running.start(trying, "catch-up")

    def _forget(self, short: bytes) -> None:
        sequencer = self._leader.sequencer
        if sequencer.memory.left_out.pop(short, None) is not None:
            self._leader.submit(
                (sequencer.journal.note_left_out(sequencer.memory),), site="sequencer.journal"
            )

    async def _keep_trying(self, short: bytes, subscription: Subscription) -> None:
        missed = self._leader.sequencer.memory.left_out[short]

        async def once() -> None:
            async with self._connect(subscription.path) as lease:
                await CatchUp(self._leader, subscription, missed, lease, self._clock).run()

        def failed(error: BaseException, failures: int, wait_s: float) -> None:
            trace = None if isinstance(error, BrokerError | TimeoutError) else error
            log.info(
                "subscription.waits name=%s error=%r", subscription.path, error, exc_info=trace
            )

        def is_left_out(error: BaseException) -> bool:
            return isinstance(error, Exception) and short in left_out

        left_out = self._leader.sequencer.memory.left_out
        waits = GrowingWait(RETRY_MIN_S, RETRY_MAX_S, steady_s=RETRY_MAX_S)
        await retry(once, wait_s=waits, retryable=is_left_out, on_failed=failed)
