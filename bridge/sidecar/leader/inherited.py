"""Arrivals that earlier terms may have left unacked in the inbox, and that come again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from bridge.sidecar.leader.snapshots import MARGIN_S
from bridge.wire.envelope import Item

UNACKED_MAX = 4_000
"""The most arrivals that a term leaves unacked: the prefetch of earlier versions of the bridge,
which may have led before; today's is lower."""


class Inherited:
    """Tracks the return of the arrivals that were unacked when a term began.

    RabbitMQ delivers them before anything newer, and they are no more than `UNACKED_MAX`.

    Args:
        returning: native messages that were published again and whose arrivals come once more.
        time_s: the loop's clock.
    """

    def __init__(
        self, returning: Counter[tuple[bytes, bytes]], time_s: Callable[[], float]
    ) -> None:
        self._returning = returning
        self._time_s = time_s
        self._returned_s: float | None = None
        self._carried_out = 0

    @property
    def is_over(self) -> bool:
        """Whether all those arrivals have come, and RabbitMQ has surely received their acks."""
        return self._returned_s is not None and self._time_s() - self._returned_s >= MARGIN_S

    def count(self) -> None:
        """Count an arrival that is carried out."""
        self._carried_out += 1

    def look(self, *, has_token: bool) -> None:
        """Note the time when all arrivals have come that were unacked when this term began.

        That is certain when the term's own ownership token has come, or after `UNACKED_MAX`
        arrivals.
        """
        if (has_token or self._carried_out >= UNACKED_MAX) and self._returned_s is None:
            self._returned_s = self._time_s()

    def await_return(self, native: Item) -> None:
        """Expect the arrival of a native message that was published again.

        Native messages have no identity; properties and body tell them apart.
        """
        self._returning[native.properties, native.body] += 1

    def has_returned(self, native: Item) -> bool:
        """Whether this native message was published again; each one counts once."""
        returning = self._returning
        if not returning or returning[native.properties, native.body] <= 0:
            return False
        returning[native.properties, native.body] -= 1
        return True
