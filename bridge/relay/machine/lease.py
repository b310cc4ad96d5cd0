"""How long the holder of a session's lock may believe in it."""

from __future__ import annotations

from bridge.relay.machine.renewals import RENEWED_AFTER, again_at_ms, given_up_after_ms

LOCK_MS_MIN = 5_000
LOCK_MS_MAX = 300_000
"""Service Bus locks for 5 s to 5 min; clocks that differ give no other times."""


def lock_ms_of(until_ms: int, now_ms: int) -> int:
    """Return for how long something is locked whose lock ends then, by its server's clock."""
    return max(LOCK_MS_MIN, min(LOCK_MS_MAX, until_ms - now_ms))


class Lease:
    """What is believed of a session's lock: nothing is done under it when it may be over.

    Args:
        until_ms: the end of the lock, as its server tells it.
        asked_ms: when it was asked for, by our clock; or when it was given.

    Attributes:
        due_ms: when it is to be renewed.
        ends_ms: from when on it is given up.
    """

    def __init__(self, until_ms: int, asked_ms: int) -> None:
        self.renewed(until_ms, asked_ms)

    def __repr__(self) -> str:
        return f"<Lease due_ms={self.due_ms} ends_ms={self.ends_ms}>"

    def is_held(self, now_ms: int) -> bool:
        """Whether nobody else can have the session."""
        return now_ms < self.ends_ms

    def renewed(self, until_ms: int, asked_ms: int) -> None:
        """Note the lock's new end."""
        lock_ms = lock_ms_of(until_ms, asked_ms)
        self.due_ms = asked_ms + int(RENEWED_AFTER * lock_ms)
        self.ends_ms = asked_ms + given_up_after_ms(lock_ms)

    def failed(self, now_ms: int) -> None:
        """Note that a renewal was not answered; it is made again as long as there is time."""
        self.due_ms = again_at_ms(self.ends_ms, now_ms)

    def lose(self) -> None:
        """Note that the lock is another's, or nobody's."""
        self.ends_ms = 0
