"""What is to be published if this process is killed, in memory that the keeper shares.

A will is the ready-made frames of a publish. When the process is killed, the keeper writes its
wills to the connection after all that RabbitMQ has been given time to apply; so they say, to whom
it concerns, that nothing of that was lost. A process that lives withdraws them.
"""

from __future__ import annotations

import mmap
import os
import socket

from bridge.broker import keeping


class Will:
    """The memory of one connection's wills.

    It also holds where in the connection's stream of bytes a frame ends: wills that came into the
    middle of one would be taken for a part of it.

    Args:
        kept: the connection's socket; nothing is on its way to the kernel now.
        sent_bytes: what the owner counts as written on it so far.
        farewell: the frames that end the connection, to be written behind all wills. If it ended
            without, RabbitMQ's channels might drop what they have not looked at.

    Attributes:
        descriptor: names the memory to the keeper.

    Raises:
        OSError: the system has no memory, or no descriptor, to give.
    """

    def __init__(self, kept: socket.socket, sent_bytes: int, farewell: bytes) -> None:
        self._offset = keeping.sent_bytes(kept) - sent_bytes
        self._places = 0
        self._free: list[int] = []
        self._ends_noted = 0
        self.descriptor = os.memfd_create("busbridge-will")
        os.ftruncate(self.descriptor, keeping.ENDS_BYTES)
        self._ends = mmap.mmap(self.descriptor, keeping.ENDS_BYTES)
        self.note_end(sent_bytes)
        self.put(farewell)

    def put(self, frames: bytes) -> int | None:
        """Have these frames written after a kill; returns their place, `None` when too long.

        Raises:
            OSError: the system has no memory to give.
        """
        if len(frames) > keeping.WILL_BYTES_MAX:
            return None
        place = self._free.pop() if self._free else self._places
        if place == self._places:
            os.ftruncate(self.descriptor, keeping.will_at(place + 1))
            self._places += 1
        at = keeping.will_at(place)
        length = keeping.WILL_LENGTH.pack(len(frames))
        # A kill in between leaves no will.
        os.pwrite(self.descriptor, frames, at + len(length))
        os.pwrite(self.descriptor, length, at)
        return place

    def withdraw(self, place: int) -> None:
        """Have what was put at this place not be written."""
        os.pwrite(self.descriptor, keeping.WILL_LENGTH.pack(0), keeping.will_at(place))
        self._free.append(place)

    def note_end(self, sent_bytes: int) -> None:
        """Note that a frame ends where so many bytes are written; called before they are."""
        keeping.note_end(self._ends, self._ends_noted, self._offset + sent_bytes)
        self._ends_noted += 1

    def close(self) -> None:
        """Free the memory; the keeper has its own view of it."""
        self._ends.close()
        os.close(self.descriptor)
