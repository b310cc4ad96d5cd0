"""A search by number accounts for every message, whatever comes and what RabbitMQ takes back."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.queue.numbered_search import NumberedSearch

PASSED_MAX, BYTES_MAX = 5, 40


@dataclass(slots=True, eq=False)
class Come:
    """A message on a channel, which is the count of channels before it."""

    number: int
    channel: int


class Searching:
    """A search, and the messages that it was given."""

    def __init__(self, wanted: set[int] | None) -> None:
        self.channel = 0
        self.given: list[Come] = []
        self.search: NumberedSearch[Come] = NumberedSearch(
            wanted,
            passed_max=PASSED_MAX,
            bytes_max=BYTES_MAX,
            holds=lambda message: message.channel == self.channel,
        )

    def come(self, number: int, size_bytes: int = 1) -> bool:
        """A message comes."""
        self.given.append(Come(number, self.channel))
        return self.search.take(self.given[-1], size_bytes)

    def lose(self) -> None:
        """RabbitMQ takes all back."""
        self.channel += 1

    @property
    def held(self) -> list[Come]:
        """Those that are still unacked."""
        return [each for each in self.given if each.channel == self.channel]


@given(
    st.sets(st.integers(1, 9), max_size=5),
    st.lists(
        st.tuples(st.just("come"), st.integers(-1, 12), st.integers(0, 30))
        | st.tuples(st.sampled_from(["lose", "prune"]), st.just(0), st.just(0)),
        max_size=40,
    ),
)
def test_each_message_that_is_held_is_wanted_or_goes_back(
    wanted: set[int], steps: list[tuple[str, int, int]]
) -> None:
    """In one place, and those that go back in the order in which they came."""
    run = Searching(wanted)
    for what, number, size_bytes in steps:
        if what == "come":
            if run.search.room:
                kept = run.come(number, size_bytes)
                assert kept is (run.given[-1] in run.search.found.values())
        elif what == "lose":
            run.lose()
        else:
            run.search.prune()
    search = run.search
    assert search.came == len(run.given)
    found = [each for each in search.found.values() if each in run.held]
    passed = [each for each in search.passed if each in run.held]
    assert sorted(map(id, (*found, *passed))) == sorted(map(id, run.held))
    assert passed == [each for each in run.held if each in passed]
    assert {each.number for each in found} == {each.number for each in run.held} & wanted
    assert len(search.passed) <= PASSED_MAX + 1
    assert bool(search.room) is not (search.found.keys() == wanted or search.is_cut)


def test_it_ends_when_all_are_found() -> None:
    """The content of others is not kept."""
    run = Searching({2, 3})
    assert [run.come(number) for number in (1, 2)] == [False, True]
    assert run.search.room == PASSED_MAX + 1
    assert run.come(3)
    assert (run.search.room, run.search.is_cut) == (0, False)


def test_it_ends_at_more_others_than_may_be_held() -> None:
    """They all go back."""
    run = Searching({9})
    while run.search.room:
        run.come(1)
    assert run.search.is_cut
    assert len(run.search.passed) == PASSED_MAX + 1


def test_it_ends_when_the_found_ones_are_too_large() -> None:
    """What is found stays found."""
    run = Searching({1, 2, 3})
    run.come(1, BYTES_MAX - 1)
    assert run.search.room
    run.come(2)
    assert (run.search.room, run.search.is_cut) == (0, True)
    assert set(run.search.found) == {1, 2}


def test_what_rabbitmq_took_back_is_found_when_it_comes_again() -> None:
    """Of the copies the one that is held."""
    run = Searching({1, 2})
    run.come(1)
    run.lose()
    run.search.prune()
    assert not run.search.found
    assert run.come(1)
    assert run.search.found[1] is run.given[-1]


def test_of_two_messages_with_one_number_the_first_is_taken() -> None:
    """The other goes back, and is found by the next search."""
    run = Searching({1, 2})
    assert [run.come(1), run.come(1)] == [True, False]
    assert run.search.found[1] is run.given[0]


def test_a_search_for_none_goes_to_the_end_or_to_its_bound() -> None:
    """All go back, however large they are."""
    run = Searching(None)
    assert run.search.room == PASSED_MAX + 1
    for number in range(PASSED_MAX):
        assert not run.come(number, BYTES_MAX)
    assert (run.search.room, run.search.is_cut) == (1, False)
    run.come(9)
    assert (run.search.room, run.search.is_cut) == (0, True)
    assert [each.number for each in run.search.passed] == [0, 1, 2, 3, 4, 9]
