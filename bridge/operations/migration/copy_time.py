"""How long the copy of a namespace takes, while nobody may send or receive."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bridge.model.entity import Tier
from bridge.operations.migration.state_counts import StateCounts

READS_PER_MESSAGE: Final = 3
"""Each message is read for its number, to be copied, and to see that nothing has changed since."""

CREDITS_PER_S: Final = 1_000
"""Credits that Azure's tiers without capacity of their own give a namespace a second; each message
that is read takes one (Azure, service-bus-throttling)."""

ADMINISTRATION_CREDITS: Final = 10
"""Credits of one request to administration."""

_THROTTLED: Final = frozenset({Tier.BASIC, Tier.STANDARD})


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTime:
    """The time that a copy takes.

    Attributes:
        messages: messages to copy.
        reads: messages that are read at the source.
        credit_s: the shortest time in which Azure gives the source's tier the credits for them, in
            whole seconds; `None` for a tier whose capacity is its own.
        measured_per_s: messages that a peek read a second; `None`: none was made, or too short a
            one.
    """

    messages: int
    reads: int
    credit_s: int | None
    measured_per_s: float | None

    @property
    def measured_s(self) -> int | None:
        """The time of the reads at the rate of the peek, in whole seconds."""
        if self.measured_per_s is None:
            return None
        return math.ceil(self.reads / self.measured_per_s)

    @property
    def least_s(self) -> int | None:
        """The longer of both: it takes no less. `None` if nothing is known."""
        known = [each for each in (self.credit_s, self.measured_s) if each is not None]
        return max(known, default=None)


def copy_time(
    counted: Iterable[StateCounts],
    tier: Tier,
    *,
    requests: int = 0,
    measured_per_s: float | None = None,
) -> CopyTime:
    """Return the time that a copy takes.

    Args:
        counted: what the entities hold.
        tier: the source's.
        requests: requests to the source's administration.
        measured_per_s: how many messages a peek read a second.
    """
    messages = sum(each.total for each in counted)
    reads = messages * READS_PER_MESSAGE
    credit_count = reads + requests * ADMINISTRATION_CREDITS
    return CopyTime(
        messages=messages,
        reads=reads,
        credit_s=math.ceil(credit_count / CREDITS_PER_S) if tier in _THROTTLED else None,
        measured_per_s=measured_per_s,
    )
