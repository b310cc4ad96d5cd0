"""What the engine answers to a request for messages by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.message.received import Received


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedLocks:
    """What has become of the numbers that were to be locked.

    Attributes:
        received: the locked messages, in the order of their numbers.
        unavailable: numbers of messages that are there, and that no receiver can have now: they are
            locked, deferred, scheduled, or on their way.
        unreached: numbers of messages that are there, behind more than may be held.
        missing: numbers of which there is no message.
    """

    received: Sequence[Received]
    unavailable: Sequence[int]
    unreached: Sequence[int]
    missing: Sequence[int]
