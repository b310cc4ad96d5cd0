"""Which messages an entity has at the source, in little memory: some 45 bytes each."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import merge

from bridge.model.number import PARTITION_COUNT, compose
from bridge.model.session_id import FoldedId, fold
from bridge.operations.migration.copy_effects import (
    DIGEST_BYTES,
    CopyPlace,
    CopyStopped,
    PeekedMessage,
    digest_of,
)

_SCHEDULED, _SEEN = 1, 2


class PlaceLedger:
    """The messages of one place, each by its number.

    Messages are noted in any order, and are found when the ledger is closed.

    Args:
        place: the place.

    Attributes:
        first_due: number and time (UTC ms) of the scheduled message that is due first.
        is_closed: all messages are noted.
    """

    def __init__(self, place: CopyPlace) -> None:
        self.place = place
        self._numbers = array("q")
        self._orders = array("q")
        self._sessions = array("l")
        self._digests = bytearray()
        self._encoded_digests = bytearray()
        self._flags = bytearray()
        self._sessions_known: dict[FoldedId, int] = {}
        self._spellings: list[str] = []
        self._unseen = 0
        self.first_due: tuple[int, int] | None = None
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._numbers)

    def note(self, message: PeekedMessage) -> None:
        """Note a message.

        Raises:
            CopyStopped: it has no number.
        """
        if message.number <= 0:
            raise CopyStopped(
                f"{self.place.path}: a message cannot be read, and has no number: receive it first."
            )
        self._numbers.append(message.number)
        assert message.digest, "a message that is noted has it"
        self._digests += message.digest
        self._encoded_digests += message.encoded_digest or bytes(DIGEST_BYTES)
        self._flags.append(0 if message.due_ms is None else _SCHEDULED)
        if self.place.is_ordered_by_topic:
            self._orders.append(message.order)
        if self.place.has_sessions:
            known = self._sessions_known.setdefault(
                fold(message.session_id or ""), len(self._spellings)
            )
            if known == len(self._spellings):
                self._spellings.append(message.session_id or "")
            self._sessions.append(known)
        due_ms = message.due_ms
        if due_ms is not None and (self.first_due is None or due_ms < self.first_due[1]):
            self.first_due = message.number, due_ms

    def close(self) -> None:
        """Bring the messages into the order of their numbers; one noted twice is one.

        Raises:
            CopyStopped: a message was noted twice with different values.
        """
        numbers = self._numbers
        if any(numbers[at] >= numbers[at + 1] for at in range(len(numbers) - 1)):
            self._sort()
        self._unseen = len(self._numbers)
        self.is_closed = True

    def _sort(self) -> None:
        numbers, digests = self._numbers, self._digests
        kept: list[int] = []
        for at in sorted(range(len(numbers)), key=numbers.__getitem__):
            if not kept or numbers[kept[-1]] != numbers[at]:
                kept.append(at)
            elif _digest(digests, kept[-1]) != _digest(digests, at):
                raise self.stopped(numbers[at], "has changed")
        encoded = self._encoded_digests
        self._digests = bytearray(b"".join(_digest(digests, at) for at in kept))
        self._encoded_digests = bytearray(b"".join(_digest(encoded, at) for at in kept))
        self._numbers = array("q", (numbers[at] for at in kept))
        self._flags = bytearray(self._flags[at] for at in kept)
        if self._orders:
            self._orders = array("q", (self._orders[at] for at in kept))
        if self._sessions:
            self._sessions = array("l", (self._sessions[at] for at in kept))

    def number(self, at: int) -> int:
        """Return the number of a message by its place in the order."""
        return self._numbers[at]

    def order(self, at: int) -> int:
        """Return its EnqueuedSequenceNumber, where messages are ordered by that."""
        return self._orders[at] if self._orders else self._numbers[at]

    def session_of(self, at: int) -> str:
        """Return its session, where the place has them."""
        return self._spellings[self._sessions[at]]

    def scheduled(self) -> Iterator[int]:
        """Yield where scheduled messages are in the order."""
        return (at for at, flags in enumerate(self._flags) if flags & _SCHEDULED)

    def find(self, number: int) -> int | None:
        """Return where a number is in the order; `None`: no message has it."""
        at = bisect_left(self._numbers, number)
        return at if at < len(self._numbers) and self._numbers[at] == number else None

    def next_numbers(self) -> list[int]:
        """Return from which numbers on new messages are; of a partitioned entity each partition's.

        What has a higher number may be another partition's, and known.
        """
        if not self._numbers or self._numbers[-1] < compose(1, 0):
            return [self._numbers[-1] + 1 if self._numbers else 1]
        known = (
            bisect_left(self._numbers, compose(each + 1, 0)) for each in range(PARTITION_COUNT)
        )
        starts = {self._numbers[at - 1] + 1 if at else 1 for at in known}
        return sorted(starts)

    def is_same(self, at: int, message: PeekedMessage) -> bool:
        """Whether a message is the one that was noted.

        Its values are looked at only where its bytes are others.
        """
        encoded = message.encoded_digest
        if encoded and encoded == _digest(self._encoded_digests, at):
            return True
        digest = message.digest or digest_of(message.message, is_dead=self.place.is_dead)
        return digest == _digest(self._digests, at)

    # -- what a look has shown

    def forget_seen(self) -> None:
        """Begin another look: none is seen."""
        for at in range(len(self._flags)):
            self._flags[at] &= ~_SEEN
        self._unseen = len(self._flags)

    def see(self, at: int) -> None:
        """Note that a message was seen."""
        if not self._flags[at] & _SEEN:
            self._flags[at] |= _SEEN
            self._unseen -= 1

    def see_copy(self, message: PeekedMessage, *, is_new: bool) -> None:
        """Note that the target shows a message.

        Args:
            is_new: the target was not held before, so that it may have none.

        Raises:
            CopyStopped: it is not the source's.
        """
        path, number = self.place.path, message.number
        if is_new:
            raise CopyStopped(
                f"{path}: the target has messages of its own, such as {number}: receive or purge "
                "them first."
            )
        at = self.find(number)
        if at is None or not self.is_same(at, message):
            what = "which the source has not" if at is None else "and the source another"
            raise CopyStopped(
                f"{path}: the target has message {number}, {what}: the source has changed. "
                f"{self.place.anew}"
            )
        self.see(at)

    def is_seen(self, at: int) -> bool:
        """Whether this look has shown a message."""
        return bool(self._flags[at] & _SEEN)

    def seen_count(self) -> int:
        """How many messages this look has shown."""
        return len(self._flags) - self._unseen

    @property
    def unseen(self) -> int:
        """How many it has not shown."""
        return self._unseen

    def first_unseen(self) -> int:
        """Return the number of the first message that was not seen; there is one."""
        return next(self._numbers[at] for at, flags in enumerate(self._flags) if not flags & _SEEN)

    def stopped(self, number: int, what: str) -> CopyStopped:
        """Return the error that names a message at the source."""
        return CopyStopped(
            f"{self.place.path}: message {number} {what} at the source: stop what sends and "
            "receives there, and begin again."
        )


def _digest(digests: bytearray, at: int) -> bytes:
    return bytes(digests[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES])


def in_order(ledgers: Sequence[PlaceLedger]) -> Iterator[tuple[int, int]]:
    """Yield all messages in the order in which they are imported, as index of place and message.

    In each series the numbers rise. Several series are merged by EnqueuedSequenceNumber.

    Raises:
        CopyStopped: a number is at two places.
    """
    by_series: dict[int, list[int]] = {}
    for index, ledger in enumerate(ledgers):
        by_series.setdefault(ledger.place.series, []).append(index)
    series = (_of_series(ledgers, places) for places in by_series.values())
    for _, _, _, place, at in merge(*series):
        yield place, at


def _of_series(
    ledgers: Sequence[PlaceLedger], places: Sequence[int]
) -> Iterator[tuple[int, int, int, int, int]]:
    highest = last = 0
    for number, place, at in merge(*(_of_place(ledgers[place], place) for place in places)):
        ledger = ledgers[place]
        if number == last:
            raise ledger.stopped(number, "has moved between two queues")
        last = number
        highest = max(highest, ledger.order(at))
        yield highest, ledger.place.series, number, place, at


def _of_place(ledger: PlaceLedger, place: int) -> Iterator[tuple[int, int, int]]:
    for at in range(len(ledger)):
        yield ledger.number(at), place, at
