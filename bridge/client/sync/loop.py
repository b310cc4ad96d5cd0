"""The loop on which pika's connections of a client run: sockets, timers, and calls.

A turn of it may be taken in any thread, by one at a time (`thread.IoThread` sees to that); its
timers are called, and sockets waited for, in the I/O thread only.
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
"""So many cancelled timers may be kept beside as many as were there when they were dropped last."""

WAIT_MAX_S = 5.0
"""So long is waited at most: a timer that is due later wakes nobody when it is made."""


class Timer:
    """Something that will be called."""

    __slots__ = ("call", "due_s")

    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s = due_s
        self.call: Callable[[], None] | None = call

    def __lt__(self, other: Timer) -> bool:
        return self.due_s < other.due_s

    def cancel(self) -> None:
        """It will not be called."""
        self.call = None


class Loop:
    """What pika wants of a loop, and turns of it.

    Attributes:
        calls: what is to be called; others append to it without a lock, and `wake`.
        soons: what is to be called at the end of this turn; appended to in turns.
    """

    READ = selectors.EVENT_READ
    WRITE = selectors.EVENT_WRITE
    ERROR = 0  # it shows as both

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
        # Not before nobody can wake it: by then its number may be another file's.
        weakref.finalize(self, os.close, self._writing)
        self.add_handler(self._reading, self._on_wake, self.READ)

    def close(self) -> None:
        """Wait for nothing any more."""
        self._selector.close()
        os.close(self._reading)

    # What pika calls, in a turn.

    def add_handler(self, fd: int, handler: Handler, events: int) -> None:
        """Have a handler called when there is one of these events."""
        self._handlers[fd] = handler, events
        self._changed.add(fd)

    def update_handler(self, fd: int, events: int) -> None:
        """Have it called for these events instead."""
        self._handlers[fd] = self._handlers[fd][0], events
        if self._waited.get(fd) == events:  # within a turn pika may begin to write, and be done
            self._changed.discard(fd)
        else:
            self._changed.add(fd)

    def remove_handler(self, fd: int) -> None:
        """Call it no more; its file is about to be closed."""
        del self._handlers[fd]
        self._changed.discard(fd)
        if self._waited.pop(fd, None) is not None:
            self._selector.unregister(fd)

    def call_later(self, wait_s: float, call: Callable[[], None]) -> Timer:
        """Call something after a while."""
        timer = Timer(time.monotonic() + wait_s, call)
        if len(self._timers) >= self._timers_max:
            self._timers = [each for each in self._timers if each.call is not None]
            heapq.heapify(self._timers)
            self._timers_max = 2 * len(self._timers) + _SLACK
        heapq.heappush(self._timers, timer)
        return timer

    def remove_timeout(self, timer: Timer) -> None:
        """Call it no more."""
        timer.cancel()

    def add_callback(self, call: Callable[[], None]) -> None:
        """Call something in a turn of the I/O thread; for any thread."""
        self.calls.append(call)
        self.wake()

    # Turns.

    @property
    def is_overdue(self) -> bool:
        """Whether the I/O thread waits for less than there is to wait for now."""
        return bool(self.calls or self.soons or self._changed) or self._next_s() < self._until_s

    def wake(self) -> None:
        """Have the I/O thread take a turn; for any thread."""
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(OSError):  # it is full, or nobody reads
                os.write(self._writing, b"!")

    def do(self, call: Callable[..., object], *arguments: Any) -> None:
        """Call something; whatever it raises, the loop goes on."""
        try:
            call(*arguments)
        except Exception:
            log.exception("The client's I/O goes on after an error.")

    def do_all(self, calls: deque[Callable[[], None]]) -> None:
        """Call what was to be called when this began."""
        for _ in range(len(calls)):
            self.do(calls.popleft())

    def turn(self, ready: Iterable[tuple[int, int]]) -> None:
        """Call handlers of what is ready, timers that are due, and what is to be called."""
        self._is_woken = False  # also when what said so was interrupted, and has not written
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
        """See what is to be waited for."""
        while self._changed:
            fd = self._changed.pop()
            events = self._handlers[fd][1]
            is_new = fd not in self._waited
            self._waited[fd] = events
            self.do(self._selector.register if is_new else self._selector.modify, fd, events)
        until_s = min(self._next_s(), time.monotonic() + WAIT_MAX_S)
        self._until_s = -math.inf if self.calls or self.soons else until_s

    def wait(self) -> list[tuple[int, int]]:
        """Wait for that; return the files that are ready, with what for."""
        wait_s = max(0.0, self._until_s - time.monotonic())
        found = self._selector.select(wait_s)
        return [(key.fd, events) for key, events in found]

    def _next_s(self) -> float:
        """Return when the next timer is due."""
        timers = self._timers
        while timers and timers[0].call is None:
            heapq.heappop(timers)
        return timers[0].due_s if timers else math.inf

    def _on_wake(self, *event: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reading, 4096)
