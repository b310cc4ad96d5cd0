"""What the machine that takes messages wants done, and what it is told, as values.

What is sent, settled and renewed, and how a target answers, are the values of the relay's hand-over
(`bridge.relay.machine.effects`): `Send`, `Complete`, `Release`, `Renew`; `Accepted`, `Refused`,
`Failed`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

from bridge.relay.machine.effects import Complete, Release, Renew, Send


@dataclass(frozen=True, slots=True)
class Write:
    """Write messages to the undo file, and have the disk confirm it.

    Attributes:
        batch: names it when it is told that it is written.
    """

    batch: int
    keys: tuple[int, ...]


class TakingEnd(Enum):
    """Why no more messages are taken.

    Attributes:
        DONE: the limit is reached, or no more came.
        HELD: more messages that are not wanted stand in front than may be held.
        STOPPED: somebody has asked for it.
        AWAY: the target was away for too long.
        LOST: the source does not answer any more.
        UNWRITTEN: the undo file cannot be written.
    """

    DONE = "done"
    HELD = "held"
    STOPPED = "stopped"
    AWAY = "away"
    LOST = "lost"
    UNWRITTEN = "unwritten"


@dataclass(frozen=True, slots=True)
class TakingEnded:
    """Nothing is in hand any more."""

    end: TakingEnd
    cause: str


TakingEffect = Write | Send | Complete | Release | Renew | TakingEnded


@dataclass(frozen=True, slots=True)
class Received:
    """A message that the source has given, locked.

    Attributes:
        key: names it; never used twice.
        number, enqueued_ms: at the source; they tell one message from all others. 0: it has none.
        is_wanted: whether it is taken; otherwise it is held, and given back at the end.
        refusal: why it cannot be taken, though it may be wanted: it is held then.
        group: only messages of the same one share a batch.
        is_ordered: messages of its group are sent one batch after the other, as those of a session.
        size_bytes: its size in a batch.
        lock_ms: for how long it is locked.
    """

    key: int
    number: int
    enqueued_ms: int = 0
    is_wanted: bool = True
    refusal: str = ""
    group: Hashable = None
    is_ordered: bool = False
    size_bytes: int = 0
    lock_ms: int = 0

    @property
    def identity(self) -> tuple[int, int]:
        """What it has in common with the same message when it comes again.

        Bytes that are no message have no number: they are known by their key alone.
        """
        return (self.number, self.enqueued_ms) if self.number else (-self.key, 0)
