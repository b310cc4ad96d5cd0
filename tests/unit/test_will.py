"""What a process leaves to be published when it is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bridge.broker import keeping
from bridge.broker.endpoint import Endpoint
from bridge.broker.will import Will, decode

pytestmark = pytest.mark.skipif(not Will.is_possible(), reason="only Linux has what it takes")

ENDPOINT = Endpoint(hosts=(("a", 5672), ("::1", 5673)), vhost="v", user="u", password="p")


@pytest.fixture
def will() -> Iterator[Will]:
    """Return one that says nothing yet."""
    will = Will(ENDPOINT)
    yield will
    will.close()


def put(will: Will, body: bytes) -> int:
    """Leave a message and return its place."""
    place = will.put("", "q", b"\0", body)
    assert place is not None
    return place


def left(will: Will) -> list[bytes]:
    """Return the bodies of what the keeper finds."""
    _, *lines = keeping.read_lines(will.descriptor)
    return [decode(line)[3] for line in lines]


def test_the_keeper_finds_the_messages_and_where_to_publish_them(will: Will) -> None:
    """All bytes of them, the endpoint first."""
    will.put("exchange é", "key", bytes(range(256)), b"\n\xff")

    first, message = keeping.read_lines(will.descriptor)

    assert Endpoint.decode(first) == ENDPOINT
    assert decode(message) == ("exchange é", "key", bytes(range(256)), b"\n\xff")
    assert b"\n" not in first + message


def test_what_was_withdrawn_is_not_there(will: Will) -> None:
    """Its place is free for another, and the others stay."""
    places = [put(will, each) for each in (b"one", b"two", b"three")]
    will.withdraw(places[1])
    assert put(will, b"2") == places[1]
    will.withdraw(places[0])

    assert left(will) == [b"2", b"three"]


def test_there_is_room_for_many(will: Will) -> None:
    """The memory grows with them, and not where one takes the place of another."""
    places = [put(will, b"%03d" % number) for number in range(300)]
    size = os.fstat(will.descriptor).st_size
    will.withdraw(places[299])
    put(will, b"299")

    assert os.fstat(will.descriptor).st_size == size
    assert left(will) == [b"%03d" % number for number in range(300)]


def test_what_is_too_long_is_not_left(will: Will) -> None:
    """As if nobody could carry it out."""
    assert will.put("", "q", b"\0", bytes(keeping.LINE_BYTES_MAX)) is None

    assert left(will) == []
