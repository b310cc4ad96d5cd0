"""The way back of an entity, as a machine: the source is made equal to what the target has done.

It knows no state but that of both sides: it looks at both, does what the source lacks, and looks
again, until nothing is lacking. So it may be killed at any instant, and begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

from bridge.model.session_id import fold
from bridge.operations.migration.copy_effects import (
    CancelAtSource,
    CopyAnswer,
    CopyCount,
    CopyPause,
    CopyPlace,
    CopyRefused,
    CopyStopped,
    CountSource,
    ListSourceSessions,
    PeekedMessage,
)
from bridge.operations.migration.entity_reading import PAGE_BYTES, EntityReading
from bridge.operations.migration.last_copied import LastCopied
from bridge.operations.migration.return_difference import (
    SeriesDifference,
    SeriesLook,
    TopicLook,
    difference,
    ordered,
)
from bridge.operations.migration.return_effects import (
    AgreeToReturn,
    AwaitLocks,
    BringToSource,
    CloseTarget,
    HoldForReturn,
    ReturnEffect,
    ReturnMessage,
    SetSessionStates,
    SettleAtSource,
    SettledAs,
    brought_from,
    brought_text,
)
from bridge.operations.migration.side_ledger import SideLedger
from bridge.operations.migration.verification import Side
from bridge.remote.message import RemoteMessage

TOGETHER: Final = 100
"""Messages that are sent, or cancelled, by one step."""

SETTLED_TOGETHER: Final = {
    SettledAs.COMPLETED: 50_000,
    SettledAs.DEFERRED: 50_000,
    SettledAs.DEAD_LETTERED: 1_000,
}
"""Messages that are settled by one step: few steps, as each may receive those that stay in front,
which a namespace may count. Of those that are dead-lettered the target's are in memory."""

TRIES: Final = 10
"""Looks in a row that show no fewer differences."""

PAUSE_MAX_S: Final = 64
"""The longest of the pauses between them, each twice the one before: what a killed run has locked
comes free within them, as no lock lasts longer than 5 minutes."""

UNSURE_S: Final = 15
"""The time until another look where one did not show what the one before had shown."""

ReturnSteps = Generator[ReturnEffect, CopyAnswer, None]
"""What is to be done, step by step; each is sent its answer before the next one is given."""


class ReturnPhase(Enum):
    """Where the way back of an entity is, in this order."""

    HOLDING = "holding"
    READING = "reading both sides"
    WAITING = "waiting until locks have ended"
    SETTLING = "settling"
    CLOSING = "closing the target"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnRules:
    """How an entity comes back.

    Attributes:
        target: names the namespace of the target, and when the entity was made there: made anew it
            is another one.
        returns: what the target has taken as new is brought to the source.
        copied: what a run has copied, by the path in lower case: other messages of the source stay.
    """

    target: str
    returns: bool
    copied: Mapping[str, LastCopied]

    def copied_of(self, path: str) -> LastCopied:
        """Return what a run has copied of an entity; nothing of one that was made afterwards."""
        return self.copied.get(path.lower(), LastCopied(path=path, lasts={}))


@dataclass(slots=True)
class _Series:
    """A queue with its dead-letter queue, by the indices of their places."""

    path: str
    alive: int
    dead: int | None = None
    now: SeriesLook | None = None
    before: SeriesLook | None = None
    found: SeriesDifference = field(default_factory=SeriesDifference)

    @property
    def places(self) -> Iterator[tuple[int, bool]]:
        yield self.alive, False
        if self.dead is not None:
            yield self.dead, True

    def place(self, *, is_dead: bool) -> int:
        return self.dead if is_dead and self.dead is not None else self.alive


