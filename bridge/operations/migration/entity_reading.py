"""The reading of an entity's messages at both sides, as steps: what is to be peeked at next."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

from bridge.model.number import PARTITION_COUNT, compose, partition_of
from bridge.operations.count_text import counted
from bridge.operations.migration.copy_effects import (
    CopyAnswer,
    CopyCount,
    CopyEffect,
    CopyPlace,
    CopyStopped,
    CountSource,
    ListSourceSessions,
    PeekedMessage,
    PeekPage,
)
from bridge.operations.migration.message_ledger import PlaceLedger
from bridge.operations.migration.verification import Side

PAGE: Final = 250
"""Messages of a page; Azure gives no more."""

PAGE_BYTES: Final = 4_194_304
"""A page above this is followed by a smaller one."""

CopySteps = Generator[CopyEffect, CopyAnswer, None]
"""What is to be done, step by step; each is sent its answer before the next one is given."""


class EntityReading:
    """Reads the places of an entity, page by page.

    Args:
        places: where the messages are.

    Attributes:
        ledgers: what is known of each place's messages.
    """

    def __init__(self, places: Sequence[CopyPlace]) -> None:
        self.ledgers = [PlaceLedger(each) for each in places]
        self._counts = [PAGE] * len(self.ledgers)
        self._partitioned = [False] * len(self.ledgers)
        self._wholes: dict[int, int] = {}

    def look(
        self,
        side: Side,
        place: int,
        show: Callable[[PeekedMessage], None],
        session_id: str | None = None,
        next_number: int = 1,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> CopySteps:
        """Show the messages of a place, page by page, from a number on.

        Args:
            is_enough: asked before each page; else the end is where no message stands any more.
        """
        while not is_enough():
            page = yield from self.page(side, place, next_number, session_id)
            for each in page:
                if not each.is_own:
                    show(each)
            highest = max((each.shown_number for each in page), default=0)
            if highest < next_number:
                return
            next_number = highest + 1

    def look_at_source(
        self,
        place: int,
        show: Callable[[PeekedMessage], None],
        shown: Callable[[], int],
        is_behind_later: bool = False,
    ) -> CopySteps:
        """Show all messages of a place.

        Across sessions and partitions no order is promised, so what stands behind a higher number
        may be passed over: where the source does not tell that all were shown, they are read by
        session and by partition, too.

        Args:
            shown: how many were shown; one that is shown again may count again.
            is_behind_later: what stands behind the last number is looked at later: where the order
                is promised it is enough when all messages of the ledger were shown.
        """

        def note(message: PeekedMessage) -> None:
            self._partitioned[place] |= message.number >= compose(1, 0)
            show(message)

        ledger = self.ledgers[place]
        ends_early = is_behind_later and not self._is_unordered(place)
        is_enough = (lambda: not ledger.unseen) if ends_early else (lambda: False)
        yield from self.look("source", place, note, is_enough=is_enough)
        if not self._is_unordered(place) or (yield from self._count(place)) == shown():
            return
        for partition in range(PARTITION_COUNT) if self._partitioned[place] else ():
            yield from self._look_at_partition(place, partition, show)
        if not self.ledgers[place].place.has_sessions:
            return
        answer = yield ListSourceSessions(place)
        assert isinstance(answer, list | tuple)
        for session_id in answer:
            yield from self.look("source", place, show, str(session_id))

    def _is_unordered(self, place: int) -> bool:
        return self.ledgers[place].place.has_sessions or self._partitioned[place]

    def _look_at_partition(
        self, place: int, partition: int, show: Callable[[PeekedMessage], None]
    ) -> CopySteps:
        """Show the messages of a partition, page by page; others that a page has, too."""
        next_number = compose(partition, 0)
        while True:
            page = yield from self.page("source", place, next_number)
            for each in page:
                show(each)
            own = [each.number for each in page if partition_of(each.number) == partition]
            if max(own, default=-1) < next_number:
                return
            next_number = max(own) + 1

    def _count(self, place: int) -> Generator[CopyEffect, CopyAnswer, int | None]:
        answer = yield CountSource(place)
        assert isinstance(answer, CopyCount)
        return answer.count

    def check_count(self, place: int) -> CopySteps:
        """See that peeks show all messages, where they may be in any order."""
        ledger = self.ledgers[place]
        shown = len(ledger)
        count: int | None = None
        if place in self._wholes:
            shown, count = shown + len(self.ledgers[place - 1]), self._wholes.pop(place)
        elif self._is_unordered(place):
            answer = yield CountSource(place)
            assert isinstance(answer, CopyCount)
            count = answer.count
            if count is None and answer.whole is not None:  # its dead letters are read next
                self._wholes[place + 1] = answer.whole
                return
        else:
            return
        if count is not None and count != shown:
            raise CopyStopped(
                f"{ledger.place.path}: peeks show {counted(shown, 'message')}, and the source "
                f"tells {count:,}: messages come or go there, or a session has scheduled "
                "messages alone, which may not be shown. Stop what sends and receives, or wait "
                "until they are due."
            )

    def page(
        self,
        side: Side,
        place: int,
        from_number: int,
        session_id: str | None = None,
    ) -> Generator[CopyEffect, CopyAnswer, list[PeekedMessage]]:
        """Return a page; behind a large one the next has fewer messages."""
        count, is_noted = self._counts[place], not self.ledgers[place].is_closed
        answer = yield PeekPage(side, place, from_number, count, session_id, is_noted)
        assert isinstance(answer, list | tuple)
        page = [each for each in answer if isinstance(each, PeekedMessage)]
        size_bytes = sum(each.size_bytes for each in page)
        if size_bytes > PAGE_BYTES:
            self._counts[place] = max(1, count // 2)
        elif size_bytes < PAGE_BYTES // 4 and len(page) == count:
            self._counts[place] = min(PAGE, count * 2)
        return page

    def fetched(
        self, place: int, at: int
    ) -> Generator[CopyEffect, CopyAnswer, dict[int, PeekedMessage]]:
        """Return a page of the source's messages, with a certain one."""
        ledger = self.ledgers[place]
        number = ledger.number(at)
        sessions = [None, ledger.session_of(at)] if ledger.place.has_sessions else [None]
        for session_id in sessions:
            page = yield from self.page("source", place, number, session_id)
            for each in page:
                if ledger.find(each.number) is None:
                    raise ledger.stopped(each.number, "has come")
            if any(each.number == number for each in page):
                return {each.number: each for each in page}
        raise ledger.stopped(number, "has gone")

    def find_in_sessions(self, place: int, show: Callable[[PeekedMessage], None]) -> CopySteps:
        """Show the source's page from each message on that was not shown, within its session."""
        ledger = self.ledgers[place]
        for at in range(len(ledger) if ledger.place.has_sessions else 0):
            if not ledger.is_seen(at):
                number, session_id = ledger.number(at), ledger.session_of(at)
                for each in (yield from self.page("source", place, number, session_id)):
                    show(each)
