"""What a bridge that is about to stop still has locked for receivers."""

from __future__ import annotations

from uuid import UUID

from bridge.engine.sessions.owners import Owners
from bridge.engine.settlement.locktable import ProcessLocks


class Leaving:
    """The locks of a bridge whose receivers are to finish what they have before it stops.

    A session's messages may be with a receiver at another bridge, which would lose the session.
    """

    def __init__(self, locks: ProcessLocks, owners: Owners) -> None:
        self._locks = locks
        self._owners = owners

    def __repr__(self) -> str:
        return f"Leaving({len(self._locks)} locks)"

    def begin(self) -> None:
        """Deliver no more messages of the sessions that this bridge owns, and give no session."""
        self._owners.leave()

    def is_locked(self, token: UUID) -> bool:
        """Whether a lock of this bridge has not ended."""
        return self._locks.find(token) is not None

    @property
    def has_sessions_out(self) -> bool:
        """Whether a receiver, here or at another bridge, has a locked message of a session."""
        locked = self._locks.owners()
        return any(each.messages in locked for each in self._owners.all)
