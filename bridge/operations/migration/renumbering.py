"""New numbers for the copies at a target that has given numbers itself, and their way back.

A copy's number is its old one and a distance, which is the same for all messages of a series, in a
partition. So their order stays, and who begins again finds the distance by any copy. Copies say
what they were by two application properties (`renumbered_message`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Final

from bridge.model.number import COUNTER_MAX, NUMBER_MAX, partition_of
from bridge.operations.migration.copy_effects import (
    CopyAnswer,
    CopyEffect,
    CopyPlace,
    CopyStopped,
    LastNumbers,
    PeekedMessage,
    ReadLastNumbers,
)
from bridge.operations.migration.message_ledger import PlaceLedger
from bridge.operations.migration.renumbered_message import renumbered

TOPICS: Final = 0
"""The series of a queue, or of a topic: EnqueuedSequenceNumbers of its subscriptions are in it."""

Series = tuple[int, int]
"""A series of numbers, and the partition."""


class Renumbering:
    """Which numbers the messages of an entity get.

    Args:
        places: where they are.
    """

    def __init__(self, places: Sequence[CopyPlace]) -> None:
        self._places = places
        self._lasts: dict[Series, tuple[int, bool]] = {}
        self._distances: dict[Series, int] = {}
        self._is_partitioned = False
        self._is_first = False

    def ask(self, *, is_first: bool = False) -> Generator[CopyEffect, CopyAnswer, None]:
        """Have the target tell its last numbers.

        Args:
            is_first: the run has copied nothing yet, so that copies are an earlier one's.
        """
        self._is_first = is_first
        asked = set[int]()
        for index, place in enumerate(self._places):
            if place.series in asked:
                continue
            asked.add(place.series)
            told = yield ReadLastNumbers(index)
            assert isinstance(told, LastNumbers)
            if place.series == TOPICS:
                self._is_partitioned = len(told.numbers) > 1
            for partition, each in enumerate(told.numbers):
                self._lasts[place.series, partition] = each

    @property
    def has_imports(self) -> bool:
        """Whether the target said that it has given a last number to a copy."""
        return any(is_imported for _, is_imported in self._lasts.values())

    def is_copy(self, ledger: PlaceLedger, message: PeekedMessage) -> bool:
        """Whether a message of the target is a copy: of what it says, or where one would be.

        Raises:
            CopyStopped: it is one, under a number that another copy forbids; or it is an earlier
                run's, which could not be told from this one's afterwards.
        """
        shown = message.shown_number
        at = ledger.find(message.number)
        if at is None and self._is_first:
            raise CopyStopped(
                f"{ledger.place.path}: the target has {shown}, an earlier run's copy of message "
                f"{message.number}, which the source has no more: receive such copies there first, "
                "or leave the entity out."
            )
        if at is None or not ledger.is_same(at, message):
            distance = self._distances.get(self._of(ledger.place.series, message.number))
            return distance is not None and shown - message.number == distance
        self._learn(ledger, ledger.place.series, message.number, shown)
        if ledger.place.is_ordered_by_topic:
            self._learn(ledger, TOPICS, ledger.order(at), message.order)
        return True

    def _learn(self, ledger: PlaceLedger, series: int, old: int, new: int) -> None:
        of = self._of(series, old)
        if self._distances.setdefault(of, new - old) != new - old:
            raise CopyStopped(
                f"{ledger.place.path}: the target has message {old} under {new}, and others of its "
                f"series {self._distances[of]:+} from their old numbers. {ledger.place.anew}"
            )

    def _of(self, series: int, number: int) -> Series:
        return series, partition_of(number) if series == TOPICS and self._is_partitioned else 0

    def hidden(self, ledgers: Iterable[PlaceLedger]) -> CopyStopped | None:
        """Return the error that names a place whose copies were not shown, if there are some."""
        for of, (last, is_imported) in self._lasts.items():
            if is_imported and of not in self._distances:
                for each in ledgers:
                    if each.place.series == of[0]:
                        return CopyStopped(
                            f"{each.place.path}: the target has imported a message under {last}, "
                            "and shows no copy: begin again. If it stays so, all copies have "
                            f"expired: {each.place.anew}"
                        )
        return None

    def settle(self, ledgers: Sequence[PlaceLedger]) -> None:
        """Decide on the distances of series without copies: all numbers are above the last one.

        Where they are already, they stay.

        Raises:
            CopyStopped: numbers would be too high.
        """
        self._is_first = False
        firsts: dict[Series, int] = {}
        highest: dict[Series, int] = {}
        for ledger in ledgers:
            series = ledger.place.series
            for at in range(len(ledger)):
                numbers = [(series, ledger.number(at))]
                if ledger.place.is_ordered_by_topic:
                    numbers.append((TOPICS, ledger.order(at)))
                for series_of, number in numbers:
                    of = self._of(series_of, number)
                    firsts[of] = min(firsts.get(of, number), number)
                    highest[of] = max(highest.get(of, number), number)
        for of, first in firsts.items():
            last, _ = self._lasts.get(of, (0, False))
            self._distances.setdefault(of, max(0, last + 1 - first))
            number = highest[of] + self._distances[of]
            is_high = (
                partition_of(number) != of[1]
                if of[0] == TOPICS and self._is_partitioned
                else number > NUMBER_MAX
            )
            if is_high:
                raise CopyStopped(
                    f"{self._places[0].path}: the numbers above {last} are too few for the "
                    f"source's, of which the highest is {highest[of] & COUNTER_MAX}."
                )

    def number(self, place: CopyPlace, old: int) -> int:
        """Return the number that a message of the source gets, or has."""
        return old + self._distances[self._of(place.series, old)]

    def renumbered(self, place: CopyPlace, message: PeekedMessage) -> PeekedMessage:
        """Return a message of the source as it is imported.

        Raises:
            CopyStopped: it cannot say what it was.
        """
        number, order = self.number(place, message.number), None
        if place.is_ordered_by_topic:
            order = message.order + self._distances[self._of(TOPICS, message.order)]
        sent = renumbered(message.message, place, message.number, number, order)
        return replace(
            message,
            message=sent,
            size_bytes=sent.size_bytes,
            target_number=number,
            order=message.order if order is None else order,
        )


def seeing(
    ledger: PlaceLedger, renumbering: Renumbering | None, *, is_new: bool = False
) -> Callable[[PeekedMessage], None]:
    """Return what sees a message of the target; the target's own are passed over.

    Args:
        renumbering: `None`: numbers stay, and the target has no messages of its own.
        is_new: see `PlaceLedger.see_copy`.
    """

    def see(message: PeekedMessage) -> None:
        if renumbering is None or renumbering.is_copy(ledger, message):
            ledger.see_copy(message, is_new=is_new)

    return see
