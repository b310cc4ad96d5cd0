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

    get_state = awaited(Synchronous.get_state)
    set_state = awaited(Synchronous.set_state)
    renew_lock = awaited(Synchronous.renew_lock)
