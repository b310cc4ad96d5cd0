"""The ages of a queue's messages, counted in messages: old messages make a queue's log too long.

A quorum queue before RabbitMQ 4.3 keeps its log from the oldest message on: 1.3 KB for each later
message, even for messages that have left. The fault is RabbitMQ's (docs/rabbitmq-faults.md:
log-of-old). So old messages are published again, oldest first, while more than half of the messages
that came later have left. So at most one message is published again for each message that passes
through the queue.
"""

from __future__ import annotations

STEP = 10_000
"""Messages in one step of age."""

GONE_MIN = 50_000
"""So many gone messages are no reason to publish a message again (65 MB of log)."""


class Ages:
    """The count of a queue's arrivals.

    Attributes:
        now: the age of a message that comes now, in steps.
    """

    def __init__(self, step: int | None = None, gone_min: int | None = None) -> None:
        self.now = 0
        self._step = STEP if step is None else step
        self._gone_min = GONE_MIN if gone_min is None else gone_min
        self._arrivals = 0

    def __repr__(self) -> str:
        return f"Ages({self._arrivals} arrivals)"

    def arrived(self) -> None:
        """Count a message that has come."""
        self._arrivals += 1
        if self._arrivals % self._step == 0:
            self.now += 1

    def limit(self, there: int) -> int:
        """Return the age below which messages are old, when `there` messages are in the queue."""
        return (self._arrivals - there - max(self._gone_min, there)) // self._step
