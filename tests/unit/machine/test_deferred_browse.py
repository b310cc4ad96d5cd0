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
        self.deferred.ask()
        if self.deferred.counted(count, 0):
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


class Counted:
    """A queue of deferred messages between a look's questions, which come one after the other.

    Attributes:
        ready: what RabbitMQ counts; `None`: there is no such queue.
        held: what its holder says that it holds.
        returning: what the holder has given back, and RabbitMQ has not yet.
        there: all of them.
        named: those that the stream of moved messages names.
    """

    def __init__(self) -> None:
        self.ready: set[int] | None = None
        self.held: set[int] = set()
        self.returning: set[int] = set()
        self.named: list[int] = []
        self.read = 0
        self._last = 0
        self.deferred = Deferred({place: Ranges() for place in DEFERRED_PLACES})

    @property
    def there(self) -> set[int]:
        """What a receive by number finds."""
        return (self.ready or set()) | self.held | self.returning

    def do(self, what: str, choice: int) -> None:
        """Do one thing, if it can be done now."""
        if what == "defer":
            self._last += 1
            self.ready = (self.ready or set()) | {self._last}
            self.named.append(self._last)
        elif what == "take" and self.ready:
            self.held |= self.ready
            self.ready = set()
        elif what == "take one" and self.ready:
            self.held.add(self.ready.pop())
        elif what == "give back":
            self.returning |= self.held
            self.held = set()
        elif what == "apply" and self.ready is not None:
            self.ready |= self.returning
            self.returning = set()
        elif what == "settle" and self.held:  # nobody tells
            self.held.remove(sorted(self.held)[choice % len(self.held)])
        elif what == "delete":
            self.ready = None if not self.there else self.ready
        elif what == "read":
            for each in self.named[self.read :]:
                self.deferred.moved(each, MovedTo.DEFERRED)
            self.read = len(self.named)

    def check(self) -> None:
        """What the streams have named and is there is shown."""
        assert self.there & {*self.named[: self.read]} <= {*self.deferred.numbers(MovedTo.DEFERRED)}


WORK = ("defer", "take", "take one", "give back", "apply", "settle", "delete", "read")
work = st.lists(st.tuples(st.sampled_from(WORK), st.integers(0, 7)), max_size=6)


@given(st.lists(st.tuples(work, work, work, work, work, st.booleans()), min_size=1, max_size=6))
@example([([("defer", 0), ("take", 0)], [], [("give back", 0)], [("apply", 0)], [], True)])
@example([([], [], [("defer", 0), ("read", 0)], [], [], True)])
def test_a_look_hides_nothing_that_is_there(
    looks: list[tuple[list[tuple[str, int]], ...]],
) -> None:
    """Whatever is taken, given back and deferred between its questions."""
    queue = Counted()
    for before, counting, holding, asking, answering, is_answered in looks:
        for each in before:
            queue.do(*each)
        queue.do("read", 0)
        queue.deferred.ask()
        for each in counting:
            queue.do(*each)
        ready = None if queue.ready is None else len(queue.ready)
        for each in holding:
            queue.do(*each)
        held = len(queue.held)
        if queue.deferred.counted(ready, held):
            queue.check()
            for each in asking:
                queue.do(*each)
            queue.deferred.ask()
            listed = sorted(queue.there)
            for each in answering:
                queue.do(*each)
            if is_answered:
                queue.deferred.told(listed, ())
                queue.deferred.excuse((ready or 0) + held)
        queue.check()
