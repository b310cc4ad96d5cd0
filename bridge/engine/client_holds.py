"""How many messages clients that are on RabbitMQ themselves hold, as they say now and then.

RabbitMQ does not count what is delivered and not acked when it is asked how many messages a queue
has. Without these an entity's counts would lack what such clients have locked, and a peek would
take the oldest of its messages for gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

TRUE_S = 20.0
"""So long a count is taken for true: a client that uses an entity says it every 15 s."""

KINDS = 2
"""Active messages, and dead letters."""


class ClientHolds:
    """The counts of all clients that this process has heard of.

    Args:
        now_s: a clock that only goes forward.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._counts: dict[str, dict[str, tuple[float, Sequence[int]]]] = {}
        self._look_s = 0.0

    def __len__(self) -> int:
        """Return how many counts are remembered."""
        return sum(map(len, self._counts.values()))

    def note(self, path: str, address: str, counts: Sequence[int]) -> None:
        """A client says what it holds of an entity.

        Raises:
            ValueError: that are no such counts.
        """
        if len(counts) != KINDS or min(counts) < 0:
            raise ValueError(f"{counts!r} are no counts of active messages and dead letters")
        now_s = self._now_s()
        if now_s >= self._look_s:
            self._look_s = now_s + TRUE_S
            for each in list(self._counts):
                self.of(each)  # what is not true any more is forgotten
        key = path.lower()
        if any(counts):
            self._counts.setdefault(key, {})[address] = now_s + TRUE_S, counts
        elif key in self._counts:
            self._counts[key].pop(address, None)

    def of(self, path: str) -> list[int]:
        """Return what they hold of an entity: active messages, and dead letters."""
        now_s, key = self._now_s(), path.lower()
        said = self._counts.pop(key, {})
        said = {address: each for address, each in said.items() if each[0] > now_s}
        if said:
            self._counts[key] = said
        return [sum(counts[kind] for _, counts in said.values()) for kind in range(KINDS)]
