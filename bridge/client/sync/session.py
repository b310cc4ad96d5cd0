"""The synchronous `ServiceBusSession`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from bridge.client.core.session_source import SessionSource

if TYPE_CHECKING:
    from bridge.client.sync.receiver import ServiceBusReceiver


class ServiceBusSession:
    """The session of a receiver; made by the receiver.

    Args:
        receiver: does the operations, with the session accepted.

    Attributes:
        auto_renew_error: why an `AutoLockRenewer` has stopped renewing.
    """

    def __init__(self, source: SessionSource, receiver: ServiceBusReceiver) -> None:
        self._source = source
        self._receiver = receiver
        self.auto_renew_error: Exception | None = None

    @property
    def session_id(self) -> str | None:
        """The session's id; of a next session once accepted."""
        return self._source.session_id

    @property
    def locked_until_utc(self) -> datetime | None:
        """The end of the session's lock."""
        return self._source.locked_until_utc

    def get_state(self, /, *, timeout: float | None = None) -> bytes | None:
        """Return the session's state."""
        return self._receiver._run(lambda: self._source.state(timeout))

    def set_state(
        self,
        /,
        state: str | bytes | bytearray | None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Store the session's state; `None` clears the state."""
        return self._receiver._run(lambda: self._source.store(state, timeout))

    def renew_lock(self, /, *, timeout: float | None = None) -> datetime:
        """Give the session's lock its full duration from now; return its end.

        Raises:
            SessionLockLostError: the lock has ended before.
        """
        return self._receiver._run(lambda: self._source.renew_session(timeout))
