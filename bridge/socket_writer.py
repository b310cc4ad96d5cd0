"""Writing to a connection's socket at once, past the event loop's own buffer."""

from __future__ import annotations

import asyncio
import os


class SocketWriter:
    """Writes to one transport's socket.

    An event loop may put off a write until the end of its turn (uvloop does). With TLS only the
    transport can write.

    Args:
        transport: the connection's transport.
        plain: the plain transport below a TLS transport.
    """

    def __init__(
        self, transport: asyncio.Transport, plain: asyncio.Transport | None = None
    ) -> None:
        self._transport = transport
        self._plain = plain
        is_plain = transport.get_extra_info("ssl_object") is None
        socket = transport.get_extra_info("socket") if is_plain else None
        self._number: int = -1 if socket is None else socket.fileno()

    @property
    def unsent_bytes(self) -> int:
        """The number of written bytes that the kernel has not taken yet."""
        plain = self._plain
        below = 0 if plain is None else plain.get_write_buffer_size()
        return self._transport.get_write_buffer_size() + below

    def write(self, data: bytes) -> None:
        """Give as much as possible to the kernel now, and the rest to the transport."""
        transport = self._transport
        if (
            self._number >= 0
            and transport.get_write_buffer_size() == 0
            and not transport.is_closing()  # a closed descriptor's number may be used again
        ):
            try:
                written = os.write(self._number, data)
            except OSError:  # full, or gone: the transport will find out
                written = 0
            if written == len(data):
                return
            data = data[written:]
        transport.write(data)
