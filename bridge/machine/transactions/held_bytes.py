"""The bytes that open transactions hold: those of a connection, and of all together."""

from __future__ import annotations

from bridge.machine.transactions import refusals
from bridge.model.errors import ServiceBusError


class HeldBytes:
    """Operations that wait for the end of their transactions.

    Args:
        most: the bound.
        of_all: those of all connections, of which these are a part; `None`: these are all.

    Attributes:
        held: their bytes now.
    """

    def __init__(self, most: int, of_all: HeldBytes | None = None) -> None:
        self.most = most
        self.held = 0
        self._of_all = of_all

    def __repr__(self) -> str:
        return f"<HeldBytes {self.held} of {self.most}>"

    def change(self, more_bytes: int) -> None:
        """Count an operation, or (below 0) one that waits no more."""
        self.held += more_bytes
        if self._of_all is not None:
            self._of_all.held += more_bytes

    def refusal_of(self, more_bytes: int) -> ServiceBusError | None:
        """Return why there is no room for an operation; `None`: there is."""
        if more_bytes <= 0:
            return None
        if self.held + more_bytes > self.most:
            return refusals.too_much_held(self.most)
        of_all = self._of_all
        if of_all is not None and of_all.held + more_bytes > of_all.most:
            return refusals.too_much_held_together(of_all.most)
        return None
