"""Which deferred messages a peek shows: those that a receive by number finds, whatever happened."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from bridge.machine.browse.entity_messages import DEFERRED_PLACES, Deferred, MovedTo
from bridge.machine.ranges import Ranges


class Rabbit:
    """What RabbitMQ has of an entity's deferred messages.

    Attributes:
        there: the messages by place and number; two may have one number.
        gone: those that were settled.
        moved, settled: the entries of the two streams.
        unwritten: entries of the settled stream that bridges have yet to write.
    """

    def __init__(self) -> None:
        self.there: Counter[tuple[MovedTo, int]] = Counter()
        self.gone: list[tuple[MovedTo, int]] = []
        self.moved: list[tuple[MovedTo, int]] = []
        self.settled: list[tuple[MovedTo, int]] = []
        self.unwritten: list[tuple[MovedTo, int]] = []
        self.is_peeked = False
        self._last = 0

    def defer(self, place: MovedTo) -> None:
        """A message is deferred."""
        self._last += 1
        self.there[place, self._last] += 1
        self.moved.append((place, self._last))

    def settle(self, key: tuple[MovedTo, int], *, is_told: bool) -> None:
        """A deferred message is completed; its bridge tells that if anybody has peeked."""
        self.there[key] -= 1
        self.gone.append(key)
        if self.is_peeked and is_told:
            self.unwritten.append(key)

    def numbers(self, place: MovedTo) -> list[int]:
        """What a receive by number finds."""
        return sorted(number for (each, number), n in self.there.items() if n and each is place)


class Peeker:
    """A bridge that peeks."""

    def __init__(self, rabbit: Rabbit) -> None:
        self.rabbit = rabbit
        self.left = {place: Ranges() for place in DEFERRED_PLACES}
        self.deferred = Deferred(self.left)
        self.read = {"moved": 0, "settled": 0}
        self.answer: tuple[list[int], list[int]] | None = None

    def catch_up(self, stream: str) -> None:
        """Read the new entries of a stream."""
        entries = self.rabbit.moved if stream == "moved" else self.rabbit.settled
        for place, number in entries[self.read[stream] :]:
            if stream == "moved":
                self.deferred.moved(number, place)
            else:
                self.left[place].add(number, number)
                self.deferred.left(place, number, number)
        self.read[stream] = len(entries)

    def listed(self) -> tuple[list[int], list[int]]:
        """The owner's answer."""
        own, dead = (self.rabbit.numbers(place) for place in DEFERRED_PLACES)
        return own, dead

    def peek(self) -> None:
        """Peek, and see what a receive by number would find."""
        self.rabbit.is_peeked = True
        self.catch_up("settled")
        self.catch_up("moved")
        count = self.rabbit.there.total()
        if not self.deferred.agrees(count):
            self.deferred.ask()
            self.deferred.told(*self.listed())
            self.deferred.excuse(count)
        for place in DEFERRED_PLACES:
            assert self.deferred.numbers(place) == self.rabbit.numbers(place)


COMMON = ["defer", "defer", "settle", "dead-letter", "again", "write", "peek", "peeker"]
COMMON += ["unseen", "read moved", "read settled", "ask", "answer", "told"]
TELLING_TOO_MUCH = ["come back", "dead-letter and die", "twin"]
TELLING_TOO_LITTLE = ["settle and die", "die", "refused"]
"""A number that is there and is called gone, and one that is gone and nobody calls so: each alone
changes a count. The two failures at once may leave it as it was."""

events = st.sampled_from([TELLING_TOO_MUCH, TELLING_TOO_LITTLE]).flatmap(
    lambda failures: st.lists(
        st.tuples(st.sampled_from(COMMON + failures), st.integers(0, 1_000)), max_size=60
    )
)


def carry_out(rabbit: Rabbit, peeker: Peeker, what: str, chance: int) -> Peeker:
    """Do one thing; return who peeks from then on."""
    there = sorted(key for key, count in rabbit.there.items() if count)
    key = there[chance % len(there)] if there else None
    match what:
        case "defer":
            rabbit.defer(DEFERRED_PLACES[chance % 2])
        case "write":
            rabbit.settled += rabbit.unwritten
            rabbit.unwritten.clear()
        case "die":
            rabbit.unwritten.clear()
        case "unseen" if not rabbit.is_peeked:  # the stream has lost it, or was not there yet
            rabbit.defer(DEFERRED_PLACES[chance % 2])
            rabbit.moved.pop()
        case "refused":  # the stream took what the queue refused
            rabbit.moved.append((MovedTo.DEFERRED, 2_000 + chance))
        case "come back" if rabbit.gone:  # the ack was lost
            rabbit.there[rabbit.gone.pop(chance % len(rabbit.gone))] += 1
        case "peek":
            peeker.peek()
        case "peeker":
            return Peeker(rabbit)
        case "read moved" | "read settled":
            peeker.catch_up(what.removeprefix("read "))
        case "ask" if peeker.read["moved"] and rabbit.is_peeked:
            peeker.deferred.ask()
            peeker.answer = None
        case "answer" if peeker.deferred._since is not None:
            peeker.answer = peeker.listed()
        case "told" if peeker.answer is not None and peeker.deferred._since is not None:
            peeker.deferred.told(*peeker.answer)
            peeker.answer = None
        case "settle" | "settle and die" if key is not None:
            rabbit.settle(key, is_told=what == "settle")
        case "again" if key is not None:
            rabbit.moved.append(key)
        case "twin" if key is not None:
            rabbit.there[key] += 1
        case "dead-letter" | "dead-letter and die" if (
            key is not None and key[0] is MovedTo.DEFERRED
        ):
            rabbit.moved.append((MovedTo.DEAD, key[1]))
            if what == "dead-letter":
                rabbit.settle(key, is_told=True)
    return peeker


@given(events)
@example([("defer", 0), ("peek", 0), ("twin", 0), ("peek", 0), ("settle", 0), ("write", 0)])
@example([("unseen", 0), ("defer", 0), ("settle and die", 1)])
def test_a_peek_shows_what_a_receive_by_number_finds(happened: list[tuple[str, int]]) -> None:
    """Messages may be deferred and settled in any order, before the first peek and after it."""
    rabbit = Rabbit()
    peeker = Peeker(rabbit)
    for what, chance in happened:
        peeker = carry_out(rabbit, peeker, what, chance)
    peeker.peek()
    peeker.peek()
