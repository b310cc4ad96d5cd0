"""How often the messages of one queue have failed, as its process has seen, for peeks.

RabbitMQ tells a message's count with a delivery only. Whoever returns a message, or gets one that
was returned, notes it here; from the entity's first peek on the counts are written to the settled
stream, and forgotten.
"""

from __future__ import annotations

COUNTS_MAX = 10_000
"""The most counts that wait to be written; before the first peek these are the latest."""


class FailedDeliveries:
    """The counts that are not written yet.

    Attributes:
        counts: by sequence number, the failed deliveries of a message.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"FailedDeliveries({len(self.counts)})"

    def note(self, number: int, failures: int) -> None:
        """Note that a message has failed so often."""
        if number < 0:
            return
        counts = self.counts
        counts.pop(number, None)  # the latest are the last
        if len(counts) >= COUNTS_MAX:
            del counts[next(iter(counts))]
        counts[number] = failures

    def left(self, number: int) -> None:
        """Forget the count of a message that has left its queue."""
        self.counts.pop(number, None)

    def written(self, counts: dict[int, int]) -> None:
        """Forget counts that are in the stream now, unless they have changed since."""
        for number, failures in counts.items():
            if self.counts.get(number) == failures:
                del self.counts[number]
