"""Counts of the messages that the library's clients hold unacked, as they report them.

RabbitMQ's count of a queue's messages has no unacked ones. Without the reports, an entity's counts
would lack the messages that such clients have locked, and a peek would take its oldest messages for
gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

TRUE_S = 20.0
"""The time that a report counts: a client that uses an entity reports every 15 s."""

KINDS = 2
"""The numbers of a report: active messages, and dead letters."""


class ClientHolds:
    """The latest counts of all clients that report to this process.

    Args:
        now_s: a clock that only goes forward.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._counts: dict[str, dict[str, tuple[float, Sequence[int]]]] = {}
        self._look_s = 0.0

    def __len__(self) -> int:
        """Return the number of reports in memory."""
        return sum(map(len, self._counts.values()))

    def note(self, path: str, address: str, counts: Sequence[int]) -> None:
        """Keep a client's report of its held messages of an entity, for `TRUE_S`.

        Raises:
            ValueError: the counts are not two numbers of at least 0.
        """
        if len(counts) != KINDS or min(counts) < 0:
            raise ValueError(f"{counts!r} are no counts of active messages and dead letters")
        now_s = self._now_s()
        if now_s >= self._look_s:
            self._look_s = now_s + TRUE_S
            for each in list(self._counts):
                self.of(each)  # this forgets reports that are too old
        key = path.lower()
        if any(counts):
            self._counts.setdefault(key, {})[address] = now_s + TRUE_S, counts
        elif key in self._counts:
            self._counts[key].pop(address, None)

    def of(self, path: str) -> list[int]:
        """Return the sums of the clients' held messages of an entity: active, and dead letters."""
        key = path.lower()
        if key not in self._counts:
            return [0] * KINDS
        now_s, said = self._now_s(), self._counts.pop(key)
        said = {address: each for address, each in said.items() if each[0] > now_s}
        if said:
            self._counts[key] = said
        return [sum(counts[kind] for _, counts in said.values()) for kind in range(KINDS)]
