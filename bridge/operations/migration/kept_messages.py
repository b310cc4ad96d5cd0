"""Messages of the first reading of an entity that are kept until they are copied."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bridge.operations.migration.copy_effects import PeekedMessage
from bridge.remote.message import RemoteMessage

OVERHEAD_BYTES: Final = 512
"""What a message takes in memory beside its own bytes."""

_NOTHING: Final = RemoteMessage()


class KeptMessages:
    """The first messages that a reading of an entity has shown, by place and number.

    Args:
        places: how many places the entity has.
        bytes_max: how much memory they may take, estimated; 0: none is kept.
    """

    def __init__(self, places: int, bytes_max: int) -> None:
        self._places: list[dict[int, tuple[PeekedMessage, bytes]]] = [{} for _ in range(places)]
        self._left_bytes = bytes_max

    def add(self, place: int, message: PeekedMessage) -> None:
        """Keep a message, unless there is no room for it."""
        needed_bytes = message.size_bytes + OVERHEAD_BYTES
        if needed_bytes > self._left_bytes:
            self._left_bytes = 0  # those behind it are read again: with this one, in one page
            return
        self._left_bytes -= needed_bytes
        # As bytes: its sections, and what was read of them, would take a kilobyte more.
        kept = replace(message, message=_NOTHING, encoded_digest=b"")
        self._places[place][message.number] = kept, message.message.encode()

    def pop(self, place: int, number: int) -> PeekedMessage | None:
        """Return a message without its encoded digest, and keep it no longer; `None`: not kept."""
        kept = self._places[place].pop(number, None)
        return kept and replace(kept[0], message=RemoteMessage.read(kept[1]))

    def clear(self) -> None:
        """Keep none any longer."""
        for each in self._places:
            each.clear()
        self._left_bytes = 0
