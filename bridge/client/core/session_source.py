"""A session as a receiver's source of messages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bridge.client.constants import ServiceBusReceiveMode
from bridge.client.core.call import Call
from bridge.client.core.deferred import deferred_call
from bridge.client.core.held_session import LOCK_LOST, HeldSession
from bridge.client.exceptions import SessionLockLostError
from bridge.client.messages import instant
from bridge.client.received_message import ServiceBusReceivedMessage
from bridge.message.received import Received

RENEWAL_REFUSED = (
    "Renewing message lock is an invalid operation when working with sessions. "
    "Please renew the session lock instead."
)


class SessionSource:
    """A session of an entity; the first call accepts it.

    Args:
        session_id: `None` for the next session with messages.
        max_wait_time: seconds to wait for the next session.

    Attributes:
        held: the session's lock; `None` before the accept.
        is_over: the receiver is closed.
    """

    def __init__(
        self,
        path: str,
        session_id: str | None,
        mode: ServiceBusReceiveMode,
        max_wait_time: float | None,
    ) -> None:
        self._path = path
        self._session_id = session_id
        self._mode = mode
        self._max_wait_s = max_wait_time
        self.held: HeldSession | None = None
        self.is_over = False

    @property
    def is_open(self) -> bool:
        """Whether the session was accepted."""
        return self.held is not None

    @property
    def session_id(self) -> str | None:
        """The session's id, once known."""
        return self._session_id if self.held is None else self.held.session_id

    @property
    def locked_until_utc(self) -> datetime | None:
        """The lock's end; `None` before the accept, and after the receiver is closed."""
        if self.held is None or self.is_over:
            return None
        return instant(self.held.until_ms)

    def open(self, wait_s: float | None) -> Call[Any]:
        """Accept the session.

        Args:
            wait_s: the first call's wait, if limited.
        """
        waits_s = [each for each in (wait_s, self._max_wait_s) if each is not None]
        asked = self._path, self._session_id, min(waits_s, default=None), self._mode
        return Call("sessions.accept", asked, undone_by=_close)

    def opened(self, held: HeldSession) -> None:
        """Keep the accepted session."""
        self.held = held

    def pull(self, count: int, wait_s: float | None) -> Call[Any]:
        """Receive up to `count` messages."""
        return Call("sessions.pull", (self._lock(), count, wait_s))

    def peek(self, start: int, count: int, timeout: float | None) -> Call[Any]:
        """Return messages from a number on."""
        return Call("sessions.peek", (self._lock(), start, count), timeout)

    def deferred(self, numbers: list[int], timeout: float | None) -> Call[Any]:
        """Receive deferred messages by number."""
        lock = self._lock()

        def end_locks(how: str, found: list[Received]) -> Call[Any]:
            return Call("sessions.end_locks", (lock, found, how))

        asked = lock, numbers
        return deferred_call("sessions.receive_deferred", asked, timeout, self._mode, end_locks)

    def settle(
        self,
        message: ServiceBusReceivedMessage,
        how: str,
        reason: str | None,
        description: str | None,
    ) -> Call[Any]:
        """End a message's lock."""
        asked = self._lock(), message.lock_token, how, reason, description
        return Call("sessions.settle", asked, is_tried_again=False)

    def renew(self, message: ServiceBusReceivedMessage, timeout: float | None) -> Call[Any]:
        """Refuse: only the session's own lock can be renewed.

        Raises:
            TypeError: always.
        """
        raise TypeError(RENEWAL_REFUSED)

    def renew_session(self, timeout: float | None) -> Call[datetime]:
        """Renew the session's lock."""
        return Call("sessions.renew", (self._lock(),), timeout, read=instant)

    def state(self, timeout: float | None) -> Call[bytes | None]:
        """Return the session's state."""
        return Call("sessions.state", (self._lock(),), timeout)

    def store(self, state: str | bytes | bytearray | None, timeout: float | None) -> Call[None]:
        """Store or clear the session's state."""
        raw = state.encode() if isinstance(state, str) else state
        asked = self._lock(), None if raw is None else bytes(raw)
        return Call("sessions.store", asked, timeout)

    def close(self) -> Call[Any] | None:
        """End the session's lock."""
        self.is_over = True
        if self.held is None:
            return None
        return _close(self.held)

    def _lock(self) -> HeldSession:
        if self.held is None:
            raise SessionLockLostError(LOCK_LOST)
        return self.held


def _close(held: HeldSession) -> Call[Any]:
    return Call("sessions.close", (held,), is_tried_again=False)
