"""Queues' counts of ready messages and consumers, from the answers to passive declarations.

When a queue does not answer RabbitMQ within 250 ms, RabbitMQ reports no messages and no consumers
(docs/rabbitmq-faults.md: empty-when-dead). Such an answer takes 250 ms or more: zero counts that
took so long are not believed, and the bridge asks again.

Shortly behind a kill of RabbitMQ queues tell counts of before it (docs/rabbitmq-faults.md:
count-after-kill). So who takes messages for gone by two equal counts waits between them by
`ReadyCounts.pause`; who does by one does not while `may_be_old`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence

from bridge.broker.connection.address import HasChannels
from bridge.broker.connection.channel import Channel
from bridge.broker.connection.declarations import QueueState
from bridge.broker.errors import BrokerError, BrokerSilent, NotFound, ResourceLocked

WAITS_S = 0.25
"""How long RabbitMQ waits for a queue's counts before it answers with zeros."""

ASKS = 4
"""Number of doubtful answers after which a queue counts as silent."""

CHANNELS = 16
"""Number of channels at most: a silent queue holds up those of its own channel only."""

AHEAD = 4
"""Number of questions that a channel has under way. RabbitMQ handles them one after another, so a
slow answer makes those behind it doubtful, which are asked again one by one."""


OLD_S = 5.0
"""How long behind the opening of a connection RabbitMQ may tell an old count; 0.9 s were seen."""


async def queue_state(channel: Channel, queue: str) -> QueueState:
    """Return the counts that a queue itself reports.

    Raises:
        NotFound: the queue does not exist; the channel is closed.
        BrokerSilent: the queue does not answer, in `ASKS` attempts.
    """
    clock = asyncio.get_running_loop().time
    for _ in range(ASKS):
        asked_s = clock()
        state = await channel.declarations.declare_queue(queue, passive=True)
        if not _is_doubtful(state, clock() - asked_s):
            return state
    raise _silent(queue)


def may_be_old(channel: Channel) -> bool:
    """Whether what a channel's queues tell now may be a count of before a kill of RabbitMQ."""
    return asyncio.get_running_loop().time() < channel.connected_s + OLD_S


def _is_doubtful(state: QueueState, took_s: float) -> bool:
    return not (state.messages or state.consumers) and took_s >= WAITS_S


def _silent(queue: str) -> BrokerSilent:
    return BrokerSilent(text=f"the queue {queue!r} does not say what is in it")


class ReadyCounts:
    """Counts of the messages that queues could deliver now.

    Args:
        connection: opens the channels for the questions.

    Attributes:
        known: the counts of the queues that have answered so far; 0 when a queue does not exist.
        missing: the queues that do not exist.
        consumed: the queues that have consumers, which may hold messages that nobody counts.
        may_be_old: some of them may be counts of before a kill of RabbitMQ.
    """

    def __init__(self, connection: HasChannels) -> None:
        self.known: dict[str, int] = {}
        self.missing: set[str] = set()
        self.consumed: set[str] = set()
        self.may_be_old = False
        self._true_from_s = 0.0
        self._connection = connection

    def of(self, queue: str) -> int:
        """Return the number of ready messages of a queue that was asked.

        Raises:
            BrokerSilent: the queue has not answered.
        """
        if queue not in self.known:
            raise _silent(queue)
        return self.known[queue]

    async def pause(self, least_s: float) -> None:
        """Wait before a second count: so long, and until it is no old one."""
        left_s = self._true_from_s - asyncio.get_running_loop().time()
        await asyncio.sleep(max(least_s, left_s))

    def note(self, channel: Channel) -> None:
        """Note that a question goes out on a channel."""
        self._true_from_s = max(self._true_from_s, channel.connected_s + OLD_S)
        self.may_be_old = self.may_be_old or may_be_old(channel)

    async def ask(self, queues: Iterable[str]) -> None:
        """Ask queues for their counts; `known` is complete but for silent and exclusive queues.

        Raises:
            BrokerError: a channel was lost.
        """
        asked = list(dict.fromkeys(queues))
        channels = min(-(-len(asked) // AHEAD), CHANNELS)
        parts = [asked[at::channels] for at in range(channels)]
        works = (_Questions(self._connection, self).ask(part) for part in parts if part)
        await asyncio.gather(*works)


class _Questions:
    """The questions of one channel.

    Args:
        told: is completed by the answers.
    """

    def __init__(self, connection: HasChannels, told: ReadyCounts) -> None:
        self._connection = connection
        self._told = told
        self._channel: Channel | None = None
        self._asked: deque[tuple[str, float, Awaitable[QueueState]]] = deque()

    async def ask(self, queues: Sequence[str]) -> None:
        """Ask queues, and those again whose answers are doubtful."""
        try:
            for ahead in (AHEAD, *(1,) * ASKS):
                queues = await self._ask_round(deque(queues), ahead)
                if not queues:
                    break
        finally:
            await self._close()

    async def _ask_round(self, waiting: deque[str], ahead: int) -> list[str]:
        """Ask queues; return those whose answers are doubtful."""
        clock = asyncio.get_running_loop().time
        doubtful = []
        while waiting or self._asked:
            await self._ask_ahead(waiting, ahead)
            queue, asked_s, answer = self._asked.popleft()
            try:
                state = await answer
            except (NotFound, ResourceLocked) as error:
                # Of all that were asked here, the first one: answers are in order.
                if isinstance(error, NotFound) and error.says_none:
                    self._told.known[queue] = 0
                    self._told.missing.add(queue)
                elif isinstance(error, NotFound):
                    doubtful.append(queue)
                waiting.extendleft(reversed([each for each, _, _ in self._asked]))
                await self._close()
                continue
            except BaseException:
                if self._channel is not None:
                    self._channel.abandon()  # the answer is still due: nobody else may wait for it
                raise
            if _is_doubtful(state, clock() - asked_s):
                doubtful.append(queue)
            else:
                self._told.known[queue] = state.messages
                if state.consumers:
                    self._told.consumed.add(queue)
        return doubtful

    async def _ask_ahead(self, waiting: deque[str], ahead: int) -> None:
        clock = asyncio.get_running_loop().time
        if self._channel is not None and self._channel.close_reason is not None:
            if self._asked:
                return  # the first of them says why
            self._channel = None
        while waiting and len(self._asked) < ahead:
            channel = await self._opened()
            queue = waiting.popleft()
            self._told.note(channel)
            answer = channel.declarations.declare_queue(queue, passive=True)
            self._asked.append((queue, clock(), answer))

    async def _opened(self) -> Channel:
        if self._channel is None:
            self._channel = await self._connection.channel()
        return self._channel

    async def _close(self) -> None:
        """Close the channel; what it was asked and has not answered fails, and is forgotten."""
        if self._channel is not None:
            with self._channel:
                if self._asked:
                    self._channel.abandon()
            self._channel = None
        while self._asked:
            _, _, answer = self._asked.popleft()
            with contextlib.suppress(BrokerError):
                await answer