class EntityReturn:
    """Makes the source of a queue, or of a topic with its subscriptions, equal to its target.

    At its end each message that the target has not settled is at the source once, and none that it
    has settled; and the target is disabled.

    Args:
        places: where the messages are.

    Attributes:
        phase: where it is.
        looked_at: messages that both sides have shown, in all looks.
        settled: messages that were to be settled or cancelled at the source.
        sent: messages that were sent to the source.
    """

    def __init__(self, places: Sequence[CopyPlace], rules: ReturnRules) -> None:
        self._places = places
        self._rules = rules
        self._reading = EntityReading(places)
        self._series = _series_of(places)
        self.phase = ReturnPhase.HOLDING
        self.looked_at = 0
        self.settled = 0
        self.sent = 0

    @property
    def account(self) -> list[tuple[str, SeriesDifference]]:
        """What the last look has found, by the path of each queue or subscription."""
        return [(each.path, each.found) for each in self._series]

    def steps(self) -> ReturnSteps:
        """Yield what is to be done; each is sent its answer before the next one is given.

        Raises:
            CopyStopped: it cannot go on.
        """
        self._check(self._places[0].path, (yield HoldForReturn()))
        self.phase = ReturnPhase.READING
        yield from self._look()
        yield AgreeToReturn()
        self.phase = ReturnPhase.WAITING
        yield AwaitLocks()
        self.phase = ReturnPhase.SETTLING
        self._check(self._places[0].path, (yield SetSessionStates()))
        yield from self._look()
        least, tries = self._lacking, TRIES
        while self._lacking:
            yield from self._settle_all()
            pause_s = min(PAUSE_MAX_S, 1 << (TRIES - tries))
            if any(each.found.unsure for each in self._series):
                pause_s = max(pause_s, UNSURE_S)
            for _ in range(pause_s):
                yield CopyPause()
            yield from self._look()
            tries = TRIES if self._lacking < least else tries - 1
            least = min(least, self._lacking)
            if not tries:
                raise self._stuck()
        self.phase = ReturnPhase.CLOSING
        yield CloseTarget()
        self.phase = ReturnPhase.DONE

    @property
    def _lacking(self) -> int:
        """How many messages differ; of each an effect, or another look, is needed."""
        return sum(
            sum(map(len, each.found.settled.values()))
            + len(each.found.cancelled)
            + len(each.found.brought)
            + each.found.unsure
            for each in self._series
        )

    def _check(self, path: str, answer: CopyAnswer) -> None:
        if isinstance(answer, CopyRefused):
            raise CopyStopped(f"{path}: {answer.text}")

    def _stuck(self) -> CopyStopped:
        for each in self._series:
            numbers = [number for group in each.found.settled.values() for number in group]
            if numbers:
                return CopyStopped(
                    f"{each.path}: {len(numbers):,} messages of the source, the first of them "
                    f"{min(numbers)}, could not be settled there: somebody has locked them, or too "
                    "many others stand in front. Stop what receives there, and begin again."
                )
        path = next(each.path for each in self._series if not each.found.is_done)
        return CopyStopped(
            f"{path}: the source does not show what was sent to it, or the target not always what "
            "it has. Does the source detect duplicates? Wait until its window is over. Begin again."
        )

    # -- looking

    def _look(self) -> ReturnSteps:
        """Read both sides, and find what the source lacks.

        The target first: what is settled there afterwards is found by the next look.
        """
        for each in self._series:
            copied = self._rules.copied_of(each.path)
            target, source = self._ledger(each), self._ledger(each, copied)
            for place, is_dead in each.places:
                yield from self._reading.look("target", place, self._noting(target, is_dead))
            for place, is_dead in each.places:
                if self._places[place].has_sessions:
                    yield from self._look_at_source(place, source, target)
                else:
                    yield from self._reading.look("source", place, self._noting(source, is_dead))
            for ledger in (target, source):
                ledger.close()
            self.looked_at += len(target) + len(source)
            each.before, each.now = each.now, SeriesLook(source, target)
        self._compare()

    def _compare(self) -> None:
        """Find what the source lacks."""
        front, *others = self._series
        assert front.now is not None
        topic = TopicLook(self._name(front), front.now, front.before)
        came = [
            brought_from(topic.name, text)
            for each in others
            if each.now is not None
            for text in each.now.source.brought.values()
        ]
        for each in self._series:
            assert each.now is not None
            each.found = difference(
                each.now,
                each.before,
                self._name(each),
                returns=self._rules.returns,
                front=None if each is front else topic,
                activated={found for found in came if found is not None} if each is front else (),
            )

    def _name(self, series: _Series) -> str:
        return f"{self._rules.target}/{series.path.lower()}"

    def _ledger(self, series: _Series, copied: LastCopied | None = None) -> SideLedger:
        has_sessions = self._places[series.alive].has_sessions
        return SideLedger(series.path, copied, has_sessions=has_sessions)

    def _noting(self, ledger: SideLedger, is_dead: bool) -> Callable[[PeekedMessage], None]:
        def note(message: PeekedMessage) -> None:
            assert isinstance(message, ReturnMessage)
            ledger.note(message, is_dead=is_dead)

        return note

    def _look_at_source(self, place: int, source: SideLedger, target: SideLedger) -> ReturnSteps:
        """Read a place of the source that has sessions: by session, too, where some lack.

        A session that has scheduled messages alone is in no list: the target names those.
        """
        shown: set[int] = set()

        def note(message: PeekedMessage) -> None:
            assert isinstance(message, ReturnMessage)
            shown.add(message.number)
            source.note(message, is_dead=False)

        yield from self._reading.look("source", place, note)
        counted = yield CountSource(place)
        assert isinstance(counted, CopyCount)
        if counted.count == len(shown):
            return
        listed = yield ListSourceSessions(place)
        assert isinstance(listed, list | tuple)
        spelled = [each for each in listed if isinstance(each, str)]
        for session_id in {fold(each): each for each in (*target.session_ids, *spelled)}.values():
            yield from self._reading.look("source", place, note, session_id)

    # -- what the source lacks

    def _settle_all(self) -> ReturnSteps:
        for each in self._series:
            yield from self._settle(each)
            numbers = iter(each.found.cancelled)
            while some := tuple(islice(numbers, TOGETHER)):
                yield CancelAtSource(each.alive, some)
                self.settled += len(some)
            yield from self._bring(each)

    def _settle(self, series: _Series) -> ReturnSteps:
        for group, numbers in ordered(series.found):
            place = series.place(is_dead=group.is_dead)
            rest = iter(sorted(numbers))
            while some := list(islice(rest, SETTLED_TOGETHER[group.how])):
                messages: list[tuple[int, RemoteMessage | None]] = [(each, None) for each in some]
                if group.how is SettledAs.DEAD_LETTERED:
                    messages = yield from self._with_reasons(series, some)
                answer = yield SettleAtSource(
                    place, group.how, group.is_deferred, tuple(messages), group.session_id
                )
                self._check(self._places[place].path, answer)
                self.settled += len(some)

    def _with_reasons(
        self, series: _Series, numbers: Sequence[int]
    ) -> Generator[ReturnEffect, CopyAnswer, list[tuple[int, RemoteMessage | None]]]:
        """Return numbers at the source, each with the target's dead letter."""
        found: list[tuple[int, RemoteMessage | None]] = []
        place = series.place(is_dead=True)
        page: dict[int, ReturnMessage] = {}
        for number in numbers:
            there = series.found.theirs.get(number, number)
            if there not in page:
                page = yield from self._page("target", place, there)
            if there in page:  # else it is gone: the next look says so
                found.append((number, page[there].message))
        return found

    def _page(
        self, side: Side, place: int, number: int
    ) -> Generator[ReturnEffect, CopyAnswer, dict[int, ReturnMessage]]:
        page = yield from self._reading.page(side, place, number)
        return {each.number: each for each in page if isinstance(each, ReturnMessage)}

    def _bring(self, series: _Series) -> ReturnSteps:
        """Send to the source what it has not, by number."""
        assert series.now is not None
        target = series.now.target
        batch: list[tuple[ReturnMessage, str]] = []
        size_bytes, place, page = 0, series.alive, dict[int, ReturnMessage]()
        for at in series.found.brought:
            number, where = target.number(at), series.place(is_dead=target.is_dead(at))
            if where != place or number not in page:
                page = yield from self._page("target", where, number)
            message = page.get(number)
            if message is None:
                continue  # it is gone: the next look says so
            is_full = len(batch) == TOGETHER or size_bytes + message.size_bytes > PAGE_BYTES // 4
            if batch and (is_full or where != place):
                yield from self._send(place, batch)
                batch, size_bytes = [], 0
            place = where
            batch.append((message, brought_text(self._name(series), message)))
            size_bytes += message.size_bytes
        if batch:
            yield from self._send(place, batch)

    def _send(self, place: int, batch: Sequence[tuple[ReturnMessage, str]]) -> ReturnSteps:
        """Send a batch; when no answer came, the next look shows whether it is there."""
        answer = yield BringToSource(place, tuple(batch))
        self._check(self._places[place].path, answer)
        self.sent += len(batch)


def _series_of(places: Sequence[CopyPlace]) -> list[_Series]:
    """Return the places by series; a queue stands before its dead-letter queue."""
    found: dict[int, _Series] = {}
    for index, place in enumerate(places):
        if place.is_dead:
            found[place.series].dead = index
        else:
            found[place.series] = _Series(place.path, index)
    return list(found.values())
