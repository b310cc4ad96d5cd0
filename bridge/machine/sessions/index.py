"""All messages of a shard by identity, and its sessions by folded id."""

from __future__ import annotations

from typing import Generic, TypeVar

from bridge.machine.queue.memory_budget import MemoryBudget
from bridge.machine.queue.second_copies import Identity
from bridge.machine.sessions.entry import LEAVING, SessionEntry
from bridge.machine.sessions.session import Session
from bridge.machine.sessions.supply import Supply
from bridge.model.session_id import FoldedId, fold

Message = TypeVar("Message")


class Index(Generic[Message]):
    """The messages and sessions of one shard.

    Args:
        budget: counts the bodies in memory.

    Attributes:
        places: the messages, in the order in which they came or were published again.
        sessions: the sessions that have messages or a receiver.
    """

    def __init__(self, budget: MemoryBudget, supply: Supply[Message]) -> None:
        self.places: dict[Identity, SessionEntry[Message]] = {}
        self.sessions: dict[FoldedId, Session[Message]] = {}
        self._budget = budget
        self._supply = supply

    def session(self, session_id: str) -> Session[Message]:
        """Return a session by its id in any case, made when missing."""
        folded = fold(session_id)
        session = self.sessions.get(folded)
        if session is None:
            session = self.sessions[folded] = Session(folded, session_id)
        return session

    def find(self, session_id: str) -> Session[Message] | None:
        """Return a session by its id in any case, or `None`."""
        return self.sessions.get(fold(session_id))

    def add(self, place: SessionEntry[Message], since: int) -> Session[Message]:
        """Add an arrived message with its body, at this age; return the session."""
        session = self.session(place.session_id)
        place.folded, place.since = session.id, since
        self.places[place.identity] = place
        self._budget.keep(place, is_wanted=False)
        session.count += 1
        return session

    def replace(
        self, known: SessionEntry[Message], new: SessionEntry[Message], *, is_wanted: bool
    ) -> None:
        """Replace the known copy of a message with another copy."""
        self._budget.forget(known)
        known.generation, known.where = new.generation, new.where
        known.deaths = new.deaths
        known.message, known.size_bytes = new.message, new.size_bytes
        self._budget.keep(known, is_wanted=is_wanted)

    def is_new(self, place: SessionEntry[Message], since: int) -> None:
        """Move a message that was published again behind all other messages."""
        place.since = since
        self.places[place.identity] = self.places.pop(place.identity)

    def forget(self, place: SessionEntry[Message]) -> None:
        """Remove a message, and its session when nothing is left of the session."""
        del self.places[place.identity]
        self._budget.forget(place)
        place.state = LEAVING
        session = self.sessions[place.folded]
        session.out.pop(id(place), None)
        session.count -= 1
        if session.is_over:
            self.forget_session(session)

    def forget_session(self, session: Session[Message]) -> None:
        """Remove a session without messages and receiver."""
        self.sessions.pop(session.id, None)
        self._supply.withdraw(session)

    def clear(self) -> None:
        """Remove all messages and sessions."""
        for place in self.places.values():
            self._budget.forget(place)
        self.places.clear()
        self.sessions.clear()
