"""How long to wait before the next attempt to connect: longer after each failure."""

from __future__ import annotations

from typing import Any

import tenacity

MIN_S = 0.2
MAX_S = 10.0


class Backoff:
    """The failures in a row so far; waits are random, so that many clients do not come at once."""

    def __init__(self) -> None:
        self._wait = tenacity.wait_random_exponential(multiplier=2 * MIN_S, min=MIN_S, max=MAX_S)
        self._failures = 0

    def succeeded(self) -> None:
        """There is a connection: the row has ended."""
        self._failures = 0

    def wait_s(self) -> float:
        """An attempt has failed; return the seconds until the next."""
        self._failures += 1
        nothing: Any = None
        state = tenacity.RetryCallState(nothing, None, (), {})
        state.attempt_number = self._failures
        return self._wait(state)
