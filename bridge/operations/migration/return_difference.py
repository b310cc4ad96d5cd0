"""What the source lacks to be what the target has made of its messages: in one series."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from bridge.operations.migration.return_effects import SettledAs, brought_from
from bridge.operations.migration.side_ledger import SideLedger

NAMED: Final = 10
"""Messages of one kind that are named; all are counted."""


@dataclass(slots=True)
class NamedNumbers:
    """Messages that are counted, the first ones named, too."""

    count: int = 0
    numbers: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Count a message."""
        self.count += 1
        if self.count <= NAMED:
            self.numbers.append(number)


@dataclass(frozen=True, slots=True)
class SettledGroup:
    """Messages of the source that are settled alike.

    Attributes:
        is_dead, is_deferred: where they are now.
        session_id: their session, where they are received by session.
    """

    how: SettledAs
    is_dead: bool
    is_deferred: bool
    session_id: str | None


@dataclass(slots=True)
class SeriesDifference:
    """What is to be done with the messages of one series, and what is to be known of them.

    Attributes:
        stays: how many are in the same state at both sides.
        settled: numbers at the source.
        theirs: of those that were brought their numbers at the target.
        cancelled: numbers of scheduled messages that were brought, and are gone at the target.
        brought: where the messages that are to be brought are in the target's ledger.
        unsure: how many this look does not show, and the one before has shown.
        new: what the target has taken as new, and is not to be returned.
        late: what came to the source behind the copy, and is not at the target.
        scheduled: what is scheduled at the source alone, and did not come from the target.
        unreachable: what is in a state that it cannot come to at the source.
        numbers: of each message that was brought: its number at the target, and at the source.
    """

    stays: int = 0
    settled: dict[SettledGroup, array[int]] = field(default_factory=dict)
    theirs: dict[int, int] = field(default_factory=dict)
    cancelled: array[int] = field(default_factory=lambda: array("q"))
    brought: array[int] = field(default_factory=lambda: array("l"))
    unsure: int = 0
    new: NamedNumbers = field(default_factory=NamedNumbers)
    late: NamedNumbers = field(default_factory=NamedNumbers)
    scheduled: NamedNumbers = field(default_factory=NamedNumbers)
    unreachable: NamedNumbers = field(default_factory=NamedNumbers)
    numbers: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether nothing is to be done, and no look is needed any more."""
        return not (self.settled or self.cancelled or self.brought or self.unsure)

    def count(self, how: SettledAs) -> int:
        """Return how many are to be settled in one way."""
        return sum(len(each) for group, each in self.settled.items() if group.how is how)


@dataclass(frozen=True, slots=True)
class SeriesLook:
    """What one look has shown of a series at both sides."""

    source: SideLedger
    target: SideLedger


@dataclass(frozen=True, slots=True)
class TopicLook:
    """What two looks have shown of a topic's scheduled messages, and what names it."""

    name: str
    now: SeriesLook
    before: SeriesLook | None


def difference(
    now: SeriesLook,
    before: SeriesLook | None,
    target: str,
    *,
    returns: bool,
    front: TopicLook | None = None,
    activated: Collection[tuple[int, int]] = (),
) -> SeriesDifference:
    """Return what is to be done.

    A peek may lack for a while what is there: nothing counts as gone, or as not brought yet, that
    the look before has shown.

    Args:
        before: the look before; `None`: it is taken as if it had shown the same.
        target: names the entity there, see `brought_from`.
        returns: what the target has taken as new is brought, too.
        front: of a subscription, its topic: messages that were scheduled there have come from it.
        activated: of a topic, number and digest of scheduled messages that were brought, and that
            its subscriptions at the source have by now.
    """
    return _Comparison(now, before or now, target, returns, front, activated).found()


