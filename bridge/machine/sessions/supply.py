"""Available sessions and waiting receivers, each in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from bridge.machine.sessions.session import Session
from bridge.model.session_id import FoldedId

Message = TypeVar("Message")


class Supply(Generic[Message]):
    """The longest-available session is next, for the receiver that has waited longest.

    Attributes:
        receivers: the waiting receivers.
    """

    def __init__(self) -> None:
        self.receivers: dict[Hashable, None] = {}
        self._sessions: OrderedDict[FoldedId, Session[Message]] = OrderedDict()

    def wait(self, receiver: Hashable) -> None:
        """Add a receiver that waits for the next session."""
        self.receivers[receiver] = None

    def give_up(self, receiver: Hashable) -> None:
        """Remove a receiver that waits no more."""
        self.receivers.pop(receiver, None)

    def offer(self, session: Session[Message], *, is_next: bool = False) -> None:
        """Add an available session: behind all others, or (`is_next`) before them."""
        self._sessions.setdefault(session.id, session)
        if is_next:
            self._sessions.move_to_end(session.id, last=False)

    def withdraw(self, session: Session[Message]) -> None:
        """Remove a session that is not available any more."""
        self._sessions.pop(session.id, None)

    def take(self) -> Session[Message] | None:
        """Take out the next session, when a receiver waits."""
        if not self.receivers or not self._sessions:
            return None
        return self._sessions.popitem(last=False)[1]

    def take_receiver(self) -> Hashable:
        """Take out the receiver that has waited longest."""
        receiver = next(iter(self.receivers))
        del self.receivers[receiver]
        return receiver

    def clear(self) -> None:
        """Remove all sessions and receivers."""
        self._sessions.clear()
        self.receivers.clear()
