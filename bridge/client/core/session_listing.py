"""The ids of an entity's sessions, page by page."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from bridge.client.core.call import Call
from bridge.client.encoding import milliseconds

PAGE = 1_000


class Listing:
    """The position in a list of session ids.

    Args:
        updated_after: only sessions whose state was set after this time; `None`: those that have
            messages or a state.
    """

    def __init__(self, path: str, updated_after: datetime | None) -> None:
        self._path = path
        self._after_ms = None if updated_after is None else milliseconds(updated_after)
        self._read = 0

    def next_page(self) -> Call[Any]:
        """Ask for the next page; it is empty behind the last."""
        return Call("sessions.list", (self._path, self._after_ms, self._read, PAGE))

    def read(self, count: int) -> None:
        """Move the position by `count` ids."""
        self._read += count
