"""What the streams beside a journal say of a message: where it is, or that it is gone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.machine.browse.entity_messages import (
    LeftNumbers,
    MovedTo,
    expires_ms,
    is_active_entry,
    newest,
    number_of,
)
from bridge.machine.browse.places import Places
from bridge.topology import names
from bridge.wire import copies, headers
from bridge.wire.basic import Table, long, text
from bridge.wire.copies import Reader
from bridge.wire.settled import Settled

SHORT = b"abcdef"


def moved(number: int, queue: str, **more: object) -> Table:
    """A message that a bridge has published to a queue."""
    table: Table = {headers.SEQUENCE_NUMBER: long(number), headers.MOVED: text(queue)}
    return table | more  # type: ignore[operator]


def test_the_last_entry_of_a_number_says_where_it_is() -> None:
    """Set aside, then a dead letter, then set aside there."""
    places = Places("Orders", None)
    deferred = names.deferred_queue("orders")
    places.take(1, moved(7, deferred, **{headers.DEFERRED: text("")}))
    assert (places.place(7), list(places.numbers(MovedTo.DEFERRED))) == (MovedTo.DEFERRED, [7])
    places.take(2, moved(7, names.dead_letter_queue("orders")))
    assert (places.place(7), places.offset(7)) == (MovedTo.DEAD, 2)
    assert places.copies(MovedTo.DEAD) == {7: 2}
    assert places.deferred_copies(MovedTo.DEFERRED) == {7: 1}
    assert list(places.numbers(MovedTo.DEFERRED)) == []
    places.take(3, moved(7, deferred, **{headers.DEFERRED: text("$deadletterqueue")}))
    assert list(places.numbers(MovedTo.DEAD_DEFERRED)) == [7]
    places.take(4, moved(3, "orders"))
    assert list(places.numbers(MovedTo.ACTIVE)) == [3]
    assert places.take(5, moved(4, "another/$deadletterqueue")) is None


def test_what_rabbitmq_dead_lettered_is_known_by_the_queue_it_died_in() -> None:
    """Also when a bridge had put it back there before."""
    places = Places("orders", None)
    table = moved(5, "orders") | {"x-first-death-queue": ("S", b"orders")}
    places.take(1, table)
    assert places.place(5) is MovedTo.DEAD
    assert places.take(2, moved(6, "") | {"x-first-death-queue": ("S", b"other")}) is None


def test_a_subscription_reads_its_own_numbers() -> None:
    """From the list of copies, or from what a bridge has written for it alone."""
    reader = Reader(SHORT, 1_000)
    listed: Table = {
        headers.SEQUENCE_NUMBER: long(9),
        headers.COPIES: ("x", copies.encode([(SHORT, 4)], 1)),
    }
    assert number_of(listed, reader) == 4
    other: Table = listed | {headers.COPIES: ("x", copies.encode([], 0))}
    assert number_of(other, reader) == -1
    own: Table = {headers.SEQUENCE_NUMBER: long(4), headers.ENQUEUED_SEQUENCE_NUMBER: long(9)}
    assert number_of(own, reader) == 4
    assert number_of({headers.SEQUENCE_NUMBER: long(9)}, reader) == -1
    buried = listed | {headers.MOVED: text(names.DEAD_LETTER_SUFFIX)}
    places = Places("events/subscriptions/a", reader)
    assert places.take(1, buried) == 4
    assert places.place(4) is MovedTo.DEAD
    assert not is_active_entry(buried)
    assert expires_ms(listed | {headers.ENQUEUED_TIME: long(50)}, reader) == 1_050


def test_settled_numbers_and_the_floor_are_gone() -> None:
    """The floor is what RabbitMQ's count says; the rest is told."""
    numbers = LeftNumbers()
    numbers.take(Settled.decode(Settled(active=[(3, 5)], deferred=[(8, 8)]).encode()))
    numbers.floor = 2
    assert [n for n in range(1, 8) if not numbers.is_gone(n)] == [2, 6, 7]
    assert (numbers.next_active(0), numbers.next_active(3)) == (2, 6)
    assert numbers.unsettled(1, 10) == 7
    assert 8 in numbers.deferred


def test_the_newest_of_a_count_are_there() -> None:
    """The oldest of those that nobody has told of are gone."""
    assert newest([5, 1, 3], 2) == 3
    assert newest([5, 1, 3], 3) is None
    assert newest([5], 0) == 6


@given(
    st.lists(
        st.tuples(st.sampled_from(["failed", "settled", "dead", "back"]), st.integers(1, 4)),
        max_size=40,
    ),
    st.data(),
)
def test_a_message_shows_the_highest_count_that_anybody_has_written(
    happened: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Entries may be read in any order, and twice; a settled message shows none."""
    failures: Counter[int] = Counter()
    settled: set[int] = set()
    written: list[Settled | tuple[int, MovedTo]] = []
    for what, number in happened:
        if what == "failed":
            failures[number] += 1
            written.append(Settled(failed={number: failures[number]}))
        elif what == "settled":
            settled.add(number)
            written.append(Settled(active=[(number, number)]))
        else:
            written.append((number, MovedTo.DEAD if what == "dead" else MovedTo.ACTIVE))
    numbers = LeftNumbers()
    for entry in data.draw(st.permutations(written + written[::2])):
        if isinstance(entry, Settled):
            numbers.take(Settled.decode(entry.encode()))
        else:
            numbers.moved(*entry)
    for number in range(1, 5):
        if number not in settled:
            assert numbers.failed.get(number, 0) == failures[number]
        else:
            assert number not in numbers.failed


def test_a_view_keeps_the_latest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that a queue in which all has failed costs a few megabytes."""
    monkeypatch.setattr("bridge.machine.browse.entity_messages.COUNTS_MAX", 3)
    numbers = LeftNumbers()
    for number in (1, 2, 3, 1, 4):
        numbers.take(Settled(failed={number: 1}))
    assert list(numbers.failed) == [3, 1, 4]


@given(
    st.lists(
        st.tuples(st.sampled_from(["dead", "active", "settled", "counted"]), st.integers(1, 6))
    )
)
def test_a_message_is_gone_if_its_last_move_or_the_settled_stream_says_so(
    said: list[tuple[str, int]],
) -> None:
    """The two streams may be read in any order; only settlements are recorded.

    RabbitMQ's count may contradict a move until the streams say more of the message.
    """
    numbers = LeftNumbers()
    last: dict[int, str] = {}
    settled: set[int] = set()
    for what, number in said:
        if what == "settled":
            settled.add(number)
            numbers.take(Settled(active=[(number, number)]))
        elif what == "counted":
            if number in numbers.only_moved:
                numbers.stay({*numbers.stayed, number})
                last[number] = what
        else:
            last[number] = what
            numbers.moved(number, MovedTo.DEAD if what == "dead" else MovedTo.ACTIVE)
    for number in range(1, 7):
        assert numbers.is_gone(number) == (number in settled or last.get(number) == "dead")
    recorded = numbers.recorded()
    assert {each for first, end in recorded for each in range(first, end + 1)} == settled
