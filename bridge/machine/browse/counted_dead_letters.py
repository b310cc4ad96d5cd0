"""Which dead letters are in their queue, when RabbitMQ counts fewer than the streams name.

A bridge was killed before it wrote what it had settled, or a native consumer took the messages. Of
dead letters these are any: who receives them may have taken some out of the middle. So the queue is
looked through once. What was not seen there is gone, if all that RabbitMQ had counted before was
seen, and no other process held any. Otherwise, and before the look, the oldest are taken for gone,
those before all others that were not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple


class LookedThrough(NamedTuple):
    """What a look through a queue has found.

    Attributes:
        came: the numbers of all messages that came, below 0 for one without a number.
        held: the numbers of those that this process held meanwhile.
        is_whole: the queue's end was reached.
    """

    came: list[int]
    held: frozenset[int]
    is_whole: bool


class CountedDeadLetters:
    """The dead letters of one entity, by what the streams, RabbitMQ's count and looks say.

    Attributes:
        gone: those that the streams name, and that are shown to nobody.
        is_open: the count leaves open which are there: a look through the queue would say more.
    """

    def __init__(self) -> None:
        self.gone: frozenset[int] = frozenset()
        self.is_open = False
        self._missed: dict[int, int] = {}
        self._strangers = 0
        self._is_proven = True

    def __repr__(self) -> str:
        state = "open" if self.is_open else "explained"
        return f"CountedDeadLetters({len(self.gone)} gone, {state})"

    @property
    def unsure(self) -> frozenset[int]:
        """The numbers of `gone` that may be there all the same."""
        return self.gone if self.is_open else frozenset()

    def hides_more(self, there: Mapping[int, int], count: int) -> bool:
        """Whether by a count more are gone than are taken for gone; the arguments of `compare`."""
        return self._beyond(there, count) > len(self.gone.intersection(there))

    def compare(self, there: Mapping[int, int], count: int) -> None:
        """Take a count; one that `hides_more` has been asked for twice, and is the higher one.

        A count is a sum of answers of different instants: a message that has gone back to the queue
        between them may be in none.

        Args:
            there: the offsets of the dead letters that the streams name, by number. A message that
                has died once more has another offset: nobody has looked for that.
            count: RabbitMQ's, with those that processes hold.
        """
        own = max(count - self._strangers, 0)
        missed = {number for number, offset in there.items() if self._missed.get(number) == offset}
        if self._is_proven:
            is_explained = own == len(there) - len(missed) or (own > len(there) and not missed)
        else:
            is_explained = not there
        self.is_open = count > 0 and not is_explained
        beyond = self._beyond(there, count)
        if beyond <= 0:
            self.gone = frozenset()
        elif beyond == len(missed):
            self.gone = frozenset(missed)
        else:
            by_age = sorted(there, key=lambda number: (number not in missed, there[number]))
            self.gone = frozenset(by_age[:beyond])

    def _beyond(self, there: Mapping[int, int], count: int) -> int:
        """Return how many more the streams name than a count has."""
        return len(there) - max(count - self._strangers, 0) if count else len(there)

    def looked(
        self,
        there: Mapping[int, int],
        count: int,
        others: int,
        found: LookedThrough,
        named: Collection[int],
    ) -> None:
        """Take what a look has found; `compare` says then what it means.

        Args:
            there: the dead letters that the streams named before the look.
            count: what RabbitMQ counted before the look, with those that processes hold.
            others: how many of these other processes held.
            found: what the look has found.
            named: the numbers of all dead letters that the streams name now, also of those that
                have left: others that came are strangers, which a native client has published.
        """
        seen = found.held.union(found.came)
        self._missed = {number: at for number, at in there.items() if number not in seen}
        self._strangers = _strangers(found.came, named)
        known = len(there) - len(self._missed)
        self._is_proven = found.is_whole and not others and known + self._strangers == count


def _strangers(came: Iterable[int], named: Collection[int]) -> int:
    """Return how many messages came that no stream names, or that came twice."""
    left = set(named)
    count = 0
    for number in came:
        if number in left:
            left.remove(number)
        else:
            count += 1
    return count
