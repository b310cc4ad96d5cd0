"""Waits between attempts to connect: longer after each failure."""

from __future__ import annotations

from typing import Any

import tenacity

MIN_S = 0.2
MAX_S = 10.0


class Backoff:
    """The count of failures in a row; waits are random, to spread the attempts of many clients."""

    def __init__(self) -> None:
        self._wait = tenacity.wait_random_exponential(multiplier=2 * MIN_S, min=MIN_S, max=MAX_S)
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
