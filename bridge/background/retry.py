"""Repeating work that has failed: the bridge's one retry loop, on tenacity."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import tenacity

Result = TypeVar("Result")

OnFailed = Callable[[BaseException, int, float], None]
"""Called with an error, the number of failures in a row, and the seconds to the next attempt."""


class GrowingWait(tenacity.wait_random_exponential):
    """The wait before an attempt: longer after each failure, short again after work that lasted.

    Waits are random, so that many bridges do not reconnect at the same time.

    Args:
        min_s: the shortest wait.
        max_s: the longest wait.
        steady_s: work that lasted longer since `begin` ends a row of failures.
        clock: the time in seconds.
        pause_s: how long an error itself asks to wait; the wait is no shorter.
    """

    def __init__(
        self,
        min_s: float,
        max_s: float,
        *,
        steady_s: float,
        clock: Callable[[], float] = time.monotonic,
        pause_s: Callable[[BaseException], float] | None = None,
    ) -> None:
        super().__init__(multiplier=2 * min_s, min=min_s, max=max_s)
        self._steady_s = steady_s
        self._clock = clock
        self._pause_s = pause_s
        self._since_s: float | None = None

    def begin(self) -> None:
        """Note that the work begins now."""
        self._since_s = self._clock()

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        """Return the seconds until the next attempt."""
        since_s, self._since_s = self._since_s, None
        if since_s is not None and self._clock() - since_s > self._steady_s:
            retry_state.attempt_number = 1
        wait_s = super().__call__(retry_state)
        error = retry_state.outcome.exception() if retry_state.outcome is not None else None
        if self._pause_s is not None and error is not None:
            return max(wait_s, self._pause_s(error))
        return wait_s


async def retry(
    work: Callable[[], Awaitable[Result]],
    *,
    wait_s: float | tenacity.wait.wait_base,
    retryable: type[BaseException] | Callable[[BaseException], bool],
    total_s: float | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    on_failed: OnFailed | None = None,
) -> Result:
    """Repeat work until it succeeds, and return its result.

    Args:
        work: called at each attempt.
        wait_s: the wait between a failure and the next attempt.
        retryable: the class of errors to retry after, or a predicate of an error.
        total_s: no further attempt is made after this time; None means no limit.
        sleep: the function that waits.
        on_failed: called after each failure that is retried.

    Raises:
        BaseException: the last error of the work, when it is not retried.
    """

    def before_sleep(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if on_failed is not None and error is not None:
            on_failed(error, state.attempt_number, state.upcoming_sleep)

    first: Exception | None = None
    if total_s is None:
        # Most work succeeds at once, and tenacity costs more than little work does: it hears of a
        # first failure as of any other.
        try:
            return await work()
        except Exception as error:
            first = error

    async def attempt() -> Result:
        nonlocal first
        if first is not None:
            error, first = first, None
            raise error
        return await work()

    retrying = tenacity.AsyncRetrying(
        wait=tenacity.wait_fixed(wait_s) if isinstance(wait_s, int | float) else wait_s,
        retry=(
            tenacity.retry_if_exception_type(retryable)
            if isinstance(retryable, type)
            else tenacity.retry_if_exception(retryable)
        ),
        stop=tenacity.stop_never if total_s is None else tenacity.stop_after_delay(total_s),
        sleep=sleep,
        before_sleep=before_sleep,
        reraise=True,
    )
    return await retrying(attempt)
