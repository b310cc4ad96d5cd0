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

    Raises:
        OSError: not on this operating system (Linux can).
    """

    def __init__(self, kept: socket.socket, sent_bytes: int) -> None:
        self._offset = keeping.sent_bytes(kept) - sent_bytes
        self.descriptor = os.memfd_create("busbridge-pledge")
        os.ftruncate(self.descriptor, keeping.PLEDGE_BYTES)
        self._memory = mmap.mmap(self.descriptor, keeping.PLEDGE_BYTES)

    @staticmethod
    def is_possible() -> bool:
        """Whether this operating system has what it takes."""
        return hasattr(os, "memfd_create") and hasattr(socket, "TCP_INFO")

    def make(self, data: bytes, sent_bytes: int) -> bool:
        """Promise to write `data` after so many bytes; return False when it is too much."""
        if len(data) > keeping.PLEDGE_BYTES_MAX:
            return False
        keeping.write_pledge(self._memory, self._offset + sent_bytes, data)
        return True

    def close(self) -> None:
        """Free the memory; the keeper has its own view of it."""
        self._memory.close()
        os.close(self.descriptor)
