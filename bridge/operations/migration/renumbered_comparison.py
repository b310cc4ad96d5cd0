"""The copies of a place at a target with messages of its own, as they are compared."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.operations.migration.copy_effects import CopyPlace
from bridge.operations.migration.renumbered_message import original
from bridge.operations.migration.verification import Fingerprint, fingerprint
from bridge.remote.message import RemoteMessage


class CopiesShown:
    """Picks a run's copies of a place out of what peeks show, in their order.

    A copy's old number is above that of the copy before it; what has a copy's properties and a
    lower one was sent by an application that has received it.

    Args:
        place: of a run that gives new numbers.

    Attributes:
        own: how many messages were the target's own.
    """

    def __init__(self, place: CopyPlace) -> None:
        self._place = place
        self._last = 0
        self.own = 0

    def fingerprints(self, page: Sequence[RemoteMessage]) -> list[Fingerprint]:
        """Return what is compared of the copies of the next page, by their old numbers."""
        shown = []
        for message in page:
            found = original(message, self._place)
            number = 0 if found is None else found.sequence_number or 0
            if found is None or number <= self._last:
                self.own += 1
                continue
            self._last = number
            shown.append(fingerprint(found, is_dead=self._place.is_dead))
        return shown
