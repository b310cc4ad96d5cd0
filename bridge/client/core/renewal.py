"""When and for how long a lock is renewed, whatever the lane."""

from __future__ import annotations

import logging
import time
from typing import Any

from bridge.client.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout
from bridge.client.received_message import ServiceBusReceivedMessage

log = logging.getLogger("azure.servicebus.auto_lock_renewer")

DURATION_S = 300.0
MARGIN_S = 10.0
"""A lock is renewed so long before its end, or after half of a shorter one."""

CALLBACK_FAILED = "The callback on_lock_renew_failure has failed."


class Renewal:
    """One lock that is kept.

    Args:
        renewable: a message, or a session.
        duration_s: for how long it is kept.
        on_failure: called with it when it is lost; a lane's own kind of function.

    Raises:
        ValueError: it has no lock.
    """

    def __init__(self, receiver: Any, renewable: Any, duration_s: float, on_failure: Any) -> None:
        if renewable.locked_until_utc is None:
            raise ValueError("Only what is locked can be registered: a message, or a session.")
        self.receiver = receiver
        self.renewable = renewable
        self.on_failure = on_failure
        self._end_s = time.monotonic() + duration_s

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to keep any more: it was settled, or its receiver closed."""
        return self.renewable.locked_until_utc is None

    @property
    def is_enough(self) -> bool:
        """Whether it was kept for as long as it should be."""
        return time.monotonic() >= self._end_s

    def due_s(self) -> float:
        """Return when it is to be renewed next (by the monotonic clock)."""
        until = self.renewable.locked_until_utc
        left_s = 0.0 if until is None else until.timestamp() - time.time()
        return time.monotonic() + max(left_s - MARGIN_S, left_s / 2)

    def renew(self) -> Any:
        """Renew it: what is returned is awaited in the asynchronous lane."""
        if isinstance(self.renewable, ServiceBusReceivedMessage):
            return self.receiver.renew_message_lock(self.renewable)
        return self.renewable.renew_lock()

    def expire(self) -> None:
        """Renew it no more; its lock ends when it ends."""
        self.renewable.auto_renew_error = AutoLockRenewTimeout(
            "The lock was renewed for as long as it should be."
        )

    def fail(self, error: Exception) -> bool:
        """It was not renewed; return whether that is a failure: it may be settled meanwhile."""
        if self.is_over:
            return False
        log.debug("A lock could not be renewed: %r", error)
        self.renewable.auto_renew_error = AutoLockRenewFailed(str(error), error=error)
        return self.on_failure is not None
