"""Messages of the first reading of an entity that are kept until they are copied."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bridge.operations.migration.copy_effects import PeekedMessage

OVERHEAD_BYTES: Final = 1_024
"""What a message takes in memory beside its own bytes."""


class KeptMessages:
    """The first messages that a reading of an entity has shown, by place and number.

    Args:
        places: how many places the entity has.
        bytes_max: how much memory they may take, estimated; 0: none is kept.
    """

    def __init__(self, places: int, bytes_max: int) -> None:
        self._places: list[dict[int, PeekedMessage]] = [{} for _ in range(places)]
        self._left_bytes = bytes_max

    def add(self, place: int, message: PeekedMessage) -> None:
        """Keep a message, unless there is no room for it."""
        needed_bytes = message.size_bytes + OVERHEAD_BYTES
        if needed_bytes > self._left_bytes:
            self._left_bytes = 0  # those behind it are read again: with this one, in one page
            return
        self._left_bytes -= needed_bytes
        # A message remembers what was read of it, which takes more than its bytes: not this copy.
        self._places[place][message.number] = replace(message, message=replace(message.message))

    def pop(self, place: int, number: int) -> PeekedMessage | None:
        """Return a message, and keep it no longer; `None`: it is not kept."""
        return self._places[place].pop(number, None)

    def clear(self) -> None:
        """Keep none any longer."""
        for each in self._places:
            each.clear()
        self._left_bytes = 0
