"""Which dead letters are there: the streams, RabbitMQ's count and looks through the queue agree."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from bridge.machine.browse.counted_dead_letters import CountedDeadLetters, LookedThrough


def of(*numbers: int) -> dict[int, int]:
    """Dead letters that the streams name, in the order of their deaths."""
    return {number: number * 10 for number in numbers}


def whole(*came: int, held: Sequence[int] = ()) -> LookedThrough:
    """A look that has come to the end."""
    return LookedThrough(list(came), frozenset(held), True)


def test_before_a_look_the_oldest_are_taken_for_gone() -> None:
    """As many as RabbitMQ does not count; which they are is open, unless it counts none or all."""
    counted = CountedDeadLetters()
    counted.compare(of(1, 2, 3), 3)
    assert (counted.gone, counted.is_open) == (frozenset(), False)
    counted.compare(of(1, 2, 3), 1)
    assert (counted.gone, counted.is_open) == ({1, 2}, True)
    assert counted.unsure == {1, 2}
    counted.compare(of(1, 2, 3), 0)
    assert (counted.gone, counted.is_open) == ({1, 2, 3}, False)


def test_a_count_is_asked_for_again_where_it_hides_more_than_before() -> None:
    """Messages on their way back to the queue are in no count; the higher one of two is taken."""
    counted, there = CountedDeadLetters(), of(1, 2, 3)
    assert not counted.hides_more(there, 3)
    assert not counted.hides_more(there, 4)
    assert counted.hides_more(there, 0)
    counted.compare(there, 1)
    assert not counted.hides_more(there, 1)
    assert not counted.hides_more(of(2, 3, 4), 2), "as many of these are taken for gone"
    assert counted.hides_more(there, 0)
    assert counted.hides_more(of(3, 4), 1), "what was taken for gone is named no more"


def test_a_look_says_which_are_gone() -> None:
    """Those that it has not seen, when it has seen all that were counted."""
    counted, there = CountedDeadLetters(), of(*range(1, 13))
    left = [each for each in there if each not in (4, 5, 10)]
    counted.looked(there, 9, 0, whole(*left), list(there))
    counted.compare(there, 9)
    assert (counted.gone, counted.is_open) == ({4, 5, 10}, False)
    counted.compare(there | {13: 130}, 10)
    assert (counted.gone, counted.is_open) == ({4, 5, 10}, False), "one more has died"
    counted.compare(there, 8)
    assert counted.is_open, "one more is gone, and nobody has told"
    assert counted.gone == {4, 5, 10, 1}


def test_what_died_once_more_has_not_been_looked_for() -> None:
    """Its number was missed, at another place of the stream."""
    counted = CountedDeadLetters()
    counted.looked(of(1, 2), 1, 0, whole(2), [1, 2])
    counted.compare({1: 55, 2: 20}, 2)
    assert (counted.gone, counted.is_open) == (frozenset(), False)


@pytest.mark.parametrize(
    ("count", "others", "found"),
    [
        (2, 1, whole(2)),
        (2, 0, whole(2)),
        (1, 0, LookedThrough([2], frozenset(), False)),
    ],
    ids=["another process holds one", "fewer came than were counted", "it came to no end"],
)
def test_a_look_that_has_not_seen_all_proves_nothing(
    count: int, others: int, found: LookedThrough
) -> None:
    """What it has seen is there all the same."""
    counted, there = CountedDeadLetters(), of(1, 2, 3)
    counted.looked(there, count, others, found, [1, 2, 3])
    counted.compare(there, count)
    assert counted.is_open
    assert 2 not in counted.gone
    assert len(counted.gone) == 3 - count


def test_what_this_process_holds_is_there() -> None:
    """No look can see it."""
    counted, there = CountedDeadLetters(), of(1, 2, 3)
    counted.looked(there, 2, 0, whole(3, held=[1]), [1, 2, 3])
    counted.compare(there, 2)
    assert (counted.gone, counted.is_open) == ({2}, False)


def test_messages_that_no_stream_names_are_no_dead_letters_of_ours() -> None:
    """A native client has published them there; a number may come twice."""
    counted, there = CountedDeadLetters(), of(1, 2, 3)
    counted.looked(there, 4, 0, whole(-1, 3, 3, 99), [1, 2, 3])
    counted.compare(there, 4)
    assert (counted.gone, counted.is_open) == ({1, 2}, False)


class Queue:
    """A dead-letter queue, those who work on it, and what the streams say of it."""

    def __init__(self, strangers: int) -> None:
        self.ready = [-1] * strangers
        self.held: list[int] = []
        self.own: list[int] = []
        self.walked: list[int] | None = None
        self.named: dict[int, int] = {}
        self.dead: set[int] = set()
        self.told: set[int] = set()
        self.untold: list[int] = []
        self.offset = 0
        self.last = 0
        self.counted = CountedDeadLetters()
        self.looks: list[tuple[dict[int, int], int, int, list[int]]] = []

    @property
    def count(self) -> int:
        """What RabbitMQ counts, with what processes hold."""
        return len(self.ready) + len(self.held) + len(self.own) + len(self.walked or ())

    @property
    def there(self) -> set[int]:
        """The numbers of the messages that have not left."""
        here = (*self.ready, *self.held, *self.own, *(self.walked or ()))
        return {each for each in here if each > 0}

    def names(self) -> dict[int, int]:
        """What the streams name, without those of which somebody has told."""
        return {each: at for each, at in self.named.items() if each not in self.told}

    def compare(self) -> None:
        """Compare the count, at a moment when streams and count agree."""
        self.counted.compare(self.names(), self.count)

    def do(self, what: str, choice: int) -> None:
        """Do one thing, if it can be done now."""
        self.offset += 1
        if what == "die":
            self.last += 1
            self.named[self.last] = self.offset
            self.dead.add(self.last)
            self.ready.append(self.last)
        elif what == "take" and self.ready:
            self.held.append(self.ready.pop(0))
        elif what == "take here" and self.ready and self.ready[0] > 0 and self.walked is None:
            self.own.append(self.ready.pop(0))
        elif what == "return" and self.held:
            self.ready.insert(0, self.held.pop(choice % len(self.held)))
        elif what == "return here" and self.own:
            self.ready.insert(0, self.own.pop(choice % len(self.own)))
        elif what == "settle" and self.held:
            self.untold.append(self.held.pop(choice % len(self.held)))
        elif what == "settle here" and self.own:
            self.told.add(self.own.pop(choice % len(self.own)))
        elif what == "tell" and self.untold:
            self.told.add(self.untold.pop(0))
        elif what == "kill":
            self.ready[:0] = sorted(self.held)
            self.held.clear()
            self.untold.clear()
        elif what == "native ack" and self.ready:
            self.ready.pop(choice % len(self.ready))
        elif what == "compare":
            self.compare()
        elif what == "look" and self.walked is None:
            self.looks.append((self.names(), self.count, len(self.held), [*self.own]))
            self.walked = []
        elif what == "walk" and self.walked is not None and self.ready:
            self.walked.append(self.ready.pop(0))
        elif what == "look ends" and self.walked is not None:
            self.walk_to_the_end()

    def walk_to_the_end(self) -> None:
        """End the look that is under way."""
        assert self.walked is not None
        there, count, others, own = self.looks.pop()
        came = [*self.walked, *self.ready]
        held = frozenset(own).union(self.own)
        self.ready, self.walked = came, None
        named = list(self.dead)
        self.counted.looked(there, count, others, LookedThrough(came, held, True), named)

    def look_now(self) -> None:
        """Compare, and look through the queue if that says more, with nobody at work."""
        if self.walked is not None:
            self.walk_to_the_end()
        self.compare()
        if self.counted.is_open:
            self.do("look", 0)
            self.walk_to_the_end()
            self.compare()


ACTIONS = (
    *("die", "take", "take here", "return", "return here", "settle", "settle here", "tell", "kill"),
    *("native ack", "compare", "look", "walk", "look ends"),
)


@given(
    st.integers(0, 2),
    st.integers(0, 8),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7)), min_size=10, max_size=60),
    st.booleans(),
)
def test_after_a_quiet_look_just_those_are_shown_that_are_there(
    strangers: int, first: int, happened: list[tuple[str, int]], ends: bool
) -> None:
    """Whatever was settled, told, taken and given back before, and during other looks.

    While others hold some, those are not sure that are not shown: none counts as gone that is
    there.
    """
    queue = Queue(strangers)
    if strangers:
        queue.do("look", 0)
        queue.walk_to_the_end()
    for _ in range(first):
        queue.do("die", 0)
    for what, choice in happened:
        queue.do(what, choice)
        if not queue.held and queue.walked is None and what == "look ends":
            queue.compare()
            if not queue.counted.is_open:
                event("a look among others has said which are there")
                assert set(queue.names()) - queue.counted.gone == queue.there
    if ends:
        queue.do("kill", 0)
    else:
        while queue.untold:
            queue.do("tell", 0)
    queue.look_now()
    shown = set(queue.names()) - queue.counted.gone
    if not queue.held:
        assert not queue.counted.is_open
        assert shown == queue.there
    assert queue.there <= shown | queue.counted.unsure
