"""Links that end together: a few in each turn of the event loop.

One frame, the loss of a connection or the expiry of a token ends up to 5,000 links. The release of
each begins work in the engine. The links of different clients are released in turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

RELEASES_MAX = 50
"""The most links that are released in one turn."""

_log = logging.getLogger("busbridge.gateway")

Release = Callable[[], None]


class Endings:
    """The links of a gateway's clients that have ended and are not released yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[object, deque[Release]] = {}
        self._released = 0
        self._is_next_due = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, client: object, release: Release) -> None:
        """Release an ended link of a client: now, or in a later turn behind others."""
        self._call_next()
        if not self._waiting and self._released < RELEASES_MAX:
            self._released += 1
            release()
            return
        self._waiting.setdefault(client, deque()).append(release)

    def finish(self) -> None:
        """Release all of them now."""
        while self._waiting:
            self._release()

    def _call_next(self) -> None:
        if not self._is_next_due:
            self._is_next_due = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_next_due = False
        self._released = 0
        while self._waiting and self._released < RELEASES_MAX:
            self._release()
        if self._waiting:
            self._call_next()

    def _release(self) -> None:
        client, releases = next(iter(self._waiting.items()))
        del self._waiting[client]
        release = releases.popleft()
        if releases:
            self._waiting[client] = releases  # behind those of the others
        self._released += 1
        try:
            release()
        except Exception:
            _log.exception("link.unreleased")
