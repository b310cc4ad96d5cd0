"""What an earlier term may have left in the inbox: which of it comes again, and until when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from bridge.sidecar.arrival_buffer import PREFETCH_MAX
from bridge.sidecar.snapshots import MARGIN_S
from bridge.wire.envelope import Item


class Inherited:
    """Watches what one term inherited come again.

    RabbitMQ gives back what was unacked before anything newer, and it is no more than may be sent
    ahead.

    Args:
        returning: native messages that were published again, and whose arrivals come once more.
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
        """Whether all of it has come, and its acks have surely arrived."""
        return self._returned_s is not None and self._time_s() - self._returned_s >= MARGIN_S

    def count(self) -> None:
        """One more arrival is carried out."""
        self._carried_out += 1

    def look(self, *, has_token: bool) -> None:
        """Note when all has come that was unacked when this term began."""
        if (has_token or self._carried_out >= PREFETCH_MAX) and self._returned_s is None:
            self._returned_s = self._time_s()

    def await_return(self, native: Item) -> None:
        """A native message was published again; it has no identity by which it is known."""
        self._returning[native.properties, native.body] += 1

    def has_returned(self, native: Item) -> bool:
        """Whether this native message is one that was published again."""
        returning = self._returning
        if not returning or returning[native.properties, native.body] <= 0:
            return False
        returning[native.properties, native.body] -= 1
        return True
