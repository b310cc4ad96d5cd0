"""What is logged of one client: facts with its address, and not too many of them."""

from __future__ import annotations

import logging
from typing import Any

from bridge.gateway.timers import Timers

_log = logging.getLogger("busbridge.gateway")

LINES_MAX = 100
"""Facts that are logged of one client within a minute; what is above is counted."""


class ClientLog:
    """The log of one connection.

    Attributes:
        peer: the client's address.
    """

    def __init__(self, timers: Timers) -> None:
        self.peer = "?"
        self._timers = timers
        self._lines = 0

    def info(self, event: str, **fields: Any) -> None:
        """Log one fact; of many a minute, the first."""
        if not self._lines:
            self._timers.set("lines", 60.0, self.end_minute)
        self._lines += 1
        if self._lines <= LINES_MAX:
            _log.info("%s peer=%s %s", event, self.peer, _text(fields))

    def exception(self, event: str, **fields: Any) -> None:
        """Log a fault of our own with its traceback."""
        _log.exception("%s peer=%s %s", event, self.peer, _text(fields))

    def failed(self, error: BaseException) -> None:
        """Log that what was done for the client has failed."""
        _log.error("task.failed peer=%s", self.peer, exc_info=error)

    def end_minute(self) -> None:
        """Log how many facts were not."""
        if self._lines > LINES_MAX:
            _log.info("connection.silenced peer=%s lines=%d", self.peer, self._lines - LINES_MAX)
        self._lines = 0


def _text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in fields.items())
