"""So many messages a second, for commands that work on one after the other."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bridge.commands.clock import now_ms
from bridge.relay.machine.allowance import Allowance


class Pace:
    """Lets messages through at a rate.

    Args:
        rate_per_s: messages a second; `None` for any number.
    """

    def __init__(self, rate_per_s: float | None) -> None:
        self._allowance = Allowance(rate_per_s, now_ms())

    async def wait(self, asked: asyncio.Event) -> None:
        """Return when the next message may go, or somebody stops the command."""
        while self._allowance.left(now := now_ms()) == 0 and not asked.is_set():
            left_ms = max(self._allowance.next_ms() - now, 1)
            with suppress(TimeoutError):
                await asyncio.wait_for(asked.wait(), left_ms / 1000)
        self._allowance.take(1)
