"""The event loop of a client's pika connections: sockets, timers, and calls.

Any thread may take a turn of the loop, one thread at a time (`thread.IoThread` has the lock).
Timers are called, and sockets waited for, in the I/O thread only.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import math
import os
import selectors
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

log = logging.getLogger("azure.servicebus.bridge")

Handler = Callable[[int, int], None]

_SLACK = 256
"""Cancelled timers are dropped when the timers are this many more than twice those left at the last
drop."""

WAIT_MAX_S = 5.0
"""The longest wait: a new timer due later need not wake the I/O thread."""


class Timer:
    """A call at a later time."""

    __slots__ = ("call", "due_s")

    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s = due_s
        self.call: Callable[[], None] | None = call

    def __lt__(self, other: Timer) -> bool:
        return self.due_s < other.due_s

    def cancel(self) -> None:
        """Drop the call."""
        self.call = None


class Loop:
    """The loop interface that pika needs, and turns of the loop.

    Attributes:
        calls: functions for the next turn; any thread appends without a lock, and calls `wake`.
        soons: functions for the end of this turn; appended to in turns.
    """

    READ = selectors.EVENT_READ
    WRITE = selectors.EVENT_WRITE
    ERROR = 0  # selectors report an error as both events

    def __init__(self) -> None:
        self.calls: deque[Callable[[], None]] = deque()
        self.soons: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[int, tuple[Handler, int]] = {}
        self._waited: dict[int, int] = {}
        self._changed: set[int] = set()
        self._timers: list[Timer] = []
        self._timers_max = _SLACK
        self._until_s = -math.inf
        self._is_woken = False
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        # Only when no thread can wake the loop any more: another file may reuse the number.
        weakref.finalize(self, os.close, self._writing)
        self.add_handler(self._reading, self._on_wake, self.READ)

    def close(self) -> None:
        """Close the selector and the pipe's reading end."""
        self._selector.close()
        os.close(self._reading)

    # Called by pika, in a turn.

    def add_handler(self, fd: int, handler: Handler, events: int) -> None:
        """Call a handler at these events of a file."""
        self._handlers[fd] = handler, events
        self._changed.add(fd)

    def update_handler(self, fd: int, events: int) -> None:
        """Change the events of a file's handler."""
        self._handlers[fd] = self._handlers[fd][0], events
        if self._waited.get(fd) == events:  # within a turn pika may begin to write, and be done
            self._changed.discard(fd)
        else:
            self._changed.add(fd)

    def remove_handler(self, fd: int) -> None:
        """Remove a file's handler; the file is about to be closed."""
        del self._handlers[fd]
        self._changed.discard(fd)
        if self._waited.pop(fd, None) is not None:
            self._selector.unregister(fd)

    def call_later(self, wait_s: float, call: Callable[[], None]) -> Timer:
        """Call `call` after `wait_s`."""
        timer = Timer(time.monotonic() + wait_s, call)
        if len(self._timers) >= self._timers_max:
            self._timers = [each for each in self._timers if each.call is not None]
            heapq.heapify(self._timers)
            self._timers_max = 2 * len(self._timers) + _SLACK
        heapq.heappush(self._timers, timer)
        return timer

    def remove_timeout(self, timer: Timer) -> None:
        """Drop a timer's call."""
        timer.cancel()

    def add_callback(self, call: Callable[[], None]) -> None:
        """Call `call` in a turn of the I/O thread; for any thread."""
        self.calls.append(call)
        self.wake()

    # Turns.

    @property
    def is_overdue(self) -> bool:
        """Whether the I/O thread must wake: calls, changed handlers, or an earlier timer."""
        return bool(self.calls or self.soons or self._changed) or self._next_s() < self._until_s

    def wake(self) -> None:
        """Have the I/O thread take a turn; for any thread."""
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(OSError):  # the pipe is full, or has no reader
                os.write(self._writing, b"!")

    def do(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call a function; log an exception, so the loop goes on."""
        try:
            call(*arguments)
        except Exception:
            log.exception("The client's I/O goes on after an error.")

    def do_all(self, calls: deque[Callable[[], None]]) -> None:
        """Call the functions queued now, but none added meanwhile."""
        for _ in range(len(calls)):
            self.do(calls.popleft())

    def turn(self, ready: Iterable[tuple[int, int]]) -> None:
        """Call the handlers of ready files, the due timers, and the queued functions."""
        self._is_woken = False  # also if `wake` was interrupted before its write
        for fd, events in ready:
            handler, wanted = self._handlers.get(fd, (None, 0))
            if handler is not None and events & wanted:
                self.do(handler, fd, events & wanted)
        now_s = time.monotonic()
        while self._next_s() <= now_s:
            call = heapq.heappop(self._timers).call
            if call is not None:
                self.do(call)
        self.do_all(self.calls)
        self.do_all(self.soons)

    def prepare(self) -> None:
        """Register changed handlers; compute the next wait's end."""
        while self._changed:
            fd = self._changed.pop()
            events = self._handlers[fd][1]
            is_new = fd not in self._waited
            self._waited[fd] = events
            self.do(self._selector.register if is_new else self._selector.modify, fd, events)
        until_s = min(self._next_s(), time.monotonic() + WAIT_MAX_S)
        self._until_s = -math.inf if self.calls or self.soons else until_s

    def wait(self) -> list[tuple[int, int]]:
        """Wait for events or a timer; return the ready files and their events."""
        wait_s = max(0.0, self._until_s - time.monotonic())
        found = self._selector.select(wait_s)
        return [(key.fd, events) for key, events in found]

    def _next_s(self) -> float:
        """Return the time of the next timer."""
        timers = self._timers
        while timers and timers[0].call is None:
            heapq.heappop(timers)
        return timers[0].due_s if timers else math.inf

    def _on_wake(self, *event: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 4096)
