"""The synchronous `ServiceBusSession`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from bridge.client.core.session_source import SessionSource

if TYPE_CHECKING:
    from bridge.client.sync.receiver import ServiceBusReceiver


class ServiceBusSession:
    """The session of a receiver; made by that.

    Args:
        receiver: carries out what is asked for, when it has the session.

    Attributes:
        auto_renew_error: why an `AutoLockRenewer` renews it no more.
    """

    def __init__(self, source: SessionSource, receiver: ServiceBusReceiver) -> None:
        self._source = source
        self._receiver = receiver
        self.auto_renew_error: Exception | None = None

    @property
    def session_id(self) -> str | None:
        """Its id; of a next session once that is given."""
        return self._source.session_id

    @property
    def locked_until_utc(self) -> datetime | None:
        """The end of its lock."""
        return self._source.locked_until_utc

    def get_state(self, /, *, timeout: float | None = None, **options: Any) -> bytes | None:
        """Return what is stored with it."""
        return self._receiver._run(lambda: self._source.state(timeout))

    def set_state(
        self,
        /,
        state: str | bytes | bytearray | None,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        """Store something with it; `None` clears it."""
        return self._receiver._run(lambda: self._source.store(state, timeout))

    def renew_lock(self, /, *, timeout: float | None = None, **options: Any) -> datetime:
        """Give its lock the full duration from now; return its end.

        Raises:
            SessionLockLostError: it has ended before.
        """
        return self._receiver._run(lambda: self._source.renew_session(timeout))
