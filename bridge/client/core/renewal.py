"""Renewal of one lock, for both lanes: when, and for how long."""

from __future__ import annotations

import logging
import time
from typing import Any

from bridge.client.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout
from bridge.client.received_message import ServiceBusReceivedMessage

log = logging.getLogger("azure.servicebus.auto_lock_renewer")

DURATION_S = 300.0
MARGIN_S = 10.0
"""A lock is renewed this many seconds before its end, a short lock after half of the time left."""

CALLBACK_FAILED = "The callback on_lock_renew_failure has failed."


class Renewal:
    """A lock that is renewed.

    Args:
        renewable: a message, or a session.
        duration_s: how long the lock is renewed.
        on_failure: called when the lock is lost; a coroutine function in the asynchronous lane.

    Raises:
        ValueError: the renewable has no lock.
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
        """Whether no lock is left: the message was settled, or the receiver closed."""
        return self.renewable.locked_until_utc is None

    @property
    def is_enough(self) -> bool:
        """Whether the duration is over."""
        return time.monotonic() >= self._end_s

    def due_s(self) -> float:
        """Return the time of the next renewal (monotonic clock)."""
        until = self.renewable.locked_until_utc
        left_s = 0.0 if until is None else until.timestamp() - time.time()
        return time.monotonic() + max(left_s - MARGIN_S, left_s / 2)

    def renew(self) -> Any:
        """Renew the lock; the asynchronous lane awaits the returned value."""
        if isinstance(self.renewable, ServiceBusReceivedMessage):
            return self.receiver.renew_message_lock(self.renewable)
        return self.renewable.renew_lock()

    def expire(self) -> None:
        """End the renewal: the lock ends by itself."""
        self.renewable.auto_renew_error = AutoLockRenewTimeout(
            "The lock was renewed for as long as it should be."
        )

    def fail(self, error: Exception) -> bool:
        """Note a failed renewal; return whether `on_failure` is to be called."""
        if self.is_over:
            return False
        log.debug("A lock could not be renewed: %r", error)
        self.renewable.auto_renew_error = AutoLockRenewFailed(str(error), error=error)
        return self.on_failure is not None
