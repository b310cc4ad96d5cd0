"""The asynchronous `AutoLockRenewer`: a task for each message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from bridge.client.exceptions import AutoLockRenewFailed, AutoLockRenewTimeout
from bridge.client.messages import ServiceBusReceivedMessage
from bridge.client.sync.renewer import DURATION_S, next_renewal_s

OnFailure = Callable[[ServiceBusReceivedMessage, Exception | None], Awaitable[None]]


class AutoLockRenewer:
    """Renews the locks of messages until they are settled.

    Args:
        max_lock_renewal_duration: for how long, in seconds.
        on_lock_renew_failure: awaited with a message whose lock is lost.
    """

    def __init__(
        self,
        max_lock_renewal_duration: float = DURATION_S,
        on_lock_renew_failure: OnFailure | None = None,
        **options: Any,
    ) -> None:
        self._duration_s = max_lock_renewal_duration
        self._on_failure = on_lock_renew_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def __aenter__(self) -> AutoLockRenewer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

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
        if self._is_closed:
            raise ValueError("The AutoLockRenewer has already been shutdown.")
        if renewable.lock_token is None:
            raise ValueError("Only messages that are locked can be registered.")
        end_s = time.monotonic() + (max_lock_renewal_duration or self._duration_s)
        on_failure = on_lock_renew_failure or self._on_failure
        task = asyncio.get_running_loop().create_task(
            self._renew(receiver, renewable, end_s, on_failure)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Renew nothing more."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew(
        self,
        receiver: Any,
        message: ServiceBusReceivedMessage,
        end_s: float,
        on_failure: OnFailure | None,
    ) -> None:
        while message.lock_token is not None:
            await asyncio.sleep(max(0.0, next_renewal_s(message) - time.monotonic()))
            if message.lock_token is None:
                return
            if time.monotonic() >= end_s:
                message.auto_renew_error = AutoLockRenewTimeout(
                    "The lock was renewed for as long as it should be."
                )
                return
            try:
                await receiver.renew_message_lock(message)
            except Exception as error:
                if message.lock_token is not None:
                    message.auto_renew_error = AutoLockRenewFailed(str(error), error=error)
                    if on_failure is not None:
                        await on_failure(message, error)
                return
