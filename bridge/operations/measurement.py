"""Measuring how fast messages go: rounds, their messages one by one, and the figures of all rounds.

The clock is an argument.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_UNSENT, _SENT, _CAME = 0, 1, 2

_DIGITS_MAX: Final = 18


class MessageAccount:
    """The messages of a round: each that was sent is to come once.

    It takes a byte for each message.

    Args:
        prefix: what the ids of this round begin with, and those of no other.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}-"
        self._states = bytearray()
        self._awaited = self._sent = self._twice = self._strange = 0

    @property
    def sent(self) -> int:
        """How many were sent."""
        return self._sent

    @property
    def missing(self) -> int:
        """How many were sent and have not come."""
        return self._awaited

    def new_id(self) -> str:
        """Return the id of a message that is to be sent."""
        self._states.append(_UNSENT)
        return f"{self._prefix}{len(self._states) - 1}"

    def note_sent(self, message_id: str) -> None:
        """Note that the sending of a message of `new_id` is confirmed."""
        number = self._number_of(message_id)
        if number is None or self._states[number] != _UNSENT:
            raise ValueError(f"{message_id} is no message that is to be sent.")
        self._states[number] = _SENT
        self._sent += 1
        self._awaited += 1

    def note_came(self, message_id: object) -> None:
        """Note that a message has come, whatever its id is."""
        number = self._number_of(message_id)
        if number is None or self._states[number] == _UNSENT:
            self._strange += 1
        elif self._states[number] == _CAME:
            self._twice += 1
        else:
            self._states[number] = _CAME
            self._awaited -= 1

    def faults(self) -> list[str]:
        """Return what is wrong at the end, kind by kind; empty: each has come once."""
        kinds = {
            f"missing: {self._awaited:,} of {self._sent:,} that were sent": self._awaited,
            f"came twice: {self._twice:,} of {self._sent:,} that were sent": self._twice,
            f"came and not sent by this round: {self._strange:,}": self._strange,
        }
        return [text for text, count in kinds.items() if count]

    def _number_of(self, message_id: object) -> int | None:
        if not isinstance(message_id, str) or not message_id.startswith(self._prefix):
            return None
        digits = message_id.removeprefix(self._prefix)
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX):
            return None
        number = int(digits)
        return number if number < len(self._states) else None


class RoundLimit:
    """How much a round does: so many messages, for so long at most.

    Args:
        messages: how many.
        seconds: how long, from `begin` on.
        clock: the time in seconds.
    """

    def __init__(self, messages: int, seconds: float, clock: Callable[[], float]) -> None:
        self.messages = messages
        self._seconds = seconds
        self._clock = clock
        self._taken = self._done = 0
        self._began_s: float | None = None

    def begin(self) -> None:
        """Start the clock."""
        self._began_s = self._clock()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be begun."""
        assert self._began_s is not None
        return self._taken >= self.messages or self._clock() - self._began_s >= self._seconds

    def take(self, count: int = 1) -> int:
        """Return how many messages to work on next, `count` at most; 0: the round is over."""
        if self.is_over:
            return 0
        found = min(count, self.messages - self._taken)
        self._taken += found
        return found

    def give_back(self, count: int) -> None:
        """Take back messages of `take` on which nothing was done."""
        self._taken -= count

    def note_done(self, count: int = 1) -> None:
        """Note that messages are confirmed."""
        self._done += count

    def rate(self) -> float:
        """Return the messages a second, from `begin` to now; 0 where none was done."""
        assert self._began_s is not None
        elapsed_s = self._clock() - self._began_s
        return self._done / elapsed_s if elapsed_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class RateFigure:
    """The rates of all rounds of some work, beside a peer's that did the same in turns.

    Attributes:
        rates: a second, one of each round.
        peers: the same; empty where no peer does this work.
    """

    work: str
    rates: tuple[float, ...]
    peers: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rates)

    @property
    def peer_median(self) -> float | None:
        """The median of the peer's rounds."""
        return statistics.median(self.peers) if self.peers else None

    @property
    def ratio(self) -> float | None:
        """Our median by the peer's: 2.0 is twice as fast as the peer."""
        peers = self.peer_median
        return self.median / peers if peers else None
