"""Callbacks in place of a caller's future: `core.wire.Answer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def ignore(outcome: object) -> None:
    """Ignore the outcome."""


class CallbackAnswer:
    """An answer that calls functions.

    Args:
        result: called with the result.
        error: called with the exception.
    """

    def __init__(
        self,
        result: Callable[[Any], None] = ignore,
        error: Callable[[BaseException], None] = ignore,
    ) -> None:
        self.set_result = result
        self.set_exception = error

    def done(self) -> bool:
        """Return False: nothing gives up."""
        return False
