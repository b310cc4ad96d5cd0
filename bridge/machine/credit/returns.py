"""What has gone back to a queue of RabbitMQ 4.3, and may be in front of all else in it.

RabbitMQ delivers what went back first, in the order in which that happened, whatever the numbers.
So a message that goes back stands behind all that went back before and has not come since
(docs/rabbitmq-faults.md: behind-returned). To stand in front it has to wait until that has come
once more, and goes back with it. RabbitMQ returns messages itself, too: what was on its way to a
window that is closed with room (cancel-order).

The room of a fetch takes the first of them; none is left when a get finds nothing, or a message
comes that was never delivered before.

A channel passes on some returns at once. The rest it keeps back while it passes on a window, then
passes it on window by window, in no order (returns-late). RabbitMQ answers a get when the queue has
carried out what the channel had passed on; then the channel passes on the rest, and answers the
next get behind that.
"""

from __future__ import annotations

PROOFS = 2
"""So many gets, one after the other, show that all that went back before them is in the queue."""


class Returns:
    """The returns of one queue.

    Args:
        passed_on_max: the most returns that a channel passes on in their order.

    Attributes:
        count: messages that went back from here, and for which no fetch has had room since.
        astray_max: messages that RabbitMQ may have returned itself, of windows that have ended.
        may_come: whether there is any of these.
        is_mixed: RabbitMQ may have returned a message behind one of a higher number.
        kept_back_max: messages that went back from here, and that a channel may be keeping back.
        proof: the get that shows whether one is kept back; `None` while none does.
    """

    def __init__(self, passed_on_max: int) -> None:
        self.count = 0
        self.astray_max = 0
        self.may_come = False
        self.is_mixed = False
        self.kept_back_max = 0
        self.proof: int | None = None
        self._passed_on_max = passed_on_max
        self._last = 0
        self._proofs = 0

    def __repr__(self) -> str:
        return f"Returns({self.count}, astray_max={self.astray_max})"

    def add(self, number: int) -> None:
        """Add a message that goes back now."""
        self._last = max(self._last, number) if self.count else number
        self.count += 1
        self.may_come = True
        self.kept_back_max += 1
        self.proof, self._proofs = None, 0

    def went_astray(self, room: int) -> None:
        """Note that a window has ended with room: what was on its way, RabbitMQ has returned."""
        if room:
            self.astray_max += room
            self.may_come = True
            self.is_mixed = self.is_mixed or 0 < self.count <= self._passed_on_max

    def must_come_before(self, number: int, count: int) -> bool:
        """Whether these have to be fetched before others go back, to go back with them.

        Args:
            number: the lowest number of the others, one of which would stand behind a higher one.
            count: how many the others are.
        """
        return 0 < self.count <= self._passed_on_max - count and self._last > number

    def fetched(self, room: int) -> None:
        """Note that a fetch has room, which RabbitMQ fills with these messages first."""
        self.astray_max -= min(max(room - self.count, 0), self.astray_max)
        self.count -= min(room, self.count)
        self.may_come = self.count > 0 or self.astray_max > 0
        self.is_mixed = self.is_mixed and self.may_come

    def have_come(self) -> None:
        """Note that none is left in the queue."""
        self.count = self.astray_max = 0
        self.may_come = self.is_mixed = False

    def prove(self) -> None:
        """Note that the proof was answered, so behind what went back before."""
        self.proof = None
        self._proofs += 1
        if self._proofs >= PROOFS:
            self.kept_back_max = self._proofs = 0

    def lose(self) -> None:
        """Forget all: the channels have ended."""
        self.have_come()
        self.kept_back_max = self._proofs = 0
        self.proof = None
