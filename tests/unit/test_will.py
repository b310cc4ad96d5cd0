"""What the keeper writes for a process that was killed, and what not."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from bridge.broker import keeping
from bridge.broker.pledge import Pledge
from bridge.broker.will import Will

pytestmark = pytest.mark.skipif(not Pledge.is_possible(), reason="only Linux has what it takes")


@dataclass
class Pair:
    """A connection, its wills, and the other end."""

    ours: socket.socket
    theirs: socket.socket
    will: Will

    def read_after_a_kill(self) -> bytes:
        """Let the keeper do its work; returns what the other end reads."""
        keeping.execute(self.ours, self.will.descriptor)
        self.ours.close()
        with self.theirs.makefile("rb") as stream:
            return stream.read()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return a connection over which six bytes were written."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        theirs, _ = listener.accept()
        with theirs:
            ours.sendall(b"before")
            will = Will(ours, len(b"before"), b"|farewell")
            yield Pair(ours, theirs, will)
            will.close()


def test_a_will_is_written_behind_all_else(pair: Pair) -> None:
    """Also when it was made before the rest was written."""
    pair.will.put(b"will")
    pair.will.note_end(len(b"before, later"))
    pair.ours.sendall(b", later")

    assert pair.read_after_a_kill() == b"before, laterwill|farewell"


def test_a_will_that_was_withdrawn_is_not_written(pair: Pair) -> None:
    """Its place is free for another, and the others stay."""
    places = [pair.will.put(each) for each in (b"one", b"two", b"three")]
    assert places[1] is not None
    pair.will.withdraw(places[1])
    assert pair.will.put(b"2") == places[1]
    assert places[0] is not None
    pair.will.withdraw(places[0])

    assert pair.read_after_a_kill() == b"before2three|farewell"


def test_there_is_room_for_many(pair: Pair) -> None:
    """The memory grows with them, and not where one takes the place of another."""
    places = [pair.will.put(b"%03d" % number) for number in range(300)]
    size = os.fstat(pair.will.descriptor).st_size
    assert places[299] is not None
    pair.will.withdraw(places[299])
    pair.will.put(b"299")

    assert os.fstat(pair.will.descriptor).st_size == size
    wills = b"".join(b"%03d" % number for number in range(300))
    assert pair.read_after_a_kill() == b"before" + wills + b"|farewell"


def test_what_is_too_long_is_no_will(pair: Pair) -> None:
    """The longest that fits is written whole."""
    longest = bytes(keeping.WILL_BYTES_MAX)
    assert pair.will.put(longest + b"x") is None
    pair.will.put(longest)

    assert pair.read_after_a_kill() == b"before" + longest + b"|farewell"


@pytest.mark.parametrize("taken", [b", l", b", later, a"])
def test_nothing_is_written_into_the_middle_of_a_frame(pair: Pair, taken: bytes) -> None:
    """The kernel had not taken all that was given away."""
    pair.will.put(b"will")
    pair.will.note_end(len(b"before, later"))
    pair.will.note_end(len(b"before, later, at last"))
    pair.ours.sendall(taken)

    assert pair.read_after_a_kill() == b"before" + taken


@pytest.mark.parametrize("taken", [b"", b", later"])
def test_wills_are_written_where_any_frame_ends(pair: Pair, taken: bytes) -> None:
    """What was given away last may not have been written at all."""
    pair.will.put(b"will")
    pair.will.note_end(len(b"before, later"))
    pair.will.note_end(len(b"before, later, at last"))
    pair.ours.sendall(taken)

    assert pair.read_after_a_kill() == b"before" + taken + b"will|farewell"