class _Comparison:
    def __init__(
        self,
        now: SeriesLook,
        before: SeriesLook,
        target: str,
        returns: bool,
        front: TopicLook | None,
        activated: Collection[tuple[int, int]],
    ) -> None:
        self._source, self._target = now.source, now.target
        self._before = before
        self._name = target
        self._returns = returns
        self._front = front
        self._activated_here: set[tuple[int, int]] = set()
        looks = () if front is None else (front.now, front.before or front.now)
        self._topic = [each.target for each in looks]
        self._activated = activated
        self._claimed = bytearray(len(now.target))
        self._found = SeriesDifference()
        texts = before.source.brought.values() if before is not now else ()
        self._brought_before = {brought_from(target, each) for each in texts}

    def found(self) -> SeriesDifference:
        source = self._source
        others = []
        for at in range(len(source)):
            # What came behind the copy is no copy, though a number may be given at both sides.
            is_late = source.is_late(at)
            there = None if is_late else self._target.find(source.number(at), source.digest(at))
            if there is None:
                others.append(at)
            else:
                self._claimed[there] = 1
                self._beside(at, there)
        for at in others:
            self._without_its_number(at)
        for there, is_claimed in enumerate(self._claimed):
            if not is_claimed:
                self._at_target_alone(there)
        before = self._before.target
        for at in range(len(before)):
            self._found.unsure += self._target.find(before.number(at), before.digest(at)) is None
        return self._found

    def _without_its_number(self, at: int) -> None:
        """Judge a message of the source whose number the target has not."""
        source, found = self._source, self._found
        number = source.number(at)
        text = source.brought.get(number)
        came = None if text is None else brought_from(self._name, text)
        if came is not None:
            there = self._target.find(*came)
            if there is None:
                self._gone(at, *came)
            elif self._claimed[there] or came in self._activated:  # it is at the source already
                self._settle(at, SettledAs.COMPLETED, 0)
            else:
                self._claimed[there] = 1
                found.numbers.append((came[0], number))
                self._beside(at, there)
        elif (scheduled := self._scheduled_at_topic(text)) is not None:
            is_there = any(each.find(*scheduled) is not None for each in self._topic)
            if is_there and scheduled not in self._activated_here:
                self._activated_here.add(scheduled)
                found.stays += 1
            else:
                self._settle(at, SettledAs.COMPLETED, 0)
        elif source.state(at) == "scheduled":
            found.scheduled.add(number)
        elif source.is_late(at):
            found.late.add(number)
        else:
            self._gone(at, number, source.digest(at))

    def _scheduled_at_topic(self, text: str | None) -> tuple[int, int] | None:
        """Return what a message was at the topic of this subscription; `None`: it was none."""
        if text is None or self._front is None:
            return None
        return brought_from(self._front.name, text)

    def _gone(self, at: int, number: int, digest: int) -> None:
        if self._before.target.find(number, digest) is None:  # else it is unsure
            self._settle(at, SettledAs.COMPLETED, 0)

    def _settle(self, at: int, how: SettledAs, there: int) -> None:
        source = self._source
        number = source.number(at)
        if source.state(at) == "scheduled":
            self._found.cancelled.append(number)
            return
        group = SettledGroup(
            how, source.is_dead(at), source.state(at) == "deferred", source.session(at)
        )
        self._found.settled.setdefault(group, array("q")).append(number)
        if there not in (0, number):
            self._found.theirs[number] = there

    def _beside(self, at: int, there: int) -> None:
        """Judge a message that is at both sides."""
        source, target = self._source, self._target
        here = source.state(at), source.is_dead(at)
        wanted = target.state(there), target.is_dead(there)
        number = target.number(there)
        if here == wanted or wanted[0] == "scheduled":
            self._found.stays += 1
        elif wanted == ("active", False) or here[0] == "scheduled":
            self._found.unreachable.add(source.number(at))
        elif here[1] == wanted[1] and here[0] == "active":
            self._settle(at, SettledAs.DEFERRED, number)
        elif wanted[1] and not here[1]:
            self._settle(at, SettledAs.DEAD_LETTERED, number)
        else:
            self._found.unreachable.add(source.number(at))

    def _at_target_alone(self, there: int) -> None:
        target = self._target
        number = target.number(there)
        if target.state(there) != "scheduled" and not self._returns:
            self._found.new.add(number)
        elif (number, target.digest(there)) in self._activated:
            self._found.stays += 1
        elif self._was_at_source(number, target.digest(there)):
            self._found.unsure += 1
        else:
            self._found.brought.append(there)

    def _was_at_source(self, number: int, digest: int) -> bool:
        before = self._before.source
        if before is self._source:
            return False
        at = before.find(number, digest)
        was_copy = at is not None and not before.is_late(at)
        return was_copy or (number, digest) in self._brought_before


def ordered(found: SeriesDifference) -> Iterator[tuple[SettledGroup, array[int]]]:
    """Yield what is settled, one session after the other."""
    yield from sorted(found.settled.items(), key=lambda each: each[0].session_id or "")
