"""The asynchronous `AutoLockRenewer`: a task for each lock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bridge.client.core.renewal import CALLBACK_FAILED, DURATION_S, Renewal, log

OnFailure = Callable[[Any, Exception | None], Awaitable[None]]


class AutoLockRenewer:
    """Renews the locks of messages and sessions until they are settled or closed.

    Args:
        max_lock_renewal_duration: for how long, in seconds.
        on_lock_renew_failure: awaited with a message or session whose lock is lost.
        loop: accepted; locks are renewed on the loop that registers them.
    """

    def __init__(
        self,
        max_lock_renewal_duration: float = DURATION_S,
        on_lock_renew_failure: OnFailure | None = None,
        loop: object = None,
    ) -> None:
        self._duration_s = max_lock_renewal_duration
        self._on_failure = on_lock_renew_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def __aenter__(self) -> AutoLockRenewer:
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self.close()

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
        if self._is_closed:
            raise ValueError("The AutoLockRenewer has already been shutdown.")
        duration_s = max_lock_renewal_duration or self._duration_s
        on_failure = on_lock_renew_failure or self._on_failure
        renewal = Renewal(receiver, renewable, duration_s, on_failure)
        task = asyncio.get_running_loop().create_task(self._keep(renewal))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop renewing."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, renewal: Renewal) -> None:
        while not renewal.is_over:
            await asyncio.sleep(max(0.0, renewal.due_s() - time.monotonic()))
            if renewal.is_over:
                return
            if renewal.is_enough:
                renewal.expire()
                return
            try:
                await renewal.renew()
            except Exception as error:
                if renewal.fail(error):
                    await self._tell(renewal)
                return

    async def _tell(self, renewal: Renewal) -> None:
        try:
            await renewal.on_failure(renewal.renewable, renewal.renewable.auto_renew_error)
        except Exception:
            log.exception(CALLBACK_FAILED)
