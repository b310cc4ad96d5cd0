"""The asynchronous `ServiceBusSession`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from bridge.client.aio.awaited import awaited
from bridge.client.core.session_source import SessionSource
from bridge.client.sync.session import ServiceBusSession as Synchronous

if TYPE_CHECKING:
    from bridge.client.aio.receiver import ServiceBusReceiver


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

    get_state = awaited(Synchronous.get_state)
    set_state = awaited(Synchronous.set_state)
    renew_lock = awaited(Synchronous.renew_lock)
