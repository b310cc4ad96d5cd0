"""Retries: of failed operations, by the SDK's options; of attempts to connect, without end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tenacity

CONNECT_S_MIN = 0.2
CONNECT_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """The client's `retry_total`, `retry_backoff_factor`, `retry_backoff_max` and `retry_mode`."""

    total: int
    backoff_factor: float
    backoff_max: float
    mode: str

    def arguments(self, may_again: Callable[[], bool] = lambda: True) -> dict[str, Any]:
        """Return the arguments of tenacity's `Retrying` and `AsyncRetrying`.

        Args:
            may_again: whether the failed operation may still be repeated.
        """
        if self.mode == "fixed":
            wait: Any = tenacity.wait_fixed(self.backoff_factor)
        else:
            wait = tenacity.wait_exponential(multiplier=self.backoff_factor, max=self.backoff_max)
        return {
            "wait": wait,
            "stop": tenacity.stop_after_attempt(self.total + 1),
            "retry": tenacity.retry_if_exception(lambda each: is_retryable(each) and may_again()),
            "reraise": True,
        }


def is_retryable(error: BaseException) -> bool:
    """Return whether the library marks an error as safe to retry, and a retry may help."""
    return getattr(error, "_retryable", False)


class Backoff:
    """The failed attempts to connect in a row; random waits spread those of many clients."""

    def __init__(self) -> None:
        self._wait = tenacity.wait_random_exponential(
            multiplier=2 * CONNECT_S_MIN, min=CONNECT_S_MIN, max=CONNECT_S_MAX
        )
        self._failures = 0

    def succeeded(self) -> None:
        """Reset the count: a connection is open."""
        self._failures = 0

    def wait_s(self) -> float:
        """Count a failed attempt; return the seconds until the next attempt."""
        self._failures += 1
        nothing: Any = None
        state = tenacity.RetryCallState(nothing, None, (), {})
        state.attempt_number = self._failures
        return self._wait(state)
