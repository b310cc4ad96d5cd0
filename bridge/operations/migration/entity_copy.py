"""The copy of an entity with all its messages, as a machine: what is to be done, step by step.

It knows no state but that of both sides. Begun again it finds by peeks what the target has, and
goes on behind it; so it may be killed at any instant.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Final

from bridge.model.duration import instant_text
from bridge.operations.count_text import counted
from bridge.operations.migration.copy_effects import (
    AwaitCancelled,
    AwaitMark,
    AwaitOthers,
    CancelAtSource,
    CopyAnswer,
    CopyDone,
    CopyEffect,
    CopyPause,
    CopyPlace,
    CopyRefused,
    CopyStopped,
    CopyUnanswered,
    HoldTarget,
    ImportBatch,
    PeekedMessage,
    ReleaseTarget,
    SourceRecounted,
    TargetHeld,
)
from bridge.operations.migration.entity_reading import PAGE_BYTES, CopySteps, EntityReading
from bridge.operations.migration.kept_messages import KeptMessages
from bridge.operations.migration.message_ledger import PlaceLedger, in_order
from bridge.operations.migration.renumbering import Renumbering, seeing
from bridge.operations.migration.session_states import StateCopy

TRANSFER: Final = 100
"""Messages of one transfer; a bridge takes no more."""

OVERHEAD_BYTES: Final = 256
"""What a message of a transfer takes beside itself: its frame, and what says where it was."""

CANCELS: Final = 100
"""Scheduled messages that are cancelled at once."""

LOOKS: Final = 60
"""Looks at a target that lacks a message, one a second: it shows a little later what it took."""


class CopyPhase(Enum):
    """Where the copy of an entity is, in this order."""

    HOLDING = "holding"
    READING = "reading numbers"
    COPYING = "copying"
    VERIFYING = "verifying"
    WAITING = "waiting for the others"
    CANCELLING = "cancelling at the source"
    DONE = "done"


class EntityCopy:
    """Copies a queue, or a topic with its subscriptions, whose target is held meanwhile.

    The hold ends when both sides have been seen to be the same; or when it stops, and nothing was
    copied. No scheduled message is cancelled at the source before.

    Args:
        places: where the messages are.
        due_after_ms: a copy of what is due before (UTC ms) is refused: the source would activate it
            meanwhile.
        batch_count, batch_bytes: what one transfer takes at most.
        kept_bytes: how much memory the messages may take that the first reading keeps for the copy,
            which reads the others again.
        is_verified: the target has the mark that an earlier run has verified all.

    Attributes:
        phase: where it is.
        messages: how many the source has; 0 until their numbers are read.
        copied: how many of them the target has.
        verified: how many were read once more, at both sides.
        cancelled: how many were to be cancelled at the source.
    """

    def __init__(
        self,
        places: Sequence[CopyPlace],
        *,
        due_after_ms: int,
        batch_count: int = TRANSFER,
        batch_bytes: int = PAGE_BYTES // 4,
        kept_bytes: int = 0,
        is_verified: bool = False,
    ) -> None:
        self._reading = EntityReading(places)
        self._ledgers = self._reading.ledgers
        self._renumbering = Renumbering(places) if places[0].renumbered_by else None
        self._states = [StateCopy(at, each) for at, each in enumerate(places) if each.has_sessions]
        self._kept = KeptMessages(len(places), kept_bytes)
        self._due_after_ms = due_after_ms
        self._batch_count = batch_count
        self._batch_bytes = batch_bytes
        self._is_verified = is_verified
        self._may_have_copies = True
        self._may_live = False
        self.phase = CopyPhase.HOLDING
        self.messages = 0
        self.copied = 0
        self.verified = 0
        self.cancelled = 0

    def steps(self) -> CopySteps:
        """Yield what is to be done; each is sent its answer before the next one is given.

        Raises:
            CopyStopped: it cannot go on.
        """
        if self._is_verified:
            yield from self._find_scheduled_at_both()
        else:
            try:
                yield from self._copy_held()
            except CopyStopped:
                if not self._has_copies and (self._may_live or not (yield from self._shows_any())):
                    yield ReleaseTarget()
                raise
        self.phase = CopyPhase.CANCELLING
        yield from self._cancel()
        yield AwaitCancelled()
        yield ReleaseTarget()
        self.phase = CopyPhase.DONE

    def numbers(self) -> Iterator[tuple[CopyPlace, Iterator[int]]]:
        """Yield the source's numbers, as they were read, place by place."""
        for ledger in self._ledgers:
            yield ledger.place, map(ledger.number, range(len(ledger)))

    def state_digests(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield the states of the source's sessions: path, session, and the state's SHA-256."""
        for each in self._states:
            yield from each.digests()

    def _copy_held(self) -> CopySteps:
        held = yield HoldTarget()
        assert isinstance(held, TargetHeld)
        self._may_have_copies = not (held.is_new or held.was_empty)
        for states in self._states:
            states.may_have_copies = self._may_have_copies
        self._may_live = held.is_new
        if held.batch_bytes:
            self._batch_bytes = min(self._batch_bytes, held.batch_bytes)
        self.phase = CopyPhase.READING
        if self._renumbering is not None:
            yield from self._renumbering.ask(is_first=not self._may_have_copies)
        yield from self._read_numbers()
        self._check_due()
        yield from self._find_copied(is_new=held.is_new)
        for states in self._states:
            may_have_copies = states.may_have_copies
            yield from states.find(is_new=held.is_new)
            if self._renumbering is not None:  # what is there may be the target's own
                states.may_have_copies = may_have_copies
        self._may_live = False
        self.phase = CopyPhase.COPYING
        for states in self._states:
            yield from states.copy()
        yield from self._copy()
        self.phase = CopyPhase.VERIFYING
        yield from self._verify_source(is_behind_later=True)
        self.verified = self.messages
        yield from self._verify_target()
        self.phase = CopyPhase.WAITING
        recounted = yield AwaitOthers()
        assert isinstance(recounted, SourceRecounted)
        if recounted.has_changed:
            yield from self._verify_source()
        else:
            yield from self._check_none_has_come()
        for states in self._states:
            yield from states.verify_source()
            yield from states.verify_target()
        yield AwaitMark()

    # -- what the source has

    def _read_numbers(self) -> CopySteps:
        for place, ledger in enumerate(self._ledgers):

            def note(
                message: PeekedMessage, place: int = place, ledger: PlaceLedger = ledger
            ) -> None:
                ledger.note(message)
                self._kept.add(place, message)

            yield from self._reading.look_at_source(place, note, ledger.__len__)
            ledger.close()
            yield from self._reading.check_count(place)
        self.messages = sum(map(len, self._ledgers))

    def _check_due(self) -> None:
        for ledger in self._ledgers:
            if ledger.first_due is not None and ledger.first_due[1] < self._due_after_ms:
                number, due_ms = ledger.first_due
                raise CopyStopped(
                    f"{ledger.place.path}: message {number} is due at {instant_text(due_ms)}, "
                    "before the copy would be done: begin again after that."
                )

    # -- what the target has

    def _find_copied(self, *, is_new: bool) -> CopySteps:
        """Find how many messages the target has: the first ones in their order, and no others."""
        for left in reversed(range(LOOKS)):
            yield from self._look_at_target(is_new=is_new)
            found = sum(each.seen_count() for each in self._ledgers)
            lacking = self._first_lacking(found)
            if lacking is None and self._renumbering is not None:
                lacking = self._renumbering.hidden(self._ledgers)
            if lacking is None:
                break
            if not left:
                raise lacking
            yield CopyPause()
        self.copied = found
        self._may_have_copies = found > 0
        if self._renumbering is not None:
            self._renumbering.settle(self._ledgers)

    def _first_lacking(self, found: int) -> CopyStopped | None:
        """Return the error that names one of the first messages in the order that was not seen."""
        for place, at in islice(in_order(self._ledgers), found):
            ledger = self._ledgers[place]
            if not ledger.is_seen(at):
                return CopyStopped(
                    f"{ledger.place.path}: the target lacks message {ledger.number(at)}, and has "
                    f"later ones. {ledger.place.anew}"
                )
        return None

    def _look_at_target(self, *, is_new: bool = False) -> CopySteps:
        """See which messages the target has.

        Raises:
            CopyStopped: it has others.
        """
        for place, ledger in enumerate(self._ledgers):
            ledger.forget_seen()
            yield from self._reading.look(
                "target", place, seeing(ledger, self._renumbering, is_new=is_new)
            )

    def _shows_any(self) -> Generator[CopyEffect, CopyAnswer, bool]:
        """Whether the target has anything: another run of the same name has copied it."""
        if self._renumbering is not None:
            yield from self._renumbering.ask()
            return self._renumbering.has_imports
        for place in range(len(self._ledgers)):
            if (yield from self._reading.page("target", place, 1)):
                return True
        for states in self._states:
            if (yield from states.shows_any()):
                return True
        return False

    @property
    def _has_copies(self) -> bool:
        """Whether the target may have what this run has copied."""
        return self._may_have_copies or any(each.may_have_copies for each in self._states)

    @property
    def session_states(self) -> int:
        """How many states of sessions the source has; 0 until they are read."""
        return sum(map(len, self._states))

    # -- copying

    def _copy(self) -> CopySteps:
        pages: list[dict[int, PeekedMessage]] = [{} for _ in self._ledgers]
        batch: list[tuple[int, PeekedMessage]] = []
        size_bytes = 0
        for place, at in islice(in_order(self._ledgers), self.copied, None):
            number = self._ledgers[place].number(at)
            message = self._kept.pop(place, number) or pages[place].pop(number, None)
            if message is None:
                pages[place] = yield from self._reading.fetched(place, at)
                message = pages[place].pop(number)
            if self._renumbering is not None:
                message = self._renumbering.renumbered(self._ledgers[place].place, message)
            is_full = size_bytes + message.size_bytes + OVERHEAD_BYTES > self._batch_bytes
            if batch and (is_full or len(batch) >= self._batch_count):
                yield from self._import(tuple(batch))
                batch, size_bytes = [], 0
            batch.append((place, message))
            size_bytes += message.size_bytes + OVERHEAD_BYTES
        if batch:
            yield from self._import(tuple(batch))
        self._kept.clear()

    def _import(self, batch: tuple[tuple[int, PeekedMessage], ...]) -> CopySteps:
        """Have a batch imported; one without an answer is imported again, as it is."""
        could_have_copies = self._may_have_copies
        self._may_have_copies = True
        while isinstance(answer := (yield ImportBatch(batch)), CopyUnanswered):
            could_have_copies = True
        if isinstance(answer, CopyRefused):
            self._may_have_copies = could_have_copies
            place, first = batch[0]
            refused = counted(len(batch), "message")
            raise CopyStopped(
                f"{self._ledgers[place].place.path}: the target refuses {refused} "
                f"from {first.number} on: {answer.text}"
            )
        assert isinstance(answer, CopyDone)
        self.copied += len(batch)

    # -- verifying

    def _verify_source(self, *, is_behind_later: bool = False) -> CopySteps:
        """See that nothing of the source has come, gone or changed; see `look_at_source`."""
        for place, ledger in enumerate(self._ledgers):
            ledger.forget_seen()

            def show(message: PeekedMessage, ledger: PlaceLedger = ledger) -> None:
                at = ledger.find(message.number)
                if at is None:
                    raise ledger.stopped(message.number, "has come")
                if not ledger.is_same(at, message):
                    raise ledger.stopped(message.number, "has changed")
                self.verified += self.verified < self.messages and not ledger.is_seen(at)
                ledger.see(at)

            yield from self._reading.look_at_source(place, show, ledger.seen_count, is_behind_later)
            if ledger.unseen:
                raise ledger.stopped(ledger.first_unseen(), "has gone")
            yield from self._reading.check_count(place)

    def _check_none_has_come(self) -> CopySteps:
        """See that the source has no new number: as its counts are the same, none has gone then."""
        for place, ledger in enumerate(self._ledgers):
            for number in ledger.next_numbers():
                page = yield from self._reading.page("source", place, number)
                for each in page:
                    if ledger.find(each.number) is None:
                        raise ledger.stopped(each.number, "has come")

    def _verify_target(self) -> CopySteps:
        """See that the target has all, and nothing else."""
        yield from self._look_at_target()
        for place, ledger in enumerate(self._ledgers):
            for left in reversed(range(LOOKS)):
                if not ledger.unseen:
                    break
                first = ledger.first_unseen()
                if not left:
                    raise CopyStopped(
                        f"{ledger.place.path}: the target lacks message {first}. "
                        f"{ledger.place.anew}"
                    )
                yield CopyPause()
                if self._renumbering is not None:
                    first = self._renumbering.number(ledger.place, first)
                see = seeing(ledger, self._renumbering)
                yield from self._reading.look("target", place, see, next_number=first)

    # -- afterwards

    def _cancel(self) -> CopySteps:
        """Cancel at the source what is scheduled at the target, too."""
        for place, ledger in enumerate(self._ledgers):
            numbers = (ledger.number(at) for at in ledger.scheduled() if ledger.is_seen(at))
            while each := tuple(islice(numbers, CANCELS)):
                yield CancelAtSource(place, each)
                self.cancelled += len(each)

    def _find_scheduled_at_both(self) -> CopySteps:
        """Find what an earlier run has left to be cancelled: by what the target has."""
        for place, ledger in enumerate(self._ledgers):

            def note(message: PeekedMessage, ledger: PlaceLedger = ledger) -> None:
                if message.due_ms is not None:
                    ledger.note(message)

            def show(message: PeekedMessage, ledger: PlaceLedger = ledger) -> None:
                at = ledger.find(message.number)
                if at is not None and ledger.is_same(at, message):
                    ledger.see(at)

            if not ledger.place.is_dead:
                yield from self._reading.look("target", place, note)
                ledger.close()
                ledger.forget_seen()
                yield from self._reading.look("source", place, show)
                yield from self._reading.find_in_sessions(place, show)
        self.messages = self.copied = sum(map(len, self._ledgers))
