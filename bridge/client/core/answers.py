"""Who waits for an answer otherwise than a caller: `core.wire.Answer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def ignore(outcome: object) -> None:
    """Nobody hears it."""


class Told:
    """Has what comes of something told.

    Args:
        result: called with a result.
        error: called with what it failed with.
    """

    def __init__(
        self,
        result: Callable[[Any], None] = ignore,
        error: Callable[[BaseException], None] = ignore,
    ) -> None:
        self.set_result = result
        self.set_exception = error

    def done(self) -> bool:
        """It is never given up."""
        return False
