"""Which failed operations are done again, how often and after how long: the SDK's options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tenacity


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """The client's `retry_total`, `retry_backoff_factor`, `retry_backoff_max` and `retry_mode`."""

    total: int
    backoff_factor: float
    backoff_max: float
    mode: str

    def arguments(self, may_again: Callable[[], bool] = lambda: True) -> dict[str, Any]:
        """Return what tenacity's `Retrying` and `AsyncRetrying` take.

        Args:
            may_again: whether what has failed may still be done again.
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
    """Whether an error of the library's says that doing it again is safe, and may help."""
    return getattr(error, "_retryable", False)
