"""The synchronous `ServiceBusSession`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from bridge.client.core.call import Call
from bridge.client.core.session_source import SessionSource
from bridge.client.messages import instant


class ServiceBusSession:
    """The session of a receiver; made by that.

    Args:
        run: has its receiver carry something out, when it has the session.

    Attributes:
        auto_renew_error: why an `AutoLockRenewer` renews it no more.
    """

    def __init__(self, source: SessionSource, run: Callable[[Callable[[], Call]], Any]) -> None:
        self._source = source
        self._run = run
        self.auto_renew_error: Exception | None = None

    @property
    def session_id(self) -> str | None:
        """Its id; of a next session once that is given."""
        return self._source.session_id

    @property
    def locked_until_utc(self) -> datetime | None:
        """The end of its lock."""
        return self._source.locked_until_utc

    def get_state(self, *, timeout: float | None = None, **options: Any) -> bytes | None:
        """Return what is stored with it."""
        state: bytes | None = self._run(lambda: self._source.state(timeout))
        return state

    def set_state(
        self,
        state: str | bytes | bytearray | None,
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> None:
        """Store something with it; `None` clears it."""
        self._run(lambda: self._source.store(state, timeout))

    def renew_lock(self, *, timeout: float | None = None, **options: Any) -> datetime:
        """Give its lock the full duration from now; return its end.

        Raises:
            SessionLockLostError: it has ended before.
        """
        return instant(self._run(lambda: self._source.renew_session(timeout)))
