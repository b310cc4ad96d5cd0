"""Memory that large input took, given back to the system when the input is gone.

glibc keeps freed blocks for later, up to all that a process ever had: 270 MB after a client that
had sent so much of unfinished messages.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

GIVE_BACK_BYTES = 33_554_432
"""The least memory that is worth it: giving back 256 MB takes 6 ms."""

GIVE_BACK_S = 0.5
"""The wait after the release, in which more may be released."""


def _trim() -> Callable[[int], int] | None:
    """Return the C library's function that gives free memory back; `None` if it has none."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None
    return trim


class ReleasedMemory:
    """Watches a number of bytes; gives memory back when most of a large amount is released."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._trim = _trim()
        self._most_bytes = 0

    def note(self, held_bytes: int) -> None:
        """Note how many bytes are held now."""
        if held_bytes >= self._most_bytes:
            self._most_bytes = held_bytes
        elif self._most_bytes >= GIVE_BACK_BYTES and held_bytes <= self._most_bytes // 4:
            self._most_bytes = held_bytes
            self._loop.call_later(GIVE_BACK_S, self.give_back)

    def give_back(self) -> None:
        """Give free memory back to the system."""
        if self._trim is not None:
            self._trim(0)
