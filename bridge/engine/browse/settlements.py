"""Which messages have left a queue, told to whoever browses: numbers, in a stream beside the queue.

Nothing is told before somebody peeks: the stream is made by the first peek (`begin`), and bridges
find it when they first receive from the queue, or hear of it. From then on each writes what it has
settled, every `FLUSH_S`; a bridge that is killed has not told its last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial

from bridge.broker.connection.address import is_there
from bridge.broker.errors import BrokerError, Unroutable
from bridge.broker.retry import retry
from bridge.engine.receiving.connections import ConsumerConnections
from bridge.engine.sending.sender import Sender
from bridge.engine.tasks import Tasks
from bridge.machine.ranges import ranges_of
from bridge.model import entity as model
from bridge.model.errors import ServiceBusError
from bridge.topology import names, parts
from bridge.wire.settled import PROPERTIES, entries

FLUSH_S = 0.05

LOOK_AGAIN_S = 1.0
"""RabbitMQ is asked again so much later whether there is a stream, when it did not answer."""

UNTOLD_MAX = 1_000_000
"""So many numbers wait while RabbitMQ takes nothing; more are forgotten."""

_SLICE = 20_000

log = logging.getLogger(__name__)


class _State(Enum):
    UNKNOWN = "nobody has looked for the stream yet"
    OFF = "there is none: nobody has peeked"
    ON = "there is one"


class Record:
    """What this process has to tell of one queue.

    Attributes:
        active: numbers that have left it.
        deferred: numbers that have left what was set aside of it.
        known: yields the numbers that are known to be settled.
    """

    def __init__(self, queue: str) -> None:
        self.stream = names.settled(queue)
        self.state = _State.UNKNOWN
        self.known: Callable[[], Iterator[int]] = lambda: iter(())
        self.active: list[int] = []
        self.deferred: list[int] = []
        self.is_being_told = False
        self.writing = asyncio.Lock()

    @property
    def is_told(self) -> bool:
        """Whether nothing waits to be told."""
        return not self.active and not self.deferred

    def left_active(self, number: int) -> None:
        """A message has left its queue."""
        if self.state is not _State.OFF and number >= 0:
            self.active.append(number)

    def left_deferred(self, number: int) -> None:
        """A deferred message has left its queue."""
        if self.state is not _State.OFF:
            self.deferred.append(number)

    def stop(self) -> None:
        """There is nobody to tell."""
        self.state = _State.OFF
        self.active.clear()
        self.deferred.clear()


class Settlements:
    """The records of this process."""

    def __init__(self, connections: ConsumerConnections, sender: Sender) -> None:
        self._connections = connections
        self._sender = sender
        self._records: dict[str, Record] = {}
        self._telling: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    def __repr__(self) -> str:
        on = sum(record.state is _State.ON for record in self._records.values())
        return f"Settlements({len(self._records)} queues, {on} told)"

    def of(self, queue: str) -> Record:
        """Return the record of a queue of RabbitMQ."""
        record = self._records.get(queue)
        if record is None:
            record = self._records[queue] = Record(queue)
            self._tasks.start(self._look(record))
        return record

    def follow(self, namespace: model.Namespace) -> None:
        """The definitions have changed: of a queue that is gone there is nothing to tell."""
        paths = [each.path for each in model.receive_entities(namespace)]
        there = {*map(names.active_queue, paths), *map(names.dead_letter_queue, paths)}
        for queue in self._records.keys() - there:
            self._records.pop(queue).stop()

    async def begin(self, queue: str) -> bool:
        """Make the stream of a queue, unless it is there; return whether it was not.

        Raises:
            BrokerError: RabbitMQ does not make it.
        """
        is_new = not await is_there(self._connections, names.settled(queue))
        if is_new:
            with await self._connections.channel() as channel:
                await channel.declarations.declare_queue(parts.settled(queue))
        await self._tell_all(self.of(queue))
        return is_new

    def is_told(self, queue: str) -> bool:
        """Whether somebody has peeked, for all that is known here now; once it is looked for."""
        return self.of(queue).state is _State.ON

    def hear(self, entity: str) -> None:
        """Another bridge is the first to peek an entity."""
        for queue in (names.active_queue(entity), names.dead_letter_queue(entity)):
            self._tasks.start(self._tell_quietly(self.of(queue)))

    async def _tell_quietly(self, record: Record) -> None:
        try:
            await self._tell_all(record)
        except (ServiceBusError, BrokerError) as error:
            log.warning("settled.untold stream=%s error=%s", record.stream, error)

    async def _tell_all(self, record: Record) -> None:
        """Somebody peeks: tell what is known of a queue, and from now on what happens."""
        if record.state is _State.ON:
            return
        self._begin_telling(record)
        for count, number in enumerate(record.known(), 1):
            record.active.append(number)
            if count % _SLICE == 0:
                await asyncio.sleep(0)
        await self._flush(record)

    async def flush(self, queue: str) -> None:
        """Have all that this process knows of a queue in its stream."""
        record = self._records.get(queue)
        if record is not None and record.state is _State.ON:
            await self._flush(record)

    async def close(self) -> None:
        """Tell the last."""
        for record in self._records.values():
            if record.state is _State.ON:
                with contextlib.suppress(ServiceBusError, BrokerError, TimeoutError):
                    async with asyncio.timeout(1):
                        await self._flush(record)
        self._tasks.cancel()
        if self._telling is not None:
            self._telling.cancel()

    async def _look(self, record: Record) -> None:
        """Find out whether somebody has peeked, before or while this bridge runs."""
        looked = partial(is_there, self._connections, record.stream)
        is_on = await retry(looked, wait_s=LOOK_AGAIN_S, retryable=BrokerError)
        if record.state is not _State.UNKNOWN:
            return
        if is_on:
            self._begin_telling(record)
        else:
            record.stop()

    def _begin_telling(self, record: Record) -> None:
        record.state = _State.ON
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._keep_telling())

    async def _keep_telling(self) -> None:
        """Tell what has left all queues that somebody has peeked, every `FLUSH_S`."""
        while True:
            await asyncio.sleep(FLUSH_S)
            for record in self._records.values():
                if record.state is _State.ON and not record.is_told and not record.is_being_told:
                    record.is_being_told = True
                    self._tasks.start(self._tell(record))

    async def _tell(self, record: Record) -> None:
        try:
            await self._flush(record)
        except (ServiceBusError, BrokerError) as error:
            log.warning("settled.untold stream=%s error=%s", record.stream, error)
            await asyncio.sleep(1)
        finally:
            record.is_being_told = False

    async def _flush(self, record: Record) -> None:
        async with record.writing:
            active, deferred = record.active[:], record.deferred[:]
            if not active and not deferred:
                return
            del record.active[:], record.deferred[:]
            try:
                await self._write(record, active, deferred)
            except Unroutable:
                record.stop()  # the entity was deleted, and its streams with it
            except BaseException:
                record.active[:0] = active[-UNTOLD_MAX:]
                record.deferred[:0] = deferred[-UNTOLD_MAX:]
                raise

    async def _write(self, record: Record, active: list[int], deferred: list[int]) -> None:
        for body in entries(ranges_of(active), ranges_of(deferred)):
            await self._sender.publish("", record.stream, PROPERTIES, body)
