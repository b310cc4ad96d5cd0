"""The synchronous `AutoLockRenewer`: one thread that renews locks in time."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from bridge.client.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout
from bridge.client.messages import ServiceBusReceivedMessage

log = logging.getLogger("azure.servicebus.auto_lock_renewer")

DURATION_S = 300.0
MARGIN_S = 10.0
"""A lock is renewed so long before its end, or after half of a shorter one."""

OnFailure = Callable[[ServiceBusReceivedMessage, Exception | None], None]


@dataclass(order=True)
class _Renewal:
    due_s: float
    order: int
    receiver: Any = field(compare=False)
    message: ServiceBusReceivedMessage = field(compare=False)
    end_s: float = field(compare=False)
    on_failure: OnFailure | None = field(compare=False)


class AutoLockRenewer:
    """Renews the locks of messages until they are settled.

    Args:
        max_lock_renewal_duration: for how long, in seconds.
        on_lock_renew_failure: called with a message whose lock is lost.
    """

    def __init__(
        self,
        max_lock_renewal_duration: float = DURATION_S,
        on_lock_renew_failure: OnFailure | None = None,
        **options: Any,
    ) -> None:
        self._duration_s = max_lock_renewal_duration
        self._on_failure = on_lock_renew_failure
        self._renewals: list[_Renewal] = []
        self._orders = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def __enter__(self) -> AutoLockRenewer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def register(
        self,
        receiver: Any,
        renewable: ServiceBusReceivedMessage,
        max_lock_renewal_duration: float | None = None,
        on_lock_renew_failure: OnFailure | None = None,
    ) -> None:
        """Renew a message's lock until it is settled.

        Raises:
            ValueError: the renewer is closed, or the message has no lock.
        """
        if renewable.lock_token is None:
            raise ValueError("Only messages that are locked can be registered.")
        end_s = time.monotonic() + (max_lock_renewal_duration or self._duration_s)
        on_failure = on_lock_renew_failure or self._on_failure
        renewal = _Renewal(0.0, next(self._orders), receiver, renewable, end_s, on_failure)
        renewal.due_s = next_renewal_s(renewable)
        with self._changed:
            if self._is_closed:
                raise ValueError("The AutoLockRenewer has already been shutdown.")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="busbridge renewer", daemon=True
                )
                self._thread.start()
            heapq.heappush(self._renewals, renewal)
            self._changed.notify()

    def close(self, wait: bool = True) -> None:
        """Renew nothing more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        is_other = threading.current_thread() is not self._thread
        if wait and self._thread is not None and is_other:
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while (renewal := self._next()) is not None:
            if self._renew(renewal):
                renewal.due_s = next_renewal_s(renewal.message)
                with self._changed:
                    heapq.heappush(self._renewals, renewal)

    def _next(self) -> _Renewal | None:
        with self._changed:
            while not self._is_closed:
                wait_s = None
                if self._renewals:
                    wait_s = self._renewals[0].due_s - time.monotonic()
                    if wait_s <= 0:
                        return heapq.heappop(self._renewals)
                self._changed.wait(wait_s)
        return None

    def _renew(self, renewal: _Renewal) -> bool:
        """Renew once; return whether it goes on."""
        message = renewal.message
        if message.lock_token is None:
            return False
        try:
            if time.monotonic() >= renewal.end_s:
                raise AutoLockRenewTimeout("The lock was renewed for as long as it should be.")
            renewal.receiver.renew_message_lock(message)
        except AutoLockRenewTimeout as error:
            message.auto_renew_error = error
            return False
        except Exception as error:
            if message.lock_token is None:
                return False  # it was settled meanwhile
            log.debug("A lock could not be renewed: %r", error)
            message.auto_renew_error = AutoLockRenewFailed(str(error), error=error)
            if renewal.on_failure is not None:
                renewal.on_failure(message, error)
            return False
        return True


def next_renewal_s(message: ServiceBusReceivedMessage) -> float:
    """Return when a lock is to be renewed (by the monotonic clock)."""
    until = message.locked_until_utc
    left_s = 0.0 if until is None else until.timestamp() - time.time()
    return time.monotonic() + max(left_s - MARGIN_S, left_s / 2)
