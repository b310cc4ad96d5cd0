"""The ids of an entity's sessions, page by page."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from bridge.client.core.call import Call
from bridge.client.encoding import milliseconds
from bridge.client.exceptions import OperationTimeoutError

PAGE = 1_000


class SessionListing:
    """The position in a list of session ids.

    Args:
        updated_after: only sessions whose state was set after this time; `None`: those that have
            messages or a state.
        timeout: seconds for all pages together, from the first one on.

    Raises:
        ValueError: the timeout is not positive.
    """

    def __init__(
        self, path: str, updated_after: datetime | None, timeout: float | None = None
    ) -> None:
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        self._timeout_s = timeout
        self._ends_s: float | None = None
        self._path = path
        self._after_ms = None if updated_after is None else milliseconds(updated_after)
        self._read = 0

    def next_page(self) -> Call[Any]:
        """Ask for the next page; it is empty behind the last.

        Raises:
            OperationTimeoutError: the time for all pages is over.
        """
        asked = self._path, self._after_ms, self._read, PAGE
        return Call("sessions.list", asked, self._left_s())

    def _left_s(self) -> float | None:
        if self._timeout_s is None:
            return None
        now_s = time.monotonic()
        if self._ends_s is None:
            self._ends_s = now_s + self._timeout_s
        if now_s >= self._ends_s:
            raise OperationTimeoutError("The sessions were not all listed in time.")
        return self._ends_s - now_s

    def read(self, count: int) -> None:
        """Move the position by `count` ids."""
        self._read += count
