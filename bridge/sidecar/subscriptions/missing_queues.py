"""Finding subscriptions whose queues were deleted by hand, so that the queues are made again.

RabbitMQ confirms a topic's publish when all existing queues have the message, so a missing queue is
no error. A look asks no queue's process, and takes place only after new publishes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.background.tasks import Tasks
from bridge.broker.connection.pool import ConnectionLease
from bridge.broker.errors import BrokerError, NotFound
from bridge.model.entity import Subscription, Topic
from bridge.sidecar.leader.leader import Leader
from bridge.sidecar.leader.leader_state import LeaderState
from bridge.sidecar.leader.routes import leave_out, stop_without
from bridge.topology.shards import active_queues


class MissingQueues:
    """Looks for the queues of a topic's subscriptions during one term of its leader.

    Args:
        state: is told of the numbers that have surely reached their queues.
        on_missing: called with the path of a subscription that lacks a queue.
        clock: the time (UTC ms).
    """

    def __init__(
        self,
        leader: Leader,
        state: LeaderState,
        connection: ConnectionLease,
        on_missing: Callable[[str], None],
        clock: Callable[[], int],
    ) -> None:
        self._state = state
        self._clock = clock
        self._candidate: tuple[int, dict[bytes, int]] | None = None
        self._on_missing = on_missing
        self._leader = leader
        self._connection = connection
        self._entries = 0
        self._tasks = Tasks()
        self._looking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Start a look, if the leader has published since the last look."""
        if not self._leader.is_ready or (self._looking is not None and not self._looking.done()):
            return
        entries = self._leader.sequencer.journal.entries
        if entries != self._entries:
            self._entries = entries
            self._looking = self._tasks.start(self._look(), "look for queues")

    async def close(self) -> None:
        """Cancel a look: the term is over."""
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> None:
        queues = {queue: each for each in self._subscriptions() for queue in active_queues(each)}
        proven = self._next_proven()
        try:
            with self._connection.channel_soon() as channel:
                await channel.barrier(queues)
            self._state.queued.update(proven)
        except NotFound as error:
            self._entries = -1  # look again: other queues may be missing, too
            named = [each.path for queue, each in queues.items() if f"'{queue}'" in error.text]
            # Read anew: a subscription may have been deleted meanwhile.
            there = self._subscriptions()
            # RabbitMQ cuts long names, which then match none.
            gone = [each for each in there if each.path in named or not named]
            for each in gone:
                self._on_missing(each.path)
            if gone and self._leader.is_ready:
                sequencer = self._leader.sequencer
                leave_out(sequencer, gone, self._state.queued, self._clock(), ends=True)
                stop_without(self._leader, f"the queue of {gone[0].path!r} was deleted")
        except BrokerError:
            self._entries = -1
        except BaseException:
            self._entries = -1
            raise

    def _next_proven(self) -> dict[bytes, int]:
        """Return the numbers that have reached their queues, as far as these exist now.

        These are the numbers of an earlier look, all confirmed since. Then the present ones are
        next.
        """
        in_flight = self._leader.in_flight
        proven: dict[bytes, int] = {}
        if self._candidate is not None:
            newest, numbers = self._candidate
            if in_flight.oldest is not None and in_flight.oldest <= newest:
                return proven
            proven = numbers
        newest = next(reversed(in_flight.open), -1)
        self._candidate = newest, dict(self._leader.sequencer.memory.subscriptions)
        return proven

    def _subscriptions(self) -> tuple[Subscription, ...]:
        topic = self._leader.entity
        return topic.subscriptions if isinstance(topic, Topic) else ()
