"""The I/O thread of a client: pika's loop, and a way to have something done there.

A handler of the application may take an hour: heartbeats are sent here. What is called is handed
over without a lock, so a signal handler may do it too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from pika.adapters.select_connection import IOLoop

from bridge.client.exceptions import ServiceBusError

log = logging.getLogger("azure.servicebus.bridge")


class IoThread:
    """A thread that ends with `stop`, or with the process.

    Attributes:
        loop: pika's; to be used in this thread only.
    """

    def __init__(self) -> None:
        self.loop = IOLoop()
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_stopped = False
        self._pid = os.getpid()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self.loop.add_handler(self._reading, self._on_wake, IOLoop.READ)
        self._thread = threading.Thread(target=self._run, name="busbridge client", daemon=True)
        self._thread.start()

    def call(self, call: Callable[[], None]) -> None:
        """Have something called in the thread.

        Raises:
            ServiceBusError: this process was forked from the one that made the client.
        """
        if os.getpid() != self._pid:
            raise ServiceBusError(
                "The process was forked after this ServiceBusClient was made; make one in the "
                "child."
            )
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(BlockingIOError, OSError):
                os.write(self._writing, b"!")

    def soon(self, call: Callable[[], None]) -> None:
        """Have something called at the end of this turn; in the thread only."""
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            os.write(self._writing, b"!")

    @property
    def is_current(self) -> bool:
        """Whether this is the thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the thread when it has done what was called; returns when it has ended."""
        self.call(self._stop)
        if not self.is_current:
            self._thread.join(timeout=5.0)

    def _on_wake(self, *event: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 4096)
        self._is_woken = False
        for _ in range(len(self._calls)):
            call = self._calls.popleft()
            try:
                call()
            except Exception:
                log.exception("The client's I/O thread goes on after an error.")

    def _stop(self) -> None:
        self._is_stopped = True
        self.loop.stop()

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                try:
                    self.loop.start()
                except Exception:
                    log.exception("The client's I/O thread goes on after an error.")
        finally:
            self.loop.remove_handler(self._reading)
            self.loop.close()
            os.close(self._reading)
            os.close(self._writing)
