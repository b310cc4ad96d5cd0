"""The numbers of settled messages, published for peeks.

A client publishes numbers as bridges do (`wire.settled`), to the stream beside the queue, from the
first peek of the entity on: first the remembered numbers, later each number that leaves, every
`FLUSH_S` at most, and at once before a peek of the client's own. Before the first peek the client
publishes no numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from bridge.client.core.publisher import Publisher
from bridge.client.core.wire import Confirmed, Unroutable, Wire
from bridge.client.exceptions import ServiceBusError
from bridge.machine.browse.failed_deliveries import FailedDeliveries
from bridge.machine.inbox.publication import Publication
from bridge.machine.ranges import ranges_of
from bridge.topology import names
from bridge.wire.settled import PROPERTIES, entries

FLUSH_S = 0.05
AGAIN_S = 1.0

AT_ONCE = 20_000
"""How many remembered numbers are published at a time."""

UNTOLD_MAX = 1_000_000
"""Maximum number of numbers that wait while RabbitMQ takes no messages; more are not recorded."""


class SettledOfQueue:
    """The settled numbers of one queue, and how often its messages have failed.

    Args:
        queue: the queue's name.
        known: yields the remembered numbers.
        changed: called when numbers wait.

    Attributes:
        stream: the stream to publish to.
        is_on: numbers are published: the entity was peeked, as far as known.
        is_telling: a publish is under way; the next follows without a call.
    """

    def __init__(
        self, queue: str, known: Callable[[], Iterator[int]], changed: Callable[[], None]
    ) -> None:
        self.stream = names.settled(queue)
        self._known = known
        self._changed = changed
        self.is_on = False
        self.is_telling = False
        self._earlier: Iterator[int] = iter(())
        self._untold: set[int] = set()
        self._failed = FailedDeliveries()

    @property
    def is_silent(self) -> bool:
        """Whether there are remembered numbers or counts, and none is published yet."""
        if self.is_on:
            return False
        return bool(self._failed.counts) or next(self._known(), None) is not None

    def begin(self) -> None:
        """Begin to publish: the remembered numbers, and from now on each number that leaves."""
        if not self.is_on:
            self.is_on = True
            self._earlier = self._known()
            self._changed()

    def stop(self) -> None:
        """Stop publishing: the entity has never been peeked, or was deleted.

        What is remembered is published once `begin` is called.
        """
        self.is_on = False
        self._earlier = iter(())
        self._untold.clear()

    def forget(self) -> None:
        """Stop, and forget the counts: the entity was deleted, and numbers begin anew."""
        self.stop()
        self._failed.counts.clear()

    def failed(self, number: int, failures: int) -> None:
        """Note how often a message has failed."""
        self._failed.note(number, failures)
        if self.is_on and not self.is_telling:
            self._changed()

    def left(self, number: int) -> None:
        """Note the number of a message that left the queue."""
        if self._failed.counts:
            self._failed.left(number)
        if self.is_on and number >= 0 and len(self._untold) < UNTOLD_MAX:
            self._untold.add(number)
            if not self.is_telling:
                self._changed()

    @property
    def has_untold(self) -> bool:
        """Whether numbers or counts wait to be published."""
        return bool(self._untold) or (self.is_on and bool(self._failed.counts))

    def part(self) -> tuple[list[int], dict[int, int], bool]:
        """Return the unconfirmed numbers and counts, and whether these are all."""
        earlier = list(islice(self._earlier, AT_ONCE))
        self._untold.update(earlier)
        failed = dict(self._failed.counts) if self.is_on else {}
        return list(self._untold), failed, len(earlier) < AT_ONCE

    def told(self, numbers: list[int], failed: dict[int, int]) -> None:
        """Forget confirmed numbers and counts."""
        self._untold.difference_update(numbers)
        self._failed.written(failed)


class ClientSettlements:
    """The records of one client."""

    def __init__(self, wire: Wire, publisher: Publisher) -> None:
        self._wire = wire
        self._publisher = publisher
        self._records: list[SettledOfQueue] = []
        self._is_due = False
        self._is_closed = False

    def of(self, queue: str, known: Callable[[], Iterator[int]]) -> SettledOfQueue:
        """Return a new record for a queue of RabbitMQ."""
        record = SettledOfQueue(queue, known, partial(self._later, FLUSH_S))
        self._records.append(record)
        return record

    def close(self) -> None:
        """Publish the last numbers."""
        for record in self._records:
            self.tell(record, lambda error: None)
        self._is_closed = True

    def lose(self) -> None:
        """Publish unconfirmed numbers again later: they may be lost."""
        self._is_due = False
        for record in self._records:
            record.is_telling = False
            if record.has_untold:
                self._later(AGAIN_S)

    def tell(self, record: SettledOfQueue, told: Confirmed) -> None:
        """Publish all numbers and counts of one queue.

        Args:
            told: called when RabbitMQ has confirmed all, or with the first error: `Unroutable`
                before the first peek.
        """
        numbers, failed, is_all = record.part()

        def confirmed(error: Exception | None) -> None:
            if error is not None:
                if isinstance(error, Unroutable):
                    record.stop()
                told(error)
                return
            record.told(numbers, failed)
            if is_all:
                told(None)
            else:
                self.tell(record, told)

        if not numbers and not failed:
            told(None)
            return
        try:
            self._publisher.publish_all(_entries(record.stream, numbers, failed), confirmed)
        except ServiceBusError as error:
            told(error)

    def _later(self, wait_s: float) -> None:
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self._wire.later(wait_s, self._flush)

    def _flush(self) -> None:
        self._is_due = False
        for record in self._records:
            if record.is_on and not record.is_telling:
                record.is_telling = True
                self.tell(record, partial(self._told, record))

    def _told(self, record: SettledOfQueue, error: Exception | None) -> None:
        record.is_telling = False
        if record.has_untold:
            self._later(FLUSH_S if error is None else AGAIN_S)


def _entries(stream: str, numbers: list[int], failed: dict[int, int]) -> list[Publication]:
    bodies = entries(ranges_of(numbers), [], failed)
    return [Publication("", stream, PROPERTIES, body) for body in bodies]
