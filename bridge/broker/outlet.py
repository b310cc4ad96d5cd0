"""Writing to a connection's socket here and now, past the event loop's own buffer."""

from __future__ import annotations

import asyncio
import os


class Outlet:
    """The way out of one transport.

    An event loop may put off what is written until the end of its turn (uvloop does). With TLS
    only the transport can write.

    Attributes:
        is_direct: whether what is written is given to the kernel at once, as far as it takes it.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        is_plain = transport.get_extra_info("ssl_object") is None
        socket = transport.get_extra_info("socket") if is_plain else None
        self._number: int = -1 if socket is None else socket.fileno()
        self.is_direct = self._number >= 0

    def write(self, data: bytes) -> None:
        """Give as much as possible to the kernel now, and the rest to the transport."""
        transport = self._transport
        if (
            self.is_direct
            and transport.get_write_buffer_size() == 0
            and not transport.is_closing()  # the descriptor may be another's by then
        ):
            try:
                written = os.write(self._number, data)
            except OSError:  # full, or gone: the transport will find out
                written = 0
            if written == len(data):
                return
            data = data[written:]
        transport.write(data)
