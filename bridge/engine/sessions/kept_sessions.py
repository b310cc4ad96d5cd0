"""The sessions of one shard that transactions keep, for what they settle or set."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from bridge.engine import texts
from bridge.engine.clock import now_ms
from bridge.engine.settlement.held_message import HeldMessage
from bridge.machine.sessions.effects import Effect
from bridge.machine.sessions.session import Holder
from bridge.machine.sessions.session_pins import SessionPins
from bridge.model.errors import SessionLockLost


class KeptSessions:
    """Keeps sessions, and lets them go on.

    Args:
        do: carries out effects of the sessions' machine.
    """

    def __init__(self, pins: SessionPins[HeldMessage], do: Callable[[list[Effect]], None]) -> None:
        self._pins = pins
        self._do = do
        self._of_messages: dict[HeldMessage, str] = {}

    def __repr__(self) -> str:
        return f"KeptSessions({self._pins!r})"

    def pin(self, session_id: str, by: Hashable) -> Holder:
        """Keep a session; return its receiver's hold.

        Args:
            by: for what it is kept; that is to `unpin` it.

        Raises:
            SessionLockLost: no receiver holds the session.
        """
        holder = self._pins.pin(session_id, by, now_ms=now_ms())
        if holder is None:
            raise SessionLockLost(texts.SESSION_LOCK_LOST)
        return holder

    def check(self, session_id: str, by: Hashable, holder: Holder | None) -> None:
        """Raise SessionLockLost unless a receiver holds its pinned session still."""
        if holder is None or not self._pins.keeps(session_id, by, holder):
            raise SessionLockLost(texts.SESSION_LOCK_LOST)

    def unpin(self, session_id: str, by: Hashable) -> None:
        """Let a session go on, if nothing else keeps it."""
        self._do(self._pins.unpin(session_id, by, now_ms=now_ms()))

    def keep(self, holding: HeldMessage, session_id: str) -> None:
        """Keep the session of a message that a transaction is to settle."""
        if self._pins.pin(session_id, holding, now_ms=now_ms()) is not None:
            self._of_messages[holding] = session_id

    def free(self, holding: HeldMessage) -> None:
        """Let the session of a message go on: it is settled, or is to be settled no more."""
        session_id = self._of_messages.pop(holding, None)
        if session_id is not None:
            self.unpin(session_id, holding)

    def clear(self) -> None:
        """Forget all: RabbitMQ has taken the messages back."""
        self._of_messages.clear()
