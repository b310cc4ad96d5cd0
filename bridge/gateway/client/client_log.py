"""Log lines about one client, with the client's address and limited to some a minute."""

from __future__ import annotations

import logging
from typing import Any

from bridge.gateway.client.timers import Timers

_log = logging.getLogger("busbridge.gateway")

LINES_MAX = 100
"""Log lines about one client within a minute; further lines are only counted."""


class ClientLog:
    """Log of one connection.

    Attributes:
        peer: the client's address.
    """

    def __init__(self, timers: Timers) -> None:
        self.peer = "?"
        self._timers = timers
        self._lines = 0

    def info(self, event: str, **fields: Any) -> None:
        """Log a line, unless the minute's limit is reached."""
        if not self._lines:
            self._timers.set("lines", 60.0, self.end_minute)
        self._lines += 1
        if self._lines <= LINES_MAX:
            _log.info("%s peer=%s %s", event, self.peer, _text(fields))

    def exception(self, event: str, **fields: Any) -> None:
        """Log a fault of the bridge with its traceback."""
        _log.exception("%s peer=%s %s", event, self.peer, _text(fields))

    def failed(self, error: BaseException) -> None:
        """Log the failure of a task of the client's connection."""
        _log.error("task.failed peer=%s", self.peer, exc_info=error)

    def end_minute(self) -> None:
        """Log how many lines were left out."""
        if self._lines > LINES_MAX:
            _log.info("connection.silenced peer=%s lines=%d", self.peer, self._lines - LINES_MAX)
        self._lines = 0


def _text(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in fields.items())
