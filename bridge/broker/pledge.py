"""What is promised to be written to a socket, in memory that the keeper shares.

Giving bytes to the kernel takes longer than all else that a completion needs. So they are put into
this memory first, the client is answered, and then they are written. When the process is killed in
between, the keeper finds them and writes what the kernel has not taken yet: it counts what was
ever written on the connection (`keeping.sent_bytes`).
"""

from __future__ import annotations

import mmap
import os
import socket

from bridge.broker import keeping


class Pledge:
    """The memory of one connection.

    Args:
        kept: the connection's socket; nothing is on its way to the kernel now.
        sent_bytes: what the owner counts as written on it so far.

    Attributes:
        descriptor: names the memory to the keeper.
        due: what is promised and not written yet.

    Raises:
        OSError: the system has no memory, or no descriptor, to give.
    """

    def __init__(self, kept: socket.socket, sent_bytes: int) -> None:
        self.due = b""
        self._offset = keeping.sent_bytes(kept) - sent_bytes
        self.descriptor = os.memfd_create("busbridge-pledge")
        os.ftruncate(self.descriptor, keeping.PLEDGE_BYTES)
        self._memory = mmap.mmap(self.descriptor, keeping.PLEDGE_BYTES)

    @staticmethod
    def is_possible() -> bool:
        """Whether this operating system has what it takes."""
        return hasattr(os, "memfd_create") and hasattr(socket, "TCP_INFO")

    def add(self, data: bytes, sent_bytes: int) -> bool:
        """Promise to write `data` next, behind what is promised and not kept yet.

        Returns False, and promises nothing, when that would be too much.
        """
        if len(self.due) + len(data) > keeping.PLEDGE_BYTES_MAX:
            return False
        if not self.due:
            keeping.begin_pledge(self._memory, self._offset + sent_bytes)
        keeping.add_to_pledge(self._memory, len(self.due), data)
        self.due += data
        return True

    def take(self) -> bytes:
        """Return what is promised; the caller writes it now."""
        due, self.due = self.due, b""
        return due

    def close(self) -> None:
        """Free the memory; the keeper has its own view of it."""
        self._memory.close()
        os.close(self.descriptor)
