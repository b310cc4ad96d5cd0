"""Imports: messages that come from another namespace, each under the number that it had there.

A migration holds an entity, and imports its messages in the order of their numbers; of a topic, its
subscriptions' together, in the order of the topic's numbers. A transfer is carried out as a whole,
or refused with a condition.

    above the last number      a gap's entry if numbers are missing, then the message
    known by the journal       an earlier term has carried it out, and its arrival comes again, in
                               front of all new ones: it is published again, once, unless it has
                               surely reached its queue
    imported before            the same message: nothing is published
    not above the last number  the transfer is refused: the number is another message's

A transfer without messages is answered with the last numbers, behind all that came before it.

Nothing is decided by a clock or by chance: a transfer that a killed term had begun is completed in
the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.machine.inbox.applied import Applied, SenderAnswer, Unplaced
from bridge.machine.inbox.arrival import Command, ImportCommand
from bridge.machine.inbox.known import Known
from bridge.machine.inbox.pending import identity_hash
from bridge.machine.inbox.publication import Publication
from bridge.machine.inbox.publications import Publications, waiting_of
from bridge.machine.inbox.sequencer_memory import Memory
from bridge.machine.inbox.wheel import place
from bridge.model.entity import SendEntity
from bridge.model.errors import (
    ArgumentOutOfRange,
    EntityConflict,
    EntityNotFound,
    InternalError,
    QuotaExceeded,
    ServiceBusError,
)
from bridge.topology.parts import DEFERRED_MAX
from bridge.wire import reply, series_numbers, stamp
from bridge.wire.envelope import Item
from bridge.wire.gaps import OWN, Gap
from bridge.wire.imported import DEFERRED, SCHEDULED, Imported, run_digest
from bridge.wire.series_numbers import SeriesNumbers

SOON_MS = 5_000
"""A scheduled message waits in a bucket that opens so far ahead at least, also when it is due: the
hold may last longer, and what waits in memory alone keeps its arrival unacked."""

NOT_HELD = (
    "Messaging entity '{path}' is not held by the migration that imports messages: nothing of the "
    "transfer is stored. A migration begins with 'com.busbridge:hold'."
)
NOT_ABOVE = (
    "The sequence number {number} is not above {last}, the last one of '{path}', and no message "
    "that was imported just now has it with the same content: nothing of the transfer is stored. "
    "Messages are imported in the order of their numbers."
)
NO_PARTITION = (
    "The sequence number {number} is of partition {partition}, which '{path}' does not have: "
    "nothing of the transfer is stored."
)
TOO_MANY_DEFERRED = (
    "'{path}' would have more than {most} deferred messages: nothing of the transfer is stored."
)
NO_SUBSCRIPTION = (
    "A message is for a subscription of '{path}' that does not exist: nothing of the transfer is "
    "stored."
)

Again = Callable[[stamp.Waiting, bytes], Sequence[Publication]]
"""Publishes again what an earlier term activated (`Sequencer`)."""


class Imports:
    """Carries out the imports of one entity.

    Args:
        activated_again: returns the publications of a message that an earlier term activated.
    """

    def __init__(
        self,
        memory: Memory,
        publications: Publications,
        activated_again: Again,
    ) -> None:
        self._memory = memory
        self._journal = publications.journal
        self._numbers = publications.numbers
        self._publications = publications
        self._activated_again = activated_again

    def apply(self, command: ImportCommand, entity: SendEntity, now_ms: int) -> Applied:
        """Carry out a transfer, or refuse it.

        Raises:
            Exception: it has failed; the caller takes back what has changed.
        """
        refusal: ServiceBusError | None = None
        wanted: list[tuple[Item, Known | None]]
        if entity.held and run_digest(entity.held) == command.run:
            try:
                wanted = self._wanted(command, entity)
            except ServiceBusError as error:
                return refused(command, error)
        else:
            # What a killed term had stored of it is stored, and may lack its place.
            wanted = [(item, known) for item in command.items if (known := self._known(item))]
            if len(wanted) < len(command.items) or not command.items:
                refusal = EntityConflict(NOT_HELD.format(path=entity.path))
        publications: list[Publication] = []
        unplaced: list[Unplaced] = []
        for item, known in wanted:
            if known is None:
                publications += self._gaps(_said(item))
                self._give(_said(item))
            elif known.is_trusted or self._has_come_again(_said(item)):
                continue  # behind higher numbers a second entry would mislead peeks
            elif self._publications.lacks(_said(item).short):
                continue  # it has gone with its subscription
            publications += self._published(item, known, now_ms, unplaced)
        for item, known in wanted:
            if known is None:
                self._note(item, now_ms)
            else:
                self._note_again(_said(item), known)
        if refusal is not None:
            return Applied(publications, refused(command, refusal).answer, unplaced)
        answer = None
        if command.reply_to is not None:
            # What came before may be on its way still.
            answer = SenderAnswer(command.reply_to, self._done(command), after_all=True)
            if not publications:
                publications.append(self._journal.note_uses(self._memory))
        return Applied(publications, answer, unplaced)

    def _done(self, command: ImportCommand) -> bytes:
        if command.items:
            return reply.encode_done([_said(item).number for item in command.items])
        return reply.encode_found(series_numbers.encode(self._series_numbers()))

    def _series_numbers(self) -> list[SeriesNumbers]:
        """Return the last numbers: of each partition, then of the subscriptions that have some."""
        memory = self._memory
        lasts = [(OWN, partition, last) for partition, last in enumerate(memory.counters)]
        lasts += [(short, 0, last) for short, last in memory.subscriptions.items()]
        return [
            SeriesNumbers(short, partition, last, memory.imported.has_number(short, last))
            for short, partition, last in lasts
        ]

    def _wanted(
        self, command: ImportCommand, entity: SendEntity
    ) -> list[tuple[Item, Known | None]]:
        """Return the messages that are to be published, with the journal's entries of them.

        Raises:
            ServiceBusError: the transfer is refused; nothing has changed.
        """
        memory, numbers = self._memory, self._numbers
        wanted: list[tuple[Item, Known | None]] = []
        lasts: dict[tuple[bytes, int], int] = {}
        deferred = dict(memory.imported.deferred)
        for item in command.items:
            said, known = _said(item), self._known(item)
            if known is not None:
                wanted.append((item, known))
                continue
            if memory.imported.has(said.short, said.number, said.identity):
                continue
            for number, short, may_repeat in _series(said):
                partition = numbers.partition_of(number, short)
                if partition is None:
                    text = NO_PARTITION.format(
                        path=entity.path, number=number, partition=number >> 48
                    )
                    raise ArgumentOutOfRange(text)
                last = lasts.get((short, partition), numbers.last(number, short))
                if number < last or (number == last and not may_repeat):
                    text = NOT_ABOVE.format(path=entity.path, number=number, last=last)
                    raise ArgumentOutOfRange(text)
                lasts[short, partition] = number
            if self._publications.lacks(said.short):
                raise EntityNotFound(NO_SUBSCRIPTION.format(path=entity.path))
            if said.state == DEFERRED:
                deferred[said.short] = deferred.get(said.short, 0) + 1
                if deferred[said.short] > DEFERRED_MAX:
                    text = TOO_MANY_DEFERRED.format(path=entity.path, most=DEFERRED_MAX)
                    raise QuotaExceeded(text)
            wanted.append((item, None))
        return wanted

    def _known(self, item: Item) -> Known | None:
        """Return the journal's entry of a message that an earlier term has imported."""
        return self._memory.known.get(_said(item).identity)

    def _gaps(self, said: Imported) -> Sequence[Publication]:
        """Pass over the numbers in front of a message's; return their entry."""
        found = []
        for number, short, _ in _series(said):
            last = self._numbers.last(number, short)
            if number > last + 1:
                gap = Gap(last + 1, number - 1, short)
                self._numbers.skip(gap)
                found.append(gap)
        return (self._journal.note_gaps(found),) if found else ()

    def _give(self, said: Imported) -> None:
        for number, short, _ in _series(said):
            self._numbers.give(number, short)

    def _published(
        self, item: Item, known: Known | None, now_ms: int, unplaced: list[Unplaced]
    ) -> Sequence[Publication]:
        said = _said(item)
        if said.state != SCHEDULED:
            return self._publications.imported(item, now_ms, known)
        assert item.scheduled_ms is not None, "who imports it has checked that"
        pending, waiting = self._memory.pending, waiting_of(item, said.identity, said.number)
        hashed = identity_hash(said.identity)
        if known is None:
            pending.add(said.number, item.scheduled_ms, hashed)
        elif not pending.matches(said.number, hashed):
            return self._activated_again(waiting, item.body)
        where = place(max(item.scheduled_ms, now_ms + SOON_MS), now_ms)
        made = self._publications
        if self._memory.wheel.is_usable(where):
            return (made.scheduled(item, said.identity, said.number, now_ms, where),)
        unplaced.append(Unplaced(waiting, item.body))
        return (made.unplaced(item, said.identity, said.number, now_ms),)

    def _has_come_again(self, said: Imported) -> bool:
        """Whether the arrival that an earlier term left unacked, if any, has come before this one.

        They come in their order, and in front of all new ones.
        """
        imported = self._memory.imported
        return imported.has_new or any(
            number < last or (number == last and not may_repeat)
            for number, short, may_repeat in _series(said)
            if (last := imported.again.get(self._place(number, short))) is not None
        )

    def _note_again(self, said: Imported, known: Known) -> None:
        """Note that a message has come again: another arrival that brings it is behind this one."""
        self._memory.known[said.identity] = known._replace(is_trusted=True)
        again = self._memory.imported.again
        for number, short, _ in _series(said):
            where = self._place(number, short)
            again[where] = max(again.get(where, number), number)

    def _place(self, number: int, short: bytes) -> tuple[bytes, int]:
        return short, self._numbers.partition_of(number, short) or 0

    def _note(self, item: Item, now_ms: int) -> None:
        """Remember a message that was published; nothing of this fails."""
        said = _said(item)
        self._memory.imported.has_new = True
        is_deferred = said.state == DEFERRED
        self._memory.imported.note(said.short, said.number, said.identity, is_deferred=is_deferred)
        row = self._publications.accepted_row(item, now_ms)
        if row:
            self._memory.history.learn_open(row)


def refused(command: ImportCommand, error: ServiceBusError) -> Applied:
    """Return what becomes of a transfer that is refused: its answer alone."""
    if command.reply_to is None:
        return Applied(())
    body = reply.encode_refused(error.condition, str(error))
    return Applied((), SenderAnswer(command.reply_to, body))


def failed(command: Command, error: Exception) -> Applied:
    """Return what becomes of a transfer that has failed: a dead letter would take a number.

    Raises:
        Exception: the error of any other command.
    """
    if not isinstance(command, ImportCommand):
        raise error
    return refused(command, InternalError(f"The transfer failed: {error}"))


def _said(item: Item) -> Imported:
    assert item.imported is not None, "an import has it"
    return item.imported


def _series(said: Imported) -> tuple[tuple[int, bytes, bool], ...]:
    """Return the numbers that a message takes: each with the short id of its series.

    The last element: the number may be the last one again, which several subscriptions have.
    """
    if said.short == OWN:
        return ((said.number, OWN, False),)
    return (said.topics_number, OWN, True), (said.number, said.short, False)
