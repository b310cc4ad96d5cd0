"""Settled numbers and delivery counts, written for peeks to a queue's `$settled` stream.

The first peek makes the stream (`begin`). Other bridges learn of it by a notification, or look for
it when they first receive from the queue. From then on each bridge writes the numbers that it has
settled, and how often messages have failed, every `FLUSH_S`. A bridge that is killed has not
written its last ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial

from bridge.background.retry import retry
from bridge.background.supervisor import Supervisor
from bridge.background.tasks import Tasks
from bridge.broker.connection.address import is_there
from bridge.broker.errors import BrokerError, Unroutable
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.sender import Sender
from bridge.machine.browse.failed_deliveries import FailedDeliveries
from bridge.machine.ranges import ranges_of
from bridge.model.errors import ServiceBusError
from bridge.topology import names, parts
from bridge.topology.entity_table import Changes
from bridge.wire.settled import PROPERTIES, entries

FLUSH_S = 0.05

LOOK_AGAIN_S = 1.0
"""The wait before RabbitMQ is asked again whether a settled stream exists."""

UNTOLD_MAX = 1_000_000
"""The most numbers that wait while RabbitMQ takes no messages; older ones are forgotten."""

_SLICE = 20_000

log = logging.getLogger(__name__)


class _State(Enum):
    UNKNOWN = "nobody has looked for the stream yet"
    OFF = "there is none: nobody has peeked"
    ON = "there is one"


class UnwrittenNumbers:
    """What this process has not yet written to the settled stream of one queue.

    Attributes:
        active: numbers of messages that have left the queue.
        deferred: numbers of its deferred messages that have been settled.
        failed: how often messages of the queue have failed; also before the first peek.
        known: yields the numbers that this process knows to be settled.
    """

    def __init__(self, queue: str) -> None:
        self.stream = names.settled(queue)
        self.state = _State.UNKNOWN
        self.known: Callable[[], Iterator[int]] = lambda: iter(())
        self.active: list[int] = []
        self.deferred: list[int] = []
        self.failed = FailedDeliveries()
        self.is_being_told = False
        self.writing = asyncio.Lock()

    @property
    def is_told(self) -> bool:
        """Whether nothing waits to be written."""
        return not self.active and not self.deferred and not self.failed.counts

    def left_active(self, number: int) -> None:
        """Note that a message has left its queue."""
        if self.failed.counts:
            self.failed.left(number)
        if self.state is not _State.OFF and number >= 0:
            self.active.append(number)

    def left_deferred(self, number: int) -> None:
        """Note that a deferred message has been settled."""
        if self.state is not _State.OFF:
            self.deferred.append(number)

    def stop(self) -> None:
        """Forget all settled numbers: the queue has no settled stream."""
        self.state = _State.OFF
        self.active.clear()
        self.deferred.clear()

    def forget(self) -> None:
        """Forget all: the entity was deleted."""
        self.stop()
        self.failed.counts.clear()


class UnwrittenSettlements:
    """The records of this process, one for each queue of RabbitMQ."""

    def __init__(
        self, connections: ConsumerConnections, sender: Sender, supervisor: Supervisor
    ) -> None:
        self._connections = connections
        self._sender = sender
        self._supervisor = supervisor
        self._records: dict[str, UnwrittenNumbers] = {}
        self._telling: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    def __repr__(self) -> str:
        on = sum(record.state is _State.ON for record in self._records.values())
        return f"UnwrittenSettlements({len(self._records)} queues, {on} told)"

    def of(self, queue: str) -> UnwrittenNumbers:
        """Return the record of a queue of RabbitMQ."""
        record = self._records.get(queue)
        if record is None:
            record = self._records[queue] = UnwrittenNumbers(queue)
            self._tasks.start(self._look(record))
        return record

    def follow(self, changes: Changes) -> None:
        """Forget the records of the queues of entities that are no more."""
        for path in changes.gone:
            for queue in (names.active_queue(path), names.dead_letter_queue(path)):
                if (record := self._records.pop(queue, None)) is not None:
                    record.forget()

    async def begin(self, queue: str) -> bool:
        """Make a queue's settled stream, unless it exists; return whether it was made now.

        Raises:
            BrokerError: RabbitMQ does not make the stream.
        """
        is_new = not await is_there(self._connections, names.settled(queue))
        if is_new:
            async with self._connections.apart(names.settled(queue)) as lease:
                channel = await lease.channel()
                await channel.declarations.declare_queue(parts.settled(queue))
        record = self.of(queue)
        if self._begin_telling(record):
            await self._tell_known(record)
        return is_new

    def is_told(self, queue: str) -> bool:
        """Return whether a queue is known to have a settled stream; the first call looks for it."""
        return self.of(queue).state is _State.ON

    def hear(self, entity: str) -> None:
        """Write settled numbers of an entity from this call on: another bridge has peeked it."""
        for queue in (names.active_queue(entity), names.dead_letter_queue(entity)):
            record = self.of(queue)
            if self._begin_telling(record):
                self._tasks.start(self._tell_quietly(record))

    async def _tell_quietly(self, record: UnwrittenNumbers) -> None:
        try:
            await self._tell_known(record)
        except (ServiceBusError, BrokerError) as error:
            log.warning("settled.untold stream=%s error=%s", record.stream, error)

    async def _tell_known(self, record: UnwrittenNumbers) -> None:
        """Write all known settled numbers and delivery counts of a queue.

        Of deferred messages none are known: their queue's owner tells a peek which are there.
        """
        for count, number in enumerate(record.known(), 1):
            record.active.append(number)
            if count % _SLICE == 0:
                await asyncio.sleep(0)
        await self._flush(record)

    async def flush(self, *queues: str) -> None:
        """Write the waiting numbers of queues now, of those that have settled streams."""
        writes = []
        for queue in queues:
            record = self._records.get(queue)
            if record is None or record.state is not _State.ON:
                continue
            if record.writing.locked() or not record.is_told:
                writes.append(self._flush(record))
        if writes:
            await asyncio.gather(*writes)

    async def close(self) -> None:
        """Write the last numbers, for at most 1 s a queue, and stop."""
        for record in self._records.values():
            if record.state is _State.ON:
                with contextlib.suppress(ServiceBusError, BrokerError, TimeoutError):
                    async with asyncio.timeout(1):
                        await self._flush(record)
        self._tasks.cancel()
        if self._telling is not None:
            self._telling.cancel()

    async def _look(self, record: UnwrittenNumbers) -> None:
        """Find out whether the queue has a settled stream."""
        looked = partial(is_there, self._connections, record.stream)
        is_on = await retry(looked, wait_s=LOOK_AGAIN_S, retryable=Exception)
        if record.state is not _State.UNKNOWN:
            return
        if is_on:
            self._begin_telling(record)
        else:
            record.stop()

    def _begin_telling(self, record: UnwrittenNumbers) -> bool:
        """Write new settled numbers of a queue from now on; return whether none were till now."""
        if record.state is _State.ON:
            return False
        record.state = _State.ON
        if self._telling is None:
            self._telling = self._supervisor.keep("settled numbers", self._keep_telling).task
        return True

    async def _keep_telling(self) -> None:
        """Write the waiting numbers of all queues with a settled stream, every `FLUSH_S`."""
        while True:
            await asyncio.sleep(FLUSH_S)
            for record in self._records.values():
                if record.state is not _State.ON or record.is_being_told:
                    continue
                if record.active or record.deferred or record.failed.counts:
                    record.is_being_told = True
                    self._tasks.start(self._tell(record))

    async def _tell(self, record: UnwrittenNumbers) -> None:
        try:
            await self._flush(record)
        except (ServiceBusError, BrokerError) as error:
            log.warning("settled.untold stream=%s error=%s", record.stream, error)
            await asyncio.sleep(1)
        finally:
            record.is_being_told = False

    async def _flush(self, record: UnwrittenNumbers) -> None:
        async with record.writing:
            active, deferred = record.active[:], record.deferred[:]
            failed = dict(record.failed.counts)
            if record.is_told:
                return
            del record.active[:], record.deferred[:]
            try:
                for body in entries(ranges_of(active), ranges_of(deferred), failed):
                    await self._sender.publish("", record.stream, PROPERTIES, body)
                record.failed.written(failed)
            except Unroutable:
                record.forget()  # the entity was deleted, and its streams with it
            except BaseException:
                record.active[:0] = active[-UNTOLD_MAX:]
                record.deferred[:0] = deferred[-UNTOLD_MAX:]
                raise
