"""How long ago messages came, counted in messages: what makes a queue's log too long.

A quorum queue before RabbitMQ 4.3 keeps its log from the oldest message on, 1.3 KB for each that
has come since, though it be gone. That is RabbitMQ's (docs/rabbitmq-faults.md: log-of-old).
So what is old is published again, oldest first, while more than half of what came since is gone: as
many again in all, at most, as pass through.
"""

from __future__ import annotations

STEP = 10_000
"""Ages are counted in so many messages."""

GONE_MIN = 50_000
"""So many that are gone are no reason to publish anything again (65 MB of log)."""


class Ages:
    """What has come to a queue.

    Attributes:
        now: the age of what comes now, in steps.
    """

    def __init__(self, step: int | None = None, gone_min: int | None = None) -> None:
        self.now = 0
        self._step = STEP if step is None else step
        self._gone_min = GONE_MIN if gone_min is None else gone_min
        self._arrivals = 0

    def __repr__(self) -> str:
        return f"Ages({self._arrivals} arrivals)"

    def arrived(self) -> None:
        """A message has come."""
        self._arrivals += 1
        if self._arrivals % self._step == 0:
            self.now += 1

    def limit(self, there: int) -> int:
        """Return the age below which messages are old, when so many are there."""
        return (self._arrivals - there - max(self._gone_min, there)) // self._step
