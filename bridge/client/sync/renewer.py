"""The synchronous `AutoLockRenewer`: a thread as the timer, and a pool that renews locks."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from bridge.client.core.renewal import CALLBACK_FAILED, DURATION_S, Renewal, log

OnFailure = Callable[[Any, Exception | None], None]


class AutoLockRenewer:
    """Renews the locks of messages and sessions until they are settled or closed.

    Args:
        max_lock_renewal_duration: for how long, in seconds.
        on_lock_renew_failure: called with a message or session whose lock is lost.
        executor: runs renewals; for a session or a deferred message a bridge may take long.
        max_workers: threads of the renewer's own pool.
    """

    def __init__(
        self,
        max_lock_renewal_duration: float = DURATION_S,
        on_lock_renew_failure: OnFailure | None = None,
        executor: Executor | None = None,
        max_workers: int | None = None,
    ) -> None:
        self._duration_s = max_lock_renewal_duration
        self._on_failure = on_lock_renew_failure
        self._renewals: list[tuple[float, int, Renewal]] = []
        self._orders = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._own = ThreadPoolExecutor(max_workers, "busbridge renewal")
        self._executor = executor or self._own
        self._is_closed = False

    def __enter__(self) -> AutoLockRenewer:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def register(
        self,
        receiver: Any,
        renewable: Any,
        max_lock_renewal_duration: float | None = None,
        on_lock_renew_failure: OnFailure | None = None,
    ) -> None:
        """Renew a message's lock until it is settled, or a session's until its receiver closes.

        Raises:
            ValueError: the renewer is closed, or the renewable has no lock.
        """
        duration_s = max_lock_renewal_duration or self._duration_s
        on_failure = on_lock_renew_failure or self._on_failure
        renewal = Renewal(receiver, renewable, duration_s, on_failure)
        with self._changed:
            if self._is_closed:
                raise ValueError("The AutoLockRenewer has already been shutdown.")
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="busbridge renewer", daemon=True
                )
                self._thread.start()
            self._push(renewal)

    def close(self, wait: bool = True) -> None:
        """Stop renewing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._own.shutdown(wait=False)
        is_other = threading.current_thread() is not self._thread
        if wait and self._thread is not None and is_other:
            self._thread.join(timeout=5.0)

    def _push(self, renewal: Renewal) -> None:
        heapq.heappush(self._renewals, (renewal.due_s(), next(self._orders), renewal))
        self._changed.notify()

    def _run(self) -> None:
        while (renewal := self._next()) is not None:
            try:
                self._executor.submit(self._keep, renewal)
            except RuntimeError:  # the pool is shut down, or the main thread has ended
                self._keep(renewal)

    def _next(self) -> Renewal | None:
        with self._changed:
            while not self._is_closed:
                wait_s = None
                if self._renewals:
                    wait_s = self._renewals[0][0] - time.monotonic()
                    if wait_s <= 0:
                        return heapq.heappop(self._renewals)[2]
                self._changed.wait(wait_s)
        return None

    def _keep(self, renewal: Renewal) -> None:
        if self._renew(renewal):
            with self._changed:
                self._push(renewal)

    def _renew(self, renewal: Renewal) -> bool:
        """Renew once; return whether to renew again."""
        if renewal.is_over:
            return False
        if renewal.is_enough:
            renewal.expire()
            return False
        try:
            renewal.renew()
        except Exception as error:
            if not self._is_closed and renewal.fail(error):
                self._tell(renewal)
            return False
        return True

    def _tell(self, renewal: Renewal) -> None:
        try:
            renewal.on_failure(renewal.renewable, renewal.renewable.auto_renew_error)
        except Exception:
            log.exception(CALLBACK_FAILED)
