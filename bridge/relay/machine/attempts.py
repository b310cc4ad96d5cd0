"""When a target that has failed is tried again."""

from __future__ import annotations

from bridge.relay.machine.effects import Failed

WAIT_MS = 200
WAIT_MAX_MS = 5_000
"""The first and the longest wait before a batch is sent again that has failed."""


class Attempts:
    """How a target answers.

    Args:
        outage_ms: how long it may be away.

    Attributes:
        failing_since_ms: since when it is away; `None` while it answers.
        cause: why it is away.
        resume_at_ms: nothing is sent before.
    """

    def __init__(self, outage_ms: int) -> None:
        self.failing_since_ms: int | None = None
        self.cause = ""
        self.resume_at_ms = 0
        self._outage_ms = outage_ms
        self._failures = 0
        self._paused_until_ms = 0

    @property
    def over_ms(self) -> int | None:
        """When it has been away for too long; `None` while it answers."""
        since_ms = self.failing_since_ms
        return None if since_ms is None else since_ms + self._outage_ms

    def answered(self) -> None:
        """Note that it is there; a pause that it has asked for still holds."""
        self.failing_since_ms = None
        self.cause = ""
        self._failures = 0
        self.resume_at_ms = self._paused_until_ms

    def failed(self, outcome: Failed, now_ms: int) -> None:
        """Wait longer than the last time, and as long as it asks for."""
        if self.failing_since_ms is None:
            self.failing_since_ms = now_ms
        self.cause = outcome.cause
        self._failures += 1
        wait_ms = min(WAIT_MS << min(self._failures - 1, 10), WAIT_MAX_MS)
        self._paused_until_ms = max(self._paused_until_ms, now_ms + outcome.pause_ms)
        self.resume_at_ms = max(self.resume_at_ms, now_ms + wait_ms, self._paused_until_ms)
