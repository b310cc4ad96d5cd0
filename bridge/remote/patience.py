"""How long a client tries again, and how long it waits between: the SDKs' back-off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from bridge.background.retry import GrowingWait, retry
from bridge.remote.errors import RemoteBusy, RemoteError

Result = TypeVar("Result")

BUSY_S = 4.0
"""The wait after `com.microsoft:server-busy`, if the server asks for no longer one: that of
azure-servicebus for Python (.NET's is 10 s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When a call is made again after an error that may pass; a call that is in doubt never is.

    Attributes:
        total_s: no attempt is begun after this time; 0: there is one attempt.
        wait_s, wait_max_s: the first wait, which then grows, and the longest.
        sleep: the function that waits.
        clock: the time in seconds, for what a server has asked to wait.
    """

    total_s: float = 15.0
    wait_s: float = 0.8
    wait_max_s: float = 30.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic

    async def repeat(
        self, work: Callable[[], Awaitable[Result]], *, is_repeatable: bool = False
    ) -> Result:
        """Return the result of the first attempt that succeeds; raises the last one's error.

        Args:
            is_repeatable: the work may be done twice, so it is repeated even in doubt.
        """
        passes = _passes if is_repeatable else _passes_undone
        try:
            return await work()
        except RemoteError as error:
            if not passes(error) or self.total_s <= 0:
                raise
            failed: RemoteError | None = error

        async def again() -> Result:
            nonlocal failed
            first, failed = failed, None
            if first is not None:
                raise first
            return await work()

        return await retry(
            again,
            wait_s=growing_wait(self.wait_s, self.wait_max_s),
            retryable=passes,
            total_s=self.total_s,
            sleep=self.sleep,
        )


class Pause:
    """The wait that a busy server has asked for; links are attached when it is over.

    It holds for every call, the first one of a new connection too: Service Bus counts what comes
    meanwhile.

    Args:
        clock: the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = clock()
        self._asked: RemoteError | None = None

    def begin(self, error: RemoteError) -> None:
        """Begin, if the server has ended something because it is busy."""
        if isinstance(error, RemoteBusy):
            self._until_s = max(self._until_s, self._clock() + pause_s(error))
            self._asked = error

    def check(self) -> None:
        """Do nothing when it is over.

        Raises:
            RemoteBusy: it is not; nothing was done. Its `pause_s` is what is left.
        """
        left_s = self._until_s - self._clock()
        if self._asked is not None and left_s > 0:
            error = RemoteBusy(self._asked.condition, self._asked.description)
            error.pause_s = left_s
            raise error


def growing_wait(min_s: float, max_s: float) -> GrowingWait:
    """Return waits that grow, and are no shorter than a busy server asks for."""
    return GrowingWait(min_s, max_s, steady_s=60.0, pause_s=pause_s)


def pause_s(error: BaseException) -> float:
    """Return how long to wait after an error at least."""
    return max(error.pause_s, BUSY_S) if isinstance(error, RemoteBusy) else 0.0


def _passes(error: BaseException) -> bool:
    return isinstance(error, RemoteError) and error.retryable


def _passes_undone(error: BaseException) -> bool:
    return isinstance(error, RemoteError) and error.retryable and not error.in_doubt
