"""What the machine of a hand-over wants done, and what it is told, as values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Literal


@dataclass(frozen=True, slots=True)
class Send:
    """Send messages as one batch, in this order.

    Attributes:
        batch: names it when its outcome is told.
    """

    batch: int
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Complete:
    """Complete messages at the source: the target has confirmed them, or they go nowhere."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Give messages back to the source as they were, uncounted."""

    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Move messages to the source's dead-letter queue."""

    keys: tuple[int, ...]
    reason: str
    description: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the locks of messages at the source."""

    keys: tuple[int, ...]


class Ending(Enum):
    """Why a hand-over has ended.

    Attributes:
        AGAIN: it is to be begun again: the order, or the source's lock, is not sure any more.
        OUTAGE: the target was away for too long; everything was given back.
        REFUSED: the target refuses a message for good, or whoever sends, and the route says to
            stop then.
        STOPPED: somebody has asked for it.
    """

    AGAIN = "again"
    OUTAGE = "outage"
    REFUSED = "refused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Ended:
    """The hand-over holds nothing any more, and does nothing any more."""

    ending: Ending
    cause: str


Effect = Send | Complete | Release | DeadLetter | Renew | Ended


@dataclass(frozen=True, slots=True)
class Accepted:
    """The target has confirmed a batch."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The target refuses a batch as it is, now and later: nothing of it was taken."""

    condition: str
    description: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The target is busy or away; the batch may have been taken, or not.

    Attributes:
        pause_ms: how long the target asks to wait; 0 if it does not say.
        is_of_rights: the target is there, and refuses whoever sends.
        is_in_doubt: whether it may have been taken.
    """

    cause: str
    pause_ms: int = 0
    is_of_rights: bool = False
    is_in_doubt: bool = True


SendOutcome = Accepted | Refused | Failed

Fate = Literal["relay", "complete", "dead-letter", "release", "expired", "refused"]
"""What becomes of a message: sent and completed then, or only settled (what is expired is given
back after a while); or what the route does with one that the target would refuse for good."""


def settlement(
    fate: Fate, keys: tuple[int, ...], reason: str, description: str
) -> Complete | DeadLetter | Release:
    """Return how messages are settled that are only settled."""
    if fate == "complete":
        return Complete(keys)
    return DeadLetter(keys, reason, description) if fate == "dead-letter" else Release(keys)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that the source has delivered, locked.

    Attributes:
        key: names it; never used twice.
        number: its sequence number.
        group: only messages of the same one share a batch; they are of one route.
        size_bytes: its size in a batch.
        lock_ms: for how long it is locked; 0 for a message whose session is locked.
        reason, description: of a dead letter, or of the refusal.
        route: the name of the route that takes it.
        enqueued_ms: when it was enqueued at the source.
    """

    key: int
    number: int = 0
    fate: Fate = "relay"
    group: Hashable = None
    size_bytes: int = 0
    lock_ms: int = 0
    reason: str = ""
    description: str = ""
    route: str = ""
    enqueued_ms: int = 0

    @property
    def identity(self) -> tuple[int, int]:
        """What it has in common with the same message when it comes again.

        Without a number a message is known by its key alone.
        """
        return (self.number, self.enqueued_ms) if self.number else (-self.key, 0)
