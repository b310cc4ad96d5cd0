"""Copies of a session's message after it has left, and what an operator has brought back."""

from __future__ import annotations

import pytest

from bridge.machine.queue.fate import Rules
from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.machine.queue.second_copies import Left
from bridge.machine.queue.settled import SettledMemory
from bridge.machine.sessions.effects import ComeAgain, Deliver, Drop, Effect
from bridge.machine.sessions.entry import SessionEntry
from bridge.machine.sessions.sessions import Sessions

NOW_MS = 1_000_000


def copy(where: int, *, generation: int = 0, deaths: int = 0) -> SessionEntry[str]:
    """A copy of the one message."""
    return SessionEntry(1, b"1", generation, None, "a", where, "body", 10, deaths)


class OneSession:
    """The one session, which a receiver holds that wants all of it."""

    def __init__(self) -> None:
        self.machine: Sessions[str] = Sessions(
            MemoryBudget(1_000),
            SettledMemory().numbers(),
            lock_duration_ms=60_000,
            rules=Rules(10),
        )
        self.machine.accept(1, "a", now_ms=NOW_MS)
        self.machine.add_credit(1, 100, now_ms=NOW_MS)

    def bring(self, where: int, *, generation: int = 0, deaths: int = 0) -> list[Effect]:
        """RabbitMQ brings a copy."""
        came = copy(where, generation=generation, deaths=deaths)
        return self.machine.arrived(came, now_ms=NOW_MS)

    def delivers(self, where: int, *, generation: int = 0, deaths: int = 0) -> SessionEntry[str]:
        """RabbitMQ brings a copy, and the receiver gets it."""
        (effect,) = self.bring(where, generation=generation, deaths=deaths)
        assert isinstance(effect, Deliver)
        place: SessionEntry[str] = effect.place
        assert place.where == where
        return place

    def leave(self, place: SessionEntry[str], how: Left) -> list[Effect]:
        """The receiver settles it."""
        self.machine.leaving(place)
        return self.machine.left(place, how)


@pytest.mark.parametrize("how", [Left.DEFERRED, Left.DEAD_LETTERED])
def test_a_copy_of_what_was_deferred_or_dead_lettered_is_dropped(how: Left) -> None:
    """A leader that is killed leaves one."""
    session = OneSession()
    assert session.leave(session.delivers(1, generation=1), how) == []
    assert session.bring(2) == [Drop(2)]
    assert session.bring(3, generation=1) == [Drop(3)]


def test_what_was_deferred_and_is_brought_back_is_delivered() -> None:
    """Deferring it has counted a delivery."""
    session = OneSession()
    session.leave(session.delivers(1), Left.DEFERRED)
    session.leave(session.delivers(2, generation=1), Left.DEFERRED)
    session.delivers(3, generation=2)


def test_what_was_dead_lettered_and_is_brought_back_is_delivered_each_time() -> None:
    """Its count begins anew."""
    session = OneSession()
    for deaths in range(3):
        session.leave(session.delivers(2 * deaths, deaths=deaths), Left.DEAD_LETTERED)
        assert session.bring(2 * deaths + 1, deaths=deaths) == [Drop(2 * deaths + 1)]


@pytest.mark.parametrize("how", [Left.SETTLED, Left.DEAD_LETTERED, Left.DEFERRED])
def test_what_is_brought_back_before_it_has_left_here_comes_again(how: Left) -> None:
    """Whoever moves dead letters back at once is faster than the ack; a true copy is dropped."""
    session = OneSession()
    place = session.delivers(1)
    session.machine.leaving(place)
    assert session.bring(2) == session.bring(3, deaths=1) == []
    assert session.machine.left(place, how) == [Drop(2), ComeAgain(3)]


def test_of_two_copies_that_wait_the_one_that_was_dead_lettered_stays() -> None:
    """Although its count begins anew."""
    session = OneSession()
    session.machine.close(1, now_ms=NOW_MS)
    assert session.bring(1, generation=3) == []
    assert session.bring(2, deaths=1) == [Drop(1)]
    assert session.bring(3, generation=3) == [Drop(3)]
