"""All messages of a shard by identity, and its sessions by id."""

from __future__ import annotations

from typing import Generic, TypeVar

from bridge.machine.deduplicator import Identity
from bridge.machine.memory_budget import MemoryBudget
from bridge.machine.sessions.place import LEAVING, Place
from bridge.machine.sessions.session import Session
from bridge.machine.sessions.supply import Supply

Message = TypeVar("Message")


class Index(Generic[Message]):
    """What is there.

    Args:
        budget: where the bodies that are here are counted.

    Attributes:
        places: the messages, in the order in which they came or were published again.
        sessions: those that have messages or a receiver.
    """

    def __init__(self, budget: MemoryBudget, supply: Supply[Message]) -> None:
        self.places: dict[Identity, Place[Message]] = {}
        self.sessions: dict[str, Session[Message]] = {}
        self._budget = budget
        self._supply = supply

    def session(self, session_id: str) -> Session[Message]:
        """Return a session; one that is not there is made."""
        session = self.sessions.get(session_id)
        if session is None:
            session = self.sessions[session_id] = Session(session_id)
        return session

    def add(self, place: Place[Message], since: int) -> Session[Message]:
        """A message has come, at this age, with its body; return its session."""
        session = self.session(place.session_id)
        place.since = since
        self.places[place.identity] = place
        self._budget.keep(place, is_wanted=False)
        session.count += 1
        return session

    def replace(self, known: Place[Message], new: Place[Message], *, is_wanted: bool) -> None:
        """Have another copy of a message in place of the one that is known."""
        self._budget.forget(known)
        known.generation, known.where = new.generation, new.where
        known.message, known.size_bytes = new.message, new.size_bytes
        self._budget.keep(known, is_wanted=is_wanted)

    def is_new(self, place: Place[Message], since: int) -> None:
        """A message is published again: behind all that is there."""
        place.since = since
        self.places[place.identity] = self.places.pop(place.identity)

    def forget(self, place: Place[Message]) -> None:
        """A message is gone, and its session when nothing is left of it."""
        del self.places[place.identity]
        self._budget.forget(place)
        place.state = LEAVING
        session = self.sessions[place.session_id]
        session.out.pop(id(place), None)
        session.count -= 1
        if session.is_over:
            self.forget_session(session)

    def forget_session(self, session: Session[Message]) -> None:
        """A session has no messages and no receiver."""
        self.sessions.pop(session.id, None)
        self._supply.withdraw(session)

    def clear(self) -> None:
        """All is gone."""
        for place in self.places.values():
            self._budget.forget(place)
        self.places.clear()
        self.sessions.clear()
