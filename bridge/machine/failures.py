"""Failed deliveries that dead letters came with; the others were in the dead-letter queue."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

CARRIED_MAX = 50_000


class CarriedFailures:
    """The dead letters of one queue."""

    def __init__(self) -> None:
        self._carried: OrderedDict[Hashable, int] = OrderedDict()

    def failures_here(self, identity: Hashable, failures: int) -> int:
        """Return how many of a dead letter's failures were in the dead-letter queue itself.

        RabbitMQ 4 shows at the first delivery what was counted where the dead letter came from;
        what a message came with is therefore left out.
        """
        carried = self._carried.setdefault(identity, failures)
        if len(self._carried) > CARRIED_MAX:
            self._carried.popitem(last=False)
        return max(0, failures - carried)
