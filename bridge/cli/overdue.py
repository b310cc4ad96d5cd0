"""The end of a stop that does not end: the process says what it waits for, and is gone."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time

from bridge.background import pending

_log = logging.getLogger("busbridge.serve")

OVERDUE_S = 20.0
"""The longest stop behind the drain: mostly it takes less than a second, 9 s on a busy machine."""


class Overdue:
    """Ends this process, with the exit code 1, when its stop takes too long.

    Nothing is lost by that: RabbitMQ is the only store, as at a kill.

    Args:
        within_s: how long a stop may take.
    """

    def __init__(self, within_s: float = OVERDUE_S) -> None:
        self._within_s = within_s
        self._has_begun = False

    def begin(self) -> None:
        """Count from now on; called on the event loop that stops. Further calls do nothing."""
        if not self._has_begun:
            self._has_begun = True
            loop = asyncio.get_running_loop()
            # No thread that the process would wait for at its end.
            threading.Thread(
                target=self._end_late, args=(loop,), name="overdue stop", daemon=True
            ).start()

    def _end_late(self, loop: asyncio.AbstractEventLoop) -> None:
        time.sleep(self._within_s)
        try:
            _log.error(
                "serve.stop_overdue seconds=%g tasks=%s threads=%s",
                self._within_s,
                pending.of_tasks(asyncio.all_tasks(loop)) or "none",
                pending.of_threads(),
            )
        finally:
            os._exit(1)
